"""Noisy integer answers, with exact noise from keyed streams."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from das.arrays import IntArray
from das.errors import SchemaError
from das.mechanisms.entropy import BitSource, Stream
from das.mechanisms.mechanism import Mechanism
from das.mechanisms.table import BLOCK_WORDS


def add_noise(answers: IntArray, *, mechanism: Mechanism, stream: Stream) -> IntArray:
    """Add independent noise of a mechanism to every answer.

    The noise of row i is a function of (key, position, stream.rows[i], mechanism, column) alone. So
    any grouping of rows, and a repetition after a failure, give the same result.

    Args:
      answers: int64[G, m], the exact answers of G rows to one query with m answers.
      mechanism: The distribution of the noise.
      stream: The noise of the G rows.

    Returns:
      int64[G, m], answers + noise modulo 2^64. The reduction is post-processing of the exact sum,
      and acts only if |answer + noise| reaches 2^63; no noisy value raises an error.

    Law: returned - answers has independent entries, distributed exactly as `mechanism` says, if
    the words of the stream are uniform bits.

    Raises:
      SchemaError: `answers` is not int64[G, m] with G the number of rows of the stream.
    """
    noisy = np.array(answers, order="C")
    add_noise_in_place(noisy, mechanism=mechanism, stream=stream)
    return noisy


def add_noise_in_place(
    answers: IntArray,
    *,
    mechanism: Mechanism,
    stream: Stream,
    rows: Sequence[int] | None = None,
) -> None:
    """Add noise to all or some rows of the answers, in place; otherwise as `add_noise`.

    Args:
      answers: int64[G, m], overwritten.
      mechanism: The distribution of the noise.
      stream: The noise of the G rows.
      rows: Indices in 0..G-1 of the rows that get noise, distinct; default all. No row may get
        noise twice: the caller divides the rows of a stream among mechanisms.

    Law: as in `add_noise`.

    Raises:
      SchemaError: As in `add_noise`.
    """
    if answers.dtype != np.int64 or answers.ndim != 2 or len(answers) != len(stream):
        raise SchemaError(
            "add_noise",
            "answers and rows of the stream do not fit",
            got=f"{answers.dtype}{list(answers.shape)} and {len(stream)} rows",
            want="int64[G, m] and G rows",
        )
    sampler = mechanism.sampler()
    noised = np.arange(len(answers)) if rows is None else np.asarray(rows, np.int64)
    n_columns = answers.shape[1]
    words_per_row = n_columns * sampler.words_per_draw
    rows_per_block = max(1, BLOCK_WORDS // max(1, words_per_row))
    for start in range(0, len(noised), rows_per_block):
        some = noised[start : start + rows_per_block]
        words = stream.words(some, words_per_row).reshape(-1)
        noise = sampler.draw_many(words, partial(_further_bits, stream, some, n_columns))
        block = noise.reshape(len(some), n_columns)
        answers[slice(start, start + len(some)) if rows is None else some] += block


def _further_bits(stream: Stream, some: IntArray, n_columns: int, draw: int) -> BitSource:
    row, column = divmod(draw, n_columns)
    return stream.further_bits(int(some[row]), column)
