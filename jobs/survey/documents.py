"""Released and confidential documents of a survey run: means, tables, manifest, evaluation."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from jobs.pipeline.documents.document import ExactText, document, read_document
from jobs.pipeline.documents.manifest import Attribute, ReleaseManifest
from jobs.pipeline.storage.place import Place

SOLVED = "run `das run` first; if the release was finalized, restore it from a copy"


@document
class StratumMean:
    """Released mean of one stratum, or of all records.

    Attributes:
      stratum: Labels of the levels, joined by ` * `; or `pooled` (small strata), `everybody` (all).
      weight: Public share of the population; a fraction.
      size: Public number of records, by which the noisy sum was divided.
      mean: The released mean.
      standard_error: From noise and sampling together; sampling by the public standard deviation.
      noise_sd: Standard deviation of the noise alone.
      low: Lower end of the confidence interval for the mean of the population.
      high: Upper end of that interval.
      outside: Whether the noisy mean lies outside the interval of the previous step, which means
        that a public bound or the public standard deviation is wrong.
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
    """Released means of one numeric attribute.

    Attributes:
      name: Name of the statistic.
      attribute: The averaged attribute.
      method: `coinpress` or `clipped`.
      confidence: Confidence level of each interval.
      spread: Public standard deviation within strata, which sets the clipping bounds.
      shrunk: Whether means of strata were shrunk toward a common mean.
      strata: Attributes whose combinations are the strata.
      pooled: Names of the strata that were pooled because their public sizes are small.
      everybody: Mean of the population, weighted by the public weights.
      means: One mean per stratum.
      warnings: Contradictions between noisy answers and public bounds or standard deviation.
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

    @property
    def rows(self) -> tuple[StratumMean, ...]:
        """Return the mean of all records, then the means of strata if there are any."""
        return (self.everybody, *(self.means if self.strata else ()))


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
    """Marginal that is published as counted in the data, without protection.

    Attributes:
      attributes: Attributes of the marginal; none: the number of records.
      counts: One count per combination of levels; the last attribute runs fastest.
    """

    attributes: tuple[str, ...]
    counts: tuple[int, ...]


@document
class ConditionedPromise:
    """Proved privacy guarantee of a table that keeps exact marginals.

    Attributes:
      k: The guarantee compares data sets that agree on the exact marginals and differ in at most k
        records.
      gamma: Constant gamma in the theorem of Gong & Meng; a fraction.
      epsilon: Privacy loss of the noise on the counts for one changed record; a fraction.
      proved: (1 + gamma) k epsilon, the charged privacy loss; a fraction.
    """

    k: int
    gamma: ExactText
    epsilon: ExactText
    proved: ExactText


@document
class ReleasedTable:
    """Released table of counts that keeps exact marginals.

    Attributes:
      name: Name of the table.
      attributes: Attributes of the table.
      levels: Labels of the levels of each attribute.
      method: `conditioned`: the distribution of two-sided geometric noise on every count,
        conditional on the exact marginals and on nonnegative counts.
      scale: Scale of that noise; a fraction.
      promise: The proved privacy guarantee.
      exact: Marginals that equal those of the data.
      counts: One count per combination of levels; the last attribute runs fastest.
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
    """The released tables of a survey; `tables/NAME.csv` repeats the counts of table NAME.

    Attributes:
      format: 1.
      name: Name of the run.
      tables: One per table of the run file.
    """

    format: Literal[1]
    name: str
    tables: tuple[ReleasedTable, ...]


@document
class ReleasedMarginal:
    """Unbiased noisy table of counts in a file, with a form that has no negative count.

    Attributes:
      name: Its attributes, joined by ` * `; or `total`.
      file: CSV file in the release: a column per attribute, then estimate, standard error, ends of
        the interval, and if small the nonnegative form and integers. The last attribute runs
        fastest.
      attributes: Attributes of the table.
      answers: Number of answers: rows of the file.
      confidence: Confidence level of each interval.
      root_mean_square_error: Root of the mean variance of the answers; depends on no data.
    """

    name: str
    file: str
    attributes: tuple[str, ...]
    answers: int
    confidence: float
    root_mean_square_error: float


