"""What tasks give, as JSON: a server that answers for them can name data, and no code to run.

Unpickling runs what the bytes say. Here a text names values alone: numbers, texts, arrays, and
dataclasses, named tuples, enumerations and errors of this project that are imported already. Their
fields are set as they stand; no constructor of theirs runs but that of errors.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from das.errors import DasError, RuntimeSetupError
from jobs.pipeline.tasks.shipping import PACKAGES

_NUMBERS = "biufUS"  # kinds of arrays: numbers and texts, no objects


def encode(value: object) -> bytes:
    """Write a value that a task gives.

    Args:
      value: None, numbers, texts, bytes, fractions, paths, arrays of numbers or texts; dataclasses,
        named tuples, enumerations and errors of this project; tuples, lists, sets and mappings of
        such.

    Raises:
      TypeError: It holds something else.
    """
    return json.dumps(_written(value)).encode()


def decode(content: bytes) -> Any:  # noqa: ANN401 - whatever a task gives
    """Read what `encode` wrote; runs nothing that the content names.

    Raises:
      RuntimeSetupError: `encode` wrote no such thing.
    """
    try:
        return _read(json.loads(content))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise RuntimeSetupError(
            "Spark Connect server",
            "gave something else than the result of a task",
            got=f"{type(error).__name__}: {error}",
        ) from None


def _written(value: Any) -> Any:  # noqa: ANN401
    """A value as JSON has it: what is no plain value is a list whose first entry is its kind."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind in (list, tuple, set, frozenset):
        return [kind.__name__, *map(_written, value)]
    if isinstance(value, dict):
        return ["dict", *([_written(key), _written(own)] for key, own in value.items())]
    if isinstance(value, bytes):
        return ["bytes", base64.b64encode(value).decode()]
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _NUMBERS:
        shape = "array" if isinstance(value, np.ndarray) else "scalar"
        content = base64.b64encode(value.tobytes()).decode()
        return [shape, value.dtype.str, list(value.shape), content]
    if isinstance(value, Fraction):
        return ["fraction", str(value)]
    if isinstance(value, Path):
        return ["path", str(value)]
    name = [kind.__module__, kind.__qualname__]
    if not _is_ours(kind):
        raise TypeError(f"tasks give no {'.'.join(name)}")
    if isinstance(value, Enum):
        return ["member", *name, value.name]
    if isinstance(value, DasError):
        facts = {"got": value.got, "want": value.want, "remedy": value.remedy}
        return ["error", *name, value.where, value.what, facts]
    if isinstance(value, tuple):
        return ["named", *name, *map(_written, value)]
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return ["data", *name, *(_written(getattr(value, field.name)) for field in fields)]
    raise TypeError(f"tasks give no {'.'.join(name)}")


def _read(value: Any) -> Any:  # noqa: ANN401
    return _READERS[value[0]](*value[1:]) if isinstance(value, list) else value


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in PACKAGES


def _ours(module: str, qualname: str, parent: type | None) -> Any:  # noqa: ANN401
    """A class of this project by its name.

    Raises:
      ValueError: There is none of this name and kind among the modules that are imported.
    """
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = vars(found).get(part) if found is not None else None
    fits = isinstance(found, type) and _is_ours(found) and found.__module__ == module
    if not (
        fits and (dataclasses.is_dataclass(found) if parent is None else issubclass(found, parent))
    ):
        raise ValueError("names a class that is none of this project's values")
    return found


def _array(dtype: str, shape: list[int], content: str) -> np.ndarray:
    if np.dtype(dtype).kind not in _NUMBERS:
        raise ValueError("an array of something else than numbers")
    return np.frombuffer(base64.b64decode(content), dtype).reshape(shape).copy()


def _data(module: str, qualname: str, *values: object) -> object:
    kind = _ours(module, qualname, None)
    made = object.__new__(kind)
    for field, value in zip(dataclasses.fields(kind), values, strict=True):
        object.__setattr__(made, field.name, _read(value))
    return made


def _error(module: str, qualname: str, where: str, what: str, facts: dict[str, Any]) -> DasError:
    kind: type[DasError] = _ours(module, qualname, DasError)
    return kind(where, what, **facts)


_READERS: Mapping[str, Callable[..., Any]] = {
    "list": lambda *values: [*map(_read, values)],
    "tuple": lambda *values: tuple(map(_read, values)),
    "set": lambda *values: {*map(_read, values)},
    "frozenset": lambda *values: frozenset(map(_read, values)),
    "dict": lambda *pairs: {_read(key): _read(value) for key, value in pairs},
    "bytes": base64.b64decode,
    "array": _array,
    "scalar": lambda *facts: _array(*facts)[()],
    "fraction": Fraction,
    "path": Path,
    "member": lambda module, qualname, name: _ours(module, qualname, Enum)[name],
    "error": _error,
    "named": lambda module, name, *values: tuple.__new__(
        _ours(module, name, tuple), map(_read, values)
    ),
    "data": _data,
}
