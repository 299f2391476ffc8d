"""What of a survey release its pages are made from."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.documents.survey import MeansTable, ReleasedMean, SurveyManifest, SurveyTables
from jobs.report.text import words

SYNTHESIS = "synthesis"  # the part that is the microdata


@dataclass(frozen=True)
class SurveyRelease:
    """A release, or a solution beside it.

    Attributes:
      manifest: The manifest.
      means: Its means, if it has any.
      tables: Its tables, if it has any.
    """

    manifest: SurveyManifest
    means: MeansTable | None
    tables: SurveyTables | None

    @property
    def statistics(self) -> tuple[ReleasedMean, ...]:
        """The released means."""
        return () if self.means is None else self.means.statistics

    @property
    def exact(self) -> list[str]:
        """What is published as it is in the data, beside the number of records."""
        return [
            f"{words(marginal)} (table {words(part.name)})"
            for part in self.manifest.parts
            if part.conditioned is not None
            for marginal in part.conditioned.exact
            if marginal != "total"
        ]

    def part_in_words(self, part: str) -> str:
        """What a part is."""
        if part == SYNTHESIS:
            return "microdata"
        is_table = any(p.name == part and p.conditioned is not None for p in self.manifest.parts)
        return f"{'table' if is_table else 'mean'} of {words(part)}"
