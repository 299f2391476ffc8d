"""The manifest of a release: what was released, under which budget, with which digests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
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
from jobs.pipeline.documents.statistics import ExpectedTotals, SolveStatistics
from jobs.pipeline.storage.layout import ReleaseLayout, is_of_older_version
from jobs.pipeline.storage.place import Place

GeounitsSource = Literal["public list", "data"]
NORMAL_90 = 1.6448536269514722  # half width of the central 90 % of a normal distribution, in its
# standard deviations


@document
class Software:
    """What made the release.

    Attributes:
      name: `topdown-das`.
      version: Its version.
      python: Version of Python.
      libraries: Version of each library that numbers depend on.
      revision: The commit of its source, and whether that was changed; left out if that is not
        known, and in older manifests.
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
      name: Its name.
      levels: Its levels, in order.
    """

    name: str
    levels: tuple[str, ...]


@document
class CountedSchema:
    """What records are counted by.

    Attributes:
      name: Name of the schema.
      cells: Number of combinations of levels.
      attributes: The attributes; the last runs fastest.
    """

    name: str
    cells: int
    attributes: tuple[Attribute, ...]


@document
class Limited:
    """What invariants leave of a statement.

    Attributes:
      comparable: How many of such neighbors agree on the invariants.
      limited_by: Names of what does not leave all of them.
      stays_in: The geolevel whose geounits no record may leave; empty if there is none.
      in_words: The same as a sentence; empty if nothing is limited.
    """

    comparable: Comparable
    limited_by: tuple[str, ...]
    stays_in: str
    in_words: str


@document
class Nearest:
    """The nearest two data sets that agree on what is exact, and what is promised of them.

    Attributes:
      records: k, how many records to change, or to add and remove; null if no two data sets agree.
      is_least: Whether none are nearer; otherwise it is known only that they are not nearer.
      total: Cost of telling them apart, by group privacy: k epsilon, or k^2 rho; a fraction, null
        unless `records` is known to be the least.
      epsilon: At delta, rounded up; null likewise.
      in_words: The same as a sentence.
    """

    records: int | None
    is_least: bool
    total: ExactText | None
    epsilon: float | None
    in_words: str


@document
class AttackRate:
    """How often a test for a neighbor can be right, at most; rounded up.

    Attributes:
      false_positive_rate: How often it says yes where it should say no; a fraction.
      true_positive_rate: How often it says yes where it should, at most.
      predictive_value: How often a yes is right, at most, if both neighbors were equally likely.
    """

    false_positive_rate: ExactText
    true_positive_rate: float
    predictive_value: float


@document
class Attacks:
    """What an attacker can gain who knows all but which of two neighbors the release is made from.

    Attributes:
      basis: What the bounds follow from: `rho`, `epsilon`, or `noise`, its distribution.
      advantage: The largest true positive rate less the false positive rate, at most.
      rates: At some false positive rates.
    """

    basis: Literal["rho", "epsilon", "noise"]
    advantage: float
    rates: tuple[AttackRate, ...]


@document
class PublishedGuarantee(Guarantee):
    """The guarantee of a release, where its noise comes from, and what an attacker gains.

    Attributes:
      randomness: Where noise comes from: `operating_system`, `seeded_not_for_release`, or
        `elsewhere` if this run did not draw it.
      mu_gdp: Continuous Gaussian noise of the same rho would be mu-GDP with this mu, rounded
        up; left out if pure. Discrete noise is not: `attacks` is what holds.
      attacks: What an attacker gains at most; left out if no neighbors are left to tell apart, and
        in older manifests.
    """

    randomness: str
    mu_gdp: float | None = None
    attacks: Attacks | None = None


@document
class Privacy(PublishedGuarantee):
    """The guarantee of a run of a census.

    Attributes:
      lazy_queries: Queries whose noise is drawn only where it is read.
      neighborhood: What invariants leave of the run's neighbors.
      epsilon_by_noise: What the noise itself keeps at delta, if the budget was chosen by that; a
        fraction.
      nearest: The nearest data sets that agree on what is exact; left out if nothing is, and in
        older manifests.
    """

    lazy_queries: tuple[str, ...]
    neighborhood: Limited
    epsilon_by_noise: ExactText | None = None
    nearest: Nearest | None = None


@document
class Stated:
    """What a smaller change of a record costs, invariants aside.

    Attributes:
      change: How two data sets may differ.
      name: The attribute or geolevel; empty for a whole record.
      total: The cost, in the unit of the budget; a fraction, or null if it promises nothing.
      epsilon: At delta, rounded up; null likewise.
      epsilon_simple: By the textbook formula; null likewise.
    """

    change: Change
    name: str
    total: ExactText | None
    epsilon: float | None
    epsilon_simple: float | None


@document
class Statement(Limited, Stated):
    """What a smaller change of a record costs, and what invariants leave of that."""


@document
class StratumStatements:
    """A group of records with queries of its own.

    Attributes:
      stratum: Which records, such as `race=white`.
      cells: Number of combinations of levels that they may have.
      own: What its own queries cost along any path, a fraction; those for everybody cost the rest.
      statements: What changes of a record within the stratum cost. A change into another stratum
        costs half of this and half of what it costs there.
    """

    stratum: str
    cells: int
    own: ExactText
    statements: tuple[Statement, ...]


@document
class BudgetRow:
    """A query measured at a geolevel, for geounits of one kind of chain.

    Attributes:
      geolevel: Where it is measured.
      chain_end: The deepest geolevel reached through only children; the same for most geounits.
      query: Its name.
      stratum: The records that it counts, such as `race=white`; empty if it counts everybody.
      share: Of the geolevel's budget; a fraction.
      level_share: The geolevel's, of the whole budget; a fraction.
      cost: What it costs; a fraction.
      charged: `alone`, or `together` with the other queries of a planned strategy: then the costs
        are parts of one joint cost.
      mechanism: The distribution of the noise, by name.
      parameter: Its exact parameter; a fraction.
      variance: Of the noise of one answer.
      answers: Answers per geounit.
      geounits: How many geounits are measured so.
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
      query: Its name.
      geolevels: Where it holds.
    """

    query: str
    geolevels: tuple[str, ...]


@document
class Limit:
    """Another invariant.

    Attributes:
      kind: `facilities`, `living quarters`, `structural zeros`, `bounded row`, `exact row`, or
        `released before` of counts that are those of an earlier release.
      name: Its name.
      geolevels: Where it holds; every geolevel if empty.
      types: Of facilities and living quarters alone: the counted types or kinds.
    """

    kind: str
    name: str
    geolevels: tuple[str, ...]
    types: tuple[str, ...] | None = None


@document
class LevelGeography:
    """The geounits of a geolevel.

    Attributes:
      geolevel: Its name.
      digits: Length of its geocodes.
      geounits: How many there are.
      measured: How many are measured.
      only_children: How many are not, because they equal their parent.
    """

    geolevel: str
    digits: int
    geounits: int
    measured: int
    only_children: int


@document
class OffSpineLevel:
    """A geolevel of the geocodes of the data that the spine of the run has not.

    Attributes:
      geolevel: Its name.
      digits: Length of its geocodes.
      geounits: How many there are; their counts are sums over leaves.
    """

    geolevel: str
    digits: int
    geounits: int


@document
class _Solved:
    """Which geolevel was solved, and in which time.

    Attributes:
      geolevel: Its name.
      wall_seconds: On the clock.
      solve_digest: SHA-256 of the section `solve` of the run file.
    """

    geolevel: str
    wall_seconds: float
    solve_digest: str


@document
class SolvedLevel(SolveStatistics, _Solved):
    """How the nodes of a geolevel were solved.

    Attributes:
      expected_totals: What was expected by housing units, where that was asked for.
    """

    expected_totals: ExpectedTotals | None = None


@document
class Settings:
    """Settings that counts were made with.

    Attributes:
      digest: SHA-256 of the settings.
      settings: The sections `solve` and `output` of the run file, and of its units.
    """

    digest: str
    settings: dict[str, JsonValue]


@document
class _Named:
    """A name that may be none.

    Attributes:
      name: Null but for a solution beside the release.
    """

    name: str | None


@document
class Solution(Settings, _Named):
    """The settings that made this solution.

    Attributes:
      history: All settings tried in this folder, oldest first.
    """

    history: tuple[Settings, ...]


@document
class OutputColumn:
    """A column of a dataset.

    Attributes:
      name: Its name.
      type: In words.
    """

    name: str
    type: str


@document
class Output:
    """A dataset of the release.

    Attributes:
      path: Its folder.
      files: How many files it has.
      rows: In all; those of a table once, in however many formats it is written.
      bytes: In all.
      sha256: Digest of its `_manifest.json`, which has those of its files.
      columns: Its columns.
      labelled: The queries whose labels its `_manifest.json` or their own files hold.
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
    """A file beside the datasets.

    Attributes:
      path: Its path.
      bytes: Its size.
      sha256: Its digest.
    """

    path: PathWithin
    bytes: int
    sha256: str


