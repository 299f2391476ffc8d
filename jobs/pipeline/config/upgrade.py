"""What format 3 of run files calls the keys of the format before it.

One table holds all renamed keys. Files of the older format are read by it (`current`), and
rewritten (`jobs.pipeline.config.rewrite`). Digests cover the keys as the older format wrote them
(`as_hashed`), so accounts, run folders and releases that were made before stay valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any

from das.errors import ConfigError

FORMAT = 3
"""How run files are written now."""

UNITS_OF_FORMAT_1, PERSONS_OF_FORMAT_1 = "units", "persons"
"""The two products that run files of format 1 could have; digests still write them its way."""

_REMEDY = "`das validate --upgrade FILE` rewrites a file of the older keys as format 3"


class Kind(StrEnum):
    """A kind of file whose keys were renamed."""

    CENSUS = "census"
    SURVEY = "survey"
    ALLOCATION = "allocation"

    @property
    def former_format(self) -> int | None:
        """The older format that is read; None of files that do not say their format."""
        return {Kind.CENSUS: 2, Kind.SURVEY: 1}.get(self)


@dataclass(frozen=True)
class Renamed:
    """A key that is called something else now.

    Attributes:
      to: The new name.
      values: Text that the key may have, to what this text is called now.
    """

    to: str
    values: Mapping[str, str] = field(default_factory=dict)


ANY = "*"
"""Any name in a map, any entry of a list."""

_TREE_OR_LEVEL = {"full": "tree", "own": "level"}
_LOSS = {"worst_of": Renamed("max_weighted_mean"), "limits": Renamed("variance_limits")}
# A key of the older format, with the keys above it, to its name in format 3.
RENAMED_KEYS: Mapping[Kind, Mapping[str, Renamed]] = {
    Kind.CENSUS: {
        "between": Renamed("cross_product_constraints"),
        "geography.spine.gather": Renamed("split_children"),
        "geography.spine.near": Renamed("align_with"),
        "privacy.grant": Renamed("budget_id"),
        "products.*.data.format": Renamed("input_format"),
        "products.*.privacy.lazy_queries": Renamed("on_demand_queries"),
        "products.*.privacy.root_support": Renamed("root_support_passes"),
        "products.*.solve.rounding": Renamed("rounding_passes"),
        "products.*.solve.targets": Renamed("fit_to", _TREE_OR_LEVEL),
        "products.*.solve.learned_prior": Renamed("empirical_bayes"),
        "products.*.solve.order": Renamed("l2_passes"),
        "products.*.solve.round_passes": Renamed("round_l2_passes"),
        "products.*.solve.housing_units.kappa": Renamed("variance_factor"),
        "products.*.solve.housing_units.certified": Renamed("only_if_better"),
        "products.*.output.joined.formats": Renamed("file_formats"),
        "products.*.output.joined.adults": Renamed("householder_first"),
        "products.*.output.joined.alike": Renamed("match_on"),
    },
    Kind.SURVEY: {
        "privacy.grant": Renamed("budget_id"),
        "data.records": Renamed("n_records"),
        "statistics.*.spread": Renamed("sd_bound"),
        "statistics.*.failure": Renamed("miss_probability"),
        "statistics.*.strata": Renamed("stratify_by"),
        "statistics.*.least": Renamed("min_share"),
        "tables": Renamed("contingency_tables"),
        "tables.*.table": Renamed("query"),
        "synthesis.strata.least": Renamed("min_share"),
        "synthesis.strata.population_share": Renamed("population_model_share"),
        "synthesis.pairs_again": Renamed("n_remeasured_pairs"),
        "synthesis.starts": Renamed("n_fits"),
        "synthesis.records": Renamed("n_records"),
        "synthesis.megabytes": Renamed("max_model_megabytes"),
        "synthesis.round_steps": Renamed("steps_per_round"),
    },
    Kind.ALLOCATION: {
        **{f"levels.*.workload.loss.{key}": change for key, change in _LOSS.items()},
        **{f"strata.levels.*.*.workload.loss.{key}": change for key, change in _LOSS.items()},
    },
}


@dataclass
class Key:
    """A key of the tree that all renamed keys of a kind of file make.

    Attributes:
      to: What it is called in the other format; None if that is the same name.
      values: Text that it may have, to what this text is called there.
      below: Keys of its map, or one for all of them, and for all entries of a list, at `*`.
    """

    to: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    below: dict[str, Key] = field(default_factory=dict)

    def at(self, key: object) -> Key | None:
        """Return a key of its map, or None where nothing at this key or below it is renamed."""
        return self.below.get(str(key), self.below.get(ANY))

    def under(self, key: str) -> Key:
        """Return a key of its map, made if absent."""
        return self.below.setdefault(key, Key())

    @property
    def new_names(self) -> dict[str, str]:
        """New name of each renamed key of its map, to the key."""
        return {one.to: key for key, one in self.below.items() if one.to is not None}


@cache
def former_keys(kind: Kind) -> Key:
    """Return the tree of the keys of the older format, with their new names."""
    root = Key()
    for path, change in RENAMED_KEYS[kind].items():
        key = root
        for name in path.split("."):
            key = key.under(name)
        key.to, key.values = change.to, change.values
    return root


@cache
def _current_keys(kind: Kind) -> Key:
    """Return the tree of the keys of format 3, with their former names."""
    root = Key()
    for path, change in RENAMED_KEYS[kind].items():
        *above, name = path.split(".")
        former, key = former_keys(kind), root
        for one in above:
            former = former.below[one]
            key = key.under(former.to or one)
        key = key.under(change.to)
        key.to, key.values = name, {new: old for old, new in change.values.items()}
    return root


def current(kind: Kind, where: str, document: dict[Any, Any]) -> dict[Any, Any]:
    """Return a document of the older format as format 3 has it; any other as it is.

    Args:
      kind: What it is the document of.
      where: The file, for errors.
      document: What the file says.

    Raises:
      ConfigError: A file of the older format has a key of format 3, or two names of one key.
    """
    if not is_former(kind, document):
        return document
    _refuse_mixed(where, document, former_keys(kind), kind.former_format)
    renamed: dict[Any, Any] = _renamed(document, former_keys(kind))
    return renamed if kind.former_format is None else {**renamed, "format": FORMAT}


def is_former(kind: Kind, document: Mapping[Any, Any]) -> bool:
    """Return whether a document is to be read by the keys of the older format.

    Allocation files do not state a format: their older keys are read wherever they stand.
    """
    stated = document.get("format")
    return kind.former_format is None or (type(stated) is int and stated == kind.former_format)


def as_hashed(kind: Kind, document: Any, at: str = "") -> Any:  # noqa: ANN401 - JSON
    """Return a part of a document, in the keys of format 3, as the older format wrote it.

    Keys stay in their order, which digests cover. A part that has the older keys stays as it is.

    Args:
      kind: What it is a part of.
      document: The part.
      at: Where it stands, such as "products.*.solve".
    """
    return _renamed(document, _descend(_current_keys(kind), at))


def product_as_hashed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a product of a census as digests cover it: as format 2 wrote it.

    Facilities that the units count stand in it as format 1 wrote them.
    """
    hashed: dict[str, Any] = as_hashed(Kind.CENSUS, document, "products.*")
    return hashed | {"invariants": [_as_in_format_1(one) for one in hashed["invariants"]]}


