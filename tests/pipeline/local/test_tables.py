"""`das tables` on the folder of a release alone; tables of some geolevels; names of geounits."""

from __future__ import annotations

import csv
import html
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.csv as pa_csv
import pytest
import yaml

from das.errors import (
    ConfigError,
    DamageError,
    InputError,
    OutputError,
    SchemaError,
    VerificationError,
)
from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.verify import verify_run
from tests.builders import toy
from tests.builders.datasets import rows_of_csv
from tests.builders.in_process import execute
from tests.builders.places import product_in, release_of
from tests.builders.units import section, write_units

Das = Callable[..., tuple[int, str]]

TABLES = ["total", {"query": "age * sex", "geolevels": ["county", "tract"]}]
COUNTIES = {"001": "Åland", "003": "=1+1", "005": ""}


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of persons and units whose list has names of counties."""
    folder = tmp_path_factory.mktemp("tables")
    toy.write_records(folder)
    write_units(folder)
    with (folder / "blocks.csv").open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(["geocode", "county"])
        writer.writerows((code, COUNTIES[code[2:5]]) for code in toy.blocks())
    geounits = {"path": str(folder / "blocks.csv"), "names": {"county": "county"}}
    execute(
        toy.configuration(
            folder,
            geography__geounits=geounits,
            output__tables=TABLES,
            output__table_formats=["csv", "parquet", "xlsx"],
            units=section(folder),
        )
    )
    return folder


@pytest.fixture
def release(origin: Path, tmp_path: Path) -> Path:
    """A copy of the release beside nothing."""
    return Path(shutil.copytree(origin / "out" / "release", tmp_path / "published"))


def files(folder: Path) -> set[str]:
    kinds = (".csv", ".parquet", ".xlsx")
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.suffix in kinds}


def numbers(row: dict[str, str]) -> list[float]:
    names = ("estimate", "standard_error", "estimate_lower", "estimate_upper")
    return [float(row[name]) for name in names]


def test_tables_are_there_where_the_run_file_wants_them(origin: Path) -> None:
    kinds = ("csv", "parquet", "xlsx")
    assert files(origin / "out/release/products/persons/tables") == {
        f"level={level}/{stem}.{kind}"
        for kind in kinds
        for level in toy.LEVELS
        for stem in ("total", *(["detailed"] if level in ("county", "tract") else []))
    }
    verify_run(load_run(origin / "run.yaml"))
    rows = rows_of_csv(origin / "out/release/products/persons/tables/level=county/detailed.csv")
    assert list(rows[0])[:6] == ["geolevel", "geocode", "name", "sex", "age", "count"]
    names = {row["geocode"]: row["name"] for row in rows}
    # Of a spreadsheet, a name would be a formula.
    assert names == {"99001": "Åland", "99003": "'=1+1", "99005": ""}


def test_a_release_alone_gives_the_tables_it_has(
    das: Das, origin: Path, release: Path, tmp_path: Path
) -> None:
    formats = [word for kind in ("csv", "parquet", "xlsx") for word in ("--format", kind)]
    for _ in range(2):  # its own files are written over
        code, printed = das("tables", release, "--to", tmp_path / "again", *formats)
        assert code == 0, printed
    published = origin / "out/release/products/persons/tables"
    assert files(tmp_path / "again") == files(published)
    for name in files(published):
        assert (tmp_path / "again" / name).read_bytes() == (published / name).read_bytes(), name
    assert not [*(tmp_path / "again").glob(".das-*")]


@pytest.mark.parametrize("geolevel", toy.LEVELS)
@pytest.mark.parametrize(
    ("query", "stem"),
    [
        ("sex * age[0-17, 18+]", "sex-by-age-0-17-18+"),
        ("prefix(age)", "prefix-age"),
        ("total where age=65_and_over", "total-where-age-is-65_and_over"),
    ],
)
def test_any_table_of_any_geolevel_is_that_of_das_estimate(
    das: Das, release: Path, tmp_path: Path, geolevel: str, query: str, stem: str
) -> None:
    words = ("--table", query, "--geolevel", geolevel, "--to", tmp_path)
    code, printed = das("tables", release, *words)
    assert code == 0, printed
    rows = rows_of_csv(tmp_path / f"level={geolevel}" / f"{stem}.csv")
    code, printed = das("estimate", release, "--query", query, "--geolevel", geolevel, "--json")
    assert code == 0, printed
    wanted = json.loads(printed)
    assert [row["geocode"] for row in rows] == [row["area"] for row in wanted]
    for row, own in zip(rows, wanted, strict=True):
        found = [own[name] for name in ("estimate", "standard_error", "lower", "upper")]
        assert numbers(row) == pytest.approx(found, abs=6e-4)


def test_intervals_of_counts_come_after_replicates(das: Das, origin: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(origin / "out", tmp_path / "out"))
    assert das("run", out, "--config", origin / "run.yaml")[0] == 0  # which is remembered
    code, printed = das("replicate", out, "--count", 2)
    assert code == 0, printed
    code, printed = das("tables", out / "release", "--to", tmp_path / "tables")
    assert code == 0, printed
    rows = rows_of_csv(tmp_path / "tables/level=tract/detailed.csv")
    assert {row.get("count_coverage", "unknown") for row in rows} <= {
        "within",
        "above",
        "below",
        "unknown",
        "shifted",
    }
    for row in rows:
        assert 0 <= int(row["count_lower"]) <= int(row["count_upper"])
    published = rows_of_csv(out / "release/products/persons/tables/level=tract/detailed.csv")[0]
    assert "count_lower" not in published


def test_tables_of_the_units(das: Das, release: Path, tmp_path: Path) -> None:
    code, printed = das("tables", release, "--product", "units", "--to", tmp_path)
    assert code == 0, printed
    own = product_in(release, "units").tables("block") / "h1.csv"
    assert (tmp_path / "level=block" / "h1.csv").read_bytes() == own.read_bytes()


@pytest.mark.parametrize(
    ("words", "error", "text"),
    [
        (
            ("--geolevel", "village"),
            ConfigError,
            "unknown geolevel; got village; expected ['state'",
        ),
        (
            ("--format", "xls"),
            ConfigError,
            "unknown format; got xls, did you mean xlsx?; expected ['csv', 'parquet'",
        ),
        (("--product", "dogs"), ConfigError, "--product: is unknown; got dogs"),
        (("--table", "sex, age"), SchemaError, "write sex * age"),
    ],
)
def test_what_is_asked_wrongly(
    das: Das, release: Path, tmp_path: Path, words: tuple[str, ...], error: type, text: str
) -> None:
    code, printed = das("tables", release, *words, "--to", tmp_path / "none")
    assert code == error.exit_code
    assert text in " ".join(printed.split())
    assert not (tmp_path / "none").exists()


def test_the_file_of_somebody_else_stays(das: Das, release: Path, tmp_path: Path) -> None:
    mine = tmp_path / "level=block" / "total.csv"
    mine.parent.mkdir()
    mine.write_text("mine")
    code, printed = das("tables", release, "--to", tmp_path)
    assert code == OutputError.exit_code
    assert "is another file and is not written over" in printed
    assert mine.read_text() == "mine"
    assert files(tmp_path) - files(release) == {"level=block/total.csv"} | {
        f"published/{name}" for name in files(release)
    }


def test_a_folder_that_cannot_be_written_is_told_as_it_is(
    das: Das, release: Path, tmp_path: Path
) -> None:
    """By what is in the way, not by the room on the disk; and elsewhere they are written."""
    (tmp_path / "file").touch()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "level=county").touch()
    words = ("tables", release, "--table", "total", "--geolevel", "county", "--to")
    for to, why in (
        ("file", "got File exists"),
        ("file/below", "got Not a directory"),
        ("half", "half/level=county/total.csv: cannot be written; got File exists"),
    ):
        code, said = das(*words, tmp_path / to)
        assert code == 2
        assert why in said
        assert "move away what lies there, or name another place; then repeat the command" in said
    (tmp_path / "half" / "level=county").unlink()
    assert das(*words, tmp_path / "half")[0] == 0


def test_tables_with_decimal_commas_have_the_same_numbers(tmp_path: Path) -> None:
    """As spreadsheets of most of Europe read them, also as the report says."""
    toy.write_records(tmp_path)
    written = {"output__tables": TABLES, "output__table_formats": ["csv"]}
    config = toy.configuration(tmp_path, **written, output__table_numbers="comma")
    tables = release_of(execute(config)).root / "tables"
    path = tables / "level=county" / "total.csv"
    header, first, *_ = path.read_text(encoding="utf-8").splitlines()
    assert header.startswith('"geolevel";"geocode";')
    assert "." not in first
    commas = pa_csv.read_csv(
        path, parse_options=pa_csv.ParseOptions(delimiter=";"),
        convert_options=pa_csv.ConvertOptions(decimal_point=","),
    )  # fmt: skip
    run = config.read_text().replace("table_numbers: comma", "table_numbers: point")
    (tmp_path / "point.yaml").write_text(run.replace(str(tmp_path / "out"), str(tmp_path / "two")))
    points = release_of(execute(tmp_path / "point.yaml")).root / path.relative_to(tables.parent)
    assert commas.equals(pa_csv.read_csv(points))
    report = html.unescape((tables.parent / "report.html").read_text(encoding="utf-8"))
    assert 'sep=";", decimal=","' in report


@pytest.mark.parametrize("dataset", ["counts", "geography", "estimates/tables"])
def test_a_release_that_was_changed_gives_no_tables(
    das: Das, release: Path, tmp_path: Path, dataset: str
) -> None:
    folder = release if dataset == "geography" else product_in(release).root
    part = sorted((folder / dataset / "level=tract").glob("*.parquet"))[0]
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    words = ("--geolevel", "tract", "--to", tmp_path / "none")
    code, printed = das("tables", release, *words)
    assert code == DamageError.exit_code
    assert f"{part}: was changed after it was published" in printed
    part.unlink()
    code, printed = das("tables", release, *words)
    assert code == DamageError.exit_code
    assert f"{part}: is missing" in printed
    manifest = part.parent / "_manifest.json"
    manifest.write_text(manifest.read_text().replace('"rows"', '"rows" ', 1))
    code, printed = das("tables", release, *words)
    assert code == VerificationError.exit_code
    assert "is not the one the manifest of the release names" in printed
    assert not files(tmp_path / "none")


# --- the run file --------------------------------------------------------------------------------


def changed(folder: Path, **changes: Any) -> Path:
    toy.write_records(folder)
    return toy.configuration(folder, **changes)


def test_names_are_one_for_a_geounit(das: Das, tmp_path: Path) -> None:
    geounits = {"path": str(tmp_path / "blocks.csv"), "names": {"county": "county"}}
    config = changed(tmp_path, geography__geounits=geounits)
    rows = [(code, "North" if index != 5 else "South") for index, code in enumerate(toy.blocks())]
    lines = "".join(f"{code},{name}\n" for code, name in rows)
    (tmp_path / "blocks.csv").write_text(f"geocode,county\n{lines}")
    code, printed = das("validate", config)
    assert code == InputError.exit_code
    assert (
        "blocks.csv, row 7, column county: names a geounit otherwise than a row before" in printed
    )
    assert "got South; expected North" in printed
    document = yaml.safe_load(config.read_text())
    document["geography"]["geounits"]["names"] = {"village": "county"}
    config.write_text(yaml.safe_dump(document))
    code, printed = das("validate", config)
    assert code == ConfigError.exit_code
    assert "unknown geolevel: village" in printed


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"query": "sex", "geolevels": ["village"]}, "table sex: names an unknown geolevel"),
        ({"query": "sex", "geolevels": []}, "geolevels"),
        ({"query": "weight", "geolevels": ["tract"]}, "has no such attribute or recode"),
        ({"query": "sex", "levels": ["tract"]}, "levels"),
        ({"geolevels": ["tract"]}, "query"),
    ],
)
def test_tables_that_cannot_be_made_are_refused_by_validate(
    das: Das, tmp_path: Path, table: dict[str, Any], text: str
) -> None:
    code, printed = das("validate", changed(tmp_path, output__tables=["total", table]))
    assert code == ConfigError.exit_code or code == SchemaError.exit_code
    assert "output.tables" in printed
    assert text in printed


def test_a_table_of_more_geolevels_is_made_and_the_finalized_ones_stay(
    das: Das, origin: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(origin / "out", tmp_path / "out"))
    document = yaml.safe_load((origin / "run.yaml").read_text())
    document["products"]["persons"]["output"]["tables"] = ["total", "sex"]
    config = origin / "other.yaml"
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    try:
        code, printed = das("run", "--only", "solve", config, "--out", out)
        assert code == OutputError.exit_code
        assert "is finalized, and was made with other settings" in printed
        assert files(out / "release/products/persons/tables") == files(
            origin / "out/release/products/persons/tables"
        )
    finally:
        config.unlink()
