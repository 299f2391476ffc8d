"""Expected error of raw noisy answers, from the public budget table of a manifest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def level_order(manifest: Mapping[str, Any]) -> list[str]:
    """Geolevels root first, from the geography of a manifest, else as its budget names them."""
    named = [row.get("geolevel") for row in manifest.get("geography") or []]
    named += [row.get("geolevel") for row in manifest.get("budget") or []]
    return [level for level in dict.fromkeys(named) if level is not None]


def expected_rmse(manifest: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Return the root mean square error expected of raw noisy answers, by (geolevel, query).

    A chain of only children is measured once, at its top, and that answer holds at each of its
    geolevels; so a geolevel averages the variances of all chains through it, weighted by their
    numbers. Pairs that are not measured are left out.

    Args:
      manifest: May lack any key; rows of its budget that lack a variance are skipped.
    """
    position = {name: index for index, name in enumerate(level_order(manifest))}
    sums: dict[tuple[str, str], tuple[float, int]] = {}
    for row in manifest.get("budget") or []:
        level, query = row.get("geolevel"), row.get("query")
        variance = row.get("variance")
        geounits = row.get("geounits")
        weight = 1 if geounits is None else int(geounits)
        if level is None or query is None or variance is None or weight == 0:
            continue
        last = position.get(row.get("chain_end") or level, position[level])
        for name in list(position)[position[level] : last + 1]:
            total, count = sums.get((name, query), (0.0, 0))
            sums[name, query] = (total + float(variance) * weight, count + weight)
    return {key: math.sqrt(total / count) for key, (total, count) in sums.items()}
