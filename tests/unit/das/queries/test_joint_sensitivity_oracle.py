"""Joint sensitivities against every pair of cells, and what they make of planned strategies."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.queries import joint_sensitivity as module
from das.queries.factor import Factor
from das.queries.joint_sensitivity import joint_sensitivity
from das.queries.query import Query
from das.queries.sensitivity import Neighbors, l2_sensitivity_sq
from das.workload.certify import certify
from das.workload.choices import Method
from das.workload.plan import plan_workload
from das.workload.workload import AttributeWorkload, BaseKind, Workload
from tests.unit.das.queries.pairs_of_records import pair_costs
from tests.unit.das.workload.dense import partition


@st.composite
def factors(draw, size: int) -> Factor:
    rows = draw(st.integers(1, 3))
    entries = st.lists(st.integers(-4, 4), min_size=size, max_size=size)
    matrix = [draw(entries) for _ in range(rows)]
    return Factor(np.array(matrix), tuple(map(str, range(rows))))


@st.composite
def weighted_queries(draw, most_kinds: int, sizes: tuple[int, ...] = ()):
    """Products of a few factors per attribute, the sum among them, with positive weights."""
    sizes = sizes or tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    pool = [
        [
            Factor(np.ones((1, size), np.int64), ("all",)),
            *(draw(factors(size)) for _ in range(draw(st.integers(1, most_kinds)))),
        ]
        for size in sizes
    ]
    queries = [
        Query(str(number), tuple(draw(st.sampled_from(kinds)) for kinds in pool))
        for number in range(draw(st.integers(1, 6)))
    ]
    weights = [draw(st.fractions(Fraction(1, 50), 9, max_denominator=50)) for _ in queries]
    return queries, weights


def compare(queries, weights, limit: float) -> None:
    """Never below the worst pair, and at most `limit` times it."""
    found = joint_sensitivity(queries, weights)
    worst = pair_costs(queries, [1 / (2 * weight) for weight in weights])
    pairs = [
        (found.column, worst.added),
        (found.of(Neighbors.BOUNDED), worst.of(Neighbors.BOUNDED)),
        *zip(found.attributes, worst.attributes, strict=True),
    ]
    for claimed, true in pairs:
        assert true <= claimed
        assert float(claimed) <= limit * max(float(true), 1e-300)
    assert found.pair >= worst.changed or (found.pair == 2 * found.column >= worst.changed)


@given(weighted_queries(3))
def test_small_schemas_are_exact(drawn):
    compare(*drawn, limit=1.0)


@given(weighted_queries(3), st.sampled_from([1, 20, 200]))
def test_too_many_pairs_give_an_upper_bound(drawn, combinations):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST_COMBINATIONS", combinations)
        compare(*drawn, limit=float("inf"))


@given(weighted_queries(1, (6, 5)))
def test_boxes_of_pairs_come_close(drawn):
    """Of up to 36 x 25 patterns 150 may be tried, so pairs of levels must be put into boxes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST_COMBINATIONS", 150)
        compare(*drawn, limit=1.25)


def test_a_change_within_a_geounit_may_be_worse_than_a_move():
    """A row (1, -1) beside a fainter total: 4 against 2 x 5/4."""
    row = Factor(np.array([[1, -1]]), ("difference",))
    total = Factor(np.array([[1, 1]]), ("all",))
    weights = [Fraction(1), Fraction(1, 4)]
    found = joint_sensitivity([Query("d", (row,)), Query("t", (total,))], weights)
    assert (found.column, found.pair, found.of(Neighbors.BOUNDED)) == (Fraction(5, 4), 4, 4)
    assert found.attributes == (4,)


def test_numbers_beyond_floats_are_charged_one_by_one():
    """30 attributes whose rows are some 2^24: squares of products pass 2^1024."""
    row = Factor(np.array([[1 << 24, -(1 << 24)], [0, 1]]), ("steep", "flat"))
    queries = [Query(str(number), (row,) * 30) for number in range(2)]
    found = joint_sensitivity(queries, [Fraction(1), Fraction(2)])
    assert found.column == 3 * (2**48 + 1) ** 30
    assert found.pair == 3 * l2_sensitivity_sq(queries[0], Neighbors.BOUNDED)
    assert all(2 * found.column < each <= 4 * found.column for each in found.attributes)


def residuals(sizes: dict[str, int]) -> list[Query]:
    """Residuals of plain counts for every set of attributes."""
    out = [[]]
    for size in sizes.values():
        total = Factor(np.ones((1, size), np.int64), ("all",))
        rest = Factor(size * np.eye(size, dtype=np.int64) - 1, tuple(map(str, range(size))))
        out = [[*factors, one] for factors in out for one in (total, rest)]
    return [Query(str(number), tuple(factors)) for number, factors in enumerate(out)]


