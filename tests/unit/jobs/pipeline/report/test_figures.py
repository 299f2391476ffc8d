"""Figures: inline elements with ids of their own, colors of the page, and every mark in its place."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from jobs.pipeline.report.plots import (
    COLORS,
    DotRow,
    Panel,
    Panels,
    Span,
    bare,
    dot_rows,
    drawing,
    line_panels,
    span_rows,
)

HOSTILE = '<b id="x" style="font-family: y;"> #0a0001 url(#z) & "'


def panels(title="total", values=(1.0, 10.0, None)):
    return [Panel(title, ["state", "county", "block"], {"raw": values, "released": (0.5, 0, 2.0)})]


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(element.itertext()) for element in root.iter("text")]


DRAWN = {
    "lines": lambda key: line_panels(key, panels(), "error"),
    "dots": lambda key: dot_rows(key, ["block"], [DotRow("women", [5.0], [0.5], "sex")]),
    "spans": lambda key: span_rows(key, "age", [Span("all", 1.0, 2.0, 4.0, 3.0)]),
}


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
def test_a_figure_is_an_inline_element_with_its_own_ids(draw):
    one, other = draw("one"), draw("other")
    assert one.startswith(("<svg ", '<div class="panels"'))
    assert not re.search(r"xmlns|metadata|<style|font-family|://|<!--", one)
    ids = [set(re.findall(r' id="([^"]*)"', svg)) for svg in (one, other)]
    assert ids[0] & ids[1] == set()
    for svg, own in zip((one, other), ids, strict=True):
        used = set(re.findall(r'href="#([^"]*)"', svg)) | set(re.findall(r"url\(#([^)]*)\)", svg))
        assert used <= own


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
def test_colors_are_those_of_the_page(draw):
    svg = draw("one")
    assert not any(color in svg for color in COLORS.values())
    roles = set(re.findall(r"var\(--([\w-]+)\)", svg))
    assert roles
    assert roles <= set(COLORS)


def test_a_dot_is_where_its_number_is():
    """On a logarithmic scale, no dot for no error or no number, and a line for what it is beside."""
    rows = [
        DotRow("a", [1.0, None], [0.1, 0.1], "first"),
        DotRow("b", [10.0, 0.0], [0.1, None]),
        DotRow("c", [100.0, 1.0], [0.1, 0.1], "second"),
    ]
    svg = dot_rows("key", ["county", "block"], rows)
    shown = texts(svg)
    assert [text for text in shown if text in "abc"] == 2 * ["a", "b", "c"]
    assert {"first", "second", "county", "block"} <= set(shown)
    dots = re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*released', svg)
    x, y = zip(*[tuple(map(float, dot)) for dot in dots], strict=True)
    assert len(dots) == 4  # three of the panel of counties, then one of blocks
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=1e-3)  # equal ratios
    assert y[1] - y[0] == pytest.approx((y[2] - y[1]) / 2, abs=1e-3)  # a heading comes between


def test_an_interval_is_where_its_numbers_are():
    """On a linear scale: dots and marks, whatever is negative, and the line of the first."""
    rows = [Span("a", -1.0, 0.0, 1.0), Span("b", 1.0, 2.0, 4.0, 3.0), Span("c", 0.0, 6.0, 9.0)]
    svg = span_rows("key", "change", rows)
    assert [text for text in texts(svg) if text in ("a", "b", "c", "change")] == [
        "a", "b", "c", "change"
    ]  # fmt: skip
    dots = re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*released', svg)
    x, y = zip(*[tuple(map(float, dot)) for dot in dots], strict=True)
    assert (x[2] - x[1]) / (x[1] - x[0]) == pytest.approx(2, abs=1e-3)
    assert y[2] - y[1] == pytest.approx(y[1] - y[0], abs=1e-3)
    unit = (x[1] - x[0]) / 2
    lines = re.findall(
        r'd="M ([\d.]+) ([\d.]+)\s+L ([\d.]+) ([\d.]+)\s+"[^>]*(released|raw|muted)', svg
    )
    spans = [
        [(float(v) - x[0]) / unit for v in (one[0], one[2])]
        for one in lines
        if one[4] == "released"
    ]
    assert [v for span in spans for v in span] == pytest.approx([-1, 1, 1, 4, 0, 9], abs=1e-3)
    marks = [(float(one[0]) - x[0]) / unit for one in lines if one[4] == "raw"]
    assert marks == pytest.approx([3], abs=1e-3)
    assert min(float(one[0]) for one in lines if one[4] == "muted") == pytest.approx(x[0])


def test_no_dots_are_a_figure_too():
    assert dot_rows("key", ["block"], [DotRow("a", [0.0], [None])]).count("<svg ") == 1


def test_labels_stay_as_they_are_whatever_they_look_like():
    with drawing():
        made = Panels(4, 1, 0.1, 0.1)
        bare(made.add(HOSTILE))
        svg = made.markup("key")
    assert HOSTILE in texts(svg)


def test_panels_name_their_positions_and_titles():
    shown = texts(line_panels("key", panels(title="sex"), "error in persons"))
    assert {"sex", "state", "county", "block"} <= set(shown)
    drawn = line_panels("key", panels(title="sex") * 3, "error in persons")
    assert drawn.count('<p class="axis">error in persons</p>') == 1
    assert drawn.count("<svg ") == texts(drawn).count("sex") == texts(drawn).count("county") == 3


def test_each_panel_shows_its_own_drawing():
    drawn = line_panels("key", panels() * 3, "error")
    boxes = [
        [float(number) for number in box.split()] for box in re.findall(r'viewBox="([^"]*)"', drawn)
    ]
    places = [
        [float(y) for y in re.findall(r'<use [^>]*y="([\d.]+)"', svg)]
        for svg in drawn.split("<svg ")[1:]
    ]
    assert len(boxes) == len(places) == 3
    for box, ys in zip(boxes, places, strict=True):
        assert ys
        assert all(box[1] < y < box[1] + box[3] for y in ys)


def test_a_gap_leaves_out_a_mark():
    def marks(values):
        svg = line_panels("key", panels(values=values), "error")
        return len(re.findall(r"<use ", svg))

    assert marks((1.0, 10.0, None)) == marks((1.0, 10.0, 5.0)) - 1
