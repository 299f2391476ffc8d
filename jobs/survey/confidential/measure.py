"""Noisy answers of one part of a survey run, drawn once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from das.confidential import Confidential, redact_errors
from das.errors import BudgetError
from das.means.measure import clipped_sums, estimate_means
from das.measure import draw_under
from das.mechanisms.conditional import conditional_table
from das.mechanisms.entropy import NoiseKey, Streams
from das.synthesis.adaptive import (
    AdaptiveRounds,
    measure_adaptively,
    measure_chosen_strata,
    measure_tree,
)
from das.synthesis.graphical import fit_model
from das.synthesis.measure import Spending as Phases
from das.synthesis.measure import measure_marginals, measure_plan, measure_sizes, measure_strata
from das.synthesis.mixture import fit_products
from das.synthesis.records import ChosenMarginals, Records
from jobs.pipeline.confidential.draw import Drawn, draw_part
from jobs.pipeline.folder.spending import Part, Spending
from jobs.survey.checks import SYNTHESIS
from jobs.survey.confidential.read import SurveyTruth
from jobs.survey.marginals import MarginalsPlan
from jobs.survey.measurements import (
    Answers,
    ConditionedTable,
    PartAnswers,
    PlannedAnswers,
    Rows,
    part_cost,
    part_rows,
    read_part,
    write_part,
)
from jobs.survey.plan import SurveyPlan, TablePlan

Truth = Callable[[], Confidential[SurveyTruth]]


def measure_part(
    plan: SurveyPlan, part: Part, truth: Truth, spending: Spending, *, moved: bool = False
) -> None:
    """Measure one part once, and record it in the account before it can be read.

    Args:
      plan: Plan of the run; its budget is reserved and its ledger begun.
      part: A statistic, a table, or `synthesis`.
      truth: Reads the survey; called only if something is drawn.
      spending: Budget of the run and its parts.
      moved: Whether the caller confirms that this folder, possibly a copy, continues the run.

    Raises:
      LedgerError: Measurements that were published before are gone, or a copy of this folder drew
        them.
      SpentError: Measuring failed after noise was drawn.
    """

    def draw(key: NoiseKey) -> Drawn:
        table, facts = redact_errors(_draw)(plan, part, truth(), key)
        stated = {
            "part": part.name,
            "configuration_digest": plan.digest,
            "not_for_release": plan.not_for_release,
        }
        return [write_part(part.dataset, table)], {**facts, **stated}

    draw_part(spending, part, draw, cost=lambda: _cost_of(plan, part), moved=moved)


def _cost_of(plan: SurveyPlan, part: Part) -> Fraction:
    """Return the privacy loss of the published measurements of a part, from their noise alone."""
    return part_cost(plan, read_part(plan, part.name))


def _draw(plan: SurveyPlan, part: Part, truth: Confidential[SurveyTruth], key: NoiseKey) -> Rows:
    """Draw the noisy answers of a part; return rows and facts."""

    def draw(streams: Streams) -> Rows:
        answers = _measured(plan, part.name, truth.reveal(), streams)
        if part_cost(plan, answers) > plan.costs[part.name]:
            raise BudgetError(part.name, "costs more than planned")
        return part_rows(plan, part.name, answers)

    return draw_under(key, draw)


def _measured(plan: SurveyPlan, part: str, data: SurveyTruth, streams: Streams) -> PartAnswers:
    planned = plan.part(part)
    if planned is None:
        records = data.records.only(plan.microdata_domain.names)
        return _answers(plan, Confidential(records), streams)
    if isinstance(planned, MarginalsPlan):
        answers = measure_plan(Confidential(data.records), planned.exact, streams)
        return PlannedAnswers(data.records.domain, answers)
    if isinstance(planned, TablePlan):
        return _table(planned, data.records, streams)
    values, public = (
        Confidential(data.values(planned)),
        (planned.column, planned.steps, planned.strata),
    )
    if planned.config.method == "clipped":
        definition = plan.config.privacy.definition
        return (clipped_sums(values, *public, streams, definition=definition),)
    return estimate_means(values, *public, streams).sums


def _table(table: TablePlan, records: Records, streams: Streams) -> ConditionedTable:
    """Draw a table conditional on its exact marginals."""
    counts = records.marginal(records.domain.positions(table.config.attributes)).reshape(-1)
    drawn = conditional_table(counts, table.rows, table.conditioning.scale, streams.bits((0,)))
    return ConditionedTable(drawn, table.exact_counts(counts), table.conditioning)


def _answers(plan: SurveyPlan, truth: Confidential[Records], streams: Streams) -> Answers:
    """Measure the marginals to which the model of the microdata is fitted."""
    settings, strata, rho = plan.synthesis, plan.strata, plan.costs[SYNTHESIS]
    neighbors, stated, sizes = plan.config.privacy.neighbors, settings.strata, None
    phases = Phases(
        settings.one_way_share, settings.n_remeasured_pairs, weighting=settings.weighting
    )
    if stated is None:
        if settings.model == "mixture":
            return measure_marginals(truth, rho, neighbors, streams, phases)
        return _selected(plan, truth, rho, streams)
    if strata is None:
        least, counted = float(stated.min_share), rho * stated.sizes_share
        strata, sizes = measure_sizes(truth, stated.attributes, least, counted, neighbors, streams)
        rho -= sizes.rho
    part = stated.population_model_share
    if settings.model == "mixture":
        phases = replace(phases, population=part)
        measured = measure_strata(truth, strata, rho, neighbors, streams, phases)
    else:
        population = _selected(plan, truth, rho * part, streams)
        rest = rho - population.rho
        measured = measure_chosen_strata(truth, strata, population, rest, neighbors, streams)
    return replace(measured, sizes=sizes)


def _selected(
    plan: SurveyPlan, truth: Confidential[Records], rho: Fraction, streams: Streams
) -> ChosenMarginals:
    """Measure marginals of all records that are selected by looking at them."""
    settings, neighbors = plan.synthesis, plan.config.privacy.neighbors
    if settings.model == "tree":
        return measure_tree(truth, rho, neighbors, streams)
    rounds = AdaptiveRounds(
        most_megabytes=settings.max_model_megabytes,
        steps=settings.steps_per_round,
        fitter=fit_products if settings.model == "gem" else fit_model,
    )
    return measure_adaptively(truth, rho, neighbors, streams, rounds)
