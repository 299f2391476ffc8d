"""Geolevels of the census that `geography.spine` replaces, named where only the spine's can be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from das.errors import ConfigError


def refuse_off_spine(
    where: str, names: Iterable[str], spine: Sequence[str], census: Sequence[str]
) -> None:
    """Refuse geolevels whose counts are made after all is solved, as sums over leaves.

    Args:
      where: Key or file that names them.
      names: Geolevels; those that nobody knows are left to whoever reads them.
      spine: Geolevels of the spine of the run, root first.
      census: Geolevels of the geocodes of the data.

    Raises:
      ConfigError: One is of the census and not on the spine.
    """
    off = [name for name in names if name in census and name not in spine]
    if off:
        raise ConfigError(
            where,
            "names a geolevel of the census that is off the spine of this run: geography.spine "
            "replaces its geounits, so nothing is measured or solved there",
            got=off[0],
            want=f"one of {[*spine]}",
            remedy="name a geolevel of the spine; only output.tables, das tables, das estimate, "
            "das areas and das explore know those off it",
        )
