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
    require_packages("this installation", "reads releases and makes none", _OF_RUNS, "run")


def require_packages(where: str, what: str, names: Iterable[str], extra: str) -> None:
    """Refuse to go on without packages.

    Args:
      where: What lacks them.
      what: What it is like without them.
      names: Packages, by the names that are imported.
      extra: The extra of this project that installs them.

    Raises:
      RuntimeSetupError: A package is not installed.
    """
    absent = []
    for name in names:
        found = None
        with suppress(ModuleNotFoundError):  # nor the package that would hold it
            found = find_spec(name)
        if found is None:
            absent.append(name)
    if absent:
        raise RuntimeSetupError(
            where,
            what,
            got=f"no {', '.join(absent)}",
            remedy=f"`pip install 'topdown-das[{extra}]'`, or '.[{extra}]' in a clone",
        )
