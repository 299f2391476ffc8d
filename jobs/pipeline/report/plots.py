"""The figures of the reports: small multiples with few marks; tables hold the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from markupsafe import Markup

from jobs.pipeline.report.svg import (
    COLORS,
    WIDTH,
    Margins,
    Panels,
    bare,
    drawing,
    new_figure,
    to_svg,
)
from jobs.pipeline.report.table import EMPTY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ticker import Locator

Values = Sequence[float | None]

_LEFT, _WIDE, _HIGH = 0.5, 2.62, 1.66  # inches: numbers beside a panel; its width and height
_ROWS_WIDE = 3.5  # inches of a panel of rows with names
_POINTS = 72  # of an inch
_MARKS = {"ink": "s", "released": "o", "raw": "^", "third": "D"}
_SHAPES = {"released": ("o", "-"), "raw": ("D", (0, (3, 2))), "third": ("s", "-")}


@dataclass(frozen=True)
class Panel:
    """One small plot over named positions.

    Attributes:
      title: Heading.
      labels: Positions, left to right.
      series: Role ("released", "raw", "third") to one value per position; None leaves a gap.
    """

    title: str
    labels: Sequence[str]
    series: Mapping[str, Values]


@dataclass(frozen=True)
class DotRow:
    """One row of a figure of dots.

    Attributes:
      label: Its name.
      values: One per column; None or 0 draws no dot.
      marks: What each is compared with, a short line; None or 0 draws none.
      heading: Of the rows from here on; empty for none.
    """

    label: str
    values: Values
    marks: Values
    heading: str = ""


@dataclass(frozen=True)
class Span:
    """One row of a figure of intervals.

    Attributes:
      label: Its name.
      low: Lower end.
      value: The number within, a dot.
      high: Upper end.
      mark: What the number is compared with, a short line; None draws none.
    """

    label: str
    low: float
    value: float
    high: float
    mark: float | None = None


@dataclass(frozen=True)
class Figure:
    """A finished figure.

    Attributes:
      key: Unique on the page.
      svg: The drawing.
      caption: What it shows, in words.
      legend: (role, meaning) of every color.
    """

    template: ClassVar[str] = "figure.html.j2"
    key: str
    svg: Markup
    caption: str
    legend: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class MarkPanel:
    """One small plot of marks on two logarithmic axes.

    Attributes:
      title: Heading.
      series: Role (of COLORS) to positive pairs (across, up).
    """

    title: str
    series: Mapping[str, Sequence[tuple[float, float]]]


def mark_panels(key: str, panels: Sequence[MarkPanel], across: str, up: str) -> Markup:
    """Marks on logarithmic axes that all panels share.

    Args:
      key: Unique on the page.
      panels: At least one, with at least one mark together.
      across: Label of the horizontal axes.
      up: Label of the vertical ones.
    """
    pairs = [pair for panel in panels for series in panel.series.values() for pair in series]
    limits = [_decades([pair[side] for pair in pairs]) for side in (0, 1)]
    with drawing():
        made = Panels.new(len(panels), _ROWS_WIDE, 2.5)
        for panel in panels:
            axes = made.axes(Margins(0.62, 0.5, above=0.42))
            axes.set_title(_clipped(panel.title, 46), loc="left", fontweight="bold", pad=7)
            axes.set_xlabel(across, loc="left")
            for role, series in panel.series.items():
                axes.plot(
                    [pair[0] for pair in series],
                    [pair[1] for pair in series],
                    color=COLORS[role],
                    marker=_MARKS.get(role, "o"),
                    linestyle="",
                    markersize=4.5,
                    alpha=0.85,
                    clip_on=False,
                )
            axes.set(xscale="log", yscale="log", xlim=limits[0], ylim=limits[1])
            _decade_ticks(axes, limits[0], limits[1])
            bare(axes)
        return made.markup(key, up)


def range_rows(
    key: str, titles: Sequence[str], rows: Mapping[str, Sequence[Sequence[float]]]
) -> Markup:
    """Least to largest as a line, the middle four fifths as a bar, the median as a mark.

    Args:
      key: Unique on the page.
      titles: Headings of the columns.
      rows: Name to five positive numbers, ascending, per column.
    """
    drawn = [value for row in rows.values() for cell in row for value in cell]
    low, high = _decades(drawn)
    names = [_clipped(name, 40) for name in rows]
    margins = Margins(_beside(names), 0.3)
    with drawing():
        made = Panels.new(len(titles), max(_ROWS_WIDE, margins.left + 1.9), 0.64 + 0.27 * len(rows))
        for column, title in enumerate(titles):
            axes = made.axes(margins)
            axes.set_title(title, loc="left", fontweight="bold")
            axes.set(xscale="log", xlim=(low, high), ylim=(len(rows) - 0.5, -0.5))
            for y, row in enumerate(rows.values()):
                least, tenth, median, ninetieth, largest = row[column]
                axes.hlines(y, least, largest, color=COLORS["released"], linewidth=1.2)
                axes.hlines(y, tenth, ninetieth, color=COLORS["released"], linewidth=6.0)
                axes.plot([median], [y], marker="D", color=COLORS["raw"], markersize=5)
            ticks = _powers(low, high)
            axes.set_xticks(ticks, [f"{tick:,.10g}" for tick in ticks])
            axes.xaxis.set_minor_locator(_no_ticks())
            _names(axes, range(len(rows)), names)
        return made.markup(key)


def span_rows(key: str, title: str, rows: Sequence[Span]) -> Markup:
    """Intervals as lines with a dot, a row per name, on one linear scale.

    Args:
      key: Unique on the page.
      title: What the numbers are.
      rows: At least one. A dotted line goes down from the dot of the first, which the others are
        parts of.
    """
    drawn = [v for row in rows for v in (row.low, row.value, row.high, row.mark) if v is not None]
    low, high = min(drawn), max(drawn)
    margin = 0.03 * (high - low) or 1.0
    longest = max(min(len(row.label), 46) for row in rows)
    left, above, below, step = 0.3 + 0.065 * longest, 0.34, 0.3, 0.25
    with drawing():
        height = above + below + step * len(rows)
        figure = new_figure(height)
        size = (WIDTH - left - 0.2) / WIDTH, 1 - (above + below) / height
        axes = figure.add_axes((left / WIDTH, below / height, *size))
        axes.set_title(title, loc="left", fontweight="bold")
        axes.set(xlim=(low - margin, high + margin), ylim=(len(rows) - 0.5, -0.5))
        axes.axvline(rows[0].value, color=COLORS["muted"], linewidth=0.8, linestyle=(0, (1, 2)))
        for y, row in enumerate(rows):
            axes.hlines(y, row.low, row.high, color=COLORS["released"], linewidth=1.6)
            axes.plot([row.value], [y], marker="o", color=COLORS["released"], zorder=3)
            if row.mark is not None:
                ends = [y - 0.36, y + 0.36]
                axes.plot([row.mark, row.mark], ends, color=COLORS["raw"], zorder=4)
        axes.xaxis.set_major_formatter(_with_minus)
        axes.set_yticks(range(len(rows)), [_clipped(row.label, 46) for row in rows])
        axes.tick_params(axis="y", labelcolor=COLORS["ink"])
        bare(axes, grid="x")
        axes.spines["bottom"].set_visible(False)
        return to_svg(figure, key)


def _no_ticks() -> Locator:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def _with_minus(value: float, _: float) -> str:
    return f"{value:,.10g}".replace("-", "\N{MINUS SIGN}")


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """Limits of a logarithmic axis: a little beyond the numbers."""
    low, high = min(values), max(values)
    margin = max((high / low) ** 0.06, 1.15)
    return low / margin, high * margin


def _powers(low: float, high: float) -> list[float]:
    """Powers of ten within limits; where there are fewer than two, 1, 2 and 5 times them."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    tens = [10.0**power for power in range(first, last + 1) if low <= 10.0**power <= high]
    if len(tens) >= 2:
        return tens
    finer = [step * 10.0**power for power in range(first, last + 1) for step in (1, 2, 5)]
    found = [tick for tick in finer if low <= tick <= high]
    return found or [math.sqrt(low * high)]


