from __future__ import annotations

import math
from dataclasses import replace

import pytest

from jobs.pipeline.documents.manifest import BudgetRow
from jobs.pipeline.report import text
from jobs.pipeline.report.budget import Spending, budget_section, share_table
from jobs.pipeline.report.page import Row, raised
from jobs.pipeline.report.run import run_section
from jobs.pipeline.report.table import shaded, tilted
from tests.unit.jobs.pipeline.report.report_samples import manifest, summary


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (1.005e-7, "1.0 \N{MULTIPLICATION SIGN} 10⁻⁷"),
     (0.0036, "0.0036"), (3.14159, "3.14"), (-2.5, "\N{MINUS SIGN}2.50"), (123.45, "123.5"), (54321.9, "54,322"), (math.inf, "inf")],
)  # fmt: skip
def test_decimal(value, shown):
    assert text.decimal(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 %"), (1, "100 %"), (0.9999, "> 99.9 %"), (0.0001, "< 0.1 %"), (0.1234, "12.3 %")],
)
def test_percent_says_all_or_none_only_if_it_is(value, shown):
    assert text.percent(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0142, "14.2 ms"), (9.95, "9.9 s"), (59.4, "59 s"), (185, "3 min 05 s"), (7860, "2 h 11 min")],
)  # fmt: skip
def test_duration(value, shown):
    assert text.duration(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [("1/10000000000", "10⁻¹⁰"), ("1/3", "1/3")],
)
def test_small_fraction(value, shown):
    assert text.small(value) == shown


def test_a_privacy_loss_is_never_printed_below_its_value():
    assert text.upward(17.1435507) == "17.144"


@pytest.mark.parametrize(
    ("value", "shown"),
    [("2026-01-02T03:04:05+01:00", "2026-01-02 02:04 UTC"), ("soon", "soon")],
)  # fmt: skip
def test_moment(value, shown):
    assert text.moment(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(999, "999 bytes"), (1500, "1.5 kB"), (3e14, "300.0 TB")]
)
def test_size(value, shown):
    assert text.size(value) == shown


def test_superscripts_become_markup_and_the_rest_is_escaped():
    assert raised("<b>10⁻¹⁰") == "&lt;b&gt;10<sup>\N{MINUS SIGN}10</sup>"


def test_equal_values_have_equal_shades_and_larger_ones_darker():
    (a, b), (c, d) = shaded([[1, 10], [10, None]], text.decimal, logarithmic=True)
    assert a.heat < b.heat == c.heat == pytest.approx(1)
    assert (d.heat, d.sort) == (None, None)
    assert shaded([[0.0, 5.0]], text.decimal, logarithmic=True)[0][0].heat is None


def test_two_sided_shades_have_the_sign_of_the_value():
    ((a, b, c, d),) = tilted([[-4.0, 1.0, 0.0, None]])
    assert (a.tilt, b.tilt, c.tilt, d.tilt) == (-1, 0.5, None, None)
    assert (a.shade[0], b.shade[0]) == ("below", "above")


def test_shares_of_rho_add_up():
    table = budget_section(Spending.of(manifest())).blocks[0]
    last = table.rows[-1]
    assert last[0].text == "all queries"
    assert sum(cell.sort for cell in last[1:]) == pytest.approx(1)


def tables_of(section):
    """Tables of a section, those beside each other too, by key."""
    blocks = [b for one in section.blocks for b in (one.blocks if isinstance(one, Row) else [one])]
    return {block.key: block for block in blocks}


def test_internal_reports_say_what_stages_cost():
    section = run_section(manifest(), summary())
    tables = tables_of(section)
    measured, solved, every = tables["stages"].rows
    assert [cell.text for cell in measured][-4:] == ["700 MB", "", "", ""]
    assert [cell.text for cell in solved][-4:] == ["1.5 GB", "210 MB", "25,181", "105.4"]
    assert [cell.text for cell in every][:5] == [
        "all",
        "5 min 00 s",
        "100 %",
        "9 min 10 s",
        "0.1528",
    ]
    assert [cell.text for cell in every][-4:] == ["1.5 GB", "210 MB", "", ""]
    assert "0.15 core hours" in section.lead


def test_public_reports_say_nothing_of_costs():
    section = run_section(manifest())
    assert list(tables_of(section)) == ["environment"]
    assert "core hours" not in section.lead


def test_shares_of_geolevels_are_those_of_one_path():
    """Chains of only children are many, and cost what their geolevels cost together."""

    def row(geolevel: str, chain_end: str, cost: str, geounits: int) -> BudgetRow:
        return BudgetRow(
            geolevel=geolevel, chain_end=chain_end, query="total", share="1", level_share=cost,
            cost=cost, charged="alone", mechanism="discrete_gaussian", parameter="1", variance=1.0,
            answers=1, geounits=geounits,
        )  # fmt: skip

    rows = [row("nation", "state", "1/4", 1), row("tract", "block", "3/4", 20), row("tract", "tract", "1/2", 6), row("block", "block", "1/4", 90)]  # fmt: skip
    privacy = replace(manifest().privacy, total="1")
    table = share_table(Spending(privacy, rows, ("nation", "state", "tract", "block"), "persons"))
    assert [column.title for column in table.columns] == [
        "Query",
        "nation to state",
        "tract",
        "block",
    ]
    assert [cell.text for cell in table.rows[0][1:]] == ["25.00 %", "50.00 %", "25.00 %"]
