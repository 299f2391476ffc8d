"""What the section `data` of a run file means for a schema. Opens no data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from das.errors import ConfigError, InputError
from das.schema import Schema
from jobs.pipeline.config.models.data import (
    BlockTableData,
    DataConfig,
    HistogramsData,
    NmfData,
    Pl94Data,
    RecordsData,
)
from jobs.pipeline.config.models.values import digits_of
from jobs.pipeline.storage.place import Place

FILE_KINDS: Mapping[str, Literal["csv", "parquet"]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
MOST_COLUMNS = 100_000  # of a block table, which has one for every cell
PL94_AXES: Mapping[str, Mapping[str, int]] = {
    "persons": {"votingage": 2, "hispanic": 2, "cenrace": 63},
    "group_quarters": {"hhgq": 8},
    "housing_units": {"occupancy": 2},
}


def check_data(data: DataConfig, schema: Schema) -> None:
    """Check all that a section `data` says against the schema.

    Raises:
      ConfigError: Attributes, levels or a product do not fit; all that are wrong are named.
    """
    if isinstance(data, RecordsData):
        legal_codes(data, schema)
    elif isinstance(data, BlockTableData):
        layout_of(data, schema)
    elif isinstance(data, Pl94Data):
        got = {attribute.name: attribute.size for attribute in schema.attributes}
        want = PL94_AXES[data.product]
        if list(got.items()) != list(want.items()):
            raise ConfigError(
                f"data.product {data.product}", "does not fit the schema", got=got, want=want
            )


def check_geocode(data: DataConfig, digits: int) -> None:
    """Check that several columns make a whole geocode of the last geolevel.

    Raises:
      ConfigError: Their digits do not add up to those of the geolevel.
    """
    got = digits_of(data.geocode) if isinstance(data, RecordsData | BlockTableData) else None
    if got is not None and got != digits:
        raise ConfigError(
            "data.geocode",
            "has columns whose digits do not add up to those of the last geolevel",
            got=got,
            want=digits,
        )


def check_file_type(data: DataConfig) -> None:
    """Check that the name of an input file tells a format that can be read, or is a folder's.

    Raises:
      InputError: It does not.
    """
    if isinstance(data, HistogramsData):
        check_suffix(data.path, [key for key, kind in FILE_KINDS.items() if kind == "parquet"])
    elif not isinstance(data, (Pl94Data, NmfData)):
        check_suffix(data.path)


def check_suffix(path: Place, known: Sequence[str] = tuple(FILE_KINDS)) -> None:
    """Check the ending of the name of a file; a folder may be called anything.

    Raises:
      InputError: It has another ending.
    """
    if path.suffix and path.suffix.lower() not in known and not path.is_dir():
        raise InputError(
            str(path), "has an unknown file type", want=f"a name ending in {list(known)}"
        )


def legal_codes(data: RecordsData, schema: Schema) -> dict[str, dict[str, int]]:
    """Map, per attribute, each legal value of the file to its level position.

    Raises:
      ConfigError: `columns` does not name every attribute of the schema once, or `codes` maps to
        a level that does not exist; all that are wrong are named.
    """
    wanted = [attribute.name for attribute in schema.attributes]
    problems = [
        f"data.columns: lacks the attribute {name}; expected {wanted}"
        for name in wanted
        if name not in data.columns
    ] + [
        f"data.columns.{name}: is no attribute of the schema; expected {wanted}"
        for name in data.columns
        if name not in wanted
    ]
    out: dict[str, dict[str, int]] = {}
    for attribute in schema.attributes:
        entry = data.columns.get(attribute.name)
        codes = None if entry is None or isinstance(entry, str) else entry.codes
        if codes is None:
            out[attribute.name] = dict(attribute.level_index)
            continue
        unknown = {value: level for value, level in codes.items() if level not in attribute.levels}
        problems += [
            f"data.columns.{attribute.name}.codes.{value}: names an unknown level; got {level}; "
            f"expected one of {list(attribute.levels)}"
            for value, level in unknown.items()
        ]
        out[attribute.name] = {
            value: attribute.level_index[level]
            for value, level in codes.items()
            if value not in unknown
        }
    if problems:
        where, _, rest = problems[0].partition(": ")
        raise ConfigError(where, " | ".join([rest, *problems[1:]]))
    return out


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
      ConfigError: A name is unknown, a cell has no column, or two cells have the same one.
    """
    if schema.size > MOST_COLUMNS:
        raise ConfigError(
            "data.format",
            "has a column for every cell, and the schema has too many",
            got=f"{schema.size} cells",
            want=f"at most {MOST_COLUMNS}",
            remedy="give the data as records or histograms",
        )
    if data.pattern is not None:
        columns = _from_pattern(data.pattern, schema)
    else:
        columns = _from_map(data.columns or {}, schema)
    checks = {
        name: _mask(schema, group, f"data.checks.{name}") for name, group in data.checks.items()
    }
    return Layout(columns, checks)


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
