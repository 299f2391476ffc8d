"""What is public of a survey run: its parts, what each costs, its strata; opens no data."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np

from das.arrays import IntArray
from das.definition import Definition
from das.errors import BudgetError, ConfigError
from das.means.estimates import Column, Steps, Strata, clipped_noise, refuse_unmeasurable
from das.privacy.budget import Budget, changed_record_bound
from das.schema import PLAIN_NAME, is_plain_name
from das.synthesis.records import Domain
from das.synthesis.strata import Strata as SynthesisStrata
from das.workload.workload import Weighting
from jobs.config.data import check_suffix
from jobs.config.files import (
    absolute,
    absolute_path,
    is_survey,
    named,
    read_model,
    refuse_other_folders,
)
from jobs.config.load import check_solution_name
from jobs.config.models.survey import (
    PredictConfig,
    ReleasedSurveyConfig,
    StatisticConfig,
    SurveyConfig,
    SynthesisConfig,
    TableConfig,
)
from jobs.config.models.values import LONGEST_NAME, SURVEY
from jobs.config.places import refuse_tangled
from jobs.config.resolve import budget_of
from jobs.storage.account import Claim, default_account
from jobs.storage.layout import (
    ConfidentialLayout,
    ReleaseLayout,
    confidential_layout,
    release_layout,
)
from jobs.storage.place import Place
from jobs.survey.table_plan import TablePlan, table_plan
from jobs.survey.weights import Labels, PublicStratum, combinations, read_weights, stratum_name

SYNTHESIS = "synthesis"
PartKind = Literal["means", "tables", "synthesis"]
POOLED, EVERYBODY = "pooled", "everybody"
_TAKEN_LABELS = (POOLED, EVERYBODY)
_AFTER_MEANS = {"shrink"}
_AFTER_SYNTHESIS = {"components", "starts", "steps", "seed", "records"}

# Sizes that one machine with 8 GB works on: codes of 40 attributes and 5 million records are
# 1.6 GB, and the fit holds four matrices of 5,000 by 5,000 levels, 0.6 GB.
MOST_RECORDS = 5_000_000
MOST_ATTRIBUTES = 40
MOST_LEVELS = 5_000
# Records times pairs of attributes of a classifier; the 55 million of a million records and 11
# features took 2 to 4 s to train.
_MOST_TRAINING = 1_000_000_000


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
      missing: What missing values count as; None if they are left out.
    """

    config: StatisticConfig
    column: Column
    strata: Strata
    weights: Mapping[str, Fraction]
    pooled: tuple[str, ...]
    stratum_of: IntArray
    cost: Fraction
    missing: int | None

    @property
    def name(self) -> str:
        """What it is called."""
        return self.config.label

    @property
    def steps(self) -> Steps:
        """The steps of coinpress, or the one of a clipped mean."""
        n_steps = 1 if self.config.method == "clipped" else self.config.steps
        failure, intersect = float(self.config.failure), self.config.intersect
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
        return release_layout(self.out) if self.alone is None else ReleaseLayout(self.alone)

    @property
    def made(self) -> ReleaseLayout:
        """Where what is made of measurements goes: the release, or a solution beside it."""
        return self.release if self.solution is None else release_layout(self.out, self.solution)

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
        costs = {one.name: one.cost for one in self.means}
        costs |= {one.name: one.cost for one in self.tables}
        if self.config.synthesis is not None:
            costs[SYNTHESIS] = self.budget.total * self.config.synthesis.share
        return costs

    def kind(self, part: str) -> PartKind:
        """What a part is."""
        if part == SYNTHESIS:
            return "synthesis"
        return "tables" if any(one.name == part for one in self.tables) else "means"

    def table(self, part: str) -> TablePlan:
        """The table of a name."""
        return next(one for one in self.tables if one.name == part)

    def mean(self, part: str) -> MeanPlan:
        """The statistic of a name."""
        return next(one for one in self.means if one.name == part)

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
        return Claim(privacy.product, privacy.grant, self.budget, run, out, changed, exact)

    def settings(self, part: str) -> dict[str, Any]:
        """What the run file says of a part that may change after measuring."""
        if part == SYNTHESIS:
            return self.synthesis.model_dump(mode="json", include=_AFTER_SYNTHESIS)
        if self.kind(part) == "tables":
            return {}
        return self.mean(part).config.model_dump(mode="json", include=_AFTER_MEANS)


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
        named(f"{path}: data.path", lambda: check_suffix(config.data.path))
    budget = budget_of(config.privacy, config.privacy, f"{path}: privacy")
    _check_shares(config, path)
    _check_limits(config, path)
    _check_labels(config, path)
    columns = config.data.columns
    domain = Domain(tuple(columns), tuple(len(column.levels) for column in columns.values()))
    _check_synthesis(config, path)
    _check_evaluate(config, path)
    _check_names(config, path)
    means = tuple(
        named(
            f"{path}: statistics.{index}",
            lambda one=one: _mean_plan(one, config, budget),  # type: ignore[misc]
        )
        for index, one in enumerate(config.statistics)
    )
    tables = tuple(
        named(
            f"{path}: tables.{index}",
            lambda one=one: table_plan(one, config, budget.total),  # type: ignore[misc]
        )
        for index, one in enumerate(config.tables)
    )
    strata = named(f"{path}: synthesis.strata", lambda: _synthesis_strata(config, domain))
    _check_tables(tables, path)
    root, digest = released or (None, _digest(written, config))
    return SurveyPlan(config, path, digest, budget, domain, means, tables, strata, solution, root)


