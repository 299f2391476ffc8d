"""Block tables: one row per leaf geounit, one column per cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from das.errors import ConfigError
from das.schema.schema import Schema
from jobs.config.models import BlockTableData
from jobs.read import values
from jobs.read.files import Batch, Chunk, Table, read_chunk

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Layout:
    """What the columns of a block table mean.

    Attributes:
      columns: Cell number of every column that holds counts.
      checks: Columns that must equal a sum, each with bool[n] saying which cells it sums.
    """

    columns: Mapping[str, int]
    checks: Mapping[str, npt.NDArray[np.bool_]]


def layout_of(data: BlockTableData, schema: Schema) -> Layout:
    """Resolve the names of columns, attributes and levels.

    Raises:
      ConfigError: A name is unknown, a cell has no column, or a pattern does not tell cells apart.
    """
    if data.pattern is not None:
        columns = _from_pattern(data.pattern, schema)
    else:
        columns = _from_map(data.columns or {}, schema)
    checks = {
        name: _mask(schema, group, f"data.checks.{name}") for name, group in data.checks.items()
    }
    return Layout(columns, checks)


def table_of(data: BlockTableData, schema: Schema) -> Table:
    """Name the files and columns that hold the table.

    Raises:
      ConfigError: As in `layout_of`.
    """
    layout = layout_of(data, schema)
    names = dict.fromkeys((data.geocode, *layout.columns, *layout.checks))
    return Table(data.path, tuple(names), data.delimiter)


def read_entries(
    chunk: Chunk, data: BlockTableData, *, schema: Schema, digits: int
) -> Iterator[pa.RecordBatch]:
    """Turn the rows of a chunk into entries.

    Args:
      chunk: Part of a file.
      data: Configuration of the table.
      schema: Numbers the cells.
      digits: Length of a leaf geocode.

    Yields:
      Entries with positive counts.

    Raises:
      InputError: A geocode or count does not fit, or a column of `checks` differs from its sum.
    """
    layout = layout_of(data, schema)
    table = table_of(data, schema)
    cell_of_column = np.array(list(layout.columns.values()), np.int64)
    total = 0.0
    for batch in read_chunk(chunk, table):
        geocodes = values.geocodes(batch, data.geocode, digits)
        counts = np.stack([values.counts(batch, name) for name in layout.columns], axis=1)
        total = values.add_rows(total, counts.sum(1, dtype=np.float64), batch.where)
        for name, mask in layout.checks.items():
            if (values.counts(batch, name) != counts[:, mask[cell_of_column]].sum(1)).any():
                _refuse_sums(batch, name, [c for c, cell in layout.columns.items() if mask[cell]])
        rows, columns = np.nonzero(counts)
        yield values.entries(geocodes, rows, cell_of_column[columns], counts[rows, columns])


def _refuse_sums(batch: Batch, name: str, parts: Sequence[str]) -> NoReturn:
    def faults(rows: Batch) -> list[values.Fault]:
        sums = sum(values.counts(rows, part) for part in parts)
        return [("is not the sum of its cells", values.counts(rows, name) != sums)]

    remedy = "correct the data, or the configuration of data.checks"
    values.refuse(batch, f"column {name}", faults, remedy=remedy)


def _from_pattern(pattern: str, schema: Schema) -> dict[str, int]:
    codes = schema.codes_of(np.arange(schema.size))
    columns: dict[str, int] = {}
    for cell in range(schema.size):
        try:
            name = pattern.format(**{key: int(array[cell]) for key, array in codes.items()})
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            raise ConfigError(
                "data.pattern",
                f"cannot be filled in ({error})",
                got=pattern,
                want=f"only {list(codes)} in braces",
            ) from None
        if name in columns:
            raise ConfigError(
                "data.pattern",
                f"gives the column {name} for two cells",
                got=pattern,
                want=f"all of {list(codes)} in braces",
            )
        columns[name] = cell
    return columns


def _from_map(named: Mapping[str, Mapping[str, str]], schema: Schema) -> dict[str, int]:
    wanted = [attribute.name for attribute in schema.attributes]
    columns: dict[str, int] = {}
    for name, levels in named.items():
        where = f"data.columns.{name}"
        if sorted(levels) != sorted(wanted):
            raise ConfigError(
                where, "must name one level of every attribute", got=list(levels), want=wanted
            )
        columns[name] = int(np.flatnonzero(_mask(schema, levels, where))[0])
    bare = sorted(set(range(schema.size)) - set(columns.values()))
    if bare:
        codes = schema.codes_of(np.array(bare[:1]))
        levels = {a.name: a.levels[int(codes[a.name][0])] for a in schema.attributes}
        raise ConfigError("data.columns", f"leaves {len(bare)} cells without a column", got=levels)
    return columns


def _mask(schema: Schema, group: Mapping[str, str], where: str) -> npt.NDArray[np.bool_]:
    """bool[n]: the cells in a group given as {attribute or recode: level}."""
    recodes = {recode.name: recode for recode in schema.recodes}
    codes = schema.codes_of(np.arange(schema.size))
    mask = np.ones(schema.size, np.bool_)
    for name, level in group.items():
        if name in recodes:
            labels = recodes[name].groups
            code = np.asarray(recodes[name].codes)[codes[recodes[name].attribute]]
        elif name in codes:
            labels, code = schema.attribute(name).levels, codes[name]
        else:
            raise ConfigError(
                where, "names an unknown attribute", got=name, want=f"one of {[*codes, *recodes]}"
            )
        if level not in labels:
            raise ConfigError(
                f"{where}.{name}",
                "names an unknown level",
                got=level,
                want=f"one of {list(labels)}",
            )
        mask &= code == labels.index(level)
    return mask
