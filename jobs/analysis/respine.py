"""What the spine of a run changes: geolevels, geounits, and how far entities are from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from das.errors import ConfigError
from geography.lattice import Lattice
from geography.offspine import offspine_distances
from geography.respine import Respined
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.input.geounits import list_geounits
from jobs.pipeline.input.spine import respined


def summarize_spine(resolved: Resolved) -> dict[str, Any]:
    """Say what the design of a run file changes; reads public files alone.

    Returns:
      `levels` with their digits, which the allocation names; the number of geounits of every
      geolevel, and for every kind of entity the number of entities and the mean and largest
      off-spine distance, before and after.

    Raises:
      ConfigError: The run file designs no spine.
      InputError, GeographyError: As `jobs.pipeline.input.spine.respined`.
    """
    geography, census = resolved.config.geography, resolved.plan.census
    if census is None or geography.geounits is None:
        raise ConfigError(
            f"{resolved.source}: geography.spine", "is absent: the spine is that of the geocodes"
        )
    leaves = list_geounits(geography.geounits, census)
    made, entities = respined(geography, census, leaves)
    sides = {}
    for name, one in (("before", Respined(census, leaves)), ("after", made)):
        lattice = Lattice.from_leaves(one.spine, one.codes)
        distances = offspine_distances(lattice, entities.take(np.argsort(one.codes)))
        sides[name] = (lattice.sizes(), distances)
    return {
        "levels": [
            {"name": name, "digits": digits}
            for name, digits in zip(made.spine.levels, made.spine.digits, strict=True)
        ],
        "geounits": {name: sizes for name, (sizes, _) in sides.items()},
        "distances": {
            kind: {
                "entities": len(sides["before"][1][kind]),
                **{name: _spread(distances[kind]) for name, (_, distances) in sides.items()},
            }
            for kind in entities.kinds
        },
    }


def _spread(distances: npt.NDArray[np.int64]) -> dict[str, float]:
    if not len(distances):
        return {"mean": 0.0, "largest": 0}
    return {"mean": float(distances.mean()), "largest": int(distances.max())}
