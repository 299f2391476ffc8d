"""What makes a type a document: how it is read, checked and written.

A document is a frozen dataclass whose fields are the keys of a JSON map, in the order in which they
are written. Reading is strict: an unknown key, a missing key or a value of another type is an error
that names the file and the key, so nothing downstream asks whether a key is there. A field with a
default is left out of the file while it has that default; every other key is always there.

The types stand in a room of their own above storage, which knows bytes and not what they mean, and
below all that writes or reads documents: planning, the stages, verification and reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any, TypeVar, cast, dataclass_transform

from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError

from das.errors import OutputError
from das.rational import stated_fraction
from jobs.pipeline.storage.files import read_bytes, write_json
from jobs.pipeline.storage.place import Place
from jobs.pipeline.storage.stores.store import OWNER_ONLY


def _exact(text: str) -> str:
    stated_fraction(text)
    return text


def _within(path: str) -> str:
    if not path.isprintable() or any(name in ("", ".", "..") for name in path.split("/")):
        raise ValueError("is no path within the folder of the document")
    return path


def _plain_name(name: str) -> str:
    if "/" in name:
        raise ValueError("is no plain name")
    return _within(name)


ExactText = Annotated[str, AfterValidator(_exact)]
"""An exact fraction as text; `das.rational.stated_fraction` makes it a number."""
PathWithin = Annotated[str, AfterValidator(_within)]
"""A path within the folder of the document that states it: not absolute, and without `..`."""
PlainName = Annotated[str, AfterValidator(_plain_name)]
"""The name of one file or folder."""
D = TypeVar("D")
_AS_THEY_ARE = (str, int, float, type(None))
_ADAPTERS: dict[object, TypeAdapter[Any]] = {}


@dataclass_transform(kw_only_default=True, frozen_default=True)
def document(kind: type[D]) -> type[D]:
    """Make a class a frozen dataclass that refuses unknown keys when it is read."""
    kind.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
    return dataclass(frozen=True, kw_only=True)(kind)


def adapter(kind: type[D]) -> TypeAdapter[D]:
    """What checks values of a type, made once per process: that of a manifest takes 16 ms."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def read_document(kind: type[D], path: Place, *, remedy: str) -> D:
    """Read a document.

    Args:
      kind: What it is.
      path: The file.
      remedy: What to do if it is missing or damaged.

    Raises:
      OutputError: It is missing, cannot be read, is of another format, or is not what its schema
        says; names the key.
    """
    try:
        value: D = adapter(kind).validate_json(read_bytes(path, remedy), strict=True)
    except ValidationError as error:
        raise _refusal(path, error, remedy) from None
    return value


def value_of(kind: type[D], document: Mapping[str, object], path: Place, *, remedy: str) -> D:
    """The value of a part of another file, already parsed.

    Raises:
      OutputError: It is not what the schema of the kind says.
    """
    try:
        value: D = adapter(kind).validate_python(document)
    except ValidationError as error:
        raise _refusal(path, error, remedy) from None
    return value


def json_of(value: object) -> dict[str, Any]:
    """A document as a JSON map, keys in order; fields that have their default are left out."""
    return cast("dict[str, Any]", _plain(value))


def write_document(path: Place, value: object, *, mode: int = OWNER_ONLY) -> None:
    """Write a document; an existing file is replaced at once.

    Raises:
      OutputError: It cannot be written.
    """
    write_json(path, json_of(value), mode=mode)


def _plain(value: object) -> object:
    # Asked first, or 15 MB of results take 0.45 s in the place of 0.15.
    if isinstance(value, _AS_THEY_ARE):
        return value
    if is_dataclass(value):
        return {
            field.name: _plain(own)
            for field in fields(value)
            for own in [getattr(value, field.name)]
            if field.default is MISSING or own != field.default
        }
    if isinstance(value, Mapping):
        return {str(key): _plain(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(own) for own in value]
    return value


def _refusal(path: Place, error: ValidationError, remedy: str) -> OutputError:
    """The first thing that is wrong, in words."""
    first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(map(str, first["loc"]))
    if key == "format":
        return OutputError(
            str(path),
            "is of a format that this version does not read",
            want=str(first.get("ctx", {}).get("expected", "")) or None,
            remedy="use the version that wrote it",
        )
    message = first["msg"]
    return OutputError(
        str(path), "is damaged", got=f"{key}: {message}" if key else message, remedy=remedy
    )
