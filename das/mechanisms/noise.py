"""add_noise(): integer answers plus exact discrete Gaussian noise from keyed streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from das.errors import BudgetError, SchemaError
from das.mechanisms import moments
from das.mechanisms.entropy import BitSource, NoiseKey, WordArray, extra_bits, stream_words
from das.mechanisms.table import BLOCK_WORDS, gaussian_table
from das.mechanisms.wide import MOST_SIGMA_SQ, wide_gaussian

IntArray = npt.NDArray[np.int64]

# A table grows with sigma. At this limit it has 9,300 entries and takes some 50 ms to build.
WIDE_SIGMA_SQ = Fraction(1 << 20)


@dataclass(frozen=True, slots=True)
class DiscreteGaussian:
    """Noise with P(X = k) proportional to exp(-k^2 / (2 sigma_sq)) on the integers.

    Attributes:
      sigma_sq: Exact parameter, 0 < sigma_sq <= 2^80. It is not the variance.

    Raises:
      BudgetError: `sigma_sq` is out of range or not a Fraction.

    References:
      Canonne, Kamath & Steinke, NeurIPS 2020, arXiv:2004.00010, Theorem 14.

    >>> DiscreteGaussian(Fraction(50)).rho(Fraction(2))
    Fraction(1, 50)
    """

    sigma_sq: Fraction

    def __post_init__(self) -> None:
        if not isinstance(self.sigma_sq, Fraction) or not 0 < self.sigma_sq <= MOST_SIGMA_SQ:
            raise BudgetError(
                "discrete Gaussian",
                "sigma_sq cannot be used",
                got=repr(self.sigma_sq),
                want=f"a Fraction, 0 < sigma_sq <= {MOST_SIGMA_SQ}",
            )

    def rho(self, l2_sensitivity_sq: Fraction) -> Fraction:
        """Return the zCDP cost of one release, l2_sensitivity_sq / (2 sigma_sq), exact."""
        return l2_sensitivity_sq / (2 * self.sigma_sq)

    def variance(self) -> float:
        """Return the true variance, at most sigma_sq."""
        return moments.variance(sigma_sq=self.sigma_sq)


class Sampler(Protocol):
    """Draws noise of one law from uniform words; a few draws ask for more bits."""

    @property
    def words_per_draw(self) -> int:
        """Words that each draw starts from."""
        ...

    def draw_many(self, words: WordArray, more: Callable[[int], BitSource]) -> IntArray:
        """Return int64[n] from uint64[n words_per_draw]; more(i) gives further bits of draw i."""
        ...


def gaussian_sampler(sigma_sq: Fraction) -> Sampler:
    """Choose the exact sampler of the discrete Gaussian that is fast at this sigma_sq.

    Raises:
      BudgetError: `sigma_sq` is out of range or not a Fraction.
    """
    DiscreteGaussian(sigma_sq)
    return gaussian_table(sigma_sq) if sigma_sq <= WIDE_SIGMA_SQ else wide_gaussian(sigma_sq)


def add_noise(
    answers: IntArray, *, sigma_sq: Fraction, key: NoiseKey, labels: Sequence[bytes]
) -> IntArray:
    """Add discrete Gaussian noise to every answer.

    The noise of row i is a function of (key, labels[i], sigma_sq, position in the row) alone: rows
    may be noised in any grouping and order, and again after a failure, with the same result.
    A label must therefore name one release; using it for two answers would share their noise.

    Args:
      answers: int64[G, m].
      sigma_sq: Exact parameter, 0 < sigma_sq <= 2^80.
      key: The noise key.
      labels: G distinct stream labels, one per row; see `stream_label`.

    Returns:
      int64[G, m], answers + noise modulo 2^64. The reduction is post-processing of the exact sum,
      and acts only if |answer + noise| reaches 2^63; nothing here fails because of a noisy value.

    Law: returned - answers has independent entries X with P(X = k) proportional to
    exp(-k^2 / (2 sigma_sq)), exactly, if the streams of distinct labels are uniform bits.

    Raises:
      BudgetError: `sigma_sq` cannot be used, or a label repeats.
      SchemaError: `answers` is not int64[G, m] with G the number of labels.
    """
    sampler = gaussian_sampler(sigma_sq)
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
