"""Base matrices and workloads: implicit forms against dense matrices, and what is refused."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from das.errors import SchemaError
from das.workload.workload import AttributeWorkload, BaseKind, Weighting, Workload
from tests.unit.das.workload.dense import GROUPED, MIXED, listed, partition, tree

DENSE = {
    "identity": (AttributeWorkload.identity("a", 3), [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
    "prefix": (AttributeWorkload.prefix("a", 3), [[1, 0, 0], [1, 1, 0], [1, 1, 1]]),
    "ranges": (
        AttributeWorkload.ranges("a", 3),
        [[1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 1, 0], [0, 1, 1], [0, 0, 1]],
    ),
    "partition": (partition("a", [7, 3, 7]), [[0, 1, 0], [1, 0, 1]]),
    "tree": (
        tree("a", [[0, 0, 0], [0, 1, 1]]),
        [[1, 1, 1], [1, 0, 0], [0, 1, 1]],
    ),
    "given": (AttributeWorkload.from_matrix("a", np.array([[2, 0, 1], [-1, 1, 0]])), None),
}


@pytest.mark.parametrize("kind", list(DENSE))
def test_implicit_forms_agree_with_the_matrix(kind):
    workload, wanted = DENSE[kind]
    matrix = workload.matrix
    if wanted is not None:
        assert matrix.tolist() == wanted
    rng = np.random.default_rng(1)
    weights, columns = rng.random(len(matrix)), rng.normal(size=(3, 4))
    root = rng.normal(size=(3, 3))
    assert workload.n_rows == len(matrix)
    np.testing.assert_allclose(workload.apply(columns), matrix @ columns)
    np.testing.assert_allclose(workload.weighted_gram(weights), (matrix.T * weights) @ matrix)
    np.testing.assert_allclose(workload.gram, matrix.T @ matrix)
    np.testing.assert_allclose(
        workload.row_forms(root @ root.T), ((matrix @ root) ** 2).sum(1), atol=1e-12
    )


def test_the_ones_vector_must_be_answerable():
    with pytest.raises(SchemaError, match="does not determine the total") as caught:
        AttributeWorkload.from_matrix("age", np.array([[1, 0, 0], [0, 1, 0]]))
    assert caught.value.where == "workload of age"
    assert caught.value.remedy == "add a row of ones"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: AttributeWorkload.identity("a", 1), "needs at least two levels"),
        (lambda: partition("a", [0, 0, 0]), "tells no two levels apart"),
        (lambda: AttributeWorkload.from_matrix("a", np.array([[1, np.nan]])), "not finite"),
        (lambda: AttributeWorkload.from_matrix("a", np.ones(3)), "needs a matrix"),
        (lambda: AttributeWorkload("a", BaseKind.GIVEN, 3), "if, and only if, its kind is given"),
        (lambda: AttributeWorkload("a", BaseKind.PREFIX, 2, np.eye(2)), "only if, its kind"),
        (lambda: AttributeWorkload("a", BaseKind.GIVEN, 3, np.eye(2)), "wrong shape"),
    ],
)
def test_unusable_base_matrices_are_refused(build, message):
    with pytest.raises(SchemaError, match=message):
        build()


def test_signatures_tell_matrices_apart_not_names():
    assert AttributeWorkload.prefix("a", 5).signature == AttributeWorkload.prefix("b", 5).signature
    assert len({attribute.signature for attribute in (*MIXED, *GROUPED)}) == 7


def test_orders_of_marginals():
    assert listed(Workload.k_way(MIXED, [2]).marginals) == list(itertools.combinations(range(4), 2))
    assert Workload.k_way(MIXED, range(5)).marginals.size == 16


def test_small_marginals_are_those_within_the_limit():
    rows = [attribute.n_rows for attribute in MIXED]
    wanted = [
        members
        for order in range(5)
        for members in itertools.combinations(range(4), order)
        if math.prod(rows[i] for i in members) <= 40
    ]
    assert listed(Workload.k_way(MIXED, range(len(MIXED) + 1), most_answers=40).marginals) == wanted
    assert listed(Workload.k_way(MIXED, [2], most_answers=40).marginals) == [
        members for members in wanted if len(members) == 2
    ]


@pytest.mark.parametrize(
    ("weighting", "exponent"),
    [(Weighting.EQUAL, 0), (Weighting.SQUARE_ROOT, 0.5), (Weighting.CELL_SIZE, 1)],
)
def test_weights_are_importance_per_answer(weighting, exponent):
    workload = Workload.k_way(MIXED, range(3), weighting)
    np.testing.assert_allclose(workload.weights * workload.sizes, workload.sizes**exponent)


def test_given_weights_follow_their_marginals():
    workload = Workload.of_marginals(MIXED, [["sex", "age"], [], ["income"]], [3.0, 1.0, 2.0])
    assert listed(workload.marginals) == [(), (2,), (0, 1)]
    assert workload.weights.tolist() == [1.0, 2.0, 3.0]
    assert workload.sizes.sum() == 1 + 10 + 8


@pytest.mark.parametrize(
    ("marginals", "weights", "message"),
    [
        ([["age", "height"]], [1.0], "names an unknown attribute; got \\['height'\\]"),
        ([["age", "age"]], [1.0], "names an attribute twice"),
        ([["age", "sex"], ["sex", "age"]], [1.0, 1.0], "lists a marginal twice"),
        ([["age"]], [1.0, 2.0], "needs a weight per marginal"),
        ([["age"]], [-1.0], "weights that cannot be used"),
        ([["age"]], [0.0], "weights that cannot be used"),
        ([], [], "has no marginals"),
    ],
)
def test_unusable_workloads_are_refused(marginals, weights, message):
    with pytest.raises(SchemaError, match=message):
        Workload.of_marginals(MIXED, marginals, weights)


def test_names_must_differ_and_orders_exist():
    twin = AttributeWorkload.identity("age", 4)
    with pytest.raises(SchemaError, match="names an attribute twice"):
        Workload.k_way((MIXED[0], twin), [1])
    with pytest.raises(SchemaError, match="more attributes than there are"):
        Workload.k_way(MIXED, [5])


def test_many_marginals_are_three_arrays():
    attributes = [AttributeWorkload.identity(f"a{i}", 10) for i in range(60)]
    workload = Workload.k_way(attributes, range(4))
    assert workload.marginals.size == 36_051
    assert [members.shape for members in workload.marginals.by_order] == [
        (1, 0),
        (60, 1),
        (1_770, 2),
        (34_220, 3),
    ]
    assert workload.sizes.sum() == sum(math.comb(60, k) * 10**k for k in range(4))
