"""Expected totals are one more answer of every child; the certificate sees what nodes make of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from das.tree.covariate import TotalVariance, merge
from invariants.constraints import Constraints
from invariants.quarters import LivingQuarters
from jobs.pipeline.plan import Covariate
from jobs.pipeline.release.covariate import (
    PLAIN,
    TOTALS,
    CovariateModel,
    SureEstimate,
    certify,
    expected_totals,
    is_sampled,
    marginals,
    merge_risks,
    noisy_totals,
    signs,
    tally,
    ways_of,
    with_expected,
)
from jobs.pipeline.release.implied import publish_implied
from jobs.pipeline.release.level import LevelReader
from jobs.pipeline.release.pieces import read_pieces
from jobs.pipeline.release.problems import node_problem
from jobs.pipeline.release.solve import node_settings
from jobs.pipeline.storage.answers import ANSWERS, answer_table
from tests.builders import two_families as two

BLOCKS = {"111": (9, 0, 12, 0), "112": (0, 13, 0, 5), "121": (0, 7, 0, 0), "122": (12, 1, 0, 14)}
QUARTERS = {"111": (8, 0), "112": (7, 0), "121": (0, 1), "122": (9, 0)}
MODEL = CovariateModel(
    Covariate(("block",)), TOTALS, TotalVariance(np.array([5.0, 50.0]), np.array([4.0, 40.0]))
)


def prepared(folder, quarters=QUARTERS):
    """Counties are solved, blocks are measured without noise."""
    known = LivingQuarters(("homes", "gq"), np.array([True, False]), two.SPINE.levels)
    plan = two.plan(limits=Constraints((known,)))
    release = two.release(folder, BLOCKS)
    table = answer_table(sorted(quarters), "living quarters", np.array(list(quarters.values())))
    two.write(release.given("block"), [table], ANSWERS, {"queries": ["living quarters"]})
    publish_implied(plan, release, two.TASKS)
    two.write_counts(release, "county", BLOCKS)
    two.write_noisy(release, plan, "block", BLOCKS)
    return (
        plan,
        two.template(plan, 2),
        list(read_pieces(LevelReader(plan, release, 2), two.whole("block", BLOCKS))),
    )


def test_noisy_totals_are_of_live_cells_by_inverse_variance(tmp_path):
    plan, template, (piece,) = prepared(tmp_path)
    first = piece.families[0]
    total, variance = noisy_totals(template, piece.targets, first)
    assert total == pytest.approx([21, 18])
    each = float(plan.noise(2, 2)[0].mechanism.continuous_variance)
    # One answer of `total`, four of `detailed`, all of one variance.
    assert variance == pytest.approx(1 / (1 / each + 1 / (4 * each)))


def test_expected_totals_are_one_more_answer(tmp_path):
    plan, template, (piece,) = prepared(tmp_path)
    more = with_expected(plan, template, piece, MODEL, TOTALS)
    assert [query.name for query in more.targets.queries] == ["total", "detailed", "total"]
    first, second = (
        node_problem(template, family, more.targets, more.constraints).terms[-1]
        for family in more.families
    )
    assert first.groups.tolist() == [0, 0, 0, 0]
    assert first.answers[:, 0] == pytest.approx([39 * 8 / 15, 39 * 7 / 15])
    assert (first.weights > 0).all()
    assert second.weights[0] == 0  # a facility
    assert second.answers[1, 0] == pytest.approx(34 - second.answers[0, 0])


def test_blocks_without_quarters_are_no_children(tmp_path):
    rows = {**QUARTERS, "121": (0, 0)}
    plan, template, (piece,) = prepared(tmp_path, rows)
    assert piece.codes.tolist() == ["111", "112", "122"]
    assert [(f.geocode, f.n_children) for f in piece.families] == [("11", 2), ("12", 1)]
    assert (
        node_problem(template, piece.families[0], piece.targets, piece.constraints).n_children == 2
    )
    found = list(tally(plan, template, [piece], with_groups=False))
    assert sum(int(one.totals.children.sum()) for one in found) == 2


def test_the_certificate_looks_at_what_is_measured(tmp_path):
    plan, template, pieces = prepared(tmp_path)
    assert [query.name for query in marginals(plan, plan.leaf)] == ["total", "detailed"]
    ways = ways_of(plan, template, MODEL, node_settings(plan))
    found = certify(plan, template, pieces, 1.0, ways)
    assert found.answers.tolist() == [4, 4 + 4 + 3 + 3]
    assert found.names == ("total", "detailed")
    alone = certify(plan, template, pieces, 0.0, ways)
    assert not alone.answers.any()
    assert np.array_equal(merge_risks([alone, found]).sums[TOTALS], found.sums[TOTALS])


def chosen(plain, expected, *, only_if_better=True):
    """The way that is taken by estimated errors of totals and cells."""
    risks = SureEstimate(
        ("total", "detailed"),
        np.array([10, 100]),
        {PLAIN: np.array(plain) * 1024, TOTALS: np.array(expected) * 1024},
        {PLAIN: np.zeros(2), TOTALS: np.ones(2)},
    )
    asked = Covariate(("block",), only_if_better=only_if_better)
    return expected_totals(asked, merge([]), MODEL.variance, risks)


def test_the_way_with_the_lesser_estimated_error_is_taken():
    assert chosen([300, 400], [200, 390]).way == TOTALS
    assert chosen([300, 400], [310, 200]).way == PLAIN  # totals are what it is for
    assert chosen([300, 400], [299, 500]).way == PLAIN
    assert chosen([300, 400], [310, 500], only_if_better=False).way == TOTALS
    assert expected_totals(Covariate(("block",)), merge([]), None, None).way == PLAIN


def test_what_is_said_of_it():
    said = chosen([300, 400], [200, 390])
    assert [(e.query, e.way, e.error) for e in said.errors] == [
        ("total", "plain", 30.0),
        ("detailed", "plain", 4.0),
        ("total", "totals", 20.0),
        ("detailed", "totals", 3.9),
    ]
    assert said.errors[2].difference_error == 0.1
    assert said.variance == (4.0, 40.0)


def test_signs_hang_on_names_alone_and_are_balanced():
    codes = np.array([f"{n:06}" for n in range(400)], object)
    found = signs(codes, two.query("detailed"), 600)
    assert set(np.unique(found)) == {-1.0, 1.0}
    assert np.array_equal(found[7:9], signs(codes[7:9], two.query("detailed"), 600))
    assert abs(found.mean()) < 5 / np.sqrt(found.size)
    other = signs(codes, two.query("total"), 600)
    assert abs((found * other).mean()) < 5 / np.sqrt(found.size)
    assert not np.array_equal(found[:, :88], found[:, 512:])


def test_a_share_of_families_is_sampled():
    names = [f"{n:06}" for n in range(4000)]
    count = sum(is_sampled(name, 0.25) for name in names)
    assert abs(count - 1000) < 5 * np.sqrt(750)
    assert all(is_sampled(name, 1.0) for name in names)


def test_nothing_is_added_to_families_that_are_not_solved(tmp_path):
    plan, template, (piece,) = prepared(tmp_path)
    none = replace(piece, families=())
    more = with_expected(plan, template, none, MODEL, TOTALS)
    assert more is none
