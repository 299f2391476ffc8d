"""The noisy door of the firewall: the only functions that turn truth into a release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from das.arrays import IntArray
from das.confidential import Confidential, without_text
from das.errors import BudgetError, OutputError, RuntimeSetupError, SchemaError, SpentError
from das.histograms import Histograms, frozen_array
from das.mechanisms.entropy import NoiseKey, Stream, Streams
from das.mechanisms.mechanism import Mechanism
from das.mechanisms.noise import add_noise_in_place
from das.queries.query import Query

T = TypeVar("T")


def draw_under(key: NoiseKey, draw: Callable[[Streams], T]) -> T:
    """Draw noise from the streams of a key; what fails after a draw is spent.

    What a machine does wrong passes as it is, tells nothing of the noise, and the part is drawn
    anew: full disks and memory, files that are gone, a lost Spark, an interruption.

    Args:
      key: The noise key, of one part alone.
      draw: Measuring code; gets the streams of the key.

    Returns:
      What `draw` returns.

    Raises:
      SpentError: Measuring code failed after a stream was opened. The error says where in the
        code, and no value: the part must not be drawn again.
    """
    streams = Streams(key)
    try:
        return draw(streams)
    except (OSError, MemoryError, OutputError, RuntimeSetupError):
        raise
    except Exception as error:
        if not streams.is_used:
            raise
        place = without_text(error)
    raise SpentError(  # outside of the handler: else the exception itself is its context
        "measuring",
        f"failed after noise was drawn, by {place}",
        remedy="report this defect; the budget of this part is spent, and another "
        "privacy.budget_id and output.directory are needed",
    )


@dataclass(frozen=True, eq=False)
class Measurements:
    """Answers of one query in G geounits, each answer + independent noise.

    Attributes:
      query: Canonical name of the query.
      mechanisms: The noise of each geounit.
      answers: int64[G, m].
    """

    query: str
    mechanisms: tuple[Mechanism, ...]
    answers: IntArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "answers", frozen_array(self.answers))
        if self.answers.ndim != 2 or len(self.answers) != len(self.mechanisms):
            raise SchemaError(f"measurements of {self.query}", "need one mechanism per geounit")


def measure(
    truth: Confidential[Histograms],
    query: Query,
    *,
    mechanisms: Sequence[Mechanism],
    stream: Stream,
) -> Measurements:
    """Answer a query in every geounit and add noise.

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
    """Some answers in some geounits.

    Attributes:
      rows: The geounits, start and stop given.
      positions: int64[p], ascending numbers of the answers.
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
    """Draw some answers of a query in some geounits, and no others ever.

    The distribution is that of those columns of `measure`, since noise is independent from
    answer to answer. The part must not depend on the truth but through what was measured before.

    Args:
      truth: Histograms of geounits.
      query: A partition query.
      part: What to draw: p answers in G geounits.
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
    noisy = exact  # made for this, and seen by nobody else
    # Most rows share one object; comparing its fractions in each row would cost more than noise.
    objects = dict(zip(map(id, mechanisms), mechanisms, strict=True))
    distinct = list(dict.fromkeys(objects.values()))
    for mechanism in distinct:
        rows = None
        if len(distinct) > 1:
            same = {name for name, other in objects.items() if other == mechanism}
            rows = [i for i, other in enumerate(mechanisms) if id(other) in same]
        add_noise_in_place(noisy, mechanism=mechanism, stream=stream, rows=rows)
    return Measurements(query.name, tuple(mechanisms), noisy)
