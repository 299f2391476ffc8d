"""Files of tables have names that people can read, and no two tables one name."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.pipeline.config.models.products import ProductOutputConfig
from jobs.pipeline.config.models.run import GeounitsFile
from jobs.pipeline.config.product import file_stems


@pytest.mark.parametrize(
    ("query", "stem"),
    [
        ("total", "total"),
        ("sex * age", "sex-by-age"),
        ("prefix(age)", "prefix-age"),
        ("votingage * hispanic where sex=female", "votingage-by-hispanic-where-sex-is-female"),
        ("Größe", "Gr-e"),
    ],
)
def test_names_say_what_the_table_is(query: str, stem: str) -> None:
    assert file_stems([query]) == [stem]


@pytest.mark.parametrize(
    "queries", [["sex", "SEX"], ["h1"], ["aux"], ["age where sex=a b", "age where sex=a-b"], ["é"]]
)
def test_names_that_could_be_taken_for_others_get_a_digest(queries: list[str]) -> None:
    for stem in file_stems(queries):
        assert re.search(r"(^|-)[0-9a-f]{8}$", stem)


@given(st.lists(st.text(min_size=1), unique=True, max_size=8))
def test_no_two_tables_have_one_name_on_any_file_system(queries: list[str]) -> None:
    stems = file_stems(queries)
    assert len({stem.casefold() for stem in [*stems, "h1"]}) == len(queries) + 1
    for stem in stems:
        assert re.fullmatch(r"[A-Za-z0-9_.+-]+", stem)
        assert not stem.startswith(".")
        assert len(stem) < 100


def test_what_run_files_could_not_say_changes_no_digest_of_older_ones() -> None:
    output = ProductOutputConfig.model_validate({"tables": ["total"]})
    assert output.model_dump(mode="json") == {
        "microdata": ["parquet", "csv"],
        "tables": ["total"],
        "h1": None,
    }
    geounits = GeounitsFile.model_validate({"path": "/blocks.csv"})
    assert geounits.model_dump(mode="json") == {"path": "/blocks.csv", "geocode": "geocode"}


def test_tables_of_some_geolevels_are_part_of_the_settings() -> None:
    some = {"query": "sex", "geolevels": ["tract"]}
    output = ProductOutputConfig.model_validate({"tables": [some], "table_formats": ["xlsx"]})
    document = output.model_dump(mode="json")
    assert document["tables"] == [some]
    assert document["table_formats"] == ["xlsx"]
    assert ProductOutputConfig.model_validate(document) == output
