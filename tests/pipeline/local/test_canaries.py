"""No confidential value shows outside OUT/confidential, whether a run succeeds or fails.

Runs read records with planted values that cannot occur by chance, and everything they write is
searched for them: the release, both streams, Spark's log at level INFO, its event log, leftovers
in the temporary folder.

Noise cannot hit a planted number by accident: at rho = 10^-18 every noisy answer has sigma above
1.6 10^9, so it equals a given number with probability below 1 / (1.6 10^9 sqrt(2 pi)) < 2.5 10^-10,
and what is solved from them no likelier in order of size. A release of the toy state holds 261 noisy
answers and fewer than 1,000 numbers of that size in all; against the at most 20 true answers, a run
fails by chance about once in 200,000. Clocks, sizes and digests are kept out by the choice of the
numbers: see `test_planted_numbers_are_no_clock_and_no_size`.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.builders import toy
from tests.builders.places import release_of, truth_of

# Nonzero cells of the truth: block, cell, count.
PLANTED = [
    ("9900100000", 0, 1_318_276_459),
    ("9900100000", 4, 1_126_870_351),
    ("9900100002", 1, 1_445_913_637),
    ("9900101003", 5, 1_203_958_177),
    ("9900102001", 0, 1_094_127_583),
    ("9900500000", 3, 1_377_604_219),
]
NEGATIVE = 1_251_883_607
TOO_LARGE = 2**63 + 1_318_276_459
CODE = "zqxvnary17"
UNLISTED = "99001QZ7XK"
MALFORMED = "99WQJ40KD"

_SEPARATOR = r"[,._' \u2019\u00a0\u2009\u202f]?"  # also no-break, thin and narrow spaces
_COMPRESSED = (b"\x28\xb5\x2f\xfd", b"\x1f\x8b", b"PK\x03\x04", b"LZ4Block", b"\x82SNAPPY")


@dataclass(frozen=True)
class Canaries:
    """What must not be seen."""

    numbers: frozenset[int] = frozenset()
    texts: tuple[str, ...] = ()

    def pattern(self) -> re.Pattern[str]:
        """Finds the texts, and the numbers in decimal: plain, grouped by thousands, as 1.2e9."""
        forms = [re.escape(text) for text in self.texts]
        for number in self.numbers:
            digits = str(number)
            head = len(digits) % 3 or 3
            groups = [digits[:head], *(digits[i : i + 3] for i in range(head, len(digits), 3))]
            exponent = rf"[eE]\+?0?{len(digits) - 1}"
            forms.append(rf"(?<!\d){_SEPARATOR.join(groups)}(?!\d)")
            forms.append(rf"(?<!\d){digits[0]}\.{digits[1:8]}\d*{exponent}(?!\d)")
        return re.compile("|".join(forms), re.IGNORECASE)

    def bytes(self) -> Iterator[bytes]:
        """The numbers as little-endian integers of 8 bytes and, where they fit, of 4."""
        for number in self.numbers:
            if number < 2**63:
                yield number.to_bytes(8, "little")
            if number < 2**31:
                yield number.to_bytes(4, "little")


def sightings(folders: Sequence[Path], canaries: Canaries, *, without: str = "-") -> list[str]:
    """Where a canary is seen: file, way of seeing, what."""
    pattern, found = canaries.pattern(), []
    for file in sorted(file for folder in folders for file in folder.rglob("*")):
        if file.is_dir() or f"/{without}/" in str(file):
            continue
        texts = {"name": file.name, **_texts(file)}
        hits = {way: match for way, text in texts.items() if (match := pattern.search(text))}
        found += [f"{file}: {way}: {match[0]}" for way, match in hits.items()]
        content = file.read_bytes()
        short = 8 if content[:4] == b"PAR1" else 4  # compressed bytes may hold any four by chance
        found += [
            f"{file}: bytes: {raw.hex()}"
            for raw in canaries.bytes()
            if len(raw) >= short and raw in content
        ]
    return found


def _texts(file: Path) -> dict[str, str]:
    """All that can be read in a file, as text, by the way of reading it."""
    content = file.read_bytes()
    if content[:4] == b"PAR1":
        with pq.ParquetFile(file) as parquet:
            metadata = [parquet.metadata.to_dict(), parquet.metadata.metadata]
            rows = [batch.to_pylist() for batch in parquet.iter_batches()]
            names = [parquet.schema_arrow.metadata, str(parquet.schema_arrow)]
        return {"values": _flat(rows), "metadata": _flat([metadata, names])}
    assert not content.startswith(_COMPRESSED), f"{file}: cannot look into it"
    text = content.decode("utf-8", errors="replace")
    found = {"text": text, "HTML": html.unescape(text)}
    if file.suffix in (".json", ".jsonl"):
        whole = [text] if file.suffix == ".json" else text.splitlines()
        found["JSON"] = _flat([json.loads(part) for part in whole if part.strip()])
    return found


def _flat(value: object) -> str:
    """All scalars of a nested value, one a line; whole floats as integers too."""
    if isinstance(value, dict):
        return "\n".join(_flat([key, inner]) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return "\n".join(_flat(inner) for inner in value)
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, float) and value.is_integer():
        return f"{value}\n{int(value)}"
    return str(value)


# --- the search itself --------------------------------------------------------------------------

NUMBER = 1_318_276_459
SOUGHT = Canaries(frozenset({NUMBER}), (CODE,))


def _table(values: object, **metadata: str) -> Callable[[Path], None]:
    table = pa.table({"x": values}).replace_schema_metadata(metadata or None)
    return lambda path: pq.write_table(table, path, compression="zstd")


PLANTS: dict[str, str | bytes | Callable[[Path], None]] = {
    "plain.txt": f"count {NUMBER} persons",
    "negative.log": f"got -{NUMBER}",
    "float.csv": f"a,b\n1,{NUMBER}.0\n",
    "repr.log": "array([1.31827646e+09, 0.])",
    "commas.html": f"<td>{NUMBER:,}</td>",
    "entities.html": "1&nbsp;318&#8239;276&thinsp;459",
    "underscores.log": f"{NUMBER:_}",
    "quotes.csv": "1'318'276'459",
    "number.json": json.dumps({"a": [{"b": NUMBER}]}),
    "escaped.json": json.dumps({"a": "1\u202f318\u202f276\u202f459"}),
    "key.jsonl": json.dumps({"a": 1}) + "\n" + json.dumps({str(NUMBER): 0}),
    "exponent.json": '{"a": 13182764590e-1}',
    "code.log": f"got '{CODE.upper()}'",
    f"part-{NUMBER}.csv": "",
    "value.parquet": _table([1, NUMBER]),
    "list.parquet": _table([[1], [2, NUMBER]]),
    "struct.parquet": _table([{"a": {"b": NUMBER}}]),
    "decimal.parquet": _table([float(NUMBER)]),
    "text.parquet": _table([f"{NUMBER:,}"]),
    "dictionary.parquet": _table(pa.array([CODE, "a"]).dictionary_encode()),
    "binary.parquet": _table([CODE.encode()]),
    "note.parquet": _table([1], note=str(NUMBER)),
    "long.npy": np.array([5, NUMBER], np.int64).tobytes(),
    "short.bin": np.array([5, NUMBER], np.int32).tobytes(),
}


def _plant(folder: Path, name: str) -> None:
    plant = PLANTS[name]
    if callable(plant):
        plant(folder / name)
    else:
        (folder / name).write_bytes(plant if isinstance(plant, bytes) else plant.encode())


@pytest.mark.parametrize("name", PLANTS)
def test_the_search_finds_a_plant(tmp_path: Path, name: str) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    _plant(tmp_path / "deep" / "er", name)
    assert sightings([tmp_path], SOUGHT)
    assert not sightings([tmp_path], SOUGHT, without="deep")


def test_the_search_finds_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"1{NUMBER} {NUMBER}0 {NUMBER + 1:,} {CODE[:-1]} 1.31e+09")
    (tmp_path / "b.json").write_text(json.dumps([NUMBER - 1, f"7{NUMBER:,}"]))
    pq.write_table(pa.table({"x": [NUMBER + 1, 0]}), tmp_path / "c.parquet")
    assert sightings([tmp_path], SOUGHT) == []


def test_statistics_are_seen_without_the_values(tmp_path: Path) -> None:
    _plant(tmp_path, "value.parquet")
    assert [hit for hit in sightings([tmp_path], SOUGHT) if ": metadata: " in hit]


def test_a_compressed_file_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "log.zst").write_bytes(b"\x28\xb5\x2f\xfd....")
    with pytest.raises(AssertionError, match="cannot look into it"):
        sightings([tmp_path], SOUGHT)


# --- runs ---------------------------------------------------------------------------------------


def true_answers() -> frozenset[int]:
    """Every true number that is not small: all sums over cells and geounits."""
    found = set()
    for digits in (2, 5, 7, 10):
        for code in {block[:digits] for block, _, _ in PLANTED}:
            cells = np.zeros((2, 3), np.int64)
            for block, cell, count in PLANTED:
                if block.startswith(code):
                    cells.flat[cell] += count
            for sums in (cells, cells.sum(0), cells.sum(1), cells.sum(), cells[:, 1:].sum(1)):
                found |= {int(n) for n in np.ravel(sums) if n}
    return frozenset(found)


def test_planted_numbers_are_no_clock_and_no_size() -> None:
    numbers = true_answers()
    assert 15 <= len(numbers) <= 20
    for number in numbers | {NEGATIVE}:
        assert number > 10**9
        assert not 1_600_000_000 < number < 2_100_000_000  # seconds since 1970
        assert number % 1024  # memory, pages
        assert not all(32 <= byte < 127 for byte in number.to_bytes(8, "little")[:4])  # text


class Stage:
    """A folder for runs whose every output is kept: streams, logs, temporary files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("streams", "logs", "events", "tmp"):
            (folder / name).mkdir()
        (folder / "log4j2.properties").write_text(
            "rootLogger.level = info\n"
            "logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer\n"
            "logger.gateway.level = info\n"  # else Spark lowers the root to WARN
            "rootLogger.appenderRef.file.ref = file\n"
            "rootLogger.appenderRef.stderr.ref = stderr\n"
            "appender.file.type = File\n"
            "appender.file.name = file\n"
            f"appender.file.fileName = {folder}/logs/spark.log\n"
            "appender.file.layout.type = PatternLayout\n"
            "appender.file.layout.pattern = %d %p %c: %m%n%ex\n"
            "appender.stderr.type = Console\n"
            "appender.stderr.name = stderr\n"
            "appender.stderr.target = SYSTEM_ERR\n"
            "appender.stderr.layout.type = PatternLayout\n"
            "appender.stderr.layout.pattern = %p %c: %m%n%ex\n"
        )
        (folder / "in").mkdir()
        toy.write_records(folder / "in")

    def configuration(self, name: str, **changes: Any) -> Path:
        """A run file of its own folder; noise as the module says."""
        (self.folder / name).mkdir()
        options = f"-Dlog4j2.configurationFile=file:{self.folder}/log4j2.properties"
        target = toy.configuration(
            self.folder / name,
            geography__geounits={"path": str(self.folder / "in" / "blocks.csv")},
            privacy__rho="1/1000000000000000000",
            privacy__randomness={"source": "operating_system"},
            invariants=[],
            output__microdata=[],  # one row per person would be billions
            runtime__spark={
                "spark.driver.extraJavaOptions": f"{options} -Djava.io.tmpdir={self.folder}/tmp",
                "spark.eventLog.enabled": "true",
                "spark.eventLog.compress": "false",
                "spark.eventLog.dir": f"file:{self.folder}/events",
            },
            **changes,
        )
        document = yaml.safe_load(target.read_text())
        if document["geography"]["geounits"]["path"] == "":
            del document["geography"]["geounits"]
            target.write_text(yaml.safe_dump(document))
        return target

    def run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        """Run Python from the project's folder; keep what it says."""
        environment = {
            **os.environ,
            "TMPDIR": str(self.folder / "tmp"),
            "SPARK_LOCAL_DIRS": str(self.folder / "tmp"),
        }
        done = subprocess.run(
            [sys.executable, *words],
            cwd=toy.ROOT,
            env=environment,
            capture_output=True,
            check=False,
            timeout=400,
        )
        (self.folder / "streams" / "stdout.txt").write_bytes(done.stdout)
        (self.folder / "streams" / "stderr.txt").write_bytes(done.stderr)
        return done

    def seen(self, canaries: Canaries, *outputs: str) -> list[str]:
        """Sightings in all that the runs wrote outside of their confidential folders."""
        names = ("streams", "logs", "events", "tmp", *(f"{name}/out" for name in outputs))
        folders = [self.folder / name for name in names]
        return sightings(folders, canaries, without="confidential")


