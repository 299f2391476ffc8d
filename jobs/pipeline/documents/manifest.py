"""The manifest of a release: contents, budget, settings and digests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import JsonValue

from das.privacy import attack
from das.privacy.neighborhoods import Comparable
from das.privacy.semantics import Change
from das.rational import float_above
from jobs.pipeline.documents.account import Account, Guarantee
from jobs.pipeline.documents.document import (
    ExactText,
    PathWithin,
    PlainName,
    document,
    read_document,
)
from jobs.pipeline.documents.statistics import ExpectedTotals, LearnedAnswers, SolveStatistics
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import Place

GeounitsSource = Literal["public list", "data"]
NORMAL_90 = 1.6448536269514722  # half width of the central 90 % of a normal distribution, in
# standard deviations


@document
class Software:
    """The software that made the release.

    Attributes:
      name: `topdown-das`.
      version: Version of the software.
      python: Version of Python.
      libraries: Version of each library on which results depend.
      revision: Commit of the source, and whether it was changed; left out if unknown.
    """

    name: str
    version: str
    python: str
    libraries: dict[str, str]
    revision: str | None = None


@document
class Attribute:
    """An attribute of a schema, or of microdata.

    Attributes:
      name: Name of the attribute.
      levels: Levels of the attribute, in order.
    """

    name: str
    levels: tuple[str, ...]


@document
class CountedSchema:
    """The schema of a product.

    Attributes:
      name: Name of the schema.
      cells: Number of cells, which are combinations of levels.
      attributes: Attributes; the last one varies fastest.
    """

    name: str
    cells: int
    attributes: tuple[Attribute, ...]


@document
class Limited:
    """Limits that invariants set to a privacy statement.

    Attributes:
      comparable: Whether all, some or none of the neighbors agree on the invariants.
      limited_by: Names of the exact values that exclude neighbors.
      stays_in: Geolevel whose geounits no record may leave; empty if there is none.
      in_words: The limits as a sentence; empty without limits.
    """

    comparable: Comparable
    limited_by: tuple[str, ...]
    stays_in: str
    in_words: str


@document
class Nearest:
    """The nearest two data sets with equal exact values, and the guarantee between them.

    Attributes:
      records: k, the number of records to change, or to add and remove; null if no two data sets
        agree.
      is_least: Whether k is known to be the distance; otherwise it is a lower bound.
      total: Privacy loss by group privacy: k epsilon, or k^2 rho; a fraction. Null unless
        `is_least`.
      epsilon: Epsilon at delta, rounded up; null unless `is_least`.
      in_words: The same as a sentence.
    """

    records: int | None
    is_least: bool
    total: ExactText | None
    epsilon: float | None
    in_words: str


@document
class AttackRate:
    """Bounds on a test that distinguishes two neighbors, rounded up.

    Attributes:
      false_positive_rate: False positive rate of the test; a fraction.
      true_positive_rate: Upper bound on its true positive rate.
      predictive_value: Upper bound on its positive predictive value, if both neighbors are equally
        likely.
    """

    false_positive_rate: ExactText
    true_positive_rate: float
    predictive_value: float


@document
class Attacks:
    """Bounds on an attacker who must decide from which of two neighbors a release was made.

    Attributes:
      basis: Basis of the bounds: `rho`, `epsilon`, or `noise`, the distribution of the noise.
      advantage: Upper bound on the true positive rate minus the false positive rate.
      rates: Bounds at some false positive rates.
    """

    basis: Literal["rho", "epsilon", "noise"]
    advantage: float
    rates: tuple[AttackRate, ...]


@document
class PublishedGuarantee(Guarantee):
    """The guarantee of a release, the source of its noise, and bounds on attacks.

    Attributes:
      randomness: Source of the noise: `operating_system`, `seeded_not_for_release`, or `elsewhere`
        if the noisy answers are imported.
      mu_gdp: mu of the mu-GDP guarantee of continuous Gaussian noise with the same rho, rounded up;
        left out if pure. It does not hold for discrete noise, but `attacks` does.
      attacks: Bounds on attacks; left out if no neighbors agree on the exact values.
    """

    randomness: str
    mu_gdp: float | None = None
    attacks: Attacks | None = None


@document
class Privacy(PublishedGuarantee):
    """The guarantee of a run of a census.

    Attributes:
      lazy_queries: On-demand queries, whose noise is drawn only for cells with records above.
      neighborhood: Limits that invariants set to the neighboring relation of the run.
      epsilon_by_noise: Epsilon at delta by the distribution of the noise, if the budget was chosen
        by it; a fraction.
      nearest: The nearest data sets with equal exact values; left out if nothing is exact.
    """

    lazy_queries: tuple[str, ...]
    neighborhood: Limited
    epsilon_by_noise: ExactText | None = None
    nearest: Nearest | None = None


@document
class Stated:
    """The cost of a smaller change of a record, ignoring invariants.

    Attributes:
      change: Kind of change between two data sets.
      name: Attribute or geolevel of the change; empty for a whole record.
      total: Cost in the unit of the budget; a fraction, or null without a guarantee.
      epsilon: Epsilon at delta, rounded up; null without a guarantee.
      epsilon_simple: Epsilon by the textbook formula; null without a guarantee.
    """

    change: Change
    name: str
    total: ExactText | None
    epsilon: float | None
    epsilon_simple: float | None


@document
class Statement(Limited, Stated):
    """The cost of a smaller change of a record, and the limits that invariants set."""


@document
class StratumStatements:
    """A stratum of records with separate queries.

    Attributes:
      stratum: Definition of the stratum, such as `race=white`.
      cells: Number of cells of the stratum.
      own: Budget spent on the queries of this stratum along any root-to-leaf path, a fraction.
        Queries of the whole population spend the rest.
      statements: Costs of changes of a record within the stratum. A change into another stratum
        costs the mean of the costs in both strata.
    """

    stratum: str
    cells: int
    own: ExactText
    statements: tuple[Statement, ...]


@document
class BudgetRow:
    """A query measured at a geolevel, for geounits of one kind of chain.

    Attributes:
      geolevel: Geolevel at which the query is measured.
      chain_end: Deepest geolevel reached through only children; `geolevel` for most geounits.
      query: Name of the query.
      stratum: Records that the query counts, such as `race=white`; empty for all records.
      share: Share of the query in the budget of the geolevel; a fraction.
      level_share: Share of the geolevel in the whole budget; a fraction.
      cost: Cost of the query; a fraction.
      charged: `alone`, or `together` with the other queries of a planned strategy, whose costs are
        parts of one joint cost.
      mechanism: Name of the noise distribution.
      parameter: Exact parameter of the noise distribution; a fraction.
      variance: Variance of the noise of one answer.
      answers: Number of answers per geounit.
      geounits: Number of geounits measured in this way.
    """

    geolevel: str
    chain_end: str
    query: str
    stratum: str = ""
    share: ExactText
    level_share: ExactText
    cost: ExactText
    charged: Literal["alone", "together"]
    mechanism: str
    parameter: ExactText
    variance: float
    answers: int
    geounits: int


@document
class ExactQuery:
    """A query that is published without noise.

    Attributes:
      query: Name of the query.
      geolevels: Geolevels at which it is exact.
    """

    query: str
    geolevels: tuple[str, ...]


@document
class Limit:
    """An invariant other than an exact query.

    Attributes:
      kind: `facilities`, `living quarters`, `structural zeros`, `bounded row`, `exact row`, or
        `released before` for counts equal to those of an earlier release.
      name: Name of the invariant.
      geolevels: Geolevels at which it holds; every geolevel if empty.
      types: Counted types of facilities or kinds of living quarters; null for other kinds.
    """

    kind: str
    name: str
    geolevels: tuple[str, ...]
    types: tuple[str, ...] | None = None


@document
class LevelGeography:
    """The geounits of a geolevel.

    Attributes:
      geolevel: Name of the geolevel.
      digits: Length of its geocodes.
      geounits: Number of geounits.
      measured: Number of measured geounits.
      only_children: Number of geounits that are not measured, because they equal their parent.
    """

    geolevel: str
    digits: int
    geounits: int
    measured: int
    only_children: int


@document
class OffSpineLevel:
    """A geolevel of the census geocodes that is not on the spine of the run.

    Attributes:
      geolevel: Name of the geolevel.
      digits: Length of its geocodes.
      geounits: Number of geounits; their counts are sums over leaves.
    """

    geolevel: str
    digits: int
    geounits: int


@document
class _Solved:
    """A solved geolevel, and the time for it.

    Attributes:
      geolevel: Name of the geolevel.
      wall_seconds: Elapsed seconds.
      solve_digest: SHA-256 of the section `solve` of the run file.
    """

    geolevel: str
    wall_seconds: float
    solve_digest: str


@document
class SolvedLevel(SolveStatistics, _Solved):
    """Solver statistics of a geolevel.

    Attributes:
      expected_totals: Use of the housing-unit covariate, if it was requested.
      learned: Use of regressions trained on public counts, if it was requested.
    """

    expected_totals: ExpectedTotals | None = None
    learned: LearnedAnswers | None = None


@document
class Settings:
    """Settings with which counts were made.

    Attributes:
      digest: SHA-256 of the settings.
      settings: Sections `solve` and `output` of the run file, for each product.
    """

    digest: str
    settings: dict[str, JsonValue]


@document
class _Named:
    """The name of a solution.

    Attributes:
      name: Name of the solution; null for the release.
    """

    name: str | None


@document
class Solution(Settings, _Named):
    """The settings with which this solution was made.

    Attributes:
      history: All settings tried in this folder, oldest first.
    """

    history: tuple[Settings, ...]


@document
class OutputColumn:
    """A column of a dataset.

    Attributes:
      name: Name of the column.
      type: Type, in words.
    """

    name: str
    type: str


@document
class Output:
    """A dataset of the release.

    Attributes:
      path: Folder of the dataset.
      files: Number of files.
      rows: Number of rows; rows of a table count once, in any number of formats.
      bytes: Size of all files.
      sha256: Digest of its `_manifest.json`, which has the digests of its files.
      columns: Columns of the dataset.
      labelled: Queries whose labels are in `_manifest.json` or in separate files.
    """

    path: PathWithin
    files: int
    rows: int
    bytes: int
    sha256: str
    columns: tuple[OutputColumn, ...]
    labelled: tuple[str, ...]


@document
class ReleasedFile:
    """A file that is not part of a dataset.

    Attributes:
      path: Path of the file.
      bytes: Size of the file.
      sha256: Digest of the file.
    """

    path: PathWithin
    bytes: int
    sha256: str


@document
class ExpectedAtLevel:
    """Expected errors of the sizes of population groups at a geolevel.

    Attributes:
      geolevel: Name of the geolevel.
      l1: For each group, the expected sum over all geounits of absolute errors of unbiased
        estimates of its size; at most twice its released records.
      everybody: Expected sum of absolute errors of the total, divided by all records; null if the
        total was not estimated or is below the floor.
      k: Number of groups that reach the floor.
      parity: Expected parity error, as in `evaluation.json`; null without `everybody` or groups.
      parity_mean: parity / k.
      worst: Group with the largest expected error per record; null without groups.
    """

    geolevel: str
    l1: tuple[float, ...]
    everybody: float | None
    k: int
    parity: float | None
    parity_mean: float | None
    worst: str | None


@document
class ExpectedGroups:
    """Expected errors of estimates by population group, from public values alone.

    Attributes:
      groups: Query whose answers are the groups.
      labels: Labels of the groups.
      released: Released records of each group.
      floor: Errors per record are stated for groups of at least this number of records.
      levels: Errors by geolevel, the root first.
    """

    groups: str
    labels: tuple[str, ...]
    released: tuple[int, ...]
    floor: int
    levels: tuple[ExpectedAtLevel, ...]


@document
class Environment:
    """The machine and the versions on which the run was made.

    Attributes:
      cores: Number of cores of the driver's machine; null if unknown.
      slots: Number of tasks at a time.
      spark: Version of Spark.
      java: Version or path of Java.
      platform: Platform of the driver.
    """

    cores: int | None
    slots: int
    spark: str
    java: str
    platform: str


@document
class Origin:
    """The source of imported noisy answers.

    Attributes:
      layout: `nmf`: noisy measurement files of the Census Bureau.
      name: Name of the folder from which they were read.
      files: Number of files.
      sha256: Digest of the list of digests and names of the files, in order.
    """

    layout: Literal["nmf"]
    name: str
    files: int
    sha256: str


@document
class Contents:
    """The contents of a folder of a release.

    Attributes:
      format: Version of the document.
      name: Name of the run.
      not_for_release: Whether the noise was seeded; the folder then has `NOT_FOR_RELEASE.txt`.
      created: UTC time of finalizing.
      software: Software that made the release.
      configuration_digest: SHA-256 of the settings that determine the measurements, as in
        `run.json`.
      outputs: All datasets.
      files: All files that are not part of a dataset.
    """

    format: int
    name: str
    not_for_release: bool
    created: str
    software: Software
    configuration_digest: str
    outputs: tuple[Output, ...]
    files: tuple[ReleasedFile, ...]


@document
class CensusManifest(Contents):
    """The release of a census: its products, and the contents that they share.

    Attributes:
      format: 1.
      kind: `census`.
      products: SHA-256 of the manifest of each product, by name, in the order of work.
      outputs: Datasets that the products share.
      files: Shared files that are not part of a dataset.
    """

    format: Literal[1]
    kind: Literal["census"]
    products: dict[PlainName, str]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the products, in the order of work."""
        return tuple(self.products)


