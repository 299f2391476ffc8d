"""The products of a run side by side: what each holds, costs and publishes exactly. Public."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.pipeline.documents.manifest import Manifest
from jobs.pipeline.report.budget import account_table, query_order
from jobs.pipeline.report.page import Section
from jobs.pipeline.report.table import Cell, Column, Table, names, number, numbers
from jobs.pipeline.report.text import words


def products_sections(manifest: Manifest) -> list[Section]:
    """One section if the run has units beside the persons, else none."""
    if manifest.products is None or manifest.together is None:
        return []
    others = " and ".join(manifest.products)
    lead = (
        f"{manifest.records.capitalize()} and {others} are measured and solved over the same "
        f"geounits, each under a budget of its own. This page is about the {manifest.records}; "
        f"report.html in the folder named {others} is about the {others}."
    )
    composition = account_table(
        manifest.together,
        "together",
        "What the products cost together",
        "The sum holds if one record of each product changes at once. Who knows of one record and "
        "not of the others is bound by the row of its product.",
    )
    table = _table((manifest, *manifest.products.values()))
    return [Section("products", "Products", lead, [table, composition])]


def _table(products: Sequence[Manifest]) -> Table:
    exact = (
        ", ".join(
            [
                *(words(row.query) for row in one.invariants),
                *(f"limits by {words(limit.name)}" for limit in one.limits),
            ]
        )
        for one in products
    )
    queries = (", ".join(map(words, query_order(one.budget))) for one in products)
    counted = [Cell("none") if one.counted is None else number(one.counted) for one in products]
    columns = [
        names("Product", (one.records for one in products)),
        Column("Records", hint="in the microdata", cells=counted),
        numbers("Cells", (one.schema.cells for one in products)),
        names("Measured", queries, "queries"),
        names("Published exactly", (stated or "nothing" for stated in exact)),
    ]
    return Table.of("products-table", "Products of this run", columns)
