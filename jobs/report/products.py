"""The products of a run side by side: what each holds, costs and publishes exactly. Public."""

from __future__ import annotations

from jobs.report import text
from jobs.report.budget import account_table, query_order
from jobs.report.headline import Manifest, part, records, rows, words
from jobs.report.page import Section, TableBlock
from jobs.report.table import Cell, Column, Table, name, number


def products_sections(manifest: Manifest) -> list[Section]:
    """One section if the run has units beside the persons, else none."""
    if not manifest.get("units"):
        return []
    lead = (
        "Persons and units are measured and solved over the same geounits, each under a budget of "
        "its own. This page is about the persons; report.html in the folder named units is about "
        "the units."
    )
    together = account_table(
        part(manifest, "together"),
        "together",
        "What the products cost together",
        "The sum holds if one person and one housing unit or facility change at once. Who knows "
        "the one and not the other is bound by the row of the product.",
    )
    return [
        Section("products", "Products", lead, [TableBlock(_table(manifest)), TableBlock(together)])
    ]


def _table(manifest: Manifest) -> Table:
    columns = [
        Column("Product", numeric=False),
        Column("Records", hint="in the microdata"),
        Column("Cells"),
        Column("Measured", hint="queries", numeric=False),
        Column("Published exactly", numeric=False),
    ]
    body = []
    for product in (manifest, part(manifest, "units")):
        exact = [words(row.get("query")) for row in rows(product, "invariants")]
        exact += [f"limits by {words(row.get('name'))}" for row in rows(product, "limits")]
        body.append(
            [
                name(records(product)),
                number(part(product, "totals").get(records(product))),
                number(part(product, "schema").get("cells"), text.integer),
                name(", ".join(words(query) for query in query_order(product))),
                Cell(", ".join(exact) or "nothing"),
            ]
        )
    return Table("products-table", "Products of this run", columns, body)