def _finished(stage: Stage) -> Path:
    """The run file of an input that is accepted."""
    cells: dict[str, dict[int, int]] = {}
    for block, cell, count in PLANTED:
        cells.setdefault(block, {})[cell] = count
    table = {
        "geocode": list(cells),
        "cells": pa.array([list(row) for row in cells.values()], pa.list_(pa.int64())),
        "counts": pa.array([list(row.values()) for row in cells.values()], pa.list_(pa.int64())),
    }
    path = stage.folder / "in" / "truth.parquet"
    pq.write_table(pa.table(table), path)
    return stage.configuration("whole", data={"input_format": "histograms", "path": str(path)})


def _records(stage: Stage, name: str, row: str) -> str:
    path = stage.folder / "in" / f"{name}.csv"
    path.write_text((stage.folder / "in" / "records.csv").read_text() + row + "\n")
    return str(path)


def _block_table(stage: Stage, name: str, wrong: str) -> dict[str, str]:
    path = stage.folder / "in" / f"{name}.csv"
    columns = [f"s{s}a{a}" for s in range(2) for a in range(3)]
    lines = [",".join(["geocode", *columns])]
    lines += [
        f"{code},1,2,{wrong if code == toy.blocks()[4] else 3},4,5,6" for code in toy.blocks()
    ]
    path.write_text("\n".join(lines) + "\n")
    return {"input_format": "block_table", "path": str(path), "pattern": "s{sex}a{age}"}


