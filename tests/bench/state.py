"""A whole state, all stages: seconds, processor seconds, peak memory.

    python -m tests.bench.state [--input BLOCKS.parquet] [--blocks N] [--quick]

With --input, a block table of 16 cells (votingage x ethnicity-race) with 15-digit geocodes;
otherwise a generated state with the 2,016 cells of PL94. Prints a table and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.checkout import ROOT
from tests.release_checks import totals_are_exact, tree_is_consistent

RUNS = ROOT / "conf" / "run"


def configuration(arguments: argparse.Namespace, folder: Path) -> Path:
    """Write the run file of the benchmark."""
    if not arguments.input:
        return generated("demo.yaml", folder, arguments.blocks)
    data = {"path": str(arguments.input.resolve())}
    return run_file(
        "ri-2010.yaml", folder, lambda document: persons_of(document)["data"].update(data)
    )


def generated(
    template: str, folder: Path, blocks: int, states: int = 1, tracts: float | None = None
) -> Path:
    """Generate blocks of the schema of a run file, and write that file for them."""
    schema = persons_of(yaml.safe_load((RUNS / template).read_text()))["schema"]
    wanted = ("--blocks", blocks, "--schema", Path(schema).stem, "--format", "histograms")
    shape = () if tracts is None else ("--tracts", tracts)
    das("generate", folder / "data", "--states", states, *shape, *wanted)

    def put(document: dict[str, Any]) -> None:
        data = {"format": "histograms", "path": str(folder / "data" / "histograms")}
        persons_of(document)["data"] = data
        geounits = folder / "data" / "geounits.parquet"
        document["geography"]["geounits"] = {"path": str(geounits), "geocode": "geocode"}

    return run_file(template, folder, put)


def run_file(template: str, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Write a changed run file of `conf/run` whose output lies in a folder.

    It has the production shares, so that numbers compare with those of other systems and of earlier
    versions.
    """
    document = yaml.safe_load((RUNS / template).read_text())
    for product in document["products"].values():
        product["schema"] = str((RUNS / product["schema"]).resolve())
        allocation = RUNS / product["privacy"]["allocation"]
        product["privacy"]["allocation"] = str(production_of(allocation.resolve()))
    document.setdefault("privacy", {})["account"] = str(folder / "account.jsonl")
    document["output"]["directory"] = str(folder / "out")
    change(document)
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def production_of(allocation: Path) -> Path:
    """The allocation file that an optimised one lies beside; any other itself."""
    names = [allocation.name.replace("-optimised", era) for era in ("-2020", "")]
    return next(path for path in map(allocation.with_name, names) if path.exists())


def persons_of(document: dict[str, Any]) -> dict[str, Any]:
    """What a run file says of the persons."""
    persons: dict[str, Any] = document["products"]["persons"]
    return persons


def das(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "jobs", *map(str, words)], check=True, cwd=ROOT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path)
    parser.add_argument("--blocks", type=int)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    arguments.blocks = arguments.blocks or (500 if arguments.quick else 5000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = configuration(arguments, folder)
        started = time.monotonic()
        das("run", config)
        seconds = time.monotonic() - started
        out = folder / "out"
        manifest = json.loads((out / "release" / "manifest.json").read_text())
        levels = [row["geolevel"] for row in manifest["geography"]]
        summary = json.loads((out / "summary.json").read_text())
        stages, peak = summary["stages"], summary["total"]["peak_memory_bytes"]
        exact = all(
            totals_are_exact(out, level)
            for invariant in manifest["invariants"]
            for level in invariant["geolevels"]
        )
        result = {
            "blocks": manifest["totals"]["leaf_geounits"],
            "seconds": round(seconds, 2),
            "core_seconds": round(summary["total"]["core_seconds"], 2),
            "peak_gb": round(peak / 1e9, 3),
            "seconds_per_1000_blocks": round(
                1000 * seconds / manifest["totals"]["leaf_geounits"], 3
            ),
            "stages": {stage: round(spent["seconds"], 2) for stage, spent in stages.items()},
            "invariants_exact": exact,
            "tree_consistent": tree_is_consistent(out, levels),
        }
    print(f"{'stage':<12}{'seconds':>10}{'core seconds':>14}")
    for stage, spent in stages.items():
        print(f"{stage:<12}{spent['seconds']:>10.2f}{spent['core_seconds']:>14.2f}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
