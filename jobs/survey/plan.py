"""What is public of a survey run: its parts, what each costs, its strata; opens no data."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from das.arrays import IntArray
from das.definition import Definition
from das.errors import ConfigError
from das.means.estimates import Column, Steps, Strata, clipped_noise, refuse_unmeasurable
from das.mechanisms.conditional import margin_rows, most_steps, refuse_large
from das.privacy.budget import Budget, changed_record_bound
from das.privacy.conditioning import calibrated, conditioned, gamma_of
from das.privacy.cost import Pure
from das.queries.sensitivity import Neighbors
from das.synthesis.records import Domain
from das.synthesis.strata import Strata as SynthesisStrata
from das.workload.workload import Weighting
from jobs.pipeline.config.data import check_suffix
from jobs.pipeline.config.files import (
    absolute,
    absolute_path,
    is_survey,
    read_model,
    refuse_other_folders,
    refuse_tangled,
)
from jobs.pipeline.config.load import check_solution_name
from jobs.pipeline.config.mistakes import at
from jobs.pipeline.config.models.values import SURVEY
from jobs.pipeline.config.resolve import budget_of
from jobs.pipeline.config.upgrade import Kind, as_hashed
from jobs.pipeline.folder.identity import stated_files
from jobs.pipeline.storage.account import Claim, default_account
from jobs.pipeline.storage.layout import (
    ConfidentialLayout,
    ReleaseLayout,
    confidential_layout,
    release_folder,
)
from jobs.pipeline.storage.place import Place
from jobs.survey.checks import (
    EVERYBODY,
    POOLED,
    SYNTHESIS,
    Labels,
    PublicStratum,
    check_each,
    check_survey,
    read_weights,
    require,
    stratum_name,
)
from jobs.survey.models import (
    ReleasedSurveyConfig,
    StatisticConfig,
    SurveyConfig,
    SynthesisConfig,
    TableConfig,
    attributes_of,
)

S = TypeVar("S")
T = TypeVar("T")
_AFTER_MEANS = {"shrink"}
_AFTER_SYNTHESIS = {"components", "n_fits", "steps", "seed", "n_records"}


@dataclass(frozen=True, eq=False)
class MeanPlan:
    """A statistic.

    Attributes:
      config: What the run file says.
      column: Public bounds and spread.
      strata: k strata with public sizes, small ones pooled.
      weights: Share of the population, by stratum.
      pooled: Names of the strata that were pooled.
      stratum_of: int64[n_a, ...], the stratum of each combination of levels.
      cost: Its part of the budget.
    """

    config: StatisticConfig
    column: Column
    strata: Strata
    weights: Mapping[str, Fraction]
    pooled: tuple[str, ...]
    stratum_of: IntArray
    cost: Fraction

    @property
    def name(self) -> str:
        """What it is called."""
        return self.config.label

    @property
    def steps(self) -> Steps:
        """The steps of coinpress, or the one of a clipped mean."""
        n_steps = 1 if self.config.method == "clipped" else self.config.steps
        failure, intersect = float(self.config.miss_probability), self.config.intersect
        return Steps.split(self.cost, n_steps, failure=failure, intersect=intersect)


@dataclass(frozen=True, eq=False)
class SurveyPlan:
    """A run of a survey.

    Attributes:
      config: The run file, paths absolute.
      source: Where it is.
      digest: SHA-256 of what fixes the measurements.
      budget: What all parts cost together.
      domain: Attributes of the file, and their numbers of levels.
      means: The statistics.
      tables: The tables that keep exact marginals.
      strata: Those of the microdata, if they have any.
      solution: Name of a solution beside the release.
      alone: Folder of the release, if there is no run around it.
    """

    config: SurveyConfig
    source: Path
    digest: str
    budget: Budget
    domain: Domain
    means: tuple[MeanPlan, ...]
    tables: tuple[TablePlan, ...] = ()
    strata: SynthesisStrata | None = None
    solution: str | None = None
    alone: Place | None = None

    @property
    def out(self) -> Place:
        """Folder of the run."""
        return self.config.output.directory

    @property
    def release(self) -> ReleaseLayout:
        """The publishable half, where measurements lie."""
        return ReleaseLayout(release_folder(self.out) if self.alone is None else self.alone)

    @property
    def made(self) -> ReleaseLayout:
        """Where what is made of measurements goes: the release, or a solution beside it."""
        if self.solution is None:
            return self.release
        return ReleaseLayout(release_folder(self.out, self.solution))

    @property
    def confidential(self) -> ConfidentialLayout:
        """The confidential half."""
        return confidential_layout(self.config.output.roots, self.solution)

    @property
    def not_for_release(self) -> bool:
        """Whether noise is seeded."""
        return self.config.privacy.randomness.seed is not None

    @property
    def synthesis(self) -> SynthesisConfig:
        """The microdata.

        Raises:
          ConfigError: The run file wants none.
        """
        if self.config.synthesis is None:
            raise ConfigError(str(self.source), "has no section `synthesis`: no microdata")
        return self.config.synthesis

    @property
    def microdata_domain(self) -> Domain:
        """Attributes of the microdata."""
        return _microdata_domain(self.synthesis, self.domain)

    @property
    def costs(self) -> dict[str, Fraction]:
        """What each part costs, in the order in which they are measured."""
        costs = {one.name: one.cost for one in self.parts}
        if self.config.synthesis is not None:
            costs[SYNTHESIS] = self.budget.total * self.config.synthesis.share
        return costs

    @property
    def parts(self) -> tuple[MeanPlan | TablePlan, ...]:
        """The statistics and tables, in the order in which they are measured."""
        return (*self.means, *self.tables)

    def part(self, name: str) -> MeanPlan | TablePlan | None:
        """The statistic or table of a name; None for the microdata."""
        return next((one for one in self.parts if one.name == name), None)

    def levels(self, attribute: str) -> tuple[str, ...]:
        """Labels of the levels of an attribute."""
        return self.config.data.columns[attribute].levels

    def account(self) -> Place:
        """The file in which the grant is claimed.

        Raises:
          ConfigError: None is named, and several may be meant.
        """
        return self.config.privacy.account or default_account(self.config.data.path)

    def claim(self, run: str) -> Claim:
        """What a run folder with this identity asks of the account."""
        privacy, changed = self.config.privacy, changed_record_bound(self.budget)
        exact = tuple(f"{what} in {one.name}" for one in self.tables for what in one.exact_names)
        out = str(self.out)
        return Claim(privacy.product, privacy.budget_id, self.budget, run, out, changed, exact)

    def settings(self, part: str) -> dict[str, Any]:
        """What the run file says of a part that may change after measuring.

        Keys are those of the format before 3, since manifests of earlier releases have them.
        """
        one = self.part(part)
        if one is None:
            settings = self.synthesis.model_dump(mode="json", include=_AFTER_SYNTHESIS)
            return dict(as_hashed(Kind.SURVEY, settings, "synthesis"))
        return one.config.model_dump(mode="json", include=_AFTER_MEANS)


def load_survey(
    path: Path,
    *,
    output: Place | None = None,
    confidential: Place | None = None,
    solution: str | None = None,
    released: tuple[Place, str] | None = None,
) -> SurveyPlan:
    """Read the run file of a survey and the public files it names.

    Args:
      path: The run file; relative paths in it are relative to its folder.
      output: Replaces `output.directory`.
      confidential: Replaces `output.confidential`.
      solution: Name of a solution beside the release.
      released: Of the configuration in a release: folder of that, and the digest of the run file
        that it is a part of.

    Raises:
      ConfigError, InputError, BudgetError, SchemaError: Something in it cannot be used; the message
        names the file and the key.
    """
    check_solution_name(solution)
    if not is_survey(path):
        raise ConfigError(
            str(path), "is not the run file of a survey", want="a file that says `kind: survey`"
        )
    written = read_model(path, SurveyConfig if released is None else ReleasedSurveyConfig)
    if released is not None:
        refuse_other_folders(path, written)
    config = absolute(written, absolute_path(path).parent)
    stated = {"directory": output, "confidential": confidential}
    places = {name: absolute_path(place) for name, place in stated.items() if place is not None}
    config = config.model_copy(update={"output": config.output.model_copy(update=places)})
    if released is None:
        refuse_tangled(path, config, config.output.roots)
        with at(f"{path}: data.path"):
            check_suffix(config.data.path)
    budget = budget_of(config.privacy, config.privacy, f"{path}: privacy")
    with at(str(path)):
        check_survey(config)
    columns = config.data.columns
    domain = Domain(tuple(columns), tuple(len(column.levels) for column in columns.values()))
    total = budget.total
    means = _each(
        f"{path}: statistics", config.statistics, lambda one: _mean_plan(one, config, total)
    )
    tables = _each(
        f"{path}: contingency_tables",
        config.contingency_tables,
        lambda one: table_plan(one, config, total),
    )
    with at(f"{path}: synthesis.strata"):
        strata = _synthesis_strata(config, domain)
    with at(str(path)):
        _check_tables(tables)
    root, digest = released or (None, _digest(written, config))
    return SurveyPlan(config, path, digest, budget, domain, means, tables, strata, solution, root)


def meaning_of_survey(path: Path) -> tuple[SurveyConfig, str]:
    """Read the run file of a survey; return what it says, and the digest of what it measures.

    Raises:
      ConfigError, InputError, BudgetError, SchemaError: As `load_survey`.
    """
    plan = load_survey(path)
    return plan.config, plan.digest


def _each(where: str, stated: Sequence[S], build: Callable[[S], T]) -> tuple[T, ...]:
    """Build a value of each entry of a list; errors say which entry it was."""
    built = []
    for index, one in enumerate(stated):
        with at(f"{where}.{index}"):
            built.append(build(one))
    return tuple(built)


def _microdata_domain(synthesis: SynthesisConfig, domain: Domain) -> Domain:
    return domain.only(domain.positions(synthesis.attributes or domain.names))


def _synthesis_strata(config: SurveyConfig, domain: Domain) -> SynthesisStrata | None:
    synthesis = config.synthesis
    stated = None if synthesis is None else synthesis.strata
    if synthesis is None or stated is None:
        return None
    own = _microdata_domain(synthesis, domain)
    shape = [own.sizes[i] for i in own.positions(stated.attributes)]
    public = public_strata(config, stated.attributes, stated.weights)
    weights = np.array([float(one.weight) for one in public.values()]).reshape(shape)
    return SynthesisStrata.of(own, stated.attributes, weights, float(stated.min_share))


def public_strata(
    config: SurveyConfig, attributes: Sequence[str], weights: Path
) -> dict[Labels, PublicStratum]:
    """Read the public weights of all combinations of levels of some attributes."""
    levels = {name: config.data.columns[name].levels for name in attributes}
    return read_weights(weights, levels, config.data.n_records)


def _check_tables(tables: Sequence[TablePlan]) -> None:
    for one, other in itertools.permutations(tables, 2):
        what = f"has {one.name}, all of which {other.name} publishes as it is"
        exact = [{other.config.attributes[axis] for axis in axes} for axes in other.exact]
        is_kept = any(kept >= {*one.config.attributes} for kept in exact)
        require(not is_kept, "contingency_tables", what, other.config.exact)


def _mean_plan(config: StatisticConfig, run: SurveyConfig, budget: Fraction) -> MeanPlan:
    averaged = run.data.columns.get(config.mean)
    if averaged is None or averaged.bins is None:
        raise ConfigError("mean", "is no attribute with `bins`", got=config.mean)
    definition = run.privacy.definition
    require(
        config.method == "clipped" or definition is Definition.ZCDP,
        "method",
        "coinpress takes Gaussian noise, which has no pure epsilon",
        f"definition {definition}",
        "method clipped, or definition zcdp",
    )
    fits = bool(averaged.missing) == (config.missing is not None)
    what = "is required: the column has missing values" if averaged.missing else "has no use"
    require(fits, "missing", what, want="what `missing` of the column is counted as")
    check_each(config.stratify_by, run.data.columns, "stratify_by")
    column = Column(config.label, config.low, config.high, config.sd_bound)
    plan = MeanPlan(config, column, *_strata(config, run), cost=budget * config.share)
    if config.method == "clipped":
        clipped_noise(column, plan.steps, plan.strata, definition)
    else:
        refuse_unmeasurable(column, plan.steps, plan.strata)
    return plan


def _strata(
    config: StatisticConfig, run: SurveyConfig
) -> tuple[Strata, dict[str, Fraction], tuple[str, ...], IntArray]:
    """Strata, weights by name, names of what was pooled, and the stratum of each combination.

    Sizes that follow from weights are those of a sample: its numbers of records vary about them.
    """
    neighbors, records = run.privacy.neighbors, run.data.n_records
    if config.weights is None:
        one = np.zeros((), np.int64)
        return Strata({EVERYBODY: records}, neighbors), {EVERYBODY: Fraction(1)}, (), one
    public = public_strata(run, config.stratify_by, config.weights)
    shape = [len(run.data.columns[name].levels) for name in config.stratify_by]
    sizes, weights, pooled, stratum_of = pool_small(public, config.min_share, shape)
    deviations: tuple[float, ...] = ()
    if any(stratum.is_expected for stratum in public.values()):
        deviations = tuple(math.sqrt(records * own * (1 - own)) for own in weights.values())
    return Strata(sizes, neighbors, deviations), weights, pooled, stratum_of


def pool_small(
    public: Mapping[Labels, PublicStratum], min_share: Fraction, shape: Sequence[int]
) -> tuple[dict[str, int], dict[str, Fraction], tuple[str, ...], IntArray]:
    """Pool the strata whose public size is below a part of all.

    Args:
      public: Every combination of levels, in order.
      min_share: The part.
      shape: Numbers of levels.

    Returns:
      Sizes and weights by name of stratum, names of those that were pooled, int64[shape] the number
      of the stratum of each combination.
    """
    total = sum(stratum.size for stratum in public.values())
    small = [
        labels for labels, one in public.items() if one.size < max(min_share * total, Fraction(1))
    ]
    kept = [labels for labels in public if labels not in set(small)]
    sizes = {stratum_name(labels): public[labels].size for labels in kept}
    weights = {stratum_name(labels): public[labels].weight for labels in kept}
    if small:
        sizes[POOLED] = max(1, sum(public[labels].size for labels in small))
        weights[POOLED] = sum((public[labels].weight for labels in small), Fraction(0))
    number = {labels: index for index, labels in enumerate(kept)}
    stratum_of = np.array([number.get(labels, len(kept)) for labels in public], np.int64)
    return sizes, weights, tuple(map(stratum_name, small)), stratum_of.reshape(tuple(shape))


def _digest(written: SurveyConfig, config: SurveyConfig) -> str:
    """SHA-256 of what fixes the measurements: the run file without what may change, and weights.

    Paths to data count as written, so that a project can move to another folder; weights by what
    they hold.
    """
    stated = written.model_dump(
        mode="json",
        exclude={
            "name": True,
            "evaluate": True,
            "output": True,
            "privacy": {"account"},
            "statistics": {"__all__": {*_AFTER_MEANS, "weights"}},
            "synthesis": {**dict.fromkeys(_AFTER_SYNTHESIS, True), "strata": {"weights"}},
        },
    )
    document = {**as_hashed(Kind.SURVEY, stated), "format": Kind.SURVEY.former_format}
    # What earlier versions could not say is left out, so that their folders go on.
    if config.data.quoting == "double":
        del document["data"]["quoting"]
    if not config.contingency_tables:
        del document["tables"]
    if config.synthesis is not None and config.synthesis.weighting is Weighting.SQUARE_ROOT:
        del document["synthesis"]["weighting"]
    files = weights_files(config)
    document["weights"] = [
        None if file is None else hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    ]
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()


def weights_files(config: SurveyConfig) -> list[Path | None]:
    """The files of public weights that a run file names: of each statistic, then of microdata."""
    strata = None if config.synthesis is None else config.synthesis.strata
    files = [one.weights for one in config.statistics]
    return [*files, None if strata is None else strata.weights]


def stated_configuration(plan: SurveyPlan) -> dict[str, object]:
    """What a run folder remembers of the run file: where it is, and digests of what it names."""
    weights = [path for path in weights_files(plan.config) if path is not None]
    return {"kind": SURVEY, **stated_files([plan.source.resolve(), *weights])}


CHANGED = 2  # counts that a changed record changes, by 1 each
_MOST_CELLS = 1 << 8
_MOST_EXACT = 3


@dataclass(frozen=True)
class Conditioning:
    """What fixes the noise of a table, and what it is proved to cost.

    Attributes:
      scale: Of two-sided geometric noise on every count, exact.
      records: k, in how many records two data sets differ that are compared.
    """

    scale: Fraction
    records: int

    @property
    def gamma(self) -> Fraction:
        """Of the theorem: counts are not negative, so the largest."""
        return gamma_of(has_limits=True)

    @property
    def noise(self) -> Pure:
        """What the noise costs that is conditioned, for one changed record."""
        return Pure(CHANGED / self.scale)

    @property
    def cost(self) -> Pure:
        """(1 + gamma) k epsilon."""
        return conditioned(self.noise, self.records, self.gamma)

    @classmethod
    def of(cls, cost: Fraction, records: int) -> Conditioning:
        """Return the one that is proved to cost so much, exact."""
        return cls(CHANGED / calibrated(Pure(cost), records).epsilon, records)


TOTAL = "total"
"""What the marginal of no attributes is called: the number of records."""


@dataclass(frozen=True, eq=False)
class TablePlan:
    """A table.

    Attributes:
      config: What the run file says.
      shape: Number of levels of each attribute.
      exact: The marginals that are kept, as positions of attributes; () is the number of records.
      cost: Its part of the budget.
    """

    config: TableConfig
    shape: tuple[int, ...]
    exact: tuple[tuple[int, ...], ...]
    cost: Fraction

    @property
    def name(self) -> str:
        """What it is called."""
        return self.config.label

    @property
    def exact_names(self) -> tuple[str, ...]:
        """Names of the exact marginals."""
        attributes = self.config.attributes
        return tuple(" * ".join(attributes[axis] for axis in axes) or TOTAL for axes in self.exact)

    @property
    def conditioning(self) -> Conditioning:
        """Its noise."""
        return Conditioning.of(self.cost, compared_records(self.exact, len(self.shape)))

    def margins(self) -> tuple[IntArray, ...]:
        """Of each exact marginal, int64[n]: in which of its values each cell counts."""
        return tuple(margin_of(self.shape, axes) for axes in self.exact)

    @cached_property
    def rows(self) -> IntArray:
        """int64[m, n]: the sums that are kept, in the order in which they are drawn fastest."""
        return margin_rows(self.margins())

    def exact_counts(self, counts: IntArray) -> tuple[IntArray, ...]:
        """The exact marginals of a table with cells int64[n], each int64[values]."""
        return tuple(
            np.bincount(label, counts, minlength=label.max() + 1).astype(np.int64)
            for label in self.margins()
        )


def margin_of(shape: Sequence[int], axes: Sequence[int]) -> IntArray:
    """int64[n]: the value of a marginal in which each cell of a table counts."""
    cells = np.indices(tuple(shape)).reshape(len(shape), -1)
    out = np.zeros(cells.shape[1], np.int64)
    for axis in axes:
        out = out * shape[axis] + cells[axis]
    return out


def compared_records(exact: Sequence[Sequence[int]], n_attributes: int) -> int:
    """Return k: how many records two data sets may differ in, of which something is promised.

    Without exact marginals it is 1, a changed record. With them a record cannot change everything
    alone: 2 are a record that changes what no exact marginal counts, and two that exchange what one
    does count.
    If all marginals of s - 1 among s attributes are exact and that of all s is not, tables that
    agree on them differ in 2^s counts at least (the move (+1, -1) in each of s attributes), which
    are 2^(s - 1) records.
    """
    if not any(exact):
        return 1
    kept = [set(axes) for axes in exact]
    free = [
        set(axes)
        for order in range(1, n_attributes + 1)
        for axes in itertools.combinations(range(n_attributes), order)
        if not any(set(axes) <= one for one in kept)
    ]
    least = [len(one) for one in free if not any(other < one for other in free)]
    return max(2, 1 << (max(least) - 1))


def table_plan(config: TableConfig, run: SurveyConfig, budget: Fraction) -> TablePlan:
    """Check a table against public numbers, so that nothing fails once its grant is claimed.

    Args:
      config: What the run file says.
      run: The run file.
      budget: What all parts cost together.

    Raises:
      ConfigError: It names what is not there, or its promise would be empty.
      BudgetError: The table is too large for exact sampling.
    """
    _check_promise(run)
    check_each(config.attributes, run.data.columns, "query")
    shape = tuple(len(run.data.columns[name].levels) for name in config.attributes)
    n_cells, most = math.prod(shape), f"at most {_MOST_CELLS}"
    require(n_cells <= _MOST_CELLS, "query", "has too many cells", n_cells, most)
    exact = _exact(config)
    cost, records = budget * config.share, run.data.n_records
    plans = [TablePlan(config, shape, order, cost) for order in itertools.permutations(exact)]
    plan = min(plans, key=lambda one: most_steps(one.margins(), records))
    refuse_large(plan.margins(), records, plan.conditioning.scale)
    return plan


def _check_promise(run: SurveyConfig) -> None:
    definition, neighbors = run.privacy.definition, run.privacy.neighbors
    what = (
        "conditioned keeps no promise of zCDP: the chance that noise keeps the exact marginals may "
        "depend on the data without limit"
    )
    got = f"definition {definition}"
    require(definition is Definition.PURE, "method", what, got, "definition pure")
    what = "conditioned keeps the number of records, which unbounded neighbors are to protect"
    got = f"neighbors {neighbors}"
    require(neighbors is Neighbors.BOUNDED, "method", what, got, "neighbors bounded")


def _exact(config: TableConfig) -> tuple[tuple[int, ...], ...]:
    """The exact marginals as positions of attributes of the table, in its order."""
    position = {name: index for index, name in enumerate(config.attributes)}
    found: list[tuple[int, ...]] = []
    for text in config.exact:
        names = attributes_of(text)
        what = f"names what is not in the table {config.query}"
        require({*names} <= {*position}, "exact", what, text)
        what = "is the whole table: nothing of it would be protected"
        require({*names} != {*position}, "exact", what, text)
        found.append(tuple(sorted({position[name] for name in names})))
    for one, other in itertools.permutations(found, 2):
        is_new, what = not {*one} <= {*other}, "says a marginal that another one implies"
        require(is_new, "exact", what, config.exact)
    n_exact = len(found)
    require(n_exact <= _MOST_EXACT, "exact", "has too many marginals", n_exact, _MOST_EXACT)
    return tuple(found) or ((),)
