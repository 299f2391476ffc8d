"""Linear algebra over all cells, as in the definitions."""

from __future__ import annotations

import numpy as np


def null_space(rows: np.ndarray, n: int) -> np.ndarray:
    """float64[n, n - rank]: an orthonormal basis of the vectors that all rows take to 0."""
    if not len(rows):
        return np.eye(n)
    _, values, right = np.linalg.svd(rows)
    return right[int((values > 1e-9).sum()) :].T
