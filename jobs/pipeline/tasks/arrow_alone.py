"""Keep Arrow from importing pandas, so that processes start half a second sooner.

Arrow imports pandas at the first array of a process to recognize its types. This module prevents
that, only for processes that this project starts: Arrow then cannot convert tables to data frames.
"""

from __future__ import annotations

import sys
from typing import Any

_PANDAS = "pandas"


def leave_pandas_out() -> None:
    """Let Arrow look for pandas now and find none; other imports of pandas still work."""
    modules: dict[str, Any] = sys.modules
    if _PANDAS in modules:
        return
    modules[_PANDAS] = None  # Python then refuses to import it
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        del modules[_PANDAS]
