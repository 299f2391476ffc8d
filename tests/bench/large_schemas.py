"""Schemas of one to 85 million cells, all stages: processor seconds, memory, and the whole nation.

    python -m tests.bench.large_schemas [--quick] [--schemas NAME,...] [--blocks N,N] [--slots N]

Every schema is run twice, as states of two sizes, from input to evaluation, and verified; the
cost of a further block is what the larger state took more. Persons and households of the
demographic and housing characteristics are generated (`das generate`), those of the summary files
by detailed race and by tribe drawn level by level (`tests.builders.large`). The nation is

    cost of the smaller state + further blocks x cost of a further block.

Prints a Markdown table and one line of JSON, a document for each schema. `peak_gb` is the largest
memory of the process of a task in the larger state.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import yaml

from jobs.config.load import load_run
from tests.bench.scale import SHAPES, Cost, markdown, run_whole
from tests.bench.state import RUNS, das, generated
from tests.builders.large import SCHEMAS, write_run
from tests.release_checks import totals_are_exact, tree_is_consistent

_QUICK, _WHOLE = (200, 800), (2_000, 10_000)  # blocks of the two states
# The run files of schemas that `das generate` knows.
_GENERATED = {"dhc_persons": "dhc.yaml", "dhc_households": "dhc-households.yaml"}


def written(name: str, blocks: int) -> Callable[[Path], Path]:
    """What writes the data and the run file of a schema into a folder."""
    if name in SCHEMAS:
        return lambda folder: write_run(SCHEMAS[name], folder, blocks)
    return lambda folder: generated(_GENERATED[name], folder, blocks)


def names() -> list[str]:
    """The schemas that can be run."""
    ready = [name for name, template in _GENERATED.items() if (RUNS / template).exists()]
    return [*ready, *SCHEMAS]


def run_state(name: str, blocks: int, slots: int) -> tuple[Cost, int, bool]:
    """Run a state of a schema.

    Returns:
      What it cost, the cells of the schema, and whether every exact total is that of the data and
      children add up to their parents, cell by cell.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = written(name, blocks)(Path(folder))
        out = Path(folder) / "out"
        cost = run_whole(config, out, slots)
        plan = load_run(config).plan
        levels = [row["name"] for row in yaml.safe_load(config.read_text())["geography"]["levels"]]
        totals = [level.name for level in plan.levels for one in level.exact if one.name == "total"]
        is_exact = all(totals_are_exact(out, level) for level in totals)
        return cost, plan.schema.size, is_exact and tree_is_consistent(out, levels)


def main() -> None:
    """Run the states and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small states")
    parser.add_argument("--schemas", help="some of them, separated by commas")
    parser.add_argument("--blocks", help="two sizes, increasing, separated by commas")
    parser.add_argument("--slots", type=int, default=2, help="tasks at a time")
    arguments = parser.parse_args()
    chosen = arguments.schemas.split(",") if arguments.schemas else names()
    sizes = _QUICK if arguments.quick else _WHOLE
    if arguments.blocks:
        sizes = tuple(int(size) for size in arguments.blocks.split(","))
    if {*chosen} - {*names()} or len(sizes) != 2 or sizes[0] >= sizes[1]:
        parser.error(f"needs schemas among {names()}, and two sizes, increasing")
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
