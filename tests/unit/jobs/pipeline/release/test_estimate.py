"""Estimates of two families are those of one dense least-squares problem over all their cells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from das.tree.intervals import normal_factor
from invariants.constraints import Constraints
from invariants.facilities import Facilities
from invariants.quarters import LivingQuarters
from jobs.pipeline.release.estimate import EstimateStage, LevelEstimator, leaf_groups, sum_answers
from jobs.pipeline.release.implied import publish_implied
from jobs.pipeline.release.level import LevelRange, LevelReader
from jobs.pipeline.storage.answers import ANSWERS, answer_table
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.estimates import read_tables
from jobs.pipeline.storage.layout import EstimateLayout
from jobs.pipeline.tasks.batches import Sizing, TaskSize
from jobs.pipeline.tasks.executor import LocalTasks
from tests.builders import two_families as two

TABLES = ("total", "age", "detailed")
SINGLE = 2.0**-24  # relative rounding of what is stored
LARGEST = 200  # estimates are below 40, and a few of them are rounded on the way to one
# What each geolevel seems to count; noise makes them differ.
SEEN = {
    "state": {**two.BLOCKS, "111": (4, 0, 1, 7)},
    "county": {**two.BLOCKS, "112": (3, 3, 3, 3)},
    "block": {**two.BLOCKS, "121": (0, 5, 2, 0), "122": (1, 1, 1, 1)},
}
CODES = sorted(two.BLOCKS)


def cells_of(code: str) -> np.ndarray:
    """float64[16]: which cells of all blocks lie in a geounit."""
    return np.repeat([block.startswith(code) for block in CODES], 4).astype(float)


def rows_of(query, code: str) -> np.ndarray:
    """float64[m, 16]: a query of one geounit as rows over the cells of all blocks."""
    rows = (query.rows_of(np.arange(4))[None, :] == np.arange(query.size)[:, None]) * 1.0
    return np.tile(rows, len(CODES)) * cells_of(code)


def dense(plan, exact: tuple[str, ...] = (), empty: tuple[int, ...] = ()):
    """Estimate and covariance of all cells, float64[16] and float64[16, 16].

    Args:
      plan: What was measured.
      exact: Geocodes whose totals are exact, those of the true counts.
      empty: Cells of the blocks, 0 to 15, that are publicly 0.
    """
    rows, answers, precisions = [], [], []
    for level, geolevel in enumerate(two.SPINE.levels):
        for code, counts in two.at(geolevel, SEEN[geolevel]).items():
            for noisy in plan.noise(level, level):
                matrix = rows_of(noisy.query, code)
                rows.append(matrix)
                answers.append(np.bincount(noisy.query.rows_of(np.arange(4)), counts))
                precisions += [1 / noisy.mechanism.variance()] * len(matrix)
    x, y, weights = np.vstack(rows), np.concatenate(answers), np.array(precisions)
    start, free = np.zeros(16), np.eye(16)
    if exact or empty:
        equations = np.array([*(cells_of(code) for code in exact), *np.eye(16)[[*empty]]])
        sums = [sum(two.at("county")[code]) for code in exact] + [0] * len(empty)
        start = np.linalg.lstsq(equations, np.array(sums), rcond=None)[0]
        free = np.linalg.svd(equations)[2][np.linalg.matrix_rank(equations) :].T
    covariance = free @ np.linalg.inv(free.T @ (x.T * weights) @ x @ free) @ free.T
    return start + covariance @ (x.T * weights) @ (y - x @ start), covariance


def targets(estimator, batch):
    """Targets of a range from its subtrees."""
    reader = estimator.reader(batch.level)
    return reader.targets(reader.rows(batch))


def estimated(folder, plan, tasks=two.TASKS, given=None):
    release = two.release(folder)
    for geolevel, tables in (given or {}).items():
        rows = [answer_table(sorted(two.at(geolevel)), *table) for table in tables.items()]
        two.write(release.given(geolevel), rows, ANSWERS, {"queries": [*tables]})
    for geolevel in two.SPINE.levels:
        two.write_noisy(release, plan, geolevel, SEEN[geolevel])
        if plan.level(geolevel).published:
            two.write_exact(release, geolevel, ["total"])
    publish_implied(plan, release, two.TASKS)
    tables = tuple(two.query(name) for name in TABLES)
    EstimateStage(LevelEstimator(plan, release, tables, 0.9), tasks).run()
    layout = EstimateLayout.of(release)
    rows = {}
    for geolevel in two.SPINE.levels:
        for row in read_tables(Dataset.open(layout.tables(geolevel))).to_pylist():
            rows[row.pop("geocode"), row.pop("query")] = row
    return rows


@pytest.mark.parametrize("exact", [(), ("11", "12")])
def test_every_table_of_every_geounit_is_the_least_squares_estimate(tmp_path, exact):
    plan = two.plan(invariants=(two.exact("total", "county"),) if exact else ())
    values, covariance = dense(plan, exact)
    rows = estimated(tmp_path, plan)
    assert len(rows) == (1 + 2 + 4) * len(TABLES)
    for (code, name), row in rows.items():
        matrix = rows_of(two.query(name), code)
        variances = np.einsum("ij,jk,ik->i", matrix, covariance, matrix)
        errors = np.sqrt(np.maximum(variances, 0))
        assert row["estimate"] == pytest.approx(matrix @ values, abs=SINGLE * LARGEST)
        assert row["standard_error"] == pytest.approx(errors, rel=SINGLE, abs=1e-6)
        half = normal_factor(0.9) * np.array(row["standard_error"])
        assert row["upper"] == pytest.approx(np.array(row["estimate"]) + half, abs=1e-9)
        assert row["lower"] == pytest.approx(np.array(row["estimate"]) - half, abs=1e-9)


def facilities(down_to: str) -> Facilities:
    """Facilities of both ages, for up to 40 persons each, counted down to a geolevel."""
    levels = two.SPINE.levels[: two.SPINE.levels.index(down_to) + 1]
    both = np.array([True, True])
    return Facilities(two.query("age"), levels, np.array([0, 0]), np.array([40, 40]), both)


AGES = "facilities age"
HOMES = LivingQuarters(("homes",), np.array([True]), two.SPINE.levels)
MINORS, ADULTS, ALL = (0, 2), (1, 3), (0, 1, 2, 3)
EVERYWHERE = dict.fromkeys(CODES, (3,))


@pytest.mark.parametrize("exact", [(), ("11", "12")])
@pytest.mark.parametrize(
    ("limits", "given", "empty"),
    [
        (
            (facilities("block"),),
            {"block": {AGES: [[1, 0], [0, 2], [1, 1], [0, 0]]}},
            {"111": ADULTS, "112": MINORS, "122": ALL},
        ),
        (
            (facilities("county"),),
            {"county": {AGES: [[1, 1], [0, 1]]}},
            {"121": MINORS, "122": MINORS},
        ),
        ((HOMES,), {"block": {HOMES.title: [[3], [0], [2], [1]]}}, {"112": ALL}),
        (
            (facilities("county"), HOMES),
            {"county": {AGES: [[1, 1], [0, 1]]}, "block": {HOMES.title: [[3], [0], [2], [1]]}},
            {"112": ALL, "121": MINORS, "122": MINORS},
        ),
        ((two.zeros(3),), {}, EVERYWHERE),
        (
            (two.zeros(3), facilities("county")),
            {"county": {AGES: [[1, 1], [0, 1]]}},
            {**EVERYWHERE, "121": (0, 2, 3), "122": (0, 2, 3)},
        ),
    ],
)
def test_types_that_a_geounit_lacks_are_known_to_be_empty(tmp_path, limits, given, empty, exact):
    """In estimates of all geolevels, as exact rows of the dense problem are."""
    invariants = (two.exact("total", "county"),) if exact else ()
    plan = two.plan(invariants=invariants, limits=Constraints(limits))
    cells = [4 * CODES.index(code) + cell for code, some in empty.items() for cell in some]
    tables = {
        geolevel: {name: np.array(counts) for name, counts in of_level.items()}
        for geolevel, of_level in given.items()
    }
    values, covariance = dense(plan, exact, tuple(cells))
    for (code, name), row in estimated(tmp_path, plan, given=tables).items():
        matrix = rows_of(two.query(name), code)
        variances = np.einsum("ij,jk,ik->i", matrix, covariance, matrix)
        errors = np.sqrt(np.maximum(variances, 0))
        assert row["estimate"] == pytest.approx(matrix @ values, abs=SINGLE * LARGEST)
        assert row["standard_error"] == pytest.approx(errors, rel=SINGLE, abs=1e-6)


def test_a_task_has_room_for_a_covariance_of_every_leaf_if_each_may_lack_other_types(tmp_path):
    numbers = []
    for limits in ((), (facilities("block"),)):
        reader = LevelReader(two.plan(limits=Constraints(limits)), two.release(tmp_path), 2)
        answers = sum(query.size for query in reader.terms.measured)
        numbers.append(
            (reader.numbers - answers, sum(n**2 for n in reader.terms.coordinates.sizes))
        )
    (shared, _), (own, matrices) = numbers
    assert (shared, own) == (0, matrices)


def test_a_large_geolevel_leaves_its_children_in_double_precision(tmp_path):
    plan = two.plan()
    many = {code: tuple(30_000 * n + 1 for n in counts) for code, counts in two.BLOCKS.items()}
    release = two.release(tmp_path)
    for geolevel in two.SPINE.levels:
        two.write_noisy(release, plan, geolevel, many)
    EstimateStage(LevelEstimator(plan, release, (two.query("total"),), 0.9), two.TASKS).run()
    largest, kinds = [], []
    for geolevel in two.SPINE.levels:
        dataset = Dataset.open(EstimateLayout.of(release).tables(geolevel))
        table = dataset.read()
        values = np.abs(np.concatenate(table.column("estimate").to_pylist()))
        assert dataset.facts["largest_estimate"] == pytest.approx(values.max(), rel=1e-5)
        largest.append(values.max())
        kinds.append(table.schema.field("estimate").type.value_type)
    assert kinds[0] == pa.float64()
    for above, kind in zip(largest, kinds[1:], strict=False):
        assert kind == (pa.float32() if above < 65_536 else pa.float64())
    assert kinds[-1] == pa.float64()


def test_a_task_for_each_family_says_the_same(tmp_path):
    plan = two.plan()
    many = LocalTasks(Sizing(batches_per_slot=9, estimate_numbers=TaskSize(1, 1)))
    whole, cut = estimated(tmp_path / "whole", plan), estimated(tmp_path / "cut", plan, many)
    assert whole.keys() == cut.keys()
    for key, row in whole.items():
        for column, expected in row.items():
            assert cut[key][column] == pytest.approx(expected, abs=SINGLE * LARGEST)


def test_targets_are_what_a_subtree_says_alone(tmp_path):
    """Targets of a county come from its own answers and its blocks', not from above or beside."""
    plan = two.plan()
    release = two.release(tmp_path)
    for geolevel in two.SPINE.levels:
        two.write_noisy(release, plan, geolevel, SEEN[geolevel])
    estimator = LevelEstimator(plan, release, (two.query("total"),), 0.9)
    EstimateStage(estimator, two.TASKS).run()
    before = targets(estimator, two.whole("county"))
    first = dict(zip([query.name for query in before.queries], before.answers, strict=True))
    other = two.release(tmp_path / "other")
    for geolevel, changed in (("state", "111"), ("county", "122"), ("block", "121")):
        blocks = {**SEEN[geolevel], changed: (90, 0, 0, 90)}
        two.write_noisy(other, plan, geolevel, blocks)
    beside = replace(estimator, release=other)
    EstimateStage(beside, two.TASKS).run()
    after = targets(beside, two.whole("county"))
    second = dict(zip([query.name for query in after.queries], after.answers, strict=True))
    for name, answers in first.items():
        assert second[name][0] == pytest.approx(answers[0], abs=1e-9)
        assert np.abs(second[name][1] - answers[1]).max() > 1