@document
class SurveyMarginals:
    """Unbiased noisy tables of a survey; `das estimate` answers all others that were planned.

    Attributes:
      format: 1.
      name: Name of the run.
      tables: The tables that are written.
    """

    format: Literal[1]
    name: str
    tables: tuple[ReleasedMarginal, ...]


@document
class TablePromise(ConditionedPromise):
    """Privacy guarantee of a table as the manifest states it, with the names of exact marginals.

    Attributes:
      exact: Names of marginals published as counted, without protection; `total` is the number of
        records.
    """

    exact: tuple[str, ...]


@document
class MeasuredPart:
    """Measured part of a survey release: a statistic, a table, the marginals, or the microdata.

    Attributes:
      name: Name of the part; `synthesis` is the microdata, `marginals` all marginals.
      share: Share of the budget; a fraction.
      cost: Privacy loss of the measurements, computed from their noise; a fraction. Strata are
        disjoint, so all strata together cost as much as one. A table costs (1 + gamma) k epsilon,
        with the gamma, k and epsilon of `conditioned`.
      measurements: SHA-256 of the `_manifest.json` of the measurements.
      settings: Settings of the post-processing; other settings cost no budget.
      conditioned: For a table: its guarantee, and the marginals it leaves unprotected.
    """

    name: str
    share: ExactText
    cost: ExactText
    measurements: str
    settings: dict[str, JsonValue]
    conditioned: TablePromise | None = None


