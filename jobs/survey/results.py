"""Results computed from measurements: documents, CSV files and microdata; no data."""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from das.arrays import FloatArray
from das.definition import Definition
from das.errors import ConfigError, OutputError, VerificationError
from das.means.estimates import MeanEstimates, NoisySum, estimates_of, shrink
from das.privacy.conditioning import GAMMA
from das.queries.query import Query
from das.queries.sensitivity import Neighbors
from das.synthesis.graphical import fit_model
from das.synthesis.mixture import Fit, fit_products, synthesize
from das.synthesis.model import Fitter, synthesize_chosen
from das.synthesis.records import ChosenMarginals, Records
from das.synthesis.strata import MeasuredStrata, synthesize_strata
from das.synthesis.targets import targets_of
from das.tree.intervals import IntervalKind, two_sided_factor
from das.workload.kronecker import Kronecker
from das.workload.residual.nonnegative import nonnegative_answers, nonnegative_table
from das.workload.residual.products import answer_product, product_variances
from das.workload.residual.reconstruction import ResidualAnswers
from jobs.pipeline.documents.document import json_of, read_document, write_document
from jobs.pipeline.storage.csv import CsvPartWriter, cell, csv_text, without_formulas
from jobs.pipeline.storage.dataset import Dataset, PartWriter, publish
from jobs.pipeline.storage.files import replace_file, understanding, writing
from jobs.pipeline.storage.layout import MICRODATA, ReleaseLayout
from jobs.pipeline.storage.place import Place, found_under
from jobs.survey.checks import MARGINALS, POPULATION, SYNTHESIS
from jobs.survey.documents import (
    SOLVED,
    ConditionedPromise,
    ExactMarginal,
    MeansTable,
    ReleasedMarginal,
    ReleasedMean,
    ReleasedTable,
    StratumMean,
    SurveyMarginals,
    SurveyTables,
    TablePromise,
)
from jobs.survey.marginals import INTEGER, NONNEGATIVE, NUMBERS, TOTAL, MarginalsPlan
from jobs.survey.measurements import Answers, read_planned, read_sums, read_table
from jobs.survey.plan import Conditioning, MeanPlan, SurveyPlan, TablePlan
from solvers.rounding.cost import STEPS, on_grid

MEANS, TABLES, MARGINALS_JSON = "means.json", "tables.json", "marginals.json"
"""Documents of a release: all means, all tables, all marginals."""
_MEANS_CSV = "means.csv"
_DECIMALS = 6  # of marginals in CSV files: noise is far larger, and files stay small
# Numbers of another processor differ in the last digits before rounding.
_SAME = 2.0 * 10**-_DECIMALS
_MOST_NONNEGATIVE = 1 << 16  # rows of all files with a nonnegative form; 27,000 take some 15 s
_MOST_INTEGER = 1 << 12  # combinations of levels of one table of integers; default, not measured
_LONGEST = 80  # letters of attributes in the name of a file


def result_files(plan: SurveyPlan) -> list[Place]:
    """List every file that holds means, tables or marginals."""
    documents = [plan.made.root / name for name in (_MEANS_CSV, MEANS, TABLES)]
    return [*documents, *_tables_csv(plan), plan.made.root / MARGINALS_JSON, *marginals_csv(plan)]


def write_results(plan: SurveyPlan, results: MeansTable | SurveyTables) -> None:
    """Write means or tables as JSON and CSV; existing files are replaced.

    Raises:
      OutputError: A file cannot be written.
    """
    document, texts = _files(plan, results)
    for path, text in texts.items():
        replace_file(path, text)
    write_document(document, results)


def read_results(
    made: ReleaseLayout,
) -> tuple[MeansTable | None, SurveyTables | None, SurveyMarginals | None]:
    """Return means, tables and marginals of a release or a further solution; None if absent.

    Raises:
      OutputError: A file is damaged.
    """
    names = (MEANS, TABLES, MARGINALS_JSON)
    means, tables, marginals = (made.root / name for name in names)
    return (
        read_document(MeansTable, means, remedy=SOLVED) if means.exists() else None,
        read_document(SurveyTables, tables, remedy=SOLVED) if tables.exists() else None,
        read_document(SurveyMarginals, marginals, remedy=SOLVED) if marginals.exists() else None,
    )


