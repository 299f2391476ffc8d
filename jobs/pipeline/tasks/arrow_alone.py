"""Keep Arrow from importing pandas, so that processes start half a second sooner.

Arrow imports pandas at the first array of a process to recognize its types. This module prevents
that, only for processes that this project starts: Arrow then cannot convert tables to data frames.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

_PANDAS = "pandas"


class _NoPandas:
    """Import finder that hides pandas."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name == _PANDAS:
            raise ModuleNotFoundError(f"{name} is hidden", name=name)


def leave_pandas_out() -> None:
    """Let Arrow look for pandas now and find none; other imports of pandas still work."""
    if _PANDAS in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