@document
class SurveyManifest(ReleaseManifest):
    """Manifest of a survey release; it holds no times of stages that read the data.

    Attributes:
      format: 1.
      kind: `survey`.
      solution: Name of the further solution; null for the release itself.
      spent: Privacy loss of all measured parts; a fraction.
      attributes: Attributes of the microdata; none without microdata.
      parts: Parts that were measured and released in this folder.
      records: Records of the microdata; null without microdata.
      model: Model of the microdata: `mixture`, `tree`, `adaptive` or `gem`; left out without
        microdata.
      strata: Attributes whose combinations were measured separately for the microdata; left out if
        there are none.
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
    """Error of one released mean against the data.

    Attributes:
      stratum: Name of the stratum.
      records: True number of records with a value.
      truth: Mean of these records; null without records.
      released: The released mean.
      error: Released minus true mean; null without records.
      relative: |error| / |truth|; null without records, or if the true mean is zero.
    """

    stratum: str
    records: int
    truth: float | None
    released: float
    error: float | None
    relative: float | None


@document
class MeanErrors:
    """Errors of all released means of one statistic against the data.

    Attributes:
      name: Name of the statistic.
      everybody: Error of the mean of all records. It includes the difference between the public
        weights and the shares of strata in the file.
      means: Errors of the means of strata.
      groups: k, the number of strata with a relative error.
      parity_error: Definition 11 of Rosenblatt, Stoyanovich & Musco: the sum over strata of
        |relative error of the stratum - relative error of all records|; null if k = 0.
      parity_mean: `parity_error` divided by k.
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
      order: Number of attributes per marginal.
      marginals: Number of marginals.
      mean_l1: Mean over marginals of the sum over cells of |released share - true share|; 0 to 2.
      largest_l1: Largest such sum of a marginal.
      worst: Attributes of the marginal with the largest sum.
    """

    order: int
    marginals: int
    mean_l1: float
    largest_l1: float
    worst: tuple[str, ...]


@document
class GroupError:
    """Error of the one-way tables of one group in the microdata.

    Attributes:
      group: Labels of the group, joined by ` * `.
      records: True number of records.
      released: Released number of records.
      relative: Sum of |released - true| over all cells of the one-way tables, divided by the sum of
        the true counts; null without records.
    """

    group: str
    records: int
    released: int
    relative: float | None


@document
class Disparity:
    """Error of the share of one level within one group.

    Attributes:
      group: Labels of the group, joined by ` * `.
      attribute: An attribute that does not define the group.
      level: A level of that attribute.
      truth: True share of the level among the records of the group.
      released: Released share of the level.
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
    """Parity of the microdata over the groups of one set of attributes.

    Attributes:
      attributes: Attributes whose combinations are the groups.
      groups: One error per group.
      compared: k, the number of groups with a relative error.
      parity_error: Definition 11 of Rosenblatt, Stoyanovich & Musco; null if k = 0.
      parity_mean: `parity_error` divided by k.
      shares: Number of compared shares: levels in groups with at least `floor` true records.
      max_disparity: The share with the largest relative error; null if none is compared.
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
    """Predictions of a classifier for one group of true records.

    Attributes:
      group: Labels of the group, joined by ` * `.
      records: Number of true records.
      positive: Number of truly positive records.
      predicted: Number of records predicted to be positive.
      missed: Number of truly positive records predicted to be negative.
      false_negative_rate: `missed` / `positive`; null with fewer than `floor` positive records.
    """

    group: str
    records: int
    positive: int
    predicted: int
    missed: int
    false_negative_rate: float | None


@document
class PredictionParity:
    """Parity of the predictions of a classifier over groups.

    Attributes:
      attributes: Attributes whose combinations are the groups.
      groups: Groups with at least `floor` true records.
      left_out: Names of smaller groups.
      demographic_parity_ratio: Smallest over largest share of positive predictions among groups; 1
        is parity. Null without groups or without positive predictions.
      false_negative_rate_difference: Largest minus smallest false negative rate among groups that
        have one; 0 is parity. Null if no group has one.
    """

    attributes: tuple[str, ...]
    groups: tuple[GroupPrediction, ...]
    left_out: tuple[str, ...]
    demographic_parity_ratio: float | None
    false_negative_rate_difference: float | None


@document
class ClassifierErrors:
    """Accuracy and parity of one classifier, tested on the true records.

    Attributes:
      trained_on: `release`: the microdata; `truth`: the true records, for comparison.
      records: Number of training records.
      positive: Number of positive training records.
      correct: Number of true records predicted correctly.
      accuracy: Share of true records predicted correctly.
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
    """Classifiers that predict some levels of an attribute, trained on microdata and on truth.

    The test records are those the release was made from; none were held out.

    Attributes:
      attribute: Predicted attribute.
      levels: Levels that count as positive.
      features: Attributes used for the prediction.
      positive: Number of truly positive records.
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
    """Error of one released table against the data.

    Attributes:
      name: Name of the table.
      l1: Sum over cells of |released - true|.
      l2: Square root of the sum over cells of (released - true)^2.
      exact_held: Whether the exact marginals are those of the data.
    """

    name: str
    l1: int
    l2: float
    exact_held: bool


@document
class MarginalErrors:
    """Errors of one written marginal against the data.

    Attributes:
      name: Name of the table.
      root_mean_square_error: Root of the mean over answers of (estimate - truth)^2.
      expected: The same as the noise alone predicts.
      covered: Share of the answers whose interval holds the truth.
      nonnegative: As `root_mean_square_error`, of the column `nonnegative`; null without it.
      integer: The same of the column `integer`.
    """

    name: str
    root_mean_square_error: float
    expected: float
    covered: float
    nonnegative: float | None
    integer: float | None = None


@document
class SurveyEvaluation:
    """Comparison of a survey release with the data; confidential.

    Attributes:
      format: 1.
      name: Name of the run.
      records: True number of records.
      means: Errors of each released statistic.
      marginals: Errors of the marginals of the microdata by order; none without microdata.
      floor: Shares of groups with fewer true records are not compared.
      groups: Errors of the microdata for each set of strata of the statistics and of
        `evaluate.groups`.
      predictions: Classifiers of `evaluate.predict`.
      notes: Comparisons that were left out, with the reason.
      tables: Errors of each released table; absent without tables.
      written: Errors of each written marginal; absent without `marginals`.
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
    written: tuple[MarginalErrors, ...] = ()


def read_survey_manifest(path: Place) -> SurveyManifest:
    """Read the manifest of a survey release.

    Raises:
      OutputError: The release is not finalized, or the manifest is damaged or of another format.
    """
    return read_document(SurveyManifest, path, remedy=SOLVED)
