"""Information: which measurements an estimate may use; imports no numerical library."""

from __future__ import annotations

from enum import StrEnum


class Information(StrEnum):
    """Which measurements estimate a geounit."""

    GEOUNIT = "own"  # measurements of the geounit alone
    TREE = "full"  # measurements of the whole tree
