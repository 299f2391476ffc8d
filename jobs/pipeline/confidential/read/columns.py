"""Names of columns that an input format needs, and whether files have them. Reads no row."""

from __future__ import annotations

from das.errors import ConfigError
from das.schema import Schema
from jobs.pipeline.confidential.read import block_table, histograms, pl94, records
from jobs.pipeline.config.data import check_data
from jobs.pipeline.config.models.data import (
    BlockTableData,
    DataConfig,
    NmfData,
    Pl94Data,
    RecordsData,
)
from jobs.pipeline.input.files import Table, plan_chunks


def check_columns(data: DataConfig, schema: Schema) -> None:
    """Check that the files of an input are there and have the columns that it needs.

    Raises:
      ConfigError: The configuration does not fit the schema.
      InputError: A file is missing, unreadable, empty, or lacks a column.
    """
    if isinstance(data, Pl94Data):
        check_data(data, schema)
        pl94.find_files(data.path)
    elif not isinstance(data, NmfData):
        plan_chunks(table_of(data, schema))


def table_of(data: DataConfig, schema: Schema) -> Table:
    """Name the files and columns of an input that is a table.

    Raises:
      ConfigError: The configuration does not fit the schema, or it is no table.
    """
    if isinstance(data, RecordsData):
        return records.table_of(data, schema)
    if isinstance(data, BlockTableData):
        return block_table.table_of(data, schema)
    if isinstance(data, Pl94Data | NmfData):
        raise ConfigError(f"data.path {data.path}", "is no table", got=data.format)
    return histograms.table_of(data)
