"""Which packages are installed: whether this installation can make a release, or only read one."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec

from das.errors import RuntimeSetupError

_OF_RUNS = ("numba", "ortools", "pyspark")  # heavy packages that reading a release does without


def require_run_packages() -> None:
    """Refuse to begin a run that could not go on; nothing is imported.

    Raises:
      RuntimeSetupError: The extra `run` is not installed.
    """
    absent = absent_packages(_OF_RUNS)
    if absent:
        raise RuntimeSetupError(
            "this installation",
            "reads releases and makes none",
            got=f"no {', '.join(absent)}",
            remedy="`pip install 'topdown-das[run]'`, or '.[run]' in a clone",
        )


def absent_packages(names: Iterable[str]) -> list[str]:
    """List packages that cannot be imported, by the names that are imported."""
    absent = []
    for name in names:
        found = None
        with suppress(ModuleNotFoundError):  # nor the package that would hold it
            found = find_spec(name)
        if found is None:
            absent.append(name)
    return absent
