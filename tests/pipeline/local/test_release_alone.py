"""A release that was copied elsewhere, without run file, run folder or data, is used by itself."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from das.errors import ConfigError, SchemaError
from jobs.analysis.measurements import read_measurements
from jobs.pipeline.config.released import load_release
from jobs.pipeline.documents.codebook import Codebook
from jobs.pipeline.documents.document import read_document
from jobs.pipeline.language import catalogue
from tests.builders import toy
from tests.builders.in_process import execute
from tests.builders.places import product_in
from tests.builders.units import section, write_units
from topdown_das import DasError, Release, open_release

Das = Callable[..., tuple[int, str]]

ASKED = (
    ("--query", "sex * age", "--geolevel", "county"),
    ("--query", "prefix(age)", "--geounit", "9900100000", "--confidence", "0.95"),
    ("--query", "total", "--covariance", "sex", "--geounit", "99"),
)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Persons and units, finished in `out`, with real noise."""
    folder = tmp_path_factory.mktemp("office")
    toy.write_records(folder)
    write_units(folder)
    execute(
        toy.configuration(
            folder,
            privacy__randomness={"source": "operating_system"},
            privacy__budget_id="a secret name",
            units=section(folder),
            about={"title": "A census", "licence": "CC BY 4.0"},
        )
    )
    return folder


@pytest.fixture
def release(origin: Path, tmp_path: Path) -> Path:
    """A copy of the release, under another name, beside nothing."""
    return Path(shutil.copytree(origin / "out" / "release", tmp_path / "published"))


def run_file(origin: Path) -> Path:
    return next(
        path
        for path in origin.glob("*.yaml")
        if "products" in path.read_text() or "schema:" in path.read_text()
    )


@pytest.mark.parametrize("words", ASKED)
def test_estimates_are_those_of_the_office(
    das: Das, origin: Path, release: Path, words: tuple[str, ...]
) -> None:
    code, wanted = das("estimate", run_file(origin), *words, "--json")
    assert code == 0, wanted
    assert das("estimate", release, *words, "--json") == (0, wanted)


def test_areas_of_a_file(das: Das, release: Path, tmp_path: Path) -> None:
    areas = tmp_path / "areas.csv"
    areas.write_text("".join(f"{code[2:5]},{code}\n" for code in toy.blocks()))
    code, printed = das("estimate", release, "--area", areas, "--json")
    assert code == 0, printed
    assert {row["area"] for row in json.loads(printed)} == {"001", "003", "005"}


def test_it_is_verified_as_at_the_office(das: Das, origin: Path, release: Path) -> None:
    code, wanted = das("verify", run_file(origin))
    assert code == 0, wanted
    assert das("verify", release) == (0, wanted)


@pytest.mark.parametrize("name", ["run.yaml", "persons-schema.yaml", "units-allocation.yaml"])
def test_a_changed_configuration_is_found(das: Das, release: Path, name: str) -> None:
    path = release / "configuration" / name
    path.write_text(path.read_text() + "\n# looked at\n")
    code, printed = das("verify", release)
    assert code != 0
    assert f"configuration/{name}" in printed


@pytest.mark.parametrize(
    "name",
    ["account.json", "products/persons/ledger.jsonl", "geography/level=block/_manifest.json"],
)
def test_a_file_that_is_gone_is_named(das: Das, release: Path, name: str) -> None:
    (release / name).unlink()
    code, printed = das("verify", release)
    assert code in (2, 3), printed
    assert name.removesuffix("/_manifest.json") in printed
    assert "{" not in printed


# --- for programs --------------------------------------------------------------------------------


