"""Readers of input formats: tasks turn pieces of files into entries (geocode, cell, n).

Other code uses an input only through `Reader`. A new format needs a model in
`jobs.pipeline.config.models.data` and one class that `formats` lists.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, TypeVar

import numpy as np
import pyarrow as pa

from das.arrays import IntArray
from das.errors import InputError
from das.histograms import Histograms
from das.schema import Schema
from jobs.pipeline.config.models.data import InputFormat
from jobs.pipeline.config.models.values import GeocodeTable, names_of
from jobs.pipeline.input import values
from jobs.pipeline.input.files import Chunk, Table, plan_chunks, read_chunk
from jobs.pipeline.input.geounits import GeocodedFile, rows_of

Data = TypeVar("Data", bound=InputFormat)
Piece = TypeVar("Piece")
Legal = Mapping[str, Mapping[str, Mapping[str, int]]]


@dataclass(frozen=True, eq=False)
class Invented:
    """Synthetic persons of some leaf geounits, for rehearsals.

    Attributes:
      geocodes: Geocodes of G leaves.
      rows: int64[n], index of the leaf of each person, not decreasing.
      cells: int64[n], cell of each person.
      texts: Column of `TableReader.legal` -> text of each person.
    """

    geocodes: Sequence[str]
    rows: IntArray
    cells: IntArray
    texts: Mapping[str, pa.Array]

    def histograms(self, n_cells: int) -> Histograms:
        """Count the persons by leaf and cell."""
        ones = np.ones(len(self.rows), np.int64)
        return Histograms.from_entries(n_cells, len(self.geocodes), self.rows, self.cells, ones)


GEOCODE = ""  # stands for the columns of the geocode, which are no attribute


@dataclass(frozen=True)
class Wrong:
    """Wrong values of one attribute of an input; confidential.

    Attributes:
      attribute: Name of the attribute, or `GEOCODE`, also if the format knows no attributes.
      first: Place and mistake of the first wrong row.
      codes: Distinct values that are no legal codes.
    """

    attribute: str
    first: str
    codes: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, attribute: str, error: InputError) -> Wrong:
        """Return the mistake that an error reports."""
        return cls(attribute, f"{error.where}: {error.what}")


@dataclass(frozen=True, eq=False)
class Reader(ABC, Generic[Data, Piece]):
    """Reader of an input of one format.

    Attributes:
      data: Format and path of the input.
      schema: Schema of the product.
      digits: Length of a leaf geocode.
      has_repeats: Whether several rows can have the same geounit, as in records.
    """

    data: Data
    schema: Schema
    digits: int

    has_repeats: ClassVar[bool] = False

    @abstractmethod
    def pieces(self) -> Sequence[Piece]:
        """Cut the input into pieces, one per task: small descriptors that can be pickled.

        Only names of files and columns are read.

        Raises:
          ConfigError, SchemaError: The configuration does not fit the schema.
          InputError: A file is missing, unreadable, empty, or lacks a column.
        """

    @abstractmethod
    def entries(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Stream a piece as batches (geocode: string, cell: int64, n: int64), n > 0.

        Entries may come in any order; equal (geocode, cell) are added up later.

        Raises:
          InputError: A value does not fit; the error names file and row.
        """

    def wrong(self, piece: Piece) -> Iterator[Wrong]:
        """Yield the mistakes of a piece; the first alone, if the format knows no attributes."""
        try:
            for _ in self.entries(piece):
                pass
        except InputError as error:
            yield Wrong.of(GEOCODE, error)

    def repeated(self) -> Wrong | None:
        """Return the first row that may be a record a second time; None if there is none."""
        return None

    @abstractmethod
    def geocodes(self, piece: Piece) -> Iterator[pa.Array]:
        """Stream the leaf geocodes of all rows of a piece, including rows without records.

        Raises:
          InputError: A geocode is missing or does not fit.
        """

    @abstractmethod
    def places(self, geocode: str) -> list[str]:
        """Find the files and rows that hold a geocode, for error messages; may be slow."""


class TableReader(Reader[Data, Chunk]):
    """Reader of a format whose files are tables; it also writes tables of synthetic persons."""

    @abstractmethod
    def table(self) -> Table:
        """Return the files and columns to read.

        Raises:
          ConfigError, SchemaError: The configuration does not fit the schema.
        """

    @abstractmethod
    def write(self, persons: Invented) -> pa.Table:
        """Make the table from which these synthetic persons would be read."""

    def legal(self) -> Legal:
        """Map each column of codes to its attributes, and each attribute from texts to levels."""
        return {a.name: {a.name: a.level_index} for a in self.schema.attributes}

    def pieces(self) -> Sequence[Chunk]:
        """Cut the files into chunks, as for `Reader.pieces`."""
        return plan_chunks(self.table())

    def geocodes(self, piece: Chunk) -> Iterator[pa.Array]:
        """Stream the geocodes of a chunk, as for `Reader.geocodes`."""
        for batch in read_chunk(piece, self._geocode_table()):
            yield values.geocodes(batch, self.data.geocodes, self.digits)

    def places(self, geocode: str) -> list[str]:
        """Find the first two rows that hold a geocode."""
        return rows_of(self._geocode_table(), self.data.geocodes, geocode, self.digits)

    def _geocode_table(self) -> Table:
        return replace(self.table(), columns=names_of(self.data.geocodes))


def written_geocodes(geocodes: Sequence[str], data: GeocodedFile) -> dict[str, pa.Array]:
    """Split geocodes into the columns of a file, without leading zeros if the file lost them."""
    if isinstance(data.geocode, GeocodeTable):
        known = values.geocodes_of_codes(data.geocode, len(geocodes[0]) if geocodes else 0)
        codes_of = {geocode: codes.split(values.CODE_END) for codes, geocode in known.items()}
        columns = zip(*(codes_of[geocode] for geocode in geocodes), strict=True)
        texts = (pa.array(column, pa.string()) for column in columns)
        return dict(zip(data.geocode.columns, texts, strict=True))
    parts = {data.geocode: [*geocodes]} if isinstance(data.geocode, str) else {}
    start = 0
    for part in () if isinstance(data.geocode, str) else data.geocode:
        parts[part.column] = [code[start : start + part.digits] for code in geocodes]
        start += part.digits
    if data.leading_zeros == "lost":
        for name, codes in parts.items():
            parts[name] = [code.lstrip("0") or "0" if code.isdigit() else code for code in codes]
    return {name: pa.array(codes, pa.string()) for name, codes in parts.items()}
