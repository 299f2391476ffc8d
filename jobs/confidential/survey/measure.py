"""Draw the noisy answers of a part of a survey run, once."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from das.confidential import Confidential, redact_errors
from das.means.clipped import clipped_sums
from das.means.coinpress import estimate_means
from das.means.sums import NoisySum
from das.mechanisms.conditional import conditional_table
from das.mechanisms.entropy import NoiseKey, Streams
from das.synthesis.adaptive import AdaptiveRounds, measure_adaptively, measure_tree
from das.synthesis.measure import Spending as Phases
from das.synthesis.measure import StrataSpending, measure_marginals, measure_strata
from das.synthesis.records import Records
from das.synthesis.targets import strongest_pairs
from jobs.confidential.survey.read import SurveyTruth
from jobs.folder.draws import Draws, measure_once
from jobs.storage.dataset import dataset_digest, propose, publish
from jobs.survey.ledger import Spending, read_ledger, record_measured
from jobs.survey.measurements import (
    Answers,
    ConditionedTable,
    Drawn,
    cost_of_answers,
    cost_of_sums,
    drawn_answers,
    drawn_sums,
    drawn_table,
    part_folder,
    read_answers,
    read_sums,
    read_table,
    write_part,
)
from jobs.survey.plan import SYNTHESIS, SurveyPlan
from jobs.survey.table_plan import TablePlan

Truth = Callable[[], Confidential[SurveyTruth]]


def measure_part(
    plan: SurveyPlan, part: str, truth: Truth, draws: Draws | None, *, moved: bool = False
) -> None:
    """Measure one part, once, and record it in the account before anybody can read it.

    Args:
      plan: The run; its grant is claimed.
      part: A statistic, a table, or `synthesis`.
      truth: Reads the survey; called only if something is drawn.
      draws: What the account knows; none if noise is seeded.
      moved: Whether the folder is known to be the one that goes on.

    Raises:
      LedgerError: Measurements that were published before are gone, or a copy of this folder drew
        them.
    """
    dataset, ledger = part_folder(plan.release, part), plan.release.ledger
    measure_once(
        dataset,
        draws,
        part,
        lambda attempt: _draw(plan, part, truth, attempt),
        is_recorded=lambda: part in read_ledger(ledger).measured,
        moved=moved,
    )
    record_measured(ledger, part, Spending(dataset_digest(dataset), cost_of(plan, part)))


def cost_of(plan: SurveyPlan, part: str) -> Fraction:
    """What the published measurements of a part cost, by their noise alone."""
    dataset, privacy = part_folder(plan.release, part), plan.config.privacy
    if plan.kind(part) == "tables":
        return read_table(dataset).conditioning.cost.epsilon
    if part == SYNTHESIS:
        return cost_of_answers(read_answers(dataset, plan.strata), privacy.neighbors)
    return cost_of_sums(read_sums(dataset), privacy.definition, privacy.neighbors)


def _draw(plan: SurveyPlan, part: str, truth: Truth, attempt: str | None) -> None:
    """Draw a part; the key is made here and lives as long as this frame, in memory alone."""
    found = truth()  # whatever is wrong with the file is told before noise is drawn
    seed = plan.config.privacy.randomness.seed
    number = [*plan.costs].index(part)
    key = NoiseKey.draw() if seed is None else NoiseKey.for_testing(seed, (number,))
    table, facts = _measure(plan, part, found, Streams(key))
    dataset = part_folder(plan.release, part)
    own = {
        **facts,
        "part": part,
        "configuration_digest": plan.digest,
        "not_for_release": plan.not_for_release,
    }
    file = write_part(dataset, table)
    if attempt is None:
        publish(dataset, [file], own)
    else:
        propose(dataset, attempt, [file], own)


@redact_errors
def _measure(
    plan: SurveyPlan, part: str, truth: Confidential[SurveyTruth], streams: Streams
) -> Drawn:
    privacy, data = plan.config.privacy, truth.reveal()
    if part == SYNTHESIS:
        kept = plan.domain.positions(plan.microdata_domain.names)
        records = Records(plan.microdata_domain, np.ascontiguousarray(data.records.codes[:, kept]))
        return drawn_answers(_answers(plan, Confidential(records), streams))
    if plan.kind(part) == "tables":
        return drawn_table(_table(plan.table(part), data.records, streams))
    mean = next(one for one in plan.means if one.name == part)
    values = Confidential(data.values(mean))
    if mean.config.method == "clipped":
        sums = clipped_sums(
            values,
            mean.column,
            mean.steps,
            mean.strata,
            streams,
            definition=privacy.definition,
        )
        history: tuple[tuple[NoisySum, ...], ...] = (sums,)
    else:
        history = estimate_means(values, mean.column, mean.steps, mean.strata, streams).sums
    return drawn_sums(history, mean.strata.names, privacy.definition, privacy.neighbors)


def _table(table: TablePlan, records: Records, streams: Streams) -> ConditionedTable:
    """Draw a table, given its exact marginals."""
    counts = records.marginal(records.domain.positions(table.config.attributes)).reshape(-1)
    drawn = conditional_table(counts, table.rows, table.conditioning.scale, streams.bits((0,)))
    return ConditionedTable(drawn, table.exact_counts(counts), table.conditioning)


def _answers(plan: SurveyPlan, truth: Confidential[Records], streams: Streams) -> Answers:
    """Measure what the model of the microdata is fitted to."""
    settings, rho, neighbors = plan.synthesis, plan.costs[SYNTHESIS], plan.config.privacy.neighbors
    if settings.model == "tree":
        return measure_tree(truth, rho, neighbors, streams)
    if settings.model == "adaptive":
        rounds = AdaptiveRounds(most_megabytes=settings.megabytes, steps=settings.round_steps)
        return measure_adaptively(truth, rho, neighbors, streams, rounds)
    if settings.strata is not None and plan.strata is not None:
        parts = StrataSpending(settings.strata.population_share, settings.weighting)
        return measure_strata(truth, plan.strata, rho, neighbors, streams, parts)
    phases = Phases(
        one_way=settings.one_way_share,
        pairs_again=settings.pairs_again,
        weighting=settings.weighting,
    )
    return measure_marginals(
        truth, rho, neighbors, streams, spending=phases, choose=strongest_pairs
    )
