"""What the public report says of the files of its release, on every kind of release."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from jobs.pipeline.documents.document import json_of, read_document
from jobs.pipeline.documents.evaluation import Evaluation
from jobs.pipeline.documents.manifest import CensusManifest, Manifest
from jobs.pipeline.documents.summary import read_summary
from jobs.pipeline.report import datasets
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.files import json_text
from tests.builders import toy, units
from tests.builders.in_process import execute
from tests.builders.places import product_in, truth_of

SECRET = {"privacy__randomness": {"source": "operating_system"}}
LEVELS = [{"name": n, "digits": d} for n, d in (("whole", 0), ("ward", 7), ("house", 10))]
NARROW = [{"name": n, "digits": d} for n, d in (("land", 0), ("house", 10))]


def allocation(folder: Path, levels: list[str], queries: Mapping[str, str]) -> str:
    """Write an allocation with equal shares of the geolevels."""
    shares = {name: {"share": f"1/{len(levels)}", "queries": dict(queries)} for name in levels}
    path = folder / "allocation.yaml"
    path.write_text(json.dumps({"name": "own", "levels": shares}))
    return str(path)


def persons_only(folder: Path) -> dict[str, Any]:
    return {}


def with_units_and_given(folder: Path) -> dict[str, Any]:
    with_units = units.section(folder)
    with_units["output"]["microdata"] = ["csv"]
    total = folder / "totals.csv"
    people = [line.split(",")[0] for line in (folder / "records.csv").read_text().splitlines()[1:]]
    counties = {code[:5]: 0 for code in toy.blocks()}
    for code in people:
        counties[code[:5]] += 1
    lines = "".join(f"{code},{count}\n" for code, count in counties.items())
    total.write_text(f"geocode,persons\n{lines}")
    table = {"path": str(total), "columns": {"total": "persons"}}
    cap = {
        "name": "cap",
        "row": [{"cells": {"sex": ["male"]}}],
        "geolevel": "tract",
        "at_most": 999,
    }
    stated = [{"query": "total", "geolevel": "county", "table": table}, cap]
    return {"units": with_units, "invariants": stated, **SECRET}


def lazy_and_bare(folder: Path) -> dict[str, Any]:
    """No estimates, microdata, tables, invariants, public list or county."""
    shares = {"detailed": "1/2", "sex": "1/4", "total": "1/4"}
    return {
        **SECRET,
        "privacy__on_demand_queries": ["detailed", "sex"],
        "privacy__allocation": allocation(folder, ["whole", "ward", "house"], shares),
        "solve": {"fit_to": "level"},
        "geography": {"levels": LEVELS},
        "output__microdata": [],
        "output__tables": [],
        "invariants": [],
    }


def narrow(folder: Path) -> dict[str, Any]:
    """Two geolevels, one query, microdata as CSV only, geocodes that begin with zeros."""
    for name in ("records.csv", "blocks.csv"):
        path = folder / name
        path.write_text(path.read_text().replace("99", "00"))
    return {
        "privacy__allocation": allocation(folder, ["land", "house"], {"detailed": "1"}),
        "privacy__definition": "pure",
        "privacy__rho": None,
        "privacy__epsilon": "3",
        "geography__levels": NARROW,
        "output__microdata": ["csv"],
        "output__tables": ["total", "sex * age"],
        "invariants": [],
    }


def planned(folder: Path) -> dict[str, Any]:
    """Queries that a planner chose."""
    workload = {"method": "hdmm", "tables": {"detailed": "1", "sex": "1"}}
    shares = {name: {"share": "1/4", "workload": workload} for name in toy.LEVELS}
    path = folder / "planned.yaml"
    path.write_text(json.dumps({"name": "planned", "levels": shares}))
    return {"privacy__allocation": str(path), "output__tables": ["total", "age"]}


_ALL = (persons_only, with_units_and_given, lazy_and_bare, narrow, planned)
KINDS = {one.__name__: one for one in _ALL}


@pytest.fixture(scope="module", params=KINDS)
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release of each kind."""
    folder = tmp_path_factory.mktemp(request.param)
    toy.write_records(folder)
    units.write_units(folder)
    return (
        execute(toy.configuration(folder, **KINDS[request.param](folder)), figures=True) / "release"
    )


def pages(release: Path) -> Iterator[tuple[Path, str]]:
    """The public reports of a release with the folder each is about."""
    for path in sorted(release.glob("products/*/report.html")):
        yield path.parent, path.read_text("utf-8")


def described(page: str) -> dict[str, str]:
    """What section 5 says of each path, as text."""
    section = re.search(r'<dl class="files">(.*?)</dl>', page, re.DOTALL)
    assert section is not None
    found = re.findall(r"<dt><code>(.*?)</code></dt>\s*<dd>(.*?)</dd>", section[1], re.DOTALL)
    return {html.unescape(path): said for path, said in found}


def test_every_dataset_and_file_is_described_and_no_other(release: Path) -> None:
    for folder, page in pages(release):
        kinds = {re.sub(r"level=.*", "level=…", path) for path in datasets_of(folder)}
        shared = [
            path for path in release.iterdir() if path.name not in ("README.md", "manifest.json")
        ]
        shared += [*release.glob("configuration/*"), *release.glob("schemas/*")]
        named = {path.name for path in folder.iterdir() if path.is_file()}
        named |= {
            f"../../{path.relative_to(release)}"
            for path in shared
            if path.is_file() and path.name != "NOT_FOR_RELEASE.txt"
        }
        assert set(described(page)) == kinds | named


