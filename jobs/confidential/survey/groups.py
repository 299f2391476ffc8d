"""For whom the microdata of a survey are worse: tables and shares of groups. Confidential."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from das.arrays import IntArray
from das.metrics.microdata import disparities
from das.synthesis.records import Records
from jobs.documents.survey import Disparity, GroupError, GroupErrors
from jobs.survey.plan import SurveyPlan
from jobs.survey.weights import stratum_name


def parity_error(relative: Sequence[float], everybody: float | None) -> float | None:
    """Definition 11: relative errors of k groups, and that of everybody with weight 1/k."""
    if not relative:
        return None
    return math.fsum(relative) + (everybody or 0.0) / len(relative)


def group_errors(
    plan: SurveyPlan, attributes: Sequence[str], true: Records, released: Records
) -> GroupErrors:
    """Parity of the one-way tables of groups, by sums of absolute errors; and the worst share."""
    inside = true.domain.positions(attributes)
    tables = [[other] for other in range(len(true.domain.sizes)) if other not in inside] or [[]]
    absolute, persons = np.zeros((2, len(counts_by_group(true, inside, []))), np.int64)
    for table in tables:
        own = counts_by_group(true, inside, table)
        absolute += np.abs(counts_by_group(released, inside, table) - own).sum(1)
        persons += own.sum(1)
    relative = [
        int(error) / int(size) if size else None
        for error, size in zip(absolute, persons, strict=True)
    ]
    compared = [one for one in relative if one is not None]
    parity = parity_error(compared, int(absolute.sum()) / max(1, int(persons.sum())))
    counts = [counts_by_group(records, inside, []).sum(1) for records in (true, released)]
    names = group_names(plan, attributes)
    n_shares, worst = _worst_share(plan, attributes, true, released)
    return GroupErrors(
        attributes=tuple(attributes),
        groups=tuple(
            GroupError(
                group=name,
                records=int(counts[0][i]),
                released=int(counts[1][i]),
                relative=relative[i],
            )
            for i, name in enumerate(names)
        ),
        compared=len(compared),
        parity_error=parity,
        parity_mean=None if parity is None else parity / len(compared),
        shares=n_shares,
        max_disparity=worst,
    )


def _worst_share(
    plan: SurveyPlan, attributes: Sequence[str], true: Records, released: Records
) -> tuple[int, Disparity | None]:
    """How many shares of levels in groups are compared, and the one that errs most."""
    inside, names = true.domain.positions(attributes), group_names(plan, attributes)
    sizes = [np.maximum(1, counts_by_group(records, inside, [])) for records in (true, released)]
    n_shares, worst = 0, None
    for i, attribute in enumerate(true.domain.names):
        if i in inside:
            continue
        counts = counts_by_group(true, inside, [i])
        truth, found = counts / sizes[0], counts_by_group(released, inside, [i]) / sizes[1]
        truth[counts < plan.config.evaluate.floor] = np.nan
        relative = disparities(truth, found)
        n_own = int(np.isfinite(relative).sum())
        if not n_own:
            continue
        n_shares += n_own
        spot = np.unravel_index(np.nanargmax(relative), relative.shape)
        if worst is None or relative[spot] > worst.relative:
            worst = Disparity(
                group=names[spot[0]],
                attribute=attribute,
                level=plan.levels(attribute)[spot[1]],
                truth=float(truth[spot]),
                released=float(found[spot]),
                relative=float(relative[spot]),
            )
    return n_shares, worst


def group_names(plan: SurveyPlan, attributes: Sequence[str]) -> list[str]:
    """Names of the combinations of levels of some attributes, the last running fastest."""
    return [
        stratum_name(labels)
        for labels in itertools.product(*(plan.levels(name) for name in attributes))
    ]


def counts_by_group(records: Records, inside: Sequence[int], table: Sequence[int]) -> IntArray:
    """int64[m, t]: a table in every group."""
    groups = math.prod(records.domain.sizes[i] for i in inside)
    return records.marginal([*inside, *table]).reshape(groups, -1)
