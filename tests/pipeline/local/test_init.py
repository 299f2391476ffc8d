"""`das init`: a file of an office becomes a run that is accepted, rehearsed and run."""

from __future__ import annotations

import json
import random
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from das.arrays import FloatArray
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.schema import load_schema
from tests.builders import foreign
from tests.builders.in_process import execute
from tests.builders.places import release_of
from tests.checkout import ROOT

VILLAGES = ROOT / "tests" / "data" / "villages"
SEEDED = "  randomness: {source: seeded_not_for_release, seed: 3}\n"  # of `privacy`, which is last

Das = Callable[..., tuple[int, str]]


def test_the_file_in_the_project_is_what_the_builder_writes(tmp_path: Path) -> None:
    foreign.write(tmp_path)
    for name in ("persons.csv", "villages.csv"):
        assert (tmp_path / name).read_bytes() == (VILLAGES / name).read_bytes()


def test_a_foreign_file_becomes_a_run(das: Das, here: None, tmp_path: Path) -> None:
    """Semicolons, a BOM, a blank in a header, numbers for geocodes: no word has to be changed."""
    folder = tmp_path / "proposed"
    listed = ("--geounits", VILLAGES / "villages.csv")
    tables = ("--table", "sex * agegrp", "--table", "total")
    code, said = das("init", VILLAGES / "persons.csv", folder, *listed, *tables, "--rho", "1/2")
    assert code == 0, said
    assert f"das validate {folder}/run.yaml" in said
    code, said = das("validate", folder / "run.yaml")
    assert code == 0, said
    assert "rho 1/2" in said
    (folder / "run.yaml").write_text((folder / "run.yaml").read_text() + SEEDED)
    release = release_of(execute(folder / "run.yaml")).root
    assert next((release / "tables").rglob("*.csv")).exists()
    assert {path.parent.name for path in (release / "tables").rglob("sex-by-agegrp.csv")} == {
        "level=country", "level=prov", "level=village"
    }  # fmt: skip
    run = load_run(folder / "run.yaml")
    assert run.plan.spine.levels == ("country", "prov", "village")
    assert run.plan.spine.digits == (0, 2, 6)
    assert len(run.plan.schema.attribute("agegrp").levels) == 18
    assert run.config.products["persons"].output.tables == ["sex * agegrp", "total"]
    assert run.config.geography.geounits is not None
    assert run.config.geography.geounits.names == {"village": "Name"}


def test_what_it_could_not_know_is_marked(das: Das, tmp_path: Path) -> None:
    code, said = das("init", VILLAGES / "persons.csv", tmp_path / "new")
    assert code == 0, said
    run, schema = ((tmp_path / "new" / name).read_text() for name in ("run.yaml", "schema.yaml"))
    attributes = load_schema(tmp_path / "new" / "schema.yaml").attributes
    mark = "# check: levels were read from the file; compare with your questionnaire"
    assert schema.count(mark) == len(attributes) == 4
    assert "published with every release" in schema
    assert "the geocodes of the level village come from the data" in " ".join(run.split())
    for mark in (
        "was guessed",
        "lost their leading zeros",
        "rho is the total privacy budget",
        '"Income"',
    ):
        assert mark in run
        assert mark in said
    assert "not a recommendation" in run
    _, validated = das("validate", tmp_path / "new" / "run.yaml")
    assert "which village exists comes from the data and is published" in " ".join(
        validated.split()
    )


def test_nothing_is_counted_and_no_geocode_is_written(das: Das, tmp_path: Path) -> None:
    """Numbers that only the data know stand nowhere: rows, geounits, codes of geounits, incomes."""
    code, said = das("init", VILLAGES / "persons.csv", tmp_path / "new")
    assert code == 0
    texts = [path.read_text() for path in (tmp_path / "new").iterdir()]
    numbers = {number for text in (said, *texts) for number in re.findall(r"\d+", text)}
    people = foreign.persons()
    secret = {str(len(people)), str(len({row[1] for row in people}))}
    secret |= {row[1] for row in people} | {row[1].zfill(6) for row in people}
    secret |= {row[7] for row in people if len(row[7]) > 4}
    assert not numbers & secret


def test_the_same_file_gives_the_same_proposal(das: Das, tmp_path: Path) -> None:
    made = []
    for name in ("first", "second"):
        assert das("init", VILLAGES / "persons.csv", tmp_path / name)[0] == 0
        files = [*(tmp_path / name).iterdir()]
        made.append({path.name: path.read_bytes() for path in files})
        # Levels are read from the confidential file; nobody else may read them before a look.
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700
    assert made[0] == made[1]
    assert set(made[0]) == {"schema.yaml", "allocation.yaml", "run.yaml"}


