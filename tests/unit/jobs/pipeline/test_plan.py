"""The plan: public geography on disk, batches of whole families, the ledger before measuring."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow.parquet as pq
import pytest

from das.errors import LedgerError
from das.privacy.budget import Budget
from das.queries.query import marginal
from das.queries.sensitivity import Neighbors
from das.schema import Attribute, Schema
from das.strategy import LevelStrategy, QueryShare, Strategy
from geography.lattice import Lattice, Spine
from invariants.constraints import Constraints
from invariants.exact import Invariant
from invariants.linear import LinearRow
from jobs.pipeline.plan import Level, Plan, planned_ledger
from jobs.pipeline.storage.dataset import MANIFEST, Dataset
from jobs.pipeline.storage.geography import families, read_geography, write_geography
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.tasks.batches import Batch, geounit_batches

SCHEMA = Schema("s", (Attribute("sex", ("f", "m")),))
DETAILED, TOTAL = marginal(SCHEMA, ("sex",)), marginal(SCHEMA, ())
SPINE = Spine(("nation", "state", "block"), (0, 1, 3))
LATTICE = Lattice.from_leaves(SPINE, ["101", "102", "202", "303", "304", "305"])


def plan() -> Plan:
    levels = tuple(
        LevelStrategy(
            name,
            share,
            (QueryShare(TOTAL, Fraction(1, 4)), QueryShare(DETAILED, Fraction(3, 4))),
        )
        for name, share in zip(SPINE.levels, map(Fraction, ("1/2", "1/3", "1/6")), strict=True)
    )
    budget = Budget(Fraction(2), Fraction(1, 10**10), Neighbors.BOUNDED)
    return Plan(SCHEMA, SPINE, Strategy(levels), budget, (), (), 1e-7, False, "digest")


def test_geography_is_written_for_every_geolevel(tmp_path):
    layout = ReleaseLayout(tmp_path)
    write_geography(LATTICE, layout)
    assert read_geography(layout, "nation").to_pylist() == [
        {
            "geocode": "0",
            "parent": "",
            "n_children": 3,
            "only_child": False,
            "chain_end": "nation",
        }
    ]
    states = read_geography(layout, "state").to_pydict()
    assert states == {
        "geocode": ["1", "2", "3"],
        "parent": ["0"] * 3,
        "n_children": [2, 1, 3],
        "only_child": [False] * 3,
        "chain_end": ["state", "block", "state"],
    }
    blocks = read_geography(
        layout, "block", columns=("geocode", "parent", "only_child")
    ).to_pydict()
    assert blocks == {
        "geocode": ["101", "102", "202", "303", "304", "305"],
        "parent": ["1", "1", "2", "3", "3", "3"],
        "only_child": [False, False, True, False, False, False],
    }


def test_geography_in_several_tables(tmp_path, monkeypatch):
    monkeypatch.setattr("jobs.pipeline.storage.geography._GROUP_ROWS", 2)
    monkeypatch.setattr("jobs.pipeline.storage.geography._PART_ROWS", 4)
    whole, pieces = ReleaseLayout(tmp_path / "a"), ReleaseLayout(tmp_path / "b")
    write_geography(LATTICE, pieces)
    monkeypatch.undo()
    parts = Dataset.open(pieces.geography("block")).parts
    assert [(part.low, part.high, part.rows) for part in parts] == [
        ("101", "303", 4), ("304", "305", 2),
    ]  # fmt: skip
    assert pq.ParquetFile(pieces.geography("block") / parts[0].file).num_row_groups == 2
    write_geography(LATTICE, whole)
    for level in SPINE.levels:
        assert read_geography(pieces, level).equals(read_geography(whole, level))


def test_a_complete_geolevel_is_kept_and_a_missing_one_is_made(tmp_path):
    layout = ReleaseLayout(tmp_path)
    write_geography(LATTICE, layout)
    before = {level: Dataset.open(layout.geography(level)) for level in SPINE.levels}
    (layout.geography("state") / MANIFEST).unlink()
    write_geography(LATTICE, layout)
    after = {level: Dataset.open(layout.geography(level)) for level in SPINE.levels}
    assert after["nation"] == before["nation"]
    assert after["block"] == before["block"]
    assert after["state"].parts != before["state"].parts
    assert read_geography(layout, "state").num_rows == 3


def test_a_range_of_geounits_is_read(tmp_path):
    layout = ReleaseLayout(tmp_path)
    write_geography(LATTICE, layout)
    table = read_geography(layout, "block", "102", "303", ("geocode",))
    assert table.to_pydict() == {"geocode": ["102", "202", "303"]}


@pytest.mark.parametrize(
    ("n_batches", "largest", "smallest", "expected"),
    [
        (1, 100, 1, [("101", "305", 6)]),
        (2, 100, 1, [("101", "202", 3), ("303", "305", 3)]),
        (3, 100, 1, [("303", "305", 3), ("101", "102", 2), ("202", "202", 1)]),
        (100, 100, 1, [("303", "305", 3), ("101", "102", 2), ("202", "202", 1)]),
        (100, 100, 3, [("101", "202", 3), ("303", "305", 3)]),
        (2, 2, 3, [("303", "305", 3), ("101", "102", 2), ("202", "202", 1)]),
        (100, 100, 10, [("101", "305", 6)]),
        (1, 4, 1, [("101", "202", 3), ("303", "305", 3)]),
        (1, 1, 1, [("303", "305", 3), ("101", "102", 2), ("202", "202", 1)]),
        (1, 0, 1, [("303", "305", 3), ("101", "102", 2), ("202", "202", 1)]),
    ],
)
def test_batches_of_a_known_geolevel(tmp_path, n_batches, largest, smallest, expected):
    """Costliest first, ties by geocode; each knows the number of its first geounit."""
    layout = ReleaseLayout(tmp_path)
    write_geography(LATTICE, layout)
    batches = geounit_batches(layout, Level(2, "block", 3), n_batches, largest, smallest)
    number = {"101": 0, "202": 2, "303": 3}
    assert batches == [Batch(2, low, high, cost, number[low]) for low, high, cost in expected]


def test_levels_say_what_is_asked_at_each():
    """On-demand queries are on demand below the root; rows are exact or bounded; coarse before fine."""
    row = LinearRow("women", np.array([1, 0]), ("nation", "state"), 1, 5)
    sums = LinearRow("all", np.array([1, 1]), ("nation",), None, None)
    whole = replace(
        plan(),
        invariants=(Invariant(DETAILED, ("nation",)), Invariant(TOTAL, ("nation", "state"))),
        limits=Constraints((row, sums)),
        on_demand=frozenset({"detailed"}),
    )
    nation, state, block = whole.levels
    assert [(one.index, one.name, one.digits) for one in whole.levels] == [
        (0, "nation", 0), (1, "state", 1), (2, "block", 3),
    ]  # fmt: skip
    assert all(one.queries == (TOTAL, DETAILED) for one in whole.levels)
    assert [one.on_demand for one in whole.levels] == [(), (DETAILED,), (DETAILED,)]
    assert [one.whole for one in whole.levels] == [(TOTAL, DETAILED), (TOTAL,), (TOTAL,)]
    assert [one.exact for one in whole.levels] == [(TOTAL, DETAILED), (TOTAL,), ()]
    assert [one.exact_rows for one in whole.levels] == [(sums,), (), ()]
    assert [one.bounded_rows for one in whole.levels] == [(row,), (row,), ()]
    assert nation.published == (TOTAL, DETAILED, sums)
    assert (whole.level("state"), whole.leaf) == (state, block)
    assert replace(whole, on_demand=frozenset()).leaf.on_demand == ()


def test_families_are_runs_of_one_parent():
    def of(*parents):
        return list(families(np.array(parents, dtype=object)))

    assert of() == []
    assert of("a") == [(0, 1)]
    assert of("a", "a", "b", "c", "c") == [(0, 2), (2, 3), (3, 5)]


def test_the_ledger_of_a_known_tree():
    """State 2 has one block, so it is measured with the shares of both geolevels."""
    entries = planned_ledger(plan(), LATTICE).entries
    seen = {
        (e.geolevel, e.chain_end, e.query): (e.cost, e.mechanism.sigma_sq, e.geounits)
        for e in entries
    }
    rho = {("nation", "nation"): 1, ("state", "state"): Fraction(2, 3), ("state", "block"): 1}
    rho["block", "block"] = Fraction(1, 3)
    count = {("nation", "nation"): 1, ("state", "state"): 2, ("state", "block"): 1}
    count["block", "block"] = 5
    expected = {
        (*chain, query): (paid * share, 1 / (paid * share), count[chain])
        for chain, paid in rho.items()
        for query, share in (("total", Fraction(1, 4)), ("detailed", Fraction(3, 4)))
    }
    assert seen == expected
    assert len(entries) == 8


def test_noise_of_a_chain_that_leaves_out_a_geolevel_does_not_pay_for_all():
    """Had chains another budget than the sum of their geolevels, finalizing would refuse it."""

    class Cheating(Plan):
        def noise(self, first, last):
            return super().noise(first, first)

    with pytest.raises(
        LedgerError, match="some root-to-leaf path does not spend exactly the budget"
    ):
        planned_ledger(Cheating(**vars(plan())), LATTICE)
