"""Releases of neighboring data differ in noisy answers alone: no name, mode, size or fact tells.

Measured with one seed, so that whatever else depends on the data would show.
"""

from __future__ import annotations

import difflib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs.pipeline.config.load import load_run
from jobs.pipeline.run import MEASURING, do_stages, open_job
from jobs.pipeline.tasks.progress import Reporter
from tests.builders import in_process, toy
from tests.fuzz.case import write_csv

Rows = list[tuple[str, str, str]]
_SAID = ("geocode", "query", "mechanism", "parameter", "variance", "positions")
# Digests, sizes and tokens follow from answers, whose bytes are packed as they are large.
_FOLLOWS = re.compile(
    r'part-[0-9a-f]{32}|"(?:sha256|previous|token)": "[0-9a-f]*"|"bytes": \d+|"run": "[0-9a-f]*"'
)


def moved(rows: Rows) -> Rows:
    """One record moves into a county where nobody lives."""
    return [("9900300001", "male", "65_and_over"), *rows[1:]]


def changed(rows: Rows) -> Rows:
    code, sex, age = rows[-1]
    return [*rows[:-1], (code, "female" if sex == "male" else "male", age)]


def reversed_(rows: Rows) -> Rows:
    return rows[::-1]


def measured(folder: Path, rows: Rows, **changes: object) -> Path:
    folder.mkdir(exist_ok=True)
    toy.write_records(folder)
    write_csv(folder / "records.csv", [("block", "sex", "age"), *rows])
    resolved = load_run(toy.configuration(folder, **changes))
    tasks = in_process.tasks_of(resolved.config)
    with open_job(resolved, Reporter(quiet=True), tasks=tasks) as job:
        do_stages(job, MEASURING)
    return folder / "out" / "release"


def files(release: Path) -> dict[str, Path]:
    """Files by their names; parts of a dataset by their numbers, in the order of its manifest."""
    found: dict[str, Path] = {}
    for path in sorted(path for path in release.rglob("*") if path.is_file()):
        manifest, name = path.parent / "_manifest.json", path.name
        if manifest.exists() and path != manifest:
            parts = [part["file"] for part in json.loads(manifest.read_text())["files"]]
            name = f"part {parts.index(name)}"
        found[str(path.parent.relative_to(release) / name)] = path
    return found


def described(path: Path) -> object:
    """All of a file but answers and what follows from them."""
    mode = path.stat().st_mode
    if path.suffix != ".parquet":
        return mode, _FOLLOWS.sub("#", path.read_text())
    file = pq.ParquetFile(path)
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    columns = [
        [(g.column(c).path_in_schema, g.column(c).encodings) for c in range(g.num_columns)]
        for g in groups
    ]
    kept = [name for name in file.schema_arrow.names if name in _SAID]
    rows = file.read(columns=kept).to_pylist()
    return mode, [g.num_rows for g in groups], columns, rows


@pytest.mark.parametrize("neighbor", [moved, changed, reversed_])
@pytest.mark.parametrize(
    "changes", [{}, {"privacy__on_demand_queries": ["detailed"], "solve": {"fit_to": "level"}}]
)
def test_nothing_but_answers_differs(
    neighbor: Callable[[Rows], Rows], changes: dict[str, object], tmp_path: Path
) -> None:
    rows = toy.write_records(tmp_path)
    one = measured(tmp_path / "run", rows, **changes)
    first = tmp_path / "first"
    shutil.copytree(one, first)
    shutil.rmtree(tmp_path / "run")
    other = measured(tmp_path / "run", neighbor(rows), **changes)
    before, after = files(first), files(other)
    assert before.keys() == after.keys()
    assert len(before) > 15
    for name, path in before.items():
        told, now = described(path), described(after[name])
        assert told == now, "\n".join(difflib.ndiff([str(told)], [str(now)]))
    differing = [n for n, path in before.items() if path.read_bytes() != after[n].read_bytes()]
    assert any("measurements" in n and "part " in n for n in differing) == (
        neighbor is not reversed_
    )


def test_a_fact_that_depends_on_the_data_is_seen(tmp_path: Path, monkeypatch) -> None:
    """How many persons there are, told by the size of a file."""
    from jobs.pipeline.confidential import draw

    publish = draw.publish

    def telling(dataset: Path, parts: object, facts: dict[str, object]) -> None:
        n = (tmp_path / "run" / "records.csv").read_text().count("female")
        publish(dataset, parts, {**facts, "females": n})

    monkeypatch.setattr(draw, "publish", telling)
    rows = toy.write_records(tmp_path)
    first = tmp_path / "first"
    shutil.copytree(measured(tmp_path / "run", rows), first)
    shutil.rmtree(tmp_path / "run")
    after = files(measured(tmp_path / "run", changed(rows)))
    assert any(described(path) != described(after[name]) for name, path in files(first).items())
