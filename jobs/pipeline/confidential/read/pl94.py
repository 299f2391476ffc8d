"""Official 2020 PL 94-171 summary files: a geographic header and three segments per state.

The layout is conf/export/pl94.yaml. The four files are in the order of the logical record number;
they are streamed together, directly from the zip.

References:
  U.S. Census Bureau, 2020 Census State Redistricting Data (Public Law 94-171) Summary File,
  Technical Documentation, chapter 6 (data dictionary).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import IntArray
from das.errors import InputError
from jobs.pipeline.confidential.read import pl94_tables
from jobs.pipeline.confidential.read.reader import Reader
from jobs.pipeline.config.layouts import read_layout
from jobs.pipeline.config.models.data import Pl94Data
from jobs.pipeline.input import values
from jobs.pipeline.input.published import FileSet, find_sets, stored_files
from jobs.pipeline.storage.place import Place

BLOCK = "750"  # summary level of blocks
_HEADER = {"SUMLEV": pa.string(), "GEOCODE": pa.string()}


def find_states(path: Place) -> list[FileSet]:
    """Find the files of every state: in a zip, in a folder, or in the zips of a folder.

    Raises:
      InputError: The path does not exist, a zip is damaged, a state lacks one of its files, or
        comes twice.
    """
    layout = read_layout("pl94")
    states = find_sets(layout, stored_files(path))
    if not states:
        want = [f"{file.name}{layout.endings[0]}" for file in layout.files]
        raise InputError(str(path), "holds no PL 94-171 files", want=want)
    return states


class Pl94Reader(Reader[Pl94Data, FileSet]):
    """Reader of the block records of summary files."""

    def pieces(self) -> Sequence[FileSet]:
        """Find the files of every state, as `find_states` does.

        Raises:
          ConfigError: The schema does not have the attributes of the product.
          InputError: The path does not exist, a zip is damaged, or a state lacks one of its files.
        """
        self.data.check(self.schema)
        return find_states(self.data.path)

    def entries(self, piece: FileSet) -> Iterator[pa.RecordBatch]:
        """Turn the block records of a state into entries.

        Raises:
          InputError: A line or a table does not fit; names file and line.
        """
        segments = [piece.files[segment] for segment in pl94_tables.SEGMENTS[self.data.product]]
        tables = {name: piece.layout.variables(name) for file in segments for name in file.tables}
        kinds = {variable: pa.int64() for names in tables.values() for variable in names}
        total = 0.0
        for first, rows in piece.rows(_HEADER | kinds):
            blocks, lines = _blocks(piece, rows, first, self.digits)
            wrong = partial(_wrong, piece, lines)
            numbers = {name: _table(blocks, names, wrong) for name, names in tables.items()}
            counts = pl94_tables.cells_of(self.data.product, numbers, wrong)
            total = values.add_rows(
                total,
                counts.sum(1, dtype=np.float64),
                lambda index, lines=lines: piece.where(lines[index], "GEOCODE"),  # type: ignore[misc]
            )
            at, cells = np.nonzero(counts)
            geocodes = blocks["GEOCODE"].combine_chunks()
            yield values.entries(geocodes, at, cells, counts[at, cells])

    def geocodes(self, piece: FileSet) -> Iterator[pa.Array]:
        """Stream the geocodes of all block records of a state.

        Raises:
          InputError: A line does not fit, or the state has no block records.
        """
        total = 0
        for first, rows in piece.rows(_HEADER):
            blocks, _ = _blocks(piece, rows, first, self.digits)
            total += blocks.num_rows
            yield blocks["GEOCODE"].combine_chunks()
        if not total:
            raise InputError(str(piece.stored[0]), f"has no block records (SUMLEV {BLOCK})")

    def places(self, geocode: str) -> list[str]:
        """Find the line of the geographic header that holds a block; the path if there is none."""
        for state in find_states(self.data.path):
            for first, rows in state.rows(_HEADER):
                is_block = pc.equal(rows["SUMLEV"], BLOCK)
                found = pc.index(pc.and_(is_block, pc.equal(rows["GEOCODE"], geocode)), True)
                if found.as_py() >= 0:
                    return [f"{state.stored[0]}, row {first + found.as_py()}"]
        return [str(self.data.path)]


def _blocks(state: FileSet, rows: pa.Table, first: int, digits: int) -> tuple[pa.Table, IntArray]:
    """Return the rows of blocks, with checked geocodes, and their line numbers."""
    is_block = pc.equal(rows["SUMLEV"], BLOCK)
    lines = first + np.flatnonzero(np.asarray(is_block))
    blocks = rows.filter(is_block)
    codes = blocks["GEOCODE"]
    fits = pc.and_(pc.equal(pc.binary_length(codes), digits), pc.ascii_is_alnum(codes))
    bad = np.flatnonzero(~np.asarray(fits, np.bool_))
    if len(bad):
        raise InputError(
            state.where(lines[bad[0]], "GEOCODE"),
            "geocode does not fit the leaf geolevel",
            want=f"{digits} letters or digits",
        )
    return blocks, lines


def _table(blocks: pa.Table, variables: Sequence[str], wrong: pl94_tables.Wrong) -> IntArray:
    """Return variables as int64[blocks, variables]."""
    for name in variables:
        if blocks[name].null_count:
            at = int(np.flatnonzero(np.asarray(pc.is_null(blocks[name])))[0])
            wrong(at, f"{name}: count is missing")
    columns = [np.asarray(blocks[name], np.int64) for name in variables]
    return np.stack(columns, axis=1)


def _wrong(state: FileSet, lines: IntArray, index: int, what: str) -> NoReturn:
    variable, _, text = what.partition(": ")
    raise InputError(state.where(lines[index], variable), text)