@document
class ReleaseManifest(Contents):
    """The manifest of a product of a census, or of the release of a survey.

    Attributes:
      privacy: Guarantee of the release.
      account: Contents of `account.json`; null if the noise was seeded or imported.
    """

    privacy: PublishedGuarantee
    account: Account | None


@document
class Manifest(ReleaseManifest):
    """The manifest of a product. It has no times or memory of stages that see the true data.

    Attributes:
      format: 3.
      schema: Schema of the product.
      privacy: Guarantee of the product.
      statements: Costs of smaller changes of a record.
      budget: One row per geolevel, chain and query.
      strata: Strata of records with separate queries; empty without strata.
      invariants: Queries that are published exactly.
      limits: All other invariants.
      geography: One row per geolevel, the root first.
      geounits_source: `public list`, or `data` if the geocodes of the confidential data were
        published.
      open_sessions: Geolevels measured in a Spark session without authentication or encryption;
        empty unless the run file allowed it.
      solve: One row per geolevel, the root first.
      solution: Settings of the counts, and settings tried before.
      totals: Records in the microdata under the name of `records`, null without microdata; and
        `leaf_geounits`.
      environment: Machine and versions of the run.
      records: Name of the records and of the product, such as `persons` or `units`.
      together: Composition of all products of the run; absent with one product.
      expected_groups: Expected errors by population group, from standard errors of the estimates
        and from released counts. Released counts use more information than the estimates, so most
        of them are closer to the truth.
      origin: Source of imported noisy answers, whose budget was spent before; absent if this run
        drew them.
      off_spine: Census geolevels off the spine; empty unless the run file designs another spine.
      language: Language of README, codebook, certificate and pages.
    """

    format: Literal[3]
    schema: CountedSchema
    privacy: Privacy
    statements: tuple[Statement, ...]
    budget: tuple[BudgetRow, ...]
    strata: tuple[StratumStatements, ...] = ()
    invariants: tuple[ExactQuery, ...]
    limits: tuple[Limit, ...]
    geography: tuple[LevelGeography, ...]
    geounits_source: GeounitsSource
    open_sessions: tuple[str, ...]
    solve: tuple[SolvedLevel, ...]
    solution: Solution
    totals: dict[str, int | None]
    environment: Environment
    records: str
    together: Account | None = None
    expected_groups: tuple[ExpectedGroups, ...] = ()
    origin: Origin | None = None
    off_spine: tuple[OffSpineLevel, ...] = ()
    language: str = "en"

    @property
    def levels(self) -> tuple[str, ...]:
        """Return the names of the geolevels of the spine, the root first."""
        return tuple(row.geolevel for row in self.geography)

    @property
    def geolevels(self) -> tuple[str, ...]:
        """Return the names of all geolevels with counts, on the spine and off it."""
        return (*self.levels, *(row.geolevel for row in self.off_spine))

    @property
    def counted(self) -> int | None:
        """Return the number of records in the microdata; None without microdata."""
        return self.totals[self.records]


