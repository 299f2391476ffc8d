"""`das generate --schema FILE`: invented persons of a schema of the user's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from das.errors import ConfigError, OutputError
from das.schema import Schema
from jobs.design.synthetic.files import FORMATS, GrowingTable
from jobs.design.synthetic.invented import PERSONS, Inventor, choices_of
from jobs.design.synthetic.nation import Nation, block_geocodes
from jobs.pipeline.confidential.look import look_at
from jobs.pipeline.config.schema import load_schema
from jobs.pipeline.input.files import Table
from jobs.pipeline.input.geounits import geocode_column, sorted_unique
from jobs.pipeline.storage.place import Place


@dataclass(frozen=True)
class OwnSpec:
    """What to invent; equal specifications give equal data.

    Attributes:
      schema: Schema file.
      blocks: Number of leaves, unless they are listed.
      states: Of them.
      listed: Public list of the leaves, of any spine.
      geocode: Its column.
      persons: About how many; None for 40 a leaf.
      seed: Any nonnegative integer.
      format: How persons are written.
    """

    schema: Path
    blocks: int = 3000
    states: int = 1
    listed: Place | None = None
    geocode: str = "geocode"
    persons: int | None = None
    seed: int = 2020
    format: str = "records"

    def write(self, out: Path) -> dict[str, int | str | bool]:
        """Write `out/geounits.parquet` and `out/<format>/`.

        Returns:
          Facts: numbers of leaves and persons, and the paths written.

        Raises:
          ConfigError, SchemaError: The schema cannot be used, or a number is out of range.
          InputError: The list cannot be read.
          OutputError: The folder holds something or cannot be written.
        """
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise OutputError(
                str(out), "is not an empty folder", remedy="choose another or remove it"
            )
        schema = load_schema(self.schema)
        self._check(schema)
        leaves = [*self._leaves()]
        mean = PERSONS if self.persons is None else self.persons / len(leaves)
        inventor = Inventor(schema, choices_of(schema), (self.seed, 0), mean)
        persons = 0
        data, geounits = out / self.format, out / "geounits.parquet"
        try:
            data.mkdir(parents=True, exist_ok=True)
            with GrowingTable(geounits) as file:
                file.write(pa.table({"geocode": pa.array(leaves, pa.string())}))
            with GrowingTable(data / "part-00000.parquet") as file:
                for drawn in inventor.draw_all(leaves):
                    persons += len(drawn.rows)
                    file.write(FORMATS[self.format](drawn.blocks(), schema))
        except OSError as error:
            raise OutputError(str(out), "cannot be written", got=error.strerror) from None
        paths = {"data": str(data), "geounits": str(geounits)}
        return {"invented": True, "blocks": len(leaves), "persons": persons, **paths}

    def _check(self, schema: Schema) -> None:
        if self.format not in FORMATS:
            raise ConfigError(
                "generate, format", "is unknown", got=self.format, want=f"one of {list(FORMATS)}"
            )
        names = [attribute.name for attribute in schema.attributes]
        if self.format == "block_table" and not all(name.isidentifier() for name in names):
            raise ConfigError(
                "generate, format",
                "names columns by attributes, which these names do not allow",
                got=names,
                want="records or histograms",
            )
        if self.seed < 0 or (self.persons is not None and self.persons < 1):
            got = f"seed {self.seed}, {self.persons} persons"
            raise ConfigError("generate", "cannot invent these data", got=got)
        if not 1 <= self.states <= min(99, self.blocks):
            got = f"{self.states} states, {self.blocks} blocks"
            raise ConfigError("generate, states", "is out of range", got=got, want="1..99")

    def _leaves(self) -> Iterator[str]:
        """Geocodes, sorted."""
        if self.listed is None:
            yield from block_geocodes(Nation(self.seed, self.states, self.blocks, "pl94"))
            return
        look = look_at(self.listed, sys.maxsize, alone=True)
        column = look.column(self.geocode)
        if column is None or not column.is_code:
            names = [one.name for one in look.columns if one.is_code]
            raise ConfigError(
                f"generate, list {self.listed}",
                "has no such column of geocodes",
                got=self.geocode,
                want=f"one of {names}",
                remedy="name it by --columns",
            )
        digits, lost = column.longest, not column.is_text or column.shortest < column.longest
        table = Table(self.listed, (self.geocode,), look.delimiter or ",", "", lost)
        parts = geocode_column(table, self.geocode, digits)
        codes = sorted_unique(parts, table, self.geocode, digits)
        yield from (code.decode() for code in codes.tolist())
