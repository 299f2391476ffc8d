"""A plain clone has all it needs: run files name data that is there or is made, benchmarks answer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from tests.checkout import ROOT, project_files

RUNS = sorted((ROOT / "conf" / "run").glob("*.yaml"))
BENCHES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "bench").rglob("*.py")
    if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
)
UPWARD = re.compile(r"(?<![\w.])((?:\.\./)+)|(?<!\w)parents\[(\d+)\]|\bROOT\.(parent)\b")
_HELP = """
import contextlib, io, json, runpy, sys, time

found = {}
for name in sys.argv[1:]:
    text, code = io.StringIO(), None
    kept, sys.argv = sys.argv, [name, "--help"]
    try:
        with contextlib.redirect_stdout(text):
            runpy.run_module(name, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    sys.argv = kept
    found[name] = (code, text.getvalue())
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, tuple[int | None, str]]:
    done = subprocess.run(
        [sys.executable, "-c", _HELP, *BENCHES],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_benchmarks_say_what_they_do(answers):
    silent = []
    for bench, (code, text) in answers.items():
        file = ROOT / f"{bench.replace('.', '/')}.py"
        purpose = " ".join(file.read_text(encoding="utf-8").split('"""', 2)[1].split())
        if code or not text.startswith("usage:") or purpose[:40] not in " ".join(text.split()):
            silent.append((bench, code, text))
    assert silent == []


def calls() -> Iterator[tuple[str, str, list[str]]]:
    """File, program and options of every benchmark that a document or a docstring calls."""
    for name in project_files():
        if name.suffix in {".md", ".py", ".yaml"}:
            text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
            for line in re.split(r"[\n`#]", text):
                found = re.search(r"python -m (bench(?:\.\w+)+)(.*)", line)
                if found:
                    yield (
                        str(name),
                        found.group(1),
                        re.findall(r"(?<!\w)--\w[\w-]*", found.group(2)),
                    )


def test_benchmarks_are_called_with_options_that_they_have(answers):
    """In the documents, in their own docstrings, and in comments."""
    called = list(calls())
    assert len(called) > 40
    wrong = [
        f"{file}: {bench} {option}"
        for file, bench, options in called
        for option in options or ["usage:"]
        if bench not in answers or option not in answers[bench][1]
    ]
    assert wrong == []


def outside(name: Path, text: str) -> Iterator[str]:
    """What in a file of the project leads above the project's root."""
    above = len(name.parts) - 1
    for hit in UPWARD.finditer(text):
        up, parents, root = hit.groups()
        if (up and len(up) // 3 > above) or (parents and int(parents) > above) or root:
            yield hit.group()


def test_nothing_points_outside_the_project():
    found = []
    for name in project_files():
        if name.suffix in {".parquet", ".png", ".xz", ".zip"} or name == Path(__file__).relative_to(
            ROOT
        ):
            continue
        if (ROOT / name).is_symlink():
            assert (ROOT / name).resolve().is_relative_to(ROOT), name
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        if name.suffix == ".md":  # blocks quote files of other folders
            text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
        found += [f"{name}: {hit}" for hit in outside(name, text)]
    assert not found


def test_a_way_outside_would_be_found_and_a_way_inside_is_none():
    ways = ("path: ../../../shared/x", "Path(__file__).resolve().parents[3]", "ROOT.parent / 'x'")
    file = Path("conf/run/x.yaml")
    assert all(list(outside(file, text)) for text in ways)
    assert not list(outside(file, "path: ../../build ... Path(__file__).resolve().parents[2]"))


def paths_of(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys and texts of all paths of inputs in a run file."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from paths_of(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for inner in value:
            yield from paths_of(inner, key)
    elif key.rpartition(".")[2] in {"path", "schema", "allocation"}:
        yield key, str(value)


def unmade(path: Path, tracked: set[Path]) -> Iterator[str]:
    """Paths of a run file that are neither in the project nor made as its heading says."""
    text = path.read_text(encoding="utf-8")
    heading = " ".join(re.match(r"(?:#.*\n)+", text).group().replace("#", " ").split())
    for key, written in paths_of(yaml.safe_load(text)):
        file = (path.parent / written).resolve().relative_to(ROOT)
        if file in tracked or (
            path.stem.endswith("-plan") and re.fullmatch(r"products\.\w+\.data\.path", key)
        ):  # never read
            continue
        made = file.parts[:2]
        commands = (f"build/{made[1]}", "make demo", "python -m bench.delaware_group_quarters")
        if made[0] != "build" or not any(command in heading for command in commands):
            yield f"{path.name}: {key}: who makes {written}?"


def test_run_files_name_data_that_are_there_or_say_how_to_make_them():
    tracked = {*project_files()}
    assert len(RUNS) > 20
    assert [said for path in RUNS for said in unmade(path, tracked)] == []


def test_the_real_data_are_small_and_as_described():
    folder = ROOT / "tests" / "data"
    text = (folder / "README.md").read_text(encoding="utf-8")
    real = (path for path in folder.iterdir() if path.is_file() and path.suffix != ".md")
    files = {path.name: path for path in real}
    rows = dict(re.findall(r"^\| `([\w.]+)` \|.*\| ([\d,]+) \w+ \|", text, re.MULTILINE))
    assert {*rows} == {*files}
    assert sum(path.stat().st_size for path in files.values()) < 1_100_000
    for name, path in files.items():
        if path.suffix == ".parquet":
            assert f"{pq.read_metadata(path).num_rows:,}" == rows[name], name
    for state in ("ri", "hi", "de", "cook"):
        table = pq.read_table(files[f"{state}_2010_block.parquet"], columns=["geoid", "pop"])
        tracts = {code[:11] for code in table.column("geoid").to_pylist()}
        line = next(line for line in text.splitlines() if f"`{state}_2010_block.parquet`" in line)
        assert f"{sum(table.column('pop').to_pylist()):,} persons" in line
        assert f"{len(tracts)} tracts" in line
