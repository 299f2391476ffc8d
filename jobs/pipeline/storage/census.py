"""Between the geocodes of a spine and those of the census, where a run has another spine.

Both begin with the same digits, those of the geolevels above all that is changed. Whoever works on
a range of such prefixes has the same leaves in both orders, so nothing is shuffled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from das.arrays import Geocodes, IntArray, ObjectArray
from das.histograms import Histograms
from geography.lattice import ROOT_CODE
from jobs.pipeline.storage.dataset import LAST, Dataset, RangeReader
from jobs.pipeline.storage.geography import read_both_geocodes, read_geography
from jobs.pipeline.storage.histograms import align_histograms
from jobs.pipeline.storage.layout import ReleaseLayout

_GEOUNITS = 20_000  # leaves read at a time


@dataclass(frozen=True)
class CensusCodes:
    """The leaves of a release under both geocodes.

    Attributes:
      release: Has the geography.
      leaf: Name of the leaf geolevel.
      shared: First digits of a leaf geocode that are the same in both.
      digits: Prefix length, in the census, of each of its geolevels that are not on the spine.
    """

    release: ReleaseLayout
    leaf: str
    shared: int
    digits: Mapping[str, int]

    def ranges(self, most: int) -> list[tuple[str, str]]:
        """Ranges of leaf geocodes that hold the same leaves in both, in order; they cover all.

        Args:
          most: Leaves of a range, unless one prefix has more.
        """
        geography = read_geography(self.release, self.leaf, columns=("geocode",))
        prefixes = pc.utf8_slice_codeunits(geography.column("geocode"), 0, self.shared)
        prefixes = prefixes.combine_chunks()
        is_first = np.asarray(pc.not_equal(prefixes[1:], prefixes[:-1]), np.bool_)
        starts = np.flatnonzero(np.concatenate(([True], is_first)))
        ends = np.append(starts[1:], len(prefixes))
        ranges, first = [], 0
        for index, end in enumerate(ends):
            if index == len(ends) - 1 or ends[index + 1] - starts[first] > most:
                low, high = prefixes[int(starts[first])].as_py(), prefixes[int(end) - 1].as_py()
                ranges.append((low, high + LAST))
                first = index + 1
        return ranges

    def read(self, low: str = "", high: str = LAST) -> tuple[Geocodes, Geocodes]:
        """bytes[G] geocodes of the leaves low..high on the spine, ascending; those of the census.

        Raises:
          OutputError: The geography is not complete, or a file cannot be read.
        """
        own, census = read_both_geocodes(self.release, self.leaf, low, high)
        return own.astype(np.bytes_), census.astype(np.bytes_)

    def sums(
        self, leaves: Dataset, geolevel: str, low: str, high: str, n_cells: int
    ) -> tuple[ObjectArray, Histograms]:
        """Histograms of a census geolevel that is not on the spine, as sums over leaves.

        Args:
          leaves: Histograms of the leaves, by geocode of the spine.
          geolevel: Of `digits`.
          low: First leaf of a range of `ranges`.
          high: Last leaf.
          n_cells: Cells of the schema.

        Returns:
          object[G] geocodes of the census, ascending, all in the range, and their histograms.

        Raises:
          OutputError: A file is missing or cannot be read.
        """
        own, census = self.read(low, high)
        size = self.digits[geolevel]
        above = census.astype(f"S{size}") if size else np.full(len(census), ROOT_CODE, "S1")
        codes, owners = np.unique(above, return_inverse=True)
        parts = [*_partial_sums(leaves, own.astype(np.str_).astype(object), owners, n_cells)]
        columns = (np.concatenate(column) for column in zip(*parts, strict=True))
        found = Histograms.from_entries(n_cells, len(codes), *columns)
        return codes.astype(np.str_).astype(object), found


def _partial_sums(
    leaves: Dataset, codes: ObjectArray, owners: IntArray, n_cells: int
) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """Entries (owner, cell, count) of some leaves at a time, equal ones added."""
    reader, size = RangeReader(leaves), int(owners.max()) + 1
    for start in range(0, len(codes), _GEOUNITS):
        rows = slice(start, start + _GEOUNITS)
        some = codes[rows]
        table = reader.read(str(some[0]), str(some[-1]))
        if not table.num_rows:
            continue
        found = align_histograms(table, some, n_cells)
        owner = owners[rows][found.owners()]
        sums = Histograms.from_entries(n_cells, size, owner, found.cells, found.counts)
        yield sums.owners(), sums.cells, sums.counts
    yield (np.zeros(0, np.int64),) * 3
