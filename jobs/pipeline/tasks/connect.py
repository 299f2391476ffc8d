"""Tasks on a Spark Connect server, which has neither RDDs, accumulators nor a status tracker.

A step is a range of the numbers of its tasks, cut by the server into as many partitions, mapped by
a function that carries the items. No rows are shuffled: which partition a row lands in after
`repartition` is left to chance, and n rows would leave some of n partitions empty.
"""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from das.errors import RuntimeSetupError
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.encoding import decode, encode
from jobs.pipeline.tasks.executor import Tasks
from jobs.pipeline.tasks.step import (
    Step,
    TaskReport,
    current_watch,
    outcome_of,
    results_of,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

# A server sends rows in messages of 4 MiB, and none larger than 128 MiB gets through: results are
# cut into rows that fit with room to spare.
_PIECE_BYTES = 1 << 20
# What a job carries goes to each of its tasks; a step of more is cut into several jobs.
_JOB_BYTES = 16 << 20


class ConnectTasks(Tasks):
    """Tasks as Spark jobs of a Connect server, one per step, or a few where items are large."""

    def __init__(self, session: SparkSession, sizing: Sizing, slots: int, is_open: bool) -> None:
        super().__init__(sizing, slots, is_open=is_open)
        self.session = session

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the version of the server's Spark; it does not say its Java."""
        return {"spark": self.session.version, "java": "of the cluster"}

    def run(self, label: str, items: Sequence[T], task: Callable[[T], R]) -> list[R]:
        """Implement `Tasks.run`; the label is a tag of the job.

        Raises:
          RuntimeSetupError: The server gave no result, or several, for an item, or something else.
        """
        from pyspark import cloudpickle

        dumps: Any = cloudpickle.dumps  # also functions that no module holds
        call, *carried = map(dumps, [task, *items])
        shown = _Shown(Step(label, items))
        outcomes: list[tuple[int, Any]] = []
        with _followed(self.session, label, shown):
            for numbers in _jobs([len(one) for one in carried]):
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
        """Run the tasks of one job; give number and encoded outcome of each, as they come."""
        schema = "task long, pieces long, content binary"
        first = min(items)
        numbers = self.session.range(first, first + len(items), 1, len(items))
        pieces: dict[int, list[bytes]] = {}
        for row in numbers.mapInArrow(_mapper(call, items), schema).toLocalIterator():
            own = pieces.setdefault(row.task, [])
            own.append(bytes(row.content))
            if len(own) == row.pieces:
                yield row.task, b"".join(pieces.pop(row.task))


def _mapper(
    call: bytes, items: Mapping[int, bytes]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function of a job, from numbers of tasks to pieces of what the tasks give."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = pickle.loads(call)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                outcome = outcome_of(task, number, pickle.loads(items[number]))
                yield from _pieces(number, encode(outcome))

    return run


def _pieces(number: int, content: bytes) -> Iterator[pa.RecordBatch]:
    """Cut what a task gives into rows."""
    import pyarrow as pa

    whole, n_pieces = memoryview(content), max(1, -(-len(content) // _PIECE_BYTES))
    for piece in range(n_pieces):
        cut = whole[piece * _PIECE_BYTES : (piece + 1) * _PIECE_BYTES]
        row = {"task": [number], "pieces": [n_pieces], "content": [bytes(cut)]}
        yield pa.RecordBatch.from_pydict(row)


def _jobs(sizes: Sequence[int]) -> Iterator[range]:
    """Cut items into runs of consecutive ones that one job can carry.

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
    """Shows the watch how far a step is, by reports and by what the server says of its tasks.

    Reports come in the order of the tasks: when the first of them takes long, others have finished
    that are not told of yet.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._watch = current_watch()
        self._before = 0
        self._started = 0
        self._finished = 0

    def begin(self, numbers: range) -> None:
        """Another job begins, of these tasks."""
        self._before = self._started = self._finished = numbers.start

    def take(self, report: TaskReport) -> None:
        """Take in what a task says of itself."""
        self._started = max(self._started, report.index + 1)
        self._look([report])

    def __call__(
        self,
        stages: Iterable[Any] | None = None,
        inflight_tasks: int = 0,
        **_: object,
    ) -> None:
        """Take in what the server says of the job."""
        done = sum(stage.num_completed_tasks for stage in stages or ())
        self._finished = max(self._finished, self._before + done)
        self._started = max(self._started, self._finished + inflight_tasks)
        self._look([])

    def _look(self, reports: list[TaskReport]) -> None:
        self._step.look(reports, self._started, time.monotonic(), self._finished)
        if self._watch:
            self._watch(self._step)


@contextmanager
def _followed(session: Any, label: str, shown: _Shown) -> Iterator[None]:  # noqa: ANN401
    """Give jobs a tag that the server shows, and let it say how far it is, if it can."""
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