def _beside(names: Sequence[str]) -> float:
    """Inches for names of rows."""
    return 0.22 + 0.066 * max(map(len, names), default=0)


def _names(axes: Axes, places: Sequence[float], names: Sequence[str]) -> None:
    """Names of rows, on an axes that has no other marks than a grid."""
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", labelcolor=COLORS["ink"])
    bare(axes, grid="x")
    axes.spines["bottom"].set_visible(False)


def _decade_ticks(axes: Axes, across: tuple[float, float], up: tuple[float, float]) -> None:
    ticks = _powers(*across)
    axes.set_xticks(ticks, [f"{tick:,.10g}" for tick in ticks])
    ticks = _powers(*up)
    axes.set_yticks(ticks, [f"{tick:,.10g}" for tick in ticks])
    axes.xaxis.set_minor_locator(_no_ticks())
    axes.yaxis.set_minor_locator(_no_ticks())


def line_panels(key: str, panels: Sequence[Panel], label: str) -> Markup:
    """Lines over named positions, one panel each, on one shared logarithmic scale with zero.

    Args:
      key: Unique on the page.
      panels: All with the same positions.
      label: Of the vertical axis.
    """
    with drawing():
        made, margins = _grid(panels)
        drawn = [v for p in panels for s in p.series.values() for v in s if v is not None]
        for panel in panels:
            axes = _titled(made, margins, panel)
            for role, values in panel.series.items():
                _line(axes, role, values)
            _log_axis(axes, drawn)
            _positions(axes, panel.labels)
        return made.markup(key, label)


