"""Figures as inline SVG; colors become CSS variables, so one serves light, dark and print.

matplotlib is imported when something is drawn: it is two fifths of what a command that prints
tables would take to start.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
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
WIDTH = 10.8  # inches; at 100 % one inch is drawn as 100 CSS pixels
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


def new_figure(height: float) -> Figure:
    """Make a figure of full width without a window system."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height))
    FigureCanvasSVG(figure)
    return figure


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
    figure.patch.set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    _prune(root)
    for element in root.iter():
        element.tag = _local(element.tag)
        attributes = {_local(name): value for name, value in element.attrib.items()}
        if element.tag == "g":  # groups are named for editing; nothing refers to them
            attributes.pop("id", None)
        element.attrib = {name: _inline(name, value, key) for name, value in attributes.items()}
        element.text, element.tail = (_bare_text(text) for text in (element.text, element.tail))
    root.attrib = {"viewBox": root.attrib["viewBox"], "aria-hidden": "true", "focusable": "false"}
    return Markup(ElementTree.tostring(root, encoding="unicode"))


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
