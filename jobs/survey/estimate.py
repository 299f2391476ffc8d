"""Unbiased estimates from the planned marginals of a survey release, with errors; no data."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

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
from jobs.pipeline.documents.covariance import correlations, pairs_of_answers, refuse_many_pairs
from jobs.pipeline.documents.document import read_document, write_document
from jobs.pipeline.storage.csv import cell, csv_text
from jobs.pipeline.storage.files import replace_file, writing
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import Place, found_under
from jobs.survey.checks import MARGINALS
from jobs.survey.documents import SOLVED, ReleasedMarginal, SurveyMarginals
from jobs.survey.marginals import MarginalsPlan
from jobs.survey.measurements import PlannedAnswers, read_planned
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
    marginals = _planned(plan)
    residuals, first = _residuals(plan), _parse(marginals, query)
    if covariance is not None:
        second = _parse(marginals, covariance)
        refuse_many_pairs(first, second)
        values = product_covariances(residuals.plan, first, second)
        ends = [product_variances(residuals.plan, one) for one in (first, second)]
        pairs = correlations(values, *ends)
        rows: list[dict[str, Any]] = [
            {
                "query": first.name,
                "label": label,
                "other_query": second.name,
                "other_label": other,
                **vars(pairs[i][j]),
            }
            for i, j, label, other in pairs_of_answers((first, second))
        ]
        return pa.Table.from_pylist(rows)
    if kind.positive and any(factor.matrix.min() < 0 for factor in first.factors):
        where, what = f"estimate, query {first.name}", "can have negative answers"
        raise ConfigError(where, what, want="no --positive")
    columns = dict(zip(_NUMBERS, Estimates.of(residuals, first, kind).columns, strict=True))
    stated = {name: [value] * first.size for name, value in vars(kind).items()}
    names = {"query": [first.name] * first.size, "label": first.labels()}
    return pa.table({**names, **columns, **stated})


def _planned(plan: SurveyPlan) -> MarginalsPlan:
    """Return the planned marginals.

    Raises:
      ConfigError: The survey has none.
    """
    if plan.marginals is None:
        what = "has no section `marginals`, from which queries are estimated"
        raise ConfigError(str(plan.source), what, want="the CSV files of the release")
    return plan.marginals


def _read(plan: SurveyPlan) -> PlannedAnswers:
    return read_planned(plan.release.measured_part(MARGINALS))


def _residuals(plan: SurveyPlan) -> ResidualAnswers:
    """Read the residual answers; with bounded neighbors the number of records is public."""
    measured = _read(plan).residuals
    if plan.config.privacy.neighbors is Neighbors.UNBOUNDED:
        return measured
    values, noise = measured.values.copy(), measured.plan.noise.copy()
    values[0], noise[0] = plan.config.data.n_records, 0.0
    return ResidualAnswers(replace(measured.plan, noise=noise), values)


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


@dataclass(frozen=True, eq=False)
class Estimates:
    """Estimates of the answers of a query.

    Attributes:
      query: The query.
      values: float64[m], the estimates.
      errors: float64[m], their standard errors.
      lower, upper: float64[m], ends of the intervals.
    """

    query: Query
    values: FloatArray
    errors: FloatArray
    lower: FloatArray
    upper: FloatArray

    @classmethod
    def of(cls, residuals: ResidualAnswers, query: Query, kind: IntervalKind) -> Estimates:
        """Estimate a query from residual answers.

        Raises:
          SchemaError: The query was not planned, or is too large.
        """
        values = answer_product(residuals, query)
        errors = np.sqrt(product_variances(residuals.plan, query))
        rank = math.prod(query.factors[i].matrix.shape[1] for i in query.kept)
        ends = kind.around(values[None], errors[None], rank)
        return cls(query, values, errors, ends.lower[0], ends.upper[0])

    @property
    def columns(self) -> tuple[FloatArray, ...]:
        """Return the numbers of each answer, as columns of files."""
        return self.values, self.errors, self.lower, self.upper


def written_estimates(plan: SurveyPlan) -> Iterator[Estimates]:
    """Yield the estimates of every table that is written.

    Raises:
      OutputError: The measurements are missing or damaged.
    """
    marginals, residuals = _planned(plan), _residuals(plan)
    kind = IntervalKind(float(marginals.config.confidence))
    for members in marginals.written:
        yield Estimates.of(residuals, marginals.query_of(members), kind)


# --- released tables ------------------------------------------------------------------------------


def released_marginals(plan: SurveyPlan) -> tuple[SurveyMarginals, dict[Place, str]]:
    """Compute the written tables; return their document, and the text of each CSV file.

    Raises:
      OutputError: The measurements are missing or damaged.
    """
    tables, texts = [], dict[Place, str]()
    for file, one in zip(marginals_csv(plan), written_estimates(plan), strict=True):
        kept = [one.query.factors[i].labels for i in one.query.kept]
        names = [plan.domain.names[i] for i in one.query.kept]
        rows = zip(itertools.product(*kept), *(each.tolist() for each in one.columns), strict=True)
        texts[file] = csv_text(
            [
                map(cell, (*names, *_NUMBERS)),
                *([*map(cell, where), *map(_rounded, row)] for where, *row in rows),
            ]
        )
        tables.append(
            ReleasedMarginal(
                name=one.query.name,
                file=f"{file.parent.name}/{file.name}",
                attributes=tuple(names),
                answers=one.query.size,
                root_mean_square_error=float(np.sqrt((one.errors**2).mean())),
            )
        )
    document = SurveyMarginals(
        format=1,
        name=plan.config.name,
        confidence=float(_planned(plan).config.confidence),
        planned=len(_read(plan).answers),
        tables=tuple(tables),
    )
    return document, texts


def _rounded(number: float) -> str:
    return f"{number:.{_DECIMALS}f}"


def write_marginals(plan: SurveyPlan) -> None:
    """Write the tables as CSV files and a document; files of other tables are removed.

    Raises:
      OutputError: The measurements are missing, or a file cannot be written.
    """
    document, texts = released_marginals(plan)
    for path in found_under(plan.made.root / MARGINALS, "*.csv"):
        if path not in texts:
            with writing(path):
                path.unlink()
    for path, text in texts.items():
        replace_file(path, text)
    write_document(plan.made.root / MARGINALS_JSON, document)


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
    document, texts = released_marginals(plan)
    path = plan.made.root / MARGINALS_JSON
    names = [(one.name, one.file, one.answers) for one in document.tables]
    if names != [(one.name, one.file, one.answers) for one in stated.tables]:
        raise VerificationError(str(path), "lists other tables than the run file")
    for file, text in texts.items():
        if not _same_rows(file.read_text(encoding="utf-8"), text):
            raise VerificationError(str(file), "does not follow from the noisy answers")


def _same_rows(stated: str, again: str) -> bool:
    """Return whether two CSV texts have equal labels, and numbers that differ by rounding alone."""
    if stated == again:
        return True
    rows, others = (list(csv.reader(io.StringIO(text))) for text in (stated, again))
    if len(rows) != len(others) or rows[0] != others[0]:
        return False
    n_labels = len(rows[0]) - len(_NUMBERS)
    return all(
        row[:n_labels] == other[:n_labels]
        and len(row) == len(other)
        and all(
            abs(float(one) - float(two)) <= _SAME * max(1.0, abs(float(two)))
            for one, two in zip(row[n_labels:], other[n_labels:], strict=True)
        )
        for row, other in zip(rows[1:], others[1:], strict=True)
    )