def test_a_program_gets_what_commands_print(das: Das, release: Path, tmp_path: Path) -> None:
    opened = open_release(str(release))
    assert isinstance(opened, Release)
    areas = tmp_path / "areas.csv"
    areas.write_text("".join(f"{code[2:5]},{code}\n" for code in toy.blocks()))
    named = {area: [code for code in toy.blocks() if code[2:5] == area] for area in ("001", "003")}
    asked = (
        (ASKED[0], opened.estimates("sex * age", "county")),
        (ASKED[1], opened.estimates("prefix(age)", geounits=["9900100000"], confidence=0.95)),
        (ASKED[2], opened.covariance("total", "99", other="sex")),
        (("--area", areas, "--positive"), opened.estimates("total", areas=areas, positive=True)),
    )
    for words, table in asked:
        code, printed = das("estimate", release, *words, "--json")
        assert code == 0, printed
        assert table.to_pylist() == json.loads(printed)
    both = opened.estimates("total", areas=named, geounits=["99"], simultaneous=True)
    assert both["area"].to_pylist() == ["99", "001", "003"]
    assert das("verify", release) == (0, json.dumps(opened.verify()) + "\n")


@pytest.mark.parametrize("query", ["sex", "age[65+] * sex"])  # one with stored estimates, one not
def test_a_program_gets_the_tables_that_are_written(
    das: Das, release: Path, tmp_path: Path, query: str
) -> None:
    words = ("--table", query, "--geolevel", "tract", "--format", "parquet", "--to", tmp_path)
    code, printed = das("tables", release, *words)
    assert code == 0, printed
    (written,) = (tmp_path / "level=tract").iterdir()
    table = open_release(release).table(query, "tract")
    assert table.to_pylist() == pq.read_table(written, partitioning=None).to_pylist()
    assert table["sex"].type == "string"


def test_a_program_gets_noisy_answers_with_their_noise(release: Path) -> None:
    opened = open_release(release)
    assert "sex" in opened.measured("tract")
    table = opened.measurements("sex", "tract")
    answers = read_measurements(product_in(release).root, "tract", "sex")
    assert table["answer"].to_pylist() == answers.answers.ravel().tolist()
    assert table["label"].to_pylist() == [*answers.labels] * len(answers.geocodes)
    first = table.slice(0, 1).to_pylist()[0]
    noise = answers.mechanisms[0]
    assert (first["geocode"], first["query"]) == (answers.geocodes[0], "sex")
    assert (first["mechanism"], first["parameter"]) == (noise.kind, str(noise.parameter))
    assert first["variance"] == noise.variance()
    assert table["geocode"].type == "string"


def test_a_program_is_told_what_a_release_is_of(release: Path) -> None:
    opened = open_release(release)
    assert (opened.name, opened.records, opened.products) == (
        "toy",
        "persons",
        ("units", "persons"),
    )
    assert opened.geolevels == tuple(toy.LEVELS)
    assert [attribute.name for attribute in opened.schema.attributes] == ["sex", "age"]
    assert opened.geounits("block")["geocode"].to_pylist() == toy.blocks()
    assert opened.manifest.not_for_release is False
    assert "'toy' of persons: state, county, tract, block" in repr(opened)
    units = open_release(release, "units")
    assert units.records == "units"
    assert units.estimates("total", "state").num_rows == 1


def test_what_is_not_there_is_named_for_programs(release: Path, tmp_path: Path) -> None:
    opened = open_release(release)
    for ask, error, said in (
        (lambda: opened.table("total", "parish"), ConfigError, "has no such geolevel; got parish"),
        (lambda: opened.geounits("parish"), ConfigError, "has no such geolevel; got parish"),
        (lambda: opened.estimates("total", "parish"), ConfigError, "unknown geolevel"),
        (lambda: opened.estimates("total"), ConfigError, "names no area"),
        (lambda: opened.estimates("colour", "county"), SchemaError, "colour"),
        (lambda: opened.measurements("age", "tract"), DasError, "lacks a query; got age"),
        (lambda: open_release(release, "cars"), ConfigError, "product: is unknown; got cars"),
        (lambda: open_release(tmp_path), DasError, "is not the folder of a finished release"),
        (lambda: open_release("ftp://there/x"), ConfigError, "no kind of store"),
    ):
        with pytest.raises(error, match=said):
            ask()