def test_an_only_child_has_no_targets(tmp_path):
    """State 1 has one county, which is measured as the state."""
    plan, blocks = two.plan(), {code: two.BLOCKS[code] for code in ("111", "112")}
    release = two.release(tmp_path, blocks)
    for geolevel in two.SPINE.levels:
        two.write_noisy(release, plan, geolevel, blocks)
    estimator = LevelEstimator(plan, release, (two.query("total"),), 0.9)
    EstimateStage(estimator, two.TASKS).run()
    counties = targets(estimator, two.whole("county", blocks))
    assert [len(answers) for answers in counties.answers] == [0, 0]
    state = targets(estimator, two.whole("state", blocks))
    assert state.answers[0].tolist() == [[pytest.approx(6.0, abs=1e-6)]]


def test_without_tables_the_estimates_that_targets_need_are_made(tmp_path):
    plan, release = two.plan(), two.release(tmp_path)
    for geolevel in two.SPINE.levels:
        two.write_noisy(release, plan, geolevel, SEEN[geolevel])
    estimator = LevelEstimator(plan, release, (), 0.9)
    EstimateStage(estimator, two.TASKS).run()
    layout = EstimateLayout.of(release)
    for geolevel in two.SPINE.levels:
        assert Dataset.open(layout.tables(geolevel)).rows == 0
    values, _ = dense(plan)
    root = targets(estimator, two.whole("state"))
    assert root.answers[0].tolist() == [[pytest.approx(values.sum(), abs=1e-6)]]


def test_narrow_answers_of_a_family_are_added_up_in_wide_ones():
    """Of the second of three families, an only child, nothing was measured."""
    answers = np.array([[30_000, -30_000], [30_000, -30_000], [1, 2], [3, 4]], np.int16)
    codes, parents = (np.array([*text], object) for text in ("abcde", "AABCC"))
    is_only = parents == "B"
    children = LevelRange(2, codes, parents, np.zeros(5, np.int64), is_only, codes)
    order, first = leaf_groups(children, None)
    noisy, exact = sum_answers(children, ([answers], [np.arange(5)[:, None]]), order, first)
    assert noisy[0].tolist() == [[60_000, -60_000], [0, 0], [4, 6]]
    assert exact[0].tolist() == [[1], [0], [7]]
