"""What each kind of part of a survey holds: noisy sums, a table, or noisy marginals; no data."""

from __future__ import annotations

from fractions import Fraction

from das.means.sums import NoisySum
from jobs.survey.measurements import (
    Answers,
    ConditionedTable,
    Rows,
    answer_rows,
    cost_of_answers,
    cost_of_sums,
    read_answers,
    read_sums,
    read_table,
    sum_rows,
    table_rows,
)
from jobs.survey.plan import SYNTHESIS, SurveyPlan

NoisySums = tuple[tuple[NoisySum, ...], ...]
PartAnswers = NoisySums | ConditionedTable | Answers


def read_part(plan: SurveyPlan, part: str) -> PartAnswers:
    """Read the published noisy answers of a part.

    Raises:
      OutputError: They are not published, or damaged.
    """
    dataset = plan.release.measured_part(part)
    if part == SYNTHESIS:
        return read_answers(dataset, plan.strata)
    return read_table(dataset) if plan.kind(part) == "tables" else read_sums(dataset)


def part_cost(plan: SurveyPlan, answers: PartAnswers) -> Fraction:
    """Compute what noisy answers cost, by their noise alone.

    Raises:
      OutputError: The noise costs more than is stated with it.
    """
    privacy = plan.config.privacy
    if isinstance(answers, ConditionedTable):
        return answers.conditioning.cost.epsilon
    if isinstance(answers, tuple):
        return cost_of_sums(answers, privacy.definition, privacy.neighbors)
    return cost_of_answers(answers, privacy.neighbors)


def part_rows(plan: SurveyPlan, part: str, answers: PartAnswers) -> Rows:
    """Return noisy answers as rows of a dataset, and facts about them."""
    if isinstance(answers, ConditionedTable):
        return table_rows(answers)
    if isinstance(answers, tuple):
        privacy, names = plan.config.privacy, plan.mean(part).strata.names
        return sum_rows(answers, names, privacy.definition, privacy.neighbors)
    return answer_rows(answers)
