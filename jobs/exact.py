"""What the units of a run say exactly: the source of bounds on the persons. Public.

Exact counts of units are read from the published answers to the invariants of the units, so no
part of the persons' release is made from anything but what everybody can read.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from das.errors import ConfigError, OutputError
from das.queries.query import Query
from invariants.invariant import invariants_at
from jobs.dataset import read_manifest, read_range, rows_about
from jobs.layout import ReleaseLayout
from jobs.plan import Plan

IntArray = npt.NDArray[np.int64]
Geocodes = npt.NDArray[np.object_]


def exact_query(units: Plan | None, name: str, geolevel: str) -> Query:
    """The query of the units that is published exactly at a geolevel.

    Args:
      units: The plan of the units of a run.
      name: As written in a configuration, such as "hhgq".
      geolevel: Where its answers are wanted.

    Raises:
      ConfigError: The run has no units, or no such invariant of them at the geolevel.
    """
    if units is None:
        raise ConfigError("product units", "is not in the run", remedy="add the section `units`")
    held = {i.query.name: i.query for i in invariants_at(units.invariants, geolevel)}
    if name not in held:
        raise ConfigError(
            f"product units, query {name}",
            f"is not exact at geolevel {geolevel}",
            got=sorted(held),
            remedy="add it to units.invariants",
        )
    return held[name]


def read_exact(
    units: ReleaseLayout, geolevel: str, query: Query, low: str = "", high: str = "\x7f"
) -> tuple[Geocodes, IntArray]:
    """Read exact counts of units, such as facilities by type of each block.

    They are public: the published answers to an invariant of the units.

    Args:
      units: The release of the units, `release.units` of the persons.
      geolevel: Name of the geolevel.
      query: An invariant of the units at this geolevel.
      low: First geocode.
      high: Last geocode.

    Returns:
      object[G] geocodes, sorted, and int64[G, m] answers, a column per row of the query.

    Raises:
      OutputError: The answers are not published or not complete.
    """
    dataset = units.invariants(geolevel)
    parts, _ = read_manifest(dataset)
    table = read_range(dataset, parts, low, high)
    rows = rows_about(table, query.name)
    geocodes = rows.column("geocode").to_numpy(zero_copy_only=False)
    answers = pc.list_flatten(rows.column("answers")).to_numpy()
    if not len(geocodes) or len(answers) != len(geocodes) * query.size:
        raise OutputError(str(dataset), f"does not hold query {query.name} of every geounit")
    return geocodes, answers.reshape(len(geocodes), query.size)
