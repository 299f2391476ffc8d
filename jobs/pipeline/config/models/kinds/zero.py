"""Structural zeros: levels that do not go together."""

from __future__ import annotations

from typing import ClassVar

from invariants.constraint import Constraint
from invariants.linear import levels_in
from invariants.zeros import StructuralZeros
from jobs.pipeline.config.models.kinds.kind import KindConfig, Setting
from jobs.pipeline.config.models.values import Levels, Text


class ZeroConfig(KindConfig):
    """Structural zeros: combinations of levels that no person can have."""

    key: ClassVar[str] = "zero"
    limit: ClassVar[type[Constraint]] = StructuralZeros

    zero: dict[Text, Levels]
    """Attributes or recodes, each with levels or ranges of levels such as 0..14. No person has one
    of the listed levels in every one of them."""

    def build(self, setting: Setting) -> list[Constraint]:
        """Find the levels.

        Raises:
          SchemaError: A name or level is unknown.
        """
        box = levels_in(setting.schema, self.zero, "zero")
        return [StructuralZeros(setting.schema.shape, (box,))]
