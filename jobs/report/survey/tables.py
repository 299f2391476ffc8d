"""Tables of a survey that keep exact marginals, on a page."""

from __future__ import annotations

import itertools

from jobs.documents.survey import MeasuredPart, ReleasedTable, SurveyTables
from jobs.report import text
from jobs.report.page import Block, Section, TableBlock
from jobs.report.table import Cell, Column, Table, label, name, number
from jobs.report.text import words


def tables_section(tables: SurveyTables) -> Section:
    """Every table with all its counts."""
    lead = (
        "Counts with noise, drawn given that no count is negative and that some marginals are "
        "those of the file."
    )
    blocks: list[Block] = [
        TableBlock(_table(index, one)) for index, one in enumerate(tables.tables)
    ]
    return Section("tables", "Tables", lead, blocks)


def promises_table(parts: list[MeasuredPart]) -> Table:
    """What is proved of each table, and what it leaves unprotected."""
    body = []
    for part in parts:
        promise = part.conditioned
        if promise is not None:
            body.append(
                [
                    label(part.name),
                    name("; ".join(words(marginal) for marginal in promise.exact)),
                    number(promise.k),
                    Cell(promise.gamma, text.ratio(promise.gamma), code=True),
                    Cell(promise.epsilon, text.ratio(promise.epsilon), code=True),
                    Cell(promise.proved, text.ratio(promise.proved), code=True),
                ]
            )
    columns = [
        Column("Table", numeric=False),
        Column("Published exactly", numeric=False),
        Column("Records", hint="k"),
        Column("gamma"),
        Column(text.EPSILON, hint="of the noise"),
        Column("(1 + gamma) k ε", hint="proved, charged"),
    ]
    note = (
        "Of two data sets that agree on what is published exactly and differ in at most k records; "
        "of those that differ in more, K, (1 + gamma) K ε is proved. Parts other than tables cost "
        "their share for one record that changes, K shares for K of them."
    )
    return Table("promises", "What is proved of tables with exact marginals", columns, body, note)


def _table(index: int, one: ReleasedTable) -> Table:
    body = [
        [*map(name, labels), number(count)]
        for labels, count in zip(itertools.product(*one.levels), one.counts, strict=True)
    ]
    columns = [
        *(Column(words(attribute), numeric=False) for attribute in one.attributes),
        Column("Count"),
    ]
    kept = "; ".join(
        words(" * ".join(marginal.attributes)) or "the number of records" for marginal in one.exact
    )
    note = (
        f"Exactly as in the file, without noise: {kept}. Scale of the noise that was conditioned: "
        f"{one.scale}."
    )
    by = words(" * ".join(one.attributes))
    return Table(
        f"table-{index}", f"Records by {by} (table {words(one.name)})", columns, body, note
    )
