"""Geocodes as people name them, of the census, and those of the spine of a release.

Where a run has no spine of its own, both are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from das.arrays import Geocodes
from das.errors import InputError
from jobs.analysis.requests import refuse_unknown
from jobs.pipeline.plan import Plan
from jobs.pipeline.storage.dataset import LAST
from jobs.pipeline.storage.geography import read_both_geocodes, read_public_geocodes
from jobs.pipeline.storage.layout import ReleaseLayout


@dataclass(frozen=True, eq=False)
class NamedGeounits:
    """The geounits of a release by the geocodes that people name.

    Attributes:
      plan: The plan.
      release: Has the geography.
    """

    plan: Plan
    release: ReleaseLayout

    @cached_property
    def _leaves(self) -> tuple[Geocodes, Geocodes]:
        """bytes[G]: geocodes that people name, ascending, and those of the spine."""
        if self.plan.census is None:
            own = read_public_geocodes(self.release, self.plan.leaf.name).astype(np.bytes_)
            return own, own
        found = read_both_geocodes(self.release, self.plan.leaf.name)
        own, census = (codes.astype(np.bytes_) for codes in found)
        order = np.argsort(census)
        return census[order], own[order]

    @property
    def leaves(self) -> Geocodes:
        """bytes[G] geocodes of all leaves as people name them, ascending."""
        return self._leaves[0]

    def on_spine(self, leaves: Sequence[str] | Geocodes) -> Geocodes:
        """bytes[n] geocodes on the spine of some leaves, each once; unknown ones as they are."""
        wanted = np.asarray(leaves)
        if wanted.dtype.kind != "S":  # ? is in no geocode
            wanted = np.char.encode(wanted.astype(np.str_), "ascii", "replace")
        wanted = np.unique(wanted)
        if self.plan.census is None:
            return wanted
        known, own = self._leaves
        spots = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        size = max(known.dtype.itemsize, own.dtype.itemsize, wanted.dtype.itemsize)
        found = np.where(known[spots] == wanted, own[spots].astype(f"S{size}"), wanted)
        return np.sort(found)

    def named(self, geounits: Sequence[str], geolevel: str | None) -> list[str]:
        """Geocodes of some geounits, and of all of a geolevel, ascending, if one is given.

        Raises:
          ConfigError: There is no such geolevel.
        """
        if not geolevel:
            return [*geounits]
        refuse_unknown("estimate", "geolevel", [geolevel], self.plan.geolevels)
        return [*geounits, *sorted(read_both_geocodes(self.release, geolevel)[1].tolist())]

    def spine_code(self, code: str) -> str | None:
        """Geocode on the spine of a geounit; None of one of the census that is not on the spine.

        Raises:
          InputError: There is no such geounit, or there are two.
        """
        geolevel, own = self._found(code, "estimate")
        return None if geolevel in self.plan.off_spine else own

    def leaves_of(self, code: str, command: str = "estimate") -> Geocodes:
        """bytes[n] geocodes of the leaves of a geounit as people name them, ascending.

        Raises:
          InputError: There is no such geounit, or there are two.
        """
        geolevel, own = self._found(code, command)
        known, codes = self._leaves
        if geolevel == self.plan.levels[0].name:
            return known
        if self.plan.census is None or geolevel in self.plan.off_spine:
            ends = np.searchsorted(known, [own.encode(), own.encode() + b"\x7f"])
            return known[ends[0] : ends[1]]
        return known[np.char.startswith(codes, own.encode())]

    def _found(self, code: str, command: str) -> tuple[str, str]:
        """The geolevel of a geounit, and its geocode there."""
        rows = ((name, self._code_at(name, code)) for name in self.plan.geolevels)
        found = [(name, own) for name, own in rows if own is not None]
        if not found:
            raise InputError(command, "has no such geounit", got=code)
        if len(found) > 1:
            geolevels = [name for name, _ in found]
            raise InputError(
                command, "names two geounits, of different geolevels", got=code, want=geolevels
            )
        return found[0]

    def _code_at(self, geolevel: str, code: str) -> str | None:
        """Geocode in the dataset of a geolevel of what people name so; None if there is none."""
        low, high = code, code
        if self.plan.census is not None:  # what both geocodes begin with
            low = code[: self.plan.shared_digits]
            high = low + LAST
        codes, named = read_both_geocodes(self.release, geolevel, low, high)
        own = codes[named == code]
        return str(own[0]) if len(own) else None
