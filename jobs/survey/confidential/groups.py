"""For whom the microdata of a survey are worse: tables and shares of groups. Confidential."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from das.arrays import IntArray
from das.metrics.microdata import disparities
from das.metrics.parity import parity_of
from das.synthesis.records import Records
from jobs.pipeline.confidential.parity import number
from jobs.survey.documents import Disparity, GroupError, GroupErrors
from jobs.survey.plan import SurveyPlan
from jobs.survey.weights import stratum_name


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
    parity = parity_of(absolute, persons, int(absolute.sum()))
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
                relative=number(float(parity.relative[i])),
            )
            for i, name in enumerate(names)
        ),
        compared=parity.n_groups,
        parity_error=number(parity.error),
        parity_mean=number(parity.mean),
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
        n_shares += int(np.isfinite(relative).sum())
        spot = np.unravel_index(np.argmax(np.nan_to_num(relative, nan=-1.0)), relative.shape)
        if relative[spot] > (-1.0 if worst is None else worst.relative):
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
