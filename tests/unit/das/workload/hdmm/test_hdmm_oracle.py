"""HDMM and the bounds against published tables; every number is a root mean square error.

Tables are those of He, Xiao, Toksoz, Ding, Zhang & Kifer, ResidualPlanner+. The shapes of their
data sets are public; the strategies do not depend on the records.
"""

from __future__ import annotations

import math

import pytest

from das.workload.bounds import dual_bound, minimize_over_all_strategies, svd_bound
from das.workload.hdmm.marginals import optimize_marginals
from das.workload.hdmm.strategies import (
    UnionStrategy,
    list_hdmm,
    optimize_kronecker,
    optimize_union,
)
from das.workload.workload import AttributeWorkload, Workload
from tests.unit.das.workload.dense import workload_gram

SUMS = {
    "CPS": [50, 100],
    "Adult": [100, 100, 100, 99, 85],
    "Loans": [101, 101, 101, 101],
}
COUNTS = {
    "CPS": [7, 4, 2],
    "Adult": [42, 16, 15, 9, 7, 6, 5, 2, 2],
    "Loans": [3, 8, 36, 6, 51, 4, 5, 15],
}


def named(kind, sizes):
    return [kind(f"{kind.__name__} {i}", size) for i, size in enumerate(sizes)]


def data_set(name, kind=AttributeWorkload.prefix):
    return named(kind, SUMS[name]) + [
        AttributeWorkload.identity(f"count {i}", size) for i, size in enumerate(COUNTS[name])
    ]


def orders(attributes, ways) -> Workload:
    """ "2" for all pairs, "<=3" for everything up to triples."""
    if ways.startswith("<="):
        return Workload.k_way(attributes, range(int(ways[2:]) + 1))
    return Workload.k_way(attributes, [int(ways)])


def root_mean_square(error: float, workload: Workload) -> float:
    return math.sqrt(error / workload.sizes.sum())


RANGES = {
    3: [1.39, 2.11, 3.34, 5.29, 8.18, 12.20],
    4: [1.55, 2.70, 5.00, 9.23, 16.48, 28.09],
    5: [1.73, 3.47, 7.47, 16.08, 33.21, 64.67],
}
PREFIXES = {
    3: [1.50, 2.25, 3.34, 4.82, 6.77, 9.26],
    4: [1.71, 2.95, 4.99, 8.15, 12.82, 19.44],
    5: [1.96, 3.87, 7.45, 13.76, 24.25, 40.83],
}


@pytest.mark.parametrize("n_attributes", [3, 4, 5])
@pytest.mark.parametrize(
    ("kind", "table"), [(AttributeWorkload.ranges, RANGES), (AttributeWorkload.prefix, PREFIXES)]
)
def test_tables_10_and_11_one_product(kind, table, n_attributes):
    for power, published in enumerate(table[n_attributes], start=1):
        workload = Workload.k_way(named(kind, [2**power] * n_attributes), [n_attributes])
        found = root_mean_square(optimize_kronecker(workload).error, workload)
        assert found == pytest.approx(published, abs=0.00501)


PRODUCTS = {  # (levels, attributes): OPT_kron, OPT_+ for 1-way, 2-way, ...
    (10, 5): ([3.59, 6.32, 8.44, 9.40, 9.13], [3.48, 7.66, 11.92, 13.11, 9.13]),
    (10, 10): ([5.11, 12.90, 24.82, 39.95, 56.28], [4.92, 16.24, 41.28, 84.98, 144.86]),
    (20, 20): (
        [8.95, 39.51, 132.39, 369.15, 894.65, 1933.59, 3790.64],
        [7.84, 42.40, 182.18, 658.76, 2066.90],
    ),
}


LARGE = pytest.param((20, 20), marks=pytest.mark.long)  # the same code, on 6 s of it


@pytest.mark.parametrize("shape", [(10, 5), (10, 10), LARGE])
def test_tables_12_to_14_one_product_and_unions(shape):
    size, n_attributes = shape
    one, unions = PRODUCTS[shape]
    attributes = named(AttributeWorkload.prefix, [size] * n_attributes)
    for order, published in enumerate(one, start=1):
        workload = Workload.k_way(attributes, [order])
        found = root_mean_square(optimize_kronecker(workload).error, workload)
        assert found == pytest.approx(published, rel=2e-5, abs=0.00501)
        if order <= len(unions):
            union = root_mean_square(optimize_union(workload).error, workload)
            assert union <= min(published * (1 + 1e-5), unions[order - 1]) + 0.00501


@pytest.mark.parametrize(("order", "published"), [(1, 3.48), (2, 7.66), (3, 11.92), (4, 13.11)])
def test_the_published_unions_are_those_of_single_marginals(order, published):
    attributes = named(AttributeWorkload.prefix, [10] * 5)
    workload = Workload.k_way(attributes, [order])
    single = [
        optimize_kronecker(Workload.of_marginals(attributes, [workload.names_of(members)]))
        for members in workload.marginals.by_order[order]
    ]
    alone = UnionStrategy(workload, tuple(single))
    assert root_mean_square(alone.error, workload) == pytest.approx(published, abs=0.00501)


