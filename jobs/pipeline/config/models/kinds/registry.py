"""The kinds of invariants there are, by the keys that tell them apart in run files."""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Discriminator, Tag

from jobs.pipeline.config.models.kinds.facilities import FacilitiesConfig
from jobs.pipeline.config.models.kinds.kind import KindConfig
from jobs.pipeline.config.models.kinds.living_quarters import LivingQuartersConfig
from jobs.pipeline.config.models.kinds.query import InvariantConfig
from jobs.pipeline.config.models.kinds.row import RowConfig
from jobs.pipeline.config.models.kinds.zero import ZeroConfig


def _kind_of_invariant(value: object) -> str:
    """Determine the kind of an invariant from its distinguishing key."""
    for kind in KINDS[1:]:
        if (kind.key in value) if isinstance(value, dict) else isinstance(value, kind):
            return kind.key
    return KINDS[0].key


AnyInvariant = Annotated[
    Annotated[InvariantConfig, Tag(InvariantConfig.key)]
    | Annotated[FacilitiesConfig, Tag(FacilitiesConfig.key)]
    | Annotated[LivingQuartersConfig, Tag(LivingQuartersConfig.key)]
    | Annotated[ZeroConfig, Tag(ZeroConfig.key)]
    | Annotated[RowConfig, Tag(RowConfig.key)],
    Discriminator(_kind_of_invariant),
]

KINDS: tuple[type[KindConfig], ...] = tuple(
    get_args(kind)[0] for kind in get_args(get_args(AnyInvariant)[0])
)
