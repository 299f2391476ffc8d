"""Structural zeros: levels that do not go together."""

from __future__ import annotations

from typing import ClassVar

from invariants.constraint import Constraint
from invariants.linear import levels_in
from invariants.zeros import StructuralZeros
from jobs.pipeline.config.models.kinds.kind import KindConfig, Setting
from jobs.pipeline.config.models.values import Levels, Text


class ZeroConfig(KindConfig):
    """Structural zeros: persons who cannot be."""

    key: ClassVar[str] = "zero"
    limit: ClassVar[type[Constraint]] = StructuralZeros

    zero: dict[Text, Levels]
    """Attribute or recode to levels, or to ranges of consecutive ones such as 0..14; nobody has one
    of these levels in all of them."""

    def build(self, setting: Setting) -> list[Constraint]:
        """Find the levels.

        Raises:
          SchemaError: A name or level is unknown.
        """
        box = levels_in(setting.schema, self.zero, "zero")
        return [StructuralZeros(setting.schema.shape, (box,))]
