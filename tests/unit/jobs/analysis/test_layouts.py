"""Layouts of conf/export against the documented columns, and against what published files hold."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from das.errors import ConfigError
from das.histograms import Histograms
from das.queries.query import Query
from jobs.analysis.layouts import table_queries
from jobs.pipeline.config.layouts import read_layout
from jobs.pipeline.config.models.data import Pl94Data
from jobs.pipeline.config.schema import load_schema
from tests.checkout import ROOT
from tests.unit.jobs.pipeline.confidential.read.reading import DATA, read

SCHEMAS = ROOT / "conf" / "schema"
PL94 = load_schema(SCHEMAS / "pl94.yaml")
E2E = DATA / "ri_2018_e2e.pl.zip"
DOCUMENTED = json.loads((DATA / "layouts_2020.json").read_text())


def test_columns_are_the_documented_ones() -> None:
    found = {
        file.name: layout.columns(file)
        for layout in map(read_layout, ("pl94", "ppmf"))
        for file in layout.files
    }
    assert found == DOCUMENTED
    assert [len(columns) for columns in DOCUMENTED.values()] == [97, 149, 152, 15, 11, 8]


def published(segment: str) -> dict[str, list[str]]:
    """Lines of the blocks of the published files of 2018, by logical record number."""
    with zipfile.ZipFile(E2E) as archive:
        lines = archive.read(f"ri{segment}2018_2020Style.pl").decode("latin-1").splitlines()
    return {row[7 if segment == "geo" else 4]: row for row in (line.split("|") for line in lines)}


def histograms(product: str, schema_name: str, codes: list[str]) -> Histograms:
    schema = load_schema(SCHEMAS / f"{schema_name}.yaml")
    config = Pl94Data(input_format="pl94", path=E2E, product=product)
    entries = read(config, schema, 15)
    rows = {code: row for row, code in enumerate(codes)}
    owners, cells, counts = np.array([(rows[c], cell, n) for (c, cell), n in entries.items()]).T
    return Histograms.from_entries(schema.size, len(codes), owners, cells, counts)


@pytest.mark.parametrize(
    ("segment", "tables"),
    [("00001", ["P001", "P002"]), ("00002", ["P003", "P004"]), ("00002", ["H001"])],
)
def test_variables_of_published_blocks(segment: str, tables: list[str]) -> None:
    """Read cells of published files, and compute their variables again by the layout."""
    layout, geo, lines = read_layout("pl94"), published("geo"), published(segment)
    blocks = {number: row[9] for number, row in geo.items() if row[2] == "750"}
    is_units = tables == ["H001"]
    schema = "housing_units" if is_units else "pl94_tables"
    found = histograms("housing_units" if is_units else "persons", schema, [*blocks.values()])
    answers = []
    for table in tables:
        queries = table_queries(layout, table, load_schema(SCHEMAS / f"{schema}.yaml"))
        assert queries is not None
        answers += [query.answer(found) for query in queries]
    names = DOCUMENTED[f"{{state}}{segment}2020"]
    places = [place for place, name in enumerate(names) if name[:4] in tables]
    want = np.array([[int(lines[number][place]) for place in places] for number in blocks])
    np.testing.assert_array_equal(np.concatenate(answers, axis=1), want)
    assert len(blocks) == 569


def test_table_p5_counts_types_of_group_quarters() -> None:
    """The published segment 3: subtotals of institutions and others, then their types."""
    (query,) = table_queries(read_layout("pl94"), "P005", PL94) or ()
    people = np.arange(8) + 1  # household 1, correctional 2, ..., other noninstitutional 8
    cells = np.arange(8) * 252
    found = Histograms.from_entries(PL94.size, 1, np.zeros(8, np.int64), cells, people)
    assert query.answer(found)[0].tolist() == [35, 14, 2, 3, 4, 5, 21, 6, 7, 8]


@pytest.mark.parametrize("name", ["units", "housing_units", "h1", "h1_units"])
def test_h1_of_every_schema_of_units(name: str) -> None:
    schema = load_schema(SCHEMAS / f"{name}.yaml")
    (query,) = table_queries(read_layout("pl94"), "H001", schema) or ()
    counts = {"occupied": 5, "vacant": 2}
    labels = schema.attributes[0].levels
    entries = [(labels.index(level), n) for level, n in counts.items()]
    cells, numbers = np.array(entries).T
    found = Histograms.from_entries(schema.size, 1, np.zeros(2, np.int64), cells, numbers)
    assert query.answer(found)[0].tolist() == [7, 5, 2]


def test_codes_of_microdata_are_those_of_the_2020_writer() -> None:
    """As dhcp_to_mdf2020.py recodes: positions of levels, races from 01, households as type 0."""
    layout = read_layout("ppmf")
    levels = {attribute.name: attribute.levels for attribute in PL94.attributes}
    numbered = {
        "gq_type": {level: str(n) for n, level in enumerate(levels["hhgq"])},
        "voting_age": {level: str(n) for n, level in enumerate(levels["votingage"], 1)},
        "hispanic": {level: str(n) for n, level in enumerate(levels["hispanic"], 1)},
        "race": {level: f"{n:02d}" for n, level in enumerate(levels["cenrace"], 1)},
    }
    assert {name: layout.codes[name] for name in numbered} == numbered
    assert {*layout.codes["person_record"].values()} == {"3", "5"}
    assert layout.codes["status"] == {"occupied": "1", "vacant": "2", "group_quarters": "0"}


@cache
def redistricting() -> list[Sequence[Query]]:
    """The queries of tables P1 and P2."""
    schema, layout = load_schema(SCHEMAS / "pl94_tables.yaml"), read_layout("pl94")
    return [table_queries(layout, name, schema) or () for name in ("P001", "P002")]


@given(st.lists(st.integers(0, 20), min_size=252, max_size=252))
def test_variables_add_up(counts: list[int]) -> None:
    """Every subtotal of P1 is the sum of its parts, and P2 splits it by Hispanic origin."""
    found = Histograms.from_entries(252, 1, np.zeros(252, int), np.arange(252), np.array(counts))
    p1, p2 = (
        np.concatenate([query.answer(found)[0] for query in queries]) for queries in redistricting()
    )
    cells = np.array(counts).reshape(2, 2, 63)
    assert p1[0] == p2[0] == sum(counts)
    assert p2[1] == cells[:, 1].sum()
    np.testing.assert_array_equal(p1[2:8], cells.sum((0, 1))[:6])
    np.testing.assert_array_equal(p2[4:10], cells[:, 0].sum(0)[:6])
    assert p1[0] == p1[1] + p1[8]


Change = Callable[[dict], None]


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Change], Path]:
    def write(change: Change) -> Path:
        document = yaml.safe_load((ROOT / "conf" / "export" / "pl94.yaml").read_text())
        change(document)
        path = tmp_path / "own.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    return write


def test_a_layout_may_be_a_file(written: Callable[[Change], Path]) -> None:
    path = written(lambda document: document.update(name="own", zip="own.zip"))
    assert read_layout(str(path)).zip == "own.zip"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["tables"]["P001"].update(variables=70), "another number of answers"),
        (lambda d: d["tables"]["P001"].update(queries=["cenrace[{x}]"]), "an unknown text"),
    ],
)
def test_contradictions_are_refused(
    written: Callable[[Change], Path], change: Change, message: str
) -> None:
    layout = read_layout(str(written(change)))
    with pytest.raises(ConfigError, match=message):
        table_queries(layout, "P001", PL94)


@pytest.mark.parametrize("name", ["pl94", "dhc_persons", "pl94_cvap"])
def test_finer_schemas_fill_the_tables_of_persons(name: str) -> None:
    """Recodes of a finer schema have the names and levels of the redistricting attributes."""
    layout, schema = read_layout("pl94"), load_schema(SCHEMAS / f"{name}.yaml")
    filled = {table for table in layout.tables if table_queries(layout, table, schema)}
    assert filled == {*layout.tables} - {"H001"}


def test_a_digit_counts_from_one(written: Callable[[Change], Path]) -> None:
    path = written(lambda document: document["split"].update(digits=[0, 2]))
    with pytest.raises(ConfigError, match=r"split\.digits\.0: Input should be greater"):
        read_layout(str(path))


def test_tables_of_another_file_are_refused(written: Callable[[Change], Path]) -> None:
    path = written(lambda document: document.update(tables_of="own.yaml"))
    with pytest.raises(ConfigError, match=r"tables_of: is unknown; got own.yaml"):
        read_layout(str(path))


def test_an_unknown_layout_names_the_known_ones() -> None:
    for name in ("mdf", None):
        with pytest.raises(ConfigError, match=r"no known layout.*pl94.*ppmf.*wide"):
            read_layout(name)


def test_wide_uses_the_tables_of_the_redistricting_layout() -> None:
    wide, pl94 = map(read_layout, ("wide", "pl94"))
    assert (wide.tables, wide.texts) == (pl94.tables, pl94.texts)


def test_every_level_of_a_race_has_one_variable() -> None:
    """The 63 combinations of six races, each alone in one line of P1."""
    (query,) = table_queries(read_layout("pl94"), "P001", PL94) or ()
    matrix = query.factors[3].matrix
    alone = [row.argmax() for row in matrix if row.sum() == 1]
    assert sorted({*alone}) == [*range(63)]
    assert len(alone) == 64  # six races is a subtotal of one
    races = ("white", "black", "aian", "asian", "nhpi", "sor")
    names = PL94.attributes[3].levels
    for line, level in product((2, 3, 4, 5, 6, 7), range(63)):
        assert matrix[line, level] == (names[level] == races[line - 2])
