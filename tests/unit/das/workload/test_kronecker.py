"""Kronecker products against numpy.kron, and sizes at which the product could not be formed."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import SchemaError
from das.workload import bounds
from das.workload.kronecker import (
    Kronecker,
    list_members,
    mark_attributes,
)
from das.workload.workload import Workload
from tests.unit.das.workload.dense import GROUPED, MIXED, kron, listed, marginal_matrix

SHAPES = [
    [(3, 2)],
    [(2, 3), (4, 2)],
    [(1, 3), (2, 2), (3, 1)],
    [(2, 2), (1, 1), (5, 2), (2, 4)],
]


def product(shapes, seed=0) -> Kronecker:
    rng = np.random.default_rng(seed)
    return Kronecker(tuple(rng.normal(size=shape) for shape in shapes))


def dense(given: Kronecker) -> np.ndarray:
    return kron(list(given.factors))


@pytest.mark.parametrize("shapes", SHAPES)
def test_the_algebra_is_that_of_the_dense_product(shapes):
    k = product(shapes)
    matrix = dense(k)
    rng = np.random.default_rng(1)
    vector, columns = rng.normal(size=k.shape[1]), rng.normal(size=(k.shape[1], 3))
    assert k.shape == matrix.shape
    np.testing.assert_allclose(k.apply(vector), matrix @ vector, atol=1e-12)
    np.testing.assert_allclose(k.apply(columns), matrix @ columns, atol=1e-12)
    np.testing.assert_allclose(dense(k.transpose()), matrix.T, atol=1e-12)
    assert k.largest_column() == pytest.approx((matrix**2).sum(0).max())


def test_products_too_large_to_form():
    """7^7 = 823,543 cells: the sums of prefix sums are known, the matrix would take 5 TB."""
    k = Kronecker((np.tri(7),) * 7)
    answers = k.apply(np.ones(7**7)).reshape((7,) * 7)
    assert answers[-1, -1, -1, -1, -1, -1, -1] == 7**7
    assert answers[0, 1, 2, 3, 4, 5, 6] == 5040


def test_a_vector_of_another_length_is_refused():
    with pytest.raises(SchemaError, match="another length; got 5; expected 6"):
        product([(2, 2), (2, 3)]).apply(np.ones(5))


@pytest.mark.parametrize("attributes", [MIXED[:3], GROUPED])
def test_the_gram_of_a_workload(attributes):
    names = [a.name for a in attributes]
    workload = Workload.of_marginals(
        attributes, [(), names[:1], names[:2], names], [0.5, 2.0, 0.0, 3.0]
    )
    matrix = np.concatenate(
        [
            np.sqrt(weight) * marginal_matrix(workload, members)
            for weight, members in zip(workload.weights, listed(workload.marginals), strict=True)
        ]
    )
    np.testing.assert_allclose(bounds._dense_gram(workload), matrix.T @ matrix, atol=1e-9)


def test_members_and_names():
    workload = Workload.of_marginals(MIXED, [("place", "age"), ("sex",)])
    assert list_members(workload.marginals).tolist() == [
        [False, True, False, False],
        [True, False, False, True],
    ]
    assert mark_attributes(workload, ["place", "age"]).tolist() == [True, False, False, True]
    with pytest.raises(SchemaError, match="unknown attribute; got \\['shoe'\\]"):
        mark_attributes(workload, ["age", "shoe"])
