"""Public plan of a survey run: its parts, their costs and strata; opens no data."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from das.arrays import IntArray
from das.definition import Definition
from das.errors import ConfigError
from das.means.estimates import Column, Steps, Strata, clipped_noise, refuse_unmeasurable
from das.mechanisms.conditional import margin_rows, most_steps, refuse_large
from das.privacy.budget import Budget, changed_record_bound
from das.privacy.conditioning import calibrated, conditioned, effective_gamma
from das.privacy.cost import Pure
from das.queries.sensitivity import Neighbors
from das.synthesis.records import Domain
from das.synthesis.strata import Strata as SynthesisStrata
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
from jobs.pipeline.folder.identity import stated_files
from jobs.pipeline.storage.account import Reservation, default_account
from jobs.pipeline.storage.layout import (
    ConfidentialLayout,
    ReleaseLayout,
    confidential_layout,
    release_folder,
)
from jobs.pipeline.storage.place import Place
from jobs.survey.checks import (
    POOLED,
    POPULATION,
    SYNTHESIS,
    Labels,
    PublicStratum,
    check_each,
    check_survey,
    combinations,
    read_weights,
    require,
    stratum_name,
)
from jobs.survey.marginals import TOTAL, MarginalsPlan, marginals_plan
from jobs.survey.models import (
    ReleasedSurveyConfig,
    StatisticConfig,
    SurveyConfig,
    SynthesisConfig,
    TableConfig,
    attributes_of,
)

_AFTER_MEANS = {"shrink"}
_AFTER_MARGINALS = {"written", "confidence"}
_AFTER_SYNTHESIS = {"components", "n_fits", "steps", "seed", "n_records"}


@dataclass(frozen=True, eq=False)
class MeanPlan:
    """Planned statistic: a mean by strata.

    Attributes:
      config: Entry of the run file.
      column: Public bounds and standard deviation of the column.
      strata: Strata with public sizes; small ones are pooled.
      weights: Share of the population, by name of stratum.
      pooled: Names of the strata that were pooled.
      stratum_of: int64[n_a, ...], index of the stratum of each combination of levels.
      cost: Planned privacy loss.
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
        """Return the name of the statistic."""
        return self.config.label

    @property
    def steps(self) -> Steps:
        """Return the steps of coinpress, or the single step of a clipped mean."""
        n_steps = 1 if self.config.method == "clipped" else self.config.steps
        failure, intersect = float(self.config.miss_probability), self.config.intersect
        return Steps.split(self.cost, n_steps, failure=failure, intersect=intersect)


