"""Definition: the privacy definition whose parameter a cost is."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class Definition(StrEnum):
    """A privacy definition, whose parameter a cost is.

    Costs are rho under ZCDP (zero-concentrated differential privacy) and epsilon under PURE
    (differential privacy). Under both, costs of independent measurements add up.
    """

    ZCDP = "zcdp"
    PURE = "pure"

    @property
    def is_pure(self) -> bool:
        """Return whether a cost bounds epsilon at delta = 0."""
        return self is Definition.PURE

    @property
    def unit(self) -> Literal["rho", "epsilon"]:
        """Return the name of the privacy parameter: rho or epsilon."""
        return "epsilon" if self.is_pure else "rho"
