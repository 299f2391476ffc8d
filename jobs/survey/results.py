"""What is made of measured means and tables: documents, and their rows as CSV files; no data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import FloatArray
from das.definition import Definition
from das.errors import OutputError, VerificationError
from das.means.estimates import MeanEstimates, NoisySum, estimates_of, shrink
from das.synthesis.graphical import synthesize_graphical
from das.synthesis.mixture import Fit, synthesize
from das.synthesis.records import ChosenMarginals, Records
from das.synthesis.strata import MeasuredStrata, synthesize_strata
from das.synthesis.targets import targets_of
from jobs.pipeline.documents.document import json_of, read_document, write_document
from jobs.pipeline.storage.csv import CsvPartWriter, cell, csv_text
from jobs.pipeline.storage.dataset import Dataset, PartWriter, publish
from jobs.pipeline.storage.files import replace_file, understanding
from jobs.pipeline.storage.layout import MICRODATA, ReleaseLayout
from jobs.pipeline.storage.place import Place
from jobs.survey.checks import EVERYBODY, SYNTHESIS
from jobs.survey.documents import (
    SOLVED,
    ConditionedPromise,
    ExactMarginal,
    MeansTable,
    ReleasedMean,
    ReleasedTable,
    StratumMean,
    SurveyTables,
    TablePromise,
)
from jobs.survey.measurements import Answers, read_sums, read_table
from jobs.survey.plan import TOTAL, Conditioning, MeanPlan, SurveyPlan, TablePlan

MEANS, TABLES = "means.json", "tables.json"
"""Documents of a release, of all means and of all tables."""
_MEANS_CSV = "means.csv"


def result_files(plan: SurveyPlan) -> list[Place]:
    """Every file that may be made of means and tables."""
    return [plan.made.root / name for name in (_MEANS_CSV, MEANS, TABLES)] + _tables_csv(plan)


def write_results(plan: SurveyPlan, found: MeansTable | SurveyTables) -> None:
    """Write means or tables as JSON and CSV; files that are there are replaced.

    Raises:
      OutputError: They cannot be written.
    """
    document, texts = _files(plan, found)
    for path, text in texts.items():
        replace_file(path, text)
    write_document(document, found)


def read_results(made: ReleaseLayout) -> tuple[MeansTable | None, SurveyTables | None]:
    """Read the means and tables of a release, or of a solution beside it, as far as it has any.

    Raises:
      OutputError: A file is damaged.
    """
    means, tables = made.root / MEANS, made.root / TABLES
    return (
        read_document(MeansTable, means, remedy=SOLVED) if means.exists() else None,
        read_document(SurveyTables, tables, remedy=SOLVED) if tables.exists() else None,
    )


def check_rows(plan: SurveyPlan, found: MeansTable | SurveyTables) -> None:
    """Check that CSV files have the rows of their document.

    Raises:
      VerificationError: One does not.
    """
    document, texts = _files(plan, found)
    for path, text in texts.items():
        if path.read_text(encoding="utf-8") != text:
            raise VerificationError(str(path), f"does not hold the rows of {document.name}")


def _files(plan: SurveyPlan, found: MeansTable | SurveyTables) -> tuple[Place, dict[Place, str]]:
    """The document, and CSV files beside it, text by file."""
    if isinstance(found, MeansTable):
        return plan.made.root / MEANS, {plan.made.root / _MEANS_CSV: means_text(found)}
    texts = map(table_text, found.tables)
    return plan.made.root / TABLES, dict(zip(_tables_csv(plan), texts, strict=True))


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
    variances = found.noise_sd**2 + found.size_sd**2 + config.sd_bound**2 / sizes
    lows, highs = _interval(found, variances, mean, definition)
    means = found.means
    if config.shrink:
        means = np.clip(shrink(means, variances), lows, highs)
    weights = [*mean.weights.values()]
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
        for i, name in enumerate(mean.strata.names)
    )
    shares = np.array([float(weight) for weight in weights])
    deviation = math.sqrt(float(shares**2 @ variances))
    whole = float(shares @ found.means)
    half = deviation * _deviations(float(config.miss_probability), definition)
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
        confidence=1.0 - float(config.miss_probability),
        spread=config.sd_bound,
        shrunk=config.shrink,
        strata=tuple(config.stratify_by),
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
    failure = float(mean.config.miss_probability) * (0.75 if len(found.sums) > 1 else 1.0)
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


def _tables_csv(plan: SurveyPlan) -> list[Place]:
    """The released tables, a file each."""
    return [plan.made.root / "tables" / f"{one.name}.csv" for one in plan.tables]


def released_tables(plan: SurveyPlan) -> SurveyTables:
    """What is released of all tables; a function of what was drawn."""
    tables = [_released(plan, one) for one in plan.tables]
    return SurveyTables(format=1, name=plan.config.name, tables=tuple(tables))


def _released(plan: SurveyPlan, table: TablePlan) -> ReleasedTable:
    drawn, attributes = read_table(plan.release.measured_part(table.name)), table.config.attributes
    exact = [
        ExactMarginal(
            attributes=tuple(attributes[axis] for axis in axes), counts=tuple(counts.tolist())
        )
        for axes, counts in zip(table.exact, drawn.exact, strict=True)
    ]
    return ReleasedTable(
        name=table.name,
        attributes=attributes,
        levels=tuple(plan.levels(name) for name in attributes),
        method=table.config.method,
        scale=str(drawn.conditioning.scale),
        promise=ConditionedPromise(**_proved(drawn.conditioning)),
        exact=tuple(exact),
        counts=tuple(drawn.counts.tolist()),
    )


def conditioned_of(plan: SurveyPlan, part: str) -> TablePromise | None:
    """What is promised of a part, if it is a table."""
    table = plan.part(part)
    if not isinstance(table, TablePlan):
        return None
    return TablePromise(**_proved(table.conditioning), exact=table.exact_names)


def promise_words(name: str, promise: Mapping[str, Any]) -> str:
    """What is promised of a table, as a sentence."""
    return (
        f"{name}: published as in the data, without protection: {', '.join(promise['exact'])}; "
        "between data sets that agree on all that is exact, proved up to k = "
        f"{promise['k']} changed records: (1 + gamma) k epsilon = (1 + {promise['gamma']}) x "
        f"{promise['k']} x {promise['epsilon']} = {promise['proved']}"
    )


def _proved(conditioning: Conditioning) -> dict[str, Any]:
    return {
        "k": conditioning.records,
        "gamma": str(conditioning.gamma),
        "epsilon": str(conditioning.noise.epsilon),
        "proved": str(conditioning.cost.epsilon),
    }


def table_text(table: ReleasedTable) -> str:
    """A table as CSV: a column per attribute, and `count`."""
    cells = zip(itertools.product(*table.levels), table.counts, strict=True)
    rows = [(*table.attributes, "count"), *((*labels, count) for labels, count in cells)]
    return csv_text(map(cell, row) for row in rows)


def check_tables(plan: SurveyPlan, released: SurveyTables) -> None:
    """Check released tables in integers: they are what was drawn, and keep the exact marginals.

    Raises:
      VerificationError: One does not.
    """
    path = plan.made.root / TABLES
    for one, stated in zip(plan.tables, released.tables, strict=True):
        where, counts = f"{path}, {one.name}", np.array(stated.counts, np.int64)
        drawn = read_table(plan.release.measured_part(one.name))
        if counts.shape != (one.rows.shape[1],) or (counts < 0).any():
            raise VerificationError(where, "is no table of counts of its cells")
        for marginal, kept in zip(stated.exact, one.exact_counts(counts), strict=True):
            if kept.tolist() != list(marginal.counts):
                raise VerificationError(
                    f"{where}, {' * '.join(marginal.attributes) or TOTAL}",
                    "does not keep its exact marginal",
                )
        if drawn.conditioning != one.conditioning or stated != _released(plan, one):
            raise VerificationError(where, "is not what was drawn")


def microdata_folders(release: ReleaseLayout) -> list[Place]:
    """Datasets of the microdata, one per format."""
    return [release.microdata / name for name in MICRODATA]


def draw_microdata(plan: SurveyPlan, measured: Answers) -> Records:
    """Fit a model to noisy marginals and draw records of it.

    The same settings give the same records: of a mixture on any machine (`das.synthesis.portable`),
    of a tree on one.
    """
    settings = plan.synthesis
    n_records = settings.n_records or plan.config.data.n_records
    if isinstance(measured, ChosenMarginals):
        return synthesize_graphical(measured, settings.steps, n_records, settings.seed)
    fit = Fit(components=settings.components, steps=settings.steps, starts=settings.n_fits)
    if isinstance(measured, MeasuredStrata):
        return synthesize_strata(measured, fit, n_records, settings.seed)
    return synthesize(measured, targets_of(measured), fit, n_records, settings.seed)


def write_microdata(plan: SurveyPlan, records: Records) -> None:
    """Write records with the labels of their levels, as Parquet and CSV.

    Raises:
      OutputError: They cannot be written, or are published.
    """
    columns = {
        name: pa.DictionaryArray.from_arrays(
            pa.array(records.codes[:, i].astype(np.int32)), pa.array(plan.levels(name))
        )
        for i, name in enumerate(records.domain.names)
    }
    table = pa.table(columns)
    facts: Mapping[str, Any] = {
        "configuration_digest": plan.digest,
        "not_for_release": plan.not_for_release,
        "settings": plan.settings(SYNTHESIS),
    }
    parquet, csv = microdata_folders(plan.made)
    for folder, writer in (
        (parquet, PartWriter(parquet, table.schema, key=None)),
        (csv, CsvPartWriter(csv)),
    ):
        writer.write(table)
        publish(folder, [writer.close()], facts)


def read_microdata(plan: SurveyPlan) -> Records:
    """The released records.

    Raises:
      OutputError: They are not published, or hold a label that is no level.
    """
    folder, domain = microdata_folders(plan.made)[0], plan.microdata_domain
    table = Dataset.open(folder).read()
    if table.column_names != list(domain.names):
        raise OutputError(
            str(folder), "has other columns", got=table.column_names, want=list(domain.names)
        )
    codes = np.empty((table.num_rows, len(domain.names)), np.int64)
    for i, name in enumerate(domain.names):
        labels = table.column(name).cast(pa.string())
        found = pc.index_in(labels, pa.array(plan.levels(name)))
        if found.null_count:
            raise OutputError(f"{folder}, {name}", "holds labels that are no levels")
        codes[:, i] = found.to_numpy()
    return Records(domain, codes)
