"""Effects of a designed spine: geolevels, geounits, and off-spine distances of entities."""

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
    """Summarize the designed spine of a run file; reads public files alone.

    Returns:
      `levels`: names and digits of the new geolevels; `geounits`: numbers of geounits by geolevel,
      before and after; `distances`: for every kind of entity the number of entities, and mean and
      largest off-spine distance before and after.

    Raises:
      ConfigError: The run file designs no spine.
      InputError, GeographyError: As `jobs.pipeline.input.spine.respined`.
    """
    geography, census = resolved.config.geography, resolved.plan.census
    if census is None or geography.geounits is None:
        what = "is missing: the run uses the spine of the geocodes"
        raise ConfigError(f"{resolved.source}: geography.spine", what)
    leaves = list_geounits(geography.geounits, census)
    made, entities = respined(geography, census, leaves)
    geounits: dict[str, Any] = {}
    spreads: dict[str, dict[str, Any]] = {}
    for name, side in (("before", Respined(census, leaves)), ("after", made)):
        lattice = Lattice.from_leaves(side.spine, side.codes)
        geounits[name] = lattice.sizes()
        distances = offspine_distances(lattice, entities.take(np.argsort(side.codes)))
        for kind in entities.kinds:
            spread = spreads.setdefault(kind, {"entities": len(distances[kind])})
            spread[name] = _spread(distances[kind])
    digits = zip(made.spine.levels, made.spine.digits, strict=True)
    levels = [{"name": name, "digits": number} for name, number in digits]
    return {"levels": levels, "geounits": geounits, "distances": spreads}


def _spread(distances: npt.NDArray[np.int64]) -> dict[str, float]:
    if not len(distances):
        return {"mean": 0.0, "largest": 0}
    return {"mean": float(distances.mean()), "largest": int(distances.max())}
