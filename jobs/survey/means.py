"""Means of a survey from its noisy sums: tables, intervals, warnings; no data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from statistics import NormalDist

import numpy as np

from das.arrays import FloatArray
from das.definition import Definition
from das.means.estimates import MeanEstimates, NoisySum, estimates_of, shrink
from jobs.pipeline.documents.document import json_of
from jobs.pipeline.storage.csv import cell, csv_text
from jobs.pipeline.storage.files import understanding
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import Place
from jobs.survey.checks import EVERYBODY
from jobs.survey.documents import MeansTable, ReleasedMean, StratumMean
from jobs.survey.measurements import read_sums
from jobs.survey.plan import MeanPlan, SurveyPlan


def means_json(release: ReleaseLayout) -> Place:
    """The released means, as a document."""
    return release.root / "means.json"


def means_csv(release: ReleaseLayout) -> Place:
    """The released means, as a table."""
    return release.root / "means.csv"


def released_means(plan: SurveyPlan) -> MeansTable:
    """Compute what is released of all statistics; a function of noisy sums.

    Raises:
      OutputError: Noisy sums are missing, damaged or not those of the plan.
    """
    definition, statistics = plan.config.privacy.definition, []
    for mean in plan.means:
        dataset = plan.release.measured_part(mean.name)
        with understanding(dataset):  # a release of others may have sums of other strata
            statistics.append(released_mean(mean, read_sums(dataset), definition))
    return MeansTable(format=1, name=plan.config.name, statistics=tuple(statistics))


def means_text(table: MeansTable) -> str:
    """The means as CSV, one row per statistic and stratum; everybody comes first.

    The only stratum of a statistic without strata is everybody.
    """
    names = [field.name for field in fields(StratumMean)]
    rows = [
        (one.name, *json_of(mean).values())
        for one in table.statistics
        for mean in (one.everybody, *(one.means if one.strata else ()))
    ]
    return csv_text([["statistic", *names], *(map(cell, row) for row in rows)])


def released_mean(
    mean: MeanPlan, history: Sequence[tuple[NoisySum, ...]], definition: Definition
) -> ReleasedMean:
    """What is released of a statistic; a function of noisy sums and public numbers.

    Args:
      mean: The statistic.
      history: Its noisy sums by step.
      definition: What noise costs are counted in; under pure epsilon its tails are those of a
        Laplace distribution, and intervals are wider.
    """
    config, sizes = mean.config, np.array([*mean.strata.sizes.values()], np.float64)
    found = estimates_of(history, mean.column, mean.steps, mean.strata)
    if config.method == "clipped":  # its one step clips wide, and narrows nothing
        public = found.begin(mean.column, mean.strata)
        slack = 0.0 if config.intersect else math.inf
        found = replace(found, low=public.low - slack, high=public.high + slack)
    variances = found.noise_sd**2 + found.size_sd**2 + config.spread**2 / sizes
    lows, highs = _interval(found, variances, mean, definition)
    means = found.means
    if config.shrink:
        means = np.clip(shrink(means, variances), lows, highs)
    names, weights = mean.strata.names, [*mean.weights.values()]
    rows = tuple(
        StratumMean(
            stratum=name,
            weight=str(weights[i]),
            size=int(sizes[i]),
            mean=float(means[i]),
            standard_error=math.sqrt(float(variances[i])),
            noise_sd=float(found.noise_sd[i]),
            low=float(lows[i]),
            high=float(highs[i]),
            outside=bool(found.outside[i]),
        )
        for i, name in enumerate(names)
    )
    shares = np.array([float(weight) for weight in weights])
    deviation = math.sqrt(float(shares**2 @ variances))
    whole = float(shares @ found.means)
    half = deviation * _deviations(float(config.failure), definition)
    everybody = StratumMean(
        stratum=EVERYBODY,
        weight="1",
        size=int(sizes.sum()),
        mean=whole,
        standard_error=deviation,
        noise_sd=math.sqrt(float(shares**2 @ found.noise_sd**2)),
        low=whole - half,
        high=whole + half,
        outside=False,
    )
    if len(rows) == 1:
        everybody = replace(rows[0], stratum=EVERYBODY)
    return ReleasedMean(
        name=mean.name,
        attribute=config.mean,
        method=config.method,
        confidence=1.0 - float(config.failure),
        spread=config.spread,
        shrunk=config.shrink,
        strata=tuple(config.strata),
        pooled=mean.pooled,
        everybody=everybody,
        means=rows,
        warnings=_warnings(rows),
    )


def _interval(
    found: MeanEstimates, variances: FloatArray, mean: MeanPlan, definition: Definition
) -> tuple[FloatArray, FloatArray]:
    """Return both ends of intervals about the last noisy means, within what was known before.

    What was known before steps of Coinpress took a quarter of `failure` for all of them, so the
    last interval takes three. The bounds of the steps, by an inequality for sub-Gaussian variables,
    are half as wide again as the quantiles that are taken here.
    """
    sizes = [*mean.strata.sizes.values()]
    noisy = np.array([s.mean(n) for s, n in zip(found.sums[-1], sizes, strict=True)])
    failure = float(mean.config.failure) * (0.75 if len(found.sums) > 1 else 1.0)
    half = np.sqrt(variances) * _deviations(failure, definition)
    low, high = (np.clip(ends, found.low, found.high) for ends in (noisy - half, noisy + half))
    return low, high


def _deviations(failure: float, definition: Definition) -> float:
    """Standard deviations that a noisy mean leaves with at most this probability, about.

    Sampling and discrete Gaussian noise are near to normal. A sum of normal and Laplace variables
    lies between both: its quantile is near the larger of theirs.
    """
    normal = NormalDist().inv_cdf(1.0 - failure / 2.0)
    if definition is Definition.ZCDP:
        return normal
    return max(normal, math.log(1.0 / failure) / math.sqrt(2.0))


def _warnings(rows: Sequence[StratumMean]) -> tuple[str, ...]:
    outside = [row.stratum for row in rows if row.outside]
    if not outside:
        return ()
    return (
        f"noisy means of {len(outside)} of {len(rows)} strata ({', '.join(outside[:3])}) lie "
        "outside of what was possible before by more than three standard deviations: `low` and "
        "`high` do not hold them, or `spread` is too small and clipping biases the means",
    )
