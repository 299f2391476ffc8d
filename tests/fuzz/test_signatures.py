"""What once ended in a traceback, a hang or half a folder, by the door people use."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders.run_files import to_products
from tests.builders.toy import LEVELS, blocks
from tests.fuzz.case import Case, Rng, toy_allocation, toy_schema, write_csv, write_toy, yaml_text
from tests.fuzz.execute import Outcome, execute, without_spark
from tests.fuzz.inputs import pl94_files, set_everywhere

YAML = {
    "impossible date": "2020-13-45",
    "impossible time": "2020-01-01T99:99:99",
    "integer of 4,400 digits": "9" * 4400,
    "hexadecimal of 5,000 digits": "0x" + "f" * 5000,
    "tag int": "!!int x",
    "tag float": "!!float x",
    "tag timestamp": "!!timestamp x",
    "tag set": "!!set {a, b}",
    "tag set of text": "!!set x",
    "tag omap": "!!omap x",
    "tag binary": "!!binary x",
    "tag python": "!!python/object/apply:os.system ['id']",
    "deep lists": "[" * 3000,
    "deep maps": "{a: " * 3000,
    "sexagesimal": "190:20:30",
    "list as a key": "{[1, 2]: 3}",
    "itself": "&a [*a]",
}


@pytest.fixture
def run(tmp_path: Path) -> dict[str, Any]:
    return write_toy(tmp_path, Rng(1))


def das(folder: Path, *arguments: str, run: Any = None, out: bool = False) -> Outcome:
    """Run a command in a folder, after writing its run file if one is given."""
    if run is not None:
        (folder / "run.yaml").write_text(yaml_text(to_products(run)))
    account, where = (folder / "account.jsonl", folder / "out") if out else (None, None)
    case = Case("signature", "", [*arguments], account=account, out=where)
    with without_spark():
        return execute(case, folder)


def refused(outcome: Outcome, kind: str, *said: str) -> None:
    assert (outcome.kind, outcome.signature) == ("named_error", kind), outcome
    for words in said:
        assert words in outcome.detail, outcome.detail


@pytest.mark.parametrize(
    ("file", "written"),
    [
        *(("run", text) for text in YAML.values()),
        *(
            (file, YAML["tag python"])
            for file in ("schema", "allocation", "weights", "targets", "cluster")
        ),
    ],
    ids=range(len(YAML) + 5),
)
def test_every_yaml_file_has_one_door(tmp_path, run, file, written):
    path = tmp_path / f"{file}.yaml"
    (tmp_path / "run.yaml").write_text(yaml_text(to_products(run)))
    before = path.read_text() if path.exists() else ""
    path.write_text(f"name: {written}\n" + before.replace("name:", "title:"))
    config = str(tmp_path / "run.yaml")
    arguments = {
        "weights": ["plan", config, "--weights", str(path), "--optimize", "best.yaml"],
        "targets": ["plan", config, "--targets", str(path), "--optimize", "best.yaml"],
        "cluster": ["run", "--only", "measure", config, "--cluster", str(path)],
    }.get(file, ["validate", config])
    refused(das(tmp_path, *arguments), "ConfigError", str(path))


@pytest.mark.parametrize("rho", ["686430", "1000000000000000000000", "1/" + "1" + "0" * 15])
def test_very_large_and_small_budgets_are_planned(tmp_path, run, rho):
    run["privacy"]["rho"] = rho
    outcome = das(tmp_path, "plan", str(tmp_path / "run.yaml"), run=run)
    assert outcome.kind == "accepted", outcome


def test_forty_geolevels_are_planned(tmp_path, run):
    """Their chains of only children tile the spine in 2^38 ways."""
    width, names = 39, [f"l{index}" for index in range(40)]
    codes = {"0" * at + "1" * (width - at) for at in range(width)} | {"0" * width}
    write_csv(tmp_path / "blocks.csv", [("geocode",), *((code,) for code in sorted(codes))])
    levels = [{"name": name, "digits": digits} for digits, name in enumerate(names)]
    run["geography"]["levels"] = levels
    run["invariants"] = []
    share = {"share": "1/40", "queries": {"detailed": "1"}}
    (tmp_path / "allocation.yaml").write_text(
        yaml_text({"name": "a", "levels": dict.fromkeys(names, share)})
    )
    outcome = das(tmp_path, "plan", str(tmp_path / "run.yaml"), run=run)
    assert outcome.kind == "accepted", outcome


@pytest.mark.parametrize("written", ["010", "1:30", "0b11", "1_000"])
def test_budgets_that_yaml_reads_otherwise_are_refused(tmp_path, run, written):
    text = yaml_text(to_products(run)).replace("rho: '1'", f"rho: {written}")
    (tmp_path / "run.yaml").write_text(text)
    refused(das(tmp_path, "validate", str(tmp_path / "run.yaml")), "ConfigError", f"got {written}")


@pytest.mark.parametrize("url", ["ftp://bucket/x", "hdfs:///x", "file:///somewhere", "~/x"])
def test_a_run_makes_no_folder_of_a_url(tmp_path, run, url):
    run["output"]["directory"] = url
    refused(
        das(tmp_path, "run", str(tmp_path / "run.yaml"), run=run),
        "ConfigError",
        "output.directory",
    )


# --- inputs --------------------------------------------------------------------------------------


def pl94(folder: Path, run: dict[str, Any], data: bytes) -> dict[str, Any]:
    (folder / "de2020.pl.zip").write_bytes(data)
    levels = {"state": 2, "county": 5, "tract": 11, "block": 15}
    run["geography"] = {"levels": [{"name": n, "digits": d} for n, d in levels.items()]}
    run["data"] = {
        "input_format": "pl94",
        "path": str(folder / "de2020.pl.zip"),
        "product": "housing_units",
    }
    schema = {"name": "s", "attributes": [{"name": "occupancy", "levels": ["o", "v"]}]}
    (folder / "schema.yaml").write_text(yaml_text(schema))
    shares = {name: {"share": "1/4", "queries": {"detailed": "1"}} for name in levels}
    (folder / "allocation.yaml").write_text(yaml_text({"name": "a", "levels": shares}))
    return run


def zipped(method: int = zipfile.ZIP_DEFLATED, **changes: bytes) -> bytearray:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in pl94_files().items():
            archive.writestr(name, changes.get(name.partition(".")[0], content))
    return bytearray(out.getvalue())


def test_the_zip_is_sound_but_for_what_is_done_to_it(tmp_path, run):
    pl94(tmp_path, run, bytes(zipped()))
    outcome = das(
        tmp_path, "run", "--only", "measure", str(tmp_path / "run.yaml"), run=run, out=True
    )
    assert outcome.kind == "accepted", outcome


@pytest.mark.parametrize(
    ("offset", "value", "said"),
    [(6, 1, "an encrypted file"), (8, 97, "an unknown compression method"), (8, 9, "compression")],
)
def test_zips_that_need_another_program(tmp_path, run, offset, value, said):
    data = zipped()
    set_everywhere(data, offset, value)
    outcome = das(
        tmp_path,
        "run",
        "--only",
        "measure",
        str(tmp_path / "run.yaml"),
        run=pl94(tmp_path, run, bytes(data)),
        out=True,
    )
    refused(outcome, "InputError", "degeo2020.pl", said)


@pytest.mark.parametrize("method", [8, 12, 14])
def test_broken_streams_of_a_zip(tmp_path, run, method):
    data = zipped(zipfile.ZIP_STORED, degeo2020=b"\xff" * 400)
    set_everywhere(data, 8, method)
    outcome = das(
        tmp_path,
        "run",
        "--only",
        "measure",
        str(tmp_path / "run.yaml"),
        run=pl94(tmp_path, run, bytes(data)),
        out=True,
    )
    refused(outcome, "InputError", "degeo2020.pl", "cannot be read")


@pytest.mark.parametrize(
    ("count", "n"), [(10**18 - 1, 12), (10**18 - 1, 21), (2**63 // 10 + 1, 10)]
)
def test_histograms_that_int64_cannot_add(tmp_path, run, count, n):
    codes = blocks()
    lists = pa.list_(pa.int64())
    counts = [[count if index < n else 1] for index in range(len(codes))]
    table = {
        "geocode": codes,
        "cells": pa.array([[0]] * len(codes), lists),
        "counts": pa.array(counts, lists),
    }
    pq.write_table(pa.table(table), tmp_path / "h.parquet")
    run["data"] = {"input_format": "histograms", "path": str(tmp_path / "h.parquet")}
    outcome = das(
        tmp_path, "run", "--only", "measure", str(tmp_path / "run.yaml"), run=run, out=True
    )
    refused(outcome, "InputError", "h.parquet, row 1: the counts of the file up to this row")


def test_the_largest_counts_that_are_read_can_be_solved(tmp_path, run):
    """What is refused after it was measured is a grant lost."""
    codes, lists = blocks(), pa.list_(pa.int64())
    counts = [[2**50 // len(codes) - 3, 2] for _ in codes]
    cells = pa.array([[0, 5]] * len(codes), lists)
    table = {"geocode": codes, "cells": cells, "counts": pa.array(counts, lists)}
    pq.write_table(pa.table(table), tmp_path / "h.parquet")
    run["data"] = {"input_format": "histograms", "path": str(tmp_path / "h.parquet")}
    run["output"]["microdata"] = []  # a row per person
    outcome = das(tmp_path, "run", str(tmp_path / "run.yaml"), run=run, out=True)
    assert outcome.kind == "accepted", outcome


@pytest.mark.parametrize("text", ["[/x]", "{0}", "=1+1", "x" * 9000, "\U0001f600"])
def test_labels_that_are_markup_formats_or_formulas(tmp_path, run, text):
    schema = toy_schema()
    schema["attributes"][0]["levels"][0] = text
    (tmp_path / "schema.yaml").write_text(yaml_text(schema))
    for command in ("validate", "plan"):
        outcome = das(tmp_path, command, str(tmp_path / "run.yaml"), run=run)
        assert outcome.kind == "accepted", outcome


def test_the_toy_is_sound(tmp_path, run):
    assert list(toy_allocation()["levels"]) == LEVELS
    outcome = das(
        tmp_path, "run", "--only", "measure", str(tmp_path / "run.yaml"), run=run, out=True
    )
    assert outcome.kind == "accepted", outcome
