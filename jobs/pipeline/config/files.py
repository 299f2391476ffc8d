"""Files of a configuration as checked models; every error names the file and the key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, get_args, get_origin, overload

from pydantic import BaseModel, ValidationError

from das.errors import ConfigError, meant
from jobs.pipeline.config.local_path import is_endless, local_path
from jobs.pipeline.config.models.run import RunConfig, model_fields
from jobs.pipeline.config.models.values import SURVEY
from jobs.pipeline.config.yaml_file import read_map
from jobs.pipeline.storage.layout import Roots
from jobs.pipeline.storage.place import Place, StoredPlace, lies_in

_MOST_PROBLEMS = 20  # named at once
_TAGS = (
    "records",
    "block_table",
    "pl94",
    "histograms",
    "RecordColumn",
    "constrained-float",
    "geocode_column",
    "geocode_parts",
    "geocode_table",
)

_GEOUNITS = re.compile(r"\.\./geography/level=[^/]+")  # as a release writes its list of geounits

ModelT = TypeVar("ModelT", bound=BaseModel)


def read_run_file(path: Place) -> RunConfig:
    """Read a run file, paths as written.

    Raises:
      ConfigError: The file cannot be read, or violates the model of run files.
    """
    document = read_map(path)
    if document.get("kind") == SURVEY:
        raise ConfigError(
            str(path),
            "is the run file of a survey, but this command needs that of a census",
            want="validate, run, evaluate, verify, inspect or account",
        )
    for key, what in {"attributes": "a schema", "levels": "an allocation"}.items():
        if key in document and not {"products", "geography"} & document.keys():
            raise ConfigError(str(path), f"is {what}", want="the run file that names it")
    return _validated(path, document, RunConfig)


def is_survey(path: Path) -> bool:
    """Return whether a run file is one of a survey.

    Raises:
      ConfigError: The file cannot be read.
    """
    return read_map(path).get("kind") == SURVEY


def read_model(path: Place, model: type[ModelT]) -> ModelT:
    """Read a YAML file as a model.

    Raises:
      ConfigError: The file cannot be read, or does not fit the model.
    """
    return _validated(path, read_map(path), model)


def _validated(path: Place, document: dict[Any, Any], model: type[ModelT]) -> ModelT:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise _config_error(path, error, model) from None


def absolute(config: ModelT, folder: Place) -> ModelT:
    """Return a run with all its paths absolute.

    Args:
      config: The run, paths as written.
      folder: Folder of the run file, to which paths are relative. In a store, the folder of a
        release.

    Raises:
      ConfigError: A path cannot be followed, or is an endless device.
    """

    def within(_: Keys, place: Place) -> Place:
        return absolute_path(folder / str(place)) if isinstance(place, Path) else place

    resolved: ModelT = with_places(config, within)
    return resolved


Keys = tuple[str, ...]
"""Keys on the way to a value of a configuration."""


def with_places(
    value: Any,  # noqa: ANN401 - whatever a model holds
    change: Callable[[Keys, Place], Place],
    keys: Keys = (),
    *,
    stated_only: bool = False,
) -> Any:  # noqa: ANN401
    """Return a document with each path replaced by the result of `change`.

    Args:
      value: A configuration, or a part of it.
      change: Returns the new path, given its keys and the old path.
      keys: Keys on the way to the part; empty for a whole configuration.
      stated_only: Whether paths that are defaults stay as they are.
    """
    if isinstance(value, Path | StoredPlace):
        return change(keys, value)
    if isinstance(value, BaseModel):
        changed = {
            name: with_places(
                getattr(value, name), change, (*keys, field.alias or name), stated_only=stated_only
            )
            for name, field in type(value).model_fields.items()
            if name in value.model_fields_set or not stated_only
        }
        return value.model_copy(update=changed)
    if isinstance(value, list):
        return [
            with_places(part, change, (*keys, str(index)), stated_only=stated_only)
            for index, part in enumerate(value)
        ]
    if isinstance(value, dict):
        return {
            name: with_places(part, change, (*keys, name), stated_only=stated_only)
            for name, part in value.items()
        }
    return value


def _places(config: BaseModel, *, stated_only: bool = False) -> list[tuple[Keys, Place]]:
    """List the places that a configuration names, each with its keys; defaults are optional."""
    places = list[tuple[Keys, Place]]()

    def note(keys: Keys, place: Place) -> Place:
        places.append((keys, place))
        return place

    with_places(config, note, stated_only=stated_only)
    return places


def refuse_other_folders(path: Place, config: BaseModel) -> None:
    """Refuse the run file of a release if it names files outside of its own folder.

    The reader of a release did not write its run file. A path to another folder would make a
    command read any file of the reader, and publish labels from it. Two paths that releases contain
    are allowed, since no command opens them: `../..` of the run folder, and the list of geounits of
    the release.

    Args:
      path: The run file.
      config: Content of the run file, paths as written.

    Raises:
      ConfigError: A path is absolute, an address, or leads out of the folder.
    """
    for keys, written in _places(config, stated_only=True):
        text = str(written)
        is_plain = text not in (".", "..") and "/" not in text
        is_geounits = keys == ("geography", "geounits", "path") and _GEOUNITS.fullmatch(text)
        if not (is_plain or is_geounits or (keys == ("output", "directory") and text == "../..")):
            raise ConfigError(
                f"{path}: {'.'.join(keys)}",
                "names a file of another folder, which no release does",
                got=text,
                want="the plain name of a file beside it",
            )


def refuse_tangled(path: Place, config: BaseModel, roots: Roots) -> None:
    """Refuse nested roots, and files named in the run file that lie in a root.

    Files in the run folder are published, or removed when outputs are made again.

    Args:
      path: The run file.
      config: Content of the run file, paths absolute.
      roots: Run folder and confidential folder of the run.

    Raises:
      ConfigError: One root lies in the other, or a file lies in a root.
    """
    out, confidential = roots.out, roots.confidential
    if roots.are_apart and (lies_in(confidential, out) or lies_in(out, confidential)):
        within = "the run folder" if lies_in(confidential, out) else "what must not be published"
        raise ConfigError(
            f"{path}: output.confidential",
            f"and output.directory are not apart: one lies in {within}",
            got=f"{confidential} and {out}",
            want="two folders, neither in the other",
            remedy="leave output.confidential out of the run file, which means OUT/confidential, "
            "or name a folder outside of OUT",
        )
    for keys, place in _places(config):
        root = next((one for one in (out, confidential) if lies_in(place, one)), None)
        if root is not None and keys[0] != "output":
            raise ConfigError(
                f"{path}: {'.'.join(keys)}",
                "lies in the folder of the run",
                got=f"{place} in {root}",
                remedy="keep it elsewhere: what lies there is published, or removed with the run",
            )


@overload
def absolute_path(path: Path) -> Path: ...


@overload
def absolute_path(path: Place) -> Place: ...


def absolute_path(path: Place) -> Place:
    """Return a path with links resolved; addresses of stores are unchanged.

    Raises:
      ConfigError: The path is not one of this machine, its links form a circle, or it is an endless
        device.
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
        raise ConfigError(str(path), "is an endless device", want="a file or folder")
    return resolved


