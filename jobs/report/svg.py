"""Figures as inline SVG; colors become CSS variables, so one serves light, dark and print."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
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
    with matplotlib.rc_context(_STYLE):  # type: ignore[arg-type]
        yield


def new_figure(height: float) -> Figure:
    """Make a figure of full width without a window system."""
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

    Args:
      figure: The figure.
      key: Unique on the page; prefixes every id.
    """
    figure.patch.set_visible(False)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    drawn = buffer.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r'<g id="[^"]*">', "<g>", drawn)
    drawn = re.sub(r"<!--.*?-->", "", drawn, flags=re.DOTALL)
    box = re.search(r'viewBox="[^"]*"', drawn)
    start = f'<svg {box.group(0) if box else ""} aria-hidden="true" focusable="false">'
    drawn = re.sub(r"<svg[^>]*>", start, drawn, count=1)
    drawn = drawn.replace("xlink:href=", "href=")
    drawn = re.sub(r' id="([^"]*)"', rf' id="{key}-\1"', drawn)
    drawn = re.sub(r'href="#', f'href="#{key}-', drawn)
    drawn = re.sub(r"url\(#", f"url(#{key}-", drawn)
    drawn = re.sub(r"font-family: [^;\"]*;?", "", drawn)
    for role, color in COLORS.items():
        drawn = drawn.replace(color, f"var(--{role})")
    return Markup(re.sub(r"\s*\n\s*", " ", drawn))
