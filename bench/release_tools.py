"""What tools for a release take, and what they read: areas, tables, files of areas.

    python -m bench.release_tools [--blocks N] [--districts N] [--tracts N] [--folder FOLDER] [--quick]

A state of 200,000 generated blocks and 16 cells is released by a run in this process, then used as
its readers would, command by command:

- areas_seconds: `das areas` of 100 districts of consecutive blocks, that cut tracts, x 3 tables.
- tables_seconds: `das tables` of all tables of the run file at all geolevels, as CSV and Parquet;
  tables_rows is what they hold.
- explore_bytes: the page of `das explore` of 9,000 tracts, as many as the largest state has, of 2,016
  cells and 76 answers each, with invented outlines of 64 corners on average; explore_left_out is what
  had no room on it. A release of its own, whose leaves are the tracts.
- formats_read: kinds of block-assignment files that are read to the same districts.

Seconds are those of the processor for the whole command, starting Python included, the least of
three, or of one with --quick; --folder keeps the release for the next time. Prints a table and one line of JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml

from bench.state import generated
from jobs.analysis.area_files import read_areas
from jobs.analysis.explore import ExploreRequest, explore
from jobs.analysis.geocodes import NamedGeounits
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.released import load_release
from jobs.pipeline.run import run
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from tests.builders.boundaries import write_boundaries
from tests.checkout import ROOT

TABLES = ("votingage", "ethnicity_race", "votingage * ethnicity_race")
_REPEATS = 3
_DIALECT_ROWS = 3_000
_SEPARATORS = {"comma": ",", "tab": "\t", "bar": "|", "semicolon": ";"}


def release_of(folder: Path, blocks: int) -> Path:
    """A release of so many generated blocks; made once per folder."""
    release = folder / "out" / "release"
    if not (release / "manifest.json").exists():
        resolved = load_run(generated("ri-2010.yaml", folder, blocks))
        run(resolved, Reporter(quiet=True), tasks=LocalTasks(Sizing(4), slots=2))
    return release


def tracts_of(folder: Path, tracts: int) -> Path:
    """A release of so many generated leaves that stand for tracts; made once per folder."""
    release = folder / "tracts" / "out" / "release"
    if (release / "manifest.json").exists():
        return release
    (folder / "tracts").mkdir()
    config = generated("demo.yaml", folder / "tracts", tracts)
    digits = {"nation": 0, "state": 2, "county": 5, "tract": 15}
    queries = {"total": "1/2", "hispanic * cenrace": "1/4", "detailed": "1/4"}
    shares = {level: {"share": "1/4", "queries": queries} for level in digits}
    allocation = folder / "tracts" / "allocation.yaml"
    allocation.write_text(yaml.safe_dump({"name": "tracts", "levels": shares}))
    document = yaml.safe_load(config.read_text())
    document["geography"]["levels"] = [{"name": n, "digits": d} for n, d in digits.items()]
    persons = document["products"]["persons"]
    persons["privacy"]["allocation"] = str(allocation)
    persons.pop("solve")
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    run(load_run(config), Reporter(quiet=True), tasks=LocalTasks(Sizing(4), slots=2))
    return release


def explored(folder: Path, release: Path) -> tuple[int, list[str]]:
    """Bytes of the page of all geounits with outlines, and what was left out of it."""
    resolved = load_release(release)
    codes = NamedGeounits(resolved.plan, resolved.last.release).leaves.astype(np.str_).tolist()
    outlines = folder / "outlines.json"
    write_boundaries(outlines, codes, (5, 11), bends=5)
    asked = ExploreRequest(boundaries=outlines, names="NAME")
    size, notes = explore(resolved.last, asked, folder / "explore.html")
    return size, list(notes)


def cpu_seconds(*words: object) -> float:
    """Processor seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "jobs", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write_districts(path: Path, codes: Sequence[str], districts: int) -> None:
    """A block-assignment file of districts of consecutive blocks."""
    district = np.arange(len(codes)) * districts // len(codes) + 1
    rows = (f"{code},{number}\n" for code, number in zip(codes, district, strict=True))
    path.write_text("BLOCKID,DISTRICT\n" + "".join(rows))


def formats_read(folder: Path, codes: Sequence[str]) -> list[str]:
    """The kinds of files that are read to the districts that they say."""
    known = np.array(codes, np.bytes_)
    some = codes[:_DIALECT_ROWS]
    names = [f"District {index // 100}, upper" for index in range(len(some))]
    plain = [name.replace(",", "") for name in names]
    found = []
    kinds = itertools.product(
        _SEPARATORS, ("header", "no header"), ("block first", "area first"), ("quotes", "bare"),
        ("BOM", "no BOM"), ("LF", "CRLF"),
    )  # fmt: skip
    for separator, header, order, quotes, mark, ending in kinds:
        own = names if quotes == "quotes" else plain
        quote = '"' if quotes == "quotes" else ""
        pairs = [
            (f"{quote}{c}{quote}", f"{quote}{n}{quote}") for c, n in zip(some, own, strict=True)
        ]
        rows = [("GEOID20", "District")] if header == "header" else []
        rows += pairs
        if order == "area first":
            rows = [pair[::-1] for pair in rows]
        text = "".join(_SEPARATORS[separator].join(row) + "\n" for row in rows)
        text = text.replace("\n", "\r\n") if ending == "CRLF" else text
        path = folder / "dialect.txt"
        path.write_bytes((b"\xef\xbb\xbf" if mark == "BOM" else b"") + text.encode())
        areas = read_areas(path, known, "block").areas
        right = {name: len(codes) for name, codes in areas.items()}
        if right == {name: own.count(name) for name in dict.fromkeys(own)}:
            found.append(", ".join((separator, header, order, quotes, mark, ending)))
    return found


def main() -> None:
    """Measure, print a table, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=200_000)
    parser.add_argument("--districts", type=int, default=100)
    parser.add_argument("--tracts", type=int, default=9_000)
    parser.add_argument("--folder", type=Path, help="where the release is kept")
    parser.add_argument("--quick", action="store_true", help="each command once")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="release-tools-") as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        release = release_of(folder, arguments.blocks)
        resolved = load_release(release)
        codes = NamedGeounits(resolved.plan, resolved.last.release).leaves.astype(np.str_).tolist()
        assigned = Path(temporary) / "baf.csv"
        write_districts(assigned, codes, arguments.districts)
        tables = [word for table in TABLES for word in ("--table", table)]
        to = Path(temporary) / "tables"
        formats = ("--format", "csv", "--format", "parquet", "--quiet")
        repeats = 1 if arguments.quick else _REPEATS
        page, left_out = explored(Path(temporary), tracts_of(folder, arguments.tracts))
        found = {
            "blocks": len(codes),
            "districts": arguments.districts,
            "areas_seconds": min(
                cpu_seconds("areas", release, "--assign", assigned, *tables, "--json")
                for _ in range(repeats)
            ),
            "tables_seconds": min(
                cpu_seconds("tables", release, "--to", to, *formats) for _ in range(repeats)
            ),
            "tables_rows": sum(
                part.rows
                for path in (release / "tables").glob("level=*")
                for part in Dataset.open(path).parts
                if part.file.endswith(".csv")
            ),
            "tracts": arguments.tracts,
            "explore_bytes": page,
            "explore_left_out": left_out,
            "formats_read": formats_read(Path(temporary), codes),
        }
    for name, value in found.items():
        shown = f"{len(value)} kinds of files" if name == "formats_read" else value
        print(f"{name:<16} {shown}", file=sys.stderr)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
