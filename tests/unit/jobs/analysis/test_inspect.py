"""What a run folder says of itself and of one geounit, complete or not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from das.errors import InputError, OutputError
from jobs.analysis.inspect import inspect_geounit, inspect_run, print_inspection
from jobs.pipeline.storage.layout import ReleaseLayout
from tests.builders import two_families as two

PLAN = two.plan(("total", "sex * age"))


def describe(layout: ReleaseLayout, geolevel: str) -> None:
    """Say the labels of the measured queries, as measuring does."""
    path = layout.measurements(geolevel) / "_manifest.json"
    document = json.loads(path.read_text())
    document["facts"]["queries"] = [
        {"query": name, "labels": [str(label) for label in two.query(name).labels()]}
        for name in document["facts"]["queries"]
    ]
    path.write_text(json.dumps(document))


@pytest.fixture
def layout(tmp_path: Path) -> ReleaseLayout:
    """Measured without noise at the counties, counted at all geolevels but the blocks."""
    (tmp_path / "run.json").write_text(json.dumps({"run": "identity"}))
    layout = two.release(tmp_path)
    two.write_noisy(layout, PLAN, "county")
    describe(layout, "county")
    two.write_counts(layout, "county")
    return layout


def test_a_folder_lists_what_is_published(layout, tmp_path) -> None:
    document = inspect_run(tmp_path)
    assert (document["run"], document["finalized"]) == ("identity", False)
    rows = {one["dataset"]: one["rows"] for one in document["datasets"]}
    assert rows["release/geography/level=block"] == len(two.BLOCKS)
    assert rows["release/products/persons/measurements/level=county"] == 2 * 2
    assert all(one["bytes"] > 0 and one["files"] == 1 for one in document["datasets"])


def test_a_folder_of_nothing_is_refused(tmp_path) -> None:
    with pytest.raises(OutputError, match=r"give the output\.directory of a run"):
        inspect_run(tmp_path)


def test_a_geounit_has_its_answers_by_label_and_its_protected_total(layout, tmp_path) -> None:
    document = inspect_geounit(tmp_path, "11", None)
    assert (document["geolevel"], document["parent"], document["notes"][-1:]) == (
        "county",
        "1",
        ["no estimates at county"],
    )
    answers = {row["query"]: row["answers"] for row in document["measurements"]}
    assert answers["total"] == {"total": 6}
    detailed = answers[two.query("sex * age").name]
    assert sorted(detailed.values()) == sorted(two.at("county")["11"].tolist())
    assert document["protected_total"] == 6


def test_one_query_may_be_asked_with_its_terms_in_any_order(layout, tmp_path) -> None:
    (row,) = inspect_geounit(tmp_path, "12", "total")["measurements"]
    assert row["answers"] == {"total": 7}
    name = two.query("sex * age").name
    turned = " * ".join(reversed(name.split(" * ")))
    (row,) = inspect_geounit(tmp_path, "12", turned)["measurements"]
    assert row["query"] == name


@pytest.mark.parametrize(
    ("geocode", "query", "note"),
    [
        ("111", None, "block is not measured yet"),
        ("11", "age", "age is not measured at county; measured there: total"),
    ],
)
def test_what_there_is_not_is_said(layout, tmp_path, geocode, query, note) -> None:
    document = inspect_geounit(tmp_path, geocode, query)
    assert document["measurements"] == []
    assert any(said.startswith(note) for said in document["notes"])


def test_only_children_point_to_their_parents(tmp_path) -> None:
    blocks = {"111": (1, 0, 0, 0), "121": (0, 1, 0, 0), "122": (1, 1, 1, 1)}
    layout = two.release(tmp_path, blocks)
    two.write_noisy(layout, PLAN, "block", blocks)
    describe(layout, "block")
    notes = inspect_geounit(tmp_path, "111", None)["notes"]
    assert notes[0] == "an only child: its measurement is that of 11"


def test_an_unknown_geounit_is_an_error(layout, tmp_path) -> None:
    with pytest.raises(InputError, match="has no such geounit; got 999"):
        inspect_geounit(tmp_path, "999", None)


def test_an_inspection_is_printed_as_json_or_as_tables(layout, tmp_path, capsys) -> None:
    document = inspect_geounit(tmp_path, "11", "total")
    print_inspection(dict(document), as_json=True)
    assert json.loads(capsys.readouterr().out) == document
    print_inspection(dict(document), as_json=False)
    text = capsys.readouterr().out
    assert "no estimates at county" in text
    assert "geolevel: county" in text
    assert "total: 6" in text
