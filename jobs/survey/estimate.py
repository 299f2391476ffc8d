"""Estimates of any query that the planned marginals of a survey release answer; no data."""

from __future__ import annotations

import math

import pyarrow as pa

from das.errors import ConfigError
from das.queries.query import Query, parse_query
from das.schema import Schema
from das.tree.intervals import IntervalKind
from das.workload.residual.products import product_covariances, product_variances
from jobs.pipeline.documents.covariance import covariance_rows, refuse_many_pairs
from jobs.survey.marginals import MarginalsPlan
from jobs.survey.plan import SurveyPlan
from jobs.survey.results import estimates_of_query, read_residuals_of

SURVEY_START = b'"query","label"'
"""First bytes of written CSV files of `das estimate`, by which a later call may replace them."""

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
    marginals, residuals = read_residuals_of(plan)
    first = _parse(marginals, query)
    if covariance is not None:
        second = _parse(marginals, covariance)
        refuse_many_pairs(first, second)
        values = product_covariances(residuals.plan, first, second)
        ends = [product_variances(residuals.plan, one) for one in (first, second)]
        return pa.Table.from_pylist(covariance_rows((first, second), values, ends))
    if kind.positive and first.is_signed:
        where, what = f"estimate, query {first.name}", "can have negative answers"
        raise ConfigError(where, what, want="no --positive")
    stated = {name: [value] * first.size for name, value in vars(kind).items()}
    names = {"query": [first.name] * first.size, "label": first.labels()}
    estimates = estimates_of_query(residuals, first, kind, marginals.definition)
    return pa.table({**names, **estimates, **stated})


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
