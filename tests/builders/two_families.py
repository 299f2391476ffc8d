"""A tree of two families of blocks with four cells, and its datasets written by hand.

State 1 has counties 11 and 12, with the blocks 111 and 112, 121 and 122. Noisy answers are exact
unless a test says otherwise, so that what a stage must make of them is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from das.histograms import Histograms
from das.privacy.budget import Budget
from das.queries.query import Query, parse_query
from das.queries.sensitivity import Neighbors
from das.schema import Attribute, Schema
from das.strategy import LevelStrategy, QueryShare, Strategy
from geography.lattice import Lattice, Spine
from invariants.exact import Invariant
from invariants.zeros import StructuralZeros
from jobs.pipeline.documents.document import json_of
from jobs.pipeline.plan import Plan, Solving
from jobs.pipeline.release.problems import NodeTemplate
from jobs.pipeline.release.solve import total
from jobs.pipeline.storage.answers import ANSWERS, MEASUREMENTS, answer_table, measurement_table
from jobs.pipeline.storage.dataset import PartWriter, publish
from jobs.pipeline.storage.geography import write_geography
from jobs.pipeline.storage.histograms import SPARSE_SCHEMA, sparse_table
from jobs.pipeline.storage.layout import ConfidentialLayout, ReleaseLayout
from jobs.pipeline.tasks.batches import Batch, Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from tests.builders.histograms import from_dense
from tests.builders.places import release_of, truth_of

Counts = Mapping[str, Sequence[int]]

SCHEMA = Schema("two", (Attribute("sex", ("f", "m")), Attribute("age", ("minor", "adult"))))
SPINE = Spine(("state", "county", "block"), (1, 2, 3))
# Cells: female minors, female adults, male minors, male adults.
BLOCKS: Counts = {
    "111": (1, 0, 2, 0),
    "112": (0, 3, 0, 0),
    "121": (0, 0, 0, 0),
    "122": (2, 1, 0, 4),
}
TASKS = LocalTasks(Sizing(batches_per_slot=1))


def query(name: str) -> Query:
    """A query of the schema."""
    return parse_query(SCHEMA, name)


def plan(queries: Sequence[str] = ("total", "detailed"), **changes: Any) -> Plan:
    """Each geolevel measures the queries with a third of the budget, in equal shares."""
    share = Fraction(1, len(queries))
    levels = tuple(
        LevelStrategy(name, Fraction(1, 3), tuple(QueryShare(query(q), share) for q in queries))
        for name in SPINE.levels
    )
    made = Plan(
        SCHEMA,
        SPINE,
        Strategy(levels),
        Budget(Fraction(2), Fraction(1, 10**10), Neighbors.BOUNDED),
        invariants=(),
        passes=((query("total"),), (query("detailed"),)),
        solving=Solving(fit_to="level"),
        not_for_release=True,
        digest="digest",
        solve_digest="solve digest",
    )
    return replace(made, **changes)


def exact(name: str, geolevel: str) -> Invariant:
    """A query that is exact down to a geolevel."""
    return Invariant.build(SCHEMA, SPINE.levels, name, geolevel)


def zeros(*cells: int) -> StructuralZeros:
    """Cells in which nobody can be, a box each."""
    codes = [np.unravel_index(cell, SCHEMA.shape) for cell in cells]
    return StructuralZeros(
        SCHEMA.shape,
        tuple(
            tuple(np.arange(n) == own for n, own in zip(SCHEMA.shape, one, strict=True))
            for one in codes
        ),
    )


def template(solved: Plan, level: int) -> NodeTemplate:
    """What the node problems of a geolevel have in common."""
    return NodeTemplate.of(solved, solved.levels[level])


def whole(geolevel: str, blocks: Counts = BLOCKS) -> Batch:
    """The range of a whole geolevel."""
    codes = sorted(at(geolevel, blocks))
    return Batch(SPINE.levels.index(geolevel), codes[0], codes[-1], len(codes))


def at(geolevel: str, blocks: Counts = BLOCKS) -> dict[str, np.ndarray]:
    """int64[4] of each geounit of a geolevel, blocks added up."""
    digits = SPINE.digits[SPINE.levels.index(geolevel)]
    sums: dict[str, np.ndarray] = {}
    for code, counts in sorted(blocks.items()):
        sums.setdefault(code[:digits], np.zeros(4, np.int64))
        sums[code[:digits]] += np.array(counts)
    return sums


def histograms(geolevel: str, blocks: Counts = BLOCKS) -> tuple[list[str], Histograms]:
    """Geocodes and histograms of a geolevel."""
    sums = at(geolevel, blocks)
    return list(sums), from_dense(np.array(list(sums.values())))


def release(folder: Path, blocks: Counts = BLOCKS) -> ReleaseLayout:
    """A release that holds the geography alone."""
    layout = release_of(folder)
    write_geography(Lattice.from_leaves(SPINE, sorted(blocks)), layout)
    return layout


def confidential(folder: Path, blocks: Counts = BLOCKS) -> ConfidentialLayout:
    """The truth at every geolevel."""
    layout = truth_of(folder)
    for geolevel in SPINE.levels:
        table = sparse_table(*histograms(geolevel, blocks))
        write(layout.histograms(geolevel), [table], SPARSE_SCHEMA, {})
    return layout


def write(
    dataset: Path, tables: Sequence[pa.Table], schema: pa.Schema, facts: dict[str, Any]
) -> None:
    """Publish a dataset of one part; tables are of one query each, if of any."""
    writer = PartWriter(dataset, schema)
    writer.write_apart(tables)
    publish(dataset, [writer.close()], facts)


def write_counts(layout: ReleaseLayout, geolevel: str, blocks: Counts = BLOCKS) -> None:
    """Publish the counts of a geolevel as if it were solved."""
    live = replace(total([]), live=len(histograms(geolevel, blocks)[1].cells))
    facts = {"statistics": json_of(live), "seconds": 1.0, "solve_digest": "solve digest"}
    table = sparse_table(*histograms(geolevel, blocks))
    write(layout.counts(geolevel), [table], SPARSE_SCHEMA, facts)


def write_exact(
    layout: ReleaseLayout, geolevel: str, names: Sequence[str], blocks: Counts = BLOCKS
) -> None:
    """Publish exact answers of queries at a geolevel."""
    codes, counts = histograms(geolevel, blocks)
    tables = [answer_table(codes, name, query(name).answer(counts)) for name in names]
    write(layout.invariants(geolevel), tables, ANSWERS, {"queries": list(names)})


def write_noisy(
    layout: ReleaseLayout,
    measured: Plan,
    geolevel: str,
    blocks: Counts = BLOCKS,
    noise: Mapping[str, int] | None = None,
) -> None:
    """Publish noisy answers of the geounits that are not only children; by query, what is added."""
    level = SPINE.levels.index(geolevel)
    lattice = Lattice.from_leaves(SPINE, sorted(blocks))
    keep = np.flatnonzero(~lattice.is_only_child[level])
    ends = lattice.chain_end[level][keep]
    codes = [
        code
        for code, only in zip(at(geolevel, blocks), lattice.is_only_child[level], strict=True)
        if not only
    ]
    tables = []
    for index, entry in enumerate(measured.strategy.measured(level)):
        answers = entry.query.answer(histograms(geolevel, blocks)[1])[keep]
        answers = answers + (noise or {}).get(entry.query.name, 0)
        mechanisms = [measured.noise(level, int(end))[index].mechanism for end in ends]
        tables.append(measurement_table(codes, entry.query.name, mechanisms, answers))
    names = [entry.query.name for entry in measured.strategy.measured(level)]
    write(layout.measurements(geolevel), tables, MEASUREMENTS, {"queries": names})