def test_residuals_charged_one_by_one_cost_twice_too_much():
    """Binary attributes: a residual row moves by 2, its column has length 1."""
    queries = residuals({"a": 2, "b": 2, "c": 2})
    weights = [Fraction(1, l2_sensitivity_sq(q, Neighbors.UNBOUNDED)) for q in queries]
    found = joint_sensitivity(queries, weights)
    pairs = zip(queries, weights, strict=True)
    alone = sum(w * l2_sensitivity_sq(q, Neighbors.BOUNDED) for q, w in pairs)
    assert found.column == 8
    assert found.of(Neighbors.BOUNDED) == 16
    assert alone == 2 + 7 * 4


def test_many_cells_are_no_obstacle():
    """1,227,744 cells: the pairs are 2^5 patterns of equal and different levels."""
    queries = residuals({"relgq": 42, "sex": 2, "age": 116, "hispanic": 2, "race": 63})
    weights = [Fraction(1, l2_sensitivity_sq(q, Neighbors.UNBOUNDED)) for q in queries]
    found = joint_sensitivity(queries, weights)
    assert found.column == 32
    assert 64 <= found.of(Neighbors.BOUNDED) < 1.2 * 64


def plain_workload(sizes, weights) -> Workload:
    attributes = [AttributeWorkload.identity(f"a{i}", n) for i, n in enumerate(sizes)]
    return weigh(attributes, weights)


def weigh(attributes, weights) -> Workload:
    """All marginals, with weights by the bits of their attributes; the whole table counts."""
    d = len(attributes)
    names = [[a.name for i, a in enumerate(attributes) if mask >> i & 1] for mask in range(1 << d)]
    return Workload.of_marginals(attributes, names, [*weights[: (1 << d) - 1], 1.0])


@st.composite
def workloads(draw) -> Workload:
    attributes = []
    for number in range(draw(st.integers(1, 3))):
        size = draw(st.integers(2, 4))
        kind = draw(st.sampled_from(["identity", "identity", "prefix", "ranges", "stacked"]))
        name = f"a{number}"
        if kind == "stacked":
            codes = [level >= size // 2 for level in range(size)]
            groups = partition(name, codes).matrix
            rows = np.concatenate([groups, np.eye(size)])
            attributes.append(AttributeWorkload.from_matrix(name, rows))
        else:
            attributes.append(AttributeWorkload(name, BaseKind(kind), size))
    weights = st.lists(st.sampled_from([0.01, 0.3, 1.0, 20.0]), min_size=7, max_size=7)
    return weigh(attributes, draw(weights))


@given(workloads(), st.sampled_from(list(Method)), st.sampled_from(list(Neighbors)))
def test_planned_strategies_cost_what_they_claim(workload, method, neighbors):
    """Over all pairs of cells and places: never above rho; residual plans within 2^-13 of it."""
    plain = all(each.kind is BaseKind.IDENTITY for each in workload.attributes)
    if method is Method.RESIDUAL_PLANNER and not plain:
        return
    rho = Fraction(5, 7)
    plan = plan_workload(workload, method, neighbors=neighbors)
    queries = list(plan.measure_exactly(rho).queries())
    assert sum(each.rho for each in queries) == rho
    spent = pair_costs(
        [each.query for each in queries], [each.mechanism.sigma_sq for each in queries]
    ).of(neighbors)
    assert spent <= rho
    assert spent >= rho * (1 - Fraction(1, 2**13))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(2, 5), min_size=1, max_size=3),
    st.lists(st.sampled_from([0.0, 0.01, 1.0, 50.0]), min_size=7, max_size=7),
)
def test_plain_counts_lose_nothing_to_hdmm_among_bounded_neighbors(sizes, weights):
    workload = plain_workload(sizes, weights)
    bounded = Neighbors.BOUNDED
    ours = plan_workload(workload, Method.RESIDUAL_PLANNER, neighbors=bounded)
    hdmm = plan_workload(workload, Method.HDMM, neighbors=bounded)
    assert ours.loss <= hdmm.loss * (1 + 2e-6)
    assert certify(ours).best_bound <= ours.loss * (1 + 1e-9)


@settings(max_examples=15, deadline=None)
@given(workloads(), st.sampled_from(list(Neighbors)))
def test_auto_is_never_worse_at_the_neighbors_of_the_run(workload, neighbors):
    best = plan_workload(workload, neighbors=neighbors)
    plain = all(each.kind is BaseKind.IDENTITY for each in workload.attributes)
    for method in Method:
        if method is Method.RESIDUAL_PLANNER and not plain:
            continue
        other = plan_workload(workload, method, neighbors=neighbors)
        assert best.loss <= other.loss * (1 + 2e-6)


def test_boxes_of_neighboring_floats_are_halved():
    """Their mean is the larger one, which would leave one half empty."""
    low = 1.0 + 2.0**-52
    high = np.nextafter(low, 2.0)
    assert (low + high) / 2 == high
    table = np.array([[[0.0, 0.0, 0.0]], [[1.0, 1.0, low]], [[1.0, 1.0, high]]])
    for box in (np.array([1, 2]), np.array([1, 1])):
        cut = module._split(table, [box], 0)
        assert all(len(one) for one in cut)
        assert np.array_equal(np.sort(np.concatenate(cut)), np.sort(box))