def test_nothing_is_overwritten(das: Das, tmp_path: Path) -> None:
    mine = tmp_path / "run.yaml"
    mine.write_text("mine")
    code, said = das("init", VILLAGES / "persons.csv", tmp_path)
    assert (code, mine.read_text()) == (2, "mine")
    assert "is not an empty folder; name a new one, or remove it" in said
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]
    assert das("init", VILLAGES / "persons.csv", tmp_path / "new")[0] == 0


GOOD = "village,sex,age\n" + "".join(
    f"{code},{sex},{age}\n"
    for code in ("0101", "0102", "0203")
    for sex in "mf"
    for age in (4, 30, 4, 4, 30)
)


@pytest.mark.parametrize(
    ("data", "words", "refusal", "mended", "options"),
    [
        (GOOD.partition("\n")[2], (), "insert a header line with the column names", GOOD, ()),
        (GOOD.encode("utf-16"), (), "got UTF-16; save it as CSV in UTF-8", GOOD, ()),
        (
            GOOD.replace("sex", "größe").encode("latin-1"),
            (),
            "got another encoding, such as Windows-1252; save it as CSV in UTF-8",
            GOOD.replace("sex", "größe"),
            (),
        ),
        (
            GOOD.replace(",m", ",größe").encode("latin-1"),
            (),
            "column sex: holds text that is not UTF-8; got another encoding",
            GOOD.replace(",m", ",größe").encode("latin-1"),
            ("--leave-out", "sex"),
        ),
        (
            GOOD.replace(",", "~"),
            (),
            "has one column, with any separator of [',', ';', '\\t', '|']",
            GOOD.replace(",", "~"),
            ("--delimiter", "~"),
        ),
        (
            GOOD.replace("village", "kod").replace("sex", "kod2"),
            (),
            "cannot determine the column of geocodes; got ['kod', 'kod2', 'age']",
            GOOD.replace("village", "kod").replace("sex", "kod2"),
            ("--geocode", "kod"),
        ),
        (
            GOOD.replace("0101,m,4\n", ",m,4\n", 1).replace("village", "place"),
            ("--geocode", "place"),
            "column place: holds values that are no geocodes; expected ASCII letters and digits",
            GOOD.replace("village", "place"),
            ("--geocode", "place"),
        ),
        (
            GOOD.replace("0101", "AB1"),
            (),
            "has geocodes of other lengths than those of the last geolevel; got 3 to 4 characters",
            GOOD.replace("0101", "0AB1"),
            (),
        ),
        (GOOD, ("--geolevels", "district 3, village 5"),  # its zeros are there: one digit too many
         "has geocodes of other lengths than those of the last geolevel; got 4 to 4 characters",
         GOOD, ("--geolevels", "district 2, village 4")),
        (GOOD, ("--geolevels", "village"), "holds no geolevels; got village", GOOD,
         ("--geolevels", "district 2, village 4")),
        (GOOD, ("--leave-out", "Sex"), "names an unknown column; got Sex", GOOD,
         ("--leave-out", "sex")),
        (GOOD, ("--table", "sex * religion"), "religion", GOOD, ("--table", "sex * age")),
        (GOOD, ("--table", "sex", "--leave-out", "sex"), "sex cannot be an attribute: it is left out",
         GOOD, ("--table", "age", "--leave-out", "sex")),
        (GOOD, ("--rho", "0.5.1"), "--rho", GOOD, ("--rho", "0.5")),
        (GOOD, ("--rows", "0"), "--rows: is not positive", GOOD, ("--rows", "5")),
    ],
)  # fmt: skip
def test_what_cannot_be_proposed_is_refused_and_leaves_nothing(
    das: Das,
    tmp_path: Path,
    data: str | bytes,
    words: tuple[str, ...],
    refusal: str,
    mended: str | bytes,
    options: tuple[str, ...],
) -> None:
    """And what the message says helps."""
    path, folder = tmp_path / "persons.csv", tmp_path / "new"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    code, said = das("init", path, folder, *words)
    assert code in (2, 3), said
    assert refusal in said
    assert "0203" not in said
    assert [one.name for one in tmp_path.iterdir()] == ["persons.csv"]
    path.write_bytes(mended if isinstance(mended, bytes) else mended.encode())
    code, said = das("init", path, folder, *options)
    assert code == 0, said