@document
class ExpectedAtLevel:
    """How far the numbers of groups are expected to be off at a geolevel.

    Attributes:
      geolevel: The geolevel.
      l1: For each group, the expected sum over all geounits of the absolute errors of unbiased
        estimates of its number; at most twice its released records.
      everybody: The same of the total, over all records; null if the total was not estimated or
        is below the floor.
      k: Groups that reach the floor.
      parity: Expected parity error, as in `evaluation.json`; null without `everybody` or groups.
      parity_mean: parity / k.
      worst: The group with the largest expected error per record; null without any.
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
    """For whom estimates are expected to be worse, from what is public alone.

    Attributes:
      groups: The query whose answers are the groups.
      labels: Of the groups.
      released: Released records of each.
      floor: Errors per record are of groups of at least so many.
      levels: The geolevels, the root first.
    """

    groups: str
    labels: tuple[str, ...]
    released: tuple[int, ...]
    floor: int
    levels: tuple[ExpectedAtLevel, ...]


@document
class Environment:
    """What the run ran on.

    Attributes:
      cores: Of the driver's machine; null if unknown.
      slots: Tasks at a time.
      spark: Version.
      java: Version, or where it is.
      platform: Of the driver.
    """

    cores: int | None
    slots: int
    spark: str
    java: str
    platform: str


@document
class Origin:
    """Where noisy answers come from that were made elsewhere.

    Attributes:
      layout: `nmf`: noisy measurement files of the Census Bureau.
      name: Name of the folder that they were read from.
      files: How many.
      sha256: Digest of the list of their digests and names, in order.
    """

    layout: Literal["nmf"]
    name: str
    files: int
    sha256: str


@document
class Contents:
    """What a folder of a release states: what lies in it, and what made it.

    Attributes:
      format: Version of the document.
      name: Name of the run.
      not_for_release: Whether the noise was seeded; then `NOT_FOR_RELEASE.txt` lies beside it.
      created: UTC time of finalizing.
      software: What made it.
      configuration_digest: SHA-256 of what fixes the measurements, as in `run.json`.
      outputs: Every dataset.
      files: The files beside the datasets.
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
    """What the release of a census consists of: its products, and what they share.

    Attributes:
      format: 1.
      kind: `census`.
      products: SHA-256 of the manifest of each product, by its name, in the order of work.
      outputs: Every dataset that the products share.
      files: The files beside the datasets and the products.
    """

    format: Literal[1]
    kind: Literal["census"]
    products: dict[PlainName, str]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the products, in the order of work."""
        return tuple(self.products)


@document
class ReleaseManifest(Contents):
    """What a product of a census states, or the release of a survey.

    Attributes:
      privacy: The guarantee.
      account: As `account.json`; null if the noise was seeded, or drawn elsewhere.
    """

    privacy: PublishedGuarantee
    account: Account | None


@document
class Manifest(ReleaseManifest):
    """What was released of a product. No times or memory of stages that see the truth.

    Attributes:
      format: 3.
      schema: What records are counted by.
      privacy: The guarantee.
      statements: What smaller changes of a record cost.
      budget: One row per geolevel, chain and query.
      strata: Groups of records with queries of their own; none if all are measured alike.
      invariants: What is published exactly.
      limits: The other invariants.
      geography: One row per geolevel, the root first.
      geounits_source: `public list`, or `data` if the geocodes of the confidential data were
        published.
      open_sessions: Geolevels that were measured in a Spark session without authentication or
        encryption; none unless the run file allowed it.
      solve: One row per geolevel, the root first.
      solution: The settings it was made with, and those tried before.
      totals: Records in the microdata under the name of `records`, null without microdata; and
        `leaf_geounits`.
      environment: What the run ran on.
      records: What records are called: the name of the product, such as `persons` or `units`.
      products: Of versions before 0.2.0 alone, in the last product of a run with several: the
        manifests of the others, by name.
      together: What all products of the run cost together; absent if it is the only one.
      expected_groups: For whom the release is expected to be worse, by the standard errors of its
        estimates and its own counts. Released counts use more than the estimates do, so most of
        them are closer to the truth than this.
      origin: Of noisy answers that were made elsewhere, where the budget was spent; absent if this
        run drew them.
      off_spine: Geolevels of the geocodes of the data that the spine has not; none unless the run
        file designs a spine of its own.
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
    products: dict[PlainName, Manifest] | None = None
    together: Account | None = None
    expected_groups: tuple[ExpectedGroups, ...] = ()
    origin: Origin | None = None
    off_spine: tuple[OffSpineLevel, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the products of the release that has this manifest at its root."""
        return (*(self.products or {}), self.records)

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the geolevels of the spine, the root first."""
        return tuple(row.geolevel for row in self.geography)

    @property
    def geolevels(self) -> tuple[str, ...]:
        """Names of all geolevels that have counts: those of the spine, and those off it."""
        return (*self.levels, *(row.geolevel for row in self.off_spine))

    @property
    def counted(self) -> int | None:
        """Records in the microdata; None without microdata."""
        return self.totals[self.records]


_NOT_FINALIZED = (
    "use `das run RUN --only solve` first; if it was finalized, restore it from a copy of the "
    "release"
)


def read_manifest(release: ReleaseLayout) -> Manifest:
    """Read the manifest of a finalized product.

    Older versions stated the datasets of all products in that of the last; here it has its own.

    Raises:
      OutputError: It is not finalized, or the manifest is damaged or of another format.
    """
    manifest = read_document(Manifest, release.manifest, remedy=_NOT_FINALIZED)
    own = (output for output in manifest.outputs if release.is_own(release.root / output.path))
    return replace(manifest, outputs=tuple(own))


def read_release(root: Place) -> CensusManifest | Manifest:
    """Read the manifest of a finalized census release; of older versions, its last product's.

    Args:
      root: The folder of the release.

    Raises:
      OutputError: It is not finalized, or the manifest is damaged or of another format.
    """
    manifest = ReleaseLayout(root).manifest
    if is_of_older_version(root):
        return read_document(Manifest, manifest, remedy=_NOT_FINALIZED)
    return read_document(CensusManifest, manifest, remedy=_NOT_FINALIZED)


def attacks_of(found: attack.Attacks, basis: Literal["rho", "epsilon", "noise"]) -> Attacks:
    """Bounds on attacks as a document.

    Args:
      found: The bounds.
      basis: What they follow from.
    """
    rates = []
    for rate in attack.FALSE_POSITIVE_RATES:
        most = found.true_positive_rate(rate)
        value = attack.predictive_value(most, rate)
        rates.append(
            AttackRate(
                false_positive_rate=str(rate),
                true_positive_rate=float_above(most),
                predictive_value=float_above(value),
            )
        )
    return Attacks(basis=basis, advantage=float_above(found.advantage()), rates=tuple(rates))


def expected_rmse(
    budget: Sequence[BudgetRow], levels: Sequence[str]
) -> dict[tuple[str, str], float]:
    """Root mean square error expected of raw noisy answers, by (geolevel, query).

    A chain of only children is measured once, at its top, and that answer holds at each of its
    geolevels; so a geolevel averages the variances of all chains through it, weighted by their
    numbers. Pairs that are not measured are left out.

    Args:
      budget: The rows of a manifest or a plan.
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
