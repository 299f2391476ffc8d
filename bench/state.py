"""A whole state, all stages: seconds, processor seconds, peak memory.

    python -m bench.state [--input BLOCKS.parquet] [--blocks N] [--quick] [--repeat N]

With --input, a block table of 16 cells (votingage x ethnicity-race) with 15-digit geocodes, and
then eight times the same counties as one state, so that the cost of a further block is seen;
otherwise a generated state with the 2,016 cells of PL94. Of repeated runs the one of fewest core
seconds counts. Prints a table and one line of JSON.
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

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from tests.builders.places import release_of
from tests.checkout import ROOT
from tests.release_checks import totals_are_exact, tree_is_consistent

RUNS = ROOT / "conf" / "run"
_CUTS = ((0, 2), (2, 5), (5, 15))  # state, county and the rest of a geocode
_COPIES = 8


def configuration(arguments: argparse.Namespace, folder: Path) -> Path:
    """Write the run file of the benchmark."""
    if not arguments.input:
        return generated("demo.yaml", folder, arguments.blocks)
    return of_table(arguments.input.resolve(), folder)


def of_table(blocks: Path, folder: Path) -> Path:
    """Write the run file of a table of blocks of 16 cells."""
    data = {"path": str(blocks)}
    return run_file(
        "ri-2010.yaml", folder, lambda document: persons_of(document)["data"].update(data)
    )


def stacked(blocks: Path, folder: Path) -> Path:
    """Write a table of blocks some times over, each time with other codes of counties."""
    table = pq.read_table(blocks)
    at, geoid = table.schema.get_field_index("geoid"), pc.cast(table["geoid"], pa.string())
    state, county, rest = (pc.utf8_slice_codeunits(geoid, *ends) for ends in _CUTS)
    copies = []
    for number in range(_COPIES):
        # Codes of counties are odd numbers of three digits, in small states of at most two.
        code = pc.add(pc.cast(county, pa.int64()), 100 * number)
        code = pc.utf8_lpad(pc.cast(code, pa.string()), 3, "0")
        copies.append(
            table.set_column(at, "geoid", pc.binary_join_element_wise(state, code, rest, ""))
        )
    path = folder / "blocks.parquet"
    pq.write_table(pa.concat_tables(copies), path)
    return path


def generated(
    template: str, folder: Path, blocks: int, states: int = 1, tracts: float | None = None
) -> Path:
    """Generate blocks of the schema of a run file, and write that file for them."""
    schema = persons_of(yaml.safe_load((RUNS / template).read_text()))["schema"]
    wanted = ("--blocks", blocks, "--schema", Path(schema).stem, "--format", "histograms")
    shape = () if tracts is None else ("--tracts", tracts)
    das("generate", folder / "data", "--states", states, *shape, *wanted)

    def put(document: dict[str, Any]) -> None:
        data = {"input_format": "histograms", "path": str(folder / "data" / "histograms")}
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
        product.get("solve", {}).pop("learned", None)  # for other shares
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


def measured(config: Path) -> dict[str, Any]:
    """Run a run file; what it took, and whether what it released is exact."""
    started = time.monotonic()
    das("run", config)
    seconds = time.monotonic() - started
    out = config.parent / "out"
    manifest = json.loads((release_of(out).manifest).read_text())
    levels = [row["geolevel"] for row in manifest["geography"]]
    summary = json.loads((out / "summary.json").read_text())
    blocks = manifest["totals"]["leaf_geounits"]
    exact = all(
        totals_are_exact(out, level)
        for invariant in manifest["invariants"]
        for level in invariant["geolevels"]
    )
    return {
        "blocks": blocks,
        "seconds": round(seconds, 2),
        "core_seconds": round(summary["total"]["core_seconds"], 2),
        "peak_gb": round(summary["total"]["peak_memory_bytes"] / 1e9, 3),
        "seconds_per_1000_blocks": round(1000 * seconds / blocks, 3),
        "stages": {
            stage: {name: round(spent[name], 2) for name in ("seconds", "core_seconds")}
            for stage, spent in summary["stages"].items()
        },
        "invariants_exact": exact,
        "tree_consistent": tree_is_consistent(out, levels),
    }


def cheapest(configure: Callable[[Path], Path], repeat: int) -> dict[str, Any]:
    """The run of fewest core seconds, each in a new folder."""
    found = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as name:
            found.append(measured(configure(Path(name))))
    return min(found, key=lambda one: one["core_seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path)
    parser.add_argument("--blocks", type=int)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repeat", type=int, default=1)
    arguments = parser.parse_args()
    arguments.blocks = arguments.blocks or (500 if arguments.quick else 5000)
    result = cheapest(lambda folder: configuration(arguments, folder), arguments.repeat)
    if arguments.input:
        more = cheapest(
            lambda folder: of_table(stacked(arguments.input, folder), folder), arguments.repeat
        )
        result["copies"] = {
            name: more[name]
            for name in ("blocks", "seconds", "core_seconds", "peak_gb", "invariants_exact")
        }
        result["marginal_core_seconds_per_1000"] = round(
            1000
            * (more["core_seconds"] - result["core_seconds"])
            / (more["blocks"] - result["blocks"]),
            4,
        )
    print(f"{'stage':<12}{'seconds':>10}{'core seconds':>14}")
    for stage, spent in result["stages"].items():
        print(f"{stage:<12}{spent['seconds']:>10.2f}{spent['core_seconds']:>14.2f}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
