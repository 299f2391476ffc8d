"""Measurements of a survey as datasets: noisy sums of strata, tables, and noisy marginals."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from das.arrays import IntArray
from das.definition import Definition
from das.errors import OutputError
from das.means.estimates import Clipping, NoisySum
from das.mechanisms.exponential import Selection
from das.mechanisms.mechanism import Mechanism
from das.mechanisms.registry import read_mechanism
from das.queries.factor import Factor
from das.queries.joint_sensitivity import joint_sensitivity
from das.queries.query import Query
from das.queries.sensitivity import Neighbors, sensitivity
from das.rational import stated_fraction
from das.synthesis.records import (
    ChosenMarginals,
    Domain,
    Measured,
    Merging,
    NoisyAnswer,
    Selected,
    sum_rho,
)
from das.synthesis.strata import MeasuredStrata, Strata
from jobs.pipeline.storage.dataset import Dataset, PartFile, PartWriter
from jobs.pipeline.storage.files import understanding
from jobs.pipeline.storage.place import Place
from jobs.survey.plan import Conditioning, SurveyPlan, TablePlan

_TEXT, _WHOLE, _NUMBER = pa.string(), pa.int64(), pa.int32()
_NOISE = {"mechanism": _TEXT, "parameter": _TEXT, "cost": _TEXT}
SUMS = pa.schema(
    {"stratum": _TEXT, "step": _NUMBER, "lower": _WHOLE, "upper": _WHOLE}
    | _NOISE
    | {"answer": _WHOLE}
)
MARGINALS = pa.schema(
    {"query": _TEXT, "phase": _NUMBER, "factors": pa.list_(_NUMBER)}
    | _NOISE
    | {"answers": pa.list_(_WHOLE)}
)
COUNTS = pa.schema({"cell": _WHOLE, "count": _WHOLE})
_AGAIN = "restore it from a backup"
# For many attributes the joint cost is bounded from above, to within a part of 1e-6.
_CLOSE = Fraction(1, 1 << 19)

Answers = Measured | ChosenMarginals | MeasuredStrata
_KINDS = {
    Measured: "marginals",
    ChosenMarginals: "selected marginals",
    MeasuredStrata: "marginals of everybody and of strata",
}
Rows = tuple[pa.Table, dict[str, Any]]  # rows, and facts about them
NoisySums = tuple[tuple[NoisySum, ...], ...]


def write_part(dataset: Place, table: pa.Table) -> PartFile:
    """Write the rows of a dataset as one file."""
    writer = PartWriter(dataset, table.schema, key=None)
    writer.write_apart([table])
    return writer.close()


def _stated(mechanism: Mechanism, cost: Fraction) -> dict[str, str]:
    """Noise as a row has it."""
    values = (mechanism.kind, str(mechanism.parameter), str(cost))
    return dict(zip(_NOISE, values, strict=True))


def _mechanism(row: Mapping[str, Any]) -> Mechanism:
    return read_mechanism(row["mechanism"], stated_fraction(row["parameter"]))


def sum_rows(
    history: Sequence[Sequence[NoisySum]],
    names: Sequence[str],
    definition: Definition,
    neighbors: Neighbors,
) -> Rows:
    """The noisy sums of a statistic as rows: step by step, strata in their order."""
    rows = [
        {
            "stratum": name,
            "step": step,
            "lower": one.clipping.lower,
            "upper": one.clipping.upper,
            **_stated(one.mechanism, one.cost(definition, neighbors)),
            "answer": one.answer,
        }
        for step, sums in enumerate(history, 1)
        for name, one in zip(names, sums, strict=True)
    ]
    return pa.Table.from_pylist(rows, SUMS), {"holds": "sums", "strata": list(names)}


def read_sums(dataset: Place) -> NoisySums:
    """The noisy sums of a statistic by step.

    Raises:
      OutputError: They are not published, or damaged.
    """
    opened = Dataset.open(dataset)
    with understanding(dataset, _AGAIN):
        n_strata = len(opened.facts["strata"])
        rows = opened.read().to_pylist()
        sums = [
            NoisySum(Clipping(row["lower"], row["upper"]), _mechanism(row), row["answer"])
            for row in rows
        ]
        steps = [tuple(sums[start : start + n_strata]) for start in range(0, len(sums), n_strata)]
    return tuple(steps)


def cost_of_sums(
    history: Sequence[Sequence[NoisySum]], definition: Definition, neighbors: Neighbors
) -> Fraction:
    """What noisy sums cost: strata are disjoint, so of each step the largest."""
    largest = [max(one.cost(definition, neighbors) for one in sums) for sums in history]
    return sum(largest, Fraction(0))


@dataclass(frozen=True, eq=False)
class ConditionedTable:
    """A table that was drawn, given its exact marginals.

    Attributes:
      counts: int64[n], the last attribute running fastest.
      exact: Its exact marginals, as counted in the data.
      conditioning: The noise.
    """

    counts: IntArray
    exact: tuple[IntArray, ...]
    conditioning: Conditioning


PartAnswers = NoisySums | ConditionedTable | Answers


def table_rows(found: ConditionedTable) -> Rows:
    """A table as rows, and the noise that was conditioned."""
    columns = {"cell": np.arange(len(found.counts)), "count": found.counts}
    facts = {
        "holds": "conditioned table",
        "mechanism": "two-sided geometric, given the exact marginals and no negative count",
        "scale": str(found.conditioning.scale),
        "records": found.conditioning.records,
        "exact": [margin.tolist() for margin in found.exact],
    }
    return pa.Table.from_pydict(columns, COUNTS), facts


def read_table(dataset: Place) -> ConditionedTable:
    """A table that was drawn.

    Raises:
      OutputError: It is not published, or damaged.
    """
    opened = Dataset.open(dataset)
    with understanding(dataset, _AGAIN):
        facts = opened.facts
        return ConditionedTable(
            opened.read().column("count").to_numpy(),
            tuple(np.array(margin, np.int64) for margin in facts["exact"]),
            Conditioning(stated_fraction(facts["scale"]), int(facts["records"])),
        )


def answer_rows(found: Answers) -> Rows:
    """What microdata are made of as rows, and the matrices, levels and selections behind them."""
    factors: dict[str, int] = {}
    rows = []
    for phase, answers in _phases(found):
        for answer in answers:
            numbers = []
            for factor in answer.query.factors:
                text = json.dumps({"labels": factor.labels, "matrix": factor.matrix.tolist()})
                numbers.append(factors.setdefault(text, len(factors)))
            rows.append(
                {
                    "query": answer.query.name,
                    "phase": phase,
                    "factors": numbers,
                    **_stated(answer.mechanism, answer.rho),
                    "answers": answer.answers.tolist(),
                }
            )
    own = found.population if isinstance(found, MeasuredStrata) else found
    facts: dict[str, Any] = {
        "holds": _KINDS[type(found)],
        "attributes": dict(zip(own.domain.names, own.domain.sizes, strict=True)),
        "new_level": [levels.tolist() for levels in own.merging.new_level],
        "kept": list(own.merging.n_kept),
        "factors": [json.loads(text) for text in factors],
    }
    if isinstance(found, MeasuredStrata):
        facts["strata"] = {
            "attributes": [own.domain.names[i] for i in found.strata.attributes],
            "groups": found.strata.groups.tolist(),
        }
    if isinstance(found, ChosenMarginals):
        facts["selections"] = [
            {
                "attributes": list(one.attributes),
                "epsilon": str(one.mechanism.epsilon),
                "sensitivity": one.mechanism.sensitivity,
                "candidates": one.n_candidates,
            }
            for one in found.selections
        ]
    return pa.Table.from_pylist(rows, MARGINALS), facts


def _phases(found: Answers) -> Iterator[tuple[int, Sequence[NoisyAnswer]]]:
    """Answers by the number under which they are written: 1 to 3, and strata from 4 on."""
    if isinstance(found, MeasuredStrata):
        yield from _phases(found.population)
        yield from enumerate(found.inside, 4)
    elif isinstance(found, ChosenMarginals):
        yield from ((1, found.one_way), (2, found.marginals))
    else:
        yield from ((1, found.one_way), (2, found.residuals), (3, found.again))


def read_answers(dataset: Place, strata: Strata | None) -> Answers:
    """What microdata are made of.

    Args:
      dataset: Where it lies.
      strata: Of the run, if its microdata have strata.

    Raises:
      OutputError: It is not published, or damaged.
    """
    opened = Dataset.open(dataset)
    with understanding(dataset, _AGAIN):
        facts = opened.facts
        factors = [
            Factor(np.array(one["matrix"], np.int64), tuple(one["labels"]))
            for one in facts["factors"]
        ]
        n_strata = 0 if strata is None else strata.n_strata
        phases: list[list[NoisyAnswer]] = [[] for _ in range(3 + n_strata)]
        for row in opened.read().to_pylist():
            answer = NoisyAnswer(
                Query(row["query"], tuple(factors[number] for number in row["factors"])),
                _mechanism(row),
                stated_fraction(row["cost"]),
                np.array(row["answers"], np.int64),
            )
            phases[row["phase"] - 1].append(answer)
        attributes: Mapping[str, int] = facts["attributes"]
        domain = Domain(tuple(attributes), tuple(attributes.values()))
        merging = Merging(
            tuple(np.array(levels, np.int64) for levels in facts["new_level"]),
            tuple(facts["kept"]),
        )
        first, second, third, *inside = map(tuple, phases)
        if facts["holds"] == _KINDS[ChosenMarginals]:
            selections = tuple(
                Selected(
                    tuple(one["attributes"]),
                    Selection(stated_fraction(one["epsilon"]), one["sensitivity"]),
                    one["candidates"],
                )
                for one in facts["selections"]
            )
            return ChosenMarginals(domain, merging, first, selections, second)
        measured = Measured(domain, merging, first, second, third)
        return measured if strata is None else MeasuredStrata(strata, measured, tuple(inside))


def cost_of_answers(found: Answers, neighbors: Neighbors) -> Fraction:
    """What noisy marginals and selections cost, exact: the sum of what they state.

    One-way counts, and marginals that were selected or measured again, are charged one by one.
    Residuals are charged together: no two neighbors are the worst for all of them. Strata are
    disjoint, so the dearest counts.

    Raises:
      OutputError: The noise costs more than is stated.
    """
    if isinstance(found, MeasuredStrata):
        whole = cost_of_answers(found.population, neighbors)
        return whole + max(_cost_together(answers, neighbors) for answers in found.inside)
    if isinstance(found, ChosenMarginals):
        _check_alone((*found.one_way, *found.marginals), neighbors)
        least = 2 if neighbors is Neighbors.BOUNDED else 1
        for one in found.selections:
            if one.mechanism.sensitivity < least:
                raise _other_cost(
                    f"selection of {one.attributes}", one.mechanism.sensitivity, least
                )
        return found.rho
    _check_alone((*found.one_way, *found.again), neighbors)
    _cost_together(found.residuals, neighbors)
    return found.rho


def _check_alone(answers: Sequence[NoisyAnswer], neighbors: Neighbors) -> None:
    for answer in answers:
        norm = type(answer.mechanism).norms[Definition.ZCDP]
        charged = sensitivity(answer.query, neighbors, norm)
        cost = answer.mechanism.cost(Definition.ZCDP, charged)
        if cost != answer.rho:
            raise _other_cost(answer.query.name, answer.rho, cost)


def _cost_together(residuals: Sequence[NoisyAnswer], neighbors: Neighbors) -> Fraction:
    stated = sum_rho(residuals)
    if not residuals:
        return stated
    weights = [answer.mechanism.unit_rho for answer in residuals]
    together = joint_sensitivity([answer.query for answer in residuals], weights).of(neighbors)
    if together * (1 - _CLOSE) > stated:
        raise _other_cost("all residuals", stated, together)
    return stated


def _other_cost(name: str, stated: Fraction | int, cost: Fraction | int) -> OutputError:
    return OutputError(
        f"measurements of {name}", "cost something else than is stated", got=stated, want=cost
    )


# --- by kind of part ------------------------------------------------------------------------------


def read_part(plan: SurveyPlan, part: str) -> PartAnswers:
    """Read the published noisy answers of a part.

    Raises:
      OutputError: They are not published, or damaged.
    """
    dataset, one = plan.release.measured_part(part), plan.part(part)
    if one is None:
        return read_answers(dataset, plan.strata)
    return read_table(dataset) if isinstance(one, TablePlan) else read_sums(dataset)


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
        privacy = plan.config.privacy
        [names] = [one.strata.names for one in plan.means if one.name == part]
        return sum_rows(answers, names, privacy.definition, privacy.neighbors)
    return answer_rows(answers)
