"""Drivers that replace one published dataset in a store at the same time: each change once."""

from __future__ import annotations

import uuid

import pyarrow as pa
from hypothesis import given, settings

from das.errors import DasError
from jobs.pipeline.storage.dataset import (
    MANIFEST,
    Dataset,
    PartFile,
    PartWriter,
    publish,
    replace_published,
    sweep,
    verify_files,
)
from jobs.pipeline.storage.journal import append_to_journal, read_journal
from jobs.pipeline.storage.place import StoredPlace
from tests.builders.turns import Died, in_turns, take_turns
from tests.unit.jobs.pipeline.folder.test_draws_in_stores import RUNS, spread

SCHEMA = pa.schema([("geocode", pa.string()), ("count", pa.int64())])
MOVES = {"county": 1, "tract": 10, "block": 100}


def part(dataset: StoredPlace, count: int) -> PartFile:
    writer = PartWriter(dataset, SCHEMA)
    writer.write(pa.table({"geocode": ["a"], "count": [count]}, schema=SCHEMA))
    return writer.close()


def value(dataset: Dataset) -> int:
    return int(dataset.read().column("count")[0].as_py())


def carry(dataset: StoredPlace) -> None:
    """Add what each geolevel moved, once, as counts above it are carried up."""
    for geolevel, change in MOVES.items():
        counts = Dataset.open(dataset)
        holds = counts.facts.get("holds", [])
        if geolevel not in holds:
            written = part(dataset, value(counts) + change)
            replace_published(counts, [written], {"holds": [*holds, geolevel]})


@settings(max_examples=50)
@given(RUNS)
def test_every_change_is_made_once_whoever_makes_it(runs):
    root = StoredPlace(f"memory://{uuid.uuid4().hex}", "release")
    dataset = root / "counts" / "level=state"
    publish(dataset, [part(dataset, 1000)], {}, replaceable=True)
    with in_turns():
        drivers = take_turns([lambda: carry(dataset)] * 3, spread(runs))
    for driver in drivers:
        assert driver.error is None or isinstance(driver.error, (DasError, Died, OSError))
    carry(dataset)  # whoever goes on, alone
    assert value(Dataset.open(dataset)) == 1000 + sum(MOVES.values())
    assert Dataset.open(dataset).facts == {"holds": [*MOVES]}
    sweep(root)
    verify_files(dataset)
    (current,) = {path.read_bytes() for path in (dataset / MANIFEST, last(dataset))}
    assert b"holds" in current


def last(dataset: StoredPlace) -> StoredPlace:
    return max(dataset.glob("_manifest.*.json"), key=lambda path: path.name)


@settings(max_examples=40)
@given(RUNS)
def test_what_appenders_were_told_is_kept_in_one_order(runs):
    """Each appends numbers of its own, and a count of what it found; answers may be lost."""
    journal = StoredPlace(f"memory://{uuid.uuid4().hex}", "run/ledger.jsonl")
    told: list[dict[str, object]] = []

    def append(who: int) -> None:
        for number in range(3):

            def decide(lines, number=number):
                return [{"who": who, "number": number, "at": len(lines)}]

            told.append(append_to_journal(journal, decide)[-1])

    with in_turns():
        take_turns([lambda who=who: append(who) for who in range(3)], spread(runs))
    lines = read_journal(journal)
    assert [line["at"] for line in lines] == [*range(len(lines))]
    assert all(line in lines for line in told)
    assert len({(line["who"], line["number"]) for line in lines}) == len(lines)
