"""Noise streams for tests that draw once under a key, or the same twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from das.arrays import WordArray
from das.mechanisms.entropy import BitSource, NoiseKey, Position, Stream, Streams


def stream(key: NoiseKey, rows: int | Sequence[int], position: Position = (0,)) -> Stream:
    """Open a stream as a task that starts now would.

    Args:
      key: The noise key.
      rows: Numbers of the rows, or how many there are from 0 on.
      position: Of the stream.
    """
    numbers = np.arange(rows) if isinstance(rows, int) else np.asarray(rows, np.int64)
    return Streams(key).open(position, numbers)


def words_at(key: NoiseKey, n_words: int, row: int = 0) -> WordArray:
    """Return the first words of a row, uint64[n_words]."""
    return stream(key, [row]).words(np.zeros(1, np.int64), n_words)[0]


def bits_at(key: NoiseKey, *position: int) -> BitSource:
    """Return the bits at a position from their start."""
    return Streams(key).bits(position)
