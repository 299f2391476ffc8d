"""Compare a survey release with the truth: means, tables, marginals, parity. Confidential."""

from __future__ import annotations

import itertools
import math

import numpy as np

from das.confidential import Confidential, redact_errors
from das.metrics.microdata import distances_of
from das.synthesis.records import Records
from jobs.confidential.survey.groups import group_errors, parity_error
from jobs.confidential.survey.predict import predict
from jobs.confidential.survey.read import SurveyTruth
from jobs.documents.document import write_document
from jobs.documents.survey import (
    GroupErrors,
    MeanError,
    MeanErrors,
    Predictions,
    ReleasedMean,
    ReleasedTable,
    SurveyEvaluation,
    TableErrors,
    WorkloadError,
    read_means,
    read_survey_manifest,
    read_tables,
)
from jobs.survey.means import means_json
from jobs.survey.microdata import read_microdata
from jobs.survey.plan import EVERYBODY, SYNTHESIS, MeanPlan, SurveyPlan
from jobs.survey.table_plan import TablePlan
from jobs.survey.tables import tables_json

_HIGHEST_ORDER = 3
_MOST_WORK = 2_000_000_000  # records times marginals of one order; some 30 s
_MOST_CELLS = 1 << 22  # of one marginal


@redact_errors
def evaluate(plan: SurveyPlan, truth: Confidential[SurveyTruth]) -> SurveyEvaluation:
    """Compare what was released with the truth, and write the confidential evaluation.

    Raises:
      OutputError: Nothing was released, or it cannot be written.
    """
    data, parts = truth.reveal(), read_survey_manifest(plan.made.manifest).parts
    released = {one.name for one in parts}
    means: tuple[MeanErrors, ...] = ()
    kinds = {plan.kind(part) for part in released}
    if "means" in kinds:
        tables = {one.name: one for one in read_means(means_json(plan.made)).statistics}
        means = tuple(mean_errors(one, tables[one.name], data) for one in plan.means)
    marginals: list[WorkloadError] = []
    groups: list[GroupErrors] = []
    predictions: Predictions | None = None
    notes: list[str] = []
    if SYNTHESIS in released:
        microdata = read_microdata(plan)
        kept = plan.domain.positions(microdata.domain.names)
        true = Records(microdata.domain, np.ascontiguousarray(data.records.codes[:, kept]))
        for order in range(1, min(_HIGHEST_ORDER, len(kept)) + 1):
            error, left_out = workload_error(true, microdata, order)
            marginals += error
            notes += left_out
        strata = (tuple(one.config.strata) for one in plan.means)
        for attributes in dict.fromkeys((*strata, *map(tuple, plan.config.evaluate.groups))):
            if attributes and set(attributes) <= set(microdata.domain.names):
                groups.append(group_errors(plan, attributes, true, microdata))
        predictions = predict(plan, true, microdata)
    errors: tuple[TableErrors, ...] = ()
    if "tables" in kinds:
        stated = {one.name: one for one in read_tables(tables_json(plan.made)).tables}
        errors = tuple(table_errors(one, stated[one.name], data.records) for one in plan.tables)
    evaluation = SurveyEvaluation(
        format=1,
        name=plan.config.name,
        records=len(data.records.codes),
        means=means,
        marginals=tuple(marginals),
        floor=plan.config.evaluate.floor,
        groups=tuple(groups),
        predictions=predictions,
        notes=tuple(notes),
        tables=errors,
    )
    write_document(plan.confidential.evaluation, evaluation)
    return evaluation


def mean_errors(mean: MeanPlan, released: ReleasedMean, data: SurveyTruth) -> MeanErrors:
    """The released means of a statistic beside the true ones, which are not clipped."""
    own = data.values(mean)
    counts = np.bincount(own.strata, minlength=own.n_strata)
    sums = np.zeros(own.n_strata, np.int64)
    np.add.at(sums, own.strata, own.values)
    rows = tuple(
        _mean_error(row.stratum, int(counts[i]), int(sums[i]), row.mean)
        for i, row in enumerate(released.means)
    )
    everybody = _mean_error(EVERYBODY, int(counts.sum()), int(sums.sum()), released.everybody.mean)
    relative = [row.relative for row in rows if row.relative is not None]
    parity = parity_error(relative, everybody.relative)
    return MeanErrors(
        name=mean.name,
        everybody=everybody,
        means=rows,
        groups=len(relative),
        parity_error=parity,
        parity_mean=None if parity is None else parity / len(relative),
        largest=max(relative, default=None),
    )


def table_errors(table: TablePlan, released: ReleasedTable, records: Records) -> TableErrors:
    """A released table beside the true one."""
    true = records.marginal(records.domain.positions(table.config.attributes)).reshape(-1)
    counts = np.array(released.counts, np.int64)
    error = counts - true
    pairs = zip(table.exact_counts(true), table.exact_counts(counts), strict=True)
    return TableErrors(
        name=table.name,
        l1=int(np.abs(error).sum()),
        l2=math.sqrt(int((error**2).sum())),
        exact_held=all((own == other).all() for own, other in pairs),
    )


def _mean_error(stratum: str, records: int, total: int, released: float) -> MeanError:
    truth = total / records if records else None
    error = None if truth is None else released - truth
    relative = None if error is None or not truth else abs(error) / abs(truth)
    return MeanError(
        stratum=stratum,
        records=records,
        truth=truth,
        released=released,
        error=error,
        relative=relative,
    )


def workload_error(
    true: Records, released: Records, order: int
) -> tuple[list[WorkloadError], list[str]]:
    """Mean L1 distance of the shares of all marginals of one order; or why it was left out."""
    n_attributes = len(true.domain.sizes)
    n_marginals = math.comb(n_attributes, order)
    if n_marginals * max(len(true.codes), len(released.codes)) > _MOST_WORK:
        return [], [f"{n_marginals} marginals of {order} attributes: too many to compare"]
    sizes = true.domain.sizes
    compared = (
        attributes
        for attributes in itertools.combinations(range(n_attributes), order)
        if math.prod(sizes[i] for i in attributes) <= _MOST_CELLS
    )
    distances = distances_of(true.codes, released.codes, sizes, compared)
    left_out = n_marginals - len(distances)
    notes = [f"{left_out} marginals of {order} attributes: too large to compare"] * bool(left_out)
    if not distances:
        return [], notes
    worst = max(distances, key=lambda attributes: distances[attributes])
    error = WorkloadError(
        order=order,
        marginals=len(distances),
        mean_l1=math.fsum(distances.values()) / len(distances),
        largest_l1=distances[worst],
        worst=tuple(true.domain.names[i] for i in worst),
    )
    return [error], notes
