"""Information: which measurements an estimate may use. Apart, so that naming it loads nothing."""

from __future__ import annotations

from enum import StrEnum


class Information(StrEnum):
    """Which measurements estimate a geounit."""

    OWN = "own"  # those of the geounit alone
    FULL = "full"  # those of all geounits, since they add up over the tree
