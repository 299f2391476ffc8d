"""Measurements of a survey as datasets: noisy sums of strata, and noisy marginals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from das.definition import Definition
from das.errors import OutputError
from das.means.sums import Clipping, NoisySum
from das.mechanisms.registry import read_mechanism
from das.queries.factor import Factor
from das.queries.joint_sensitivity import joint_sensitivity
from das.queries.query import Query
from das.queries.sensitivity import Neighbors, sensitivity
from das.synthesis.answers import Measured, Merging, NoisyAnswer
from das.synthesis.records import Domain
from jobs.storage.dataset import Dataset, PartFile, PartWriter
from jobs.storage.files import understanding
from jobs.storage.layout import ReleaseLayout

SUMS = pa.schema(
    [
        ("stratum", pa.string()),
        ("step", pa.int32()),
        ("lower", pa.int64()),
        ("upper", pa.int64()),
        ("mechanism", pa.string()),
        ("parameter", pa.string()),
        ("cost", pa.string()),
        ("answer", pa.int64()),
    ]
)
MARGINALS = pa.schema(
    [
        ("query", pa.string()),
        ("phase", pa.int32()),
        ("factors", pa.list_(pa.int32())),
        ("mechanism", pa.string()),
        ("parameter", pa.string()),
        ("cost", pa.string()),
        ("answers", pa.list_(pa.int64())),
    ]
)
_PHASES = ("one_way", "residuals", "again")
_AGAIN = "restore it from a backup"
# For many attributes the joint cost is bounded from above, to within a part of 1e-6.
_CLOSE = Fraction(1, 1 << 19)

Drawn = tuple[pa.Table, dict[str, Any]]  # rows, and facts about them


def part_folder(release: ReleaseLayout, part: str) -> Path:
    """Dataset of the measurements of a part."""
    return release.root / "measurements" / f"part={part}"


def write_part(dataset: Path, table: pa.Table) -> PartFile:
    """Write the rows of a dataset as one file."""
    writer = PartWriter(dataset, table.schema, key=None)
    writer.write_apart([table])
    return writer.close()


def drawn_sums(
    history: Sequence[Sequence[NoisySum]],
    names: Sequence[str],
    definition: Definition,
    neighbors: Neighbors,
) -> Drawn:
    """The noisy sums of a statistic as rows: step by step, strata in their order."""
    rows = [
        {
            "stratum": name,
            "step": step,
            "lower": one.clipping.lower,
            "upper": one.clipping.upper,
            "mechanism": one.mechanism.kind,
            "parameter": str(one.mechanism.parameter),
            "cost": str(one.cost(definition, neighbors)),
            "answer": one.answer,
        }
        for step, sums in enumerate(history, 1)
        for name, one in zip(names, sums, strict=True)
    ]
    return pa.Table.from_pylist(rows, SUMS), {"holds": "sums", "strata": list(names)}


def read_sums(dataset: Path) -> tuple[tuple[NoisySum, ...], ...]:
    """The noisy sums of a statistic by step.

    Raises:
      OutputError: They are not published, or damaged.
    """
    opened = Dataset.open(dataset)
    with understanding(dataset, _AGAIN):
        n_strata = len(opened.facts["strata"])
        rows = opened.read().to_pylist()
        sums = [
            NoisySum(
                Clipping(row["lower"], row["upper"]),
                read_mechanism(row["mechanism"], Fraction(row["parameter"])),
                row["answer"],
            )
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


def drawn_marginals(measured: Measured) -> Drawn:
    """Noisy marginals as rows, and the matrices and merged levels they are about."""
    factors: dict[str, int] = {}
    rows = []
    for phase in _PHASES:
        for answer in getattr(measured, phase):
            numbers = []
            for factor in answer.query.factors:
                text = json.dumps({"labels": factor.labels, "matrix": factor.matrix.tolist()})
                numbers.append(factors.setdefault(text, len(factors)))
            rows.append(
                {
                    "query": answer.query.name,
                    "phase": _PHASES.index(phase) + 1,
                    "factors": numbers,
                    "mechanism": answer.mechanism.kind,
                    "parameter": str(answer.mechanism.parameter),
                    "cost": str(answer.rho),
                    "answers": answer.answers.tolist(),
                }
            )
    facts = {
        "holds": "marginals",
        "attributes": dict(zip(measured.domain.names, measured.domain.sizes, strict=True)),
        "new_level": [levels.tolist() for levels in measured.merging.new_level],
        "kept": list(measured.merging.n_kept),
        "factors": [json.loads(text) for text in factors],
    }
    return pa.Table.from_pylist(rows, MARGINALS), facts


def read_marginals(dataset: Path) -> Measured:
    """The noisy marginals of a survey.

    Raises:
      OutputError: They are not published, or damaged.
    """
    opened = Dataset.open(dataset)
    with understanding(dataset, _AGAIN):
        facts = opened.facts
        factors = [
            Factor(np.array(one["matrix"], np.int64), tuple(one["labels"]))
            for one in facts["factors"]
        ]
        phases: dict[str, list[NoisyAnswer]] = {phase: [] for phase in _PHASES}
        for row in opened.read().to_pylist():
            answer = NoisyAnswer(
                Query(row["query"], tuple(factors[number] for number in row["factors"])),
                read_mechanism(row["mechanism"], Fraction(row["parameter"])),
                Fraction(row["cost"]),
                np.array(row["answers"], np.int64),
            )
            phases[_PHASES[row["phase"] - 1]].append(answer)
        attributes: Mapping[str, int] = facts["attributes"]
        return Measured(
            domain=Domain(tuple(attributes), tuple(attributes.values())),
            merging=Merging(
                tuple(np.array(levels, np.int64) for levels in facts["new_level"]),
                tuple(facts["kept"]),
            ),
            **{phase: tuple(answers) for phase, answers in phases.items()},
        )


def cost_of_marginals(measured: Measured, neighbors: Neighbors) -> Fraction:
    """What noisy marginals cost, exact: the sum of what their answers state.

    One-way counts, and pairs that were measured again, are charged one by one. Residuals are
    charged together: no two neighbors are the worst for all of them.

    Raises:
      OutputError: The noise costs more than is stated.
    """
    for answer in (*measured.one_way, *measured.again):
        norm = type(answer.mechanism).norms[Definition.ZCDP]
        charged = sensitivity(answer.query, neighbors, norm)
        cost = answer.mechanism.cost(Definition.ZCDP, charged)
        if cost != answer.rho:
            raise _other_cost(answer.query.name, answer.rho, cost)
    residuals = measured.residuals
    stated = sum((answer.rho for answer in residuals), Fraction(0))
    weights = [answer.mechanism.unit_rho for answer in residuals]
    together = joint_sensitivity([answer.query for answer in residuals], weights).of(neighbors)
    if together * (1 - _CLOSE) > stated:
        raise _other_cost("all residuals", stated, together)
    return measured.rho


def _other_cost(name: str, stated: Fraction, cost: Fraction) -> OutputError:
    return OutputError(
        f"measurements of {name}", "cost something else than is stated", got=stated, want=cost
    )
