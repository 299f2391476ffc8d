"""Datasets of the measurements of a survey: noisy sums, drawn tables, and noisy marginals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
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
from das.workload.hdmm.marginals import pool_tables
from das.workload.residual.products import read_residuals
from das.workload.residual.reconstruction import ResidualAnswers
from das.workload.workload import AttributeWorkload
from jobs.pipeline.storage.dataset import Dataset, PartFile, PartWriter
from jobs.pipeline.storage.files import understanding
from jobs.pipeline.storage.place import Place
from jobs.survey.marginals import MarginalsPlan
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
# With many attributes `joint_sensitivity` is an upper bound, a relative 1e-6 above at most.
_CLOSE = Fraction(1, 1 << 19)


@dataclass(frozen=True, eq=False)
class PlannedAnswers:
    """Noisy answers to all queries of the planned marginals.

    Attributes:
      domain: Attributes of the queries.
      answers: One per residual set.
    """

    domain: Domain
    answers: tuple[NoisyAnswer, ...]

    @cached_property
    def residuals(self) -> ResidualAnswers:
        """Return the answers as a residual plan, which answers any planned marginal.

        Under pure epsilon plain tables are measured and pooled.

        Raises:
          SchemaError: They are no residual plan.
        """
        measured = [
            (one.query, float(one.mechanism.continuous_variance), one.answers)
            for one in self.answers
        ]
        if Definition.PURE not in type(self.answers[0].mechanism).norms:
            return read_residuals(self.domain.names, measured)
        attributes = map(AttributeWorkload.identity, self.domain.names, self.domain.sizes)
        return pool_tables(
            [*attributes], [(one.kept, noise, values) for one, noise, values in measured]
        )


Answers = Measured | ChosenMarginals | MeasuredStrata
_KINDS = {
    PlannedAnswers: "planned marginals",
    Measured: "marginals",
    ChosenMarginals: "selected marginals",
    MeasuredStrata: "marginals of everybody and of strata",
}
Rows = tuple[pa.Table, dict[str, Any]]  # rows, and facts about them
NoisySums = tuple[tuple[NoisySum, ...], ...]


def write_part(dataset: Place, table: pa.Table) -> PartFile:
    """Write the rows of a dataset as one part file."""
    writer = PartWriter(dataset, table.schema, key=None)
    writer.write_apart([table])
    return writer.close()


def _stated(mechanism: Mechanism, cost: Fraction) -> dict[str, str]:
    """Return the noise columns of a row."""
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
    """Return the noisy sums of a statistic as rows, ordered by step and stratum.

    Args:
      history: Noisy sums by step and stratum.
      names: Names of the strata.
      definition: Definition of privacy, which determines the unit of the cost.
      neighbors: Neighbors that the cost compares.
    """
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
    """Read the noisy sums of a statistic, by step.

    Raises:
      OutputError: The measurements are not published, or damaged.
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
    """Add up, over the steps, the largest privacy loss of a stratum in the step."""
    largest = [max(one.cost(definition, neighbors) for one in sums) for sums in history]
    return sum(largest, Fraction(0))


@dataclass(frozen=True, eq=False)
class ConditionedTable:
    """Table of counts drawn with noise, conditional on its exact marginals.

    Attributes:
      counts: int64[n], the drawn counts; the last attribute runs fastest.
      exact: Exact marginals, as counted in the data.
      conditioning: Noise distribution and its proved cost.
    """

    counts: IntArray
    exact: tuple[IntArray, ...]
    conditioning: Conditioning


PartAnswers = NoisySums | ConditionedTable | PlannedAnswers | Answers


def table_rows(table: ConditionedTable) -> Rows:
    """Return a drawn table as rows, and facts about its noise."""
    columns = {"cell": np.arange(len(table.counts)), "count": table.counts}
    facts = {
        "holds": "conditioned table",
        "mechanism": "two-sided geometric, given the exact marginals and no negative count",
        "scale": str(table.conditioning.scale),
        "records": table.conditioning.records,
        "exact": [margin.tolist() for margin in table.exact],
    }
    return pa.Table.from_pydict(columns, COUNTS), facts


def read_table(dataset: Place) -> ConditionedTable:
    """Read a drawn table.

    Raises:
      OutputError: The measurements are not published, or damaged.
    """
    opened = Dataset.open(dataset)
    with understanding(dataset, _AGAIN):
        facts = opened.facts
        return ConditionedTable(
            opened.read().column("count").to_numpy(),
            tuple(np.array(margin, np.int64) for margin in facts["exact"]),
            Conditioning(stated_fraction(facts["scale"]), int(facts["records"])),
        )