def _keys(location: Sequence[int | str]) -> list[str]:
    """Return the keys from the top to a value, without the names of union alternatives."""
    parts = [str(part) for part in location if part not in _TAGS]
    keys = [part for part in parts if not part.startswith(("function-", "dict["))]
    place = keys.index("invariants") + 2 if "invariants" in keys else len(keys)
    return keys[:place] + keys[place + 1 :]


def _config_error(path: Place, error: ValidationError, model: type[BaseModel]) -> ConfigError:
    """Return an error that quotes the first wrong keys of a file, and their values.

    Args:
      path: The file.
      error: Errors of validation.
      model: Model of the file.
    """
    problems = []
    for item in error.errors()[:_MOST_PROBLEMS]:
        keys = _keys(item["loc"])
        key = ".".join(keys)
        got = item["input"]
        got = str(got) if isinstance(got, Fraction) else got
        shown = type(got).__name__ if isinstance(got, dict | list) else f"{got!r:.200}"
        kind = item["type"]
        if kind == "missing":
            problems.append(f"{key}: is required")
        elif kind == "extra_forbidden":
            advice, homes = "", sorted({*_homes(model, keys[-1])})
            if 1 <= len(homes) <= 2:  # of more places, such as those of path, none is named
                advice = f" here; it belongs to {' or '.join(homes)}"
            elif not homes:
                advice = meant(keys[-1], _keys_within(model)).removeprefix(keys[-1])
            problems.append(f"{key}: is not a known key{advice}")
        elif kind == "value_error":
            problems.append(f"{key or 'file'}: {item['msg'].removeprefix('Value error, ')}")
        else:
            problems.append(f"{key}: {item['msg']}; got {shown}")
    more = error.error_count() - len(problems)
    return ConfigError(
        str(path), " | ".join([*problems, *([f"and {more} more"] if more > 0 else [])])
    )


def _keys_within(kind: Any) -> set[str]:  # noqa: ANN401
    """Return all keys of a model or another type, and of the models in it."""
    fields = model_fields(kind) if isinstance(kind, type) and issubclass(kind, BaseModel) else {}
    parts = [*(field.annotation for field in fields.values()), *get_args(kind)]
    return {*fields}.union(*(_keys_within(part) for part in parts))


def _homes(kind: Any, key: str, above: tuple[str, ...] = ()) -> Iterator[str]:  # noqa: ANN401
    """List the places of a key in a model or another type; NAME stands for any name or position."""
    fields = model_fields(kind) if isinstance(kind, type) and issubclass(kind, BaseModel) else {}
    if key in fields:
        yield ".".join((*above, key))
    for name in fields.keys() - {*above}:
        yield from _homes(fields[name].annotation, key, (*above, name))
    inner = (*above, "NAME") if get_origin(kind) in (dict, list, tuple) else above
    for part in get_args(kind):
        yield from _homes(part, key, inner)


# --- the ready files of conf: schemas, allocations, runs and clusters ----------------------------
# An installed wheel and the zip of spark-submit hold them inside `jobs`; in a checkout and an image
# the folder lies beside the packages.


def ready_folder() -> Traversable:
    """Return the folder of ready-made configurations; it may be inside a zip file."""
    inside = files("jobs") / "conf"
    return inside if inside.is_dir() else Path(__file__).resolve().parents[3] / "conf"


def ready_files() -> Mapping[PurePosixPath, bytes]:
    """Return the content of all ready-made files by path in conf, such as `run/demo.yaml`."""
    return dict(sorted(_files(ready_folder(), PurePosixPath())))


def _files(folder: Traversable, name: PurePosixPath) -> Iterator[tuple[PurePosixPath, bytes]]:
    for one in folder.iterdir():
        if one.is_dir():
            yield from _files(one, name / one.name)
        elif one.name.endswith(".yaml"):
            yield name / one.name, one.read_bytes()
