"""Definition: the definition of privacy that costs are counted in."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class Definition(StrEnum):
    """What a cost is a number of.

    ZCDP counts rho of zero-concentrated differential privacy, PURE counts epsilon of differential
    privacy. Under both, costs of independent measurements add up.
    """

    ZCDP = "zcdp"
    PURE = "pure"

    @property
    def is_pure(self) -> bool:
        """Whether a cost bounds epsilon at delta = 0."""
        return self is Definition.PURE

    @property
    def unit(self) -> Literal["rho", "epsilon"]:
        """The name of the number: rho or epsilon."""
        return "epsilon" if self.is_pure else "rho"
