"""Errors by population group, added up over batches, as rows of the evaluation."""

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
class Comparisons:
    """The comparisons by group at a geolevel.

    Attributes:
      restrictions: Tables of the whole population, then tables of each population group.
      tables: Tables compared by type of geounit.
      areas: Geolevel with types -> types of the geounits, inherited from that geolevel.
    """

    restrictions: tuple[Restriction, ...] = ()
    tables: tuple[Query, ...] = ()
    areas: Mapping[str, Areas] = field(default_factory=dict)

    def slice(self, start: int, stop: int) -> Comparisons:
        """Return the comparisons for geounits start..stop-1."""
        areas = {name: types.slice(start, stop) for name, types in self.areas.items()}
        return Comparisons(self.restrictions, self.tables, areas)

    def compare(self, truth: Histograms, released: Histograms) -> list[GroupErrors]:
        """Compute errors of every restriction, then of every table by type of geounit."""
        if not self.restrictions:
            return []
        differences = Differences.between(truth, released)
        errors = [differences.by_group(restriction) for restriction in self.restrictions]
        for types in self.areas.values():
            errors += [differences.by_area(table, types) for table in self.tables]
        return errors


def merged(parts: Iterable[Sequence[GroupErrors]]) -> list[GroupErrors]:
    """Add up the errors of batches with equal comparisons; empty without batches."""
    return [reduce(merge_groups, column) for column in zip(*parts, strict=True)]


def comparisons_at(grouping: Grouping | None, areas: Mapping[str, Areas]) -> Comparisons:
    """Return the comparisons at a geolevel; none if `grouping` is None.

    Args:
      grouping: Population groups and tables; None without groups.
      areas: Geolevel with types -> types of the geounits of this geolevel.
    """
    if grouping is None:
        return Comparisons()
    restrictions = (*grouping.everybody, *grouping.restrictions)
    return Comparisons(restrictions, grouping.tables, areas)


@dataclass(frozen=True, eq=False)
class Known:
    """The queries that are published at a geolevel.

    Attributes:
      noisy: Measured partition queries, each with the expected RMSE of a noisy answer.
      exact: Queries whose answers are exact.
    """

    noisy: Sequence[tuple[Query, float]]
    exact: Sequence[Query]

    def noise(self, joint: Query) -> float | None:
        """Return the expected RMSE of an answer of an equivalent measured query, if any."""
        same = (n for q, n in self.noisy if is_refinement(q, joint) and is_refinement(joint, q))
        return next(same, None)

    def is_exact(self, joint: Query) -> bool:
        """Return whether some exact query determines the answers of a query."""
        return any(is_refinement(query, joint) for query in self.exact)


def parity_results(
    grouping: Grouping,
    geolevel: str,
    compared: Comparisons,
    errors: Sequence[GroupErrors],
    known: Known,
) -> list[ParityResult]:
    """Compute the rows of the evaluation for one geolevel.

    Args:
      grouping: Population groups and types of geounits.
      geolevel: The geolevel.
      compared: Comparisons at the geolevel.
      errors: Result of `Comparisons.compare`, summed over all geounits.
      known: Queries published at the geolevel.
    """
    n_tables, results = len(grouping.tables), []
    whole = dict(zip(grouping.tables, errors, strict=False))
    tables: list[tuple[Literal["query", "areas"], str, Query, Sequence[str], Query]] = [
        ("query", pair.groups.name, pair.table, pair.groups.labels(), pair.joint)
        for pair in compared.restrictions[n_tables:]
    ]
    tables += [
        ("areas", f"types of {name}", table, types.labels, table)
        for name, types in compared.areas.items()
        for table in compared.tables
    ]
    for (kind, groups, table, labels, joint), of_groups in zip(
        tables, errors[n_tables:], strict=True
    ):
        of_all = int(whole[table].absolute[0])
        parity = parity_of(of_groups.absolute, of_groups.truth, of_all, floor=grouping.floor)
        population = number(parity.population)
        result = ParityResult(
            geolevel=geolevel,
            kind=kind,
            groups=groups,
            table=table.name,
            expected_rmse=known.noise(joint),
            floor=grouping.floor,
            population_weight=1.0 / parity.n_groups if parity.n_groups else None,
            everybody=population,
            k=parity.n_groups,
            parity=number(parity.error),
            parity_mean=number(parity.mean),
            worst=None if parity.worst is None else labels[parity.worst],
            by_group=tuple(
                _row(label, of_groups, index, number(float(parity.relative[index])), population)
                for index, label in enumerate(labels)
            ),
            exact=known.is_exact(joint),
        )
        results.append(result)
    return results


def _row(
    label: str, errors: GroupErrors, index: int, relative: float | None, of_all: float | None
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
        to_everybody=relative / of_all if relative is not None and of_all else None,
    )


def number(value: float) -> float | None:
    """Return a number for documents, with None for NaN."""
    return None if math.isnan(value) else value
