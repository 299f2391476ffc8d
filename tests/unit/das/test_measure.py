"""measure(): noise that does not depend on the truth, in the row and with the scale it belongs to."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from das.confidential import Confidential
from das.errors import BudgetError, SchemaError
from das.histograms import Histograms
from das.measure import Measurements, measure
from das.mechanisms.entropy import NoiseKey, Streams
from das.mechanisms.gaussian import DiscreteGaussian
from das.mechanisms.laplace import DiscreteLaplace
from das.queries.query import marginal
from das.schema import Attribute, Schema
from tests.builders.histograms import from_dense
from tests.builders.streams import stream

SCHEMA = Schema("s", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
QUERY = marginal(SCHEMA, ("age",))
KEY = NoiseKey.for_testing(11)
ROWS = (0, 1, 2)
TIGHT = Fraction(1, 10**6)  # so little noise that a draw other than 0 would be a wonder


def truth(counts) -> Confidential[Histograms]:
    return Confidential(from_dense(np.array(counts)))


def gaussians(sigma_sq) -> tuple[DiscreteGaussian, ...]:
    return tuple(DiscreteGaussian(value) for value in sigma_sq)


FIRST = np.arange(18).reshape(3, 6)
SECOND = FIRST[::-1] * 1000


def noisy(counts, *, rows=ROWS, sigma_sq=(Fraction(50),) * 3, key=KEY) -> np.ndarray:
    laws = gaussians(sigma_sq)
    return measure(truth(counts), QUERY, mechanisms=laws, stream=stream(key, rows)).answers


def exact(counts) -> np.ndarray:
    return QUERY.answer(from_dense(np.array(counts)))


def test_the_same_key_gives_noise_that_does_not_depend_on_the_truth():
    assert np.array_equal(noisy(FIRST) - exact(FIRST), noisy(SECOND) - exact(SECOND))
    assert (noisy(FIRST) != exact(FIRST)).any()
    assert not np.array_equal(noisy(FIRST), noisy(FIRST, key=NoiseKey.for_testing(12)))


def test_noise_belongs_to_the_number_of_the_geounit_not_to_its_place_in_a_task():
    two = (Fraction(50),) * 2
    assert np.array_equal(noisy(FIRST[1:], rows=[1, 2], sigma_sq=two), noisy(FIRST)[1:])
    same = noisy(FIRST[[0, 0]], rows=[0, 1], sigma_sq=two)
    assert not np.array_equal(same[0], same[1])


def test_two_queries_of_one_geounit_have_different_noise():
    other = marginal(SCHEMA, ("sex",))
    sigma = (Fraction(10**6),) * 3
    laws, streams = gaussians(sigma), Streams(KEY)
    first, second = (
        measure(truth(FIRST), query, mechanisms=laws, stream=streams.open((i,), ROWS)).answers
        for i, query in enumerate((QUERY, other))
    )
    noise = second - other.answer(from_dense(FIRST))
    assert not np.array_equal((first - exact(FIRST))[:, :2], noise)


def test_each_row_has_its_own_scale():
    for quiet in range(3):
        scales = [Fraction(10**6)] * 3
        scales[quiet] = TIGHT
        error = noisy(FIRST, sigma_sq=scales) - exact(FIRST)
        assert not error[quiet].any()
        assert all(error[row].any() for row in range(3) if row != quiet)


def test_the_result_names_its_query_and_scales():
    scales = (Fraction(3), Fraction(1, 3), Fraction(3))
    laws = (*gaussians(scales[:2]), DiscreteLaplace(Fraction(3)))
    result = measure(truth(FIRST), QUERY, mechanisms=laws, stream=stream(KEY, 3))
    assert (result.query, result.mechanisms, result.answers.shape) == ("age", laws, (3, 3))
    with pytest.raises(ValueError, match="read-only"):
        result.answers[0, 0] = 1


@pytest.mark.parametrize(("n_rows", "scales"), [(2, (TIGHT,) * 3), (3, (TIGHT,) * 2), (0, ())])
def test_lengths_must_agree(n_rows, scales):
    with pytest.raises(BudgetError, match=r"^measure age: needs one row and one mechanism"):
        measure(truth(FIRST), QUERY, mechanisms=gaussians(scales), stream=stream(KEY, n_rows))


def test_measurements_need_one_scale_per_geounit():
    with pytest.raises(SchemaError, match="measurements of age: need one mechanism per geounit"):
        Measurements("age", gaussians([TIGHT]), np.zeros((2, 3), np.int64))
    with pytest.raises(SchemaError):
        Measurements("age", gaussians([TIGHT]), np.zeros(1, np.int64))
