"""Hypothesis profiles. Choose one with HYPOTHESIS_PROFILE; the default is `dev`, or `ci` under CI."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "dev", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "ci",
    parent=settings.get_profile("dev"),
    max_examples=60,
    derandomize=True,
    print_blob=True,
)
settings.register_profile("nightly", parent=settings.get_profile("dev"), max_examples=2000)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
)