def _microdata_domain(synthesis: SynthesisConfig, domain: Domain) -> Domain:
    names = synthesis.attributes or list(domain.names)
    return Domain(tuple(names), tuple(domain.sizes[i] for i in domain.positions(names)))


def _synthesis_strata(config: SurveyConfig, domain: Domain) -> SynthesisStrata | None:
    synthesis = config.synthesis
    stated = None if synthesis is None else synthesis.strata
    if synthesis is None or stated is None:
        return None
    own = _microdata_domain(synthesis, domain)
    own.positions(stated.attributes)
    levels = {name: config.data.columns[name].levels for name in stated.attributes}
    public = read_weights(stated.weights, levels, config.data.records)
    weights = {
        tuple(levels[name].index(label) for name, label in zip(levels, labels, strict=True)): float(
            stratum.weight
        )
        for labels, stratum in public.items()
    }
    return SynthesisStrata.of(own, stated.attributes, weights, float(stated.least))


def _check_shares(config: SurveyConfig, path: Place) -> None:
    shares = [one.share for one in config.statistics]
    shares += [one.share for one in config.tables]
    if config.synthesis is not None:
        shares.append(config.synthesis.share)
    if sum(shares) != 1:
        raise BudgetError(
            f"{path}: shares of statistics, tables and synthesis",
            "do not sum to 1",
            got=str(sum(shares)),
            want="exactly 1: what is granted is spent",
        )


def _check_limits(config: SurveyConfig, path: Place) -> None:
    columns = config.data.columns
    n_levels = sum(len(column.levels) for column in columns.values())
    records = max(config.data.records, (config.synthesis and config.synthesis.records) or 0)
    for key, got, most in (
        ("data.records", records, MOST_RECORDS),
        ("data.columns", len(columns), MOST_ATTRIBUTES),
        ("levels of all data.columns", n_levels, MOST_LEVELS),
    ):
        if got > most:
            raise ConfigError(
                f"{path}: {key}", "is more than one machine works on", got=got, want=f"{most}"
            )


def _check_labels(config: SurveyConfig, path: Place) -> None:
    """Refuse names of attributes and strata that would make queries or strata ambiguous."""
    for name, column in config.data.columns.items():
        where = f"{path}: data.columns.{name}"
        if not is_plain_name(name):
            raise ConfigError(where, "cannot be the name of an attribute", want=PLAIN_NAME)
        unclear = [label for label in column.levels if "*" in label or label in _TAKEN_LABELS]
        if unclear:
            raise ConfigError(
                where,
                "has a level whose label would make names of strata ambiguous",
                got=unclear[0],
                want=f"no *, and not {' or '.join(_TAKEN_LABELS)}",
            )


def _check_synthesis(config: SurveyConfig, path: Place) -> None:
    if config.synthesis is None:
        return
    where, names = f"{path}: synthesis", config.synthesis.attributes
    unknown = [name for name in names or [] if name not in config.data.columns]
    if unknown:
        raise ConfigError(f"{where}.attributes", "names no column of data.columns", got=unknown)
    if len(set(names or [])) != len(names or []):
        raise ConfigError(f"{where}.attributes", "names an attribute twice")
    if len(names or config.data.columns) < 2:
        raise ConfigError(where, "needs two attributes or more")
    if config.privacy.definition is not Definition.ZCDP:
        raise ConfigError(
            where,
            "is measured with Gaussian noise, which has no pure epsilon",
            got=f"definition {config.privacy.definition}",
            want="definition zcdp, or statistics and tables alone",
        )


