"""add_noise(): integer answers plus exact noise from keyed streams."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from das.arrays import IntArray
from das.errors import BudgetError, SchemaError
from das.mechanisms.entropy import (
    BitSource,
    NoiseKey,
    Places,
    PurposeWords,
    extra_bits,
    stream_label,
)
from das.mechanisms.mechanism import Mechanism
from das.mechanisms.table import BLOCK_WORDS


def add_noise(
    answers: IntArray, *, mechanism: Mechanism, key: NoiseKey, purpose: str, places: Places
) -> IntArray:
    """Add independent noise of a mechanism to every answer.

    The noise of row i is a function of (key, purpose, places[i], mechanism, position in the row)
    alone: rows may be noised in any grouping and order, and again after a failure, with the same
    result. Purpose and place must therefore name one release; using them for two answers would
    share their noise.

    Args:
      answers: int64[G, m].
      mechanism: The distribution of the noise.
      key: The noise key.
      purpose: What is drawn, such as the name of the query.
      places: G places with distinct names, one per row.

    Returns:
      int64[G, m], answers + noise modulo 2^64. The reduction is post-processing of the exact sum,
      and acts only if |answer + noise| reaches 2^63; nothing here fails because of a noisy value.

    Law: returned - answers has independent entries, distributed exactly as `mechanism` says, if
    the words of distinct purposes and places are uniform bits.

    Raises:
      BudgetError: A place repeats, or a row has more draws than can be numbered.
      SchemaError: `answers` is not int64[G, m] with G the number of places.
    """
    noisy = np.array(answers, order="C")
    add_noise_in_place(noisy, mechanism=mechanism, key=key, purpose=purpose, places=places)
    return noisy


def add_noise_in_place(
    answers: IntArray,
    *,
    mechanism: Mechanism,
    key: NoiseKey,
    purpose: str,
    places: Places,
    rows: Sequence[int] | None = None,
) -> None:
    """As `add_noise`, but to the answers themselves, or to some rows of them.

    Args:
      answers: int64[G, m], overwritten.
      mechanism: The distribution of the noise.
      key: The noise key.
      purpose: What is drawn.
      places: G places with distinct names, one per row.
      rows: Numbers of the rows that get noise, distinct; default all.

    Law: as of `add_noise`.

    Raises:
      BudgetError: As `add_noise`.
      SchemaError: As `add_noise`.
    """
    if answers.dtype != np.int64 or answers.ndim != 2 or len(answers) != len(places):
        raise SchemaError(
            "add_noise",
            "answers and places do not fit",
            got=f"{answers.dtype}{list(answers.shape)} and {len(places)} places",
            want="int64[G, m] and G places",
        )
    if len(set(places.names)) != len(places):
        raise BudgetError(
            "add_noise",
            "a place repeats, so two rows would share their noise",
            got=f"{len(set(places.names))} distinct places for {len(places)} rows",
        )
    sampler = mechanism.sampler()
    noised = np.arange(len(answers)) if rows is None else np.asarray(rows, np.int64)
    places = places if rows is None else places.at(rows)
    n_columns = answers.shape[1]
    words_per_row = n_columns * sampler.words_per_draw
    rows_per_block = max(1, BLOCK_WORDS // max(1, words_per_row))
    words_of = PurposeWords(key, purpose)
    for start in range(0, len(noised), rows_per_block):
        some = slice(start, start + rows_per_block)
        words = words_of(places, some, words_per_row).reshape(-1)
        more = partial(_further_bits, key, purpose, places.names[some], n_columns)
        noise = sampler.draw_many(words, more).reshape(len(places.names[some]), n_columns)
        answers[some if rows is None else noised[some]] += noise


def _further_bits(
    key: NoiseKey, purpose: str, names: tuple[str, ...], n_columns: int, draw: int
) -> BitSource:
    row, column = divmod(draw, n_columns)
    return extra_bits(key, stream_label(names[row], purpose), column)
