"""Who gains and who loses where totals are expected by housing units. Confidential."""

from __future__ import annotations

from jobs.documents.evaluation import HouseholdErrors
from jobs.report import text
from jobs.report.page import Section, TableBlock
from jobs.report.table import Column, Table, label, number


def households_section(found: tuple[HouseholdErrors, ...]) -> list[Section]:
    """Errors of released counts beside those of the plain result; none where it is the only one."""
    if not found:
        return []
    columns = [
        Column("Geolevel", numeric=False),
        Column("By", numeric=False),
        Column("Of", numeric=False),
        Column("Answers"),
        Column("Records", hint="in truth"),
        Column("Bias", hint="released, of the records"),
        Column("Plain", hint="bias without"),
        Column("Squared error", hint="released, mean"),
        Column("Plain", hint="squared error without"),
    ]
    body = [
        [
            label(one.geolevel),
            label(one.kind),
            label(one.label),
            number(one.answers),
            number(one.records),
            number(one.bias, text.percent),
            number(one.bias_plain, text.percent),
            number(one.mse, text.decimal),
            number(one.mse_plain, text.decimal),
        ]
        for one in found
    ]
    lead = (
        "Counts are shrunk toward the persons per housing unit of their parent, so places with "
        "large households lose and places with small ones gain. Plain is the same run without. "
        "Persons per unit are over those of the parent, in truth; groups are concentrated where "
        "their share is 1.5 times that in the parent; sums are of geounits that form none."
    )
    table = Table("households", "Errors with and without expected totals", columns, body)
    return [Section("households", "Housing units as a covariate", lead, [TableBlock(table)])]
