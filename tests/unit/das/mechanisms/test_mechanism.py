"""Mechanisms are values: exact cost, moments of their own law, the sampler that fits."""

import itertools
import pickle
from fractions import Fraction
from typing import ClassVar

import pytest

from das.definition import Definition
from das.errors import BudgetError
from das.mechanisms import moments
from das.mechanisms.gaussian import WIDE_SIGMA_SQ, DiscreteGaussian
from das.mechanisms.laplace import DiscreteLaplace
from das.mechanisms.registry import chargeable, choose_mechanism, read_mechanism, register
from das.mechanisms.table import SamplingTable, gaussian_table, laplace_table
from das.mechanisms.wide import MOST_TABLE_SCALE, wide_gaussian, wide_laplace

MECHANISMS = [
    DiscreteGaussian(Fraction(1, 100)),
    DiscreteGaussian(Fraction(12345, 7)),
    DiscreteGaussian(Fraction(10**12)),
    DiscreteLaplace(Fraction(1, 2)),
    DiscreteLaplace(Fraction(1234, 5)),
    DiscreteLaplace(Fraction(10**9)),
]
each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)


def test_a_gaussian_costs_exactly_what_is_paid():
    for sensitivity_sq, rho in itertools.product(
        [1, 2, 50], [Fraction(7, 11), Fraction(1, 10**6), Fraction(40)]
    ):
        mechanism = DiscreteGaussian.costing(Definition.ZCDP, rho, Fraction(sensitivity_sq))
        assert mechanism.sigma_sq == sensitivity_sq / (2 * rho)
        assert mechanism.cost(Definition.ZCDP, Fraction(sensitivity_sq)) == rho
        assert mechanism.cost(Definition.ZCDP, Fraction(1, 3)) == Fraction(1, 3) / (
            2 * mechanism.sigma_sq
        )


def test_a_laplace_costs_exactly_what_is_paid():
    for sensitivity, epsilon in itertools.product(
        [1, 2, 50], [Fraction(7, 11), Fraction(1, 10**6), Fraction(40)]
    ):
        mechanism = DiscreteLaplace.costing(Definition.PURE, epsilon, Fraction(sensitivity))
        assert mechanism.scale == sensitivity / epsilon
        assert mechanism.cost(Definition.PURE, Fraction(sensitivity)) == epsilon
        assert mechanism.cost(Definition.PURE, Fraction(1, 3)) == Fraction(1, 3) / mechanism.scale


@each_mechanism
def test_kind_and_parameter_make_it_again(mechanism):
    again = read_mechanism(mechanism.kind, Fraction(str(mechanism.parameter)))
    assert again == mechanism
    assert hash(again) == hash(mechanism)
    assert pickle.loads(pickle.dumps(mechanism)) == mechanism


@pytest.mark.parametrize(
    ("mechanism", "definition"),
    [(DiscreteGaussian, Definition.PURE), (DiscreteLaplace, Definition.ZCDP)],
)
def test_a_definition_charges_only_what_has_a_cost_in_it(mechanism, definition):
    assert mechanism not in chargeable(definition)
    with pytest.raises(BudgetError, match="has no cost under this privacy definition; got "):
        mechanism.costing(definition, Fraction(1), Fraction(1))
    with pytest.raises(BudgetError, match="has no cost under this"):
        mechanism(Fraction(1)).cost(definition, Fraction(1))
    with pytest.raises(BudgetError, match="has no cost under this"):
        choose_mechanism(definition, mechanism.kind)


@pytest.mark.parametrize("definition", list(Definition))
def test_the_default_of_a_definition_is_the_first_it_charges(definition):
    default = chargeable(definition)[0]
    assert choose_mechanism(definition) is default
    assert choose_mechanism(definition, default.kind) is default


def test_names_are_of_one_mechanism():
    assert register(DiscreteLaplace) is DiscreteLaplace

    class Other:
        kind = DiscreteLaplace.kind
        norms = DiscreteLaplace.norms

    with pytest.raises(
        BudgetError, match="has the name of another mechanism; got discrete_laplace"
    ):
        register(Other)

    class Free:
        kind = "free"
        norms: ClassVar = {}

    with pytest.raises(BudgetError, match="has no cost under any privacy definition"):
        register(Free)
    with pytest.raises(BudgetError, match="is unknown; got free"):
        choose_mechanism(Definition.ZCDP, "free")


def test_laws_of_one_parameter_differ():
    assert DiscreteGaussian(Fraction(5)) != DiscreteLaplace(Fraction(5))
    assert DiscreteGaussian(Fraction(5)) != DiscreteGaussian(Fraction(6))


def test_an_unknown_kind_is_refused():
    with pytest.raises(BudgetError, match="got gaussian; expected discrete_gaussian or discrete_l"):
        read_mechanism("gaussian", Fraction(1))


@pytest.mark.parametrize(
    ("law", "most", "message"),
    [
        (DiscreteGaussian, 2**80, r"discrete Gaussian: sigma_sq cannot .* 0 < sigma_sq <= "),
        (DiscreteLaplace, 2**39, r"discrete Laplace: scale cannot be used; got .*0 < scale <= "),
    ],
)
def test_unusable_parameters_are_refused_with_their_value(law, most, message):
    for bad in (Fraction(0), Fraction(-1), Fraction(most) + Fraction(1, 9), 100, 0.5):
        with pytest.raises(BudgetError, match=message):
            law(bad)
    assert law(Fraction(most)).parameter == most


@each_mechanism
def test_cdf_and_quantile_are_of_its_own_law(mechanism):
    for k in (-3, -1, 0, 1, 40):
        if isinstance(mechanism, DiscreteGaussian):
            assert mechanism.cdf(k) == moments.cdf(k, sigma_sq=mechanism.sigma_sq)
        else:
            assert mechanism.cdf(k) == moments.laplace_cdf(k, scale=mechanism.scale)
    for probability in (0.01, 0.5, 0.9):
        k = mechanism.quantile(probability)
        assert mechanism.cdf(k) >= probability > mechanism.cdf(k - 1)


@each_mechanism
def test_the_variance_is_below_that_of_the_continuous_law(mechanism):
    limit = float(mechanism.continuous_variance)
    assert 0 < mechanism.variance() <= limit * (1 + 1e-12)
    if mechanism.parameter < 1:
        assert mechanism.variance() < 0.9 * limit
    if mechanism.parameter > 10**6:
        assert mechanism.variance() == pytest.approx(float(mechanism.continuous_variance))


def test_known_continuous_variances():
    assert DiscreteGaussian(Fraction(5, 3)).continuous_variance == Fraction(5, 3)
    assert DiscreteLaplace(Fraction(5, 3)).continuous_variance == Fraction(50, 9)
    assert DiscreteGaussian(Fraction(1, 4)).variance() < 0.2151


def test_samplers_change_where_tables_grow_too_large():
    above = Fraction(1, 7)
    assert DiscreteGaussian(WIDE_SIGMA_SQ).sampler() is gaussian_table(WIDE_SIGMA_SQ)
    wide = DiscreteGaussian(WIDE_SIGMA_SQ + above).sampler()
    assert wide is wide_gaussian(WIDE_SIGMA_SQ + above)
    assert DiscreteLaplace(MOST_TABLE_SCALE).sampler() is laplace_table(MOST_TABLE_SCALE)
    wide = DiscreteLaplace(MOST_TABLE_SCALE + above).sampler()
    assert wide is wide_laplace(MOST_TABLE_SCALE + above)
    assert isinstance(DiscreteLaplace(Fraction(1, 10**6)).sampler(), SamplingTable)