def test_areas_of_a_file_that_are_odd_are_warned_of(release: Path, tmp_path: Path) -> None:
    areas = tmp_path / "areas.csv"
    areas.write_text(f"north,{toy.blocks()[0]}\n")
    with pytest.warns(UserWarning, match="geounits of block in no area"):
        open_release(release).estimates("total", areas=areas)


def test_reports_go_to_another_folder_and_leave_the_release_as_it_is(
    das: Das, release: Path, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in release.rglob("*") if path.is_file()}
    own = sorted(path.relative_to(release) for path in release.rglob("report.html"))
    code, printed = das("inspect", "--reports", release, "--to", tmp_path / "mine")
    assert code == 0, printed
    assert len(own) == 2  # of persons and of units
    written = tmp_path / "mine"
    assert sorted(path.relative_to(written) for path in written.rglob("*.html")) == own
    assert {path: path.read_bytes() for path in release.rglob("*") if path.is_file()} == before
    assert das("inspect", "--reports", release)[0] == 0
    for path in own:
        assert (written / path).read_bytes() == (release / path).read_bytes()
    assert das("inspect", "--reports", release, "--to", written)[0] == 0  # its own are replaced
    (written / own[0]).write_text("notes of mine")
    code, printed = das("inspect", "--reports", release, "--to", written)
    assert code == 2
    assert "is another file and is not written over" in printed


def test_of_a_run_public_reports_alone_go_to_another_folder(
    das: Das, origin: Path, tmp_path: Path
) -> None:
    code, printed = das("inspect", "--reports", origin / "out", "--to", tmp_path / "mine")
    assert code == 0, printed
    assert "CONFIDENTIAL" not in printed
    assert len([*(tmp_path / "mine").rglob("*.html")]) == 2


def _interval(table: pa.Table) -> np.ndarray:
    """float64[rows]: half widths of the intervals of estimates, in standard errors."""
    columns = ("estimate_upper", "estimate", "standard_error")
    upper, estimate, error = (table[name].to_numpy() for name in columns)
    return np.array((upper - estimate)[error > 0] / error[error > 0])


@pytest.mark.parametrize("query", ["sex", "age[65+] * sex"])  # one with stored estimates, one not
def test_tables_have_intervals_of_the_confidence_asked_for(
    das: Das, release: Path, tmp_path: Path, query: str
) -> None:
    words = ("--table", query, "--geolevel", "tract", "--format", "parquet", "--to", tmp_path)
    code, printed = das("tables", release, *words, "--confidence", "0.99")
    assert code == 0, printed
    (written,) = (tmp_path / "level=tract").iterdir()
    table = pq.read_table(written, partitioning=None)
    assert np.allclose(_interval(table), 2.5758, atol=0.01)
    opened = open_release(release)
    assert opened.table(query, "tract", confidence=0.99).to_pylist() == table.to_pylist()
    assert np.allclose(_interval(opened.table(query, "tract")), 1.6449, atol=0.01)


@pytest.mark.parametrize("confidence", ["0.5", "1", "95"])
def test_a_confidence_of_no_interval_is_refused_before_anything_is_written(
    das: Das, release: Path, tmp_path: Path, confidence: str
) -> None:
    folder = tmp_path / "mine"
    code, printed = das("tables", release, "--to", folder, "--confidence", confidence)
    assert code == ConfigError.exit_code
    assert "confidence: is out of range" in printed
    assert not folder.exists()


def test_covariances_are_the_upper_triangle_of_one_query_and_all_pairs_of_two(
    release: Path,
) -> None:
    opened = open_release(release)
    ages, sexes = ("under_18", "18_to_64", "65_and_over"), ("female", "male")
    one = opened.covariance("age", "99").to_pylist()
    assert [(row["label"], row["other_label"]) for row in one] == [
        (first, second) for i, first in enumerate(ages) for second in ages[i:]
    ]
    errors = opened.estimates("age", geounits=["99"])["standard_error"].to_numpy()
    variances = [row["covariance"] for row in one if row["label"] == row["other_label"]]
    assert np.allclose(variances, errors**2)
    two = opened.covariance("age", "99", other="sex").to_pylist()
    assert [(row["label"], row["other_label"]) for row in two] == [
        (first, second) for first in ages for second in sexes
    ]


