"""Noisy measurements of survey records: all one- and two-way marginals.

Measurements are adaptively composed; their costs add up to rho exactly.

1. One-way counts of every attribute, with a small share. Rare levels, by public thresholds on these
   noisy counts, are merged.
2. The residual plan for all marginals on up to two attributes of the merged domain, weighted by a
   power of their sizes, the root by default, as integer queries.
3. Optionally, a second measurement: part of the budget of phase 2 goes to the pairs with the
   strongest dependence in its noisy answers. Selecting these is post-processing.

Models are fitted to noisy answers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from das.arrays import IntArray
from das.confidential import Confidential
from das.definition import Definition
from das.errors import BudgetError, SchemaError
from das.mechanisms.entropy import Position, Streams
from das.mechanisms.mechanism import Mechanism
from das.mechanisms.noise import add_noise
from das.mechanisms.registry import choose_mechanism
from das.queries.factor import identity, total
from das.queries.query import Query
from das.queries.sensitivity import Neighbors, sensitivity
from das.synthesis.records import Domain, Measured, Merging, NoisyAnswer, Records
from das.synthesis.strata import MeasuredStrata, Strata
from das.synthesis.targets import residual_deviation, strongest_pairs
from das.workload.choices import Method
from das.workload.plan import ExactPlan, WorkloadPlan, plan_workload
from das.workload.workload import AttributeWorkload, Weighting, Workload

# Levels below so many standard deviations of their noise are merged; 3 is that of MST (McKenna,
# Miklau & Sheldon, 2021), at which an empty level survives with probability 1/740.
RARE = 3.0
ONE_WAY_SHARE = Fraction(3, 20)  # 0.3 raised three-way errors on Adult from 0.131 to 0.140
# Part of rho for population-wide queries if there are strata. At epsilon 0.1 the population-wide
# error is then 15 % above the error without strata (bench.strata_synthesis, four seeds). With one
# half it was 18 % where two thirds gave 11 % (seed 0, before strata split their part by size).
POPULATION_SHARE = Fraction(2, 3)
# Standard deviation of shares of pairs between strata, for which pairs of strata are measured. It
# was 0.002 to 0.024 on ACS at epsilon 5, about 0.01 in the middle (bench.strata_synthesis).
PAIRS_VARY = 0.01

# Positions of streams begin with the number of the phase, 1 to 3, or of the stratum after these.
# With strata nothing is measured again, so the position of phase 3 counts their sizes.
_SIZES = (3, 0)
_FIRST_STRATUM = 4
_ONE_ROW = np.zeros(1, np.int64)


@dataclass(frozen=True)
class Spending:
    """Division of rho between the phases.

    Attributes:
      one_way: Part of phase 1.
      pairs_again: How many pairs a second look takes; 0 for none.
      again: Part of the rest that the second look takes.
      weighting: Weights of the marginals in phases 2 and 3, population-wide and in strata.
      population: With strata, the part for population-wide queries, without a second measurement.

    Raises:
      BudgetError: A part is out of range.
    """

    one_way: Fraction = ONE_WAY_SHARE
    pairs_again: int = 40
    again: Fraction = Fraction(1, 2)
    weighting: Weighting = Weighting.SQUARE_ROOT
    population: Fraction = POPULATION_SHARE

    def __post_init__(self) -> None:
        parts = (self.one_way, self.again, self.population)
        if not 0 < min(parts) <= max(parts) < 1 or self.pairs_again < 0:
            raise BudgetError(
                "parts of rho",
                "are out of range",
                got=f"{', '.join(map(str, parts))} and {self.pairs_again} pairs",
                want="parts between 0 and 1",
            )


@dataclass(frozen=True, eq=False)
class Measurer:
    """Adds noise to answers about records.

    Attributes:
      records: The confidential records.
      neighbors: Which data sets count as neighbors.
      streams: Noise streams, used for nothing else.
    """

    records: Records
    neighbors: Neighbors
    streams: Streams

    def answer(
        self, query: Query, mechanism: Mechanism, rho: Fraction, position: Position
    ) -> NoisyAnswer:
        """Answer a query and add the noise of a mechanism.

        Args:
          query: The query.
          mechanism: The noise.
          rho: The cost to record; it is not checked against the mechanism.
          position: Indices of the noise stream in the fixed plan of streams.
        """
        stream = self.streams.open(position, _ONE_ROW)
        exact = self.records.answer(query)[None]
        answers = add_noise(exact, mechanism=mechanism, stream=stream)
        return NoisyAnswer(query, mechanism, rho, answers[0])

    def measure(self, query: Query, rho: Fraction, position: Position) -> NoisyAnswer:
        """Answer a query with noise that costs rho, from the stream at `position`."""
        noise = choose_mechanism(Definition.ZCDP)
        charged = sensitivity(query, self.neighbors, noise.norms[Definition.ZCDP])
        mechanism = noise.costing(Definition.ZCDP, rho, charged)
        return self.answer(query, mechanism, rho, position)

    def planned(self, plan: ExactPlan, phase: int) -> tuple[NoisyAnswer, ...]:
        """Measure all queries of a plan over the attributes of the records."""
        return tuple(
            self.answer(exact.query, exact.mechanism, exact.rho, (phase, i))
            for i, exact in enumerate(plan.queries())
        )

    def one_way(self, rho: Fraction, phase: int) -> tuple[NoisyAnswer, ...]:
        """Measure all one-way marginals at rho each, with the noise streams of phase `phase`."""
        domain = self.records.domain
        return tuple(
            self.measure(marginal_query(domain, (i,)), rho, (phase, i))
            for i in range(len(domain.names))
        )

    def inside(
        self, stratum_of: IntArray, costs: Sequence[Sequence[tuple[Query, Fraction]]]
    ) -> tuple[tuple[NoisyAnswer, ...], ...]:
        """Measure queries in every stratum, in parallel.

        Args:
          stratum_of: int64[n], the stratum of each record.
          costs: Per stratum its queries, each with its cost.
        """
        inside = []
        for stratum, queries in enumerate(costs):
            codes = self.records.codes[stratum_of == stratum]
            part = replace(self, records=Records(self.records.domain, codes))
            answers = [
                part.measure(query, cost, (_FIRST_STRATUM + stratum, i))
                for i, (query, cost) in enumerate(queries)
            ]
            inside.append(tuple(answers))
        return tuple(inside)


def measure_marginals(
    truth: Confidential[Records],
    rho: Fraction,
    neighbors: Neighbors,
    streams: Streams,
    spending: Spending = Spending(),
) -> Measured:
    """Measure all marginals on one and two attributes at zCDP cost rho, exactly.

    Args:
      truth: The records.
      rho: The cost, positive.
      neighbors: Which data sets count as neighbors.
      streams: Noise streams, used for nothing else.
      spending: How rho is divided.

    Law: every answer is the exact one + independent discrete Gaussian noise, given uniform bits;
    the queries of a phase depend on the records only through the answers of those before.

    Raises:
      BudgetError: rho is not positive.
      SchemaError: Fewer than two attributes, or a marginal is too large.
    """
    records = revealed(truth, rho)
    cost = rho * spending.one_way / len(records.domain.names)
    one_way = Measurer(records, neighbors, streams).one_way(cost, 1)
    merging = merge_rare(one_way)
    recoded = Measurer(merging.recode(records), neighbors, streams)
    rest = rho - cost * len(one_way)
    later = rest * spending.again if spending.pairs_again else Fraction(0)
    plan = plan_pairs(recoded.records.domain, neighbors, spending.weighting)
    residuals = recoded.planned(plan.measure_exactly(rest - later), 2)
    measured = Measured(records.domain, merging, one_way, residuals)
    if not later:
        return measured
    return replace(measured, again=_measure_again(recoded, measured, later, spending))


def measure_plan(
    truth: Confidential[Records], plan: ExactPlan, streams: Streams
) -> tuple[NoisyAnswer, ...]:
    """Measure all queries of a plan at its exact zCDP cost.

    Args:
      truth: The records, with the attributes of the plan in its order.
      plan: The integer queries; it depends on no data.
      streams: Noise streams, used for nothing else.

    Law: every answer is the exact one + independent discrete Gaussian noise, given uniform bits.

    Raises:
      SchemaError: The plan has other attributes, or a marginal is too large.
    """
    return Measurer(truth.reveal(), plan.neighbors, streams).planned(plan, 1)


def measure_strata(
    truth: Confidential[Records],
    strata: Strata,
    rho: Fraction,
    neighbors: Neighbors,
    streams: Streams,
    spending: Spending = Spending(),
) -> MeasuredStrata:
    """Measure the population, and all strata in parallel, at exact zCDP cost rho.

    Args:
      truth: The records.
      strata: Public strata.
      rho: The cost, positive.
      neighbors: Which data sets count as neighbors.
      streams: Noise streams, used for nothing else.
      spending: How rho is divided.

    Law: as `measure_marginals`, with independent noise in every stratum. A record pays in its
    stratum alone; one that moves between two pays half of it in each.

    Raises:
      BudgetError: rho is not positive.
      SchemaError: A marginal is too large.
    """
    population = measure_marginals(
        truth,
        rho * spending.population,
        neighbors,
        streams,
        Spending(pairs_again=0, weighting=spending.weighting),
    )
    records = truth.reveal()
    inner = strata.inner(records.domain)
    domain = population.merged.only(inner)
    codes = population.merging.recode(records).codes[:, inner]
    plan = plan_pairs(domain, neighbors, spending.weighting).measure_exactly(rho - population.rho)
    (counted,) = (int(a.answers[0]) for a in population.residuals if not a.query.kept)
    costs = [costs_inside(plan, float(share) * max(1, counted)) for share in strata.shares()]
    whole = Measurer(Records(domain, codes), neighbors, streams)
    return MeasuredStrata(strata, population, whole.inside(strata.of_records(records.codes), costs))


def measure_sizes(
    truth: Confidential[Records],
    names: Sequence[str],
    least: float,
    rho: Fraction,
    neighbors: Neighbors,
    streams: Streams,
) -> tuple[Strata, NoisyAnswer]:
    """Measure the counts by the attributes of strata, and define the strata by them.

    Args:
      truth: The records.
      names: Attributes of the strata.
      least: Largest share of the noisy counts that is pooled.
      rho: The cost, positive.
      neighbors: Which data sets count as neighbors.
      streams: The noise streams of the measurements that follow.

    Law: counts are exact + independent discrete Gaussian noise, given uniform bits.

    Raises:
      BudgetError: rho is not positive.
      SchemaError: As `Strata.of`, or the marginal is too large.
    """
    records = revealed(truth, rho)
    query = marginal_query(records.domain, records.domain.positions(names))
    counted = Measurer(records, neighbors, streams).measure(query, rho, _SIZES)
    return Strata.of_counts(records.domain, names, counted, least), counted


def costs_inside(plan: ExactPlan, size: float) -> list[tuple[Query, Fraction]]:
    """Return the queries of a stratum with their costs, which sum to rho of the plan.

    In a stratum that is small relative to the noise, pairs are less accurate than the pooled model.
    So most of their cost goes to the size and the one-way tables. A pair keeps the weight that
    shrinkage would give its table if shares varied by `PAIRS_VARY`.

    Args:
      plan: Plan for the attributes inside a stratum.
      size: Approximate number of records; public, or from noisy answers.
    """
    queries = list(plan.queries())
    costs = []
    for exact in queries:
        cost = exact.rho
        if len(exact.query.kept) == 2:
            deviation = residual_deviation(exact.query, exact.mechanism)
            between = (size * PAIRS_VARY) ** 2
            cost *= Fraction(max(1, round(64 * between / (between + deviation**2))), 64)
        costs.append(cost)
    few = sum(cost for exact, cost in zip(queries, costs, strict=True) if len(exact.query.kept) < 2)
    more = (plan.rho - sum(costs)) / few + 1
    return [
        (exact.query, cost if len(exact.query.kept) == 2 else cost * more)
        for exact, cost in zip(queries, costs, strict=True)
    ]


def revealed(truth: Confidential[Records], rho: Fraction) -> Records:
    """Return the confidential records, after checking that they can be measured at cost rho.

    Raises:
      BudgetError: The cost is not positive.
      SchemaError: The records have fewer than two attributes.
    """
    if rho <= 0:
        raise BudgetError("rho", "must be positive", got=rho)
    records = truth.reveal()
    if len(records.domain.names) < 2:
        raise SchemaError("records", "need two or more attributes", got=list(records.domain.names))
    return records


def marginal_query(domain: Domain, attributes: Sequence[int]) -> Query:
    """Build the query that counts by the levels of some attributes, numbered from 0."""
    levels = [tuple(map(str, range(size))) for size in domain.sizes]
    factors = [identity(each) if i in attributes else total(each) for i, each in enumerate(levels)]
    return Query(" * ".join(domain.names[i] for i in attributes), tuple(factors))


def _measure_again(
    recoded: Measurer, measured: Measured, rho: Fraction, spending: Spending
) -> tuple[NoisyAnswer, ...]:
    """Measure the residuals of the most dependent pairs again, at cost rho in total."""
    pairs = strongest_pairs(measured, spending.pairs_again)
    by_pair = {answer.query.kept: answer.query for answer in measured.residuals}
    # Shares that minimize sum_B n_B^e x total variance, with the exponent e of phase 2: the root of
    # (n - 1)(m - 1) / (n m) x (n - 1)(m - 1) (n m)^e per pair. Any shares are exact.
    sizes = measured.merged.sizes
    power = (1.0 - spending.weighting.exponent) / 2
    weights = []
    for i, j in pairs:
        cells, freedom = sizes[i] * sizes[j], (sizes[i] - 1) * (sizes[j] - 1)
        weights.append(Fraction(round(1024 * freedom / cells**power)) + 1)
    return tuple(
        recoded.measure(by_pair[pair], rho * weight / sum(weights), (3, i))
        for i, (pair, weight) in enumerate(zip(pairs, weights, strict=True))
    )


def plan_pairs(
    domain: Domain, neighbors: Neighbors, weighting: Weighting = Weighting.SQUARE_ROOT
) -> WorkloadPlan:
    """Plan the residuals of all marginals on up to two attributes, at cost 1.

    Args:
      domain: Attributes and their sizes.
      neighbors: Which data sets count as neighbors.
      weighting: Scheme of the weights of the marginals.
    """
    attributes = list(map(AttributeWorkload.identity, domain.names, domain.sizes))
    workload = Workload.k_way(attributes, range(3), weighting)
    return plan_workload(workload, Method.RESIDUAL_PLANNER, neighbors=neighbors)


def merge_rare(one_way: Sequence[NoisyAnswer]) -> Merging:
    """Merge the levels whose noisy counts are below `RARE` standard deviations.

    An attribute of which one level would be left stays whole: a single level says nothing.
    """
    levels, kept = [], []
    for answer in one_way:
        large = answer.answers >= RARE * np.sqrt(float(answer.mechanism.continuous_variance))
        if large.sum() + (not large.all()) < 2:
            large[:] = True
        n_kept = int(large.sum())
        new = np.full(len(large), n_kept, np.int64)
        new[large] = np.arange(n_kept)
        levels.append(new)
        kept.append(n_kept)
    return Merging(tuple(levels), tuple(kept))
