"""Tables of a survey that keep exact marginals, as they are released; no data."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from das.errors import VerificationError
from jobs.pipeline.storage.csv import cell, csv_text
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import Place
from jobs.survey.documents import (
    ConditionedPromise,
    ExactMarginal,
    ReleasedTable,
    SurveyTables,
    TablePromise,
)
from jobs.survey.measurements import read_table
from jobs.survey.plan import SurveyPlan
from jobs.survey.table_plan import TOTAL, Conditioning, TablePlan


def tables_json(release: ReleaseLayout) -> Place:
    """The released tables, as a document."""
    return release.root / "tables.json"


def tables_csv(plan: SurveyPlan) -> list[Place]:
    """The released tables, a file each."""
    return [plan.made.root / "tables" / f"{one.name}.csv" for one in plan.tables]


def released_tables(plan: SurveyPlan) -> SurveyTables:
    """What is released of all tables; a function of what was drawn."""
    tables = [_released(plan, one) for one in plan.tables]
    return SurveyTables(format=1, name=plan.config.name, tables=tuple(tables))


def _released(plan: SurveyPlan, table: TablePlan) -> ReleasedTable:
    drawn, attributes = read_table(plan.release.measured_part(table.name)), table.config.attributes
    exact = [
        ExactMarginal(
            attributes=tuple(attributes[axis] for axis in axes), counts=tuple(counts.tolist())
        )
        for axes, counts in zip(table.exact, drawn.exact, strict=True)
    ]
    return ReleasedTable(
        name=table.name,
        attributes=attributes,
        levels=tuple(plan.levels(name) for name in attributes),
        method=table.config.method,
        scale=str(drawn.conditioning.scale),
        promise=ConditionedPromise(**_proved(drawn.conditioning)),
        exact=tuple(exact),
        counts=tuple(drawn.counts.tolist()),
    )


def conditioned_of(plan: SurveyPlan, part: str) -> TablePromise | None:
    """What is promised of a part, if it is a table."""
    table = plan.part(part)
    if not isinstance(table, TablePlan):
        return None
    return TablePromise(**_proved(table.conditioning), exact=table.exact_names)


def promise_words(name: str, promise: Mapping[str, Any]) -> str:
    """What is promised of a table, as a sentence."""
    return (
        f"{name}: published as in the data, without protection: {', '.join(promise['exact'])}; "
        "between data sets that agree on all that is exact, proved up to k = "
        f"{promise['k']} changed records: (1 + gamma) k epsilon = (1 + {promise['gamma']}) x "
        f"{promise['k']} x {promise['epsilon']} = {promise['proved']}"
    )


def _proved(conditioning: Conditioning) -> dict[str, Any]:
    return {
        "k": conditioning.records,
        "gamma": str(conditioning.gamma),
        "epsilon": str(conditioning.noise.epsilon),
        "proved": str(conditioning.cost.epsilon),
    }


def table_text(table: ReleasedTable) -> str:
    """A table as CSV: a column per attribute, and `count`."""
    cells = zip(itertools.product(*table.levels), table.counts, strict=True)
    rows = [(*table.attributes, "count"), *((*labels, count) for labels, count in cells)]
    return csv_text(map(cell, row) for row in rows)


def check_tables(plan: SurveyPlan, released: SurveyTables) -> None:
    """Check released tables in integers: they are what was drawn, and keep the exact marginals.

    Raises:
      VerificationError: One does not.
    """
    path = tables_json(plan.made)
    for one, stated in zip(plan.tables, released.tables, strict=True):
        where, counts = f"{path}, {one.name}", np.array(stated.counts, np.int64)
        drawn = read_table(plan.release.measured_part(one.name))
        if counts.shape != (one.rows.shape[1],) or (counts < 0).any():
            raise VerificationError(where, "is no table of counts of its cells")
        for marginal, kept in zip(stated.exact, one.exact_counts(counts), strict=True):
            if kept.tolist() != list(marginal.counts):
                raise VerificationError(
                    f"{where}, {' * '.join(marginal.attributes) or TOTAL}",
                    "does not keep its exact marginal",
                )
        if drawn.conditioning != one.conditioning or stated != _released(plan, one):
            raise VerificationError(where, "is not what was drawn")
