"""The comparison of two sides: joined rows, and measures of their differences."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer

from das.arrays import FloatArray, ObjectArray
from das.errors import ConfigError, InputError
from das.metrics.accuracy import SIZE_EDGES, SIZE_LABELS, bins_of
from das.metrics.differences import Differences, measure_differences
from jobs.analysis.compare.sides import ReleasedSide, Side
from jobs.analysis.requests import CompareRequest
from jobs.analysis.results import print_rows
from jobs.pipeline.config.layouts import Layout
from jobs.pipeline.config.mistakes import refuse_unknown
from jobs.pipeline.printable import printable
from jobs.pipeline.report import text
from jobs.pipeline.report.table import EMPTY
from jobs.pipeline.tasks.progress import Reporter

CSV_START = b'"geolevel","geocode"'
"""First bytes of CSV files of the command."""
_MOST_ROWS = 5_000_000  # of joined rows, half a gigabyte of memory; default, not measured
_MOST_CHANGED = 10  # geounits of a geolevel that the page names
_PRINTED = {
    "geolevel": "geolevel",
    "table": "table",
    "geounits": "places",
    "mean": "mean",
    "mean_absolute": "mean abs.",
    "root_mean_square": "rms",
    "largest": "largest",
    "mean_absolute_percent": "mean abs. %",
    "inside": "in interval %",
}
"""Measures that a terminal of 80 columns has room for, with their titles."""
_ENDS = ("estimate", "lower", "upper")


@dataclass(frozen=True, eq=False)
class Compared:
    """A table of a geolevel in both sides.

    Attributes:
      geolevel: Name of the geolevel, or the length of its geocodes.
      table: Name of the table.
      geocodes: Geocodes that both sides have, ascending, object[G].
      ours: float64[G, m], the numbers of the first side.
      theirs: float64[G, m], the numbers of the second side.
      ends: Estimate, lower and upper end of the first side, float64[G, m] each; empty without.
      alone: Number of geocodes that the first, and that only the second side has.
    """

    geolevel: str
    table: str
    geocodes: ObjectArray
    ours: FloatArray
    theirs: FloatArray
    ends: Sequence[FloatArray]
    alone: tuple[int, int]

    def differences(self) -> Differences:
        """Measure the differences of all numbers."""
        return measure_differences(self.ours, self.theirs)

    def by_answer(self, answer: int) -> Differences:
        """Measure the differences of one number per geounit."""
        return measure_differences(self.ours[:, answer], self.theirs[:, answer])

    def inside(self) -> float | None:
        """Return the percentage of numbers of the second side in intervals of the first."""
        if not self.ends:
            return None
        _, lower, upper = self.ends
        return float(100 * np.mean((lower <= self.theirs) & (self.theirs <= upper)))

    def by_size(self) -> Iterator[tuple[str, Differences]]:
        """Yield the differences of the first number by the size of the second side's."""
        bins = bins_of(np.maximum(self.theirs[:, 0], 0).astype(np.int64), SIZE_EDGES)
        for place, label in enumerate(SIZE_LABELS):
            chosen = bins == place
            if chosen.any():
                yield label, measure_differences(self.ours[chosen, 0], self.theirs[chosen, 0])

    def most_changed(self) -> list[tuple[str, float, float]]:
        """List (geocode, ours, theirs) of the geounits whose first number differs most."""
        changes = np.abs(self.ours[:, 0] - self.theirs[:, 0])
        first = np.lexsort((self.geocodes, -changes))[:_MOST_CHANGED]
        chosen = [int(g) for g in first if changes[g] > 0]
        return [(self.geocodes[g], self.ours[g, 0], self.theirs[g, 0]) for g in chosen]

    def rows(self, variables: Sequence[str]) -> pa.Table:
        """Return a row per geounit and variable."""
        size, width = self.ours.shape
        columns = {
            "geolevel": pa.array([self.geolevel] * (size * width)),
            "geocode": pa.array(np.repeat(self.geocodes, width)),
            "variable": pa.array([*variables] * size),
            "ours": pa.array(self.ours.ravel()),
            "theirs": pa.array(self.theirs.ravel()),
            "difference": pa.array((self.ours - self.theirs).ravel()),
        }
        nothing = pa.nulls(size * width, pa.float64())
        ends = [pa.array(values.ravel()) for values in self.ends] or [nothing] * len(_ENDS)
        return pa.table(columns | dict(zip(_ENDS, ends, strict=True)))


def compare_sides(
    ours: Side, theirs: Side, layout: Layout, request: CompareRequest, reporter: Reporter
) -> list[Compared]:
    """Compare the tables of a layout that two sides have, at the geolevels that both have.

    Args:
      ours: The first side.
      theirs: The second side, the reference of percentages.
      layout: Layout of the tables.
      request: Options of the command.
      reporter: Receives progress.

    Raises:
      ConfigError: A table or geolevel is unknown, or the sides have none in common.
      InputError: No geocode is in both sides, or a file is malformed.
      OutputError: A release is damaged.
    """
    tables = _common_tables(ours, theirs, layout, request)
    geolevels = _common_geolevels(ours, theirs, request)
    pairs = [(length, table) for table in tables for length in geolevels]  # a table is read once
    made = {}
    with reporter.line("compare", layout.name) as tick:
        for done, (length, table) in enumerate(pairs):
            tick(done, len(pairs))
            level = (length, geolevels[length])
            made[length, table] = _compared(ours, theirs, layout, table, level)
        tick(len(pairs), len(pairs))
    return [made[length, table] for length in geolevels for table in tables]