def test_no_attribute_is_left(das: Das, tmp_path: Path) -> None:
    path = tmp_path / "persons.csv"
    path.write_text(GOOD)
    code, said = das("init", path, tmp_path / "new", "--leave-out", "sex", "--leave-out", "age")
    assert code == 2
    assert (
        "finds no column that can be an attribute; got sex: is left out by --leave-out; age: is left out"
        in said
    )


def test_groups_of_ages_can_be_tabulated(das: Das, tmp_path: Path) -> None:
    """Five-year groups, which the proposal writes itself; and pairs without a table are named."""
    path = tmp_path / "persons.csv"
    path.write_text(GOOD)
    code, said = das("init", path, tmp_path / "new", "--table", "sex * age_5")
    assert (code, "no table joins" in said) == (0, False), said
    run = load_run(tmp_path / "new" / "run.yaml")
    assert [query.size for query in run.last.tabulated.values()] == [2 * 21]
    code, said = das("init", path, tmp_path / "alone", "--table", "sex", "--table", "age_5")
    assert (code, "no table joins these attributes" in said, "sex * age" in said) == (0, True, True)
    allocation = tmp_path / "alone" / "allocation.yaml"
    text = allocation.read_text()
    assert text.count("sex * age_5: 1/20\n") == 1, text  # at the country, not at the villages
    assert "1/20 of the budget at country measures them (standard error 6)" in said
    allocation.write_text(text.replace("sex * age_5: 1/20", "total: 1/20"))
    code, said = das("validate", tmp_path / "alone" / "run.yaml")
    assert (code, "close to chance" in said, "sex * age (" in said) == (0, True, True), said


def test_records_keep_slopes_within_a_fifth_of_the_truth(das: Das, tmp_path: Path) -> None:
    """By a default draft, of income on schooling and of both on age; the last geolevel has no pairs."""
    rng = random.Random(5)
    path, rows = tmp_path / "persons.csv", ["place,age,schooling,income"]
    for _ in range(6_000):
        age, place = rng.randint(0, 99), f"{rng.randint(1, 2)}{rng.randint(1, 4)}"
        schooling = round(min(4, max(0, rng.gauss(3 - age / 50, 1))))
        income = round(min(6, max(0, rng.gauss(1 + 0.7 * schooling + age / 50, 1))))
        rows.append(f"{place},{age},{schooling},{income}")
    path.write_text("\n".join([*rows, ""]))
    assert das("init", path, tmp_path / "new", "--geocode", "place")[0] == 0
    run = tmp_path / "new" / "run.yaml"
    run.write_text(
        run.read_text().replace("output:\n", "output:\n      intervals: false\n", 1) + SEEDED
    )
    made = pq.read_table(release_of(execute(run)).root / "microdata" / "parquet")

    def slopes(records: pa.Table) -> FloatArray:
        """Of income on schooling, alone and among persons of one age; of schooling on age."""
        age, schooling, income = (
            np.array([str(value).split()[0] for value in records[name].to_pylist()], float)
            for name in ("age", "schooling", "income")
        )
        alone, on_age = (np.polyfit(x, y, 1)[0] for x, y in ((schooling, income), (age, schooling)))
        both = np.stack([schooling, age, np.ones(len(age))], 1)
        return np.array([alone, np.linalg.lstsq(both, income)[0][0], on_age])

    np.testing.assert_allclose(slopes(made), slopes(pa_csv.read_csv(path)), rtol=0.2)


