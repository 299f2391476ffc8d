"""Drivers that wait seconds for a store, and for each other, where others wait minutes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobs.pipeline.storage.stores import objects


def lose_patience(patch: pytest.MonkeyPatch, *, silence_seconds: float) -> None:
    """Shorten all waits of this process.

    Args:
      patch: What undoes it.
      silence_seconds: How long a driver gives no sign of life until it counts as dead.
    """
    patch.setattr(objects, "_REQUEST", timedelta(seconds=4))
    patch.setattr(objects, "_CONNECT", timedelta(seconds=2))
    patch.setattr(objects, "_RETRIES", timedelta(seconds=6))
    patch.setattr(objects, "_WAITS", (0.1, 0.3, 1.0))
    patch.setattr("jobs.pipeline.folder.lock._SILENCE", silence_seconds)
    patch.setattr("jobs.pipeline.folder.lock._LOOK", 0.1)
