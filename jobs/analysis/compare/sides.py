"""What is compared: a release, or files that anybody published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import as_file
from pathlib import Path

import pyarrow as pa

from das.errors import ConfigError
from das.schema import Schema
from jobs.analysis.compare.published import RecordFiles, TabulatedFiles, find_published
from jobs.analysis.export import geounit_rows
from jobs.analysis.layouts import FilledFile, FilledTable, fill_tables
from jobs.analysis.tables import estimates_of, verify_tables
from jobs.pipeline.config.files import ready_files, ready_folder
from jobs.pipeline.config.layouts import Layout, LayoutFile, read_layout
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.config.schema import load_schema
from jobs.pipeline.storage.place import Place

_PUBLISHED = ("pl94", "ppmf", "wide")  # layouts that published files are recognized by, in order


@dataclass(frozen=True, eq=False)
class ReleasedSide:
    """A release: counts, with the estimates and intervals that it has.

    Attributes:
      resolved: The run of the release.
      filled: Tables of the layout that is compared, with the products that fill them.
    """

    resolved: Resolved
    filled: Mapping[str, FilledTable]

    def tables(self, wanted: Layout) -> list[str]:
        """List the tables of a layout that a product of the release can fill."""
        return [name for name in wanted.tables if self.filled[name].product is not None]

    def geolevels(self) -> dict[int, str]:
        """Return the lengths of the census geocodes, with the names of their geolevels."""
        return {digits: name for name, digits in self.resolved.plan.census_digits.items()}

    def read(self, wanted: Layout, table: str, length: int) -> pa.Table:
        """Return the variables of a table for the geounits with geocodes of a length.

        Returns:
          Columns geocode, place and the variables, int64; with estimates in the release also
          VARIABLE_estimate, VARIABLE_lower and VARIABLE_upper, float64.

        Raises:
          OutputError: The release is incomplete or changed.
        """
        geolevel = self.geolevels()[length]
        filled = self.filled[table]
        if filled.product is None:
            raise ConfigError("das compare", "has a table that no product can fill", got=table)
        has_all = None not in estimates_of(filled.product, geolevel, filled.queries)
        file = LayoutFile(name=table, columns=[], tables=[table], intervals=has_all)
        rows = geounit_rows(
            wanted, self.resolved, FilledFile(file, {table: filled}, None, {}), geolevel
        )
        return pa.concat_tables(rows).combine_chunks()


Side = ReleasedSide | TabulatedFiles | RecordFiles
"""One side of a comparison: a release, or files that anybody published."""


def open_sides(
    paths: Sequence[Place], runs: Sequence[Resolved | None], wanted: Layout
) -> list[Side]:
    """Open both sides of a comparison.

    Args:
      paths: A path per side.
      runs: The run of each side that is a release; None for files that anybody published.
      wanted: Layout that published files may have, besides the included ones.

    Raises:
      ConfigError: Published files are in a store.
      InputError: Published files cannot be read, or are in no known layout.
      OutputError: A dataset of a release is incomplete or changed.
    """
    released = [product for run in runs if run is not None for product in run.products.values()]
    for product in released:
        verify_tables(product, product.plan.census_digits, any_query=True)
    layouts = [wanted, *(read_layout(name) for name in _PUBLISHED if name != wanted.name)]
    schemas = [*(product.plan.schema for product in released), *_ready_schemas()]
    sides: list[Side] = []
    for path, run in zip(paths, runs, strict=True):
        if run is not None:
            sides.append(ReleasedSide(run, fill_tables(wanted, run)[1]))
        elif isinstance(path, Path):
            sides.append(find_published(path, layouts, schemas))
        else:
            raise ConfigError("das compare", "reads files of others from a disk", got=str(path))
    return sides


def _ready_schemas() -> list[Schema]:
    with as_file(ready_folder()) as folder:
        files = [folder / file for file in ready_files() if file.parent.name == "schema"]
        return [load_schema(file) for file in files]
