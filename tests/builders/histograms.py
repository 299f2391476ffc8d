"""Histograms that are written out cell by cell."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from das.histograms import Histograms


def from_dense(counts: npt.NDArray[np.integer]) -> Histograms:
    """Compress int[G, n] nonnegative counts."""
    owners, cells = np.nonzero(counts)
    entries = (owners.astype(np.int64), cells.astype(np.int64))
    found = counts[owners, cells].astype(np.int64)
    return Histograms.from_entries(counts.shape[1], counts.shape[0], *entries, found)
