"""What reads releases needs neither Spark nor compilers nor Java, and says so where more is asked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import light_install, toy
from tests.builders.in_process import execute
from tests.builders.places import product_in
from tests.checkout import ROOT, checkout

Das = Callable[..., tuple[int, str]]

ASKED = (
    ("estimate", "--query", "sex * age", "--geolevel", "block", "--json"),
    ("estimate", "--covariance", "sex", "--geounit", "9900100000", "--json"),
    ("areas", "--geolevel", "county", "--table", "sex", "--json"),
    ("verify", "--quiet"),
    ("inspect", "--geounit", "99001", "--json"),
)
_PROGRAM = """
import sys
from topdown_das import open_release
release = open_release(sys.argv[1])
print(release.estimates("sex * age", "block").num_rows, release.verify()["datasets"])
print(*sorted(set(sys.modules) & set(sys.argv[2:])))
"""


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with everything that `das inspect --reports` draws."""
    folder = tmp_path_factory.mktemp("office")
    toy.write_records(folder)
    execute(toy.configuration(folder), figures=True)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return light_install.site_packages(tmp_path_factory.mktemp("site"))


@pytest.fixture
def release(origin: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(origin / "out" / "release", tmp_path / "published"))


def test_the_light_installation_is_light() -> None:
    names = light_install.needed()
    assert set(names).isdisjoint(light_install.HEAVY)
    assert {"numpy", "pyarrow", "pydantic", "matplotlib"} <= set(names)


def test_a_release_is_read_as_with_everything_installed(
    das: Das, release: Path, site: Path, tmp_path: Path
) -> None:
    asked = [(name, release, *options) for name, *options in ASKED]
    report = product_in(release).report.read_bytes()
    product_in(release).report.unlink()
    tables = ("tables", release, "--table", "sex", "--quiet", "--to", tmp_path / "tables")
    pages = [
        (name, release, option, tmp_path / name)
        for name, option in (("explore", "--output"), ("verify", "--certificate"))
    ]
    commands = [*asked, ("inspect", "--reports", release), tables, *pages]
    *read, drawn, written, explored, signed = light_install.das(site, commands, tmp_path)
    for (code, out, err), words in zip(read, asked, strict=True):
        assert code == 0, err
        assert (code, out + err) == das(*words)
    assert drawn[0] == 0, drawn
    assert product_in(release).report.read_bytes() == report
    assert written[0] == explored[0] == signed[0] == 0, (written, explored, signed)
    assert (tmp_path / "explore").read_text().startswith("<!DOCTYPE html>")
    for level in toy.LEVELS:
        assert (tmp_path / "tables" / f"level={level}" / "sex.csv").stat().st_size


def test_programs_read_it_too(release: Path, site: Path, tmp_path: Path) -> None:
    words = ("-c", _PROGRAM, str(release), *light_install.HEAVY)
    done = light_install.python(site, *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    rows, datasets = done.stdout.splitlines()[0].split()
    assert int(rows) == 6 * len(toy.blocks())
    assert int(datasets) > 10
    assert done.stdout.splitlines()[1] == ""


def test_what_makes_releases_is_refused_and_nothing_is_left(site: Path, tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    commands = [
        ("run", config),
        ("run", "--only", "measure", config),
        ("demo", tmp_path / "demo"),
        ("prepare",),
    ]
    for code, out, err in light_install.das(site, [*commands, ("validate", config)], tmp_path)[:-1]:
        assert code == 7, out + err
        assert "reads releases and makes none; got no numba, ortools, pyspark" in err
        assert "`pip install '.[run]'` in a clone" in err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_file_is_checked_all_the_same(site: Path, tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    ((code, out, err),) = light_install.das(
        site, [("validate", toy.configuration(tmp_path))], tmp_path
    )
    assert (code, err) == (0, "")
    assert "rho" in out


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_fresh_environment_with_the_light_lock_reads_a_release(
    release: Path, tmp_path: Path
) -> None:
    project = checkout(tmp_path)
    fresh = tmp_path / "fresh"
    subprocess.run([sys.executable, "-m", "venv", fresh], check=True)
    pip = [fresh / "bin" / "python", "-m", "pip", "install", "--quiet"]
    locked = ["--require-hashes", "-r", ROOT / "requirements" / "analysis.txt"]
    subprocess.run([*pip, *locked], check=True)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", tmp_path, project], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        assert "jobs/pipeline/report/readme.md.j2" in file.namelist()
    subprocess.run([*pip, "--no-deps", wheel], check=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SPARK", "JAVA"))}

    def das(*words: object) -> subprocess.CompletedProcess[str]:
        command = [fresh / "bin" / "das", *map(str, words)]
        return subprocess.run(
            command, cwd=tmp_path, env=kept, capture_output=True, text=True, check=False
        )

    for name, *options in (*ASKED, ("inspect", "--reports")):
        done = das(name, release, *options)
        assert done.returncode == 0, done.stderr
    refused = das("demo", tmp_path / "demo")
    assert refused.returncode == 7
    assert "'.[run]'" in refused.stderr
    listed = subprocess.run(
        [fresh / "bin" / "python", "-m", "pip", "list", "--format", "json"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert {one["name"] for one in json.loads(listed.stdout)}.isdisjoint(light_install.HEAVY)