def bar_panels(key: str, panels: Sequence[Panel], label: str) -> Markup:
    """Bars above and below zero over named positions, each panel on its own scale, with numbers.

    Args:
      key: Unique on the page.
      panels: All with the same positions and one series each.
      label: Of the vertical axis.
    """
    with drawing():
        made, margins = _grid(panels)
        for panel in panels:
            axes = _titled(made, replace(margins, left=0.08), panel)
            values = [v for series in panel.series.values() for v in series]
            largest = max((abs(v) for v in values if v is not None), default=0) or 1.0
            axes.set_ylim(-1.45 * largest, 1.45 * largest)
            for x, value in enumerate(values):
                _bar(axes, x, value, 0.05 * largest)
            axes.axhline(0, color=COLORS["muted"], linewidth=0.8)
            bare(axes)
            axes.grid(visible=False)
            axes.spines["bottom"].set_visible(False)
            axes.yaxis.set_major_locator(_no_ticks())
            _positions(axes, panel.labels)
        return made.markup(key, label)


def share_bars(key: str, title: Sequence[str], rows: Mapping[str, Sequence[Values]]) -> Markup:
    """Stacked bars of shares that sum to 1, one row per name, one column per title.

    Args:
      key: Unique on the page.
      title: Headings of the columns.
      rows: Name to one list of at most 8 shares per column; empty where there is none.
    """
    names = [_clipped(name, 30) for name in rows]
    margins = Margins(_beside(names), 0.3)
    with drawing():
        made = Panels.new(len(title), max(4.2, margins.left + 2.4), 0.64 + 0.31 * len(rows))
        for column, heading in enumerate(title):
            axes = made.axes(margins)
            axes.set_title(heading, loc="left", fontweight="bold")
            for y, shares in enumerate(rows.values()):
                _stack(axes, y, shares[column])
            axes.set(xlim=(0, 1), ylim=(len(rows) - 0.45, -0.55))
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"])
            axes.get_xticklabels()[-1].set_horizontalalignment("right")
            _names(axes, range(len(rows)), names)
        return made.markup(key)


def dot_rows(key: str, titles: Sequence[str], rows: Sequence[DotRow]) -> Markup:
    """Dots of percentages, a row per name and a column per title, on one logarithmic scale.

    Args:
      key: Unique on the page.
      titles: Headings of the columns.
      rows: With one value per column each.
    """
    places, y = [], 0.0
    for row in rows:
        y += 1.0 if row.heading else 0.0
        places.append(y)
        y += 1.0
    drawn = [v for row in rows for v in (*row.values, *row.marks) if v]
    low = math.floor(math.log10(min(drawn))) if drawn else 0
    high = max(math.ceil(math.log10(max(drawn))), low + 1) if drawn else 1
    names = [_clipped(row.label) for row in rows]
    margins = Margins(_beside(names), 0.3)
    with drawing():
        made = Panels.new(len(titles), max(_ROWS_WIDE, margins.left + 1.9), 0.64 + 0.2 * y)
        for column, title in enumerate(titles):
            axes = made.axes(margins)
            axes.set_title(title, loc="left", fontweight="bold")
            axes.set_xscale("log")
            axes.set(xlim=(10.0**low / 1.3, 10.0**high * 1.3), ylim=(y - 0.4, -0.6))
            for row, place in zip(rows, places, strict=True):
                _dot(axes, place, row.values[column], row.marks[column])
                if row.heading:
                    axes.annotate(
                        _clipped(row.heading),
                        (0, place - 1),
                        (_POINTS * (0.02 - margins.left), 0),
                        xycoords=("axes fraction", "data"),
                        textcoords="offset points",
                        fontweight="bold",
                        va="center",
                    )
            _percent_axis(axes, low, high)
            _names(axes, places, names)
        return made.markup(key)


