"""Summaries on a terminal: the tables of the pages, names as commands take them, none obeyed."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from rich.console import Console

from das.definition import Definition
from das.privacy.budget import Budget
from das.queries.sensitivity import Neighbors
from geography.lattice import Lattice
from jobs.design.planning.errors import subtree_classes
from jobs.design.planning.page import write_plan_report
from jobs.design.planning.summary import NoiseGuarantee, PlanSummary, budget_summary, plan_summary
from jobs.design.planning.tables import plan_tables
from jobs.design.planning.terminal import print_account, print_summaries
from jobs.pipeline.config.load import load_run
from jobs.pipeline.report.console import terminal_table
from jobs.pipeline.report.table import Cell, Column, Table, label
from jobs.pipeline.storage.account import BudgetLimit, FailedCheck, Reservation
from tests.builders import toy

BUDGET = Budget(Fraction(1, 2), Fraction(1, 10**10), Neighbors.BOUNDED)


@pytest.fixture
def product(tmp_path: Path):
    toy.write_records(tmp_path)
    return load_run(toy.configuration(tmp_path, output__tables=["total", "sex * age"])).last


@pytest.fixture
def validated(product) -> PlanSummary:
    return budget_summary(product, "public list")


@pytest.fixture
def planned(product) -> PlanSummary:
    lattice = Lattice.from_leaves(product.plan.spine, toy.blocks())
    return plan_summary(product, "public list", lattice, subtree_classes(lattice))


def printed(capsys, *summaries: PlanSummary, **options) -> str:
    named = {str(index): summary for index, summary in enumerate(summaries)}
    print_summaries(named, **({"as_json": False} | options))
    return capsys.readouterr().out


def test_names_are_shown_as_commands_take_them(capsys, planned) -> None:
    lines = printed(capsys, planned).splitlines()
    assert lines[0].split() == ["toy", "schema", "toy,", "6", "cells"]
    assert any(line.split()[:1] == ["detailed"] for line in lines)
    assert "1/16" in printed(capsys, planned)
    assert "\N{MULTIPLICATION SIGN}" not in printed(capsys, planned)


def test_a_plan_has_more_tables_than_a_budget(validated, planned) -> None:
    keys = [table.key for table in plan_tables(validated)]
    assert keys == ["statements", "attacks", "budget-table"]
    assert [table.key for table in plan_tables(planned)] == [
        "statements",
        "attacks",
        "shape",
        "budget-table",
        "predicted-table",
    ]


def test_geounits_are_told_where_they_were_counted(validated, planned) -> None:
    def titles(summary: PlanSummary) -> list[str]:
        tables = {table.key: table for table in plan_tables(summary)}
        return [column.title for column in tables["budget-table"].columns]

    assert titles(planned) == [*titles(validated), "Geounits"]


def test_terminal_and_page_show_the_same_cells(capsys, planned, tmp_path) -> None:
    page = tmp_path / "plan.html"
    write_plan_report(planned, page)
    html = page.read_text("utf-8")
    for table in plan_tables(planned):
        assert f'id="{table.key}-caption"' in html
        for row in table.rows:
            assert all(cell.text in html for cell in row)


def test_what_else_there_is_to_say_stands_in_lines(capsys, validated) -> None:
    summary = replace(
        validated,
        formulas=("=1+1", "-2", "@a", "+b", "=c", "=d"),
        not_predicted="too many cells",
        absent=("data /x",),
        by_noise=NoiseGuarantee(epsilon=9.87654, delta="1/100", attacks=validated.privacy.attacks),
        geounits_source="data",
    )
    text = " ".join(printed(capsys, summary).split())
    assert "epsilon 9.877 at delta 1/100 from the losses of the noise" in text
    assert "'=1+1', '-2', '@a', '+b', '=c' and 1 more" in text
    assert "no predicted errors: too many cells" in text
    assert "does not exist yet: data /x" in text
    assert "which block exists comes from the data" in text
    assert "exact: total at state" in text


def test_json_has_the_last_product_and_the_others_by_name(capsys, validated) -> None:
    other = replace(validated, name="other")
    document = json.loads(printed(capsys, other, validated, as_json=True))
    assert (document["name"], document["0"]["name"]) == ("toy", "other")
    assert not {"geography", "predicted", "absent"} & document.keys()


def test_names_of_others_are_shown_and_not_obeyed(capsys, validated) -> None:
    text = printed(capsys, replace(validated, name="a\x1b[31m[red]b"))
    assert "a\\x1b[31m[red]b" in text
    assert "\x1b" not in text
    table = Table("t", "x\x1b", [Column("n\x07")], [[label("c\x1b")]], "note\x1b")
    out = io.StringIO()
    Console(file=out, width=60).print(terminal_table(table))
    assert not {"\x1b", "\x07"} & set(out.getvalue())
    assert "c\\x1b" in out.getvalue()


def test_headings_have_their_hints_and_plain_names_come_first() -> None:
    table = Table("t", "T", [Column("ρ".upper(), hint="exact")], [[Cell("a × b", plain="a * b")]])  # noqa: RUF001
    out = io.StringIO()
    Console(file=out, width=60).print(terminal_table(table))
    assert "exact" in out.getvalue()
    assert "a * b" in out.getvalue()


def test_an_account_is_its_grants_their_sum_and_the_failed_checks(capsys, tmp_path) -> None:
    reservations = [
        Reservation(name, "1", BUDGET, "run", "/folder", BUDGET.total)
        for name in ("persons", "units")
    ]
    limits = [BudgetLimit(Fraction(n), Definition.ZCDP, "the board", f"20{n}") for n in (3, 4)]
    failed = [FailedCheck("persons", "1", "run", "/folder", "99001", "2026-01-02")]
    print_account(tmp_path, reservations, limits, failed, as_json=False)
    text = " ".join(capsys.readouterr().out.split())
    assert "limit: rho 3 (203, the board) limit: rho 4 (204, the board) left: rho 3" in text
    assert "2 grants" in text
    assert "all together" in text
    assert "1 check of the data failed" in text
    assert "99001" in text
    print_account(tmp_path, reservations, limits, failed, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert [grant["product"] for grant in document["grants"]] == ["persons", "units"]
    assert document["composed"][0]["total"] == "1"
    assert [limit["total"] for limit in document["limits"]] == ["3", "4"]
    assert document["failed_checks"][0]["geounit"] == "99001"
