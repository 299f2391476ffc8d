"""Units beside the persons of the toy state: housing units, and facilities that hold no persons."""

from __future__ import annotations

import csv
import random
from collections import Counter
from pathlib import Path
from typing import Any

from tests.builders import toy

UNITS = ("occupied", "vacant", "correctional", "juvenile", "nursing", "other_institutional",
         "college", "military", "other_noninstitutional")  # fmt: skip


def write_units(folder: Path) -> dict[str, list[int]]:
    """Write units.csv, a block table; returns block to units by level. People need a home."""
    rng = random.Random(12)
    with (folder / "records.csv").open(newline="") as handle:
        inhabited = Counter(row["block"] for row in csv.DictReader(handle))
    units = {}
    for code in toy.blocks():
        occupied = min(inhabited[code], rng.randint(1, 20)) if inhabited[code] else 0
        units[code] = [occupied, rng.randint(0, 3), *(rng.choice((0, 0, 0, 1)) for _ in UNITS[2:])]
    with (folder / "units.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["geocode", *UNITS])
        writer.writerows([code, *counts] for code, counts in units.items())
    return units


def section(folder: Path, **changes: Any) -> dict[str, Any]:
    """The section `units` of a run file."""
    return {
        "schema": str(toy.ROOT / "conf" / "schema" / "units.yaml"),
        "data": {
            "input_format": "block_table",
            "path": str(folder / "units.csv"),
            "columns": {name: {"unit": name} for name in UNITS},
        },
        "privacy": {
            "rho": "1/7",
            "allocation": str(toy.ROOT / "conf" / "allocation" / "toy-units.yaml"),
        },
        "invariants": [{"query": "hhgq", "geolevel": "block"}],
        "solve": {"rounding_passes": [["hhgq", "detailed"]]},
        "output": {"tables": ["hhgq", "unit"], "h1": "occupancy"},
        **changes,
    }
