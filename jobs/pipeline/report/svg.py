"""Figures as inline SVG; colors become CSS variables, so one serves light, dark and print.

matplotlib is imported when something is drawn: it is two fifths of what a command that prints
tables would take to start.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# A color that is drawn -> the CSS variable it becomes.
COLORS = {
    "ink": "#0a0001",
    "muted": "#0a0002",
    "rule": "#0a0003",
    "paper": "#0a0004",
    "released": "#0a0005",
    "raw": "#0a0006",
    "third": "#0a0007",
    "above": "#0a0008",
    "below": "#0a0009",
    **{f"step-{i}": f"#0a00{i + 16:02x}" for i in range(8)},
    **{f"step-ink-{i}": f"#0a00{i + 32:02x}" for i in range(8)},
}
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
WIDTH = 10.8  # inches; at 100 % one inch is drawn as 100 CSS pixels
_POINTS = 72  # of an inch, the unit of what matplotlib writes
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
    """The style in which figures are made and saved."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):  # type: ignore[arg-type]
        yield


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """Make a figure, of full width by default, without a window system."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasSVG(figure)
    return figure


@dataclass(frozen=True)
class Margins:
    """Room around the axes of a panel, in inches.

    Attributes:
      left: For names of rows, or numbers.
      below: For names of positions.
      above: For the title.
      right: For what ends at the edge.
    """

    left: float
    below: float
    above: float = 0.34
    right: float = 0.12


@dataclass(frozen=True)
class Panels:
    """A figure of panels of one size, each with all of its labels, that a page lays out itself.

    Attributes:
      figure: Has one below the other.
      count: How many.
      width: Of each, in inches.
      height: Of each, in inches.
    """

    figure: Figure
    count: int
    width: float
    height: float

    @classmethod
    def new(cls, count: int, width: float, height: float) -> Panels:
        """Panels without axes."""
        return cls(new_figure(count * height, width), count, width, height)

    def axes(self, margins: Margins) -> Axes:
        """Axes of the next panel."""
        whole = self.count * self.height
        top = (self.count - len(self.figure.axes)) * self.height
        return self.figure.add_axes(
            (
                margins.left / self.width,
                (top - self.height + margins.below) / whole,
                (self.width - margins.left - margins.right) / self.width,
                (self.height - margins.below - margins.above) / whole,
            )
        )

    def markup(self, key: str, label: str = "") -> Markup:
        """One element with an SVG for each panel.

        Args:
          key: Unique on the page; prefixes every id.
          label: Of the axis that all panels share; stands above them.
        """
        root = _tree(self.figure)
        groups = [one for one in root.iter() if re.fullmatch(r"axes_\d+", one.get("id", ""))]
        shared = [one for one in root if _local(one.tag) == "defs"]
        least = f"--panel: {_PANEL_PIXELS * self.width:.0f}px"
        out = ElementTree.Element("div", {"class": "panels", "style": least})
        if label:
            ElementTree.SubElement(out, "p", {"class": "axis"}).text = label
        size = _POINTS * self.width, _POINTS * self.height
        for index, group in enumerate(groups):
            svg = ElementTree.SubElement(out, "svg")
            svg.extend([*([] if index else shared), group])
            _make_inline(svg, key)
            svg.attrib = _attributes(f"0 {index * size[1]:.6g} {size[0]:.6g} {size[1]:.6g}")
        return Markup(ElementTree.tostring(out, encoding="unicode"))


def bare(axes: Axes, *, grid: str = "y") -> None:
    """Strip an axes to what carries information."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.patch.set_visible(False)
    axes.grid(visible=True, axis="y" if grid == "y" else "x")


def to_svg(figure: Figure, key: str) -> Markup:
    """Turn a figure into an element that may stand in a page with others.

    matplotlib writes a whole document: with a name space, metadata, a style sheet, and ids that are
    the same in every figure. An inline element needs its own ids, and takes fonts and colors from
    the page, which has two palettes. The tree is changed and not the text, so that a label that
    looks like an attribute stays what it is.

    Args:
      figure: The figure.
      key: Unique on the page; prefixes every id.
    """
    root = _tree(figure)
    box = root.attrib["viewBox"]
    _make_inline(root, key)
    root.attrib = _attributes(box)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _tree(figure: Figure) -> ElementTree.Element:
    """What matplotlib writes, without what a page has no use for."""
    figure.patch.set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    # A label may hold characters that no XML may hold, escaped or not.
    text = _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", buffer.getvalue().decode())
    root = ElementTree.fromstring(text)
    _prune(root)
    return root


def _attributes(box: str) -> dict[str, str]:
    return {"viewBox": box, "aria-hidden": "true", "focusable": "false"}


def _make_inline(root: ElementTree.Element, key: str) -> None:
    """Give every element of a tree ids, fonts and colors as a page needs them."""
    for element in root.iter():
        element.tag = _local(element.tag)
        attributes = {_local(name): value for name, value in element.attrib.items()}
        if element.tag == "g":  # groups are named for editing; nothing refers to them
            attributes.pop("id", None)
        element.attrib = {name: _inline(name, value, key) for name, value in attributes.items()}
        element.text, element.tail = (_bare_text(text) for text in (element.text, element.tail))


def _prune(element: ElementTree.Element) -> None:
    """Remove metadata, style sheets, and what is empty without them."""
    for child in list(element):
        _prune(child)
        empty = _local(child.tag) == "defs" and not len(child)
        if _local(child.tag) in ("metadata", "style") or empty:
            element.remove(child)


def _local(name: str) -> str:
    """A name without its name space: an inline element takes that of the page."""
    return name.rpartition("}")[2]


def _inline(name: str, value: str, key: str) -> str:
    """An attribute as a page with other figures and its own fonts and palettes needs it."""
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


def _bare_text(text: str | None) -> str | None:
    """Text of a label; none where there are only line breaks between elements."""
    return text if text and text.strip() else None
