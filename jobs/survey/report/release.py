"""What of a survey release its pages are made from."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.pipeline.report.text import words
from jobs.survey.documents import (
    MeansTable,
    MeasuredPart,
    ReleasedMean,
    SurveyManifest,
    SurveyTables,
)

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


def exact_marginals(manifest: SurveyManifest) -> list[tuple[str, str]]:
    """List (marginal, table) of all that is published as it is in the data."""
    return [
        (marginal, part.name)
        for part in manifest.parts
        if part.conditioned is not None
        for marginal in part.conditioned.exact
    ]


def part_in_words(part: MeasuredPart) -> str:
    """Name a part."""
    if part.name == SYNTHESIS:
        return "microdata"
    return f"{'mean' if part.conditioned is None else 'table'} of {words(part.name)}"
