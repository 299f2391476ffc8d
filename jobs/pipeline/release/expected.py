"""For whom a release is expected to be worse, from what is public: standard errors and counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from das.arrays import IntArray
from das.metrics.parity import expected_absolute, parity_of
from das.queries.query import Query, parse_query
from jobs.pipeline.config.product import Grouping
from jobs.pipeline.documents.manifest import ExpectedAtLevel, ExpectedGroups
from jobs.pipeline.plan import Plan
from jobs.pipeline.storage.dataset import Dataset, is_published
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.histograms import read_histograms
from jobs.pipeline.storage.layout import EstimateLayout, ReleaseLayout

Sums = Mapping[str, Sequence[float]]  # table to the sum over geounits of each standard error


def expected_groups(
    plan: Plan, release: ReleaseLayout, grouping: Grouping
) -> tuple[ExpectedGroups, ...]:
    """Expected errors of the groups whose numbers are estimated with standard errors.

    An unbiased estimate with standard error s errs by s sqrt(2 / pi) on average, as normal errors
    do. Sizes of groups are the released ones. Neither true nor released counts are negative, so
    errors add up to no more than true and released records together; expected ones are cut off at
    twice the released records.

    Args:
      plan: The plan.
      release: The release; its counts must be published.
      grouping: The groups; those that are no table of the estimates are left out.

    Returns:
      One value for each query of groups; none of what has no estimates.

    Raises:
      OutputError: A dataset cannot be read.
    """
    sums = {level: _sums(release, level) for level in plan.spine.levels}
    listed = [q for q in grouping.groups if all(q.name in of_level for of_level in sums.values())]
    if not listed:
        return ()
    root = plan.spine.levels[0]
    codes = read_public_geocodes(release, root)
    counts = read_histograms(Dataset.open(release.counts(root)), codes, plan.schema.size)
    total = parse_query(plan.schema, "total").name
    out = []
    for query in listed:
        released = query.answer(counts).sum(0)
        levels = tuple(
            _at(name, query, released, of_level, of_level.get(total), grouping)
            for name, of_level in sums.items()
        )
        out.append(
            ExpectedGroups(
                groups=query.name,
                labels=tuple(query.labels()),
                released=tuple(released.tolist()),
                floor=grouping.floor,
                levels=levels,
            )
        )
    return tuple(out)


def _sums(release: ReleaseLayout, geolevel: str) -> Sums:
    """Sums of standard errors by table; none if there are no estimates."""
    path = EstimateLayout.of(release).tables(geolevel)
    if not is_published(path):
        return {}
    sums: Sums = Dataset.open(path).facts.get("standard_error_sums", {})
    return sums


def _at(
    geolevel: str,
    query: Query,
    released: IntArray,
    sums: Sums,
    of_total: Sequence[float] | None,
    grouping: Grouping,
) -> ExpectedAtLevel:
    absolute = np.minimum(expected_absolute(sums[query.name]), 2.0 * released)
    everybody = math.nan
    if of_total is not None:
        everybody = min(float(expected_absolute(of_total)[0]), 2.0 * float(released.sum()))
    parity = parity_of(absolute, released, everybody, floor=grouping.floor)
    return ExpectedAtLevel(
        geolevel=geolevel,
        l1=tuple(float(f"{value:.6g}") for value in absolute.tolist()),
        everybody=_number(parity.everybody),
        k=parity.n_groups,
        parity=_number(parity.error),
        parity_mean=_number(parity.mean),
        worst=None if parity.worst is None else query.labels()[parity.worst],
    )


def _number(value: float) -> float | None:
    """Six digits; None of NaN."""
    return None if np.isnan(value) else float(f"{value:.6g}")
