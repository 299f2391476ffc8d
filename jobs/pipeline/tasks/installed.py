"""Whether this installation can make a release, or only read one."""

from __future__ import annotations

from importlib.util import find_spec

from das.errors import RuntimeSetupError

_OF_RUNS = ("numba", "ortools", "pyspark")  # heavy packages that reading a release does without


def require_run_packages() -> None:
    """Refuse to begin a run that could not go on; nothing is imported.

    Raises:
      RuntimeSetupError: The extra `run` is not installed.
    """
    absent = [name for name in _OF_RUNS if find_spec(name) is None]
    if absent:
        raise RuntimeSetupError(
            "this installation",
            "reads releases and makes none",
            got=f"no {', '.join(absent)}",
            remedy="`pip install 'topdown-das[run]'`, or '.[run]' in a clone",
        )
