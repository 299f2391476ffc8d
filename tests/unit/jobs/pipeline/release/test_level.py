"""Ranges are cut between families, answers go with their geounits, and moments come back."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import OutputError
from das.tree.passes import Moments
from jobs.pipeline.plan import plan_terms
from jobs.pipeline.release.level import LevelReader, range_evidence
from jobs.pipeline.storage.dataset import Dataset, publish
from jobs.pipeline.storage.estimates import FORMAT, read_moments, write_moments
from jobs.pipeline.storage.layout import EstimateLayout
from tests.builders import two_families as two
from tests.builders.places import release_of

# County 13 has one block; families of two, two, one and three.
BLOCKS = {
    **two.BLOCKS,
    "131": (1, 1, 1, 1),
    "141": (0, 1, 0, 0),
    "142": (2, 0, 0, 0),
    "143": (0, 0, 3, 0),
}


def read(folder, plan, geolevel="block"):
    release = two.release(folder, BLOCKS)
    for level in two.SPINE.levels:
        two.write_noisy(release, plan, level, BLOCKS)
        if plan.level(level).published:
            two.write_exact(release, level, ["total"], BLOCKS)
    reader = LevelReader(plan, release, two.SPINE.levels.index(geolevel))
    rows = reader.rows(two.whole(geolevel, BLOCKS))
    return rows, reader.answers(rows)


@pytest.mark.parametrize(
    ("most", "pieces"),
    [
        (1, [(0, 2), (2, 4), (4, 5), (5, 8)]),
        (4, [(0, 4), (4, 8)]),
        (5, [(0, 5), (5, 8)]),
        (8, [(0, 8)]),
    ],
)
def test_pieces_are_whole_families(tmp_path, most, pieces):
    rows, _ = read(tmp_path, two.plan())
    assert rows.starts.tolist() == [0, 2, 4, 5]
    assert rows.pieces(most) == pieces


@pytest.mark.parametrize("most", [1, 4, 8])
def test_pieces_are_read_one_after_the_other(tmp_path, most):
    plan = two.plan(invariants=(two.exact("total", "block"),))
    rows, answers = read(tmp_path, plan)
    noisy, exact = answers
    assert len(noisy[1]) == 7  # the only child is not measured
    assert len(exact[0]) == 8
    reader = LevelReader(plan, release_of(tmp_path), 2)
    parts = [reader.answers(rows.slice(*piece)) for piece in rows.pieces(most)]
    for kind, of_kind in enumerate(answers):
        for query, whole in enumerate(of_kind):
            pieces = [part[kind][query] for part in parts]
            assert np.concatenate(pieces).tolist() == whole.tolist()
    assert rows.slice(5, 8).codes.tolist() == ["141", "142", "143"]


def test_evidence_knows_how_precise_each_chain_is(tmp_path):
    plan = two.plan()
    rows, answers = read(tmp_path, plan, "county")
    assert rows.chain_end.tolist() == ["county", "county", "block", "county"]
    terms = plan_terms(plan)[1]
    evidence = range_evidence(plan, terms, rows, answers, None)
    assert evidence.kind.tolist() == [0, 0, 1, 0]
    ordinary, chain = (
        np.array([[1 / noisy.mechanism.variance() for noisy in plan.noise(1, last)]])
        for last in (1, 2)
    )
    assert (chain > ordinary).all()
    for kind, precisions in enumerate((ordinary, chain)):
        for made, expected in zip(evidence.information, terms.information(precisions), strict=True):
            assert made[kind] == pytest.approx(expected[0])


def moments(coordinates, n: int) -> Moments:
    """Different values of n geounits, and two kinds of matrices."""
    rng = np.random.default_rng(3)
    values = [rng.normal(size=(n, size)) for size in coordinates.sizes]
    matrices = [rng.normal(size=(2, size, size)) for size in coordinates.sizes]
    return Moments(values, matrices, np.arange(n) % 2)


def test_moments_come_back_for_exactly_the_geounits_asked_for(tmp_path):
    coordinates = plan_terms(two.plan())[0].coordinates
    codes = np.array(sorted(BLOCKS), object)
    stored = moments(coordinates, len(codes))
    folder = tmp_path / "moments"
    publish(folder, [write_moments(folder, coordinates, codes, stored)], {"format": FORMAT})
    table = Dataset.open(folder).read()
    assert len(table.column("matrices").chunk(0).dictionary) == 2
    for chosen in (np.arange(len(codes)), np.array([1, 2, 6])):
        read_back = read_moments(Dataset.open(tmp_path / "moments"), coordinates, codes[chosen])
        flat = coordinates.flatten(read_back.values)
        assert (flat == coordinates.flatten(stored.values)[chosen]).all()
        matrices = coordinates.flatten(read_back.matrices)[read_back.kind]
        expected = coordinates.flatten(stored.matrices)[stored.kind[chosen]]
        assert (matrices == expected).all()
    with pytest.raises(OutputError, match="lacks the estimates of a geounit"):
        read_moments(
            Dataset.open(tmp_path / "moments"), coordinates, np.array(["111", "115"], object)
        )


def test_moments_of_fewer_components(tmp_path):
    plan = two.plan()
    rows, _ = read(tmp_path, plan, "county")
    reader = LevelReader(plan, release_of(tmp_path), 1)
    whole = reader.terms.coordinates
    terms = reader.terms.restricted(whole.touched_by((two.query("age"),)))
    assert terms.coordinates.size < whole.size
    stored = moments(whole, len(rows.codes))
    folder = EstimateLayout.of(reader.release).subtree("county")
    publish(folder, [write_moments(folder, whole, rows.codes, stored)], {"format": FORMAT})
    chosen = reader.subtree(rows, terms)
    answers = whole.answer(two.query("age"), stored.values)
    assert terms.coordinates.answer(two.query("age"), chosen.values) == pytest.approx(answers)
    assert chosen.kind.tolist() == stored.kind.tolist()


def test_answers_that_are_missing(tmp_path):
    plan = two.plan()
    rows, _ = read(tmp_path, plan)
    release = two.release(tmp_path / "other", BLOCKS)
    two.write_noisy(release, plan, "block", {code: BLOCKS[code] for code in sorted(BLOCKS)[:-1]})
    with pytest.raises(OutputError, match="does not hold query total of every geounit"):
        LevelReader(plan, release, 2).answers(rows)
    assert Dataset.open(release.measurements("block")).rows == 2 * 6
