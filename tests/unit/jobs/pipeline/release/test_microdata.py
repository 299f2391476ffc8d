"""Microdata have one row per person of the counts, whatever the format and the size of pieces."""

from __future__ import annotations

from collections import Counter

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from jobs.pipeline.release.microdata import write_microdata
from jobs.pipeline.storage.dataset import Dataset, is_published, verify_files
from tests.builders import two_families as two

LABELS = [("f", "minor"), ("f", "adult"), ("m", "minor"), ("m", "adult")]
EXPECTED = Counter(
    {
        (code, *LABELS[cell]): count
        for code, counts in two.BLOCKS.items()
        for cell, count in enumerate(counts)
        if count
    }
)


def persons(release, name: str) -> list[tuple[str, ...]]:
    """All rows, in the order they were written."""
    dataset = Dataset.open(release.microdata / name)
    rows = []
    for part in sorted(dataset.parts, key=lambda part: part.low):
        path = dataset.path / part.file
        table = (
            pa_csv.read_csv(
                path, convert_options=pa_csv.ConvertOptions(column_types={"geocode": "string"})
            )
            if name == "csv"
            else pq.read_table(path, partitioning=None)
        )
        assert table.column_names == ["geocode", "sex", "age"]
        assert part.rows == len(table)
        rows += [tuple(row.values()) for row in table.to_pylist()]
    verify_files(dataset.path)
    return rows


@pytest.fixture
def release(tmp_path):
    layout = two.release(tmp_path)
    two.write_counts(layout, "block")
    return layout


@pytest.mark.parametrize("at_once", [1, 2, 5, 500_000])
def test_rows_are_the_counts(release, monkeypatch, at_once):
    monkeypatch.setattr("jobs.pipeline.release.microdata._PERSONS", at_once)
    write_microdata(two.plan(), release, ["parquet", "csv"], two.TASKS)
    for name in ("parquet", "csv"):
        rows = persons(release, name)
        assert Counter(rows) == EXPECTED
        assert [row[0] for row in rows] == sorted(row[0] for row in rows)


def test_without_anybody_the_columns_are_there(tmp_path):
    nobody = dict.fromkeys(two.BLOCKS, (0, 0, 0, 0))
    layout = two.release(tmp_path)
    two.write_counts(layout, "block", nobody)
    write_microdata(two.plan(), layout, ["parquet", "csv"], two.TASKS)
    assert persons(layout, "parquet") == persons(layout, "csv") == []


def test_a_complete_format_stays_and_a_missing_one_is_made(release):
    write_microdata(two.plan(), release, ["csv"], two.TASKS)
    before = (release.microdata / "csv" / "_manifest.json").read_bytes()
    assert not is_published(release.microdata / "parquet")
    write_microdata(two.plan(), release, ["parquet", "csv"], two.TASKS)
    assert Counter(persons(release, "parquet")) == EXPECTED
    assert (release.microdata / "csv" / "_manifest.json").read_bytes() == before


def test_facts_say_what_it_must_not_be_used_for(release):
    write_microdata(two.plan(), release, ["csv"], two.TASKS)
    facts = Dataset.open(release.microdata / "csv").facts
    assert (facts["configuration_digest"], facts["not_for_release"]) == ("digest", True)
