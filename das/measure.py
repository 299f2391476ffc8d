"""Noisy measurements: the only functions that turn confidential counts into released answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from das.arrays import IntArray
from das.confidential import Confidential, without_text
from das.errors import BudgetError, OutputError, RuntimeSetupError, SchemaError, SpentError
from das.histograms import Histograms, freeze_arrays
from das.mechanisms.entropy import NoiseKey, Stream, Streams
from das.mechanisms.mechanism import Mechanism
from das.mechanisms.noise import add_noise_in_place
from das.queries.query import Query

T = TypeVar("T")


def draw_under(key: NoiseKey, draw: Callable[[Streams], T]) -> T:
    """Run measuring code with the streams of a key; a failure after a draw spends the budget.

    Failures of the machine reveal nothing of the noise. They are raised unchanged, and the part is
    measured again: full disks or memory, missing files, a lost Spark session, an interruption.

    Args:
      key: The noise key of one part of the run.
      draw: Measuring code; receives the streams of the key.

    Returns:
      The result of `draw`.

    Raises:
      SpentError: Measuring code failed after a stream was opened, so the part must not be drawn
        again. The message has the location in the code, and no value.
    """
    streams = Streams(key)
    try:
        return draw(streams)
    except (OSError, MemoryError, OutputError, RuntimeSetupError):
        raise
    except Exception as error:
        if not streams.is_used:
            raise
        failure = without_text(error)
    raise SpentError(  # after the handler, so that the exception is not its context
        "measuring",
        f"failed after noise was drawn, by {failure}",
        remedy="report this defect; the budget of this part is spent, and another "
        "privacy.budget_id and output.directory are needed",
    )


@dataclass(frozen=True, eq=False)
class Measurements:
    """Noisy answers of one query in G geounits.

    Attributes:
      query: Canonical name of the query.
      mechanisms: The noise of each geounit.
      answers: int64[G, m], exact answers plus independent noise.
    """

    query: str
    mechanisms: tuple[Mechanism, ...]
    answers: IntArray

    def __post_init__(self) -> None:
        freeze_arrays(self, "answers")
        if self.answers.ndim != 2 or len(self.answers) != len(self.mechanisms):
            raise SchemaError(f"measurements of {self.query}", "need one mechanism per geounit")


def measure(
    truth: Confidential[Histograms],
    query: Query,
    *,
    mechanisms: Sequence[Mechanism],
    stream: Stream,
) -> Measurements:
    """Measure a query in every geounit: evaluate it and add noise.

    Args:
      truth: Histograms of G geounits.
      query: The query.
      mechanisms: The noise of each of the G geounits.
      stream: The noise stream of the query in the G geounits.

    Returns:
      The noisy answers.

    Law: answers[g, j] = Q(x_g)_j + Z_gj, the Z_gj independent with the law of mechanisms[g],
    exactly, given uniform bits.

    Raises:
      BudgetError: Lengths differ.
    """
    return _noisy(query.answer(truth.reveal()), query, mechanisms, stream)


@dataclass(frozen=True, eq=False)
class Part:
    """A selection of answers and geounits.

    Attributes:
      rows: The geounits; start and stop are set.
      positions: int64[p], ascending indices of the answers.
    """

    rows: slice
    positions: IntArray


def measure_at(
    truth: Confidential[Histograms],
    query: Query,
    part: Part,
    *,
    mechanisms: Sequence[Mechanism],
    stream: Stream,
) -> Measurements:
    """Measure some answers of a query in some geounits; the other answers are never drawn.

    The result has the distribution of the same columns of `measure`, since noise is independent
    between answers. The selection may depend on the truth only through previous measurements.

    Args:
      truth: Histograms of geounits.
      query: A partition query.
      part: The selected p answers in G geounits.
      mechanisms: The noise of each of the G geounits.
      stream: The noise stream of the query in the G geounits; its draws go to the positions in
        order.

    Returns:
      The noisy answers, int64[G, p].

    Law: answers[g, j] = Q(x_g)_positions[j] + Z_gj, the Z_gj independent with the law of
    mechanisms[g], exactly, given uniform bits.

    Raises:
      BudgetError: Lengths differ.
      SchemaError: The query is not a partition.
    """
    some = truth.reveal().slice(part.rows.start, part.rows.stop)
    return _noisy(query.answer_at(some, part.positions), query, mechanisms, stream)


def _noisy(
    exact: IntArray,
    query: Query,
    mechanisms: Sequence[Mechanism],
    stream: Stream,
) -> Measurements:
    if not len(stream) == len(mechanisms) == len(exact):
        raise BudgetError(f"measure {query.name}", "needs one row and one mechanism per geounit")
    noisy = exact  # a new array of the caller, so it is overwritten
    # Most rows share one object; comparing fractions in each row would take longer than sampling.
    objects = dict(zip(map(id, mechanisms), mechanisms, strict=True))
    distinct = list(dict.fromkeys(objects.values()))
    for mechanism in distinct:
        rows = None
        if len(distinct) > 1:
            same = {name for name, other in objects.items() if other == mechanism}
            rows = [i for i, other in enumerate(mechanisms) if id(other) in same]
        add_noise_in_place(noisy, mechanism=mechanism, stream=stream, rows=rows)
    return Measurements(query.name, tuple(mechanisms), noisy)