def _as_in_format_1(entry: Mapping[str, Any]) -> dict[str, Any]:
    exact = entry.get("exact")
    if "facilities" not in entry or (exact is not None and exact["product"] != UNITS_OF_FORMAT_1):
        return dict(entry)
    written = {**entry, "exact": exact and exact["query"]}
    return {UNITS_OF_FORMAT_1 if key == "exact" else key: value for key, value in written.items()}


def as_current(kind: Kind, document: Any, at: str = "") -> Any:  # noqa: ANN401 - JSON
    """Return a part of a document, in the keys of the older format, as format 3 has it.

    Args:
      kind: What it is a part of.
      document: The part.
      at: Where it stands, such as "products.*.solve".
    """
    return _renamed(document, _descend(former_keys(kind), at))


def _descend(key: Key | None, at: str) -> Key | None:
    for name in filter(None, at.split(".")):
        key = None if key is None else key.at(name)
    return key


def as_stated(kind: Kind, keys: Sequence[str]) -> list[str]:
    """Return keys on the way to a value, named as in format 3, as the older format names them."""
    stated, key = list[str](), _current_keys(kind)
    for name in keys:
        below = key.at(name)
        stated.append((below and below.to) or name)
        key = below or Key()
    return stated


def advice(kind: Kind, keys: Sequence[str]) -> str:
    """Return what became of a key that format 3 does not know; nothing of one never known."""
    former, now = former_keys(kind), _current_keys(kind)
    for name in keys[:-1]:
        at = now.at(name)
        former, now = former.at((at and at.to) or name) or Key(), at or Key()
    found = former.below.get(keys[-1]) if keys else None
    if found is None or found.to is None:
        return ""
    return f"; did you mean `{found.to}`, as format {FORMAT} calls it?"


def _renamed(value: Any, key: Key | None) -> Any:  # noqa: ANN401 - JSON
    if key is None:
        return value
    if isinstance(value, list):
        return [_renamed(one, key.at(ANY)) for one in value]
    if not isinstance(value, dict):
        return key.values.get(value, value) if isinstance(value, str) else value
    named: dict[Any, Any] = {}
    for name, one in value.items():
        below = key.at(name)
        named[(below and below.to) or name] = _renamed(one, below)
    return named


def _refuse_mixed(
    where: str, value: object, key: Key | None, stated: int | None, path: tuple[str, ...] = ()
) -> None:
    """Refuse what a document in the keys of the older format must not say.

    Args:
      where: The file.
      value: The document, or a part of it.
      key: Where it stands in the tree of older keys.
      stated: The format that the file states; None of files that state none.
      path: Keys on the way to it.
    """
    if key is None or not isinstance(value, dict | list):
        return
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for name, one in pairs:
        below, here = key.at(name), (*path, str(name))
        at, former = f"{where}: {'.'.join(here)}", key.new_names.get(str(name))
        if former is not None and stated is not None:
            what = f"is a key of format {FORMAT}, and this file states format {stated}"
            raise ConfigError(at, what, want=f"`{former}`", remedy=_REMEDY)
        if former is not None and isinstance(value, dict) and former in value:
            raise ConfigError(at, f"is the same key as `{former}` beside it", want="one of them")
        _refuse_mixed(where, one, below, stated, here)