FAILURES = {
    "code": "column age: unknown code; expected one of",
    "unlisted": "geocode is not in the list of geounits",
    "malformed": "column block: geocode does not fit the leaf geolevel",
    "negative": "row 6, column s0a2: count is negative",
    "word": "row 6, column s0a2: count is not an integer",
    "large": "row 2, columns cells and counts: count is too large",
    "headless": "lacks columns; got 3 others",
}


def _failing(stage: Stage) -> dict[str, Path]:
    """Run files of inputs that are refused, by the name of the fault."""
    code = _records(stage, "code", f"9900100000,male,{CODE}")
    unlisted = _records(stage, "unlisted", f"{UNLISTED},male,under_18")
    malformed = _records(stage, "malformed", f"{MALFORMED},male,under_18")
    headless = stage.folder / "in" / "headless.csv"
    headless.write_text(f"9900100000,male,{CODE}\n")
    large = stage.folder / "in" / "large.parquet"
    lists = pa.array([[1], [TOO_LARGE]], pa.list_(pa.uint64()))
    table = {"geocode": toy.blocks()[:2], "cells": pa.array([[0], [0]]), "counts": lists}
    pq.write_table(pa.table(table), large)
    # A failed check is noted in the account, and the next of these files finds it there.
    make = partial(stage.configuration, privacy__account=str(stage.folder / "in" / "account.jsonl"))
    return {
        "code": make("code", data__path=code),
        "unlisted": make("unlisted", data__path=unlisted),
        "malformed": make("malformed", data__path=malformed, geography__geounits__path=""),
        "negative": make("negative", data=_block_table(stage, "negative", f"-{NEGATIVE}")),
        "word": make("word", data=_block_table(stage, "word", f"{NEGATIVE}{CODE}")),
        "large": make("large", data={"input_format": "histograms", "path": str(large)}),
        "headless": make("headless", data__path=str(headless)),
    }


