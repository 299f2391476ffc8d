"""Tables of a survey that keep exact marginals, on a page."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from jobs.pipeline.report import text
from jobs.pipeline.report.page import Section
from jobs.pipeline.report.table import Table, fractions, labels, names, numbers
from jobs.pipeline.report.text import words
from jobs.survey.documents import MeasuredPart, ReleasedTable, SurveyTables


def tables_section(tables: SurveyTables) -> Section:
    """Every table with all its counts."""
    lead = (
        "Counts with noise, drawn given that no count is negative and that some marginals are "
        "those of the file."
    )
    blocks = [_table(index, one) for index, one in enumerate(tables.tables)]
    return Section("tables", "Tables", lead, blocks)


def promises_table(parts: Sequence[MeasuredPart]) -> Table:
    """What is proved of each table, and what it leaves unprotected."""
    promised = [(part.name, part.conditioned) for part in parts if part.conditioned is not None]
    columns = [
        labels("Table", (table for table, _ in promised)),
        names("Published exactly", ("; ".join(map(words, one.exact)) for _, one in promised)),
        numbers("Records", (one.k for _, one in promised), hint="k"),
        fractions("gamma", (one.gamma for _, one in promised), numeric=True),
        fractions(text.EPSILON, (one.epsilon for _, one in promised), "of the noise", numeric=True),
        fractions(
            "(1 + gamma) k ε", (one.proved for _, one in promised), "proved, charged", numeric=True
        ),
    ]
    note = (
        "Of two data sets that agree on what is published exactly and differ in at most k records; "
        "of those that differ in more, K, (1 + gamma) K ε is proved. Parts other than tables cost "
        "their share for one record that changes, K shares for K of them."
    )
    return Table.of("promises", "What is proved of tables with exact marginals", columns, note)


def _table(index: int, one: ReleasedTable) -> Table:
    by_attribute = zip(*itertools.product(*one.levels), strict=True)
    columns = [
        *(names(words(of), own) for of, own in zip(one.attributes, by_attribute, strict=True)),
        numbers("Count", one.counts),
    ]
    kept = "; ".join(
        words(" * ".join(marginal.attributes)) or "the number of records" for marginal in one.exact
    )
    note = (
        f"Exactly as in the file, without noise: {kept}. Scale of the noise that was conditioned: "
        f"{one.scale}."
    )
    by = words(" * ".join(one.attributes))
    caption = f"Records by {by} (table {words(one.name)})"
    return Table.of(f"table-{index}", caption, columns, note)