def test_parquet_with_numbers_missing_values_and_dates(
    das: Das, here: None, tmp_path: Path
) -> None:
    """Geocodes as integers lost their zeros; a date is no code; nulls are a level."""
    size = 60
    table = pa.table(
        {
            "geoid": pa.array([10100 + 100 * (row % 4) + row % 3 for row in range(size)]),
            "sex": pa.array([(1, 2, None)[row // 7 % 3] for row in range(size)]),
            "age": pa.array([float(row % 90 + 10) for row in range(size)]),
            "born": pa.array([0] * size, pa.date32()),
        }
    )
    pq.write_table(table, tmp_path / "persons.parquet")
    levels = ("--geolevels", "country 0, county 2, place 6")
    words = ("--geocode", "geoid", *levels)
    code, said = das("init", tmp_path / "persons.parquet", tmp_path / "new", *words)
    assert code == 0, said
    assert '"born" is not used: it has values of type date32[day]' in said
    schema = load_schema(tmp_path / "new" / "schema.yaml")
    assert schema.attribute("sex").levels == ("1", "2", "missing")
    assert schema.attribute("age").size == 101
    run = tmp_path / "new" / "run.yaml"
    run.write_text(run.read_text() + SEEDED)
    assert (release_of(execute(run)).manifest).exists()


def test_a_list_with_other_geounits_is_told(das: Das, tmp_path: Path) -> None:
    """Here, so that the run need not find it: some village of the data is not in the list."""
    path = tmp_path / "villages.csv"
    lines = (VILLAGES / "villages.csv").read_text("utf-8-sig").splitlines(keepends=True)
    path.write_text("".join([lines[0], *lines[2:]]))
    code, said = das("init", VILLAGES / "persons.csv", tmp_path / "new", "--geounits", path)
    assert code == 0, said
    assert "some geocodes of the data are not in the list of geounits" in said
    assert "10101" not in said


def test_a_list_and_tables_are_understood_by_what_stands_in_the_files(
    das: Das, tmp_path: Path
) -> None:
    """A key of another name than in the data, and tables by names of columns with blanks."""
    lines = (VILLAGES / "villages.csv").read_text("utf-8-sig").splitlines()
    named = [line.split(";") for line in lines[1:]]
    rows = [f"{i};{name};{int(code)}" for i, (code, name, _) in enumerate(named, 100_000)]
    path = tmp_path / "orte.csv"
    path.write_text("\n".join(["Nr;Ortsname;Schlüssel", *rows, ""]))
    tables = ("--table", "Marital status * Sex", "--table", "total")
    words = ("init", VILLAGES / "persons.csv", tmp_path / "new", "--geounits", path, *tables)
    code, said = das(*words)
    assert code == 0, said
    run = load_run(tmp_path / "new" / "run.yaml")
    listed = run.config.geography.geounits
    assert listed is not None
    assert (listed.geocode, listed.names) == ("Schlüssel", {"village": "Ortsname"})
    assert run.config.products["persons"].output.tables == ["marital_status * sex", "total"]


def test_a_list_says_which_column_of_the_data_holds_the_geocodes(das: Das, tmp_path: Path) -> None:
    """Whatever it is called, where names tell nothing, or another column; and without its zeros."""
    lines = (VILLAGES / "persons.csv").read_text("utf-8-sig").splitlines(keepends=True)
    path = tmp_path / "persons.csv"
    for header in (lines[0].replace("Village", "kod"),
                   lines[0].replace("Village", "kod").replace("Nationality", "Region")):  # fmt: skip
        path.write_text("".join([header, *lines[1:]]))
        folder = tmp_path / header.strip().replace(";", "-")
        code, said = das("init", path, folder, "--geounits", VILLAGES / "villages.csv")
        assert code == 0, said
        assert "was guessed" not in said
        run = load_run(folder / "run.yaml")
        assert run.config.products["persons"].data.geocode == "kod"
        assert load_schema(folder / "schema.yaml").attribute("sex").levels == ("1", "2")


def in_columns(path: Path, lines: list[str], at: int, kind: Callable[[str], object]) -> None:
    """A file whose column of six digits becomes three of two digits, by any kind of value."""
    header, *rows = (line.split(";") for line in lines)
    with path.open("w", encoding="utf-8") as file:
        file.write(";".join(["PROV", "MUN", "SECC", *header[:at], *header[at + 1 :]]) + "\n")
        for row in rows:
            code = row[at].zfill(6)
            parts = [str(kind(code[start : start + 2])) for start in (0, 2, 4)]
            file.write(";".join([*parts, *row[:at], *row[at + 1 :]]) + "\n")


def test_a_geocode_in_three_columns_becomes_a_run(das: Das, here: None, tmp_path: Path) -> None:
    """Numbers in the data and text in the list, as offices have them; nobody joins anything."""
    persons, listed, folder = (tmp_path / name for name in ("persons.csv", "list.csv", "new"))
    people, villages = (
        (VILLAGES / name).read_text("utf-8-sig").splitlines()
        for name in ("persons.csv", "villages.csv")
    )
    in_columns(persons, people, people[0].split(";").index("Village"), int)
    in_columns(listed, villages, villages[0].split(";").index("Village"), str)
    code, said = das("init", persons, folder, "--geounits", listed)
    assert code == 2, said
    assert "all columns of its parts, root first, separated by commas" in said
    words = ("--geounits", listed, "--geocode", "PROV,MUN,SECC", "--table", "sex")
    code, said = das("init", persons, folder, *words)
    assert code == 0, said
    run = folder / "run.yaml"
    spine = load_run(run).plan.spine
    assert (spine.levels, spine.digits) == (("country", "prov", "mun", "secc"), (0, 2, 4, 6))
    columns = [{"column": name, "digits": 2} for name in ("PROV", "MUN", "SECC")]
    written = yaml.safe_load(run.read_text())
    data = written["products"]["persons"]["data"]
    assert data["geocode"] == written["geography"]["geounits"]["geocode"] == columns
    assert data["leading_zeros"] == "lost"
    assert not {"PROV", "MUN", "SECC"} & {*data["columns"]}

    run.write_text(run.read_text() + SEEDED)
    code, said = das("validate", run)
    assert code == 0, said
    release = release_of(execute(run)).root
    table = pa_csv.read_csv(
        next((release / "tables").rglob("level=mun/sex.csv")),
        convert_options=pa_csv.ConvertOptions(column_types={"geocode": pa.string()}),
    )
    assert {*table["geocode"].to_pylist()} == {code[:4] for code, _ in foreign.villages()}

    code, said = das("generate", tmp_path / "invented", "--like", run, "--persons", 90)
    assert code == 0, said
    invented = tmp_path / "invented" / "data" / "persons" / "persons.csv"
    header, first, *_ = invented.read_text().replace('"', "").splitlines()
    assert header.split(";")[:3] == ["PROV", "MUN", "SECC"]
    parts = [int(part) for part in first.split(";")[:3]]
    assert first.split(";")[:3] == [str(part) for part in parts]
    assert "".join(f"{part:02}" for part in parts) in {code for code, _ in foreign.villages()}

    good = run.read_text()
    for old, new, message in (
        ('"MUN"', '"MUNI"', "expected also ['MUNI']"),
        ('"MUN", digits: 2', '"MUN", digits: 3', "`geounits.geocode` has columns of 7 digits"),
        ('{column: "MUN", digits: 2}', "MUN", "write {column: MUN, digits: ...}"),
    ):
        run.write_text(good.replace(old, new))
        code, said = das("validate", run)
        assert (code, message in said) == (2, True), said
    head, _, tail = good.partition("products:")
    run.write_text(f"{head}products:{tail.replace('digits: 2}]', 'digits: 3}]')}")
    code, said = das("validate", run)
    assert code == 2
    assert "whose digits do not add up to those of the last geolevel; got 7; expected 6" in said


def test_columns_that_may_make_up_the_geocode_are_asked_for(das: Das, tmp_path: Path) -> None:
    """A guess by names would take one of several, and add up places of the same number."""
    path = tmp_path / "persons.csv"
    rows = [f"{prov},{mun:03},{sex}" for prov in (1, 2) for mun in range(9) for sex in "mf" * 5]
    path.write_text("\n".join(["province,municipality,sex", *rows, ""]))
    told = "column municipality: does not determine all columns of places"
    code, said = das("init", path, tmp_path / "guessed")
    assert (code, told in said, "got ['province']" in said) == (2, True, True), said
    words = ("--geocode", "province, municipality", "--geolevels", "prov 2, mun 5")
    code, said = das("init", path, tmp_path / "named", *words)
    assert code == 0, said
    parts = load_run(tmp_path / "named" / "run.yaml").config.products["persons"].data.geocode
    assert [(part.column, part.digits) for part in parts] == [("province", 2), ("municipality", 3)]
    code, said = das("init", path, tmp_path / "unknown", "--geocode", "province,mun")
    assert (code, "names an unknown column; got mun" in said) == (2, True), said


def test_a_list_without_a_geocode_of_the_data_is_refused_and_helped(
    das: Das, tmp_path: Path
) -> None:
    path, listed = tmp_path / "persons.csv", tmp_path / "listed.csv"
    path.write_text(GOOD)
    listed.write_text("kod;nr\n9901;17\n9902;18\n")
    words = ("init", path, tmp_path / "new", "--geounits", listed)
    code, said = das(*words)
    assert code == 2, said
    assert f"{listed}: das init: cannot determine the column of geocodes" in said
    assert "name it village in this list, as in the data" in said
    listed.write_text("village;nr\n9901;17\n9902;18\n")
    code, said = das(*words)
    assert code == 0, said
    assert "some geocodes of the data are not in the list of geounits" in said


def test_a_code_list_gives_levels_and_labels(das: Das, tmp_path: Path) -> None:
    """Also such as nobody has; and what the list lacks is told, without a word of the codes."""
    codes = tmp_path / "codes.csv"
    rows = ["column;code;label", "Sex;1;men", "Sex;2;women", "Sex;3;other"]
    status = ("single", "married", "widowed", "divorced")
    rows += [f"Marital status;{code};{label}" for code, label in enumerate(status, 1)]
    codes.write_text("\n".join([*rows, ""]))
    words = ("init", VILLAGES / "persons.csv", tmp_path / "new", "--codebook", codes)
    code, said = das(*words, "--table", "sex * marital_status")
    assert code == 0, said
    schema = load_schema(tmp_path / "new" / "schema.yaml")
    assert schema.attribute("sex").levels == ("men", "women", "other")
    assert schema.attribute("marital_status").levels == status
    assert 'column "Marital status" has codes that are not in the code list' in said
    assert 'column "Sex"' not in said
    text = (tmp_path / "new" / "schema.yaml").read_text()
    assert text.count("# From the code list.") == 2
    for wrong, what in (
        ("Sex;3;", "row 4: has no label"),
        ("Sex;2;x", "row 4: repeats a code; got 2"),
        ("", "lacks columns"),
    ):
        bad = [*rows[:3], wrong] if wrong else ["column;code;text", "Sex;1;men"]
        codes.write_text("\n".join([*bad, ""]))
        code, said = das(*words[:2], tmp_path / "other", *words[3:])
        assert (code, (tmp_path / "other").exists()) == (2, False)
        assert what in said


def households(path: Path, key: str) -> None:
    """A file whose households have longer identifiers than its 12 places."""
    rows = [f"{place + 1:07};AF{3 * place + row // 4:06};{'mf'[row % 2]};{row}"
            for place in range(12) for row in range(10)]  # fmt: skip
    path.write_text("\n".join([f"{key};Agregado;Sexo;Idade", *rows, ""]))


def test_a_household_is_never_taken_for_a_place(das: Das, tmp_path: Path) -> None:
    """Neither by its length, nor by its name: the one who knows is asked, and no file is left."""
    path = tmp_path / "pessoas.csv"
    households(path, "Codigo")
    code, said = das("init", path, tmp_path / "new")
    assert (code, "got ['Codigo', 'Agregado', 'Sexo', 'Idade']" in said) == (2, True), said
    households(path, "Freguesia")
    assert das("init", path, tmp_path / "named")[0] == 0
    listed = load_run(tmp_path / "named" / "run.yaml").config.products["persons"].data
    assert listed.geocode == "Freguesia"
    code, said = das("validate", tmp_path / "named" / "run.yaml", "--data")
    assert (code, "persons of a geounit of freguesia, on average: 10" in said) == (0, True), said
    path.write_text(path.read_text().replace("Freguesia", "X").replace("Agregado", "Place"))
    code, said = das("init", path, tmp_path / "new")
    assert (code, "column Place: has fewer than 10 records per value" in said) == (2, True), said
    assert not (tmp_path / "new").exists()
    assert das("init", path, tmp_path / "new", "--geocode", "Place")[0] == 0


PARISHES = [
    (region, town, f"{town[:3]}{'-' * (n % 2)}{n}")
    for region, town in (("N", "VR"), ("N", "AVEIRO"), ("ALGARVE", "OLHÃO"), ("AÇ", "AH"))
    for n in range(1, 13)
]


def coded(path: Path, listed: Path) -> None:
    """Codes of any length and alphabet; one parish of the list has nobody."""
    persons = [f"{sex};{status}" for sex in "mf" for status in "scdv"] * 3
    rows = [f"{';'.join(place)};{person}" for place in PARISHES[1:] for person in persons]
    header = "Região;Município;Freguesia;Sexo;Estado"
    path.write_text("\n".join([header, *rows, ""]), "utf-8-sig")
    rows = [f"{';'.join(place)};Terra {n}" for n, place in enumerate(PARISHES)]
    listed.write_text("\n".join(["Região;Município;Freguesia;Designação", *rows, ""]))


def test_codes_of_any_kind_are_numbered_and_shown(das: Das, here: None, tmp_path: Path) -> None:
    persons, listed, folder = (tmp_path / name for name in ("persons.csv", "list.csv", "new"))
    coded(persons, listed)
    code, said = das("init", persons, folder, "--geocode", "Região,Município,Freguesia")
    assert (code, "give the public list of places with these codes by --geounits" in said) == (
        2, True,
    ), said  # fmt: skip
    levels = ("--geolevels", "Região 1, Freguesia 3")
    code, said = das("init", persons, folder, "--geounits", listed, *levels)
    assert (code, "leave it out, and rename the geolevels" in said) == (2, True), said
    code, said = das("init", persons, folder, "--geounits", listed)
    assert (code, f"{folder}/geocodes.csv" in said) == (0, True), said
    run = folder / "run.yaml"
    spine = load_run(run).plan.spine
    assert spine.levels == ("country", "regiao", "municipio", "freguesia")
    code, said = das("validate", run)
    assert code == 0, said
    run.write_text(run.read_text() + SEEDED)
    release = release_of(execute(run)).root
    found = pa_csv.read_csv(next((release / "tables").rglob("level=municipio/sexo.csv")))
    assert {*found["name"].to_pylist()} == {town for _, town, _ in PARISHES}
    names = pq.read_table(folder / "out/release/geography/level=freguesia")["name"].to_pylist()
    assert sorted(names) == sorted(f"{place[2]} Terra {n}" for n, place in enumerate(PARISHES))

    code, said = das("generate", tmp_path / "invented", "--like", run, "--persons", 90)
    assert code == 0, said
    header, first, *_ = (tmp_path / "invented/data/persons/persons.csv").read_text().splitlines()
    assert header.replace('"', "").split(";")[:3] == ["Região", "Município", "Freguesia"]
    assert tuple(first.replace('"', "").split(";")[:3]) in PARISHES

    persons.write_text(persons.read_text("utf-8-sig").replace("AH-1;m", "AH99;m", 1))
    refused = das("run", run, "--out", tmp_path / "other")[1]
    assert "column Região, Município, Freguesia: place has no geocode" in refused
    assert "AH99" not in refused
    table = folder / "geocodes.csv"
    table.write_text(f"{table.read_text()}2199,AÇ,AH,AH99,New\n")
    code, said = das("validate", run, "--data")
    assert (code, "every geocode and code is legal" in said) == (0, True), said


def test_a_second_file_joins_the_run(das: Das, here: None, tmp_path: Path) -> None:
    """Housing about the same places: one run file with both, and the first file as it was."""
    persons, listed, folder = (tmp_path / name for name in ("persons.csv", "list.csv", "new"))
    coded(persons, listed)
    code, said = das("init", persons, folder, "--geounits", listed, "--rho", "1/2")
    assert code == 0, said
    first = (folder / "run.yaml").read_bytes()
    housing = tmp_path / "housing.csv"
    rows = [f"{';'.join(place)};{'abc'[n % 3]}" for n in range(5) for place in PARISHES]
    housing.write_text("\n".join(["Região;Município;Freguesia;Tipo", *rows, ""]), "utf-8-sig")
    more = ("--into", folder / "run.yaml", "--rho", "1/4")
    code, said = das("init", housing, tmp_path / "homes", *more)
    assert (code, "got persons; expected another name" in said) == (2, True), said
    code, said = das("init", housing, tmp_path / "homes", *more, "--product", "housing")
    assert code == 0, said
    both = folder / "run-housing.yaml"
    assert f"das validate {both}" in said
    assert (folder / "run.yaml").read_bytes() == first
    assert stat.S_IMODE(both.stat().st_mode) == 0o600
    assert {path.name for path in (tmp_path / "homes").iterdir()} == {
        "schema.yaml", "allocation.yaml"
    }  # fmt: skip
    assert [*load_run(both).products] == ["housing", "persons"]
    code, said = das("validate", both, "--data")
    assert (code, "rho 3/4" in said) == (0, True), said
    both.write_text(both.read_text() + SEEDED)
    release = release_of(execute(both)).root
    assert {path.name for path in release.parent.iterdir()} == {"housing", "persons"}


def test_a_second_file_that_does_not_fit_is_refused(das: Das, tmp_path: Path) -> None:
    listed = ("--geounits", VILLAGES / "villages.csv")
    code, said = das("init", VILLAGES / "persons.csv", tmp_path / "new", *listed)
    assert code == 0, said
    run = tmp_path / "new" / "run.yaml"
    more = ("init", VILLAGES / "persons.csv", tmp_path / "more", "--into", run)
    more = (*more, "--product", "others")
    text = run.read_text()
    run.write_text(json.dumps(yaml.safe_load(text)))  # braces, in one line
    code, said = das(*more)
    assert (code, "products: are not written as a block" in said) == (2, True), said
    assert not (tmp_path / "more").exists()
    run.write_text(text.replace("products:\n", '"products": &all # both\n\n'))
    code, said = das(*more)
    assert code == 0, said
    assert '"../more/schema.yaml"' in (tmp_path / "new" / "run-others.yaml").read_text()
    shutil.rmtree(tmp_path / "more")
    code, said = das(*more)
    assert (code, "exists; name another product, or remove it" in said) == (2, True), said
    code, said = das(*more[:-1], "rest")
    assert code == 0, said


CODES = st.sampled_from(["1", "2", "9", "m", "f", "", " x", "0-4", "=1", "ä", "10.0", "-1"])


@st.composite
def small_files(draw: st.DrawFn) -> dict[str, list[str]]:
    """Columns of a small file: a geocode, codes, perhaps ages and identifiers."""
    digits = draw(st.integers(1, 7))
    codes = st.text("0123456789", min_size=digits, max_size=digits)
    rows = draw(st.integers(2, 30))
    places = draw(st.lists(codes, min_size=2, max_size=6, unique=True))
    columns = {"geocode": [places[index % len(places)] for index in range(rows)]}
    if draw(st.booleans()):
        columns["geocode"] = [code.lstrip("0") or "0" for code in columns["geocode"]]
    for number in range(draw(st.integers(1, 3))):
        column = draw(st.lists(CODES, min_size=rows, max_size=rows))
        columns[f"{draw(st.sampled_from(['Sex', 'a b', 'total', 'x*y']))} {number}"] = [
            "1", "2", *column[2:]
        ]  # fmt: skip
    if draw(st.booleans()):
        ages = draw(st.lists(st.integers(0, 120), min_size=rows, max_size=rows))
        columns["Age"] = [str(age) for age in ages]
    if draw(st.booleans()):
        columns["Id"] = [str(1000 + index) for index in range(rows)]
    return columns


@pytest.mark.slow
@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(columns=small_files(), delimiter=st.sampled_from(",;\t|"), bom=st.booleans())
def test_whatever_is_proposed_is_accepted_and_runs(
    das: Das,
    tmp_path_factory: pytest.TempPathFactory,
    columns: dict[str, list[str]],
    delimiter: str,
    bom: bool,
) -> None:
    folder = tmp_path_factory.mktemp("small")
    path = folder / "persons.csv"
    with path.open("wb") as handle:
        handle.write(b"\xef\xbb\xbf" * bom)
        options = pa_csv.WriteOptions(delimiter=delimiter)
        pa_csv.write_csv(pa.table(columns), handle, options)
    code, said = das("init", path, folder / "new", "--geocode", "geocode")
    assert code == 0, said
    run = folder / "new" / "run.yaml"
    code, said = das("validate", run)
    assert code == 0, said
    run.write_text(run.read_text() + SEEDED)
    assert yaml.safe_load(run.read_text())["privacy"]
    assert (release_of(execute(run)).manifest).exists()


def test_a_file_without_geography_becomes_a_survey(das: Das, tmp_path: Path) -> None:
    """Every value of the file has a label or a bin; the shares of all parts are the budget."""
    rows = [
        f"{nr};{'mwd'[nr % 3]};{nr % 90};{['*', 'a', ''][nr % 3]};{nr * 37}" for nr in range(1, 301)
    ]
    data = tmp_path / "people.csv"
    data.write_text("\n".join(["nr;Sexo;Idade;Est. civil;Renda", *rows, ""]), encoding="utf-8")
    table = ("--table", "Sexo * est_civil")
    code, said = das("init", "--survey", data, tmp_path / "new", *table, "--rho", "2")
    assert code == 0, said
    assert '"Renda": {column: "Renda", bins:' in said
    assert "generate" not in said
    run = yaml.safe_load((tmp_path / "new" / "run.yaml").read_text())
    assert run["data"]["n_records"] == 300
    assert run["data"]["columns"]["est_civil"]["codes"] == {
        "*": "(star)", "a": "a", "": "missing"
    }  # fmt: skip
    assert run["marginals"]["tables"] == ["sexo * est_civil"]
    assert stat.S_IMODE((tmp_path / "new" / "run.yaml").stat().st_mode) == 0o600
    text = (tmp_path / "new" / "run.yaml").read_text()
    text = text.replace("synthesis:", "synthesis:\n  components: 5\n  n_fits: 1\n  steps: 5", 1)
    seeded = "privacy:\n  randomness: {source: seeded_not_for_release, seed: 3}"
    (tmp_path / "new" / "run.yaml").write_text(text.replace("privacy:", seeded))
    code, said = das("run", tmp_path / "new" / "run.yaml", "--quiet")
    assert code == 0, said
    code, said = das("verify", tmp_path / "new" / "out" / "release", "--quiet")
    assert code == 0, said


def test_a_survey_has_no_places(das: Das, tmp_path: Path) -> None:
    persons = VILLAGES / "persons.csv"
    code, said = das("init", "--survey", persons, tmp_path / "new", "--geocode", "Village")
    assert (code, (tmp_path / "new").exists()) == (2, False)
    assert "--geocode: is for a census" in said