@dataclass(frozen=True, eq=False)
class SurveyPlan:
    """Plan of a survey run.

    Attributes:
      config: The run file, paths absolute.
      source: Path of the run file.
      digest: SHA-256 of all settings that determine the measurements.
      budget: Total budget of the run.
      domain: Attributes of the file, and their numbers of levels.
      means: The statistics.
      tables: The tables that keep exact marginals.
      strata: Strata of the microdata with public weights, if the run file names any.
      marginals: The planned marginals, if the run file asks for any.
      solution: Name of a further solution; None: the release.
      released_root: Folder of a received release, which lies in no run folder.
    """

    config: SurveyConfig
    source: Path
    digest: str
    budget: Budget
    domain: Domain
    means: tuple[MeanPlan, ...]
    tables: tuple[TablePlan, ...] = ()
    strata: SynthesisStrata | None = None
    marginals: MarginalsPlan | None = None
    solution: str | None = None
    released_root: Place | None = None

    @property
    def out(self) -> Place:
        """Return the folder of the run."""
        return self.config.output.directory

    @property
    def release(self) -> ReleaseLayout:
        """Return the layout of the publishable half, which holds the measurements."""
        return ReleaseLayout(
            release_folder(self.out) if self.released_root is None else self.released_root
        )

    @property
    def made(self) -> ReleaseLayout:
        """Return the folder of the results: the release, or a further solution."""
        if self.solution is None:
            return self.release
        return ReleaseLayout(release_folder(self.out, self.solution))

    @property
    def confidential(self) -> ConfidentialLayout:
        """Return the layout of the confidential half."""
        return confidential_layout(self.config.output.roots, self.solution)

    @property
    def not_for_release(self) -> bool:
        """Return whether the noise is seeded."""
        return self.config.privacy.randomness.seed is not None

    @property
    def synthesis(self) -> SynthesisConfig:
        """Return the settings of the microdata.

        Raises:
          ConfigError: The run file has no section `synthesis`.
        """
        if self.config.synthesis is None:
            raise ConfigError(str(self.source), "has no section `synthesis`: no microdata")
        return self.config.synthesis

    @property
    def microdata_domain(self) -> Domain:
        """Return the attributes of the microdata."""
        return _microdata_domain(self.synthesis, self.domain)

    @property
    def costs(self) -> dict[str, Fraction]:
        """Return the planned privacy loss of each part, in the order of measuring."""
        costs = {part.name: part.cost for part in self.parts}
        if self.config.synthesis is not None:
            costs[SYNTHESIS] = self.budget.total * self.config.synthesis.share
        return costs

    @property
    def parts(self) -> tuple[PartPlan, ...]:
        """Return all parts but the microdata, in the order of measuring."""
        marginals = () if self.marginals is None else (self.marginals,)
        return (*self.means, *self.tables, *marginals)

    def part(self, name: str) -> PartPlan | None:
        """Return the part with a name; None for the microdata."""
        return next((part for part in self.parts if part.name == name), None)

    def levels(self, attribute: str) -> tuple[str, ...]:
        """Return the labels of the levels of an attribute."""
        return self.config.data.columns[attribute].levels

    def account(self) -> Place:
        """Return the file of the account from which budget is reserved.

        Raises:
          ConfigError: The run file names no account, and there is no single default.
        """
        return self.config.privacy.account or default_account(self.config.data.path)

    def reservation(self, run: str) -> Reservation:
        """Return the reservation that a run folder with this identity makes in the account."""
        privacy, changed = self.config.privacy, changed_record_bound(self.budget)
        exact = tuple(f"{what} in {one.name}" for one in self.tables for what in one.exact_names)
        out = str(self.out)
        return Reservation(
            privacy.product, privacy.budget_id, self.budget, run, out, changed, exact
        )

    def settings(self, part: str) -> dict[str, Any]:
        """Return the settings of a part that may change after measuring."""
        planned = self.part(part)
        if planned is None:
            return self.synthesis.model_dump(mode="json", include=_AFTER_SYNTHESIS)
        kept = _AFTER_MARGINALS if isinstance(planned, MarginalsPlan) else _AFTER_MEANS
        return planned.config.model_dump(mode="json", include=kept)


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
      solution: Name of a further solution; None: the release.
      released: For the configuration in a release: folder of the release, and the digest of the
        original run file.

    Raises:
      ConfigError, InputError, BudgetError, SchemaError: A value is invalid; the message names file
        and key.
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
    folders = {key: absolute_path(root) for key, root in stated.items() if root is not None}
    config = config.model_copy(update={"output": config.output.model_copy(update=folders)})
    if released is None:
        refuse_tangled(path, config, config.output.roots)
        with at(f"{path}: data.path"):
            check_suffix(config.data.path)
    budget = budget_of(config.privacy, config.privacy, f"{path}: privacy")
    with at(str(path)):
        check_survey(config)
    columns, means, tables = config.data.columns, [], []
    domain = Domain(tuple(columns), tuple(len(column.levels) for column in columns.values()))
    for index, statistic in enumerate(config.statistics):
        with at(f"{path}: statistics.{index}"):
            means.append(_mean_plan(statistic, config, budget.total))
    for index, table in enumerate(config.contingency_tables):
        with at(f"{path}: contingency_tables.{index}"):
            tables.append(table_plan(table, config, budget.total))
    with at(f"{path}: synthesis.strata"):
        strata = _synthesis_strata(config, domain)
    marginals = None
    if config.marginals is not None:
        with at(f"{path}: marginals"):
            marginals = marginals_plan(config.marginals, config, budget.total)
            if released is None:  # a release states its queries, and is not planned again
                _ = marginals.exact
    with at(str(path)):
        _check_tables(tables)
    root, digest = released or (None, _digest(written, config))
    planned = (tuple(means), tuple(tables), strata, marginals, solution, root)
    return SurveyPlan(config, path, digest, budget, domain, *planned)


