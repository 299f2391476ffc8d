"""Means of a survey from its noisy sums: tables, intervals, warnings; no data."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from statistics import NormalDist

import numpy as np

from das.arrays import FloatArray
from das.definition import Definition
from das.means.estimates import Interval, MeanEstimates, estimates_of, exact_weights, shrink
from das.means.sums import NoisySum
from jobs.documents.document import json_of, write_document
from jobs.documents.survey import MeansTable, ReleasedMean, StratumMean
from jobs.storage.csv import without_formula
from jobs.storage.files import replace_file
from jobs.storage.layout import ReleaseLayout
from jobs.storage.place import Place
from jobs.survey.plan import EVERYBODY, MeanPlan, SurveyPlan


def means_json(release: ReleaseLayout) -> Place:
    """The released means, as a document."""
    return release.root / "means.json"


def means_csv(release: ReleaseLayout) -> Place:
    """The released means, as a table."""
    return release.root / "means.csv"


def write_means(plan: SurveyPlan, statistics: Sequence[ReleasedMean]) -> None:
    """Write the means as JSON and CSV; files that are there are replaced.

    Raises:
      OutputError: They cannot be written.
    """
    table = MeansTable(format=1, name=plan.config.name, statistics=tuple(statistics))
    replace_file(means_csv(plan.made), csv_text(table))
    write_document(means_json(plan.made), table)


def csv_text(table: MeansTable) -> str:
    """The means as CSV, one row per statistic and stratum; everybody comes first.

    The only stratum of a statistic without strata is everybody.
    """
    names = [field.name for field in fields(StratumMean)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["statistic", *names])
    for one in table.statistics:
        by_stratum = one.means if one.strata else ()
        for mean in (one.everybody, *by_stratum):
            row = json_of(mean)
            writer.writerow([_cell(one.name), *(_cell(row[name]) for name in names)])
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return without_formula(value) if isinstance(value, str) else value


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
    if config.method == "clipped":
        found = _clipped(mean, history)
    else:
        found = estimates_of(history, mean.column, mean.steps, mean.strata)
    variances = found.noise_sd**2 + found.size_sd**2 + config.spread**2 / sizes
    interval = _interval(found, variances, mean, definition)
    means = found.means
    if config.shrink:
        means = np.clip(shrink(means, variances), interval.low, interval.high)
    names = mean.strata.names
    weights = exact_weights(names, mean.weights)
    rows = tuple(
        StratumMean(
            stratum=name,
            weight=str(weights[i]),
            size=int(sizes[i]),
            mean=float(means[i]),
            standard_error=math.sqrt(float(variances[i])),
            noise_sd=float(found.noise_sd[i]),
            low=float(interval.low[i]),
            high=float(interval.high[i]),
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


def _clipped(mean: MeanPlan, history: Sequence[tuple[NoisySum, ...]]) -> MeanEstimates:
    """Estimates of one step that clips wide."""
    config, [sums] = mean.config, history
    sizes = [*mean.strata.sizes.values()]
    noise_sd: FloatArray = np.array([s.noise_sd(n) for s, n in zip(sums, sizes, strict=True)])
    means: FloatArray = np.array([s.mean(n) for s, n in zip(sums, sizes, strict=True)])
    size_sd = mean.strata.shifts(sums)
    deviation = np.sqrt(noise_sd**2 + size_sd**2 + config.spread**2 / np.array(sizes))
    outside = (means < config.low - 3 * deviation) | (means > config.high + 3 * deviation)
    low, high = np.full(len(means), -np.inf), np.full(len(means), np.inf)
    if config.intersect:
        means = np.clip(means, config.low, config.high)
        low, high = np.full(len(means), config.low), np.full(len(means), config.high)
    interval = Interval(low, high)
    return MeanEstimates(means, noise_sd, size_sd, interval, tuple(history), outside)


def _interval(
    found: MeanEstimates, variances: FloatArray, mean: MeanPlan, definition: Definition
) -> Interval:
    """Intervals about the last noisy means, within what was known before.

    What was known before steps of Coinpress took a quarter of `failure` for all of them, so the
    last interval takes three. The bounds of the steps, by an inequality for sub-Gaussian variables,
    are half as wide again as the quantiles that are taken here.
    """
    sizes = [*mean.strata.sizes.values()]
    noisy = np.array([s.mean(n) for s, n in zip(found.sums[-1], sizes, strict=True)])
    failure = float(mean.config.failure) * (0.75 if len(found.sums) > 1 else 1.0)
    half = np.sqrt(variances) * _deviations(failure, definition)
    before = found.interval
    return Interval(
        np.clip(noisy - half, before.low, before.high),
        np.clip(noisy + half, before.low, before.high),
    )


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