def _check_evaluate(config: SurveyConfig, path: Place) -> None:
    where, asked = f"{path}: evaluate", config.evaluate
    if config.synthesis is None:
        if asked.groups or asked.predict is not None:
            raise ConfigError(where, "compares microdata", want="a section `synthesis`")
        return
    names = config.synthesis.attributes or list(config.data.columns)
    levels = {name: config.data.columns[name].levels for name in names}
    for index, group in enumerate(asked.groups):
        _check_attributes(group, names, f"{where}.groups.{index}")
        combinations([levels[name] for name in group], f"{where}.groups.{index}")
    if len({frozenset(group) for group in asked.groups}) != len(asked.groups):
        raise ConfigError(f"{where}.groups", "names a set of attributes twice")
    if asked.predict is None:
        return
    predicted, own = f"{where}.predict", asked.predict.levels
    _check_attributes([asked.predict.attribute], names, f"{predicted}.attribute")
    possible = levels[asked.predict.attribute]
    unknown = [level for level in own if level not in possible]
    if unknown or len(set(own)) != len(own) or len(own) == len(possible):
        raise ConfigError(
            f"{predicted}.levels",
            f"need some levels of {asked.predict.attribute}, and not all",
            got=unknown or own,
            want=list(possible),
        )
    if not asked.groups:
        raise ConfigError(f"{where}.groups", "is required with `predict`")
    if any(asked.predict.attribute in group for group in asked.groups):
        raise ConfigError(
            f"{where}.groups",
            "holds what is predicted, which is the same for all of a group",
            got=asked.predict.attribute,
        )
    features = predict_features(asked.predict, names)
    _check_attributes(features, names, f"{predicted}.features")
    if not features or asked.predict.attribute in features:
        raise ConfigError(
            f"{predicted}.features", "needs attributes other than the one that is predicted"
        )
    records = max(config.data.records, config.synthesis.records or 0)
    if records * math.comb(len(features), 2) > _MOST_TRAINING:
        raise ConfigError(
            f"{predicted}.features",
            "are too many to train with",
            got=f"{records} records times {math.comb(len(features), 2)} pairs",
            want=f"at most {_MOST_TRAINING}: name fewer features",
        )


def predict_features(predict: PredictConfig, names: Sequence[str]) -> list[str]:
    """Attributes by which a classifier predicts, of those of the microdata."""
    if predict.features is not None:
        return predict.features
    return [name for name in names if name != predict.attribute]


def _check_attributes(asked: Sequence[str], names: Sequence[str], where: str) -> None:
    """Attributes of the microdata, each once."""
    unknown = [name for name in asked if name not in names]
    if unknown:
        raise ConfigError(where, "is no attribute of the microdata", got=unknown, want=list(names))
    if len(set(asked)) != len(asked):
        raise ConfigError(where, "names an attribute twice")


def _check_names(config: SurveyConfig, path: Place) -> None:
    parts: list[tuple[str, StatisticConfig | TableConfig]] = [
        (f"statistics.{i}", one) for i, one in enumerate(config.statistics)
    ]
    parts += [(f"tables.{i}", one) for i, one in enumerate(config.tables)]
    for where, one in parts:
        if re.fullmatch(r"[a-z][a-z0-9_]*", one.label) is None or len(one.label) > LONGEST_NAME:
            raise ConfigError(
                f"{path}: {where}",
                "has attributes that make no name",
                got=one.label,
                remedy="give it a `name`",
            )
    names = [one.label for _, one in parts]
    twice = [name for name in names if names.count(name) > 1]
    taken = [name for name in names if name == SYNTHESIS]
    if twice or taken:
        raise ConfigError(
            f"{path}: statistics and tables",
            "has a name twice" if twice else "has the name of another part",
            got=(twice or taken)[0],
            remedy="give each a `name` of its own",
        )


def _check_tables(tables: Sequence[TablePlan], path: Place) -> None:
    for one, other in itertools.permutations(tables, 2):
        for axes in other.exact:
            if set(one.config.attributes) <= {other.config.attributes[axis] for axis in axes}:
                raise ConfigError(
                    f"{path}: tables",
                    f"has {one.name}, all of which {other.name} publishes as it is",
                    got=other.config.exact,
                )


