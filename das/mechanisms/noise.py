"""add_noise(): integer answers plus exact noise from keyed streams."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from das.arrays import IntArray
from das.errors import BudgetError, SchemaError
from das.mechanisms.entropy import BitSource, NoiseKey, extra_bits, stream_words
from das.mechanisms.mechanism import Mechanism
from das.mechanisms.table import BLOCK_WORDS


def add_noise(
    answers: IntArray, *, mechanism: Mechanism, key: NoiseKey, labels: Sequence[bytes]
) -> IntArray:
    """Add independent noise of a mechanism to every answer.

    The noise of row i is a function of (key, labels[i], mechanism, position in the row) alone: rows
    may be noised in any grouping and order, and again after a failure, with the same result.
    A label must therefore name one release; using it for two answers would share their noise.

    Args:
      answers: int64[G, m].
      mechanism: The distribution of the noise.
      key: The noise key.
      labels: G distinct stream labels, one per row; see `stream_label`.

    Returns:
      int64[G, m], answers + noise modulo 2^64. The reduction is post-processing of the exact sum,
      and acts only if |answer + noise| reaches 2^63; nothing here fails because of a noisy value.

    Law: returned - answers has independent entries, distributed exactly as `mechanism` says, if
    the streams of distinct labels are uniform bits.

    Raises:
      BudgetError: A label repeats.
      SchemaError: `answers` is not int64[G, m] with G the number of labels.
    """
    sampler = mechanism.sampler()
    if answers.dtype != np.int64 or answers.ndim != 2 or len(answers) != len(labels):
        raise SchemaError(
            "add_noise",
            "answers and labels do not fit",
            got=f"{answers.dtype}{list(answers.shape)} and {len(labels)} labels",
            want="int64[G, m] and G labels",
        )
    if len(set(labels)) != len(labels):
        raise BudgetError(
            "add_noise",
            "a label repeats, so two rows would share their noise",
            got=f"{len(set(labels))} distinct labels for {len(labels)} rows",
        )
    n_columns = answers.shape[1]
    words_per_row = n_columns * sampler.words_per_draw
    rows_per_block = max(1, BLOCK_WORDS // max(1, words_per_row))
    noisy = np.empty_like(answers, order="C")
    for start in range(0, len(answers), rows_per_block):
        rows = slice(start, start + rows_per_block)
        words = stream_words(key, labels[rows], words_per_row).reshape(-1)
        more = partial(_further_bits, key, labels[rows], n_columns)
        noise = sampler.draw_many(words, more).reshape(noisy[rows].shape)
        np.add(answers[rows], noise, out=noisy[rows])
    return noisy


def _further_bits(key: NoiseKey, labels: Sequence[bytes], n_columns: int, draw: int) -> BitSource:
    row, column = divmod(draw, n_columns)
    return extra_bits(key, labels[row], column)