TABLE_8 = {
    "CPS": {"1": 3.347, "2": 6.625, "3": 8.634, "<=3": 8.623},
    "Adult": {"1": 5.648, "2": 21.111, "3": 60.025, "<=3": 61.613},
    "Loans": {"1": 5.127, "2": 17.149, "3": 42.938, "<=3": 44.338},
}


@pytest.mark.parametrize(
    "name", ["CPS", *(pytest.param(name, marks=pytest.mark.long) for name in ("Adult", "Loans"))]
)
def test_table_8_the_best_family(name):
    for ways in ["1", "2", "3", "<=3"]:
        workload = orders(data_set(name), ways)
        published = TABLE_8[name][ways]
        found = root_mean_square(min(each.error for each in list_hdmm(workload)), workload)
        assert published * 0.99 <= found <= published + 5.1e-4


@pytest.mark.parametrize(
    ("n_attributes", "one", "union", "marginals"),
    [
        (2, 2.49, 2.84, 3.04),
        (6, 14.25, 18.39, 15.58),
        (10, 34.15, 43.76, 33.00),
        (12, 46.1, 58.9, 43.0),
    ],
)
def test_ranges_of_up_to_three_attributes(n_attributes, one, union, marginals):
    """Measured with the authors' code on marginals of 1 to 3 attributes."""
    attributes = named(AttributeWorkload.ranges, [10] * n_attributes)
    workload = Workload.k_way(attributes, range(1, min(n_attributes, 3) + 1))
    families = (optimize_kronecker, optimize_union, optimize_marginals)
    for family, measured in zip(families, (one, union, marginals), strict=True):
        assert root_mean_square(family(workload).error, workload) <= measured * 1.0005 + 0.005
    kronecker, _, plain = (root_mean_square(f(workload).error, workload) for f in families)
    assert kronecker == pytest.approx(one, rel=1e-3, abs=0.00501)
    assert plain == pytest.approx(marginals, rel=1e-3, abs=0.00501)


PLAIN = {  # workload: HDMM, singular value bound
    "CPS": {
        "1": (1.756, 1.744),
        "2": (2.103, 2.035),
        "3": (2.089, 2.048),
        "4": (1.648, 1.627),
        "5": (1.000, 1.000),
        "<=3": (2.301, 2.276),
    },
    "Adult": {
        "1": (3.081, 3.047),
        "2": (6.504, 6.359),
        "3": (11.529, 10.515),
        "4": (16.618, 14.656),
        "5": (20.240, 17.844),
        "<=3": (11.555, 10.665),
    },
    "Loans": {
        "1": (2.903, 2.875),
        "2": (5.747, 5.634),
        "3": (9.478, 8.702),
        "4": (12.537, 11.267),
        "5": (14.872, 12.678),
        "<=3": (9.406, 8.876),
    },
}


@pytest.mark.parametrize(("name", "ways"), [(name, ways) for name in PLAIN for ways in PLAIN[name]])
def test_tables_25_to_27_plain_marginals(name, ways):
    workload = orders(data_set(name, AttributeWorkload.identity), ways)
    hdmm, bound = PLAIN[name][ways]
    found = optimize_marginals(workload)
    assert root_mean_square(svd_bound(workload), workload) == pytest.approx(bound, abs=5.1e-4)
    assert bound - 5.1e-4 <= root_mean_square(found.error, workload) <= hdmm + 6e-4
    assert svd_bound(workload) <= found.bound * (1 + 1e-9)


@pytest.mark.parametrize(
    ("size", "n_attributes", "ways", "bound", "optimum"),
    [
        (8, 3, "3", 2.976, 3.337),
        (8, 3, "<=3", 3.145, 3.407),
        (5, 4, "1", 2.069, 2.109),
        (5, 4, "3", 3.253, 3.529),
        (5, 4, "4", 3.029, 3.507),
        (5, 4, "<=4", 3.312, 3.633),
        pytest.param(8, 3, "2", 2.927, 3.085, marks=pytest.mark.long),
        pytest.param(4, 5, "1", 2.082, 2.116, marks=pytest.mark.long),
        pytest.param(4, 5, "2", 3.022, 3.133, marks=pytest.mark.long),
    ],
)
def test_the_optimum_over_all_matrix_mechanisms(size, n_attributes, ways, bound, optimum):
    """Values of an independent dense dual ascent on prefix sums."""
    workload = orders(named(AttributeWorkload.prefix, [size] * n_attributes), ways)
    found = minimize_over_all_strategies(workload)
    assert root_mean_square(svd_bound(workload), workload) == pytest.approx(bound, abs=6e-4)
    assert root_mean_square(found.value, workload) == pytest.approx(optimum, abs=5.1e-4)
    gram = workload_gram(workload)
    assert dual_bound(gram, found.cell_weights) <= found.value
    assert min(each.error for each in list_hdmm(workload)) >= found.bound * (1 - 1e-9)