def datasets_of(folder: Path) -> list[str]:
    """Paths from the folder of a product to its datasets, and to those that products share."""
    own = [str(path.parent.relative_to(folder)) for path in folder.rglob("_manifest.json")]
    shared = (folder / "../../geography").glob("*/_manifest.json")
    return [*own, *(f"../../geography/{path.parent.name}" for path in shared)]


def test_every_kind_of_dataset_is_exact_or_noisy_or_something_else() -> None:
    named = [path for paths in datasets._TEXTS["uses"].values() for path in paths]
    assert len(named) == len({*named})
    assert {*named} < {*datasets._ROWS}


def test_every_file_says_what_it_is_for(release: Path) -> None:
    for _, page in pages(release):
        assert all(len(said.strip()) >= len("This page.") for said in described(page).values())


def test_every_column_is_described_and_no_other(release: Path) -> None:
    for folder, page in pages(release):
        said = described(page)
        for path in datasets_of(folder):
            dataset, kind = folder / path, re.sub(r"level=.*", "level=…", path)
            lines = re.findall(r"<li><code>(.*?)</code> \((.*?)\)(.*?)</li>", said[kind])
            names = [html.unescape(name).removesuffix(": …") for name, _, _ in lines]
            assert all(len(meaning) > 10 for _, _, meaning in lines), (kind, lines)
            parts = Dataset.open(dataset).parts
            every = {name for part in parts for name in columns(dataset / part.file)}
            for part in parts:
                held = columns(dataset / part.file)
                if ": …" in said[kind]:
                    held = list(dict.fromkeys(name.partition(":")[0] for name in held))
                level = dataset.name.removeprefix("level=")
                absent = {
                    html.unescape(name)
                    for name, _, meaning in lines
                    if "Only at" in meaning and level not in meaning.partition("Only at")[2]
                }
                there = [name for name in names if name not in absent]
                if kind.startswith("tables"):  # of several, each with columns of its own
                    assert set(there) == every, kind
                    there = [name for name in there if name in held]
                assert there == held, kind


def columns(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        return list(pq.read_schema(path).names)
    return list(pd.read_csv(path, nrows=0).columns)


def run_example(folder: Path, page: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the example of a report in its folder; returns what it made."""
    found = re.search(r"<pre><code>(.*?)</code></pre>", page, re.DOTALL)
    assert found is not None
    source = html.unescape(found[1])
    monkeypatch.chdir(folder)
    made: dict[str, Any] = {}
    exec(compile(source, "example", "exec"), made)
    return {name: value for name, value in made.items() if isinstance(value, pd.DataFrame)}


def test_the_example_reads_what_there_is(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, page in pages(release):
        made = run_example(folder, page, monkeypatch)
        wanted = {"noisy", "counts"}
        # Beside on-demand queries there may be estimates for areas alone, and of no table.
        estimates = (folder / "estimates" / "tables").rglob("*.parquet")
        wanted |= {"estimates"} if any(pq.read_table(f).num_rows for f in estimates) else set()
        wanted |= {"table"} if any((folder / "tables").rglob("*.parquet")) else set()
        if (folder / "microdata").exists():
            wanted |= {json.loads((folder / "manifest.json").read_text())["records"]}
        assert set(made) == wanted
        for name, frame in made.items():
            assert len(frame), name
            assert all(isinstance(code, str) for code in frame["geocode"]), name
        assert set(made["noisy"].columns) >= {"geocode", "query", "answers", "variance", "label"}


def test_the_example_keeps_leading_zeros(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = {one["geolevel"]: one["digits"] for one in manifest(release)["geography"]}
    for folder, page in pages(release):
        for name, frame in run_example(folder, page, monkeypatch).items():
            assert frame["geocode"].str.len().nunique() == 1, name
            assert frame["geocode"].str.len().iloc[0] in digits.values(), name


def test_the_example_of_the_readme_runs(
    release: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = product_in(release).root
    text = (folder / "README.md").read_text("utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(folder)
    exec(compile(example, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "count: int64" in printed
    assert ("estimate: double" in printed) == (folder / "estimates").exists()
    assert "answer: int64" in printed or release.parent.parent.name.startswith("planned")


def manifest(release: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(product_in(release).manifest.read_text("utf-8"))
    return found


def test_the_manifest_says_what_invariants_leave(release: Path) -> None:
    document = manifest(release)
    for row in document["statements"]:
        assert row["comparable"] in ("all", "some", "none")
        assert (row["total"] is None) == (row["comparable"] == "none")
    assert "comparable" in document["privacy"]["neighborhood"]


def test_the_manifest_is_read_as_a_value_and_written_as_the_same_bytes(release: Path) -> None:
    for path in release.rglob("manifest.json"):
        kind = CensusManifest if path.parent == release else Manifest
        value = read_document(kind, path, remedy="")
        assert json_text(json_of(value)) == path.read_text("utf-8")


def test_the_evaluation_and_the_summary_are_read_as_values(release: Path) -> None:
    out = release.parent
    assert read_summary(out).stages.keys() >= {"plan", "read", "measure", "solve", "finalize"}
    evaluation = read_document(Evaluation, truth_of(out).evaluation, remedy="")
    assert {(row.geolevel, row.query) for row in evaluation.results} == {
        (level, query) for level in evaluation.levels for query in evaluation.queries
    }