def answer_rows(answers: Answers | PlannedAnswers) -> Rows:
    """Return noisy marginals as rows, and facts: query matrices, merged levels and selections."""
    known: dict[tuple[object, ...], tuple[int, Factor]] = {}
    rows = [
        {
            "query": answer.query.name,
            "phase": phase,
            "factors": [
                known.setdefault((one.labels, one.key), (len(known), one))[0]
                for one in answer.query.factors
            ],
            **_stated(answer.mechanism, answer.rho),
            "answers": answer.answers,
        }
        for phase, of_phase in _phases(answers)
        for answer in of_phase
    ]
    whole = answers.population if isinstance(answers, MeasuredStrata) else answers
    strata = answers.strata if isinstance(answers, MeasuredStrata) else None
    facts: dict[str, Any] = {
        "holds": _KINDS[type(answers)],
        "attributes": dict(zip(whole.domain.names, whole.domain.sizes, strict=True)),
        "factors": [
            {"labels": list(one.labels), "matrix": one.matrix.tolist()} for _, one in known.values()
        ],
    }
    if not isinstance(whole, PlannedAnswers):
        facts["new_level"] = [levels.tolist() for levels in whole.merging.new_level]
        facts["kept"] = list(whole.merging.n_kept)
    if strata is not None:
        facts["strata"] = {
            "attributes": [whole.domain.names[i] for i in strata.attributes],
            "groups": strata.groups.tolist(),
        }
    if isinstance(whole, ChosenMarginals):
        facts["selections"] = [
            {
                "attributes": list(one.attributes),
                "epsilon": str(one.mechanism.epsilon),
                "sensitivity": one.mechanism.sensitivity,
                "candidates": one.n_candidates,
            }
            for one in whole.selections
        ]
    return pa.Table.from_pylist(rows, MARGINALS), facts


def _phases(answers: Answers | PlannedAnswers) -> Iterator[tuple[int, Sequence[NoisyAnswer]]]:
    """Yield (phase, answers): 0 for sizes of strata, 1 to 3 for all records, from 4 on strata."""
    if isinstance(answers, MeasuredStrata):
        if answers.sizes is not None:
            yield 0, (answers.sizes,)
        yield from _phases(answers.population)
        yield from enumerate(answers.inside, 4)
    elif isinstance(answers, PlannedAnswers):
        yield 1, answers.answers
    elif isinstance(answers, ChosenMarginals):
        yield from ((1, answers.one_way), (2, answers.marginals))
    else:
        yield from ((1, answers.one_way), (2, answers.residuals), (3, answers.again))


def read_planned(dataset: Place) -> PlannedAnswers:
    """Read the noisy answers of the planned marginals.

    Raises:
      OutputError: The measurements are not published, or damaged.
    """
    opened = Dataset.open(dataset)
    with understanding(dataset, _AGAIN):
        return PlannedAnswers(_domain(opened), tuple(answer for _, answer in _queries(opened)))


def _domain(opened: Dataset) -> Domain:
    attributes: Mapping[str, int] = opened.facts["attributes"]
    return Domain(tuple(attributes), tuple(attributes.values()))


def _queries(opened: Dataset) -> Iterator[tuple[int, NoisyAnswer]]:
    """Yield (phase, noisy answer) of every row."""
    factors = [
        Factor(np.array(one["matrix"], np.int64), tuple(one["labels"]))
        for one in opened.facts["factors"]
    ]
    table = opened.read().combine_chunks()
    answers = table.column("answers")  # lists of Python numbers would take four times the memory
    for index, row in enumerate(table.drop_columns(["answers"]).to_pylist()):
        query = Query(row["query"], tuple(factors[number] for number in row["factors"]))
        values = np.array(answers[index].values, np.int64)
        yield (
            row["phase"],
            NoisyAnswer(query, _mechanism(row), stated_fraction(row["cost"]), values),
        )


