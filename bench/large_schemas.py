"""Schemas of one to 85 million cells, all stages: processor seconds, memory, and the whole nation.

    python -m bench.large_schemas [--quick] [--schemas NAME,...] [--blocks N,N] [--slots N]

Every schema is run twice, as states of two sizes, from input to evaluation, and verified; the
cost of a further block is what the larger state took more. Persons and households of the
demographic and housing characteristics are generated (`das generate`), those of the summary files
by detailed race and by tribe drawn level by level (`tests.builders.large`). The releases that the
households are bound to, of units and of their occupancy, are made before and not counted. The
nation is

    cost of the smaller state + further blocks x cost of a further block.

Prints a Markdown table and one line of JSON, a document for each schema. `peak_gb` is the largest
memory of the process of a task in the larger state.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bench.scale import SHAPES, Cost, markdown, run_whole
from bench.state import das, generated, run_file
from jobs.pipeline.config.load import load_run
from tests.builders.large import SCHEMAS, Large, write_run
from tests.builders.places import release_of
from tests.release_checks import sparse, totals_are_exact, tree_is_consistent

_QUICK, _WHOLE = (200, 800), (2_000, 10_000)  # blocks of the two states


_BEFORE_HOUSEHOLDS = ("dhc-households-h1", "dhc-households-units")


def bound_households(folder: Path, blocks: int) -> Path:
    """Generate households, make the releases that bind them, and write their run file."""
    data = folder / "data"
    what = ("--schema", "dhc_households", "--format", "histograms", "--prims")
    das("generate", "--blocks", blocks, *what, data)

    def put(document: dict[str, Any]) -> None:
        document["geography"]["geounits"]["path"] = str(data / "geounits.parquet")
        for product in document["products"].values():
            product["data"]["path"] = str(data / Path(product["data"]["path"]).name)
            for invariant in product["invariants"]:
                if "released" in invariant:
                    before = folder / Path(invariant["released"]["path"]).parent.name
                    invariant["released"]["path"] = str(before / "out" / "release")

    for name in _BEFORE_HOUSEHOLDS:
        (folder / name).mkdir()
        das("run", run_file(f"{name}.yaml", folder / name, put))
    return run_file("dhc-households.yaml", folder, put)


def _drawn(large: Large) -> Callable[[Path, int], Path]:
    return lambda folder, blocks: write_run(large, folder, blocks)


WRITTEN: Mapping[str, Callable[[Path, int], Path]] = {
    "dhc_persons": partial(generated, "dhc.yaml"),
    "dhc_households": bound_households,
    **{name: _drawn(large) for name, large in SCHEMAS.items()},
}
"""What writes the data and the run file of a schema into a folder, for so many blocks."""


def keeps_what_is_exact(config: Path, out: Path) -> bool:
    """Whether the last product of a run has the totals it must have, and its children add up.

    Exact totals are those of the data; households of a block are as many as units were released as
    occupied there.
    """
    plan = load_run(config).plan
    levels = [level.name for level in plan.levels]
    totals = [level.name for level in plan.levels for one in level.exact if one.name == "total"]
    is_exact = all(totals_are_exact(out, level) for level in totals)
    first = config.parent / _BEFORE_HOUSEHOLDS[0]
    if first.exists():
        units = sparse(release_of(first / "out").counts("block"))
        households = sparse(release_of(out).counts("block"))
        occupied = {code: cells[0] for code, cells in units.items() if 0 in cells}
        is_exact &= occupied == {code: sum(cells.values()) for code, cells in households.items()}
    return is_exact and bool(totals or first.exists()) and tree_is_consistent(out, levels)


def run_state(name: str, blocks: int, slots: int) -> tuple[Cost, int, bool]:
    """Run a state of a schema.

    Returns:
      What it cost, the cells of the schema, and whether everything exact is kept.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = WRITTEN[name](Path(folder), blocks)
        out = Path(folder) / "out"
        cost = run_whole(config, out, slots)
        return cost, load_run(config).plan.schema.size, keeps_what_is_exact(config, out)


def main() -> None:
    """Run the states and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small states")
    parser.add_argument("--schemas", help="some of them, separated by commas")
    parser.add_argument("--blocks", help="two sizes, increasing, separated by commas")
    parser.add_argument("--slots", type=int, default=2, help="tasks at a time")
    arguments = parser.parse_args()
    chosen = arguments.schemas.split(",") if arguments.schemas else [*WRITTEN]
    sizes = _QUICK if arguments.quick else _WHOLE
    if arguments.blocks:
        sizes = tuple(int(size) for size in arguments.blocks.split(","))
    if {*chosen} - {*WRITTEN} or len(sizes) != 2 or sizes[0] >= sizes[1]:
        parser.error(f"needs schemas among {[*WRITTEN]}, and two sizes, increasing")
    das("prepare")
    head = ("Schema", "Cells", "Blocks", "Wall, s", "Core s", "per further 1,000 blocks",
            "US, core hours", "Largest task, GB", "Exact")  # fmt: skip
    rows: list[tuple[object, ...]] = [head]
    found = {}
    for name in chosen:
        small, _, small_is_exact = run_state(name, sizes[0], arguments.slots)
        large, cells, large_is_exact = run_state(name, sizes[1], arguments.slots)
        further = (large.core_seconds - small.core_seconds) / (large.blocks - small.blocks)
        hours = (small.core_seconds + (SHAPES["pl94"].nation - small.blocks) * further) / 3600
        found[name] = {
            "cells": cells,
            "blocks": large.blocks,
            "records": large.persons,
            "seconds": round(large.seconds, 1),
            "core_seconds": round(large.core_seconds, 1),
            "core_seconds_per_1000_blocks": round(1000 * further, 2),
            "us_core_hours": round(hours, 2),
            "peak_gb": round(large.task_gb, 3),
            "invariants_exact": small_is_exact and large_is_exact,
            "stages": {stage: round(spent, 1) for stage, spent in large.stages.items()},
        }
        own = found[name]
        rows.append((name, f"{cells:,}", large.blocks, own["seconds"], own["core_seconds"],
                     own["core_seconds_per_1000_blocks"], own["us_core_hours"], own["peak_gb"],
                     own["invariants_exact"]))  # fmt: skip
    print(markdown(rows))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
