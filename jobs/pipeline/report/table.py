"""Tables as values: what a template needs to draw a sortable, filterable, shaded table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from jobs.pipeline.language import tr
from jobs.pipeline.report import text

Show = Callable[[float], str]
"""Function that formats a number."""

EMPTY = "\N{EN DASH}"  # a cell without a value
FILTER_FROM = 9  # rows from which a table gets a filter box


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
      text: Text of the cell.
      sort: Value by which rows are sorted; None sorts last.
      heat: Strength of shading, 0 to 1.
      tilt: Strength of two-sided shading, -1 to 1.
      bar: Length of a bar behind the number, 0 to 1.
      code: Whether the text is set in a fixed-width face.
      plain: Text for terminals: names as in files and commands; empty for `text`.
    """

    text: str
    sort: float | str | None = None
    heat: float | None = None
    tilt: float | None = None
    bar: float | None = None
    code: bool = False
    plain: str = ""

    @property
    def shade(self) -> tuple[str, str]:
        """Return the CSS class and the custom properties of the shading; "" for no shading."""
        if self.heat is not None:
            return "heat", f"--heat-share: {100 * min(max(self.heat, 0), 1):.0f}%"
        if self.tilt is not None:
            side = "above" if self.tilt > 0 else "below"
            return side, f"--tilt: {100 * min(abs(self.tilt), 1):.0f}%"
        if self.bar is not None:
            return "bar", f"--bar: {100 * min(max(self.bar, 0), 1):.1f}%"
        return "", ""


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
      title: Heading.
      numeric: Right-aligned, sorted as numbers.
      hint: Second line of the heading, such as a unit.
      cells: One cell per row, if the table is made from columns.
    """

    title: str
    numeric: bool = True
    hint: str = ""
    cells: Sequence[Cell] = ()


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
      key: Identifier, unique on the page; also the id.
      caption: What the table shows, in words.
      columns: Headings; the first column names the row.
      rows: One cell per column.
      note: A line under the table.
    """

    template: ClassVar[str] = "table.html.j2"
    key: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    @classmethod
    def of(cls, key: str, caption: str, columns: Sequence[Column], note: str = "") -> Table:
        """Make a table of columns that have their cells."""
        rows = list(zip(*(column.cells for column in columns), strict=True))
        return cls(key, caption, columns, rows, note)

    @property
    def filterable(self) -> bool:
        """Return whether the table is long enough for a filter box."""
        return len(self.rows) >= FILTER_FROM


def name(value: object) -> Cell:
    """Return a text cell."""
    shown = tr(text.NOT_RECORDED) if value is None else str(value)
    return Cell(shown, shown)


def label(value: str | None) -> Cell:
    """Return a cell with a query or geolevel: in words on a page, unchanged on a terminal.

    A dash for None.
    """
    return Cell(EMPTY) if value is None else Cell(text.words(value), value, plain=value)


def code(value: object) -> Cell:
    """Return a text cell in a fixed-width font."""
    shown = tr(text.NOT_RECORDED) if value is None else str(value)
    return Cell(shown, shown, code=True)


def number(value: float | None, show: Show = text.integer) -> Cell:
    """Return a number cell; a dash for None, as for a group below the floor."""
    return Cell(EMPTY) if value is None else Cell(show(value), float(value))


def fraction(value: str | None) -> Cell:
    """Make a cell with an exact fraction, sorted by its value; a dash where there is none."""
    return Cell(EMPTY) if value is None else Cell(value, text.ratio(value), code=True)


def names(title: str, values: Iterable[object], hint: str = "") -> Column:
    """Make a column of text."""
    return Column(title, False, hint, [*map(name, values)])


def labels(title: str, values: Iterable[str | None], hint: str = "") -> Column:
    """Make a column of names of queries or geolevels; a dash for None."""
    return Column(title, False, hint, [*map(label, values)])


def codes(title: str, values: Iterable[object], hint: str = "") -> Column:
    """Make a column of text in a fixed-width face."""
    return Column(title, False, hint, [*map(code, values)])


def numbers(
    title: str, values: Iterable[float | None], show: Show = text.integer, hint: str = ""
) -> Column:
    """Make a column of numbers, formatted by `show`; a dash for None."""
    return Column(title, True, hint, [number(value, show) for value in values])


def fractions(
    title: str, values: Iterable[str | None], hint: str = "", *, numeric: bool = False
) -> Column:
    """Make a column of exact fractions; a dash for None."""
    return Column(title, numeric, hint, [*map(fraction, values)])


def bars(
    title: str,
    values: Iterable[float | None],
    show: Show = text.integer,
    hint: str = "",
    *,
    total: float | None = None,
) -> Column:
    """Make a column with bars, the longest for the largest value; a dash where there is none.

    Args:
      title: Heading.
      values: Nonnegative numbers; None shows a dash.
      show: Formats a value.
      hint: Second line of the heading.
      total: Value of a last row without a bar; None without this row.
    """
    every = list(values)
    largest = max((v for v in every if v is not None), default=0)
    shown = [
        Cell(EMPTY) if v is None else Cell(show(v), v, bar=v / largest if largest > 0 else None)
        for v in every
    ]
    return Column(title, True, hint, shown if total is None else [*shown, number(total, show)])


def gridded(titles: Iterable[str], rows: Sequence[Sequence[Cell]]) -> list[Column]:
    """Make columns of a grid of cells, as `shaded` and `tilted` make them."""
    return [Column(title, cells=[row[place] for row in rows]) for place, title in enumerate(titles)]


def shaded(
    rows: Sequence[Sequence[float | None]], show: Show, *, logarithmic: bool = False
) -> list[list[Cell]]:
    """Make the cells of a grid shaded by value; equal values have equal shades.

    Args:
      rows: Nonnegative values; None for a cell without one.
      show: Formats a value.
      logarithmic: Whether to shade by the logarithm; zeros are not shaded.
    """
    known = [v for row in rows for v in row if v is not None and (v > 0 or not logarithmic)]
    scale = math.log if logarithmic else float
    low = scale(min(known)) if known and logarithmic else 0.0
    high = scale(max(known)) if known else 0.0

    def heat(value: float) -> float | None:
        if logarithmic and value <= 0:
            return None
        return 0.06 + 0.94 * (scale(value) - low) / (high - low) if high > low else 0.5

    return [
        [Cell(EMPTY) if v is None else Cell(show(v), v, heat=heat(v)) for v in row] for row in rows
    ]


def tilted(rows: Sequence[Sequence[float | None]], show: Show = text.signed) -> list[list[Cell]]:
    """Make cells with two colors for signs, shaded by the root of the size; a dash for None."""
    largest = max((abs(v) for row in rows for v in row if v is not None), default=0.0)

    def cell(value: float | None) -> Cell:
        if value is None:
            return Cell(EMPTY)
        if value == 0 or largest == 0:
            return Cell(show(value), value)
        return Cell(show(value), value, tilt=math.copysign((abs(value) / largest) ** 0.5, value))

    return [[cell(v) for v in row] for row in rows]