def test_a_release_of_a_newer_format_is_refused_by_name(das: Das, release: Path) -> None:
    path = release / "manifest.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 4', 1))
    with pytest.raises(DasError, match="is of a format that this version does not read"):
        open_release(release)
    for words in (("estimate",), ("verify",), ("inspect", "--reports")):
        code, printed = das(*words, release)
        assert code == 2
        assert "is of a format that this version does not read; expected 1" in printed


def test_a_damaged_manifest_is_restored_from_a_copy(origin: Path, release: Path) -> None:
    path = release / "manifest.json"
    for text in (path.read_text()[:-9], "[]", ""):
        path.write_text(text)
        with pytest.raises(DasError, match=r"manifest\.json") as caught:
            open_release(release)
        assert "restore it from a copy of the release" in str(caught.value)
    shutil.copy2(origin / "out" / "release" / "manifest.json", path)
    assert open_release(release).name == "toy"


def test_a_release_of_a_survey_is_refused_by_name(das: Das, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": 1, "kind": "survey"}')
    for command in ("areas", "tables"):
        code, printed = das(command, tmp_path)
        assert code == 2
        assert "is the release of a survey, which has no geounits" in printed


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "products/units/README.md",
        "products/persons/codebook.json",
        "schemas/manifest.schema.json",
    ],
)
def test_a_changed_or_missing_file_is_found(release: Path, name: str) -> None:
    path = release / name
    path.write_text(path.read_text() + "\n")
    with pytest.raises(DasError, match=f"{name}: is not the one the manifest"):
        open_release(release).verify()
    path.unlink()
    with pytest.raises(DasError, match=f"{name}: is missing"):
        open_release(release).verify()


# --- for people ----------------------------------------------------------------------------------


