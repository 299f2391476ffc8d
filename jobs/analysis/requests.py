"""Options of commands that read a release; each field is an option of the command line.

This module imports no large packages, because the command line imports it to show its help.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from das.errors import ConfigError
from jobs.pipeline.storage.place import Place

if TYPE_CHECKING:
    from jobs.pipeline.config.product import Product, Resolved


def product_named(resolved: Resolved, name: str | None, where: str = "--product") -> Product:
    """Return the product with a name; without a name the last one.

    Raises:
      ConfigError: The product is unknown.
    """
    if name is not None and name not in resolved.products:
        raise ConfigError(where, "is unknown", got=name, want=[*resolved.products])
    return resolved.last if name is None else resolved.products[name]


@dataclass(frozen=True)
class TablesRequest:
    """Options of `das tables`.

    Attributes:
      queries: Table, such as "sex * age"; repeat for more. Default: output.tables.
      geolevels: Geolevel, such as tract; repeat for more. Default: all of a table.
      formats: csv, parquet or xlsx; repeat for more.
      to: Folder for the files; it may exist.
      confidence: Confidence level. Default: 0.9. Counts have intervals at that of `das replicate`.
      product: Name of a product. Default: the last one.
    """

    queries: tuple[str, ...] = field(default=(), metadata={"option": "--table"})
    geolevels: tuple[str, ...] = field(default=(), metadata={"option": "--geolevel"})
    formats: tuple[str, ...] = field(default=("csv",), metadata={"option": "--format"})
    to: Path = Path("tables")
    confidence: float | None = None
    product: str | None = None


@dataclass(frozen=True)
class IntervalSettings:
    """Options of the intervals of estimates.

    Attributes:
      confidence: Confidence level of the intervals.
      simultaneous: Cover all answers of a table together.
      positive: Use that true counts cannot be negative, and public bounds of geounits.
    """

    confidence: float = 0.9
    simultaneous: bool = False
    positive: bool = False


@dataclass(frozen=True)
class EstimateRequest:
    """Options of `das estimate`.

    Attributes:
      query: Query, such as "votingage * hispanic".
      area: File of leaf geocodes, one a line, or CSV of areas and leaf geocodes.
      geounit: Geocode of any geolevel.
      geolevel: All geounits of this geolevel, such as county.
      covariance: Print covariances with the answers of this query, instead of estimates.
    """

    query: str = "total"
    area: Place | None = None
    geounit: tuple[str, ...] = ()
    geolevel: str | None = None
    covariance: str | None = None


@dataclass(frozen=True)
class AreasRequest:
    """Options of `das areas`.

    Attributes:
      assign: Block-assignment file: CSV of areas and leaf geocodes.
      column: Column of the areas, in a file with several.
      table: Further table, such as "sex * age[65+]"; repeat for more.
      geounit: Geocode of any geolevel; repeat for more.
      geolevel: All geounits of this geolevel, such as county.
      confidence: Confidence level of the intervals.
      ideal: Persons of the ideal area. Default: an equal share of all.
      share: Also print the share of each count in this query of one answer, such as total.
    """

    assign: Place | None = None
    column: str | None = None
    table: tuple[str, ...] = ()
    geounit: tuple[str, ...] = ()
    geolevel: str | None = None
    confidence: float = 0.9
    ideal: float | None = None
    share: str | None = None


@dataclass(frozen=True)
class ExploreRequest:
    """Options of `das explore`.

    Attributes:
      boundaries: Outlines of geounits: GeoJSON.
      join: Property of the boundaries that is the geocode. Default: the one that fits.
      names: Property of the boundaries that is the name of a place.
      tables: Table, such as total; repeat for more. Default: all of the release.
      geolevels: Geolevel, such as tract; repeat for more. Default: all.
      megabytes: Largest size of the page; what does not fit is left out.
    """

    boundaries: Path | None = None
    join: str | None = None
    names: str | None = None
    tables: tuple[str, ...] = field(default=(), metadata={"option": "--table"})
    geolevels: tuple[str, ...] = field(default=(), metadata={"option": "--geolevel"})
    megabytes: float = 5.0


@dataclass(frozen=True)
class ExportRequest:
    """Options of `das export`.

    Attributes:
      layout: Layout: pl94, ppmf, wide, or the path of a YAML file like those in conf/export.
      to: Folder for the files; it may exist.
      zip: Put the files into zip files, as the layout names them.
      leave_out: Table of the layout to leave out, such as H001; repeat for more.
      geolevels: Geolevel, such as tract; repeat for more. Default: those of the layout.
      formats: csv, parquet or xlsx; repeat for more. Default: those of the layout.
    """

    layout: str | None = field(default=None, metadata={"option": "--as"})
    to: Path = Path("export")
    zip: bool = False
    leave_out: tuple[str, ...] = ()
    geolevels: tuple[str, ...] = field(default=(), metadata={"option": "--geolevel"})
    formats: tuple[str, ...] = field(default=(), metadata={"option": "--format"})


@dataclass(frozen=True)
class CompareRequest:
    """Options of `das compare`.

    Attributes:
      ours: Release, run, or published files.
      theirs: Release, run, or published files.
      layout: Layout of the variables: pl94, or the path of a YAML file like those in conf/export.
      tables: Table of the layout, such as P001; repeat for more. Default: all that both have.
      geolevels: Geolevel, such as tract; repeat for more. Default: all that both have.
      page: Also write a page with measures and pictures to this HTML file.
    """

    ours: Place
    theirs: Place
    layout: str = field(default="pl94", metadata={"option": "--as"})
    tables: tuple[str, ...] = field(default=(), metadata={"option": "--table"})
    geolevels: tuple[str, ...] = field(default=(), metadata={"option": "--geolevel"})
    page: Path | None = None


@dataclass(frozen=True)
class NmfImport:
    """Options of `das nmf import`.

    Attributes:
      nmf: Folder with <Geolevel>.parquet, such as US_Person_PL_PROD.
      folder: New folder for the run file and the run.
      schema: Schema file. Default: the one in conf/schema with the attributes of the files.
      allocation: Allocation of the measurements. Default: found by the variances.
      rho: Budget that --allocation splits, such as 293764/114921.
      root: Geolevel to begin with, such as state. Default: the first.
      leave_out: Constraint to leave out, such as hhgq_total_ub; repeat for more.
      product: Name for the product. Default: persons, or units.
    """

    nmf: Path
    folder: Path
    schema: Path | None = None
    allocation: Path | None = None
    rho: Fraction | None = None
    root: str | None = None
    leave_out: tuple[str, ...] = ()
    product: str | None = None


@dataclass(frozen=True)
class InspectRequest:
    """Options of `das inspect`.

    Attributes:
      geounit: Geocode of any geolevel: print its released numbers.
      query: Only this query of the geounit.
      product: Product of these answers. Default: the last.
      reports: Write the reports of a finished run again, and print nothing.
      to: Folder for the public reports; the internal ones are then not written.
      solution: Name of a further solution, in OUT/solutions.
    """

    geounit: str | None = None
    query: str | None = None
    product: str | None = None
    reports: bool = False
    to: Path | None = None
    solution: str | None = None


@dataclass(frozen=True)
class ReplicateSettings:
    """Options of `das replicate`.

    Attributes:
      count: Number of replicates, including those of earlier calls.
      seed: Seed of their noise, which is not secret.
      confidence: Confidence level of the intervals.
      areas: Keep leaf counts, for intervals of `das areas`.
    """

    count: int = 40
    seed: int = 1
    confidence: float = 0.9
    areas: bool = False