def joined_rows(compared: Sequence[Compared], layout: Layout) -> pa.Table:
    """Return all compared numbers, a row each.

    Raises:
      ConfigError: There are too many.
    """
    total = sum(one.ours.size for one in compared)
    if total > _MOST_ROWS:
        raise ConfigError(
            "das compare --output",
            "would have too many rows",
            got=total,
            want=f"at most {_MOST_ROWS}",
            remedy="choose with --table and --geolevel",
        )
    return pa.concat_tables(one.rows(layout.variables(one.table)) for one in compared)


def summary(compared: Sequence[Compared]) -> list[dict[str, object]]:
    """Return the measures of each table and geolevel as a document for JSON."""
    return [
        {
            "geolevel": one.geolevel,
            "table": one.table,
            "geounits": len(one.geocodes),
            "only_ours": one.alone[0],
            "only_theirs": one.alone[1],
            **asdict(one.differences()),
            "inside": one.inside(),
            "by_size": {label: asdict(measures) for label, measures in one.by_size()},
        }
        for one in compared
    ]


def print_summary(compared: Sequence[Compared], *, as_json: bool) -> None:
    """Print the measures of each table and geolevel."""
    rows = summary(compared)
    if as_json:
        typer.echo(json.dumps({"tables": rows}))
        return
    cells = [[_cell(row[name]) for name in _PRINTED] for row in rows]
    print_rows(_PRINTED.values(), cells, "ours minus theirs")


def _cell(value: object) -> str:
    """Format a measure for a terminal."""
    if isinstance(value, int):
        return text.integer(value)
    return text.decimal(value) if isinstance(value, float) else printable(str(value or EMPTY))


def _common_tables(
    ours: Side, theirs: Side, layout: Layout, request: CompareRequest
) -> Sequence[str]:
    """Return the wanted tables, or all that both sides have."""
    held = [side.tables(layout) for side in (ours, theirs)]
    known = [name for name in layout.tables if all(name in one for one in held)]
    where = f"das compare --as {layout.name}"
    if not known:
        got = dict(zip(("ours", "theirs"), held, strict=True))
        raise ConfigError(where, "has no table that both sides have", got=got)
    refuse_unknown(f"{where} --table", "is not in both sides", request.tables, known)
    return request.tables or known


def _common_geolevels(ours: Side, theirs: Side, request: CompareRequest) -> Mapping[int, str]:
    """Return the length of geocodes and the name of each wanted geolevel that both sides have."""
    held = [side.lengths() for side in (ours, theirs)]
    common = [length for length in held[0] if length in held[1]]
    if not common:
        got = dict(zip(("ours", "theirs"), held, strict=True))
        raise InputError("das compare", "has no geocodes of equal length in both sides", got=got)
    names = {length: f"{length} digits" for length in common}
    for side in (theirs, ours):
        if isinstance(side, ReleasedSide):
            names |= {length: name for length, name in side.names().items() if length in common}
    where, what = "das compare --geolevel", "is not in both sides"
    refuse_unknown(where, what, request.geolevels, [*names.values()])
    wanted = request.geolevels or [*names.values()]
    return {length: name for length, name in names.items() if name in wanted}


def _compared(
    ours: Side, theirs: Side, layout: Layout, table: str, geolevel: tuple[int, str]
) -> Compared:
    """Join a table of both sides by geocode.

    Raises:
      InputError: No geocode is in both.
    """
    length, name = geolevel
    first, second = (side.read(layout, table, length) for side in (ours, theirs))
    codes = first["geocode"].combine_chunks()
    common = codes.filter(pc.is_in(codes, value_set=second["geocode"].combine_chunks()))
    if not len(common):
        raise InputError(
            f"das compare, geolevel {name}",
            "has no geocode that is in both sides",
            got={"ours": codes[:1].to_pylist(), "theirs": second["geocode"][:1].to_pylist()},
        )
    common = common.take(pc.sort_indices(common))
    variables = layout.variables(table)
    with_ends = f"{variables[0]}_{_ENDS[0]}" in first.column_names
    ends = [[f"{one}_{end}" for one in variables] for end in _ENDS] if with_ends else []
    return Compared(
        name,
        table,
        np.asarray(common.to_pylist(), object),
        _numbers(first, common, variables),
        _numbers(second, common, variables),
        [_numbers(first, common, columns) for columns in ends],
        (first.num_rows - len(common), second.num_rows - len(common)),
    )


def _numbers(rows: pa.Table, geocodes: pa.Array, columns: Sequence[str]) -> FloatArray:
    """Return columns of the rows with some geocodes, float64[G, m]."""
    order = pc.index_in(geocodes, value_set=rows["geocode"].combine_chunks())
    chosen = rows.select(columns).take(order)
    return np.stack([np.asarray(column, np.float64) for column in chosen.columns], axis=1)
