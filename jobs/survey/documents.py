"""Documents of a survey run: its means, its manifest, and its evaluation, which is confidential."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from jobs.pipeline.documents.document import ExactText, document, read_document
from jobs.pipeline.documents.manifest import Attribute, ReleaseManifest
from jobs.pipeline.storage.place import Place

SOLVED = "run `das run` first; if it was finalized, restore it from a copy"


@document
class StratumMean:
    """A released mean.

    Attributes:
      stratum: Labels of its levels, joined by ` * `; `pooled` of small strata, `everybody` of all.
      weight: Its public share of the population; a fraction.
      size: Public number of records, by which the noisy sum was divided.
      mean: The mean.
      standard_error: Of noise and sampling together; sampling by the public spread.
      noise_sd: Standard deviation of the noise alone.
      low: Lower end of an interval for the mean of the population.
      high: Its upper end.
      outside: Whether the noisy mean lies outside of what the step before left possible: a bound or
        the spread is wrong.
    """

    stratum: str
    weight: ExactText
    size: int
    mean: float
    standard_error: float
    noise_sd: float
    low: float
    high: float
    outside: bool


@document
class ReleasedMean:
    """The means of a numeric attribute.

    Attributes:
      name: What the statistic is called.
      attribute: The attribute.
      method: `coinpress` or `clipped`.
      confidence: Of each interval.
      spread: Public standard deviation that clipping supposes.
      shrunk: Whether means of strata were drawn together.
      strata: Attributes whose combinations are the strata.
      pooled: Strata that were pooled, by their public sizes.
      everybody: The mean of all, by the public weights.
      means: One per stratum.
      warnings: What the noisy answers say against the public bounds or the spread.
    """

    name: str
    attribute: str
    method: str
    confidence: float
    spread: float
    shrunk: bool
    strata: tuple[str, ...]
    pooled: tuple[str, ...]
    everybody: StratumMean
    means: tuple[StratumMean, ...]
    warnings: tuple[str, ...]


@document
class MeansTable:
    """The released means of a survey; `means.csv` has the same rows.

    Attributes:
      format: 1.
      name: Name of the run.
      statistics: One per mean of the run file.
    """

    format: Literal[1]
    name: str
    statistics: tuple[ReleasedMean, ...]


@document
class ExactMarginal:
    """A marginal that is published as it is in the data: nothing of it is protected.

    Attributes:
      attributes: Whose levels it counts; none: the number of records.
      counts: One per combination of levels, the last attribute running fastest.
    """

    attributes: tuple[str, ...]
    counts: tuple[int, ...]


@document
class ConditionedPromise:
    """What is proved of a table that keeps exact marginals.

    Attributes:
      k: Two data sets are compared that agree on the exact marginals and differ in k records at
        most.
      gamma: Of the theorem of Gong & Meng; a fraction.
      epsilon: What the noise on the counts costs for one changed record; a fraction.
      proved: (1 + gamma) k epsilon, which is charged; a fraction.
    """

    k: int
    gamma: ExactText
    epsilon: ExactText
    proved: ExactText


@document
class ReleasedTable:
    """A table of counts that keeps its exact marginals.

    Attributes:
      name: What it is called.
      attributes: Its attributes.
      levels: Labels of the levels of each.
      method: `conditioned`: drawn with the law of two-sided geometric noise on every count, given
        the exact marginals and that no count is negative.
      scale: Of that noise; a fraction.
      promise: What is proved.
      exact: Its marginals that are those of the data.
      counts: One per combination of levels, the last attribute running fastest.
    """

    name: str
    attributes: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    method: str
    scale: ExactText
    promise: ConditionedPromise
    exact: tuple[ExactMarginal, ...]
    counts: tuple[int, ...]


@document
class SurveyTables:
    """The released tables of a survey; `tables/NAME.csv` has the counts of each.

    Attributes:
      format: 1.
      name: Name of the run.
      tables: One per table of the run file.
    """

    format: Literal[1]
    name: str
    tables: tuple[ReleasedTable, ...]


@document
class TablePromise(ConditionedPromise):
    """What the manifest says of a table.

    Attributes:
      exact: Marginals that are published as they are, without protection; `total` is the number of
        records.
    """

    exact: tuple[str, ...]


@document
class MeasuredPart:
    """A statistic, a table, or the microdata.

    Attributes:
      name: Its name; `synthesis` is the microdata.
      share: Of the budget; a fraction.
      cost: What its measurements cost by their noise; a fraction. Strata are disjoint, so all of
        them cost what one does. Of a table it is (1 + gamma) k epsilon.
      measurements: SHA-256 of the `_manifest.json` of its measurements.
      settings: What was made of them is made with, and may be made otherwise at no cost.
      conditioned: Of a table: what is proved of it, and what it leaves unprotected.
    """

    name: str
    share: ExactText
    cost: ExactText
    measurements: str
    settings: dict[str, JsonValue]
    conditioned: TablePromise | None = None


@document
class SurveyManifest(ReleaseManifest):
    """What was released of a survey. No times of stages that see the truth.

    Attributes:
      format: 1.
      kind: `survey`.
      solution: Name of a solution beside the release; null of the release.
      spent: What all measured parts cost; a fraction.
      attributes: Attributes of the microdata; none without microdata.
      parts: What was measured, and released in this folder.
      records: Records of the microdata; null without microdata.
      model: What the microdata were drawn from: `mixture`, `tree` or `adaptive`; left out without
        microdata, and in older manifests.
      strata: Attributes whose combinations were measured apart for the microdata; left out if none
        were.
    """

    format: Literal[1]
    kind: Literal["survey"]
    solution: str | None
    spent: ExactText
    attributes: tuple[Attribute, ...]
    parts: tuple[MeasuredPart, ...]
    records: int | None
    model: str | None = None
    strata: tuple[str, ...] = ()


@document
class MeanError:
    """A released mean beside the true one.

    Attributes:
      stratum: The stratum.
      records: Its true number of records with a value.
      truth: Their mean, null of no records.
      released: The released mean.
      error: Released minus true; null likewise.
      relative: |error| / |truth|; null of no records or a mean of zero.
    """

    stratum: str
    records: int
    truth: float | None
    released: float
    error: float | None
    relative: float | None


@document
class MeanErrors:
    """The means of a statistic beside the true ones.

    Attributes:
      name: The statistic.
      everybody: Of all records. Its weights are public, so it errs also by what they differ from
        the shares of strata in the file.
      means: One per stratum.
      groups: k, strata with a relative error.
      parity_error: Definition 11 of Rosenblatt, Stoyanovich & Musco: the sum of relative errors
        over strata, and that of everybody over k; null if k = 0.
      parity_mean: The same over k.
      largest: Largest relative error of a stratum.
    """

    name: str
    everybody: MeanError
    means: tuple[MeanError, ...]
    groups: int
    parity_error: float | None
    parity_mean: float | None
    largest: float | None


@document
class WorkloadError:
    """Error of all marginals of one order in the microdata.

    Attributes:
      order: Attributes of each.
      marginals: How many there are.
      mean_l1: Mean over them of the sum over cells of |share released - share true|; 0 to 2.
      largest_l1: The largest.
      worst: Attributes of that one.
    """

    order: int
    marginals: int
    mean_l1: float
    largest_l1: float
    worst: tuple[str, ...]


@document
class GroupError:
    """How well the one-way tables of a group come out in the microdata.

    Attributes:
      group: Labels of its levels.
      records: True number of records.
      released: Released number.
      relative: Sum of |released - true| over all cells of its one-way tables, over their sum; null
        of no records.
    """

    group: str
    records: int
    released: int
    relative: float | None


@document
class Disparity:
    """A share of a group that comes out wrong.

    Attributes:
      group: The group.
      attribute: An attribute that is none of those of the group.
      level: One of its levels.
      truth: Its true share of the records of the group.
      released: Its share of the released ones.
      relative: |released - truth| / truth.
    """

    group: str
    attribute: str
    level: str
    truth: float
    released: float
    relative: float


@document
class GroupErrors:
    """Parity of the microdata over groups of the run file.

    Attributes:
      attributes: Whose combinations the groups are.
      groups: One per combination.
      compared: k, groups with a relative error.
      parity_error: Definition 11; null if k = 0.
      parity_mean: The same over k.
      shares: Shares of levels in groups, of `floor` true records or more.
      max_disparity: The largest relative error of them; null if there are none.
    """

    attributes: tuple[str, ...]
    groups: tuple[GroupError, ...]
    compared: int
    parity_error: float | None
    parity_mean: float | None
    shares: int
    max_disparity: Disparity | None


@document
class GroupPrediction:
    """What a classifier says of a group of true records.

    Attributes:
      group: Labels of its levels.
      records: How many there are.
      positive: How many are truly positive.
      predicted: Of how many it says so.
      missed: Of how many truly positive ones it does not.
      false_negative_rate: `missed` over `positive`; null of fewer than `floor` positive ones.
    """

    group: str
    records: int
    positive: int
    predicted: int
    missed: int
    false_negative_rate: float | None


@document
class PredictionParity:
    """What a classifier does to groups.

    Attributes:
      attributes: Whose combinations the groups are.
      groups: Those of `floor` true records or more.
      left_out: Names of the other ones.
      demographic_parity_ratio: Smallest over largest share of positive predictions among groups; 1
        is parity. Null if nobody is predicted to be positive, or there is no group.
      false_negative_rate_difference: Largest less smallest false negative rate among groups that
        have one; 0 is parity. Null if none has.
    """

    attributes: tuple[str, ...]
    groups: tuple[GroupPrediction, ...]
    left_out: tuple[str, ...]
    demographic_parity_ratio: float | None
    false_negative_rate_difference: float | None


@document
class ClassifierErrors:
    """A classifier, tested on the true records.

    Attributes:
      trained_on: `release`: the microdata. `truth`: the true records, which is what can be reached.
      records: Of those it was trained on.
      positive: How many of them are positive.
      correct: True records that it predicts correctly.
      accuracy: The same as a share.
      parity: One per set of attributes of `evaluate.groups`.
    """

    trained_on: Literal["release", "truth"]
    records: int
    positive: int
    correct: int
    accuracy: float
    parity: tuple[PredictionParity, ...]


@document
class Predictions:
    """What a use of the microdata does: whether a record has some levels, by other attributes.

    The records that test are those the release was made of: none were held out.

    Attributes:
      attribute: What is predicted.
      levels: Those that count as positive.
      features: By what it is predicted.
      positive: True records that are positive.
      majority_accuracy: Accuracy of the more frequent answer, without any classifier.
      classifiers: One trained on the release, then one trained on the truth.
    """

    attribute: str
    levels: tuple[str, ...]
    features: tuple[str, ...]
    positive: int
    majority_accuracy: float
    classifiers: tuple[ClassifierErrors, ...]


@document
class TableErrors:
    """A released table beside the true one.

    Attributes:
      name: The table.
      l1: Sum over cells of |released - true|.
      l2: Root of the sum of squares.
      exact_held: Whether the exact marginals are those of the data.
    """

    name: str
    l1: int
    l2: float
    exact_held: bool


@document
class SurveyEvaluation:
    """A survey release against the truth. Confidential.

    Attributes:
      format: 1.
      name: Name of the run.
      records: True number of records.
      means: One per statistic that was released.
      marginals: One per order, of the microdata; none without them.
      floor: True records below which a share of a group is not compared.
      groups: One per set of strata of the statistics and of `evaluate.groups`, of the microdata.
      predictions: Of `evaluate.predict`, of the microdata.
      notes: What was left out, and why.
      tables: One per table that was released; absent without tables.
    """

    format: Literal[1]
    name: str
    records: int
    means: tuple[MeanErrors, ...]
    marginals: tuple[WorkloadError, ...]
    floor: int
    groups: tuple[GroupErrors, ...]
    predictions: Predictions | None
    notes: tuple[str, ...]
    tables: tuple[TableErrors, ...] = ()


def read_survey_manifest(path: Place) -> SurveyManifest:
    """The manifest of a survey release.

    Raises:
      OutputError: It is not finalized, or the manifest is damaged or of another format.
    """
    return read_document(SurveyManifest, path, remedy=SOLVED)
