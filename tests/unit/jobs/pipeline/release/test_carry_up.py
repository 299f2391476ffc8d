"""What the failsafe moved is added to every geounit above, once, whatever dies in between."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from das.errors import VerificationError
from das.histograms import Histograms
from geography.lattice import Spine
from jobs.pipeline.documents.document import json_of
from jobs.pipeline.documents.statistics import HOLDS, Move
from jobs.pipeline.release import moves
from jobs.pipeline.release.moves import carry_up
from jobs.pipeline.release.solve import total, unsolved
from jobs.pipeline.storage.dataset import Dataset, verify_files
from jobs.pipeline.storage.histograms import read_counts, sparse_table
from tests.builders.datasets import publish_tables
from tests.builders.places import release_of

SPINE = Spine(("state", "county", "tract"), (1, 2, 3))
COUNTS = {
    "state": {"1": [5, 0, 2], "2": [1, 1, 0]},
    "county": {"11": [5, 0, 0], "12": [0, 0, 2], "21": [1, 1, 0]},
    "tract": {"111": [4, 0, 0], "112": [0, 1, 0], "121": [0, 0, 2], "211": [1, 1, 0]},
}
MOVED = [Move(geocode="11", cells=(0, 1), changes=(-1, 1))]


def statistics(moved: list[Move]) -> dict[str, object]:
    """Facts of counts whose failsafe moved parents."""
    nothing = unsolved(live=0, is_copied=False)
    return {"statistics": json_of(total([replace(nothing, moved=tuple(moved))]))}


def write(release, geolevel: str, moved: list[Move]) -> None:
    """One part per two geounits."""
    rows = sorted(COUNTS[geolevel].items())
    tables = []
    for start in range(0, len(rows), 2):
        some = rows[start : start + 2]
        children, cells = np.nonzero([counts for _, counts in some])
        values = np.array([counts for _, counts in some])[children, cells]
        offsets = np.searchsorted(children, np.arange(len(some) + 1))
        tables.append(sparse_table([c for c, _ in some], Histograms(3, offsets, cells, values)))
    publish_tables(release.counts(geolevel), tables, statistics(moved))


@pytest.fixture
def release(tmp_path: Path):
    layout = release_of(tmp_path)
    for geolevel in COUNTS:
        write(layout, geolevel, MOVED if geolevel == "tract" else [])
    return layout


def counts(release, geolevel: str) -> list[list[int]]:
    return read_counts(release, geolevel, sorted(COUNTS[geolevel]), 3).dense().tolist()


def carry(release) -> None:
    carry_up(2, spine=SPINE, n_cells=3, release=release)


def test_every_geolevel_above_takes_up_the_difference(release):
    carry(release)
    assert counts(release, "county") == [[4, 1, 0], [0, 0, 2], [1, 1, 0]]
    assert counts(release, "state") == [[4, 1, 2], [1, 1, 0]]
    for geolevel in ("state", "county"):
        verify_files(release.counts(geolevel))
        assert Dataset.open(release.counts(geolevel)).facts[HOLDS] == ["tract"]


def test_the_second_time_changes_nothing(release):
    carry(release)
    before = counts(release, "state"), counts(release, "county")
    carry(release)
    assert (counts(release, "state"), counts(release, "county")) == before


def test_a_run_that_died_between_two_geolevels_goes_on(release, monkeypatch):
    publish_again = moves.replace_published

    def dies(dataset, parts, facts):
        if dataset.path == release.counts("state"):
            raise KeyboardInterrupt
        publish_again(dataset, parts, facts)

    monkeypatch.setattr(moves, "replace_published", dies)
    with pytest.raises(KeyboardInterrupt):
        carry(release)
    assert counts(release, "county")[0] == [4, 1, 0]
    monkeypatch.undo()
    carry(release)
    assert counts(release, "county")[0] == [4, 1, 0]
    assert counts(release, "state") == [[4, 1, 2], [1, 1, 0]]


def test_a_geounit_that_was_empty_gets_a_row(release):
    move = Move(geocode="13", cells=(2,), changes=(4,))
    counted = Dataset.open(release.counts("tract"))
    facts = {**counted.facts, **statistics([*MOVED, move])}
    moves.replace_published(counted, counted.parts, facts)
    carry(release)
    assert read_counts(release, "county", ["13"], 3).dense().tolist() == [[0, 0, 4]]
    assert counts(release, "state")[0] == [4, 1, 6]


def test_counts_cannot_become_negative(release):
    counted = Dataset.open(release.counts("tract"))
    move = Move(geocode="11", cells=(1,), changes=(-1,))
    facts = {**counted.facts, **statistics([move])}
    moves.replace_published(counted, counted.parts, facts)
    with pytest.raises(VerificationError, match="leaves a negative count"):
        carry(release)


def test_without_moves_nothing_is_written(release):
    counted = Dataset.open(release.counts("tract"))
    facts = {**counted.facts, **statistics([])}
    moves.replace_published(counted, counted.parts, facts)
    before = (release.counts("state") / "_manifest.json").read_bytes()
    carry(release)
    assert (release.counts("state") / "_manifest.json").read_bytes() == before


def test_where_nobody_was_counted_at_all_moved_persons_get_rows(tmp_path):
    """Parts that hold no row are all there is."""
    nobody = release_of(tmp_path)
    for geolevel in ("state", "county"):
        empty = sparse_table([], Histograms(3, *(np.zeros(n, np.int64) for n in (1, 0, 0))))
        publish_tables(nobody.counts(geolevel), [empty], statistics([]))
    move = Move(geocode="12", cells=(0, 2), changes=(3, 1))
    write(nobody, "tract", [move])
    carry(nobody)
    assert read_counts(nobody, "county", ["12"], 3).dense().tolist() == [[3, 0, 1]]
    assert read_counts(nobody, "state", ["1"], 3).dense().tolist() == [[3, 0, 1]]
    for geolevel in ("state", "county"):
        verify_files(nobody.counts(geolevel))
