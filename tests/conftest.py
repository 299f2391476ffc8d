"""Profiles of the property tests.

`fixed`, the default everywhere, draws the same examples in every run: whoever runs the tests of a
commit sees what everybody else sees. `explore` (the long tests) and `nightly` draw others each
time, from a seed that is printed; `--hypothesis-seed=N` draws those of that seed again, under
`explore` if no other profile was asked for. `unshrunk` is `fixed` for tests that are to fail: the
first example that fails will do. Choose one with HYPOTHESIS_PROFILE.
"""

from __future__ import annotations

import gc
import os
import secrets

import pytest
from hypothesis import HealthCheck, Phase, settings

# The processes of a run of tests share the cores; the threads of linear algebra of each would wait
# for one another (of two processes on two cores, a system of 2,000 unknowns took 79 seconds in
# place of 6). The results do not depend on it: tests/pipeline/local/test_digests.py.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

# A run of the toy state waits 275 times for the disk, a third of its time. What a power cut leaves is
# looked at by tests/unit/jobs/pipeline/storage; processes that tests start do wait for the disk.
os.fsync = lambda _: None  # type: ignore[assignment]

_EVERY = settings(
    deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], database=None
)
_FIXED = settings(_EVERY, max_examples=30, derandomize=True)
settings.register_profile("fixed", parent=_FIXED)
settings.register_profile("unshrunk", parent=_FIXED, phases=(Phase.explicit, Phase.generate))
settings.register_profile("explore", parent=_EVERY, max_examples=200)
settings.register_profile("nightly", parent=_EVERY, max_examples=2000)
_SEED = "hypothesis_seed"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Load the profile, and draw the seed that the processes of a run share."""
    seed = getattr(config.option, _SEED, None)
    profile = os.environ.get("HYPOTHESIS_PROFILE") or ("fixed" if seed is None else "explore")
    settings.load_profile(profile)
    if seed is None and not settings.get_profile(profile).derandomize:
        setattr(config.option, _SEED, str(secrets.randbelow(2**32)))
    # Python looked for garbage 27 times among the modules and tests that are collected, a third of
    # the time, and among all of them again while tests run.
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files of slow tests, so that no process goes on long after the others."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Look for garbage among what tests make alone."""
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say how to draw the same examples again."""
    seed = getattr(config.option, _SEED, None)
    if seed is not None:
        terminalreporter.write_line(f"property tests drew from seed --hypothesis-seed={seed}")
