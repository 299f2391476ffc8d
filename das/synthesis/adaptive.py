"""Adaptive measurements of survey records: MST, AIM and GEM, with exact selection and noise.

All select marginals by the exponential mechanism. The scores compare the records with a model of
the previous measurements. Scores are integers: the model enters as records drawn from it, or as
rounded expected counts, which is post-processing. An exact selection costs a little less than its
share. The rest of the share goes to the measurement of the round, so the total is rho exactly.

Scores are L1 distances, which an added record may raise or lower: they are not monotonic, and a
selection costs epsilon^2 / 8 with P proportional to exp(epsilon score / (2 sensitivity)).

References:
  McKenna, Miklau & Sheldon, Winning the NIST contest, J. Privacy Confid. 11 (2021) (MST).
  McKenna, Mullins, Sheldon & Miklau, AIM, PVLDB 15 (2022).
  Liu, Vietri & Wu, Iterative methods for private synthetic data, NeurIPS 2021 (GEM).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from das.arrays import FloatArray, IntArray
from das.confidential import Confidential
from das.errors import BudgetError
from das.mechanisms.entropy import Position, Streams
from das.mechanisms.exponential import Selection
from das.queries.sensitivity import Neighbors
from das.synthesis.graphical import fit_model
from das.synthesis.measure import Measurer, marginal_query, merge_rare, revealed
from das.synthesis.model import Attributes, Fitter, Model, targets_of_marginals
from das.synthesis.records import ChosenMarginals, Merging, NoisyAnswer, Records, Selected
from das.synthesis.strata import MeasuredStrata, Strata

# The first index of a position says what is drawn, the second in which round.
_ONE_WAY, _SELECTION, _ANSWER = 0, 1, 2
_MODEL_SEED = 0  # of the records that are drawn of models between rounds; public
_BYTES_PER_CELL = 8
_EXPECTED_SIZE = math.sqrt(2.0 / math.pi)  # of a normal error, in standard deviations


@dataclass(frozen=True)
class AdaptiveRounds:
    """Parameters of AIM or GEM: budget per round, candidates and fitting.

    Attributes:
      order: Candidates are the sets of up to so many attributes, weighted by how much of the
        workload of all such sets they overlap.
      rounds_per_attribute: T = 16 d rounds are planned for; they get dearer where nothing is won.
      selection_share: Share of the cost of each round that pays for the selection.
      most_megabytes: Largest junction tree, at 8 bytes a cell, once all of rho is spent. The
        authors' is 80. Mixtures do not grow.
      steps: Steps of the fit after each round, from the previous model; 1000 in AIM.
      fitter: Fits the models between rounds: `fit_model` in AIM, `fit_products` in GEM.

    Raises:
      BudgetError: A number is out of range.
    """

    order: int = 3
    rounds_per_attribute: int = 16
    selection_share: Fraction = Fraction(1, 10)
    most_megabytes: float = 80.0
    steps: int = 1000
    fitter: Fitter = fit_model

    def __post_init__(self) -> None:
        numbers = (self.order, self.rounds_per_attribute, self.most_megabytes, self.steps)
        if min(numbers) <= 0 or not 0 < self.selection_share < 1:
            raise BudgetError(
                "rounds", "are out of range", got=f"{numbers} and a share {self.selection_share}"
            )


class _Selector(Measurer):
    """Selects marginals of records, and measures them."""

    @property
    def moved(self) -> int:
        """Return the sensitivity of an L1 distance of counts: 2 if a record is changed, else 1."""
        return 2 if self.neighbors is Neighbors.BOUNDED else 1

    def marginal(self, attributes: Attributes, rho: Fraction, round_: int) -> NoisyAnswer:
        """Measure the marginal of attributes, numbered from 0, in round `round_` at rho."""
        return self.measure(marginal_query(self.records.domain, attributes), rho, (_ANSWER, round_))

    def choose(self, scores: list[int], selection: Selection, position: Position) -> int:
        """Return the index of a score, from 0, drawn by the exponential mechanism."""
        return selection.choose(scores, self.streams.bits(position))


def measure_tree(
    truth: Confidential[Records], rho: Fraction, neighbors: Neighbors, streams: Streams
) -> ChosenMarginals:
    """Measure by MST: one-way marginals, then pairs of a tree of nearly the most dependence.

    A third of rho each for the one-way marginals, the selection and the d - 1 pairs; levels below
    three standard deviations are merged in between.

    Args:
      truth: The records.
      rho: The cost, positive.
      neighbors: Which data sets count as neighbors.
      streams: Noise streams, used for nothing else.

    Law: answers are exact + independent discrete Gaussian noise; each selection is that of
    `Selection.choose`; a round depends on the records only through the answers before it.

    Raises:
      BudgetError: rho is not positive.
      SchemaError: Fewer than two attributes, or a marginal is too large.
    """
    records = revealed(truth, rho)
    d = len(records.domain.names)
    one_way = Measurer(records, neighbors, streams).one_way(rho / 3 / d, _ONE_WAY)
    merging = merge_rare(one_way)
    selector = _Selector(merging.recode(records), neighbors, streams)
    size, targets = targets_of_marginals(ChosenMarginals(records.domain, merging, one_way, (), ()))
    shares = [np.maximum(targets[i,].shares, 0.0) for i in range(d)]
    shares = [each / each.sum() if each.any() else each + 1.0 / len(each) for each in shares]
    scores = {
        (i, j): _distance(selector.records, (i, j), np.outer(shares[i], shares[j]) * size)
        for i, j in itertools.combinations(range(d), 2)
    }
    selection = Selection.costing(rho / 3 / (d - 1), selector.moved)
    part = list(range(d))  # which attributes are joined already
    selections = []
    for number in range(d - 1):
        candidates = [pair for pair in scores if part[pair[0]] != part[pair[1]]]
        scored = [scores[pair] for pair in candidates]
        i, j = candidates[selector.choose(scored, selection, (_SELECTION, number))]
        selections.append(Selected((i, j), selection, len(candidates)))
        part = [part[i] if each == part[j] else each for each in part]
    rest = rho - rho / 3 - (d - 1) * selection.rho
    marginals = tuple(
        selector.marginal(each.attributes, rest / (d - 1), number)
        for number, each in enumerate(selections)
    )
    return ChosenMarginals(records.domain, merging, one_way, tuple(selections), marginals)


def measure_adaptively(
    truth: Confidential[Records],
    rho: Fraction,
    neighbors: Neighbors,
    streams: Streams,
    rounds: AdaptiveRounds,
) -> ChosenMarginals:
    """Measure by AIM or GEM: in rounds, select and measure what the model misses most.

    Args:
      truth: The records.
      rho: The cost, positive.
      neighbors: Which data sets count as neighbors.
      streams: Noise streams, used for nothing else.
      rounds: Parameters of the rounds: their costs, candidates and fits.

    Law: as `measure_tree`. Which sets are candidates depends on public sizes, the budget spent and
    noisy answers; of those whose model would be too large none is selected, so the law is that of
    the mechanism among the rest.

    Raises:
      BudgetError: rho is not positive.
      SchemaError: Fewer than two attributes, or a marginal is too large.
    """
    records = revealed(truth, rho)
    domain = records.domain
    d = len(domain.names)
    selector = _Selector(records, neighbors, streams)
    planned = rounds.rounds_per_attribute * d
    for_selection = rounds.selection_share * rho / planned
    for_answer = rho / planned - for_selection
    one_way = selector.one_way(for_answer, _ONE_WAY)
    unmerged = Merging(tuple(np.arange(size) for size in domain.sizes), domain.sizes)
    measured = ChosenMarginals(domain, unmerged, one_way, (), ())
    left = rho - measured.rho
    size, targets = targets_of_marginals(measured)
    model = rounds.fitter(domain.sizes, targets, rounds.steps)
    rng = np.random.default_rng(_MODEL_SEED)  # noqa: TID251 - draws of a model
    counted: dict[Attributes, IntArray] = {}
    for number in itertools.count(1):
        is_last = left < 2 * (for_answer + for_selection)
        if is_last:
            for_selection = rounds.selection_share * left
        selection = Selection.costing(for_selection, rounds.order * selector.moved)
        cost = left - selection.rho if is_last else for_answer
        variance = 1.0 / (2.0 * float(cost)) * selector.moved
        share_spent = float(1 - (left - selection.rho - cost) / rho)
        drawn = Records(domain, model.draw(round(size), rng))
        scores = _scores(selector.records, drawn, counted, rounds.order, math.sqrt(variance))
        limit = rounds.most_megabytes * 2**20 / _BYTES_PER_CELL * share_spent
        chosen = _choose_fitting(selector, scores, selection, number, model, limit)
        answer = selector.marginal(chosen, cost, number)
        left -= selection.rho + cost
        selected = Selected(chosen, selection, len(scores))
        measured = replace(
            measured,
            selections=(*measured.selections, selected),
            marginals=(*measured.marginals, answer),
        )
        size, targets = targets_of_marginals(measured)
        if is_last:
            break
        model = rounds.fitter(domain.sizes, targets, rounds.steps, model)
        (after,) = model.marginals([chosen])
        before = drawn.marginal(chosen)
        changed = float(np.abs(after * size - before).sum())
        if changed <= _EXPECTED_SIZE * math.sqrt(variance) * before.size:
            for_answer, for_selection = 4 * for_answer, 4 * for_selection
    return measured


def measure_chosen_strata(
    truth: Confidential[Records],
    strata: Strata,
    population: ChosenMarginals,
    rho: Fraction,
    neighbors: Neighbors,
    streams: Streams,
) -> MeasuredStrata:
    """Measure, in all strata in parallel, the marginals that were selected population-wide.

    Half of rho measures the one-way marginals of a stratum, half the selected ones, without the
    attributes of the strata. So nothing is selected from few records, and all strata have tables of
    the same attributes, which can be shrunk.

    Args:
      truth: The records.
      strata: The strata.
      population: Result of `measure_tree` or `measure_adaptively` for the records.
      rho: The cost beside that of the population, positive.
      neighbors: Which data sets count as neighbors.
      streams: The noise streams of `population`.

    Law: as `measure_tree`, with independent noise in every stratum. A record pays in its stratum
    alone; one that moves between two pays half of it in each.

    Raises:
      BudgetError: rho is not positive.
      SchemaError: A marginal is too large.
    """
    records = revealed(truth, rho)
    inner = strata.inner(records.domain)
    codes = population.merging.recode(records).codes[:, inner]
    selected = ([i for i in inner if i in one.query.kept] for one in population.marginals)
    sets = {tuple(inner.index(i) for i in each): None for each in selected}
    chosen = [each for each in sets if len(each) > 1]
    alone = rho / 2 if chosen else rho
    costs: dict[Attributes, Fraction] = {(i,): alone / len(inner) for i in range(len(inner))}
    costs |= dict.fromkeys(chosen, rho / 2 / max(1, len(chosen)))
    recoded = Records(population.merged.only(inner), codes)
    queries = [(marginal_query(recoded.domain, each), cost) for each, cost in costs.items()]
    whole = Measurer(recoded, neighbors, streams)
    inside = whole.inside(strata.of_records(records.codes), [queries] * strata.n_strata)
    return MeasuredStrata(strata, population, inside)


def _distance(records: Records, attributes: Attributes, expected: FloatArray) -> int:
    """Return the L1 distance of a marginal from expected counts, rounded to whole numbers.

    The distances of neighboring data sets differ by whole numbers.

    Args:
      records: The records.
      attributes: Attributes of the marginal, numbered from 0.
      expected: float64[n_i, ...], the expected counts.
    """
    return int(np.abs(records.marginal(attributes) - np.rint(expected).astype(np.int64)).sum())


def _scores(
    records: Records,
    drawn: Records,
    counted: dict[Attributes, IntArray],
    order: int,
    deviation: float,
) -> dict[Attributes, int]:
    """Return the score |r| (|M_r(records) - M_r(drawn)|_1 - expected noise of M_r) of each set r.

    The weight of a set in the workload of all sets of `order` attributes is proportional to its
    number of attributes. A set is left out if its expected noise exceeds the largest possible
    distance between records of the drawn size, because its score is never positive.

    Args:
      records: The confidential records.
      drawn: Records drawn from the current model.
      counted: Marginals of `records` by set of attributes; missing ones are added.
      order: Largest number of attributes of a set.
      deviation: Standard deviation of the noise of a count.
    """
    scores = {}
    d = len(records.domain.sizes)
    for k in range(1, order + 1):
        for each in itertools.combinations(range(d), k):
            n_cells = math.prod(records.domain.sizes[i] for i in each)
            noise = round(_EXPECTED_SIZE * deviation * n_cells)
            if k > 1 and noise >= 2 * max(1, len(drawn.codes)):
                continue
            if each not in counted:
                counted[each] = records.marginal(each)
            distance = int(np.abs(counted[each] - drawn.marginal(each)).sum())
            scores[each] = k * (distance - noise)
    return scores


def _choose_fitting(
    selector: _Selector,
    scores: dict[Attributes, int],
    selection: Selection,
    number: int,
    model: Model,
    most_cells: float,
) -> Attributes:
    """Select a set with which the model stays small enough.

    A set is drawn from all candidates. If it does not fit, it is removed and another is drawn with
    fresh bits. This has the law of drawing among the sets that fit, whose sizes are public. The
    number of removed sets depends on the records beyond this law and is never released.

    Args:
      selector: Draws the selections.
      scores: Score of each candidate set.
      selection: The exponential mechanism.
      number: Number of the round.
      model: The current model.
      most_cells: Most cells of the model.
    """
    left = dict(scores)
    for attempt in itertools.count():
        position = (_SELECTION, number, attempt)
        chosen = [*left][selector.choose([*left.values()], selection, position)]
        if model.admits(chosen, most_cells):
            break
        del left[chosen]
    return chosen
