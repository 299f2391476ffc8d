"""Tables of detailed groups and of tribes, from the command at the head of each run file to the end."""

from __future__ import annotations

import csv
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.builders.places import release_of
from tests.checkout import ROOT

GROUPS = {"sf2": ("state", "race", 153), "aiansf": ("nation_part", "tribe", 1_539)}
Das = Callable[..., tuple[int, str]]


@pytest.fixture
def named(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A folder with the ready files, as that of a user."""
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    return str(request.param)


def generate(das: Das, name: str, persons: int) -> Path:
    path = Path(f"conf/run/{name}.yaml")
    typed = re.search(r"das (generate .*)", path.read_text())
    assert typed is not None
    code, said = das(*typed[1].split(), "--persons", persons)
    assert code == 0, said
    return path


@pytest.mark.parametrize("named", GROUPS, indirect=True)
def test_all_groups_are_measured_in_every_part_of_the_nation(here: None, das: Das, named: str):
    path = generate(das, named, 20)
    assert das("validate", path)[0] == 0
    code, said = das("run", path, "--only", "measure")
    assert code == 0, said
    geolevel, group, size = GROUPS[named]
    out = Path("build") / named
    (measured,) = (release_of(out).root / "measurements").glob(f"level={geolevel}")
    rows = pq.read_table(measured).to_pylist()
    found = Counter(
        len(row["answers"]) // row["width"] for row in rows if row["query"].endswith(f" * {group}")
    )
    assert {answers % size for answers in found} == {0}
    assert {*found.values()} == {2}


@pytest.mark.long
@pytest.mark.parametrize("named", GROUPS, indirect=True)
def test_tables_of_detailed_groups(here: None, das: Das, named: str):
    path = generate(das, named, 2_000)
    for command in ("run", "verify"):
        code, said = das(command, path)
        assert code == 0, said
    geolevel, group, size = GROUPS[named]
    release = release_of(Path("build") / named)
    shown = Counter[str]()
    (table,) = release.tables(geolevel).glob(f"sex-by-*-by-{group}.csv")
    with table.open() as file:
        for row in csv.DictReader(file):
            shown[row[group]] += int(row["count"])
    assert len(shown) == size
    cells = pq.read_table(release.microdata / "parquet", columns=[group])[group]
    assert +shown == Counter(cells.to_pylist())