def check_rows(plan: SurveyPlan, results: MeansTable | SurveyTables) -> None:
    """Check that the CSV files have the rows of their document.

    Raises:
      VerificationError: A CSV file differs.
    """
    document, texts = _files(plan, results)
    for path, text in texts.items():
        if path.read_text(encoding="utf-8") != text:
            raise VerificationError(str(path), f"does not hold the rows of {document.name}")


def _files(plan: SurveyPlan, results: MeansTable | SurveyTables) -> tuple[Place, dict[Place, str]]:
    """Return the document, and text of each CSV file."""
    if isinstance(results, MeansTable):
        return plan.made.root / MEANS, {plan.made.root / _MEANS_CSV: means_text(results)}
    texts = map(table_text, results.tables)
    return plan.made.root / TABLES, dict(zip(_tables_csv(plan), texts, strict=True))


def released_means(plan: SurveyPlan) -> MeansTable:
    """Compute the released means of all statistics from noisy sums.

    Raises:
      OutputError: Noisy sums are missing or damaged, or belong to another plan.
    """
    definition, statistics = plan.config.privacy.definition, []
    for mean in plan.means:
        dataset = plan.release.measured_part(mean.name)
        with understanding(dataset):  # a received release may have other strata
            statistics.append(released_mean(mean, read_sums(dataset), definition))
    return MeansTable(format=1, name=plan.config.name, statistics=tuple(statistics))


_ROUNDED = ("mean", "standard_error", "noise_sd", "low", "high")
_MOST_PLACES = 12  # decimal places of a number in means.csv; default, not measured


def means_text(table: MeansTable) -> str:
    """Return the means as CSV, one row per statistic and stratum; all records come first.

    A statistic without strata has one row. Numbers are rounded to three digits of the standard
    error; the document has all digits.
    """

    def written(mean: StratumMean) -> Iterable[Any]:
        deviation = mean.standard_error
        places = 2 - math.floor(math.log10(deviation)) if deviation > 0 else _MOST_PLACES
        for name, value in json_of(mean).items():
            yield round(value, min(places, _MOST_PLACES)) if name in _ROUNDED else value

    names = [field.name for field in fields(StratumMean)]
    rows = [
        (statistic.name, *written(mean))
        for statistic in table.statistics
        for mean in statistic.rows
    ]
    return csv_text([["statistic", *names], *(map(cell, row) for row in rows)])


def released_mean(
    mean: MeanPlan, history: Sequence[tuple[NoisySum, ...]], definition: Definition
) -> ReleasedMean:
    """Compute the released means of a statistic from noisy sums and public numbers.

    Args:
      mean: The statistic.
      history: Noisy sums by step.
      definition: Privacy definition; under pure epsilon the noise has Laplace tails, and intervals
        are wider.
    """
    config, sizes = mean.config, np.array([*mean.strata.sizes.values()], np.float64)
    estimates = estimates_of(history, mean.column, mean.steps, mean.strata)
    if config.method == "clipped":  # its single step uses the public bounds alone
        public = estimates.begin(mean.column, mean.strata)
        slack = 0.0 if config.intersect else math.inf
        estimates = replace(estimates, low=public.low - slack, high=public.high + slack)
    variances = estimates.noise_sd**2 + estimates.size_sd**2 + config.sd_bound**2 / sizes
    lows, highs = _interval(estimates, variances, mean, definition)
    means = estimates.means
    if config.shrink:
        means = np.clip(shrink(means, variances), lows, highs)
    weights = [*mean.weights.values()]
    columns = {
        "stratum": mean.strata.names,
        "weight": map(str, weights),
        "size": mean.strata.sizes.values(),
        "mean": means.tolist(),
        "standard_error": np.sqrt(variances).tolist(),
        "noise_sd": estimates.noise_sd.tolist(),
        "low": lows.tolist(),
        "high": highs.tolist(),
        "outside": estimates.outside.tolist(),
    }
    values: Iterable[tuple[Any, ...]] = zip(*columns.values(), strict=True)
    rows = tuple(StratumMean(**dict(zip(columns, row, strict=True))) for row in values)
    shares = np.array([float(weight) for weight in weights])
    deviation = math.sqrt(float(shares**2 @ variances))
    whole = float(shares @ estimates.means)
    half = deviation * two_sided_factor(float(config.miss_probability), definition)
    population = StratumMean(
        stratum=POPULATION,
        weight="1",
        size=int(sizes.sum()),
        mean=whole,
        standard_error=deviation,
        noise_sd=math.sqrt(float(shares**2 @ estimates.noise_sd**2)),
        low=whole - half,
        high=whole + half,
        outside=False,
    )
    if len(rows) == 1:
        population = replace(rows[0], stratum=POPULATION)
    outside = [row.stratum for row in rows if row.outside]
    warning = (
        f"noisy means of {len(outside)} of {len(rows)} strata ({', '.join(outside[:3])}) lie more "
        "than three standard deviations outside the bounds known before: `low` and `high` are too "
        "narrow, or `spread` is too small and clipping biases the means"
    )
    return ReleasedMean(
        name=mean.name,
        attribute=config.mean,
        method=config.method,
        confidence=1.0 - float(config.miss_probability),
        spread=config.sd_bound,
        shrunk=config.shrink,
        strata=tuple(config.stratify_by),
        pooled=mean.pooled,
        everybody=population,
        means=rows,
        warnings=(warning,) if outside else (),
    )