# One process and one session, which every run finds open: Java and the workers start once.
_RUN_ALL = """
import sys
from pathlib import Path
from jobs.cli.main import main
from jobs.pipeline.config.load import load_run
from jobs.pipeline.tasks.session import spark_session
configs = sys.argv[1:]
runtime = load_run(Path(configs[0])).config.runtime
with spark_session("all", master=runtime.master, properties=runtime.spark):
    for config in configs:
        sys.argv = ["das", "run", config]
        print(f"code {main()}", flush=True)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stage, str]:
    """The folder of a finished run and of the refused ones, and what they said of errors."""
    stage = Stage(tmp_path_factory.mktemp("canaries"))
    configs = _failing(stage)
    assert configs.keys() == FAILURES.keys()
    done = stage.run("-c", _RUN_ALL, str(_finished(stage)), *map(str, configs.values()))
    errors = done.stderr.decode()
    said = [line for line in done.stdout.decode().splitlines() if line.startswith("code ")]
    assert said == ["code 0", *["code 2"] * len(configs)], errors[-3000:]
    assert "INFO org.apache.spark" in errors
    return stage, errors


@pytest.mark.spark
def test_a_finished_run_shows_no_true_answer(ran: tuple[Stage, str]) -> None:
    stage, _ = ran
    folder, canaries = stage.folder, Canaries(true_answers())
    out = folder / "whole" / "out"
    assert stage.seen(canaries, "whole") == []
    # What was searched is there, and the truth is where it belongs and would have been found.
    assert (release_of(out).report).exists()
    assert b"TaskSetManager" in (folder / "logs" / "spark.log").read_bytes()
    events = [file.read_text() for file in (folder / "events").rglob("*") if file.is_file()]
    assert any("SparkListenerTaskEnd" in text for text in events)
    hidden = sightings([truth_of(out).root / "histograms"], canaries)
    assert {hit.rsplit(": ", 1)[1] for hit in hidden if ": values: " in hit}


@pytest.mark.spark
def test_refused_input_is_not_quoted(ran: tuple[Stage, str]) -> None:
    stage, printed = ran
    errors = [line for line in printed.splitlines() if line.startswith("das: Input")]
    for error, (name, message) in zip(errors, FAILURES.items(), strict=True):
        assert message in error, name
    canaries = Canaries(frozenset({NEGATIVE, TOO_LARGE}), (CODE, UNLISTED, MALFORMED))
    assert stage.seen(canaries, *FAILURES) == []
