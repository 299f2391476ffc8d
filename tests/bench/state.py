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
from pathlib import Path

import yaml

from tests.release_checks import totals_are_exact, tree_is_consistent

ROOT = Path(__file__).resolve().parents[2]


def configuration(arguments: argparse.Namespace, folder: Path) -> Path:
    """Write the run file of the benchmark."""
    template = "ri-2010.yaml" if arguments.input else "demo.yaml"
    source = ROOT / "conf" / "run" / template
    document = yaml.safe_load(source.read_text())
    document["schema"] = str((source.parent / document["schema"]).resolve())
    allocation = source.parent / document["privacy"]["allocation"]
    document["privacy"]["allocation"] = str(allocation.resolve())
    document["privacy"]["account"] = str(folder / "account.jsonl")
    document["output"]["directory"] = str(folder / "out")
    if arguments.input:
        document["data"]["path"] = str(arguments.input.resolve())
    else:
        das("generate", folder / "data", "--blocks", arguments.blocks, "--format", "histograms")
        document["data"] = {"format": "histograms", "path": str(folder / "data" / "histograms")}
        geounits = folder / "data" / "geounits.parquet"
        document["geography"]["geounits"] = {"path": str(geounits), "geocode": "geocode"}
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def das(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "jobs", *map(str, words)], check=True, cwd=ROOT)


def main() -> None:
    parser = argparse.ArgumentParser()
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
        stages = json.loads((out / "stages.json").read_text())
        peak = json.loads((out / "peak.json").read_text())["peak_memory_bytes"]
        exact = all(
            totals_are_exact(out, level)
            for invariant in manifest["invariants"]
            for level in invariant["geolevels"]
        )
        result = {
            "blocks": manifest["totals"]["leaf_geounits"],
            "seconds": round(seconds, 2),
            "core_seconds": round(sum(s["core_seconds"] for s in stages.values()), 2),
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
