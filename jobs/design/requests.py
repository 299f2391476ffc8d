"""Options of commands before a run; each field is an option of the command line.

This module imports no large packages, because the command line imports it to show its help.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from das.tree.information import Information
from jobs.pipeline.storage.place import Place


@dataclass(frozen=True)
class PlanRequest:
    """Options of `das plan`.

    Attributes:
      tables: Tables to predict, such as "total, sex * age". Default: output.tables.
      allocation: Allocation file; replaces the one of the run file.
      optimize: Write the best allocation for the tables to this new file.
      weights: YAML: table to a weight or {geolevel: weight}. Default: all equal.
      targets: YAML: table to a target for the root mean squared error, or {geolevel: target}.
      max_rmse: YAML: table to the largest root mean squared error, or {geolevel: largest}.
      max_worsening: Factor by which any error may grow: 1 for not at all.
      groups: YAML: population groups to predict errors for, or to optimize for.
      planned: With --optimize: plan a strategy for every geolevel, by shares of residual sets.
      information: Measurements that estimates may use when optimizing.
      report: Write tables and plots to this HTML file.
      covariance: Predict covariances of two queries, such as "sex * age; total".
      product: Name of a product. Default: the last one.
      spine: Only print the effects of the designed spine, as JSON.
      compare_planners: Only compare planners: which cells get more noise than others.
      geolevel: With --compare-planners: geolevel of the budget. Default: the last.
      order: With --compare-planners: most attributes of a table. Default: 3.
      learn: Train regressions that correct released counts, and write them to this new file.
      public: With --learn: public table of other places, in the input format of the run; repeat for
        more.
    """

    tables: tuple[str, ...] | None = None
    allocation: Path | None = None
    optimize: Path | None = None
    weights: Path | None = None
    targets: Path | None = None
    max_rmse: Path | None = None
    max_worsening: float | None = None
    groups: Path | None = None
    planned: bool = False
    information: Information = Information.GEOUNIT
    report: Path | None = None
    covariance: str | None = None
    product: str | None = None
    spine: bool = False
    compare_planners: bool = False
    geolevel: str | None = None
    order: int | None = None
    learn: Path | None = None
    public: tuple[str, ...] = ()


@dataclass(frozen=True)
class DraftRequest:
    """Options of `das init`.

    Attributes:
      data: CSV or Parquet file of person records, or a folder of such files.
      folder: Empty or new folder.
      product: Name of what the records are, such as housing.
      into: Run file about the same places; a copy beside it gets this product, too.
      geocode: Column of geocodes, or their parts, such as PROV,MUN,SECC. Default: detected.
      geolevels: Names and digits, such as "province 2, village 6". Default: proposed.
      geounits: Public list of all geounits, empty ones included.
      tables: Table, such as "sex * age"; repeat for more. Default: one for each attribute.
      rho: Privacy budget, a fraction. Default: 1.
      codebook: Public table with columns column, code and label.
      leave_out: Column to leave out; repeat for more.
      keep: Column of codes to keep, even if it looks like something else; repeat for more.
      delimiter: Field separator of a CSV file. Default: detected.
      rows: Number of rows to read.
      survey: Draft the run file of a survey, without geography. All rows are read and counted.
    """

    data: Place
    folder: Path = field(default=Path("das-init"), metadata={"argument": True})
    product: str = "persons"
    into: Path | None = None
    geocode: str | None = None
    geolevels: tuple[str, ...] | None = None
    geounits: Place | None = None
    tables: tuple[str, ...] = field(default=(), metadata={"option": "--table"})
    rho: str | None = None
    codebook: Place | None = None
    leave_out: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    delimiter: str | None = None
    rows: int = 1_000_000
    survey: bool = False


@dataclass(frozen=True)
class GenerateSpec:
    """Options of `das generate`; equal options give equal data.

    Attributes:
      blocks: Approximate number of blocks.
      states: Number of states.
      listed: Public table of blocks and housing units; replaces --blocks and --states.
      columns: Columns of the list: geocode, housing units, optionally group quarters.
      every: Use every n-th tract of the list.
      tracts: Mean number of tracts of a county. Default: 8, more in a state of over 150 counties.
      seed: The same seed gives the same nation.
      schema: pl94, pl94_tables, block16, group_quarters, dhc_persons, dhc_households, census1940,
        toy, residents (persons and units by size) or the path of a schema file.
      like: Run file to rehearse: invent data for it, and write a run file that reads them.
      format: records, histograms or block_table.
      persons: With --like or a schema file: number of persons. Default: 40 a block.
      with_prims: Use the eight geolevels of the 2020 tables of persons. Except for dhc_households,
        also write the counts of persons by block in the cells of the schema pl94.
    """

    blocks: int = 3000
    states: int = 1
    listed: Place | None = field(default=None, metadata={"option": "--list"})
    columns: str = "geocode, housing_units"
    every: int = 1
    tracts: float | None = None
    seed: int = 2020
    schema: str = "pl94"
    like: Path | None = None
    format: str = "records"
    persons: int | None = None
    with_prims: bool = field(default=False, metadata={"option": "--prims"})
