"""The certificate of a survey's release: one page to sign. Public."""

from __future__ import annotations

from jobs.pipeline.report.certificate import Claim, Verified, changes_table, write_page
from jobs.pipeline.report.text import words
from jobs.pipeline.storage.place import Place
from jobs.survey.documents import SurveyManifest
from jobs.survey.report.public import survey_budget_table
from jobs.survey.report.release import exact_marginals

_CONDITION = (
    "It holds between possibilities that agree on what is published exactly, named below; of a "
    "change that alters it, nothing is promised."
)
_PUBLIC = (
    "Public before: columns, bins, bounds and spreads, weights and sizes of strata, and the number "
    "of records that means are divided by."
)


def write_survey_certificate(manifest: SurveyManifest, verified: Verified, out: Place) -> None:
    """Write the certificate of a survey as one HTML page, which fits a sheet of A4.

    Args:
      manifest: Of the release.
      verified: What was found when the release was verified.
      out: The file; replaced at once.

    Raises:
      OutputError: It cannot be written.
    """
    privacy = manifest.privacy
    advantages = [] if privacy.attacks is None else [privacy.attacks.advantage]
    exact = [
        (marginal, f"in the table {words(table)}") for marginal, table in exact_marginals(manifest)
    ]
    what = "anything but what is exact" if exact else "anything"
    context = {
        "condition": _CONDITION if exact else "",
        "changes": changes_table(manifest, [(what, Claim.of(privacy), advantages)]),
        "budget": survey_budget_table(manifest),
        "exact": exact,
        "remarks": [_PUBLIC],
    }
    write_page(manifest, "persons", context, verified, out)
