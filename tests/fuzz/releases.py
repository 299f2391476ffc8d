"""Hostile releases: a finished release, changed in a few places, with all digests made right again.

Whoever makes a release can make its digests, too, so a change is finalized as the program finalizes: what
follows is not refused for a wrong digest alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from jobs.pipeline.storage.dataset import MANIFEST
from jobs.pipeline.tasks.progress import Reporter
from jobs.survey.plan import load_survey
from jobs.survey.run import run_survey
from tests.builders import in_process, toy
from tests.builders.survey import write_survey
from tests.builders.units import section, write_units
from tests.fuzz.case import Rng, places, value_at
from tests.fuzz.execute import without_spark

Words = list[str]
ESCAPES = "\x1b[31mRED\x1b]0;title\x07"
SCRIPT = "</script><script>alert(1)</script>"
FORMULA = "=1+1"
BAIT_LABEL = "BAITVALUE"
TEXTS: Words = [
    *("../" * 6 + "etc/passwd", "/etc/passwd", "..", ".", "s3://x/y", "file:///etc/passwd"),
    *(ESCAPES, "<script>alert(1)</script>", SCRIPT, FORMULA, "@SUM(A1)", "a" * 5000, "", "\u202e"),
    *("\U0001f600", "1e999999999", "9" * 100_000, "1/0", "0/0", "-1", "9" * 200, "[red]x[/red]"),
    *("{{7*7}}", "a\nb", "a\0b", "NaN", "nan", "1/3", "1/" + "7" * 3000),
]
NUMBERS: list[Any] = [
    *(-1, 0, 1, 2**31, 2**63, 2**64, 10**12, 10**400, 1e308, float("inf"), float("nan"), -0.5),
    *(True, None),
]
PATH_KEYS = ("schema", "allocation", "path", "weights", "sizes", "account", "directory")


@dataclass(frozen=True)
class World:
    """A finished release to start from.

    Attributes:
      release: Its folder.
      commands: What is run on a copy; RELEASE and OUT stand for folders.
    """

    release: Path
    commands: tuple[Words, ...]


_READ: tuple[Words, ...] = (
    ["verify", "RELEASE"],
    ["inspect", "RELEASE"],
    ["verify", "RELEASE", "--certificate", "OUT/certificate.html"],
    ["inspect", "RELEASE", "--reports", "--to", "OUT/report"],
    ["inspect", "RELEASE", "--reports"],
    ["explore", "RELEASE", "-o", "OUT/explore.html"],
    ["estimate", "RELEASE", "--query", "sex", "--geolevel", "tract"],
    ["areas", "RELEASE", "--geolevel", "tract"],
)
_CENSUS: tuple[Words, ...] = (
    *_READ,
    ["verify", "RELEASE"],
    ["inspect", "RELEASE", "--geounit", "9900100000"],
    ["verify", "RELEASE", "--product", "units", "--certificate", "OUT/certificate.html"],
    ["tables", "RELEASE", "--to", "OUT/tables", "--format", "csv", "--format", "xlsx"],
    ["tables", "RELEASE", "--product", "units", "--to", "OUT/tables"],
    ["estimate", "RELEASE", "--query", "total", "--covariance", "sex", "--geounit", "99"],
)


def make_worlds(folder: Path) -> dict[str, World]:
    """Make the releases that are changed: a census of persons and units, and two surveys."""
    census, survey, tables = (folder / name for name in ("census", "survey", "tables"))
    for place in (census, survey, tables):
        place.mkdir(parents=True)
    toy.write_records(census)
    write_units(census)
    drawn = {"source": "operating_system"}
    run = toy.configuration(census, privacy__randomness=drawn, units=section(census))
    mean = {
        "mean": "age",
        "low": 0,
        "high": 100,
        "sd_bound": 25,
        "share": "1/2",
        "method": "clipped",
    }
    exact = {"query": "sex * group", "exact": ["sex"], "method": "conditioned", "share": "1/2"}
    pure = {"definition": "pure", "epsilon": "8"}
    changes = {
        "privacy": pure,
        "synthesis": None,
        "statistics": [mean],
        "contingency_tables": [exact],
    }
    with without_spark():  # waits for no disk
        in_process.execute(run)
        for written in (write_survey(survey), write_survey(tables, **changes)):
            run_survey(load_survey(written), Reporter(quiet=True))
    return {
        "census": World(census / "out" / "release", _CENSUS),
        "survey": World(survey / "out" / "release", _READ),
        "tables": World(tables / "out" / "release", _READ),
    }


def copy_release(world: World, folder: Path) -> Path:
    """A copy of a release that may be changed."""
    return Path(shutil.copytree(world.release, folder / "release"))


# --- digests --------------------------------------------------------------------------------------


def reseal(release: Path) -> None:
    """Make every digest that a release states that of what is there now."""
    for path in _plain(release, MANIFEST):
        with _if_it_has_the_form():
            document = json.loads(path.read_bytes())
            for part in document["files"]:
                file = path.parent / part["file"]
                if file.is_file() and file.parent == path.parent:
                    part |= {"sha256": _digest(file), "bytes": file.stat().st_size}
            _dump(path, document)
    for path in _plain(release, "ledger.jsonl"):
        with _if_it_has_the_form():
            _reseal_ledger(path)
    for path in sorted(_plain(release, "manifest.json"), key=lambda one: -len(one.parts)):
        with _if_it_has_the_form():
            document = json.loads(path.read_bytes())
            _reseal_manifest(path.parent, document)
            for name in document.get("products") or {}:
                own = path.parent / "products" / name / "manifest.json"
                document["products"][name] = _digest(own)
            _dump(path, document)


def _plain(release: Path, name: str) -> list[Path]:
    """Files of a name, without links and pipes, which would be read without end."""
    found = (path for path in release.rglob(name) if not path.is_symlink())
    return sorted(path for path in found if path.is_file())


def _if_it_has_the_form() -> suppress:
    """What was made something else has no digests; the rest of the release is finalized all the same."""
    return suppress(Exception)


def _reseal_ledger(path: Path) -> None:
    lines, before = [], ""
    for number, text in enumerate(path.read_text().splitlines()):
        line = json.loads(text) | {"line": number, "previous": before}
        folder = (
            f"level={line.get('geolevel')}" if "geolevel" in line else f"part={line.get('part')}"
        )
        dataset = path.parent / "measurements" / folder / MANIFEST
        if line.get("event") == "measured" and dataset.is_file():
            line["sha256"] = _digest(dataset)
        lines.append(json.dumps(line) + "\n")
        before = hashlib.sha256(lines[-1].encode()).hexdigest()
    path.write_text("".join(lines))


def _reseal_manifest(root: Path, document: dict[str, Any]) -> None:
    for output in document["outputs"]:
        dataset = root / output["path"] / MANIFEST
        if dataset.is_file():
            output["sha256"] = _digest(dataset)
    for file in document["files"]:
        place = root / file["path"]
        if place.is_file() and place.is_relative_to(root):
            file |= {"sha256": _digest(place), "bytes": place.stat().st_size}
    for part in document.get("parts", ()):
        dataset = root / "measurements" / f"part={part['name']}" / MANIFEST
        if dataset.is_file():
            part["measurements"] = _digest(dataset)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _dump(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n")


# --- changes --------------------------------------------------------------------------------------


def change_release(rng: Rng, release: Path, bait: Path) -> str:
    """Change one to two places of a release and finalize it again.

    Args:
      rng: Chooses.
      release: A copy.
      bait: A folder of the reader, outside of the release, of `write_bait`.

    Returns:
      What was done, in a few words.
    """
    notes = []
    weights = [weight for _, weight in _CHANGES.values()]
    kinds = rng.choices(list(_CHANGES), weights, k=rng.choice((1, 1, 1, 2)))
    for kind in sorted(kinds, key="link".__eq__):  # nothing else is read once pipes lie there
        note = _CHANGES[kind][0](rng, release, bait)
        notes.append(f"{kind}: {note}"[:150])
    reseal(release)
    return "; ".join(notes)


def write_bait(folder: Path, release: Path) -> Path:
    """Write what a hostile release would like to have opened: files of the reader, and a pipe."""
    bait = folder / "bait"
    shutil.copytree(release, bait / "release")
    for path in (bait / "release" / "configuration").iterdir():
        path.write_text(path.read_text().replace("male", BAIT_LABEL))
    (bait / "secret.txt").write_text(f"{BAIT_LABEL}: [\n")
    os.mkfifo(bait / "pipe")
    return bait


def mutate(rng: Rng, document: Any) -> str:
    """Change one value of a document in a way that its readers may not expect; returns where."""
    spots = [place for place in places(document) if place]
    if not spots:
        return "nothing"
    place = rng.choice(spots)
    holder, key = value_at(document, place[:-1]), place[-1]
    old, chance = holder[key], rng.random()
    if chance < 0.12:
        del holder[key]
        return f"{place} deleted"
    if chance < 0.2:
        new: Any = rng.choice([{}, [], None, "x", 5])
    elif isinstance(old, str) and chance < 0.85:
        new = rng.choice(TEXTS)
    elif isinstance(old, int | float) and chance < 0.85:
        new = rng.choice(NUMBERS)
    elif isinstance(old, list) and old and chance < 0.6:
        new = old * rng.choice([2, 3, 50]) if rng.random() < 0.5 else old[:-1]
    elif isinstance(old, dict) and chance < 0.6:
        new = {**old, rng.choice(TEXTS): rng.choice([*NUMBERS, *TEXTS])}
    else:
        new = rng.choice([*TEXTS, *NUMBERS])
    holder[key] = new
    return f"{place} = {new!r:.60}"


def _in_json(rng: Rng, files: list[Path]) -> str:
    path = rng.choice(files)
    document = json.loads(path.read_bytes())
    note = mutate(rng, document)
    _dump(path, document)
    return f"{path.parent.name}/{path.name} {note}"


def _manifest(rng: Rng, release: Path, _bait: Path) -> str:
    return _in_json(rng, sorted(release.rglob("manifest.json")))


def _dataset(rng: Rng, release: Path, _bait: Path) -> str:
    return _in_json(rng, sorted(release.rglob(MANIFEST)))


def _other(rng: Rng, release: Path, _bait: Path) -> str:
    names = ("codebook.json", "account.json", "planned.json", "means.json", "tables.json")
    files = [path for path in sorted(release.rglob("*.json")) if path.name in names]
    return _in_json(rng, files)


def _configuration(rng: Rng, release: Path, _bait: Path) -> str:
    path = rng.choice(sorted((release / "configuration").glob("*.yaml")))
    document = yaml.safe_load(path.read_text())
    note = mutate(rng, document)
    path.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    return f"{path.name} {note}"


def _ledger(rng: Rng, release: Path, _bait: Path) -> str:
    names = ("ledger.jsonl", "solves.jsonl")
    path = rng.choice([one for one in sorted(release.rglob("*.jsonl")) if one.name in names])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    note = mutate(rng, lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"{path.name} {note}"


def _schema(rng: Rng, release: Path, bait: Path) -> str:
    """Sizes that nobody has: of levels, of attributes, of cells."""
    files = sorted((release / "configuration").glob("*-schema.yaml"))
    if not files:
        return _configuration(rng, release, bait)
    path = rng.choice(files)
    document = yaml.safe_load(path.read_text())
    kind = rng.choice(["levels", "attributes", "cells", "twice"])
    if kind == "levels":
        document["attributes"][0]["levels"] = [f"l{i}" for i in range(300_000)]
    elif kind == "twice":
        document["attributes"][0]["levels"] = ["x"] * 50_000
    else:
        levels = [f"l{i}" for i in range(10 if kind == "attributes" else 1000)]
        document["attributes"] += [{"name": f"a{i}", "levels": levels} for i in range(3)]
    path.write_text(yaml.dump(document, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)))
    return f"{path.name} {kind}"


def _parquet(rng: Rng, release: Path, _bait: Path) -> str:
    path = rng.choice(sorted(release.rglob("*.parquet")))
    table = pq.read_table(path)
    if not table.num_columns:
        return "nothing"
    index = rng.randrange(table.num_columns)
    name, kind = table.schema.field(index).name, table.schema.field(index).type
    ways: dict[str, Callable[[], pa.Table]] = {
        "dropped": lambda: table.remove_column(index),
        "null": lambda: table.set_column(index, name, pa.nulls(table.num_rows, kind)),
        "empty": lambda: table.slice(0, 0),
        "tripled": lambda: pa.concat_tables([table] * 3),
        "text": lambda: table.set_column(
            index, name, pa.array([rng.choice(TEXTS[:12]) for _ in range(table.num_rows)])
        ),
        "values": lambda: _with_values(rng, table, index),
    }
    way = rng.choices(list(ways), [15, 15, 10, 10, 10, 40])[0]
    pq.write_table(ways[way](), path)
    return f"{path.parent.parent.name}/{path.parent.name} {name} {way}"


def _with_values(rng: Rng, table: pa.Table, index: int) -> pa.Table:
    field = table.schema.field(index)
    values = [
        _hostile(rng, value) if rng.random() < 0.5 else value
        for value in table.column(index).to_pylist()
    ]
    for kind in (field.type, None):
        with suppress(pa.ArrowException, OverflowError, UnicodeError, TypeError):
            return table.set_column(index, field.name, pa.array(values, kind))
    return table.slice(0, 0)


def _hostile(rng: Rng, value: Any) -> Any:
    if isinstance(value, list):
        inner = [_hostile(rng, one) if rng.random() < 0.5 else one for one in value]
        return inner if rng.random() < 0.7 else rng.choice([[], value * 2, value[:-1]])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([-1, 0, 2**31 - 1, -(2**31), 10**9, 127, 2**62])
    if isinstance(value, float):
        return rng.choice([float("nan"), float("inf"), -1.0, 1e308, 0.0])
    if isinstance(value, bytes):
        return b"\xff\x00" * 50
    return rng.choice(TEXTS[:20]) if isinstance(value, str) else value


def _path(rng: Rng, release: Path, bait: Path) -> str:
    """A path that leads elsewhere, in a manifest or the run file."""
    up = os.path.relpath(bait, release / "configuration")
    configuration = bait / "release" / "configuration"
    name = rng.choice(sorted(path.name for path in configuration.iterdir()))
    targets = [
        *(str(configuration / name), f"{up}/release/configuration/{name}", str(bait / "pipe")),
        *(f"{up}/pipe", str(bait / "secret.txt"), "/proc/kmsg", "/dev/zero", "/etc/passwd"),
        *("../ledger.jsonl", "s3://bucket/x", f"../{up}/release", str(bait / "release")),
    ]
    target = rng.choice(targets)
    if rng.random() < 0.4:
        path = rng.choice(sorted(release.rglob("manifest.json")))
        document = json.loads(path.read_bytes())
        kind = rng.choice(["files", "outputs", "more", "products"])
        if kind == "more":
            document["files"].append({"path": target, "bytes": 1, "sha256": "0" * 64})
        elif kind == "products":
            document["products"] = {target: "0" * 64}
        else:
            rng.choice(document[kind])["path"] = target
        _dump(path, document)
        return f"manifest.json {kind} {target}"
    path = release / "configuration" / "run.yaml"
    document = yaml.safe_load(path.read_text())
    spots = [spot for spot in places(document) if spot[-1] in PATH_KEYS]
    if spots:
        spot = rng.choice(spots)
        value_at(document, spot[:-1])[spot[-1]] = target
        path.write_text(yaml.safe_dump(document, sort_keys=False))
    return f"run.yaml {spots and spot} {target}"


def _link(rng: Rng, release: Path, bait: Path) -> str:
    """A link or a pipe in the place of a file or folder, or beside them."""
    kind = rng.choice(["file", "folder", "product", "pipe", "device", "own"])
    files = sorted(path for path in release.rglob("*") if path.is_file())
    path = rng.choice(files)
    other = bait / "release" / path.relative_to(release)
    if kind == "product":
        path = release / "zz"
        path.symlink_to(bait / "release")
    elif kind == "folder":
        path = rng.choice(sorted({file.parent for file in files} - {release}))
        shutil.rmtree(path)
        path.symlink_to(bait / "release" / path.relative_to(release))
    else:
        path.unlink()
        if kind == "pipe":
            os.mkfifo(path)
        else:
            targets = {"file": other, "device": Path("/dev/zero"), "own": release / "manifest.json"}
            path.symlink_to(targets[kind])
    return f"{kind} {path.relative_to(release)}"


_CHANGES: dict[str, tuple[Callable[[Rng, Path, Path], str], int]] = {
    "manifest": (_manifest, 18),
    "dataset": (_dataset, 18),
    "configuration": (_configuration, 18),
    "parquet": (_parquet, 18),
    "ledger": (_ledger, 9),
    "other": (_other, 9),
    "schema": (_schema, 2),
    "path": (_path, 6),
    "link": (_link, 6),
}


def case_rng(seed: int, index: int) -> Rng:
    """What chooses all of a case, a function of seed and number."""
    return random.Random(f"release:{seed}:{index}")
