"""Write and read sparse histograms, true or protected, a row per geounit.

Geounits without persons have no row. The folder tells whether a dataset is true or protected.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import IntArray, ObjectArray
from das.histograms import Histograms
from jobs.pipeline.storage.columns import check_columns, flattened, lengths, ragged_lists, texts
from jobs.pipeline.storage.dataset import Dataset, RangeReader
from jobs.pipeline.storage.files import understanding
from jobs.pipeline.storage.layout import ReleaseLayout

Texts = Sequence[str] | ObjectArray  # geocodes

_NO_ENTRIES = np.zeros(0, np.int64)
_NUMBERS = pa.list_(pa.int64())
SPARSE_SCHEMA = pa.schema([("geocode", pa.string()), ("cells", _NUMBERS), ("counts", _NUMBERS)])


def sparse_table(geocodes: Texts, histograms: Histograms) -> pa.Table:
    """Make an Arrow table of the geounits with persons, in the given order."""
    sizes = np.diff(histograms.offsets)
    inhabited = np.flatnonzero(sizes)
    offsets = np.concatenate(([0], np.cumsum(sizes[inhabited])))
    codes = pa.array(np.asarray(geocodes, dtype=object)[inhabited], pa.string())
    values = (ragged_lists(offsets, part) for part in (histograms.cells, histograms.counts))
    return pa.table([codes, *values], schema=SPARSE_SCHEMA)


def sparse_arrays(
    table: pa.Table,
) -> tuple[npt.NDArray[np.str_], IntArray, IntArray, IntArray]:
    """Convert the columns of sparse rows to arrays.

    Returns:
      str[r] geocodes, int64[r] numbers of entries, and int64[nnz] cells and counts.
    """
    return texts(table).astype(np.str_), *_entries(table)


def _entries(table: pa.Table) -> tuple[IntArray, IntArray, IntArray]:
    cells, counts = table.column("cells"), table.column("counts")
    return lengths(cells), flattened(cells), flattened(counts)


def align_histograms(table: pa.Table, geocodes: Texts, n_cells: int) -> Histograms:
    """Make histograms of exactly these geounits, in order; geounits without a row are empty.

    Args:
      table: Rows (geocode, cells, counts) sorted by geocode.
      geocodes: Sorted geocodes.
      n_cells: Cells of the schema.
    """
    wanted = pa.array(np.asarray(geocodes, object), pa.string())
    index = pc.fill_null(pc.index_in(table.column("geocode"), value_set=wanted), -1)
    index = np.asarray(index, np.int64)
    row_sizes, cells, counts = _entries(table)
    keep = index >= 0
    entries = np.repeat(keep, row_sizes)
    sizes = np.zeros(len(wanted), np.int64)
    sizes[index[keep]] = row_sizes[keep]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    return Histograms(n_cells, offsets, cells[entries], counts[entries])


def read_histograms(dataset: Dataset | RangeReader, geocodes: Texts, n_cells: int) -> Histograms:
    """Read the histograms of sorted geocodes; geounits without a row are empty.

    Args:
      dataset: The dataset, or a reader of it.
      geocodes: Sorted geocodes.
      n_cells: Cells of the schema.

    Raises:
      OutputError: A file is missing or cannot be read.
    """
    if not len(geocodes):
        return Histograms(n_cells, np.zeros(1, np.int64), _NO_ENTRIES, _NO_ENTRIES)
    table = dataset.read(str(geocodes[0]), str(geocodes[-1]))
    if table.num_columns == 0:
        table = SPARSE_SCHEMA.empty_table()
    with understanding(dataset.path):
        check_columns(table, SPARSE_SCHEMA)
        cells, counts = (lengths(table.column(name)) for name in ("cells", "counts"))
        if not np.array_equal(cells, counts):
            raise ValueError("cells and counts differ in length")
    return align_histograms(table, geocodes, n_cells)


def read_counts(layout: ReleaseLayout, geolevel: str, geocodes: Texts, n_cells: int) -> Histograms:
    """Read the protected histograms of sorted geocodes of a geolevel.

    Raises:
      OutputError: The geolevel is not solved.
    """
    return read_histograms(Dataset.open(layout.counts(geolevel)), geocodes, n_cells)
