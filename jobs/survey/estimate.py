"""Unbiased estimates from the planned marginals of a survey release, with errors; no data."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from das.arrays import FloatArray
from das.errors import ConfigError, VerificationError
from das.queries.query import Query, parse_query
from das.queries.sensitivity import Neighbors
from das.schema import Schema
from das.tree.intervals import IntervalKind
from das.workload.residual.products import (
    answer_product,
    product_covariances,
    product_variances,
)
from das.workload.residual.reconstruction import ResidualAnswers
from jobs.pipeline.documents.covariance import covariance_rows, refuse_many_pairs
from jobs.pipeline.documents.document import read_document, write_document
from jobs.pipeline.storage.csv import without_formulas
from jobs.pipeline.storage.files import replace_file, writing
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import found_under
from jobs.survey.checks import MARGINALS
from jobs.survey.documents import SOLVED, ReleasedMarginal, SurveyMarginals
from jobs.survey.marginals import MarginalsPlan
from jobs.survey.measurements import read_planned
from jobs.survey.plan import SurveyPlan
from jobs.survey.results import MARGINALS_JSON, marginals_csv

SURVEY_START = b'"query","label"'
"""First bytes of written CSV files of `das estimate`, by which a later call may replace them."""

_NUMBERS = ("estimate", "standard_error", "lower", "upper")
_DECIMALS = 6  # of numbers in CSV files: noise is far larger, and files stay small
# Numbers of another processor differ in the last digits before rounding.
_SAME = 2.0 * 10**-_DECIMALS
_MOST_CELLS = 1 << 62  # of a schema in which a query is read


def estimate_table(
    plan: SurveyPlan, query: str, covariance: str | None, kind: IntervalKind
) -> pa.Table:
    """Estimate a query from the planned marginals of a release, or covariances of two queries.

    Args:
      plan: Plan of the release.
      query: Any query over attributes that are together in a planned table.
      covariance: Another such query; None: estimates.
      kind: Kind of the intervals.

    Returns:
      One row per answer: query, label, estimate, standard error, interval and its kind; or one row
      per pair of answers: both queries and labels, covariance, correlation.

    Raises:
      ConfigError: The survey has no marginals, or there are too many pairs.
      SchemaError: A query does not parse, or was not planned.
    """
    marginals, residuals = _read(plan)
    first = _parse(marginals, query)
    if covariance is not None:
        second = _parse(marginals, covariance)
        refuse_many_pairs(first, second)
        values = product_covariances(residuals.plan, first, second)
        ends = [product_variances(residuals.plan, one) for one in (first, second)]
        return pa.Table.from_pylist(covariance_rows((first, second), values, ends))
    if kind.positive and any(factor.matrix.min() < 0 for factor in first.factors):
        where, what = f"estimate, query {first.name}", "can have negative answers"
        raise ConfigError(where, what, want="no --positive")
    stated = {name: [value] * first.size for name, value in vars(kind).items()}
    names = {"query": [first.name] * first.size, "label": first.labels()}
    return pa.table({**names, **_estimates(residuals, first, kind), **stated})


def _read(plan: SurveyPlan) -> tuple[MarginalsPlan, ResidualAnswers]:
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


def _parse(marginals: MarginalsPlan, text: str) -> Query:
    """Read a query over the attributes of the file.

    Raises:
      SchemaError: The text is no query.
    """
    kept = marginals.attributes
    if math.prod(one.size for one in kept) >= _MOST_CELLS:
        # Too wide for one schema: read the query over the attributes that it can name. One more
        # attribute keeps a table of all of them from being called detailed.
        other = next((one for one in kept if one.name not in text), None)
        kept = tuple(one for one in kept if one.name in text or one is other)
    query = parse_query(Schema("of the survey", kept), text)
    names = [one.name for one in kept]
    return Query(query.name, marginals.over_all(dict(zip(names, query.factors, strict=True))))


def _estimates(
    residuals: ResidualAnswers, query: Query, kind: IntervalKind
) -> dict[str, FloatArray]:
    """Return estimates, standard errors and ends of intervals of a query, float64[m] each."""
    values = answer_product(residuals, query)
    errors = np.sqrt(product_variances(residuals.plan, query))
    rank = math.prod(query.factors[i].matrix.shape[1] for i in query.kept)
    ends = kind.around(values[None], errors[None], rank)
    columns = (values, errors, ends.lower[0], ends.upper[0])
    return dict(zip(_NUMBERS, columns, strict=True))


# --- written tables -------------------------------------------------------------------------------


def written_tables(plan: SurveyPlan) -> Iterator[tuple[Query, ReleasedMarginal, pa.Table]]:
    """Yield every written table: query, description, and a row per answer with its estimate.

    Raises:
      OutputError: The measurements are missing or damaged.
    """
    marginals, residuals = _read(plan)
    kind = IntervalKind(float(marginals.config.confidence))
    for members, file in zip(marginals.written, marginals_csv(plan), strict=True):
        query = marginals.query_of(members)
        labels = zip(*itertools.product(*(query.factors[i].labels for i in members)), strict=True)
        estimates = _estimates(residuals, query, kind)
        columns = [*map(pa.array, labels), *(np.round(x, _DECIMALS) for x in estimates.values())]
        attributes = tuple(plan.domain.names[i] for i in members)
        description = ReleasedMarginal(
            name=query.name,
            file=f"{file.parent.name}/{file.name}",
            attributes=attributes,
            answers=query.size,
            root_mean_square_error=_root_mean_square(estimates["standard_error"]),
        )
        yield query, description, without_formulas(pa.table(columns, [*attributes, *_NUMBERS]))


def _root_mean_square(values: FloatArray) -> float:
    return round(float(np.sqrt((values**2).mean())), _DECIMALS)


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
    marginals, _ = _read(plan)
    confidence = float(marginals.config.confidence)
    stated = {"format": 1, "name": plan.config.name, "confidence": confidence}
    write_document(made / MARGINALS_JSON, SurveyMarginals(**stated, tables=tuple(tables)))


def read_marginals(made: ReleaseLayout) -> SurveyMarginals | None:
    """Read the document of the written tables; None if the release has none.

    Raises:
      OutputError: The file is damaged.
    """
    path = made.root / MARGINALS_JSON
    return read_document(SurveyMarginals, path, remedy=SOLVED) if path.exists() else None


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