_NOT_FINALIZED = (
    "use `das run RUN --only solve` first; if it was finalized, restore it from a copy of the "
    "release, or ask its publisher for a complete one"
)


def read_manifest(release: ReleaseLayout) -> Manifest:
    """Read the manifest of a finalized product.

    Raises:
      OutputError: The product is not finalized, or the manifest is damaged or of another format.
    """
    return read_document(Manifest, release.manifest, remedy=_NOT_FINALIZED)


def read_release(root: Place) -> CensusManifest:
    """Read the manifest of a census release.

    Args:
      root: Folder of the release.

    Raises:
      OutputError: The release is not finalized, or the manifest is damaged or of another format.
    """
    return read_document(CensusManifest, ReleaseLayout(root).manifest, remedy=_NOT_FINALIZED)


def attacks_of(bounds: attack.Attacks, basis: Literal["rho", "epsilon", "noise"]) -> Attacks:
    """Return bounds on attacks as a document.

    Args:
      bounds: The bounds.
      basis: Basis of the bounds.
    """
    rates = []
    for rate in attack.FALSE_POSITIVE_RATES:
        most = bounds.true_positive_rate(rate)
        value = attack.predictive_value(most, rate)
        rates.append(
            AttackRate(
                false_positive_rate=str(rate),
                true_positive_rate=float_above(most),
                predictive_value=float_above(value),
            )
        )
    return Attacks(basis=basis, advantage=float_above(bounds.advantage()), rates=tuple(rates))


def expected_rmse(
    budget: Sequence[BudgetRow], levels: Sequence[str]
) -> dict[tuple[str, str], float]:
    """Compute the expected RMSE of noisy answers by (geolevel, query).

    A chain of only children is measured once, at its top, and its answers hold at each of its
    geolevels. So a geolevel averages the variances of all chains through it, weighted by their
    numbers. Pairs that are not measured are left out.

    Args:
      budget: Budget rows of a manifest or a plan.
      levels: Geolevels, the root first.
    """
    position = {name: index for index, name in enumerate(levels)}
    sums: dict[tuple[str, str], tuple[float, int]] = {}
    for row in budget:
        if not row.geounits:
            continue
        for name in levels[position[row.geolevel] : position[row.chain_end] + 1]:
            total, count = sums.get((name, row.query), (0.0, 0))
            weighted = total + row.variance * row.geounits
            sums[name, row.query] = weighted, count + row.geounits
    return {key: math.sqrt(total / count) for key, (total, count) in sums.items()}
