"""Batches cover every geounit once and never divide a family; sparse rows are aligned."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from geography.lattice import Lattice
from jobs.pipeline.plan import Level
from jobs.pipeline.storage.geography import read_geography, write_geography
from jobs.pipeline.storage.histograms import align_histograms, sparse_table
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.tasks.batches import geounit_batches
from tests.builders.histograms import from_dense
from tests.builders.strategies import dense_counts, trees


@settings(max_examples=20)
@given(
    trees(most_leaves=25),
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=4),
)
def test_batches_cover_everything_once_and_keep_families_together(drawn, wishes):
    spine, leaves = drawn
    with tempfile.TemporaryDirectory() as folder:
        layout = ReleaseLayout(Path(folder))
        write_geography(Lattice.from_leaves(spine, leaves), layout)
        for level, (name, digits) in enumerate(zip(spine.levels, spine.digits, strict=True)):
            table = read_geography(layout, name)
            codes, parents = table.column("geocode").to_pylist(), table.column("parent").to_pylist()
            family = {parent: parents.count(parent) for parent in parents}
            for n_batches, largest in wishes:
                batches = geounit_batches(layout, Level(level, name, digits), n_batches, largest)
                inside = [[c for c in codes if b.low <= c <= b.high] for b in batches]
                assert sorted(c for one in inside for c in one) == codes
                assert [len(one) for one in inside] == [b.cost for b in batches]
                assert [b.cost for b in batches] == sorted((b.cost for b in batches), reverse=True)
                held = [{parents[codes.index(c)] for c in one} for one in inside]
                assert sum(len(one) for one in held) == len(set(parents))
                size = max(1, min(largest, -(-len(codes) // n_batches)))
                for batch, its in zip(batches, held, strict=True):
                    assert batch.level == level
                    assert batch.cost <= size or len(its) == 1
                    assert batch.cost == sum(family[parent] for parent in its)


@settings(max_examples=20)
@given(trees())
def test_geography_round_trips(drawn):
    spine, leaves = drawn
    lattice = Lattice.from_leaves(spine, leaves)
    with tempfile.TemporaryDirectory() as folder:
        layout = ReleaseLayout(Path(folder))
        write_geography(lattice, layout)
        for level, name in enumerate(spine.levels):
            rows = read_geography(layout, name).to_pydict()
            assert rows["geocode"] == [code.decode() for code in lattice.codes[level]]
            above = lattice.codes[level - 1] if level else None
            assert rows["parent"] == [
                "" if above is None else above[parent].decode() for parent in lattice.parents[level]
            ]
            assert rows["n_children"] == lattice.n_children(level).tolist()
            assert rows["only_child"] == lattice.is_only_child[level].tolist()
            assert rows["chain_end"] == [spine.levels[e] for e in lattice.chain_end[level]]


@given(dense_counts(5, most_geounits=6), st.data())
def test_aligned_histograms_are_those_of_a_dict(counts, data):
    codes = [f"{index:02}" for index in range(len(counts))]
    table = sparse_table(codes, from_dense(counts))
    by_code = dict(zip(codes, counts, strict=True))
    others = st.sampled_from([*codes, "00a", "99", ""])
    wanted = sorted(data.draw(st.sets(others, max_size=7)))
    start = data.draw(st.integers(0, table.num_rows))
    pieces = table.slice(start)
    held = set(pieces.column("geocode").to_pylist())
    expected = np.zeros((len(wanted), 5), np.int64)
    for row, code in enumerate(wanted):
        if code in held:
            expected[row] = by_code[code]
    assert np.array_equal(align_histograms(pieces, wanted, 5).dense(), expected)
