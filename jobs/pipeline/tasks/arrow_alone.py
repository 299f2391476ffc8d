"""Arrow without pandas: processes of this project start half a second sooner.

At the first array of a process Arrow imports pandas, to know its types when it meets them. Here it
never does. Only for processes that are ours from start to end: in one that Arrow was told there is
no pandas, tables are not converted to its frames.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

_PANDAS = "pandas"


class _NoPandas:
    """A finder to which pandas is not installed."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name == _PANDAS:
            raise ModuleNotFoundError(f"{name} is not asked for", name=name)


def leave_pandas_out() -> None:
    """Let Arrow ask for pandas now and find none; others import it as ever."""
    if _PANDAS in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
