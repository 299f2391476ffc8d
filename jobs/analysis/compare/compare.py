"""The comparison of two sides: joined rows, and measures of their differences."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import typer

from das.arrays import FloatArray, ObjectArray
from das.errors import ConfigError, InputError
from das.metrics.accuracy import SIZE_EDGES, SIZE_LABELS, bins_of
from das.metrics.differences import Differences, measure_differences
from jobs.analysis.compare.sides import Side
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
    sides: Sequence[Side], layout: Layout, request: CompareRequest, reporter: Reporter
) -> list[Compared]:
    """Compare the tables of a layout that two sides have, at the geolevels that both have.

    Args:
      sides: Both sides; the second is the reference of percentages.
      layout: Layout of the tables.
      request: Options of the command.
      reporter: Receives progress.

    Raises:
      ConfigError: A table or geolevel is unknown, or the sides have none in common.
      InputError: No geocode is in both sides, or a file is malformed.
      OutputError: A release is damaged.
    """
    tables, geolevels = _common_tables(sides, layout, request), _common_geolevels(sides, request)
    pairs = [(table, level) for table in tables for level in geolevels]  # a table is read once
    made = []
    with reporter.line("compare", layout.name) as tick:
        for done, (table, level) in enumerate(pairs):
            tick(done, len(pairs))
            read = [side.read(layout, table, level) for side in sides]
            made.append(_compared(geolevels[level], table, layout.variables(table), *read))
        tick(len(pairs), len(pairs))
    order = [*geolevels.values()]
    return sorted(made, key=lambda one: order.index(one.geolevel))


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


def _common_tables(sides: Sequence[Side], layout: Layout, request: CompareRequest) -> Sequence[str]:
    """Return the wanted tables, or all that both sides have."""
    held = [side.tables(layout) for side in sides]
    known = [name for name in held[0] if name in held[1]]
    where = f"das compare --as {layout.name}"
    if not known:
        got = {"ours": held[0], "theirs": held[1]}
        raise ConfigError(where, "has no table that both sides have", got=got)
    refuse_unknown(f"{where} --table", "is not in both sides", request.tables, known)
    return request.tables or known


def _common_geolevels(sides: Sequence[Side], request: CompareRequest) -> Mapping[int, str]:
    """Return the length of geocodes and the name of each wanted geolevel that both sides have."""
    ours, theirs = (side.geolevels() for side in sides)
    names = {n: ours[n] or theirs[n] or f"{n} digits" for n in ours if n in theirs}
    if not names:
        got = {"ours": [*ours], "theirs": [*theirs]}
        raise InputError("das compare", "has no geocodes of equal length in both sides", got=got)
    where, what = "das compare --geolevel", "is not in both sides"
    refuse_unknown(where, what, request.geolevels, [*names.values()])
    wanted = request.geolevels or names.values()
    return {length: name for length, name in names.items() if name in wanted}


def _compared(
    geolevel: str, table: str, variables: Sequence[str], ours: pa.Table, theirs: pa.Table
) -> Compared:
    """Join the rows of both sides by geocode.

    Raises:
      InputError: No geocode is in both.
    """
    second = theirs.select(["geocode", *variables])
    second = second.rename_columns(["geocode", *(f"{one}_theirs" for one in variables)])
    joined = ours.join(second, "geocode", join_type="inner").sort_by("geocode")
    if not joined.num_rows:
        got = {
            name: rows["geocode"][:1].to_pylist()
            for name, rows in (("ours", ours), ("theirs", theirs))
        }
        where, what = f"das compare, geolevel {geolevel}", "has no geocode that is in both sides"
        raise InputError(where, what, got=got)

    def numbers(suffix: str) -> FloatArray:
        columns = [np.asarray(joined[f"{one}{suffix}"], np.float64) for one in variables]
        return np.stack(columns, axis=1)

    return Compared(
        geolevel,
        table,
        np.asarray(joined["geocode"].to_pylist(), object),
        numbers(""),
        numbers("_theirs"),
        [numbers(f"_{end}") for end in _ENDS if f"{variables[0]}_{end}" in joined.column_names],
        (ours.num_rows - joined.num_rows, theirs.num_rows - joined.num_rows),
    )