def _dot(axes: Axes, y: float, value: float | None, mark: float | None) -> None:
    if mark:
        axes.plot([mark, mark], [y - 0.36, y + 0.36], color=COLORS["raw"], zorder=2)
    if value:
        if mark:
            axes.plot([mark, value], [y, y], color=COLORS["rule"], linewidth=1.2, zorder=1)
        axes.plot([value], [y], marker="o", color=COLORS["released"], zorder=3, clip_on=False)


def _percent_axis(axes: Axes, low: int, high: int) -> None:
    inner = range(low + 1, high) or range(low, high + 1)
    powers = inner[:: max(1, -(-len(inner) // 3))]  # three numbers fit
    axes.set_xticks([10.0**power for power in powers])
    axes.xaxis.set_minor_locator(_no_ticks())
    axes.xaxis.set_major_formatter(lambda v, _: f"{v:,.10g} %")


def _stack(axes: Axes, y: int, shares: Values) -> None:
    left = 0.0
    for step, share in enumerate(shares):
        if not share:
            continue
        axes.barh(y, share, 0.74, left, color=COLORS[f"step-{step}"])
        if share >= 0.055:
            color = COLORS[f"step-ink-{step}"]
            axes.text(
                left + share / 2, y, f"{100 * share:.0f}", color=color, ha="center",
                va="center_baseline", fontsize=8,
            )  # fmt: skip
        left += share


def _line(axes: Axes, role: str, values: Values) -> None:
    marker, dash = _SHAPES[role]
    axes.plot(
        range(len(values)),
        [math.nan if v is None else v for v in values],
        color=COLORS[role],
        marker=marker,
        linestyle=dash,
        markerfacecolor=COLORS["paper"] if role == "raw" else COLORS[role],
        markeredgewidth=1.2,
        zorder=3 if role == "released" else 2,
        clip_on=False,
    )


def _bar(axes: Axes, x: int, value: float | None, gap: float) -> None:
    if value is None:
        axes.text(x, gap, EMPTY, ha="center", va="bottom", fontsize=7, color=COLORS["muted"])
        return
    side = "above" if value > 0 else "below"
    axes.bar(x, value, 0.68, color=COLORS[side])
    axes.text(
        x,
        value + (gap if value >= 0 else -gap),
        _tag(value),
        ha="center",
        va="bottom" if value >= 0 else "top",
        fontsize=7,
    )


def _log_axis(axes: Axes, values: Sequence[float]) -> None:
    """Set a logarithmic scale that also shows zero; powers of ten are labelled."""
    positive = [v for v in values if v > 0] or [1.0]
    low = math.floor(math.log10(min(positive)))
    high = max(math.ceil(math.log10(max(positive))), low + 1)
    axes.set_yscale("symlog", linthresh=10.0**low, linscale=0.6)
    axes.set_ylim(0 if 0 in values else 10.0**low, 10.0**high)
    ticks = ([0.0] if 0 in values else []) + [10.0**p for p in range(low, high + 1)]
    axes.set_yticks(ticks)
    axes.yaxis.set_minor_locator(_no_ticks())
    axes.yaxis.set_major_formatter(lambda v, _: f"{v:,.10g}")
    bare(axes)


def _positions(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_xlim(-0.5, len(labels) - 0.5)
    axes.set_xticks(range(len(labels)), list(labels))
    if _turned(labels):
        for tick in axes.get_xticklabels():
            tick.set(rotation=38, ha="right", rotation_mode="anchor")


def _turned(labels: Sequence[str]) -> bool:
    return max(map(len, labels), default=0) * len(labels) > 24


def _grid(panels: Sequence[Panel]) -> tuple[Panels, Margins]:
    """Panels over named positions, with room for their longest names."""
    turned = [len(label) for panel in panels if _turned(panel.labels) for label in panel.labels]
    below = max(0.5, 0.05 * max(turned)) if turned else 0.26
    margins = Margins(_LEFT, below)
    return Panels.new(max(1, len(panels)), _WIDE, _HIGH - 0.26 + below), margins


def _titled(made: Panels, margins: Margins, panel: Panel) -> Axes:
    axes = made.axes(margins)
    axes.set_title(_clipped(panel.title), loc="left", fontweight="bold", pad=7)
    return axes


def _clipped(title: str, most: int = 34) -> str:
    return title if len(title) <= most else title[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _tag(value: float) -> str:
    """A bar's number, short enough to stand over it."""
    if value == 0:
        return "0"
    size = abs(value)
    if size < 0.005:
        return "\N{ALMOST EQUAL TO} 0"
    shown = f"{value:+,.{2 if size < 1 else 1 if size < 10 else 0}f}"
    return shown.replace("-", "\N{MINUS SIGN}")
