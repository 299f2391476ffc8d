"""What reads an input format: pieces of files that tasks turn into entries (geocode, cell, n).

All that the rest of the project does with an input is a member of `Reader`, so a further format is
a model in `jobs.pipeline.config.models.data` and one class that `formats` lists.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, TypeVar

import numpy as np
import pyarrow as pa

from das.arrays import IntArray
from das.histograms import Histograms
from das.schema import Schema
from jobs.pipeline.config.models.data import InputFormat
from jobs.pipeline.config.models.values import names_of
from jobs.pipeline.input import values
from jobs.pipeline.input.files import Chunk, Table, plan_chunks, read_chunk
from jobs.pipeline.input.geounits import GeocodedFile, rows_of

Data = TypeVar("Data", bound=InputFormat)
Piece = TypeVar("Piece")
Legal = Mapping[str, Mapping[str, Mapping[str, int]]]


@dataclass(frozen=True, eq=False)
class Invented:
    """Invented persons of some leaves.

    Attributes:
      geocodes: Of G leaves.
      rows: int64[n], leaf of every person, not decreasing.
      cells: int64[n], cell of every person.
      texts: Text of every person in each column of `TableReader.legal`.
    """

    geocodes: Sequence[str]
    rows: IntArray
    cells: IntArray
    texts: Mapping[str, pa.Array]

    def histograms(self, n_cells: int) -> Histograms:
        """How many of them are in each leaf and cell."""
        ones = np.ones(len(self.rows), np.int64)
        return Histograms.from_entries(n_cells, len(self.geocodes), self.rows, self.cells, ones)


@dataclass(frozen=True, eq=False)
class Reader(ABC, Generic[Data, Piece]):
    """Reads an input of one format.

    Attributes:
      data: Format and place of the input.
      schema: Numbers the cells.
      digits: Length of a leaf geocode.
      has_repeats: Whether a geounit can stand in several rows, as in records.
    """

    data: Data
    schema: Schema
    digits: int

    has_repeats: ClassVar[bool] = False

    @abstractmethod
    def pieces(self) -> Sequence[Piece]:
        """Cut the input into pieces that tasks read on their own: small, picklable descriptors.

        Nothing is read apart from names of files and columns.

        Raises:
          ConfigError, SchemaError: The configuration does not fit the schema.
          InputError: A file is missing, unreadable, empty, or lacks a column.
        """

    @abstractmethod
    def entries(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Stream a piece as batches (geocode: string, cell: int64, n: int64), n > 0.

        They come in any order; equal (geocode, cell) add up.

        Raises:
          InputError: A value does not fit; names file and row.
        """

    @abstractmethod
    def geocodes(self, piece: Piece) -> Iterator[pa.Array]:
        """Stream the leaf geocodes of all rows of a piece, of those without persons too.

        Raises:
          InputError: One is missing or does not fit.
        """

    @abstractmethod
    def places(self, geocode: str) -> list[str]:
        """Find the files and rows in which a geocode stands, for error messages; may be slow."""


class TableReader(Reader[Data, Chunk]):
    """Reads a format whose files are tables, and writes one of invented persons."""

    @abstractmethod
    def table(self) -> Table:
        """Name the files and columns that are read.

        Raises:
          ConfigError, SchemaError: The configuration does not fit the schema.
        """

    @abstractmethod
    def write(self, persons: Invented) -> pa.Table:
        """Make a table of invented persons that would be read as these."""

    def legal(self) -> Legal:
        """Map each column of codes to its attributes, and these from legal texts to levels."""
        return {one.name: {one.name: one.level_index} for one in self.schema.attributes}

    def pieces(self) -> Sequence[Chunk]:
        """Cut the files into chunks, as `Reader.pieces` says."""
        return plan_chunks(self.table())

    def geocodes(self, piece: Chunk) -> Iterator[pa.Array]:
        """Stream the geocodes of a chunk, as `Reader.geocodes` says."""
        for batch in read_chunk(piece, self._geocode_table()):
            yield values.geocodes(batch, self.data.geocodes, self.digits)

    def places(self, geocode: str) -> list[str]:
        """Find the first two rows in which a geocode stands."""
        return rows_of(self._geocode_table(), self.data.geocodes, geocode, self.digits)

    def _geocode_table(self) -> Table:
        return replace(self.table(), columns=names_of(self.data.geocodes))


def written_geocodes(geocodes: Sequence[str], data: GeocodedFile) -> dict[str, pa.Array]:
    """Write geocodes as a file has them: by column, without leading zeros where those are lost."""
    parts = {data.geocode: [*geocodes]} if isinstance(data.geocode, str) else {}
    start = 0
    for part in () if isinstance(data.geocode, str) else data.geocode:
        parts[part.column] = [code[start : start + part.digits] for code in geocodes]
        start += part.digits
    if data.leading_zeros == "lost":
        for name, codes in parts.items():
            parts[name] = [code.lstrip("0") or "0" if code.isdigit() else code for code in codes]
    return {name: pa.array(codes, pa.string()) for name, codes in parts.items()}