def read_answers(dataset: Place, strata: Strata | None) -> Answers:
    """Read the noisy marginals behind the microdata.

    Args:
      dataset: Folder of the dataset.
      strata: Strata of the microdata with public weights, if the run file names any.

    Raises:
      OutputError: The measurements are not published, or damaged.
    """
    opened = Dataset.open(dataset)
    with understanding(dataset, _AGAIN):
        facts = opened.facts
        phases: dict[int, list[NoisyAnswer]] = defaultdict(list)
        for phase, answer in _queries(opened):
            phases[phase].append(answer)
        domain = _domain(opened)
        merging = Merging(
            tuple(np.array(levels, np.int64) for levels in facts["new_level"]), tuple(facts["kept"])
        )
        first, second, third = (tuple(phases[phase]) for phase in (1, 2, 3))
        whole: Measured | ChosenMarginals = Measured(domain, merging, first, second, third)
        if "selections" in facts:
            selections = tuple(
                Selected(
                    tuple(one["attributes"]),
                    Selection(stated_fraction(one["epsilon"]), one["sensitivity"]),
                    one["candidates"],
                )
                for one in facts["selections"]
            )
            whole = ChosenMarginals(domain, merging, first, selections, second)
        sizes = phases[0][0] if phases[0] else None
        if sizes is not None:
            known = facts["strata"]
            strata = Strata.of_counts(domain, known["attributes"], sizes, least=0.0)
            strata = replace(strata, groups=np.array(known["groups"], np.int64))
        if strata is None:
            return whole
        inside = tuple(tuple(phases[4 + stratum]) for stratum in range(strata.n_strata))
        return MeasuredStrata(strata, whole, inside, sizes)


def cost_of_answers(answers: Answers | PlannedAnswers, neighbors: Neighbors) -> Fraction:
    """Compute the exact privacy loss of noisy marginals and selections, and check the stated costs.

    One-way counts, selected marginals and marginals measured a second time are charged one by one.
    Residuals and marginals planned together are charged jointly, since no pair of neighbors is the
    worst case of all. Strata are disjoint, so the most expensive stratum counts.

    Raises:
      OutputError: The noise costs more than the dataset states.
    """
    if isinstance(answers, MeasuredStrata):
        cost_of_answers(answers.population, neighbors)
        _check_alone(() if answers.sizes is None else (answers.sizes,), neighbors)
        is_selected = isinstance(answers.population, ChosenMarginals)
        for stratum in answers.inside:
            (_check_alone if is_selected else _cost_together)(stratum, neighbors)
        return answers.rho
    if isinstance(answers, PlannedAnswers):
        return _cost_together(answers.answers, neighbors)
    if isinstance(answers, ChosenMarginals):
        _check_alone((*answers.one_way, *answers.marginals), neighbors)
        least = 2 if neighbors is Neighbors.BOUNDED else 1
        for selection in answers.selections:
            if selection.mechanism.sensitivity < least:
                raise _other_cost(
                    f"selection of {selection.attributes}", selection.mechanism.sensitivity, least
                )
        return answers.rho
    _check_alone((*answers.one_way, *answers.again), neighbors)
    _cost_together(answers.residuals, neighbors)
    return answers.rho


def _check_alone(
    answers: Sequence[NoisyAnswer], neighbors: Neighbors, definition: Definition = Definition.ZCDP
) -> None:
    for answer in answers:
        norm = type(answer.mechanism).norms[definition]
        charged = sensitivity(answer.query, neighbors, norm)
        cost = answer.mechanism.cost(definition, charged)
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
        f"measurements of {name}",
        "cost another amount than the dataset states",
        got=stated,
        want=cost,
    )


# --- by kind of part ------------------------------------------------------------------------------


def read_part(plan: SurveyPlan, part: str) -> PartAnswers:
    """Read the published noisy answers of a part.

    Raises:
      OutputError: The measurements are not published, or damaged.
    """
    dataset, planned = plan.release.measured_part(part), plan.part(part)
    if planned is None:
        return read_answers(dataset, plan.strata)
    if isinstance(planned, MarginalsPlan):
        return read_planned(dataset)
    return read_table(dataset) if isinstance(planned, TablePlan) else read_sums(dataset)


def part_cost(plan: SurveyPlan, answers: PartAnswers) -> Fraction:
    """Compute the privacy loss of noisy answers from their noise alone.

    Raises:
      OutputError: The noise costs more than the dataset states.
    """
    privacy = plan.config.privacy
    if isinstance(answers, ConditionedTable):
        return answers.conditioning.cost.epsilon
    if isinstance(answers, tuple):
        return cost_of_sums(answers, privacy.definition, privacy.neighbors)
    if isinstance(answers, PlannedAnswers) and privacy.definition is Definition.PURE:
        # All plain tables have the same worst case, a record that changes in every attribute.
        _check_alone(answers.answers, privacy.neighbors, privacy.definition)
        return sum_rho(answers.answers)
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
