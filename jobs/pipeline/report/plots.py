"""The figures of the reports: small multiples with few marks, inline; tables hold the numbers.

Colors become CSS variables, so one figure serves light, dark and print. matplotlib is imported when
something is drawn: it is two fifths of what a command that prints tables would take to start.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal
from xml.etree import ElementTree

from markupsafe import Markup

from jobs.pipeline.language import with_separators

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

Values = Sequence[float | None]

_LEFT, _WIDE, _HIGH = 0.5, 2.62, 1.66  # inches: numbers beside a panel; its width and height
_RIGHT = 0.12  # inches right of a panel, for numbers that end at the edge
_TITLE = 27  # characters of a bold title above a panel of this width
_ABOVE = 0.34  # room for the title of a panel, in inches
_MOST_TICKS = 5  # labels on a vertical axis; they are 0.8 inches together
_ROWS_WIDE = 3.5  # inches of a panel of rows with names
_SHAPES = {"released": ("o", "-"), "raw": ("D", (0, (3, 2)))}


@dataclass(frozen=True)
class Panel:
    """One small plot over named positions.

    Attributes:
      title: Heading.
      labels: Positions, left to right.
      series: Role of a color, such as "released" or "raw" -> one value per position; None leaves a
        gap.
    """

    title: str
    labels: Sequence[str]
    series: Mapping[str, Values]


@dataclass(frozen=True)
class DotRow:
    """One row of a figure of dots.

    Attributes:
      label: Name of the row.
      values: One value per column, drawn as a dot; None or 0 draws no dot.
      marks: Reference value per column, drawn as a short line; None or 0 draws no line.
      heading: Heading above this row and the rows that follow; empty for none.
    """

    label: str
    values: Values
    marks: Values
    heading: str = ""


@dataclass(frozen=True)
class Span:
    """One row of a figure of intervals.

    Attributes:
      label: Name of the row.
      low: Lower end of the interval.
      value: Number within the interval, drawn as a dot.
      high: Upper end of the interval.
      mark: Reference value, drawn as a short line; None draws no line.
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
      key: Identifier, unique on the page.
      svg: The drawing.
      caption: What the figure shows, in words.
      legend: (role, meaning) of every color.
    """

    template: ClassVar[str] = "figure.html.j2"
    key: str
    svg: Markup
    caption: str
    legend: Sequence[tuple[str, str]] = ()


def span_rows(key: str, title: str, rows: Sequence[Span]) -> Markup:
    """Draw one interval per row, as a line with a dot, on a linear scale.

    Args:
      key: Identifier, unique on the page.
      title: Name of the numbers.
      rows: At least one row. A dotted line goes down from the dot of the first row, of which the
        other rows are parts.
    """
    drawn = [v for row in rows for v in (row.low, row.value, row.high, row.mark) if v is not None]
    low, high = min(drawn), max(drawn)
    margin = 0.03 * (high - low) or 1.0
    names = [_clipped(row.label, 46) for row in rows]
    with drawing():
        made = _row_panels([title], names, range(len(rows)), 0.25 * len(rows), width=_WHOLE)
        [axes] = made.axes
        axes.set(xlim=(low - margin, high + margin), ylim=(len(rows) - 0.5, -0.5))
        axes.axvline(rows[0].value, color=COLORS["muted"], linewidth=0.8, linestyle=(0, (1, 2)))
        for y, row in enumerate(rows):
            axes.hlines(y, row.low, row.high, color=COLORS["released"], linewidth=1.6)
            axes.plot([row.value], [y], marker="o", color=COLORS["released"], zorder=3)
            if row.mark is not None:
                ends = [y - 0.36, y + 0.36]
                axes.plot([row.mark, row.mark], ends, color=COLORS["raw"], zorder=4)
        axes.xaxis.set_major_formatter(lambda v, _: _tick(v))
        return made.markup(key)


def _row_panels(
    titles: Sequence[str],
    names: Sequence[str],
    places: Sequence[float],
    height: float,
    width: float = 0.0,
) -> Panels:
    """Make a panel for each column, with a grid and the names of rows only.

    Args:
      titles: Headings of the columns.
      names: Names of the rows, as shown.
      places: Position of each row, from the top.
      height: Height of all rows together, in inches.
      width: Width of a panel, in inches; 0 fits it to the longest name.
    """
    left = 0.22 + 0.066 * max(map(len, names), default=0)
    made = Panels(width or max(_ROWS_WIDE, left + 1.9), 0.64 + height, left, below=0.3)
    for title in titles:
        axes = made.add(title)
        axes.set_yticks(places, names)
        axes.tick_params(axis="y", labelcolor=COLORS["ink"])
        bare(axes, grid="x")
        axes.spines["bottom"].set_visible(False)
    return made


def _tick(value: float) -> str:
    """Format a number beside an axis."""
    return with_separators(f"{value:,.10g}").replace("-", "\N{MINUS SIGN}")


def _ticks(axis: Axis, ticks: Sequence[float]) -> None:
    """Label some numbers of a logarithmic axis, and no others."""
    from matplotlib.ticker import NullLocator

    axis.set_ticks(ticks, [*map(_tick, ticks)])
    axis.set_minor_locator(NullLocator())


def line_panels(key: str, panels: Sequence[Panel], label: str) -> Markup:
    """Draw panels of lines over named positions, on a shared logarithmic scale with zero.

    Args:
      key: Identifier, unique on the page.
      panels: Panels with equal positions.
      label: Label of the vertical axis.
    """
    turned = [len(label) for panel in panels if _turned(panel.labels) for label in panel.labels]
    below = max(0.5, 0.06 * max(turned)) if turned else 0.26
    drawn = [v for p in panels for s in p.series.values() for v in s if v is not None]
    with drawing():
        made = Panels(_WIDE, _HIGH - 0.26 + below, _LEFT, below)
        for panel in panels:
            axes = made.add(_clipped(panel.title, _TITLE), pad=7)
            for role, values in panel.series.items():
                _line(axes, role, values)
            _log_axis(axes, drawn)
            axes.set_xlim(-0.5, len(panel.labels) - 0.5)
            axes.set_xticks(range(len(panel.labels)), list(panel.labels))
            if _turned(panel.labels):
                for tick in axes.get_xticklabels():
                    tick.set(rotation=38, ha="right", rotation_mode="anchor")
        return made.markup(key, label)


def dot_rows(key: str, titles: Sequence[str], rows: Sequence[DotRow]) -> Markup:
    """Draw percentages as dots, in rows and columns, on a shared logarithmic scale.

    Args:
      key: Identifier, unique on the page.
      titles: Headings of the columns.
      rows: Rows with one value per column.
    """
    places, y = [], 0.0
    for row in rows:
        places.append(y + (1.0 if row.heading else 0.0))
        y = places[-1] + 1.0
    drawn = [v for row in rows for v in (*row.values, *row.marks) if v]
    low = math.floor(math.log10(min(drawn))) if drawn else 0
    high = max(math.ceil(math.log10(max(drawn))), low + 1) if drawn else 1
    names = [_clipped(row.label) for row in rows]
    with drawing():
        made = _row_panels(titles, names, places, 0.2 * y)
        for column, axes in enumerate(made.axes):
            axes.set_xscale("log")
            axes.set(xlim=(10.0**low / 1.3, 10.0**high * 1.3), ylim=(y - 0.4, -0.6))
            for row, place in zip(rows, places, strict=True):
                _dot(axes, place, row.values[column], row.marks[column])
                if row.heading:
                    axes.annotate(
                        _clipped(row.heading),
                        (0.02 / made.width, place - 1),
                        xycoords=("figure fraction", "data"),
                        fontweight="bold",
                        va="center",
                    )
            inner = range(low + 1, high)
            inner = inner if len(inner) > 1 else range(low, high + 1)
            powers = inner[:: max(1, -(-len(inner) // 3))]  # three numbers fit
            _ticks(axes.xaxis, [10.0**power for power in powers])
            axes.xaxis.set_major_formatter(lambda v, _: f"{_tick(v)} %")
        return made.markup(key)


def _dot(axes: Axes, y: float, value: float | None, mark: float | None) -> None:
    if mark:
        axes.plot([mark, mark], [y - 0.36, y + 0.36], color=COLORS["raw"], zorder=2)
    if value:
        if mark:
            axes.plot([mark, value], [y, y], color=COLORS["rule"], linewidth=1.2, zorder=1)
        axes.plot([value], [y], marker="o", color=COLORS["released"], zorder=3, clip_on=False)


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


def _log_axis(axes: Axes, values: Sequence[float]) -> None:
    """Set a logarithmic scale that also shows zero; 1, 2, 5 are labelled, or powers of ten."""
    ticks = _labelled([v for v in values if v > 0] or [1.0], (1, 2, 5))
    if len(ticks) > _MOST_TICKS:
        ticks = _labelled([ticks[0], ticks[-1]], (1,))
    axes.set_yscale("symlog", linthresh=ticks[0], linscale=0.6)
    axes.set_ylim(0 if 0 in values else ticks[0], ticks[-1])
    _ticks(axes.yaxis, [*[0.0] * (0 in values), *ticks])
    bare(axes)


def _labelled(values: Sequence[float], digits: Sequence[int]) -> list[float]:
    """Return two or more numbers of one nonzero digit, which contain the values.

    >>> _labelled([3.8, 33], (1, 2, 5)), _labelled([2, 2], (1,))
    ([2.0, 5.0, 10.0, 20.0, 50.0], [1.0, 10.0])
    """
    powers = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 2)
    steps = [float(f"{digit}e{power}") for power in powers for digit in digits]
    low = max(step for step in steps if step <= min(values))
    high = min(step for step in steps if step >= max(values) and step > low)
    return [step for step in steps if low <= step <= high]


def _turned(labels: Sequence[str]) -> bool:
    return max(map(len, labels), default=0) * len(labels) > 24


def _clipped(title: str, most: int = 34) -> str:
    return title if len(title) <= most else title[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


# --- drawings as elements of a page ---------------------------------------------------------------

# A color that is drawn -> the CSS variable it becomes.
COLORS = {
    "ink": "#0a0001",
    "muted": "#0a0002",
    "rule": "#0a0003",
    "paper": "#0a0004",
    "released": "#0a0005",
    "raw": "#0a0006",
}
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_WHOLE = 10.8  # inches of a page; at 100 % one inch is drawn as 100 CSS pixels
_PANEL_PIXELS = 94  # of an inch of a panel at least: below, a row holds one panel less
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "report",
    "text.parse_math": False,
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.edgecolor": COLORS["muted"],
    "axes.labelcolor": COLORS["muted"],
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.color": COLORS["muted"],
    "ytick.color": COLORS["muted"],
    "xtick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "text.color": COLORS["ink"],
    "grid.color": COLORS["rule"],
    "grid.linewidth": 0.6,
    "lines.solid_capstyle": "round",
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Set the style in which figures are drawn and saved."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):  # type: ignore[arg-type]
        yield


@dataclass(frozen=True)
class Panels:
    """Panels of equal size with separate labels; the page decides their layout.

    Attributes:
      width: Width of a panel, in inches.
      height: Height of a panel, in inches.
      left: Room for names of rows, or numbers, in inches.
      below: Room for names of positions.
      axes: Axes of each panel, on separate figures.
    """

    width: float
    height: float
    left: float
    below: float
    axes: list[Axes] = field(default_factory=list)

    def add(self, title: str, pad: float | None = None) -> Axes:
        """Add a panel with a title, `pad` points above the axes; by default the usual distance."""
        from matplotlib.figure import Figure as Drawing

        axes = Drawing(figsize=(self.width, self.height)).subplots()
        axes.figure.subplots_adjust(
            left=self.left / self.width,
            right=1 - _RIGHT / self.width,
            bottom=self.below / self.height,
            top=1 - _ABOVE / self.height,
        )
        axes.set_title(title, loc="left", fontweight="bold", pad=pad)
        self.axes.append(axes)
        return axes

    def markup(self, key: str, label: str = "") -> Markup:
        """Return one element with an SVG per panel, for a page with other figures.

        matplotlib writes a whole document: with a name space, metadata, a style sheet, and ids that
        are the same in every figure. An inline element needs its own ids, and takes fonts and
        colors from the page, which has two palettes. The XML tree is changed, not its text, so that
        a label that looks like an attribute stays unchanged.

        Args:
          key: Identifier, unique on the page; prefixes every id.
          label: Label of the axis that all panels share, shown above the panels; empty for none.
        """
        least = f"--panel: {_PANEL_PIXELS * self.width:.0f}px"
        out = ElementTree.Element("div", {"class": "panels", "style": least})
        if label:
            ElementTree.SubElement(out, "p", {"class": "axis"}).text = label
        for index, axes in enumerate(self.axes):
            buffer = io.BytesIO()
            canvas = axes.figure.canvas
            canvas.print_figure(buffer, format="svg", facecolor="none", metadata={"Date": None})
            # A label may hold characters that no XML may hold, escaped or not.
            text = _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", buffer.getvalue().decode())
            svg = ElementTree.fromstring(text)
            box = svg.attrib["viewBox"]
            _prune(svg)
            _make_inline(svg, f"{key}-{index}")
            svg.attrib = {"viewBox": box, "aria-hidden": "true", "focusable": "false"}
            out.append(svg)
        return Markup(ElementTree.tostring(out, encoding="unicode"))


def bare(axes: Axes, *, grid: Literal["x", "y"] = "y") -> None:
    """Remove decoration from axes; `grid` is the axis whose grid lines stay."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.patch.set_visible(False)
    axes.grid(visible=True, axis=grid)