def _microdata_domain(synthesis: SynthesisConfig, domain: Domain) -> Domain:
    return domain.only(domain.positions(synthesis.attributes or domain.names))


def _synthesis_strata(config: SurveyConfig, domain: Domain) -> SynthesisStrata | None:
    synthesis = config.synthesis
    stated = None if synthesis is None else synthesis.strata
    if synthesis is None or stated is None:
        return None
    released = _microdata_domain(synthesis, domain)
    shape = [released.sizes[i] for i in released.positions(stated.attributes)]
    levels = [config.data.columns[name].levels for name in stated.attributes]
    n_strata = len(combinations(levels, "attributes"))
    weights = np.full(n_strata, 1.0 / n_strata)
    if stated.weights is not None:
        public = public_strata(config, stated.attributes, stated.weights)
        weights = np.array([float(one.weight) for one in public.values()])
    least, weights = float(stated.min_share), weights.reshape(shape)
    strata = SynthesisStrata.of(released, stated.attributes, weights, least)
    return None if stated.weights is None else strata  # measured weights are known later


def public_strata(
    config: SurveyConfig, attributes: Sequence[str], weights: Path
) -> dict[Labels, PublicStratum]:
    """Read the public weights of all combinations of levels of some attributes."""
    levels = {name: config.data.columns[name].levels for name in attributes}
    return read_weights(weights, levels, config.data.n_records)


def _check_tables(tables: Sequence[TablePlan]) -> None:
    for table, other in itertools.permutations(tables, 2):
        what = f"has {table.name}, which {other.name} publishes exactly as a marginal"
        exact = [{other.config.attributes[axis] for axis in axes} for axes in other.exact]
        is_kept = any(kept >= {*table.config.attributes} for kept in exact)
        require(not is_kept, "tables", what, other.config.exact)


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
    require(fits, "missing", what, want="a number that missing values count as, or exclude")
    check_each(config.stratify_by, run.data.columns, "strata")
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
    """Return strata, weights by name, names of pooled strata, and the stratum of each combination.

    Sizes computed from weights are expected sizes; true sizes vary around them as in a sample.
    """
    neighbors, records = run.privacy.neighbors, run.data.n_records
    if config.weights is None:
        stratum_of = np.zeros((), np.int64)
        return Strata({POPULATION: records}, neighbors), {POPULATION: Fraction(1)}, (), stratum_of
    public = public_strata(run, config.stratify_by, config.weights)
    shape = [len(run.data.columns[name].levels) for name in config.stratify_by]
    sizes, weights, pooled, stratum_of = pool_small(public, config.min_share, shape)
    deviations: tuple[float, ...] = ()
    if any(stratum.is_expected for stratum in public.values()):
        deviations = tuple(math.sqrt(records * share * (1 - share)) for share in weights.values())
    return Strata(sizes, neighbors, deviations), weights, pooled, stratum_of


