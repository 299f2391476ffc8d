"""For whom the release is worse: every number of the evaluation where it belongs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.pipeline.documents.evaluation import Evaluation
from jobs.pipeline.report import text
from jobs.pipeline.report.groups import expected_section, groups_section
from jobs.pipeline.report.page import Prose
from jobs.pipeline.report.plots import Figure
from jobs.pipeline.report.public import write_public_report
from jobs.pipeline.report.table import EMPTY, Table
from tests.unit.jobs.pipeline.report.report_samples import (
    LEVELS,
    evaluation,
    evaluation_document,
    made,
    manifest,
)


def changed(change=lambda row: None) -> Evaluation:
    document = evaluation_document()
    for row in document["parity"]:
        change(row)
    return made(Evaluation, document)


def tables(section) -> dict:
    return {b.key: b for b in section.blocks if isinstance(b, Table)}


def texts(table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def test_groups_by_geolevels():
    rows = texts(tables(groups_section(evaluation(), "persons"))["groups-0"])
    assert [row[0] for row in rows] == ["everybody", "f", "m"]
    assert rows[0][2:] == ["0 %", "2.50 %", "25.00 %"]
    assert rows[1][2:] == ["0 %", "5.00 %", "50.00 %"]
    of_block = next(r for r in evaluation().parity if r.geolevel == "block" and r.table == "total")
    persons = [group.persons for group in of_block.by_group]
    assert [row[1] for row in rows] == [text.integer(n) for n in (sum(persons), *persons)]


def test_the_lead_names_the_group_that_is_furthest_from_everybody():
    lead = groups_section(evaluation(), "persons").lead
    assert "At block, the sum of the errors of f (sex) is 50.0 %" in lead
    assert "2.00 times what it is for everybody, 25.0 %" in lead

    def other(row):
        row["by_group"][1]["to_everybody"] = 9.0

    lead = groups_section(changed(other), "persons").lead
    assert "the errors of m (sex)" in lead

    def unknown(row):
        for group in row["by_group"]:
            group["to_everybody"] = None

    assert "the sum of the errors" not in groups_section(changed(unknown), "persons").lead


def test_every_table_in_every_group_has_its_row():
    found = tables(groups_section(evaluation(), "units"))
    parity = texts(found["parity"])
    assert {(row[1], row[2]) for row in parity} == {
        (table, level) for table in ("total", "age group") for level in LEVELS
    }
    assert all(row[4] == "f" and row[8] == "2" for row in parity)
    groups = texts(found["group-table"])
    assert len(groups) == 2 * len(parity)
    assert groups[0][5] == "50.00 %"
    first = max(
        (g for r in evaluation().parity for g in r.by_group), key=lambda group: group.relative
    )
    assert groups[0][4] == text.integer(first.persons)
    assert groups[0][10] == text.signed_integer(first.released - first.persons)


def test_what_is_published_exactly_is_called_so():
    def exact(row):
        row["exact"] = row["geolevel"] == "nation"

    rows = texts(tables(groups_section(changed(exact), "persons"))["parity"])
    assert {row[2]: row[7] for row in rows} == {
        "nation": "exact",
        "county": "2.50",
        "block": "2.50",
    }


def test_a_group_below_the_floor_has_a_dash():
    def small(row):
        row["by_group"][1] |= {"relative": None, "to_everybody": None}

    section = groups_section(changed(small), "persons")
    rows = texts(tables(section)["groups-0"])
    assert rows[2][2:] == [EMPTY] * 3
    assert not [b for b in section.blocks if isinstance(b, Figure)]  # one group is no picture
    assert texts(tables(section)["group-table"])[-1][5] == EMPTY


def test_many_groups_are_cut_and_it_is_said():
    def many(row):
        row["by_group"] = row["by_group"] * 60

    table = tables(groups_section(changed(many), "persons"))["group-table"]
    assert len(table.rows) == 300
    assert "300 largest relative errors of 720 rows" in table.note


@pytest.mark.parametrize("records", ["persons", "units"])
def test_an_evaluation_without_groups_has_no_tables(records):
    section = groups_section(replace(evaluation(), parity=()), records)
    assert not [b for b in section.blocks if isinstance(b, Table | Figure | Prose)]


EXPECTED = {
    "groups": "sex",
    "labels": ["f", "m"],
    "released": [400, 5],
    "floor": 10,
    "levels": [
        {
            "geolevel": level,
            "l1": [4.0 * spread, 3.0 * spread],
            "everybody": 0.005 * spread,
            "k": 1,
            "parity": 0.015 * spread,
            "parity_mean": 0.015 * spread,
            "worst": "f",
        }
        for level, spread in zip(LEVELS, (0, 1, 10), strict=True)
    ],
}


def test_the_public_section_is_made_of_the_manifest():
    section = expected_section(manifest(expected_groups=[EXPECTED]))
    rows = texts(tables(section)["groups-0"])
    assert rows == [
        ["everybody", "405", "0 %", "0.50 %", "5.00 %"],
        ["f", "400", "0 %", "1.00 %", "10.00 %"],
        ["m", "5", EMPTY, EMPTY, EMPTY],
    ]
    parity = texts(tables(section)["parity"])
    assert [row[1] for row in parity] == [*LEVELS]
    assert parity[2][2:] == ["5.00 %", "f", "10.00 %", "1", "0.15", "0.15"]
    assert "nothing here was compared with confidential data" in section.lead


def test_the_public_report_has_it_where_estimates_were_made(tmp_path):
    path = tmp_path / "report.html"
    write_public_report(manifest(expected_groups=[EXPECTED]), path)
    assert "For whom errors are larger" in path.read_text()
    write_public_report(manifest(), path)
    assert "For whom errors are larger" not in path.read_text()
