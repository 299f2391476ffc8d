"""What the units of a run say exactly: the source of bounds on the persons. Public.

Exact counts of units are read from the published answers to the invariants of the units, so no
part of the persons' release is made from anything but what everybody can read.
"""

from __future__ import annotations

import pyarrow.compute as pc

from das.arrays import IntArray, ObjectArray
from das.errors import OutputError
from das.queries.query import Query
from jobs.storage.dataset import Dataset, rows_about
from jobs.storage.layout import ReleaseLayout


def read_exact(
    units: ReleaseLayout, geolevel: str, query: Query, low: str = "", high: str = "\x7f"
) -> tuple[ObjectArray, IntArray]:
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
    rows = rows_about(Dataset.open(dataset).read(low, high), query.name)
    geocodes = rows.column("geocode").to_numpy(zero_copy_only=False)
    answers = pc.list_flatten(rows.column("answers")).to_numpy()
    if not len(geocodes) or len(answers) != len(geocodes) * query.size:
        raise OutputError(str(dataset), f"does not hold query {query.name} of every geounit")
    return geocodes, answers.reshape(len(geocodes), query.size)
