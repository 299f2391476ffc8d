"""A small state for end-to-end tests: 2 counties, one of them empty, chains of only children."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

import yaml

from jobs.pipeline.storage.place import place_of, store_of
from tests.builders.run_files import to_products
from tests.checkout import ROOT

LEVELS = ["state", "county", "tract", "block"]
SEX = ("female", "male")
AGE = ("under_18", "18_to_64", "65_and_over")


def blocks() -> list[str]:
    """Leaf geocodes: state 2, county 3, tract 2, block 3 digits."""
    out = []
    for county, tracts in (("001", 3), ("003", 2), ("005", 1)):
        for tract in range(tracts):
            for block in range(1 if county == "005" else 4):
                out.append(f"99{county}{tract:02d}{block:03d}")
    return out


def write_records(folder: Path, *, empty_county: str = "003") -> list[tuple[str, str, str]]:
    """Write records.csv and blocks.csv; returns the records."""
    rng = random.Random(11)
    people = []
    for code in blocks():
        if code[2:5] == empty_county:
            continue
        for _ in range(rng.choice((0, 3, 40))):
            people.append((code, rng.choice(SEX), rng.choice(AGE)))
    with (folder / "records.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["block", "sex", "age"])
        writer.writerows(people)
    with (folder / "blocks.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["geocode"])
        writer.writerows([code] for code in blocks())
    return people


def run_file(folder: Path) -> dict[str, Any]:
    """The run file of the toy state whose data are in a folder, in short (`to_products`)."""
    return {
        "name": "toy",
        "schema": str(ROOT / "conf" / "schema" / "toy.yaml"),
        "data": {
            "input_format": "records",
            "path": str(folder / "records.csv"),
            "geocode": "block",
            "columns": {"sex": "sex", "age": "age"},
        },
        "geography": {
            "levels": [
                {"name": name, "digits": digits}
                for name, digits in zip(LEVELS, (2, 5, 7, 10), strict=True)
            ],
            "geounits": {"path": str(folder / "blocks.csv")},
        },
        "privacy": {
            "rho": "1",
            "allocation": str(ROOT / "conf" / "allocation" / "toy.yaml"),
            "randomness": {"source": "seeded_not_for_release", "seed": 5},
        },
        "invariants": [{"query": "total", "geolevel": "state"}],
        # Intervals of counts take a third of the time of such a small run.
        "output": {"directory": str(folder / "out"), "intervals": False},
        "runtime": {"master": "local[2,3]", "driver_memory": "1g"},
    }


def upload(folder: Path, url: str) -> dict[str, Any]:
    """Copy what `write_records` wrote to an address.

    Returns:
      The changes of a run file, as of `configuration`, that make it read the copies.
    """
    for name in ("records.csv", "blocks.csv"):
        store, key = store_of(place_of(f"{url}/{name}"))
        store.replace(key, (folder / name).read_bytes())
    return {
        "data__path": f"{url}/records.csv",
        "geography__geounits": {"path": f"{url}/blocks.csv"},
    }


def document(folder: Path, **changes: Any) -> dict[str, Any]:
    """The run file of the toy state in short; `changes` as for `configuration`."""
    document = run_file(folder)
    for dotted, value in changes.items():
        *path, last = dotted.split("__")
        section = document
        for key in path:
            section = section[key]
        section[last] = value
    return document


def configuration(folder: Path, **changes: Any) -> Path:
    """Write run.yaml for the toy state.

    `changes` replaces keys of the persons or of the run, dotted, with __ for the dot.
    """
    target = folder / "run.yaml"
    text = yaml.safe_dump(to_products(document(folder, **changes)), sort_keys=False)
    target.write_text(text)
    return target
