"""Who gains and who loses where totals are expected by housing units. Confidential."""

from __future__ import annotations

from jobs.pipeline.documents.evaluation import HouseholdErrors
from jobs.pipeline.report import text
from jobs.pipeline.report.page import Section
from jobs.pipeline.report.table import Table, labels, numbers


def households_section(found: tuple[HouseholdErrors, ...]) -> list[Section]:
    """Errors of released counts beside those of the plain result; none where it is the only one."""
    if not found:
        return []
    columns = [
        labels("Geolevel", (one.geolevel for one in found)),
        labels("By", (one.kind for one in found)),
        labels("Of", (one.label for one in found)),
        numbers("Answers", (one.answers for one in found)),
        numbers("Records", (one.records for one in found), hint="in truth"),
        numbers("Bias", (one.bias for one in found), text.percent, "released, of the records"),
        numbers("Plain", (one.bias_plain for one in found), text.percent, "bias without"),
        numbers("Squared error", (one.mse for one in found), text.decimal, "released, mean"),
        numbers("Plain", (one.mse_plain for one in found), text.decimal, "squared error without"),
    ]
    lead = (
        "Counts are shrunk toward the persons per housing unit of their parent, so places with "
        "large households lose and places with small ones gain. Plain is the same run without. "
        "Persons per unit are over those of the parent, in truth; groups are concentrated where "
        "their share is 1.5 times that in the parent; sums are of geounits that form none."
    )
    table = Table.of("households", "Errors with and without expected totals", columns)
    return [Section("households", "Housing units as a covariate", lead, [table])]
