"""Whether solvers run compiled: if numba is installed (extra `fast`)."""

from __future__ import annotations

import importlib.util

_HAS_NUMBA = importlib.util.find_spec("numba") is not None


def has_compiler() -> bool:
    """Whether `compiled` can be imported."""
    return _HAS_NUMBA
