"""Names of renamed keys, in format 3 of run files and in the format before it.

One table holds all renamed keys. Files of the older format are read by it (`current`), and
rewritten (`jobs.pipeline.config.rewrite`). Digests cover the keys as the older format wrote them
(`as_hashed`), so accounts, run folders and releases that were made before stay valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, reduce
from itertools import accumulate
from typing import Any

from das.errors import ConfigError

FORMAT = 3
"""Current format of run files."""

UNITS_OF_FORMAT_1, PERSONS_OF_FORMAT_1 = "units", "persons"
"""The two products that run files of format 1 could have; digests still cover them as it did."""

_REMEDY = "`das validate --upgrade FILE` rewrites a file of the older keys as format 3"


class Kind(StrEnum):
    """A kind of file whose keys were renamed."""

    CENSUS = "census"
    SURVEY = "survey"
    ALLOCATION = "allocation"

    @property
    def former_format(self) -> int | None:
        """Return the older format that is read; None for files that do not state their format."""
        return {Kind.CENSUS: 2, Kind.SURVEY: 1}.get(self)


@dataclass(frozen=True)
class Renamed:
    """A key with another name in the other format.

    Attributes:
      to: Name of the key in the other format.
      values: Renamed values of the key: name in this format -> name in the other format.
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


RenamedKeys = Mapping[tuple[str, ...], Renamed]
"""Renamed keys below a place of a file, by the names on the way to them."""


@cache
def _former_keys(kind: Kind) -> RenamedKeys:
    """Return the renamed keys as the older format writes them, with their new names."""
    return {tuple(path.split(".")): change for path, change in RENAMED_KEYS[kind].items()}


@cache
def _current_keys(kind: Kind) -> RenamedKeys:
    """Return the renamed keys as format 3 writes them, with their former names."""
    former, current = _former_keys(kind), {}
    for path, change in former.items():
        places = [path[: end + 1] for end in range(len(path))]
        names = tuple(former[place].to if place in former else place[-1] for place in places)
        values = {new: old for old, new in change.values.items()}
        current[names] = Renamed(path[-1], values)
    return current


def _below(renamed: RenamedKeys, name: str) -> RenamedKeys:
    """Return the renamed keys below a key; `()` is this key, if it is renamed itself."""
    return {path[1:]: change for path, change in renamed.items() if path and path[0] in (ANY, name)}


def renamed_key(kind: Kind, keys: Sequence[str]) -> Renamed | None:
    """Return the name in format 3 of a key of the older format; None if it is unchanged."""
    return reduce(_below, keys, _former_keys(kind)).get(())


def current(kind: Kind, where: str, document: dict[Any, Any]) -> dict[Any, Any]:
    """Return a document of the older format in the keys of format 3; others stay unchanged.

    Args:
      kind: Kind of the file.
      where: The file, for errors.
      document: Content of the file.

    Raises:
      ConfigError: A file of the older format has a key of format 3, or two names of one key.
    """
    if not is_former(kind, document):
        return document
    former = kind.former_format
    _refuse_mixed(where, document, _former_keys(kind), former)
    renamed: dict[Any, Any] = _renamed(document, _former_keys(kind))
    return renamed if former is None else {**renamed, "format": FORMAT}


def is_former(kind: Kind, document: Mapping[Any, Any]) -> bool:
    """Return whether a document may have keys of the older format, by the format that it states.

    True for every allocation file: allocation files state no format, and may have older keys.
    """
    stated = document.get("format")
    return kind.former_format is None or (type(stated) is int and stated == kind.former_format)


def as_hashed(kind: Kind, document: Any, at: str = "") -> Any:  # noqa: ANN401 - JSON
    """Return a part of a document with the keys of the older format in place of format 3.

    Keys stay in their order, which digests cover. A part that has the older keys stays as it is.

    Args:
      kind: Kind of the file.
      document: The part.
      at: Keys above the part, such as "products.*.solve".
    """
    return _renamed(document, reduce(_below, filter(None, at.split(".")), _current_keys(kind)))


def product_as_hashed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a product of a census as digests cover it: as format 2 wrote it.

    Facilities that the units count are written as in format 1.
    """
    hashed: dict[str, Any] = as_hashed(Kind.CENSUS, document, "products.*")
    invariants = []
    for entry in hashed["invariants"]:
        exact = entry.get("exact")
        if "facilities" in entry and (exact is None or exact["product"] == UNITS_OF_FORMAT_1):
            pairs = {**entry, "exact": exact and exact["query"]}.items()
            entry = {UNITS_OF_FORMAT_1 if key == "exact" else key: value for key, value in pairs}
        invariants.append(entry)
    return hashed | {"invariants": invariants}


def as_current(kind: Kind, document: Any, at: str = "") -> Any:  # noqa: ANN401 - JSON
    """Return a part of a document with the keys of format 3 in place of the older format.

    Args:
      kind: Kind of the file.
      document: The part.
      at: Keys above the part, such as "products.*.solve".
    """
    return _renamed(document, reduce(_below, filter(None, at.split(".")), _former_keys(kind)))


def as_stated(kind: Kind, keys: Sequence[str]) -> list[str]:
    """Return keys on the way to a value, named as in format 3, as the older format names them."""
    tables = accumulate(keys, _below, initial=_current_keys(kind))
    changes = [table.get(()) for table in tables][1:]
    return [change.to if change else name for name, change in zip(keys, changes, strict=True)]


def advice(kind: Kind, keys: Sequence[str]) -> str:
    """Return the new name of a key that format 3 does not know; empty if it never existed."""
    change = renamed_key(kind, [*as_stated(kind, keys[:-1]), *keys[-1:]])
    return f"; did you mean `{change.to}`, as format {FORMAT} calls it?" if change else ""


def _renamed(value: Any, renamed: RenamedKeys) -> Any:  # noqa: ANN401 - JSON
    """Return a part of a document with the keys and values of the other format."""
    if not renamed:
        return value
    if isinstance(value, list):
        return [_renamed(part, _below(renamed, ANY)) for part in value]
    if isinstance(value, dict):
        named = {}
        for name, part in value.items():
            below = _below(renamed, str(name))
            named[below[()].to if () in below else name] = _renamed(part, below)
        return named
    return (
        renamed[()].values.get(value, value) if () in renamed and isinstance(value, str) else value
    )


def _refuse_mixed(
    where: str, value: object, renamed: RenamedKeys, stated: int | None, above: str = ""
) -> None:
    """Refuse keys of format 3 in a document of the older format.

    Args:
      where: The file.
      value: The document, or a part of it.
      renamed: Renamed keys of the part.
      stated: Format that the file states; None if such files state none.
      above: Keys above the part, each with a dot.
    """
    if not renamed or not isinstance(value, dict | list):
        return
    former = {change.to: path[0] for path, change in renamed.items() if len(path) == 1}
    for name, part in value.items() if isinstance(value, dict) else enumerate(value):
        at, old = f"{where}: {above}{name}", former.get(str(name))
        if old is not None and stated is not None:
            raise ConfigError(
                at,
                f"is a key of format {FORMAT}, and this file states format {stated}",
                want=f"`{old}`",
                remedy=_REMEDY,
            )
        if old is not None and old in value:
            raise ConfigError(at, f"is the same key as `{old}` in this map", want="one of them")
        _refuse_mixed(where, part, _below(renamed, str(name)), stated, f"{above}{name}.")
