"""A range is read the same in however many pieces; each geounit has its own answers and weights."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from das.errors import OutputError
from das.queries.query import groups_of, restricted
from das.strategy import LevelStrategy, QueryShare, Strategy, Stratum
from invariants.constraints import Constraints
from invariants.linear import LinearRow
from jobs.pipeline.release.implied import publish_implied
from jobs.pipeline.release.level import LevelReader
from jobs.pipeline.release.pieces import read_pieces, whole_answers
from jobs.pipeline.release.problems import node_problem
from tests.builders import two_families as two

NUMBERED = {"111": (1, 0, 2, 0), "112": (0, 3, 0, 5), "121": (0, 7, 0, 0), "122": (2, 1, 0, 4)}


def prepared(folder, plan, blocks=NUMBERED):
    """Counties are solved, blocks are measured without noise."""
    release = two.release(folder, blocks)
    two.write_counts(release, "county", blocks)
    two.write_noisy(release, plan, "block", blocks)
    return release


def read(plan, release, blocks=NUMBERED):
    template = two.template(plan, 2)
    return template, list(read_pieces(LevelReader(plan, release, 2), two.whole("block", blocks)))


def terms_of(template, pieces):
    """Of every family the answers and weights of its terms, whatever piece it came in."""
    out = {}
    for piece in pieces:
        for family in piece.families:
            problem = node_problem(template, family, piece.targets, piece.constraints)
            out[family.geocode] = [
                (term.answers.tolist(), term.weights.tolist()) for term in problem.terms
            ]
    return out


def test_each_family_has_the_answers_of_its_children(tmp_path):
    plan = two.plan()
    template, pieces = read(plan, prepared(tmp_path, plan))
    assert [piece.codes.tolist() for piece in pieces] == [["111", "112", "121", "122"]]
    weights = [[1.0 / float(n.mechanism.continuous_variance)] * 2 for n in plan.noise(2, 2)]
    terms = terms_of(template, pieces)
    assert terms["11"] == [
        ([[3.0], [8.0]], weights[0]),
        ([[1.0, 0.0, 2.0, 0.0], [0.0, 3.0, 0.0, 5.0]], weights[1]),
    ]
    assert terms["12"][1][0] == [[0.0, 7.0, 0.0], [2.0, 1.0, 4.0]]  # no male minors in county 12
    first, second = pieces[0].families
    assert first.parent.dense().tolist() == [[1, 3, 2, 5]]
    assert second.parent.dense().tolist() == [[2, 8, 0, 4]]


def test_pieces_of_one_family_say_the_same(tmp_path, monkeypatch):
    row = LinearRow("men", np.array([0, 0, 1, 1]), two.SPINE.levels, 0, None)
    invariants = (two.exact("total", "block"),)
    plan = two.plan(invariants=invariants, limits=Constraints((row,)))
    release = prepared(tmp_path, plan)
    two.write_exact(release, "block", ["total"], NUMBERED)
    publish_implied(plan, release, two.TASKS)
    template, whole = read(plan, release)
    monkeypatch.setattr("jobs.pipeline.release.pieces._PIECE_NUMBERS", 1)
    _, cut = read(plan, release)
    assert [piece.codes.tolist() for piece in cut] == [["111", "112"], ["121", "122"]]
    assert terms_of(template, cut) == terms_of(template, whole)
    for index, piece in enumerate(cut):
        rows = slice(2 * index, 2 * index + 2)
        assert piece.families[0].rows == slice(0, 2)
        assert (piece.constraints.exact[0] == whole[0].constraints.exact[0][rows]).all()
        limits = whole[0].constraints.limits
        assert (piece.constraints.limits.row_least == limits.row_least[rows]).all()


def test_an_only_child_has_no_answers_and_the_end_of_a_chain_its_own_weight(tmp_path):
    """County 13 is solved as block 131; measured at its own geolevel with the budget of both."""
    blocks = {**NUMBERED, "131": (1, 1, 1, 1)}
    plan = two.plan()
    release = two.release(tmp_path, blocks)
    for geolevel in ("state", "county"):
        two.write_counts(release, geolevel, blocks)
    for geolevel in ("county", "block"):
        two.write_noisy(release, plan, geolevel, blocks)
    template, (piece,) = read(plan, release, blocks)
    assert [len(answers) for answers in piece.targets.answers] == [4, 4]
    assert [family.n_children for family in piece.families] == [2, 2, 1]
    batch = two.whole("county", blocks)
    (piece,) = read_pieces(LevelReader(plan, release, batch.level), batch)
    for index, weights in enumerate(piece.targets.weights):
        ordinary, chain = (plan.noise(1, last)[index].mechanism for last in (1, 2))
        assert weights[:2].tolist() == [1.0 / float(ordinary.continuous_variance)] * 2
        assert weights[2] == pytest.approx(1.0 / float(chain.continuous_variance), rel=1e-12)
        assert weights[2] > weights[0]


def test_the_end_of_a_chain_has_the_weight_of_its_own_stratum(tmp_path):
    """Strata divide a chain's budget otherwise than everybody does: each query has its own noise."""
    levels = tuple(
        LevelStrategy(name, Fraction(share, 16), (QueryShare(two.query("detailed"), Fraction(1)),))
        for name, share in (("state", 2), ("county", 2), ("block", 4))
    )
    strata = []
    for group, shares in zip(
        groups_of(two.SCHEMA, two.query("sex")), ((6, 1, 1), (4, 4)), strict=True
    ):
        own = QueryShare(restricted(two.query("total"), group), Fraction(1))
        rows = zip(two.SPINE.levels, shares, strict=False)
        strata.append(
            Stratum(group, tuple(LevelStrategy(n, Fraction(s, 16), (own,)) for n, s in rows))
        )
    plan = two.plan(strategy=Strategy(levels, strata=tuple(strata)))
    blocks = {**NUMBERED, "131": (1, 1, 1, 1)}
    release = two.release(tmp_path, blocks)
    two.write_counts(release, "state", blocks)
    two.write_noisy(release, plan, "county", blocks)
    (piece,) = read_pieces(LevelReader(plan, release, 1), two.whole("county", blocks))
    for index, (weights, gain) in enumerate(zip(piece.targets.weights, (3, 2, 1), strict=True)):
        chain = plan.noise(1, 2)[index].mechanism
        assert weights[2] == pytest.approx(1.0 / float(chain.continuous_variance), rel=1e-12)
        assert weights[2] / weights[0] == pytest.approx(gain, rel=1e-12)


def test_the_root_has_no_parent(tmp_path):
    plan = two.plan()
    release = two.release(tmp_path)
    two.write_noisy(release, plan, "state")
    (piece,) = read_pieces(LevelReader(plan, release, 0), two.whole("state"))
    (family,) = piece.families
    assert (family.geocode, family.rows, family.parent) == ("root", slice(0, 1), None)


def test_a_geolevel_above_that_is_not_solved(tmp_path):
    plan = two.plan()
    release = two.release(tmp_path, NUMBERED)
    two.write_noisy(release, plan, "block", NUMBERED)
    with pytest.raises(OutputError, match=r"level=county: is not complete"):
        read(plan, release)


def test_answers_that_are_always_drawn():
    lazy = two.plan(on_demand=frozenset({"detailed"}))
    assert whole_answers(two.plan().levels[2]) == 5
    assert whole_answers(lazy.levels[2]) == 1
    assert whole_answers(lazy.levels[0]) == 5  # nothing is on demand at the root