def test_the_readme_says_what_lies_where_and_its_example_runs(
    release: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (release / "README.md").read_text("utf-8")
    assert page.startswith("# A census\n")
    for path in release.iterdir():
        assert path.name in ("README.md", "products") or f"`{path.name}" in page, path
    for records in ("persons", "units"):
        folder = product_in(release, records).root
        assert f"(products/{records}/README.md)" in page
        text = (folder / "README.md").read_text("utf-8")
        assert text.startswith(f"# A census, {records}\n")
        assert f"Counts of {records} by" in text
        assert "Licence: CC BY 4.0" in text
        assert "NOT FOR RELEASE" not in text
        for dataset in {path.parent for path in folder.glob("*/level=*/_manifest.json")}:
            assert f"| `{dataset.parent.name}/level=…` |" in text
        for path in folder.iterdir():
            assert not path.is_file() or f"| `{path.name}` |" in text, path
        assert "| `../../geography/level=…` |" in text
        example = text.split("```python\n")[1].split("```")[0]
        monkeypatch.chdir(folder)
        exec(compile(example, "README.md", "exec"), {})
        assert "geocode: string" in capsys.readouterr().out


def test_the_codebook_says_what_codes_stand_for(release: Path) -> None:
    codebook = read_document(Codebook, product_in(release).codebook, remedy="")
    sex, age = codebook.attributes
    assert (sex.levels, age.levels) == (toy.SEX, toy.AGE)
    assert [level.name for level in codebook.geolevels] == toy.LEVELS
    assert codebook.geolevels[-1].geounits == len(toy.blocks())
    (adults,) = (one for one in codebook.recodes if one.name == "votingage")
    assert [group.levels for group in adults.groups] == [toy.AGE[:1], toy.AGE[1:]]
    (asked,) = (one for one in codebook.queries if one.query == "sex")
    assert asked.labels == toy.SEX
    assert asked.tabulated
    page = product_in(release).codebook_page.read_text("utf-8")
    for label in (*toy.SEX, *toy.AGE, "votingage"):
        assert f"| `{label}` |" in page or f"### `{label}`" in page
    for dataset in codebook.datasets:
        assert f"### `{dataset.path}`" in page


def test_another_solution_speaks_portuguese(
    here: None, das: Das, origin: Path, tmp_path: Path
) -> None:
    """The language costs nothing: measurements stay, and no English message is left on a page."""
    config = tmp_path / "pt.yaml"
    config.write_text(run_file(origin).read_text().replace("about:\n", "about:\n  language: pt\n"))
    ledger = product_in(origin / "out" / "release").ledger.read_bytes()
    code, printed = das("run", config, "--only", "solve", "--solution", "pt")
    assert code == 0, printed
    release = origin / "out" / "solutions" / "pt"
    folder = product_in(release).root
    assert product_in(release).ledger.read_bytes() == ledger
    certificate, explored = tmp_path / "certificate.html", tmp_path / "explore.html"
    code, printed = das("verify", release, "--certificate", certificate)
    assert code == 0, printed
    assert "datasets" in printed  # what commands print stays English
    assert das("explore", release, "--output", explored)[0] == 0
    pages = [certificate, explored, folder / "report.html", folder / "README.md"]
    for page in [*pages, release / "README.md", folder / "codebook.md"]:
        written = page.read_text("utf-8")
        assert '<html lang="pt">' in written or page.suffix == ".md"
        shown = re.sub(
            r"<(script|style).*?</\1>|<[^>]*>", "", html.unescape(written), flags=re.DOTALL
        )
        shown = " ".join(shown.split())
        assert "geográfic" in shown
        for english, other in catalogue("pt").items():
            pieces = map(str.strip, re.split(r"%\(\w+\)s|\{\w+\}|%%|</?\w+>", english))
            left = [one for one in pieces if one.count(" ") > 1 and one not in other]
            assert not [one for one in left if one in shown], page
    readme = (folder / "README.md").read_text("utf-8")
    headings = re.findall(r"^## (.+)$", readme, re.MULTILINE)
    linked = {*re.findall(r"\]\(#([^)]+)\)", readme)}
    assert linked <= {heading.lower().replace(" ", "-") for heading in headings}


def test_a_geounit_is_inspected(das: Das, origin: Path, release: Path) -> None:
    words = ("--geounit", "9900100000", "--json")
    code, wanted = das("inspect", origin / "out", *words)
    assert code == 0, wanted
    assert das("inspect", release, *words) == (0, wanted)
    code, printed = das("inspect", release, "--json")
    assert code == 0, printed
    assert "counts/level=block" in printed


def test_nothing_of_the_office_is_in_it(origin: Path, release: Path) -> None:
    files = [path for path in (release / "configuration").glob("*") if path.is_file()]
    assert len(files) == 5
    for path in files:
        text = path.read_text()
        assert str(origin) not in text
        assert "a secret name" not in text
        assert "records.csv" not in text
        assert path.stat().st_mode & 0o444 == 0o444


def test_the_seed_of_a_test_stays_at_the_office(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    execute(toy.configuration(tmp_path))
    release = tmp_path / "out" / "release"
    document = yaml.safe_load((release / "configuration" / "run.yaml").read_text())
    assert "randomness" not in document["privacy"]
    assert load_release(release).plan.not_for_release


def test_it_runs_nothing(das: Das, release: Path) -> None:
    path = release / "configuration" / "run.yaml"
    for command in ("validate", "run", "account"):
        code, printed = das(command, path)
        assert code != 0
        assert (
            "whose data are not here; use the run file from which the release was made" in printed
        )
    with pytest.raises(ConfigError, match="whose data are not here"):
        _ = load_release(release).last.config.input


def test_what_is_no_release_is_named(das: Das, release: Path, tmp_path: Path) -> None:
    code, printed = das("estimate", tmp_path)
    assert code != 0
    assert "is not the folder of a finished release; expected OUT/release" in printed
    code, printed = das("estimate", release, "--solution", "other")
    assert code != 0
    assert "goes with a run file or a run folder" in printed
    shutil.rmtree(release / "configuration")
    code, printed = das("estimate", release)
    assert code != 0
    assert "not that of a product of it" in printed
