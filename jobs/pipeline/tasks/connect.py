"""Run tasks on a Spark Connect server, which has no RDDs, accumulators or status tracker.

A step is a range of task numbers in as many partitions, mapped by a function that carries the
items. No rows are shuffled: `repartition` distributes rows at random, and would leave some of n
partitions empty for n rows.

Tasks return their results as JSON, so a malicious server can return data but no code, as unpickling
would run. Values are numbers, texts, arrays, and dataclasses, named tuples, enumerations and errors
of this project that are already imported. Fields are set directly; only constructors of errors run.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import pickle
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from das.errors import DasError, RuntimeSetupError
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.shipping import PACKAGES
from jobs.pipeline.tasks.step import (
    Step,
    TaskReport,
    Tasks,
    outcome_of,
    results_of,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

# A server sends rows in messages of 4 MiB, at most 128 MiB: results are cut into smaller rows.
_PIECE_BYTES = 1 << 20
# Items of a job go to each of its tasks; a larger step is cut into jobs. Default, not measured.
_JOB_BYTES = 16 << 20


class ConnectTasks(Tasks):
    """Tasks as Spark jobs of a Connect server, one per step, or a few where items are large."""

    def __init__(self, session: SparkSession, sizing: Sizing, slots: int, is_open: bool) -> None:
        super().__init__(sizing, slots, is_open=is_open)
        self.session = session

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the version of the server's Spark; its Java is unknown."""
        return {"spark": self.session.version, "java": "of the cluster"}

    def run(self, label: str, items: Sequence[T], task: Callable[[T], R]) -> list[R]:
        """Implement `Tasks.run`; the label is a tag of the job.

        Raises:
          RuntimeSetupError: The server did not return exactly one valid result per item.
        """
        from pyspark import cloudpickle

        dumps: Any = cloudpickle.dumps  # also functions that no module holds
        call, *carried = map(dumps, [task, *items])
        shown = _Shown(Step(label, items))
        outcomes: list[tuple[int, Any]] = []
        with _followed(self.session, label, shown):
            for numbers in _jobs([len(item) for item in carried]):
                shown.begin(numbers)
                part = {number: carried[number] for number in numbers}
                for number, content in self._contents(call, part):
                    outcome, report = decode(content)
                    outcomes.append((number, outcome))
                    shown.take(report)
        by_number = dict(outcomes)
        if len(outcomes) != len(items) or by_number.keys() != set(range(len(items))):
            raise RuntimeSetupError(
                f"Spark Connect server, {label}", "did not give one result for every task"
            )
        return results_of(by_number[number] for number in range(len(items)))

    def _contents(self, call: bytes, items: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        """Run the tasks of one job; yields number and encoded outcome of each."""
        schema = "task long, pieces long, content binary"
        first = min(items)
        numbers = self.session.range(first, first + len(items), 1, len(items))
        pieces: dict[int, list[bytes]] = {}
        for row in numbers.mapInArrow(_mapper(call, items), schema).toLocalIterator():
            of_task = pieces.setdefault(row.task, [])
            of_task.append(bytes(row.content))
            if len(of_task) == row.pieces:
                yield row.task, b"".join(pieces.pop(row.task))


def _mapper(
    call: bytes, items: Mapping[int, bytes]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function of a job, from task numbers to pieces of encoded outcomes."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = pickle.loads(call)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                outcome = outcome_of(task, number, pickle.loads(items[number]))
                yield from _pieces(number, encode(outcome))

    return run


def _pieces(number: int, content: bytes) -> Iterator[pa.RecordBatch]:
    """Cut the encoded outcome of a task into rows."""
    import pyarrow as pa

    whole, n_pieces = memoryview(content), max(1, -(-len(content) // _PIECE_BYTES))
    for piece in range(n_pieces):
        cut = whole[piece * _PIECE_BYTES : (piece + 1) * _PIECE_BYTES]
        row = {"task": [number], "pieces": [n_pieces], "content": [bytes(cut)]}
        yield pa.RecordBatch.from_pydict(row)


def _jobs(sizes: Sequence[int]) -> Iterator[range]:
    """Cut items into consecutive runs that one job can carry.

    >>> [*_jobs([10 << 20, 5 << 20, 2 << 20, 99 << 20])]
    [range(0, 2), range(2, 3), range(3, 4)]
    """
    first, carried = 0, 0
    for number, size in enumerate(sizes):
        if number > first and carried + size > _JOB_BYTES:
            yield range(first, number)
            first, carried = number, 0
        carried += size
    if sizes:
        yield range(first, len(sizes))


class _Shown:
    """Progress of a step from task reports and from the counts of the server.

    Reports come in the order of the tasks. While the first task runs long, later tasks can have
    finished whose reports are still missing.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._before = 0
        self._started = 0
        self._finished = 0

    def begin(self, numbers: range) -> None:
        """Begin another job, of these tasks."""
        self._before = self._started = self._finished = numbers.start

    def take(self, report: TaskReport) -> None:
        """Add the report of a task."""
        self._started = max(self._started, report.index + 1)
        self._step.look([report], self._started, time.monotonic(), self._finished)

    def __call__(
        self, stages: Iterable[Any] | None = None, inflight_tasks: int = 0, **_: object
    ) -> None:
        """Add the task counts of the server; PySpark calls this as its progress handler."""
        done = sum(stage.num_completed_tasks for stage in stages or ())
        self._finished = max(self._finished, self._before + done)
        self._started = max(self._started, self._finished + inflight_tasks)
        self._step.look([], self._started, time.monotonic(), self._finished)


@contextmanager
def _followed(session: Any, label: str, shown: _Shown) -> Iterator[None]:  # noqa: ANN401
    """Tag jobs on the server, and follow their progress if the session supports it."""
    tag = re.sub(r"\W+", "-", f"das {label}")
    has_progress = hasattr(session, "registerProgressHandler")  # sessions of some makers have not
    session.addTag(tag)
    if has_progress:
        session.registerProgressHandler(shown)
    try:
        yield
    finally:
        session.removeTag(tag)
        if has_progress:
            session.removeProgressHandler(shown)


# --- results as JSON -----------------------------------------------------------------------------


_NUMBERS = "biufUS"  # kinds of arrays: numbers and texts, no objects


def encode(value: object) -> bytes:
    """Encode the result of a task as JSON.

    Args:
      value: None, numbers, texts, bytes, fractions, paths, arrays of numbers or texts; dataclasses,
        named tuples, enumerations and errors of this project; tuples, lists, sets and mappings of
        such.

    Raises:
      TypeError: The value has another type.
    """
    return json.dumps(_written(value)).encode()


def decode(content: bytes) -> Any:  # noqa: ANN401 - whatever a task gives
    """Decode a result of `encode`, without running code that the content names.

    Raises:
      RuntimeSetupError: The content is no result of `encode`.
    """
    try:
        return _read(json.loads(content))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise RuntimeSetupError(
            "Spark Connect server",
            "returned data that cannot be decoded as the result of a task",
            got=f"{type(error).__name__}: {error}",
        ) from None


def _written(value: Any) -> Any:  # noqa: ANN401
    """Convert a value to JSON; other than plain values become lists that begin with their kind."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind in (list, tuple, set, frozenset):
        return [kind.__name__, *map(_written, value)]
    if isinstance(value, dict):
        return ["dict", *([_written(key), _written(item)] for key, item in value.items())]
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
    """Return an imported class of this project by the name of its module and its own name.

    Args:
      module: Name of the module that defines the class.
      qualname: Qualified name of the class.
      parent: Required base class; None requires a dataclass.

    Raises:
      ValueError: The module is not imported or lacks the class, or the class is of another kind.
    """
    kind: Any = sys.modules.get(module)
    for part in qualname.split("."):
        kind = vars(kind).get(part) if kind is not None else None
    fits = isinstance(kind, type) and _is_ours(kind) and kind.__module__ == module
    if not (
        fits and (dataclasses.is_dataclass(kind) if parent is None else issubclass(kind, parent))
    ):
        raise ValueError("names a class that is none of this project's values")
    return kind


def _array(dtype: str, shape: list[int], content: str) -> np.ndarray:
    if np.dtype(dtype).kind not in _NUMBERS:
        raise ValueError("an array of another type than numbers or text")
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
