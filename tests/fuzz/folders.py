"""Hostile files beside a finished run: areas, entities, weights, clusters, and damaged records."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.builders.run_files import to_products
from tests.builders.toy import blocks
from tests.fuzz.case import Case, Plain, Rng, places, value_at, write_csv, write_toy, yaml_text
from tests.fuzz.configurations import ANY, INTEGERS, NAMES, PATHS, RAW, flipped
from tests.fuzz.execute import command, without_spark
from tests.fuzz.inputs import VALUES, csv_text, hostile_parquet

_SIDE = ["total: 1", "sex: {county: 2}", "age: 0.5", "detailed: 3"]
_WRONG = [
    *("[/x]: 1", "nope: 1", "total: -1", "total: .nan", "total: .inf", "total: x", "total: {}"),
    *("total: {moon: 1}", "total: {county: -1}", "total: 010", "1: 1", "~: 1", "total: 0"),
    *("sex * sex: 1", "prefix(age): 1", "total: [1]", "total: {county: {a: 1}}", "total: 1e999"),
    *("total: 2020-13-45", "total: !!int x", "<<: {a: 1}", "total: " + "9" * 90, "total: yes"),
]


@cache
def _finished(scratch: Path) -> Path:
    """A finished toy run, made once; its files name no path outside of its folder."""
    folder = scratch / "finished"
    folder.mkdir(parents=True)
    run = write_toy(folder, Rng(1))
    for section, key in (("data", "path"), ("privacy", "account"), ("output", "directory")):
        run[section][key] = Path(run[section][key]).name
    run["geography"]["geounits"]["path"] = "blocks.csv"
    (folder / "run.yaml").write_text(yaml_text(to_products(run)))
    with without_spark():
        code, said = command(["run", str(folder / "run.yaml"), "--quiet"])
    if code:
        raise RuntimeError(said)
    return folder


def _side_file(rng: Rng, path: Path) -> str:
    """A file of weights or targets."""
    lines = rng.sample(_SIDE, 2)
    lines[rng.randrange(2)] = rng.choice(_WRONG)
    text = "\n".join(lines) + "\n"
    if rng.random() < 0.3:
        text = RAW[rng.choice(list(RAW))](rng, text)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return " ".join(lines)[:60]


def _weights(rng: Rng, folder: Path) -> Case:
    note = _side_file(rng, folder / "side.yaml")
    kind = rng.choice(["--weights", "--targets"])
    arguments = ["plan", str(folder / "run.yaml"), "--quiet", kind, str(folder / "side.yaml")]
    if rng.random() < 0.9:
        arguments += ["--optimize", str(folder / "best.yaml")]
    return Case("folder", f"{kind} {note}", arguments, [folder / "best.yaml"])


def _cluster(rng: Rng, folder: Path) -> Case:
    runtime: dict[str, Any] = {"master": "local[1]", "batches_per_slot": 2, "spark": {"a.b": "c"}}
    document: Any = {"runtime": runtime}
    place = rng.choice(places(document))
    value_at(document, place[:-1])[place[-1]] = rng.choice([*ANY, *INTEGERS, *NAMES])
    text = yaml_text(document)
    if rng.random() < 0.3:
        text = RAW[rng.choice(list(RAW))](rng, text.replace("runtime", "name"))
    (folder / "cluster.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    arguments = ["run", "--only", "solve", str(folder / "run.yaml"), "--quiet", "--cluster"]
    return Case(
        "folder",
        f"cluster {text[:50]!r}",
        [*arguments, str(folder / "cluster.yaml")],
        finished(folder),
    )


def finished(folder: Path) -> list[Path]:
    """Files that work on a finished run may write again."""
    made = [
        folder / "out" / name
        for name in ("summary.json", "confidential/products/persons/report.html")
    ]
    return [path for path in folder.rglob("*") if path.is_file()] + made


def _areas(rng: Rng, folder: Path) -> Case:
    rows = [[rng.choice(["north", "south county"]), code] for code in rng.sample(blocks(), 5)]
    rows[rng.randrange(5)][rng.randrange(2)] = rng.choice(VALUES)
    text = csv_text(rows)
    if rng.random() < 0.3:
        text = RAW[rng.choice(["cut", "mark", "noise", "windows", "nothing"])](rng, text)
    data = text.encode("utf-8", "surrogatepass")
    (folder / "areas.csv").write_bytes(flipped(rng, data) if rng.random() < 0.2 else data)
    arguments = ["estimate", str(folder / "run.yaml"), "--area", str(folder / "areas.csv")]
    arguments += [
        "--query",
        rng.choice(["total", "sex", "nope", "", "[/x]", "prefix(age)", "sex*x"]),
    ]
    if rng.random() < 0.3:
        arguments += [
            "--geounit",
            rng.choice([*blocks()[:1], "", "99", "[/x]", "é", "9" * 5000, "0"]),
        ]
    if rng.random() < 0.3:
        arguments += [
            "--confidence",
            rng.choice(["0.5", "1", "nan", "inf", "-1", "x", "0.999999999"]),
        ]
    if rng.random() < 0.2:
        arguments.append("--json")
    if rng.random() < 0.2:
        arguments += [
            "--output",
            rng.choice([str(folder / "x.parquet"), str(folder / "no" / "x")]),
        ]
    return Case("folder", f"areas {text[:40]!r}", arguments, [folder / "x.parquet"])


def _entities(rng: Rng, folder: Path) -> Case:
    path = folder / "entities.csv"
    note = "entities"
    rows: list[list[Any]] = [["geocode", "place"]]
    rows += [[code, rng.choice(["a", "b", ""])] for code in blocks()]
    if rng.random() < 0.4:
        path = folder / "entities.parquet"
        note += " " + hostile_parquet(rng, "list", path)
    else:
        rows[rng.randrange(len(rows))][rng.randrange(2)] = rng.choice(VALUES)
        write_csv(path, rows)
    near = rng.choice(["place", "place", "", "nope", "geocode"])
    spine: dict[str, Any] = {"entities": {"path": str(path)}, "align_with": [near]}
    if rng.random() < 0.7:
        spine["regroup"] = rng.choice(["tract", "tract", "block", "state", "nope", ""])
    if rng.random() < 0.3:
        spine["gather"] = rng.choice(["county", "tract", "block", "state", "nope"])
    if rng.random() < 0.3:
        codes = rng.choice([[], ["a"], ["a..b"], ["b..a"], [".."], [""]])
        geolevel = rng.choice(["county", "state", "nope"])
        spine["split"] = {"geolevel": geolevel, "by": "place", "codes": codes}
    if rng.random() < 0.2:
        spine["fan_out_cutoff"] = rng.choice([-1, 0, "x", 10**20])
    run = yaml.safe_load((folder / "run.yaml").read_text(encoding="utf-8"))
    run["geography"]["spine"] = spine
    own = folder / "spine.yaml"
    own.write_text(yaml_text(run))
    return Case("folder", note, [*rng.choice([["plan", "--spine"], ["validate"]]), str(own)], [])


def _inspected(rng: Rng, folder: Path) -> Case:
    arguments = ["inspect", str(folder / "out")]
    if rng.random() < 0.8:
        codes = ["99", "99001", *blocks()[:2], "", "0", "[/x]", "é", "../..", "\ud83d", "9" * 5000]
        arguments += ["--geounit", rng.choice(codes)]
        arguments += ["--query", rng.choice(["total", "sex", "nope", "", "[/x]", "detailed"])]
    if rng.random() < 0.3:
        arguments.append("--json")
    return Case("folder", " ".join(arguments[2:])[:60], arguments)


RECORDS = [
    *(
        "out/run.json",
        "out/release/products/persons/ledger.jsonl",
        "out/release/products/persons/manifest.json",
        "account.jsonl",
    ),
    *(
        "out/release/account.json",
        "out/release/products/persons/counts/level=county/_manifest.json",
    ),
    "out/release/products/persons/measurements/level=tract/_manifest.json",
    "out/summary.json",
]


def _damaged(rng: Rng, folder: Path) -> Case:
    name = rng.choice([*RECORDS, "part"])
    if name == "part":
        parts = sorted((folder / "out" / "release").rglob("part-*"))
        path = rng.choice(parts)
    else:
        path = folder / name
    outputs = finished(folder)  # also what is damaged: a command may make it again
    data = path.read_bytes() if path.exists() else b"{}"
    how = rng.choice(["flips", "cut", "value", "value", "text", "gone", "folder", "deep", "lines"])
    if how == "flips":
        path.write_bytes(flipped(rng, data))
    elif how == "cut":
        path.write_bytes(data[: rng.randrange(len(data) + 1)])
    elif how == "value" and path.suffix in (".json", ".jsonl"):
        lines = data.decode().splitlines() if path.suffix == ".jsonl" else [data.decode()]
        at = rng.randrange(len(lines))
        document = json.loads(lines[at])
        place = rng.choice(places(document) or [()])
        if place:
            wrong = [None, "", -1, "x", [], {}, 1e308, True, 10**30, "1/0", "\ud83d", "../x"]
            value_at(document, place[:-1])[place[-1]] = rng.choice(wrong)
        lines[at] = json.dumps(document)
        path.write_text("\n".join(lines) + "\n")
    elif how == "text":
        path.write_bytes(
            rng.choice([b"", b"null", b"[]", b"{}", b"\xff\xfe", b"1", bytes(99), b'"x"', b"NaN"])
        )
    elif how == "deep":
        path.write_text("[" * 100_000)
    elif how == "lines":
        path.write_bytes(data + data)
    elif how == "gone" and path.exists():
        path.unlink()
    elif how == "folder" and path.exists():
        path.unlink()
        path.mkdir()
    config, out = str(folder / "run.yaml"), str(folder / "out")
    arguments = rng.choice(
        [
            ["verify", config, "--quiet"],
            ["inspect", out],
            ["inspect", out, "--geounit", "99001"],
            ["run", out, "--check", "--quiet"],
            ["run", out, "--quiet"],
            ["account", config],
            ["validate", config],
            ["inspect", "--reports", out],
            ["estimate", config, "--geounit", "99001"],
            ["run", config, "--quiet"],
        ]
    )
    note = f"{arguments[0]}, {path.name} {how}"
    return Case("folder", note, arguments, outputs, remakes=folder / "out")


_WRITING = {"--optimize", "--report", "--output", "--log-json", "--out"}


def _in_folder(path: str, folder: Path) -> str:
    """A path to write to: the fuzzer may be run by who may write anywhere."""
    inside = path.replace("..", "up").replace("~", "home").lstrip("/")
    is_outside = path.startswith("/") or ".." in path.split("/")
    return str(folder / (inside or ".")) if is_outside else path


def _options(rng: Rng, folder: Path) -> Case:
    """Any path of the command line."""
    config = str(folder / "run.yaml")
    path = rng.choice([one for one in PATHS if isinstance(one, str) and not isinstance(one, Plain)])
    arguments = rng.choice(
        [
            ["validate", path],
            ["plan", config, "--quiet", "--optimize", path],
            ["plan", config, "--quiet", "--report", path],
            ["plan", config, "--quiet", "--weights", path, "--optimize", "best.yaml"],
            ["verify", path, "--quiet"],
            ["inspect", path],
            ["inspect", "--reports", path],
            ["run", path, "--check"],
            ["run", str(folder / "out"), "--check", "--config", path],
            ["estimate", config, "--area", path],
            ["estimate", config, "--geounit", "99001", "--output", path],
            ["plan", "--spine", path],
            ["run", "--only", "solve", config, "--quiet", "--log-json", path],
            ["run", "--only", "solve", config, "--quiet", "--cluster", path],
        ]
    )
    for at, option in enumerate(arguments[:-1]):
        if option in _WRITING:
            path = arguments[at + 1] = _in_folder(arguments[at + 1], folder)
    written = [folder / path] if path and "\x00" not in path and "\ud83d" not in path else []
    return Case(
        "folder",
        f"{arguments[0]} {arguments[-2]} {path!r:.40}",
        arguments,
        [*finished(folder), *written, folder / "best.yaml"],
    )


_MAKERS: list[Callable[[Rng, Path], Case]] = [
    *(_weights, _areas, _areas, _entities, _inspected, _damaged, _damaged, _damaged, _options),
    *(_cluster, _options),
]


def make_folder(rng: Rng, folder: Path) -> Case:
    """A finished run, one file beside or in it with something wrong, and a command about it."""
    shutil.copytree(_finished(folder.parent), folder, dirs_exist_ok=True)
    return rng.choice(_MAKERS)(rng, folder)
