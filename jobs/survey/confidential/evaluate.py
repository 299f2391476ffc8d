"""Comparison of a survey release with the data: means, tables, marginals, parity; confidential."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from das.arrays import BoolArray, IntArray
from das.confidential import Confidential, redact_errors
from das.metrics.classifier import train
from das.metrics.microdata import (
    demographic_parity_ratio,
    disparities,
    distances_of,
    false_negative_rate_difference,
)
from das.metrics.parity import parity_error, parity_of
from das.synthesis.records import Records
from jobs.pipeline.confidential.parity import number
from jobs.pipeline.documents.document import write_document
from jobs.survey.checks import POPULATION, predict_features, stratum_name
from jobs.survey.confidential.read import SurveyTruth
from jobs.survey.documents import (
    ClassifierErrors,
    Disparity,
    GroupError,
    GroupErrors,
    GroupPrediction,
    MarginalErrors,
    MeanError,
    MeanErrors,
    PredictionParity,
    Predictions,
    ReleasedMean,
    ReleasedTable,
    SurveyEvaluation,
    TableErrors,
    WorkloadError,
    read_survey_manifest,
)
from jobs.survey.marginals import INTEGER, NONNEGATIVE
from jobs.survey.plan import MeanPlan, SurveyPlan, TablePlan
from jobs.survey.results import read_microdata, read_results, written_tables

_HIGHEST_ORDER = 3  # attributes of compared marginals; default, not measured
_MOST_WORK = 2_000_000_000  # records times marginals of one order; some 30 s
_MOST_CELLS = 1 << 22  # of one marginal; default, not measured


@redact_errors
def evaluate(plan: SurveyPlan, truth: Confidential[SurveyTruth]) -> SurveyEvaluation:
    """Compare the release with the data, and write the confidential evaluation.

    Raises:
      OutputError: The run has no release, or the evaluation cannot be written.
    """
    data, made = truth.reveal(), plan.made
    means, tables, _ = read_results(made)
    of_means = zip(plan.means, () if means is None else means.statistics, strict=True)
    of_tables = zip(plan.tables, () if tables is None else tables.tables, strict=True)
    of_microdata: dict[str, Any] = {"marginals": (), "groups": (), "predictions": None, "notes": ()}
    if read_survey_manifest(made.manifest).records is not None:
        of_microdata = _microdata_errors(plan, data)
    evaluation = SurveyEvaluation(
        format=1,
        name=plan.config.name,
        records=len(data.records.codes),
        means=tuple(mean_errors(mean, released, data) for mean, released in of_means),
        floor=plan.config.evaluate.floor,
        tables=tuple(table_errors(table, released, data.records) for table, released in of_tables),
        written=() if plan.marginals is None else tuple(marginal_errors(plan, data.records)),
        **of_microdata,
    )
    write_document(plan.confidential.evaluation, evaluation)
    return evaluation


def _microdata_errors(plan: SurveyPlan, data: SurveyTruth) -> dict[str, Any]:
    """Compute the fields of the evaluation that describe the microdata."""
    microdata = read_microdata(plan)
    names = microdata.domain.names
    true = data.records.only(names)
    orders = range(1, min(_HIGHEST_ORDER, len(names)) + 1)
    errors = [workload_error(true, microdata, order) for order in orders]
    strata = (tuple(mean.config.stratify_by) for mean in plan.means)
    groups = dict.fromkeys((*strata, *map(tuple, plan.config.evaluate.groups)))
    return {
        "marginals": tuple(error for of_order, _ in errors for error in of_order),
        "groups": tuple(
            group_errors(plan, group, true, microdata)
            for group in groups
            if group and {*group} <= {*names}
        ),
        "predictions": predict(plan, true, microdata),
        "notes": tuple(note for _, notes in errors for note in notes),
    }


def mean_errors(mean: MeanPlan, released: ReleasedMean, data: SurveyTruth) -> MeanErrors:
    """Compare the released means of a statistic with the true ones, which are not clipped."""
    values = data.values(mean)
    counts = np.bincount(values.strata, minlength=values.n_strata)
    sums = np.zeros(values.n_strata, np.int64)
    np.add.at(sums, values.strata, values.values)
    rows = tuple(
        _mean_error(row.stratum, int(counts[i]), int(sums[i]), row.mean)
        for i, row in enumerate(released.means)
    )
    population = _mean_error(
        POPULATION, int(counts.sum()), int(sums.sum()), released.everybody.mean
    )
    relative = [row.relative for row in rows if row.relative is not None]
    parity = parity_error(np.array(relative), population.relative or 0.0) if relative else None
    return MeanErrors(
        name=mean.name,
        everybody=population,
        means=rows,
        groups=len(relative),
        parity_error=parity,
        parity_mean=None if parity is None else parity / len(relative),
        largest=max(relative, default=None),
    )


def marginal_errors(plan: SurveyPlan, records: Records) -> Iterator[MarginalErrors]:
    """Yield the errors of every written marginal, with those that the noise predicts."""
    for query, released, table in written_tables(plan):
        truth = records.answer(query)
        numbers = {name: table[name].to_numpy() for name in table.column_names[len(query.kept) :]}
        errors = {
            name: math.sqrt(((numbers[name] - truth) ** 2).mean())
            for name in ("estimate", NONNEGATIVE, INTEGER)
            if name in numbers
        }
        covered = (numbers["lower"] <= truth) & (truth <= numbers["upper"])
        yield MarginalErrors(
            name=query.name,
            root_mean_square_error=errors["estimate"],
            expected=released.root_mean_square_error,
            covered=float(covered.mean()),
            nonnegative=errors.get(NONNEGATIVE),
            integer=errors.get(INTEGER),
        )


def table_errors(table: TablePlan, released: ReleasedTable, records: Records) -> TableErrors:
    """Compute L1 and L2 error of a released table, and check its exact marginals."""
    true = records.marginal(records.domain.positions(table.config.attributes)).reshape(-1)
    counts = np.array(released.counts, np.int64)
    error = counts - true
    pairs = zip(table.exact_counts(true), table.exact_counts(counts), strict=True)
    return TableErrors(
        name=table.name,
        l1=int(np.abs(error).sum()),
        l2=math.sqrt(int((error**2).sum())),
        exact_held=all((want == got).all() for want, got in pairs),
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
    """Return the mean L1 distance of the marginals, and notes about marginals left out.

    Args:
      true: Records of the data.
      released: Records of the released microdata.
      order: Number of attributes of a marginal.
    """
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


def group_errors(
    plan: SurveyPlan, attributes: Sequence[str], true: Records, released: Records
) -> GroupErrors:
    """Compute errors of the one-way tables of groups, their parity, and the worst share."""
    inside, names = true.domain.positions(attributes), group_names(plan, attributes)
    tables = [[other] for other in range(len(true.domain.sizes)) if other not in inside] or [[]]
    absolute, persons = np.zeros((2, len(names)), np.int64)
    shares = []
    for table in tables:
        want, got = (counts_by_group(records, inside, table) for records in (true, released))
        absolute += np.abs(got - want).sum(1)
        persons += want.sum(1)
        for attribute in (true.domain.names[i] for i in table):
            shares.append(_worst_share(plan, attribute, names, want, got))
    parity = parity_of(absolute, persons, int(absolute.sum()))
    counts = [counts_by_group(records, inside, []).sum(1) for records in (true, released)]
    return GroupErrors(
        attributes=tuple(attributes),
        groups=tuple(
            GroupError(
                group=name,
                records=int(counts[0][i]),
                released=int(counts[1][i]),
                relative=number(float(parity.relative[i])),
            )
            for i, name in enumerate(names)
        ),
        compared=parity.n_groups,
        parity_error=number(parity.error),
        parity_mean=number(parity.mean),
        shares=sum(n_compared for n_compared, _ in shares),
        max_disparity=max(
            (worst for _, worst in shares if worst), key=lambda worst: worst.relative, default=None
        ),
    )


def _worst_share(
    plan: SurveyPlan, attribute: str, names: list[str], want: IntArray, got: IntArray
) -> tuple[int, Disparity | None]:
    """Count the compared shares, and find the share with the largest relative error.

    Args:
      plan: Plan of the survey.
      attribute: Attribute whose levels have shares in every group.
      names: Names of the groups.
      want: int64[groups, levels], true records.
      got: int64[groups, levels], released records.
    """
    truth, released = (n / np.maximum(1, n.sum(1, keepdims=True)) for n in (want, got))
    truth[want < plan.config.evaluate.floor] = np.nan
    relative = disparities(truth, released)
    spot = np.unravel_index(np.argmax(np.nan_to_num(relative, nan=-1.0)), relative.shape)
    if np.isnan(relative[spot]):
        return 0, None
    worst = Disparity(
        group=names[spot[0]],
        attribute=attribute,
        level=plan.levels(attribute)[spot[1]],
        truth=float(truth[spot]),
        released=float(released[spot]),
        relative=float(relative[spot]),
    )
    return int(np.isfinite(relative).sum()), worst


def group_names(plan: SurveyPlan, attributes: Sequence[str]) -> list[str]:
    """Return the names of all combinations of levels; the last attribute runs fastest."""
    return [
        stratum_name(labels)
        for labels in itertools.product(*(plan.levels(name) for name in attributes))
    ]


def counts_by_group(records: Records, inside: Sequence[int], table: Sequence[int]) -> IntArray:
    """Return int64[groups, cells], the counts of a table in every group.

    Args:
      records: The records.
      inside: Positions of the attributes whose combinations of levels are the groups.
      table: Positions of the attributes of the table.
    """
    groups = math.prod(records.domain.sizes[i] for i in inside)
    return records.marginal([*inside, *table]).reshape(groups, -1)


def predict(plan: SurveyPlan, true: Records, released: Records) -> Predictions | None:
    """Train one classifier on the microdata and one on the data, and test both on the data.

    Args:
      plan: The plan of the run.
      true: The true records, with the attributes of the microdata.
      released: The microdata.

    Returns:
      Accuracy and parity of both; None if the run file has no `evaluate.predict`.
    """
    settings = plan.config.evaluate.predict
    if settings is None:
        return None
    features = predict_features(settings, true.domain.names)
    columns = true.domain.positions(features)
    (target,) = true.domain.positions([settings.attribute])
    is_positive = np.isin(np.array(plan.levels(settings.attribute)), settings.levels)
    sizes = [true.domain.sizes[i] for i in columns]
    actual = is_positive[true.codes[:, target]]
    trained: list[tuple[Literal["release", "truth"], Records]] = [
        ("release", released),
        ("truth", true),
    ]
    classifiers = []
    for trained_on, records in trained:
        flags = is_positive[records.codes[:, target]]
        classifier = train(records.codes[:, columns], sizes, flags)
        predicted = classifier.predict(true.codes[:, columns])
        correct = int((predicted == actual).sum())
        classifiers.append(
            ClassifierErrors(
                trained_on=trained_on,
                records=len(flags),
                positive=int(flags.sum()),
                correct=correct,
                accuracy=correct / max(1, len(actual)),
                parity=tuple(
                    _parity(plan, attributes, true, actual, predicted)
                    for attributes in plan.config.evaluate.groups
                ),
            )
        )
    positive = int(actual.sum())
    return Predictions(
        attribute=settings.attribute,
        levels=tuple(settings.levels),
        features=tuple(features),
        positive=positive,
        majority_accuracy=max(positive, len(actual) - positive) / max(1, len(actual)),
        classifiers=tuple(classifiers),
    )


def _parity(
    plan: SurveyPlan,
    attributes: Sequence[str],
    true: Records,
    actual: BoolArray,
    predicted: BoolArray,
) -> PredictionParity:
    """Compute the parity of predictions over groups with enough true records."""
    floor, names = plan.config.evaluate.floor, group_names(plan, attributes)
    inside = true.domain.positions(attributes)
    groups = np.ravel_multi_index(
        tuple(true.codes[:, i] for i in inside), tuple(true.domain.sizes[i] for i in inside)
    ).astype(np.int64)

    def counts(flags: BoolArray) -> IntArray:
        return np.bincount(groups[flags], minlength=len(names))

    records, positive = counts(np.ones(len(groups), bool)), counts(actual)
    predicted_positive, missed = counts(predicted), counts(actual & ~predicted)
    has_share, has_rate = records >= floor, positive >= floor
    kept, rated = has_share[groups], has_rate[groups]
    return PredictionParity(
        attributes=tuple(attributes),
        groups=tuple(
            GroupPrediction(
                group=names[i],
                records=int(records[i]),
                positive=int(positive[i]),
                predicted=int(predicted_positive[i]),
                missed=int(missed[i]),
                false_negative_rate=float(missed[i] / positive[i]) if has_rate[i] else None,
            )
            for i in np.flatnonzero(has_share)
        ),
        left_out=tuple(names[i] for i in np.flatnonzero(~has_share)),
        demographic_parity_ratio=number(demographic_parity_ratio(predicted[kept], groups[kept])),
        false_negative_rate_difference=number(
            false_negative_rate_difference(actual[rated], predicted[rated], groups[rated])
        ),
    )
