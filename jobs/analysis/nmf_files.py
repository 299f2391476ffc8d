"""Noisy measurement files in the layout of the Census Bureau: names, columns, rows by range.

FOLDER/<Geolevel>.parquet/DPQuery/[State=<state>/]*.parquet     noisy answers
FOLDER/<Geolevel>.parquet/Constraint/[State=<state>/]*.parquet  exact and bounded counts

A row is a geounit and a query: `geocode`, `query_name`, one column per attribute with the recode by
which the query counts ("*": does not count by it; "detailed": the query of all cells),
`query_shape`, `value` (all answers, in C order) and `variance` of the noise of each answer;
constraints also have `sign`. The names of folders below DPQuery and Constraint are not needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from das.arrays import FloatArray, IntArray, ObjectArray
from das.errors import InputError
from geography.lattice import Lattice

GEOLEVELS: Mapping[str, str] = {
    "US": "nation",
    "State": "state",
    "County": "county",
    "Prim": "prim",
    "Tract_Subset_Group": "tract_subset_group",
    "Tract_Subset": "tract_subset",
    "Tract": "tract",
    "Block_Group": "block_group",
    "Block": "block",
    "Supdist": "supdist",
    "Enumdist": "enumdist",
}
"""Name of a geolevel in the layout to its name in runs."""
ANSWERS, CONSTRAINTS = "DPQuery", "Constraint"
SUFFIXES = {ANSWERS: "_dpq", CONSTRAINTS: "_con"}
COST = "plb"
"""Column with the privacy loss of a row; exact if it is text."""
STATE = "state"
"""The geolevel by which files are partitioned."""
_NO_ATTRIBUTES = frozenset(
    ("geocode", "query_name", "sign", "query_shape", "value", "variance", "plb", "State", "County")
)


@dataclass(frozen=True, eq=False)
class LevelFiles:
    """Files of one geolevel.

    Attributes:
      geolevel: Name of the geolevel in runs.
      answers: Files of noisy answers; none if every geounit has one child, so that none is
        measured.
      constraints: Files of exact and bounded counts.
    """

    geolevel: str
    answers: tuple[Path, ...]
    constraints: tuple[Path, ...]


@dataclass(frozen=True, eq=False)
class Index:
    """Rows of one file, without their values.

    Attributes:
      codes: bytes[U], distinct geocodes, unordered.
      geounit: int32[R], index into `codes` of each row.
      names: Names of the queries, without suffix.
      query: int32[R], index into `names` of each row.
      variances: float64[R], variance of the noise of one answer of each row.
      is_single: Whether the file stores variances in 4 bytes, not 8.
      costs: Distinct privacy losses as text; one empty text if the file has no exact ones.
      cost: int32[R], index into `costs` of each row.
      shapes: int64[R, d], shape of the query of each row; None if the file has no shapes.
    """

    codes: npt.NDArray[np.bytes_]
    geounit: npt.NDArray[np.int32]
    names: tuple[str, ...]
    query: npt.NDArray[np.int32]
    variances: FloatArray
    is_single: bool
    costs: tuple[str, ...]
    cost: npt.NDArray[np.int32]
    shapes: IntArray | None


def find_levels(folder: Path) -> list[LevelFiles]:
    """List the files of each geolevel of a folder, unordered.

    Raises:
      InputError: The folder has no noisy answers, or a geolevel unknown to the layout.
    """
    levels = []
    for path in sorted(folder.glob("*.parquet")) if folder.is_dir() else ():
        name = path.name.removesuffix(".parquet")
        if name not in GEOLEVELS:
            want = f"one of {[*GEOLEVELS]}"
            raise InputError(str(path), "belongs to an unknown geolevel", got=name, want=want)
        parts = {kind: _parquet_below(path / kind) for kind in SUFFIXES}
        if not any(parts.values()):
            raise InputError(str(path), f"has no Parquet files in {ANSWERS} or {CONSTRAINTS}")
        levels.append(LevelFiles(GEOLEVELS[name], parts[ANSWERS], parts[CONSTRAINTS]))
    if not any(level.answers for level in levels):
        raise InputError(
            str(folder),
            "holds no noisy measurement files",
            want=f"a folder with <Geolevel>.parquet/{ANSWERS}, such as US_Person_PL_PROD",
        )
    return levels


def _parquet_below(folder: Path) -> tuple[Path, ...]:
    """List data files; marker files of Spark begin with _ or a dot, or end in .crc."""
    return tuple(
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name[0] not in "_." and not path.name.endswith(".crc")
    )


def attribute_columns(path: Path) -> list[str]:
    """List the columns of a file of answers that describe attributes, in order.

    Raises:
      InputError: The file cannot be read.
    """
    names: list[str] = _schema(path).names
    return [name for name in names if name not in _NO_ATTRIBUTES]


def read_index(path: Path, kind: str) -> Index:
    """Read all columns of a file except its values.

    Raises:
      InputError: The file cannot be read, lacks a column, or a value is missing or of another type.
    """
    schema = _schema(path)
    wanted = ["geocode", "query_name", "variance"]
    missing = [name for name in (*wanted, "value") if name not in schema.names]
    if missing:
        raise InputError(str(path), "lacks columns", got=schema.names, want=missing)
    if "query_shape" in schema.names:
        wanted.append("query_shape")
    if COST in schema.names and pa.types.is_string(schema.field(COST).type):
        wanted.append(COST)
    table = _read(path, wanted)
    codes, geounit = _encoded(path, table, "geocode")
    try:
        geocodes = np.array(codes, np.str_).astype(np.bytes_)
    except UnicodeEncodeError:
        raise InputError(str(path), "has a geocode that is not ASCII text") from None
    names, query = _encoded(path, table, "query_name")
    costs: tuple[str, ...] = ("",)
    cost = np.zeros_like(query)
    if COST in wanted and kind == ANSWERS:
        costs, cost = _encoded(path, table, COST)
    shapes = None
    if "query_shape" in wanted:
        shapes = matrix_of(table["query_shape"], str(path), "has shapes of several lengths")
    suffix = SUFFIXES[kind]
    for name in names:
        if not name.endswith(suffix):
            want = f"a name ending in {suffix}"
            raise InputError(
                str(path), "has a query that does not belong in this folder", got=name, want=want
            )
    variances = table.column("variance")
    if not pa.types.is_floating(variances.type) or (variances.null_count and kind == ANSWERS):
        raise InputError(str(path), "has variances that are no numbers", got=variances.type)
    return Index(
        geocodes,
        geounit,
        tuple(name.removesuffix(suffix).strip() for name in names),
        query,
        np.asarray(pc.fill_null(variances, 0.0).to_numpy(), np.float64),
        variances.type.bit_width <= 32,
        costs,
        cost,
        shapes,
    )


def read_values(
    files: Sequence[Path], low: str = "", high: str = "\x7f", *, kind: str = ANSWERS
) -> pa.Table:
    """Read rows with low <= geocode <= high as geocode, query (no suffix), value (int64 list).

    Raises:
      InputError: A file cannot be read, or a value is missing or no integer.
    """
    tables = []
    for path in files:
        table = _read(path, ["geocode", "query_name", "value"], (low, high))
        try:
            values = pc.cast(table.column("value"), pa.list_(pa.int64()))
        except pa.ArrowException:
            what, got = "has values that are no lists of integers", table["value"].type
            raise InputError(str(path), what, got=got) from None
        if values.null_count or (len(values) and pc.list_flatten(values).null_count):
            raise InputError(str(path), "lacks values")
        names, which = _encoded(path, table, "query_name")
        short = pa.array([n.removesuffix(SUFFIXES[kind]).strip() for n in names], pa.string())
        codes = pc.cast(table.column("geocode"), pa.string())
        tables.append(pa.table({"geocode": codes, "query": short.take(which), "value": values}))
    if not tables:
        empty = pa.schema([("geocode", pa.string()), ("query", pa.string())])
        return empty.append(pa.field("value", pa.list_(pa.int64()))).empty_table()
    return pa.concat_tables(tables)


def digest_of(folder: Path, levels: Sequence[LevelFiles]) -> tuple[int, str]:
    """Return the number of files, and the SHA-256 of the list of their digests and names."""
    lines = []
    files = (path for level in levels for path in (*level.answers, *level.constraints))
    for path in sorted(files):
        with path.open("rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
        lines.append(f"{digest}  {path.relative_to(folder).as_posix()}\n")
    return len(lines), hashlib.sha256("".join(lines).encode()).hexdigest()


def chain_starts(lattice: Lattice, index: int) -> IntArray:
    """Return int64[G], for each geounit the first geolevel of the chain that ends in it."""
    starts = np.full(len(lattice.codes[index]), index)
    geounit = np.arange(len(starts))
    going = lattice.is_only_child[index].copy()
    for level in range(index, 0, -1):
        geounit[going] = lattice.parents[level][geounit[going]]
        starts[going] = level - 1
        going[going] = lattice.is_only_child[level - 1][geounit[going]]
    return starts


def chain_ends(lattice: Lattice, index: int) -> tuple[ObjectArray, IntArray]:
    """Return geocodes and geolevels of the geounits in which the chains of a geolevel end."""
    at = lattice.chain_end[index].copy()
    codes = lattice.codes[index].astype(np.str_).astype(object)
    geounit = np.arange(len(codes))
    for level in range(index, len(lattice.codes) - 1):
        going = at > level
        geounit[going] = lattice.first_child[level][geounit[going]]
        codes[going] = lattice.codes[level + 1][geounit[going]].astype(np.str_)
    return codes, at


def _schema(path: Path) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(str(path), "cannot be read as Parquet", got=error) from None


def _read(path: Path, columns: list[str], between: tuple[str, str] | None = None) -> pa.Table:
    try:
        source = ds.dataset(path, format="parquet", partitioning=None)
        within = None
        if between is not None:
            geocode = ds.field("geocode")
            # No cast if possible: row groups are skipped by their statistics.
            if not pa.types.is_string(source.schema.field("geocode").type):
                geocode = geocode.cast(pa.string())
            within = (geocode >= between[0]) & (geocode <= between[1])
        return source.to_table(columns=columns, filter=within, use_threads=False)
    except (OSError, pa.ArrowException, KeyError) as error:
        raise InputError(str(path), "cannot be read", got=error) from None


def _encoded(
    path: Path, table: pa.Table, name: str
) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """Return the distinct texts of a column, and the index of each row into them.

    Args:
      path: File of the table, for errors.
      table: The table.
      name: Name of the column.

    Raises:
      InputError: The column is not text, or a row has no value.
    """
    try:
        column = pc.cast(table.column(name), pa.string()).combine_chunks()
    except pa.ArrowException:
        raise InputError(str(path), f"has a column {name} that is not text") from None
    if column.null_count:
        raise InputError(str(path), f"has rows without {name}", got=f"{column.null_count} such")
    encoded = column.dictionary_encode()
    return tuple(encoded.dictionary.to_pylist()), np.asarray(encoded.indices, np.int32)


def matrix_of(column: pa.ChunkedArray, where: str, what: str, width: int = 0) -> IntArray:
    """Convert a column of lists of whole numbers to int64[R, n].

    Args:
      column: The lists.
      where: Location for the error.
      what: Error for lists of a wrong length.
      width: Required length; 0: any common length.

    Raises:
      InputError: A list has a wrong length, or lacks a number.
    """
    flat, sizes = pc.list_flatten(column), pc.unique(pc.list_value_length(column)).to_pylist()
    wanted = width or (sizes[0] if sizes else 1)
    odd = [size for size in sizes if size is None or size != wanted]
    if odd or flat.null_count:
        raise InputError(where, what, got=odd if width else sizes, want=width or None)
    return np.asarray(flat.to_numpy(), np.int64).reshape(len(column), wanted)