def _interval(
    estimates: MeanEstimates, variances: FloatArray, mean: MeanPlan, definition: Definition
) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper ends of intervals about the last noisy means, within earlier bounds.

    The steps of Coinpress use a quarter of the probability of a miss, so the last interval uses the
    other three quarters. Bounds of the steps come from a sub-Gaussian inequality and are 1.5 times
    as wide as the quantiles used here.
    """
    sizes = [*mean.strata.sizes.values()]
    noisy = np.array([s.mean(n) for s, n in zip(estimates.sums[-1], sizes, strict=True)])
    failure = float(mean.config.miss_probability) * (0.75 if len(estimates.sums) > 1 else 1.0)
    half = np.sqrt(variances) * two_sided_factor(failure, definition)
    low, high = (
        np.clip(ends, estimates.low, estimates.high) for ends in (noisy - half, noisy + half)
    )
    return low, high


def _tables_csv(plan: SurveyPlan) -> list[Place]:
    """List the CSV files of the released tables."""
    return [plan.made.root / "tables" / f"{one.name}.csv" for one in plan.tables]


def read_residuals_of(plan: SurveyPlan) -> tuple[MarginalsPlan, ResidualAnswers]:
    """Return the plan and its answers; with bounded neighbors the number of records is public.

    Raises:
      ConfigError: The survey has no marginals.
      OutputError: The measurements are missing or damaged.
    """
    if plan.marginals is None:
        what = "has no section `marginals`, from which queries are estimated"
        raise ConfigError(str(plan.source), what, want="the CSV files of the release")
    measured = read_planned(plan.release.measured_part(MARGINALS)).residuals
    if plan.config.privacy.neighbors is Neighbors.UNBOUNDED:
        return plan.marginals, measured
    values, noise = measured.values.copy(), measured.plan.noise.copy()
    values[0], noise[0] = plan.config.data.n_records, 0.0
    return plan.marginals, ResidualAnswers(replace(measured.plan, noise=noise), values)


def estimates_of_query(
    residuals: ResidualAnswers, query: Query, kind: IntervalKind, definition: Definition
) -> dict[str, FloatArray]:
    """Return estimates, standard errors and ends of intervals of a query, float64[m] each."""
    values = answer_product(residuals, query)
    errors = np.sqrt(product_variances(residuals.plan, query))
    rank = math.prod(query.factors[i].matrix.shape[1] for i in query.kept)
    ends = kind.around(values[None], errors[None], rank, definition=definition)
    columns = (values, errors, ends.lower[0], ends.upper[0])
    return dict(zip(NUMBERS, columns, strict=True))


def written_tables(plan: SurveyPlan) -> Iterator[tuple[Query, ReleasedMarginal, pa.Table]]:
    """Yield every written table: query, description, and a row per answer with its estimate.

    Raises:
      OutputError: The measurements are missing or damaged.
    """
    marginals, residuals = read_residuals_of(plan)
    kind = IntervalKind(float(marginals.config.confidence))
    n_rows = sum(marginals.query_of(members).size for members in marginals.written)
    is_small = n_rows <= _MOST_NONNEGATIVE
    nonnegative = nonnegative_answers(residuals, marginals.written) if is_small else None
    whole = _whole_numbers(marginals, residuals)
    for members, file in zip(marginals.written, marginals_csv(plan), strict=True):
        query = marginals.query_of(members)
        labels = zip(*itertools.product(*(query.factors[i].labels for i in members)), strict=True)
        estimates = estimates_of_query(residuals, query, kind, marginals.definition)
        errors = estimates["standard_error"]
        if nonnegative is not None:
            estimates[NONNEGATIVE] = answer_product(nonnegative, query)
        if whole is not None:
            estimates[INTEGER] = whole(members)
        # Adding 0 leaves no -0 for what is below 0 by rounding alone.
        rounded = (np.round(values, _DECIMALS) + 0.0 for values in estimates.values())
        columns = [*map(pa.array, labels), *rounded]
        attributes = tuple(plan.domain.names[i] for i in members)
        description = ReleasedMarginal(
            name=query.name,
            file=f"{file.parent.name}/{file.name}",
            attributes=attributes,
            answers=query.size,
            confidence=kind.confidence,
            root_mean_square_error=round(float(np.sqrt((errors**2).mean())), _DECIMALS),
        )
        names = [*attributes, *estimates]
        yield query, description, without_formulas(pa.table(columns, names))


def _whole_numbers(
    marginals: MarginalsPlan, residuals: ResidualAnswers
) -> Callable[[Sequence[int]], FloatArray] | None:
    """Round one table of all written attributes to integers; return answers of a table from it.

    Cumulative sums are rounded, in the order of the file. So counts and sums over later attributes
    are within one of the nonnegative table, and roundings of small counts do not add up to a bias.
    On the invented survey the error of tables of one attribute rose from 26.6 to 27.6; rounding
    with the least L1 distance, by flows, gave 62.7.
    """
    kept = sorted({*itertools.chain(*marginals.written)})
    if math.prod(marginals.attributes[i].size for i in kept) > _MOST_INTEGER:
        return None
    table = nonnegative_table(residuals, kept)
    whole = (on_grid(np.cumsum(table)) + STEPS // 2) // STEPS
    counts = np.diff(whole, prepend=0).reshape(table.shape)

    def answer(members: Sequence[int]) -> FloatArray:
        others = tuple(axis for axis, i in enumerate(kept) if i not in members)
        rows = [marginals.factors[i].matrix.astype(np.float64) for i in members]
        return Kronecker(tuple(rows)).apply(counts.sum(axis=others).reshape(-1))

    return answer


def write_marginals(plan: SurveyPlan) -> None:
    """Write the tables as CSV files and a document; files of other tables are removed.

    Raises:
      OutputError: The measurements are missing, or a file cannot be written.
    """
    made, tables = plan.made.root, []
    for path in {*found_under(made / MARGINALS, "*.csv")} - {*marginals_csv(plan)}:
        with writing(path):
            path.unlink()
    for _, description, table in written_tables(plan):
        text = io.BytesIO()
        pa_csv.write_csv(table, text)
        replace_file(made / description.file, text.getvalue())
        tables.append(description)
    document = SurveyMarginals(format=1, name=plan.config.name, tables=tuple(tables))
    write_document(made / MARGINALS_JSON, document)


def check_marginals(plan: SurveyPlan, stated: SurveyMarginals) -> None:
    """Check that the written tables follow from the noisy answers.

    Raises:
      VerificationError: A table differs by more than rounding.
    """
    for (_, description, table), one in zip(written_tables(plan), stated.tables, strict=True):
        file, n_labels = plan.made.root / description.file, len(description.attributes)
        options = pa_csv.ConvertOptions(column_types=table.schema)
        written = pa_csv.read_csv(str(file), convert_options=options)
        same_labels = written.columns[:n_labels] == table.columns[:n_labels]
        pairs = zip(written.columns[n_labels:], table.columns[n_labels:], strict=True)
        if (
            description != one
            or not same_labels
            or not all(np.allclose(got, want, rtol=_SAME, atol=_SAME) for got, want in pairs)
        ):
            raise VerificationError(str(file), "does not follow from the noisy answers")


def marginals_csv(plan: SurveyPlan) -> list[Place]:
    """List the CSV files of the written marginals, numbered in their order."""
    marginals = plan.marginals
    names = [] if marginals is None else map(marginals.text_of, marginals.written)
    folder = plan.made.root / MARGINALS
    # Attributes may have any name; numbers keep files apart whose letters are the same.
    plain = (re.sub(r"[^A-Za-z0-9]+", "_", name)[:_LONGEST] for name in names)
    return [folder / f"{number:04d}-{name}.csv" for number, name in enumerate(plain, 1)]


def released_tables(plan: SurveyPlan) -> SurveyTables:
    """Gather the released tables from the drawn ones."""
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
    """Return the guarantee of a part that is a table; else None."""
    table = plan.part(part)
    if not isinstance(table, TablePlan):
        return None
    return TablePromise(**_proved(table.conditioning), exact=table.exact_names)


def _proved(conditioning: Conditioning) -> dict[str, Any]:
    return {
        "k": conditioning.records,
        "gamma": str(GAMMA),
        "epsilon": str(conditioning.noise.epsilon),
        "proved": str(conditioning.cost.epsilon),
    }


def table_text(table: ReleasedTable) -> str:
    """Return a table as CSV: one column per attribute, and `count`."""
    cells = zip(itertools.product(*table.levels), table.counts, strict=True)
    rows = [(*table.attributes, "count"), *((*labels, count) for labels, count in cells)]
    return csv_text(map(cell, row) for row in rows)


def check_tables(plan: SurveyPlan, released: SurveyTables) -> None:
    """Check that released tables equal the drawn ones and keep the exact marginals, in integers.

    Raises:
      VerificationError: A table differs, or misses a marginal.
    """
    path = plan.made.root / TABLES
    for table, stated in zip(plan.tables, released.tables, strict=True):
        where, counts = f"{path}, {table.name}", np.array(stated.counts, np.int64)
        drawn = read_table(plan.release.measured_part(table.name))
        if counts.shape != (table.rows.shape[1],) or (counts < 0).any():
            raise VerificationError(where, "does not hold one nonnegative count per cell")
        for marginal, kept in zip(stated.exact, table.exact_counts(counts), strict=True):
            if kept.tolist() != list(marginal.counts):
                raise VerificationError(
                    f"{where}, {' * '.join(marginal.attributes) or TOTAL}",
                    "does not keep its exact marginal",
                )
        if drawn.conditioning != table.conditioning or stated != _released(plan, table):
            raise VerificationError(where, "differs from the drawn table")


def microdata_folders(release: ReleaseLayout) -> list[Place]:
    """List the datasets of the microdata, one per format."""
    return [release.microdata / name for name in MICRODATA]


def draw_microdata(plan: SurveyPlan, measured: Answers) -> Records:
    """Fit a model to noisy marginals and draw records from it.

    The same settings give the same records: a mixture on any machine (`das.synthesis.portable`),
    other models on the same machine.
    """
    settings = plan.synthesis
    n_records = settings.n_records or plan.config.data.n_records
    fit = Fit(components=settings.components, steps=settings.steps, starts=settings.n_fits)
    fitter: Fitter = fit_model
    if settings.model == "gem":
        fitter = partial(fit_products, fit=fit, seed=settings.seed)
    if isinstance(measured, ChosenMarginals):
        return synthesize_chosen(measured, fitter, fit.steps, n_records, settings.seed)
    if isinstance(measured, MeasuredStrata):
        return synthesize_strata(measured, fit, n_records, settings.seed, fitter)
    return synthesize(measured, targets_of(measured), fit, n_records, settings.seed)


def write_microdata(plan: SurveyPlan, records: Records) -> None:
    """Write records with the labels of their levels, as Parquet and CSV.

    Raises:
      OutputError: The microdata cannot be written, or were already published.
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
    """Read the released records.

    Raises:
      OutputError: The records are not published, or hold an unknown label.
    """
    folder, domain = microdata_folders(plan.made)[0], plan.microdata_domain
    table = Dataset.open(folder).read()
    if table.column_names != list(domain.names):
        raise OutputError(
            str(folder), "lacks or adds columns", got=table.column_names, want=list(domain.names)
        )
    codes = np.empty((table.num_rows, len(domain.names)), np.int64)
    for i, name in enumerate(domain.names):
        labels = table.column(name).cast(pa.string())
        level = pc.index_in(labels, pa.array(plan.levels(name)))
        if level.null_count:
            raise OutputError(f"{folder}, {name}", "holds labels that are no levels")
        codes[:, i] = level.to_numpy()
    return Records(domain, codes)
