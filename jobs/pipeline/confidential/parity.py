"""Errors by group of records, added up over batches and geolevels, as rows of the evaluation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from typing import Literal

from das.histograms import Histograms
from das.metrics.parity import (
    Areas,
    Differences,
    GroupErrors,
    Restriction,
    merge_groups,
    parity_of,
)
from das.queries.query import Query, is_refinement
from jobs.pipeline.config.product import Grouping
from jobs.pipeline.documents.evaluation import GroupError, ParityResult


@dataclass(frozen=True, eq=False)
class Asked:
    """What is compared by group at a geolevel.

    Attributes:
      restrictions: Tables of everybody, then tables in groups of records.
      tables: Tables in the geounits of each type.
      areas: Geolevel that has types to the types of the geounits, which are those of what they
        lie in.
    """

    restrictions: tuple[Restriction, ...] = ()
    tables: tuple[Query, ...] = ()
    areas: Mapping[str, Areas] = field(default_factory=dict)

    def slice(self, start: int, stop: int) -> Asked:
        """The same of some geounits."""
        areas = {name: types.slice(start, stop) for name, types in self.areas.items()}
        return Asked(self.restrictions, self.tables, areas)

    def compare(self, truth: Histograms, released: Histograms) -> list[GroupErrors]:
        """Errors of every restriction, then of every table by type."""
        if not self.restrictions:
            return []
        found = Differences.between(truth, released)
        errors = [found.by_group(asked) for asked in self.restrictions]
        for types in self.areas.values():
            errors += [found.by_area(table, types) for table in self.tables]
        return errors


def merged(parts: Iterable[Sequence[GroupErrors]]) -> list[GroupErrors]:
    """The sums of batches that were asked the same; empty without batches."""
    return [reduce(merge_groups, column) for column in zip(*parts, strict=True)]


def asked_at(grouping: Grouping | None, areas: Mapping[str, Areas]) -> Asked:
    """What is compared at a geolevel."""
    if grouping is None:
        return Asked()
    restrictions = (*grouping.everybody, *grouping.restrictions)
    return Asked(restrictions, grouping.tables, areas)


@dataclass(frozen=True, eq=False)
class Known:
    """What is published of the answers at a geolevel.

    Attributes:
      noisy: Measured partition queries, each with the expected error of a raw noisy answer.
      exact: Queries whose answers are exact.
    """

    noisy: Sequence[tuple[Query, float]]
    exact: Sequence[Query]

    def noise(self, joint: Query) -> float | None:
        """Expected error of a raw noisy answer of a query that is the same; None without one."""
        same = (n for q, n in self.noisy if is_refinement(q, joint) and is_refinement(joint, q))
        return next(same, None)

    def is_exact(self, joint: Query) -> bool:
        """Whether exact answers of one query give those of another."""
        return any(is_refinement(query, joint) for query in self.exact)


def parity_results(
    grouping: Grouping, geolevel: str, asked: Asked, errors: Sequence[GroupErrors], known: Known
) -> list[ParityResult]:
    """Rows of the evaluation for one geolevel.

    Args:
      grouping: Who is compared.
      geolevel: The geolevel.
      asked: What was compared there.
      errors: What `Asked.compare` found, of all geounits.
      known: What is published there.
    """
    n_tables, n_restrictions = len(grouping.tables), len(asked.restrictions)
    everybody = dict(zip(grouping.tables, errors[:n_tables], strict=True))
    found = [
        _Found("query", r.groups.name, r.table, r.groups.labels(), own, r.joint)
        for r, own in zip(
            asked.restrictions[n_tables:], errors[n_tables:n_restrictions], strict=True
        )
    ]
    by_type = [(name, a.labels, table) for name, a in asked.areas.items() for table in asked.tables]
    found += [
        _Found("areas", f"types of {name}", table, labels, own, table)
        for (name, labels, table), own in zip(by_type, errors[n_restrictions:], strict=True)
    ]
    return [_result(grouping, geolevel, one, everybody[one.table], known) for one in found]


@dataclass(frozen=True, eq=False)
class _Found:
    """Errors of a table in groups, which are answers of a query or types of areas."""

    kind: Literal["query", "areas"]
    groups: str
    table: Query
    labels: Sequence[str]
    errors: GroupErrors
    joint: Query


def _result(
    grouping: Grouping,
    geolevel: str,
    found: _Found,
    everybody: GroupErrors,
    known: Known,
) -> ParityResult:
    errors, labels = found.errors, found.labels
    parity = parity_of(
        errors.absolute,
        errors.truth,
        int(everybody.absolute[0]),
        floor=grouping.floor,
    )
    of_all = number(parity.population)
    return ParityResult(
        geolevel=geolevel,
        kind=found.kind,
        groups=found.groups,
        table=found.table.name,
        expected_rmse=known.noise(found.joint),
        floor=grouping.floor,
        population_weight=1.0 / parity.n_groups if parity.n_groups else None,
        everybody=of_all,
        k=parity.n_groups,
        parity=number(parity.error),
        parity_mean=number(parity.mean),
        worst=None if parity.worst is None else labels[parity.worst],
        by_group=tuple(
            _row(label, errors, index, number(float(parity.relative[index])), of_all)
            for index, label in enumerate(labels)
        ),
        exact=known.is_exact(found.joint),
    )


def _row(
    label: str, errors: GroupErrors, index: int, relative: float | None, everybody: float | None
) -> GroupError:
    answers, truth, released, absolute, squared, largest = (
        int(getattr(errors, name)[index]) for name in errors.__slots__
    )
    return GroupError(
        group=label,
        persons=truth,
        released=released,
        answers=answers,
        l1=absolute,
        mae=absolute / answers if answers else None,
        rmse=math.sqrt(Fraction(squared, answers)) if answers else None,
        bias=(released - truth) / answers if answers else None,
        max=largest if answers else None,
        relative=relative,
        to_everybody=relative / everybody if relative is not None and everybody else None,
    )


def number(value: float) -> float | None:
    """A number as documents have it: None where it is not defined."""
    return None if math.isnan(value) else value