def _make_inline(root: ElementTree.Element, key: str) -> None:
    """Give every element of a tree ids, fonts and colors as a page needs them."""
    for element in root.iter():
        element.tag = _local(element.tag)
        attributes = {_local(name): value for name, value in element.attrib.items()}
        if element.tag == "g":  # groups are named for editing; nothing refers to them
            attributes.pop("id", None)
        element.attrib = {name: _inline(name, value, key) for name, value in attributes.items()}
        texts = (element.text, element.tail)  # only line breaks stand between elements
        element.text, element.tail = (text if text and text.strip() else None for text in texts)


def _prune(element: ElementTree.Element) -> None:
    """Remove metadata and style sheets, and elements that become empty."""
    for child in list(element):
        _prune(child)
        empty = _local(child.tag) == "defs" and not len(child)
        if _local(child.tag) in ("metadata", "style") or empty:
            element.remove(child)


def _local(name: str) -> str:
    """Return a name without its XML namespace: an inline element takes that of the page."""
    return name.rpartition("}")[2]


def _inline(name: str, value: str, key: str) -> str:
    """Adapt an attribute to a page with other figures, fonts and palettes."""
    if name == "id":
        return f"{key}-{value}"
    if name == "href":
        return value.replace("#", f"#{key}-")
    value = value.replace("url(#", f"url(#{key}-")
    if name == "style":
        value = re.sub(r"font-family: [^;]*;?", "", value)
    for role, color in COLORS.items():
        value = value.replace(color, f"var(--{role})")
    return value
