"""A release that was copied elsewhere, without run file, run folder or data, is used by itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from das.errors import ConfigError
from jobs.config.released import load_release
from tests.builders import toy
from tests.builders.in_process import execute
from tests.builders.units import section, write_units

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
            privacy__grant="a secret name",
            units=section(folder),
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


def test_a_geounit_is_inspected(das: Das, origin: Path, release: Path) -> None:
    words = ("--geocode", "9900100000", "--json")
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
        assert "whose data are not here; use the run file that made it" in printed
    with pytest.raises(ConfigError, match="whose data are not here"):
        _ = load_release(release).last.config.input


def test_what_is_no_release_is_named(das: Das, release: Path, tmp_path: Path) -> None:
    code, printed = das("estimate", tmp_path)
    assert code != 0
    assert "is no folder of a finished release; expected OUT/release" in printed
    code, printed = das("estimate", release, "--solution", "other")
    assert code != 0
    assert "go with a run file" in printed
    shutil.rmtree(release / "configuration")
    code, printed = das("estimate", release)
    assert code != 0
    assert "releases of older versions need their run file" in printed