def pool_small(
    public: Mapping[Labels, PublicStratum], min_share: Fraction, shape: Sequence[int]
) -> tuple[dict[str, int], dict[str, Fraction], tuple[str, ...], IntArray]:
    """Pool the strata whose public size is below a share of all records.

    Args:
      public: Public stratum by labels, for every combination of levels; the last attribute runs
        fastest.
      min_share: The share.
      shape: Number of levels of each attribute.

    Returns:
      Sizes and weights by name of stratum, names of the pooled strata, int64[shape] the index
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
    """Return the SHA-256 of all that determines the measurements.

    Settings that may change after measuring are left out. Paths of data count as written, so that a
    project can move to another folder; files of weights count by their contents.
    """
    document = written.model_dump(
        mode="json",
        exclude={
            "name": True,
            "evaluate": True,
            "output": True,
            "privacy": {"account"},
            "statistics": {"__all__": {*_AFTER_MEANS, "weights"}},
            "marginals": _AFTER_MARGINALS,
            "synthesis": {**dict.fromkeys(_AFTER_SYNTHESIS, True), "strata": {"weights"}},
        },
    )
    files = weights_files(config)
    document["weights"] = [
        None if file is None else hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    ]
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()


def weights_files(config: SurveyConfig) -> list[Path | None]:
    """List the files of public weights: of each statistic, then of the microdata."""
    strata = None if config.synthesis is None else config.synthesis.strata
    files = [one.weights for one in config.statistics]
    return [*files, None if strata is None else strata.weights]


def stated_configuration(plan: SurveyPlan) -> dict[str, object]:
    """Return what a run folder stores of the run file: its path, and digests of all named files."""
    weights = [path for path in weights_files(plan.config) if path is not None]
    return {"kind": SURVEY, **stated_files([plan.source.resolve(), *weights])}


CHANGED = 2  # counts that a changed record changes, by 1 each
# Exact drawing visits the cells one by one (`refuse_large`); defaults, not measured.
_MOST_CELLS = 1 << 8
_MOST_EXACT = 3


@dataclass(frozen=True)
class Conditioning:
    """Noise of a table, conditional on exact marginals, and its proved privacy loss.

    Attributes:
      scale: Scale of the two-sided geometric noise on every count, exact.
      records: k, the number of records in which compared data sets may differ.
    """

    scale: Fraction
    records: int

    @property
    def noise(self) -> Pure:
        """Return the privacy loss of the unconditional noise for one changed record."""
        return Pure(CHANGED / self.scale)

    @property
    def cost(self) -> Pure:
        """Return the proved privacy loss (1 + gamma) k epsilon."""
        return conditioned(self.noise, self.records)

    @classmethod
    def of(cls, cost: Fraction, records: int) -> Conditioning:
        """Return the noise with exactly this proved privacy loss."""
        return cls(CHANGED / calibrated(Pure(cost), records).epsilon, records)


@dataclass(frozen=True, eq=False)
class TablePlan:
    """Planned table of counts.

    Attributes:
      config: Entry of the run file.
      shape: Number of levels of each attribute.
      exact: Exact marginals, as positions of attributes; () is the number of records.
      cost: Planned privacy loss.
    """

    config: TableConfig
    shape: tuple[int, ...]
    exact: tuple[tuple[int, ...], ...]
    cost: Fraction

    @property
    def name(self) -> str:
        """Return the name of the table."""
        return self.config.label

    @property
    def exact_names(self) -> tuple[str, ...]:
        """Return the names of the exact marginals."""
        attributes = self.config.attributes
        return tuple(" * ".join(attributes[axis] for axis in axes) or TOTAL for axes in self.exact)

    @property
    def conditioning(self) -> Conditioning:
        """Return the noise distribution of the table, conditional on its exact marginals."""
        return Conditioning.of(self.cost, compared_records(self.exact, len(self.shape)))

    def effective_gamma(self, records: int) -> float | None:
        """Return the smallest gamma over all tables of n records; None if marginals overlap."""
        if len(self.exact) > 1:
            return None
        cells = math.prod(size for axis, size in enumerate(self.shape) if axis not in self.exact[0])
        return effective_gamma(self.conditioning.noise, cells, records)

    def margins(self) -> tuple[IntArray, ...]:
        """Return int64[cells] per exact marginal: which of its values counts each cell."""
        return tuple(margin_of(self.shape, axes) for axes in self.exact)

    @cached_property
    def rows(self) -> IntArray:
        """Return int64[sums, cells], the exact sums as rows, in the order that draws fastest."""
        return margin_rows(self.margins())

    def exact_counts(self, counts: IntArray) -> tuple[IntArray, ...]:
        """Compute each exact marginal, int64[values], from counts int64[cells]."""
        return tuple(
            np.bincount(label, counts, minlength=label.max() + 1).astype(np.int64)
            for label in self.margins()
        )


PartPlan = MeanPlan | TablePlan | MarginalsPlan
"""Plan of any part but the microdata."""


def margin_of(shape: Sequence[int], axes: Sequence[int]) -> IntArray:
    """Return int64[cells], the index of the value of a marginal that counts each cell.

    Args:
      shape: Number of levels of each attribute of the table.
      axes: Positions of the attributes of the marginal.
    """
    cells = np.indices(tuple(shape)).reshape(len(shape), -1)
    out = np.zeros(cells.shape[1], np.int64)
    for axis in axes:
        out = out * shape[axis] + cells[axis]
    return out


def compared_records(exact: Sequence[Sequence[int]], n_attributes: int) -> int:
    """Return k, the largest number of changed records for which a guarantee is proved.

    Without exact marginals k is 1: one changed record. With them k is at least 2: either one record
    changes attributes outside the exact marginals, or two records swap their values inside.
    If all marginals of s - 1 among s attributes are exact and the s-way marginal is not, tables
    that agree on them differ in at least 2^s counts (the move (+1, -1) in each attribute), which
    are 2^(s - 1) records.
    """
    if not any(exact):
        return 1
    kept = [set(axes) for axes in exact]
    free = [
        set(axes)
        for order in range(1, n_attributes + 1)
        for axes in itertools.combinations(range(n_attributes), order)
        if not any(set(axes) <= marginal for marginal in kept)
    ]
    least = [len(marginal) for marginal in free if not any(other < marginal for other in free)]
    return max(2, 1 << (max(least) - 1))


def table_plan(config: TableConfig, run: SurveyConfig, budget: Fraction) -> TablePlan:
    """Plan a table from public numbers, so that nothing fails after budget is reserved.

    Args:
      config: Entry of the run file.
      run: The run file.
      budget: Total budget of the run.

    Raises:
      ConfigError: The table names an unknown attribute, or its guarantee would be empty.
      BudgetError: The table is too large to be drawn exactly.
    """
    definition, neighbors = run.privacy.definition, run.privacy.neighbors
    what = (
        "conditioned has no guarantee under zCDP: the probability that noise keeps the exact "
        "marginals can depend on the data without limit"
    )
    got = f"definition {definition}"
    require(definition is Definition.PURE, "method", what, got, "definition pure")
    what = "conditioned keeps the number of records, which unbounded neighbors protect"
    got = f"neighbors {neighbors}"
    require(neighbors is Neighbors.BOUNDED, "method", what, got, "neighbors bounded")
    check_each(config.attributes, run.data.columns, "query")
    shape = tuple(len(run.data.columns[name].levels) for name in config.attributes)
    n_cells, most = math.prod(shape), f"at most {_MOST_CELLS}"
    require(n_cells <= _MOST_CELLS, "query", "has too many cells", n_cells, most)
    exact = _exact(config)
    cost, records = budget * config.share, run.data.n_records
    plans = [TablePlan(config, shape, order, cost) for order in itertools.permutations(exact)]
    plan = min(plans, key=lambda plan: most_steps(plan.margins(), records))
    refuse_large(plan.margins(), records, plan.conditioning.scale)
    return plan


def _exact(config: TableConfig) -> tuple[tuple[int, ...], ...]:
    """Return the exact marginals as sorted positions of attributes of the table."""
    position = {name: index for index, name in enumerate(config.attributes)}
    marginals: list[tuple[int, ...]] = []
    for text in config.exact:
        names = attributes_of(text)
        what = f"names an attribute that is not in the table {config.query}"
        require({*names} <= {*position}, "exact", what, text)
        what = "is the whole table, so nothing would be protected"
        require({*names} != {*position}, "exact", what, text)
        marginals.append(tuple(sorted({position[name] for name in names})))
    for one, other in itertools.permutations(marginals, 2):
        is_new, what = not {*one} <= {*other}, "names a marginal that another one implies"
        require(is_new, "exact", what, config.exact)
    n_exact = len(marginals)
    require(n_exact <= _MOST_EXACT, "exact", "has too many marginals", n_exact, _MOST_EXACT)
    return tuple(marginals) or ((),)
