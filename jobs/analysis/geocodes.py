"""Census geocodes, as users name geounits, and the geocodes of the spine of a release.

Without a designed spine both are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from das.arrays import Geocodes
from das.errors import InputError
from jobs.pipeline.config.mistakes import refuse_unknown
from jobs.pipeline.plan import Plan
from jobs.pipeline.storage.dataset import LAST
from jobs.pipeline.storage.geography import read_both_geocodes, read_public_geocodes
from jobs.pipeline.storage.layout import ReleaseLayout


@dataclass(frozen=True, eq=False)
class NamedGeounits:
    """Geounits of a release, by the geocodes that users name.

    Attributes:
      plan: The plan.
      release: Layout of the release, which holds the geography.
    """

    plan: Plan
    release: ReleaseLayout

    @cached_property
    def _leaves(self) -> tuple[Geocodes, Geocodes]:
        """Return census and spine geocodes of all leaves, bytes[G] each, by census geocode."""
        if self.plan.census is None:
            leaves = read_public_geocodes(self.release, self.plan.leaf.name).astype(np.bytes_)
            return leaves, leaves
        both = read_both_geocodes(self.release, self.plan.leaf.name)
        spine, census = (codes.astype(np.bytes_) for codes in both)
        order = np.argsort(census)
        return census[order], spine[order]

    @property
    def leaves(self) -> Geocodes:
        """Return bytes[G], the geocodes by which users name the leaves, ascending."""
        return self._leaves[0]

    def on_spine(self, leaves: Sequence[str] | Geocodes) -> Geocodes:
        """Return bytes[n], the distinct spine geocodes of some leaves; keep unknown codes."""
        wanted = np.asarray(leaves)
        if wanted.dtype.kind != "S":  # ? is in no geocode
            wanted = np.char.encode(wanted.astype(np.str_), "ascii", "replace")
        wanted = np.unique(wanted)
        if self.plan.census is None:
            return wanted
        known, spine = self._leaves
        spots = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        size = max(known.dtype.itemsize, spine.dtype.itemsize, wanted.dtype.itemsize)
        return np.sort(np.where(known[spots] == wanted, spine[spots].astype(f"S{size}"), wanted))

    def named(self, geounits: Sequence[str], geolevel: str | None) -> list[str]:
        """Return the given geocodes, followed by all geocodes of a geolevel if one is given.

        Raises:
          ConfigError: The geolevel is unknown.
        """
        if not geolevel:
            return [*geounits]
        refuse_unknown("estimate", "names an unknown geolevel", [geolevel], self.plan.geolevels)
        return [*geounits, *sorted(read_both_geocodes(self.release, geolevel)[1].tolist())]

    def spine_code(self, code: str) -> str | None:
        """Return the spine geocode of a geounit; None if its census geolevel is not on the spine.

        Raises:
          InputError: The geounit does not exist, or the code names two geounits.
        """
        geolevel, stored = self._stored(code, "estimate")
        return None if geolevel in self.plan.off_spine else stored

    def leaves_of(self, code: str, command: str = "estimate") -> Geocodes:
        """Return bytes[n], the geocodes of the leaves in a geounit, ascending.

        Raises:
          InputError: The geounit does not exist, or the code names two geounits.
        """
        geolevel, stored = self._stored(code, command)
        known, codes = self._leaves
        if geolevel == self.plan.levels[0].name:
            return known
        if self.plan.census is None or geolevel in self.plan.off_spine:
            first, last = np.searchsorted(known, [stored.encode(), stored.encode() + b"\x7f"])
            return known[first:last]
        return known[np.char.startswith(codes, stored.encode())]

    def _stored(self, code: str, command: str) -> tuple[str, str]:
        """Return the geolevel of a geounit, and its geocode in the files of that geolevel."""
        low, high = code, code
        if self.plan.census is not None:  # both geocodes have the same first digits
            low = code[: self.plan.shared_digits]
            high = low + LAST
        matches = []
        for name in self.plan.geolevels:
            codes, named = read_both_geocodes(self.release, name, low, high)
            matches += [(name, str(stored)) for stored in codes[named == code][:1]]
        if not matches:
            raise InputError(command, "has no such geounit", got=code)
        if len(matches) > 1:
            geolevels = [name for name, _ in matches]
            raise InputError(
                command, "names two geounits, of different geolevels", got=code, want=geolevels
            )
        return matches[0]