def _mean_plan(config: StatisticConfig, run: SurveyConfig, budget: Budget) -> MeanPlan:
    columns = run.data.columns
    averaged = columns.get(config.mean)
    if averaged is None or averaged.bins is None:
        raise ConfigError("mean", "is no attribute with `bins`", got=config.mean)
    if config.method == "coinpress" and run.privacy.definition is not Definition.ZCDP:
        raise ConfigError(
            "method",
            "coinpress takes Gaussian noise, which has no pure epsilon",
            got=f"definition {run.privacy.definition}",
            want="method clipped, or definition zcdp",
        )
    if bool(averaged.missing) != (config.missing is not None):
        what = "is required: the column has missing values" if averaged.missing else "has no use"
        raise ConfigError("missing", what, want="what `missing` of the column is counted as")
    unknown = [name for name in config.strata if name not in columns]
    if unknown:
        raise ConfigError("strata", "names no column of data.columns", got=unknown)
    strata, weights, pooled, stratum_of = _strata(config, run)
    plan = MeanPlan(
        config=config,
        column=Column(config.label, config.low, config.high, config.spread),
        strata=strata,
        weights=weights,
        pooled=pooled,
        stratum_of=stratum_of,
        cost=budget.total * config.share,
        missing=config.missing if isinstance(config.missing, int) else None,
    )
    if config.method == "clipped":
        clipped_noise(plan.column, plan.steps, strata, run.privacy.definition)
    else:
        refuse_unmeasurable(plan.column, plan.steps, strata)
    return plan


def _strata(
    config: StatisticConfig, run: SurveyConfig
) -> tuple[Strata, dict[str, Fraction], tuple[str, ...], IntArray]:
    """Strata, weights by name, names of what was pooled, and the stratum of each combination.

    Sizes that follow from weights are those of a sample: its numbers of records vary about them.
    """
    neighbors, records = run.privacy.neighbors, run.data.records
    if config.weights is None:
        one = np.zeros((), np.int64)
        return Strata({EVERYBODY: records}, neighbors), {EVERYBODY: Fraction(1)}, (), one
    levels = {name: run.data.columns[name].levels for name in config.strata}
    public = read_weights(config.weights, levels, records)
    shape = [len(own) for own in levels.values()]
    sizes, weights, pooled, stratum_of = pool_small(public, config.least, shape)
    deviations: tuple[float, ...] = ()
    if any(stratum.is_expected for stratum in public.values()):
        deviations = tuple(math.sqrt(records * own * (1 - own)) for own in weights.values())
    return Strata(sizes, neighbors, deviations), weights, pooled, stratum_of


def pool_small(
    public: Mapping[Labels, PublicStratum], least: Fraction, shape: Sequence[int]
) -> tuple[dict[str, int], dict[str, Fraction], tuple[str, ...], IntArray]:
    """Pool the strata whose public size is below a part of all.

    Args:
      public: Every combination of levels, in order.
      least: The part.
      shape: Numbers of levels.

    Returns:
      Sizes and weights by name of stratum, names of those that were pooled, int64[shape] the number
      of the stratum of each combination.
    """
    total = sum(stratum.size for stratum in public.values())
    small = [labels for labels, one in public.items() if one.size < max(least * total, Fraction(1))]
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
    document = written.model_dump(
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
    # What earlier versions could not say is left out, so that their folders go on.
    if config.data.quoting == "double":
        del document["data"]["quoting"]
    if not config.tables:
        del document["tables"]
    if config.synthesis is not None and config.synthesis.weighting is Weighting.SQUARE_ROOT:
        del document["synthesis"]["weighting"]
    strata = None if config.synthesis is None else config.synthesis.strata
    files = [
        *(one.weights for one in config.statistics),
        None if strata is None else strata.weights,
    ]
    document["weights"] = [
        None if file is None else hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    ]
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()


def stated_configuration(plan: SurveyPlan) -> dict[str, object]:
    """What a run folder remembers of the run file: where it is, and digests of what it names."""
    files = [plan.source.resolve()]
    files += [one.config.weights for one in plan.means if one.config.weights is not None]
    strata = None if plan.config.synthesis is None else plan.config.synthesis.strata
    files += [] if strata is None else [strata.weights]
    digests = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return {
        "kind": SURVEY,
        "run_file": str(plan.source.resolve()),
        "configuration_files": digests,
    }
