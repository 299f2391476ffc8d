"""Compare a survey release with the truth: means, tables, marginals, parity. Confidential."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from das.confidential import Confidential, redact_errors
from das.metrics.microdata import distances_of
from das.metrics.parity import parity_error
from das.synthesis.records import Records
from jobs.pipeline.documents.document import write_document
from jobs.survey.checks import EVERYBODY
from jobs.survey.confidential.groups import group_errors
from jobs.survey.confidential.predict import predict
from jobs.survey.confidential.read import SurveyTruth
from jobs.survey.documents import (
    MeanError,
    MeanErrors,
    ReleasedMean,
    ReleasedTable,
    SurveyEvaluation,
    TableErrors,
    WorkloadError,
    read_survey_manifest,
)
from jobs.survey.microdata import read_microdata
from jobs.survey.plan import MeanPlan, SurveyPlan
from jobs.survey.results import read_results
from jobs.survey.table_plan import TablePlan

_HIGHEST_ORDER = 3
_MOST_WORK = 2_000_000_000  # records times marginals of one order; some 30 s
_MOST_CELLS = 1 << 22  # of one marginal


@redact_errors
def evaluate(plan: SurveyPlan, truth: Confidential[SurveyTruth]) -> SurveyEvaluation:
    """Compare what was released with the truth, and write the confidential evaluation.

    Raises:
      OutputError: Nothing was released, or it cannot be written.
    """
    data, made = truth.reveal(), plan.made
    means, tables = read_results(made)
    # Older versions released what was measured so far, which is what the plan has first.
    of_means = zip(plan.means, () if means is None else means.statistics, strict=False)
    of_tables = zip(plan.tables, () if tables is None else tables.tables, strict=False)
    found: dict[str, Any] = {"marginals": (), "groups": (), "predictions": None, "notes": ()}
    if read_survey_manifest(made.manifest).records is not None:
        found = _microdata_errors(plan, data)
    evaluation = SurveyEvaluation(
        format=1,
        name=plan.config.name,
        records=len(data.records.codes),
        means=tuple(mean_errors(mean, own, data) for mean, own in of_means),
        floor=plan.config.evaluate.floor,
        tables=tuple(table_errors(table, own, data.records) for table, own in of_tables),
        **found,
    )
    write_document(plan.confidential.evaluation, evaluation)
    return evaluation


def _microdata_errors(plan: SurveyPlan, data: SurveyTruth) -> dict[str, Any]:
    """What an evaluation says of the microdata, by key."""
    microdata = read_microdata(plan)
    names = microdata.domain.names
    true = data.records.only(names)
    orders = range(1, min(_HIGHEST_ORDER, len(names)) + 1)
    errors = [workload_error(true, microdata, order) for order in orders]
    strata = (tuple(one.config.strata) for one in plan.means)
    groups = dict.fromkeys((*strata, *map(tuple, plan.config.evaluate.groups)))
    return {
        "marginals": tuple(error for found, _ in errors for error in found),
        "groups": tuple(
            group_errors(plan, group, true, microdata)
            for group in groups
            if group and {*group} <= {*names}
        ),
        "predictions": predict(plan, true, microdata),
        "notes": tuple(note for _, notes in errors for note in notes),
    }


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
    parity = parity_error(np.array(relative), everybody.relative or 0.0) if relative else None
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
