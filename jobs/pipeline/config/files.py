"""Files of a configuration as checked models; every error names the file and the key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, overload

from pydantic import BaseModel, ValidationError

from das.errors import ConfigError, DasError
from jobs.pipeline.config.local_path import is_endless, local_path
from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.config.models.values import SURVEY
from jobs.pipeline.config.yaml_file import read_map
from jobs.pipeline.storage.place import Place, StoredPlace

_MOST_PROBLEMS = 20  # named at once
_TAGS = (
    "records",
    "block_table",
    "pl94",
    "histograms",
    "RecordColumn",
    "geocode_column",
    "geocode_parts",
)

_GEOUNITS = re.compile(r"\.\./geography/level=[^/]+")  # as a release writes its list of geounits

ModelT = TypeVar("ModelT", bound=BaseModel)
T = TypeVar("T")


@dataclass(frozen=True)
class RunFile:
    """A run file as it was written.

    Attributes:
      path: Where it is.
      config: What it says, paths as written.
      wanted: Tables that an allocation is to be made for, beside those of the run; None where
        every product must name one.
    """

    path: Place
    config: RunConfig
    wanted: tuple[str, ...] | None = None


def read_run_file(path: Place) -> RunFile:
    """Read a run file.

    Raises:
      ConfigError: It cannot be read, or says what no run file may say.
    """
    document = read_map(path)
    if document.get("kind") == SURVEY:
        raise ConfigError(
            str(path),
            "is the run file of a survey, and this command is for censuses: there are no geounits",
            want="validate, run, means, tables, synthesize, evaluate, verify, certificate or "
            "account",
        )
    if document.get("format", 1) == 1 and {"schema", "data"} & document.keys():
        raise ConfigError(
            str(path),
            "is of format 1, which is not read any more",
            remedy="write `format: 2`; put schema, data, invariants, solve, evaluate, of privacy "
            "rho, epsilon, epsilon_from, allocation, lazy_queries and product, and of output "
            "microdata, tables, table_formats and h1 under `products: {persons: ...}`; the section "
            "units before it, under `products: {units: ...}` with its `privacy: {product: units}`; "
            "and `exact: {product: units, query: QUERY}` for `units: QUERY` of facilities; the "
            "folder of the run stays valid (docs/configuration.md)",
        )
    return RunFile(path, _validated(path, document, RunConfig))


def is_survey(path: Path) -> bool:
    """Whether a run file says that it is one of a survey.

    Raises:
      ConfigError: It cannot be read.
    """
    return read_map(path).get("kind") == SURVEY


def read_model(path: Place, model: type[ModelT]) -> ModelT:
    """Read a YAML file as a model.

    Raises:
      ConfigError: It cannot be read, or does not fit the model.
    """
    return _validated(path, read_map(path), model)


def _validated(path: Place, document: dict[Any, Any], model: type[ModelT]) -> ModelT:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise _config_error(path, error) from None


def named(where: str, build: Callable[[], T]) -> T:
    """Build a value; errors say where in the configuration it stands."""
    try:
        return build()
    except DasError as error:
        raise type(error)(
            f"{where}: {error.where}",
            error.what,
            got=error.got,
            want=error.want,
            remedy=error.remedy,
        ) from None


def absolute(config: ModelT, folder: Place) -> ModelT:
    """A run with all its paths absolute.

    Args:
      config: The run, paths as written.
      folder: That of the run file, to which they are relative; in a store, that of a release.

    Raises:
      ConfigError: A path cannot be followed, or is a device that does not end.
    """

    def within(_: str, place: Place) -> Place:
        return absolute_path(folder / str(place)) if isinstance(place, Path) else place

    resolved: ModelT = _with_places(config, within)
    return resolved


def _with_places(value: Any, change: Callable[[str, Place], Place], key: str = "") -> Any:  # noqa: ANN401 - whatever a model holds
    """A document with other paths, each made of its key and what it was."""
    if isinstance(value, Path | StoredPlace):
        return change(key, value)
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return value.model_copy(
            update={name: _with_places(getattr(value, name), change, name) for name in fields}
        )
    if isinstance(value, list):
        return [_with_places(one, change, key) for one in value]
    if isinstance(value, dict):
        return {name: _with_places(one, change, str(name)) for name, one in value.items()}
    return value


def without_inputs(config: ModelT) -> ModelT:
    """The run file of a release without the folders of public inputs, which no reader opens.

    Older versions released the absolute paths of tables and of releases that a run was bound to.
    """

    def named(key: str, place: Place) -> Place:
        is_elsewhere = isinstance(place, StoredPlace) or place.is_absolute()
        return Path(place.name) if key == "path" and is_elsewhere else place

    released: ModelT = _with_places(config, named)
    return released


def refuse_other_folders(path: Place, config: BaseModel) -> None:
    """Refuse the run file of a release if it names files that do not lie beside it.

    Whoever reads a release did not write its run file: a path elsewhere would have a command read
    any file of the reader, and put labels from it into what is published. Two paths that releases
    have are allowed, since nothing is opened by them: `../..` of the run folder, and the list of
    geounits of the release itself.

    Args:
      path: The run file.
      config: What it says, paths as written.

    Raises:
      ConfigError: A path is absolute, an address, or leads out of the folder.
    """
    for keys, written in _written_paths(config, ()):
        text, key = str(written), ".".join(keys)
        is_plain = text not in (".", "..") and "/" not in text
        is_geounits = keys == ("geography", "geounits", "path") and _GEOUNITS.fullmatch(text)
        if not (is_plain or is_geounits or (keys == ("output", "directory") and text == "../..")):
            raise ConfigError(
                f"{path}: {key}",
                "names a file of another folder, which no release does",
                got=text,
                want="the plain name of a file beside it",
            )


def _written_paths(value: object, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Place]]:
    """The paths that a document states, with their keys; those that are defaults are left out."""
    if isinstance(value, Path | StoredPlace):
        yield keys, value
    elif isinstance(value, BaseModel):
        for name in sorted(value.model_fields_set):
            alias = type(value).model_fields[name].alias or name
            yield from _written_paths(getattr(value, name), (*keys, alias))
    elif isinstance(value, list | tuple):
        for index, one in enumerate(value):
            yield from _written_paths(one, (*keys, str(index)))
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _written_paths(one, (*keys, str(key)))


@overload
def absolute_path(path: Path) -> Path: ...


@overload
def absolute_path(path: Place) -> Place: ...


def absolute_path(path: Place) -> Place:
    """A path with its links followed; an address stays as it is.

    Raises:
      ConfigError: It is none of this machine, leads in a circle, or is a device without end.
    """
    if isinstance(path, StoredPlace):
        return path
    try:
        resolved = local_path(path).resolve()
    except ValueError as error:
        raise ConfigError(f"path {path}", str(error)) from None
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        raise ConfigError(str(path), "cannot be followed; a link leads in a circle") from None
    if is_endless(resolved):
        raise ConfigError(str(path), "is a device that does not end", want="a file or folder")
    return resolved


def _keys(location: Sequence[int | str]) -> list[str]:
    """Keys on the way to a value, without the names of the alternatives a union chose."""
    parts = [str(part) for part in location if part not in _TAGS]
    keys = [part for part in parts if not part.startswith("function-")]
    place = keys.index("invariants") + 2 if "invariants" in keys else len(keys)
    return keys[:place] + keys[place + 1 :]


def _config_error(path: Place, error: ValidationError) -> ConfigError:
    """One error naming the first wrong keys, what it got and what it wants."""
    problems = []
    for item in error.errors()[:_MOST_PROBLEMS]:
        key = ".".join(_keys(item["loc"]))
        got = item["input"]
        shown = type(got).__name__ if isinstance(got, dict | list) else f"{got!r:.200}"
        kind = item["type"]
        if kind == "missing":
            problems.append(f"{key}: is required")
        elif kind == "extra_forbidden":
            problems.append(f"{key}: is not a known key")
        elif kind == "value_error":
            problems.append(f"{key or 'file'}: {item['msg'].removeprefix('Value error, ')}")
        else:
            problems.append(f"{key}: {item['msg']}; got {shown}")
    more = error.error_count() - len(problems)
    return ConfigError(
        str(path), " | ".join([*problems, *([f"and {more} more"] if more > 0 else [])])
    )
