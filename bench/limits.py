"""How far each activity is from what the machine could do: microseconds per block beside a limit.

    python -m bench.limits [--quick] [--blocks N] [--repeat N]

Generated states of 2,016 and of 16 cells are run in this process, task after task, so that nothing
but the work counts: no session, no start. Processor seconds of a stage are those of the larger state
less those of a small one before it, by further block. Of repeated runs the least counts.

The limit of an activity is what has to be done, counted in the same release, times what the
primitives it takes cost on this machine, measured in the same process before and after:

- measure: 16 random bits and one lookup in a table for every noisy number, its addition to the
  truth, and one byte of it compressed and hashed.
- estimate: the same bytes read, each number added once into the sums of its parent and once into a
  table, a multiplication and an addition for each table and number, and estimate and error in single
  precision compressed and hashed.
- solve: the same bytes read; for every Newton step taken and for the certificate each variable
  gathered once and scattered once by every query; one sort of the variables; the counts compressed.
- write: what was written compressed once and hashed once, its rows gathered from counts.

So a limit knows nothing of how the program works, and much of it no program reaches. Prints the
primitives, a table, and one line of JSON: cells -> activity -> {microseconds_per_block, limit, ratio}.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from bench.scale import markdown
from bench.state import generated
from jobs.pipeline.config.load import load_run
from jobs.pipeline.run import run
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from tests.builders.places import release_of

ACTIVITIES = ("measure", "estimate", "solve", "write")
# Cells -> run file, blocks of the larger state, and with --quick.
SHAPES = {2_016: ("demo.yaml", 120_000, 36_000), 16: ("ri-2010.yaml", 240_000, 90_000)}
# Of the larger state. Below 12,000 blocks of 2,016 cells a further block costs more than twice what
# it does above, since there are more tasks, each of which starts.
_SMALL = 1 / 3
_FIRST = 500  # blocks
_BYTES = 1 << 24  # of the arrays that primitives work on: beyond the caches of a core
_NODE = 1 << 13  # doubles of a node, which stay in the caches
_TRIES = 5


def seconds_of(work: Callable[[], object]) -> float:
    """Least processor seconds of some tries."""
    found = []
    for _ in range(_TRIES):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return max(min(found), 1e-9)


def primitives(noise: np.ndarray[Any, np.dtype[np.int8]]) -> dict[str, float]:
    """Nanoseconds of each primitive on this machine, by byte or element.

    Args:
      noise: int8, what a noisy number is compressed as.
    """
    zeros, room = bytes(_BYTES), bytearray(_BYTES + 16)
    cipher = Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor()
    words = np.frombuffer(cipher.update(zeros), np.uint16)
    table = np.arange(1 << 16).astype(np.int16)
    raw = noise.tobytes()
    codec = pa.Codec("zstd", compression_level=1)
    packed = codec.compress(raw)
    floats = np.ones(_BYTES // 4, np.float32)
    more = np.zeros_like(floats)
    square = np.ones((1_000, 1_000), np.float32)
    index = words[: _BYTES // 8].astype(np.int64) % _NODE
    doubles = np.ones(_NODE)
    nano = 1e9
    return {
        "random_byte": nano * seconds_of(lambda: cipher.update_into(zeros, room)) / _BYTES,
        "lookup": nano * seconds_of(lambda: table.take(words)) / len(words),
        "compressed_byte": nano * seconds_of(lambda: codec.compress(raw)) / len(raw),
        "decompressed_byte": nano
        * seconds_of(lambda: codec.decompress(packed, decompressed_size=len(raw)))
        / len(raw),
        "hashed_byte": nano * seconds_of(lambda: hashlib.sha256(zeros)) / _BYTES,
        "added_float": nano * seconds_of(lambda: np.add(more, floats, out=more)) / len(floats),
        "gathered_double": nano * seconds_of(lambda: doubles.take(index)) / len(index),
        "sorted_double": nano
        * seconds_of(lambda: np.sort(index.reshape(-1, _NODE // 8)))
        / len(index),
        "flop": nano * seconds_of(lambda: square @ square) / (2 * square.size * len(square)),
    }


@dataclass(frozen=True)
class Amounts:
    """What a release holds, by block.

    Attributes:
      numbers: Noisy numbers of all geolevels.
      number_bytes: Bytes of measurements.
      estimates: Estimates in tables of all geolevels.
      queries: Queries of the last geolevel.
      variables: Children times live cells of the nodes solved, all geolevels.
      steps: Newton steps of a node, on average over variables' geolevels, at least one.
      count_bytes: Bytes of counts.
      written_bytes: Bytes of microdata and tables of counts.
      rows: Rows of microdata, over all formats.
    """

    numbers: float
    number_bytes: float
    estimates: float
    queries: float
    variables: float
    steps: float
    count_bytes: float
    written_bytes: float
    rows: float


def amounts_of(manifest: Mapping[str, Any], estimates: int) -> Amounts:
    """Count what a release holds."""
    blocks = manifest["totals"]["leaf_geounits"]
    last = manifest["geography"][-1]["geolevel"]
    sizes = {name: 0 for name in ("measurements", "counts", "microdata", "tables")}
    rows = 0
    for output in manifest["outputs"]:
        room = output["path"].split("/")[0]
        if room in sizes:
            sizes[room] += output["bytes"]
        rows += output["rows"] if room == "microdata" else 0
    solved = [row for row in manifest["solve"] if row["nodes"]]
    variables = sum(row["variables"] for row in solved)
    steps = sum(row["variables"] * row["newton_steps"] / row["nodes"] for row in solved)
    return Amounts(
        sum(row["answers"] * row["geounits"] for row in manifest["budget"]) / blocks,
        sizes["measurements"] / blocks,
        estimates / blocks,
        len({row["query"] for row in manifest["budget"] if row["geolevel"] == last}),
        variables / blocks,
        max(1.0, steps / max(1, variables)),
        sizes["counts"] / blocks,
        (sizes["microdata"] + sizes["tables"]) / blocks,
        rows / blocks,
    )


def limits_of(has: Amounts, cost: Mapping[str, float]) -> dict[str, float]:
    """Microseconds a block that the primitives of every activity take."""
    store = cost["compressed_byte"]  # by byte before compression
    read = has.numbers * cost["decompressed_byte"]
    drawn = 2 * cost["random_byte"] + cost["lookup"] + cost["added_float"]
    sums = 2 * cost["added_float"] + 2 * has.queries * cost["flop"]
    passes = (has.steps + 1) * has.queries * 2 * cost["gathered_double"]
    nanoseconds = {
        "measure": has.numbers * (drawn + store) + has.number_bytes * cost["hashed_byte"],
        "estimate": read + has.numbers * sums + has.estimates * 8 * (store + cost["hashed_byte"]),
        "solve": read
        + has.variables * (passes + cost["sorted_double"])
        + has.count_bytes * (store + cost["hashed_byte"]),
        "write": has.written_bytes * (store + cost["hashed_byte"])
        + has.rows * cost["gathered_double"],
    }
    return {name: value / 1e3 for name, value in nanoseconds.items()}


def run_here(template: str, blocks: int) -> tuple[dict[str, float], dict[str, Any], int]:
    """Run a generated state; processor seconds of activities, the manifest, estimates in tables."""
    with tempfile.TemporaryDirectory() as name:
        config = generated(template, Path(name), blocks)
        resolved = load_run(config)
        sizing = Sizing(resolved.config.runtime.batches_per_slot)
        run(resolved, Reporter(quiet=True), tasks=LocalTasks(sizing, slots=2))
        out = resolved.config.output.directory
        stages = json.loads((out / "summary.json").read_text())["stages"]
        manifest = json.loads((release_of(out).manifest).read_text())
    geounits = sum(row["geounits"] for row in manifest["geography"])
    answers = sum(query.size for query in resolved.last.tabulated.values())
    return {a: stages[a]["core_seconds"] for a in ACTIVITIES}, manifest, answers * geounits


def measured(template: str, blocks: int, repeat: int) -> tuple[dict[str, float], Amounts]:
    """Microseconds of a further block by activity, and what a block holds."""
    found: list[dict[str, float]] = []
    least = int(_SMALL * blocks)
    run_here(template, min(least, _FIRST))  # loads compiled code, fills caches
    for _ in range(repeat):
        small, first, _ = run_here(template, least)
        large, manifest, estimates = run_here(template, blocks)
        further = manifest["totals"]["leaf_geounits"] - first["totals"]["leaf_geounits"]
        found.append({a: 1e6 * (large[a] - small[a]) / further for a in ACTIVITIES})
    spent = {a: min(one[a] for one in found) for a in ACTIVITIES}
    return spent, amounts_of(manifest, estimates)


def main() -> None:
    """Measure primitives and states, print tables, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small states")
    parser.add_argument("--blocks", type=int, help="of the larger state, of either shape")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each state")
    arguments = parser.parse_args()
    noise = np.rint(np.random.default_rng(1).normal(0, 12, _BYTES)).clip(-127, 127).astype(np.int8)
    before = primitives(noise)
    spent_of, holds = {}, {}
    for cells, (template, blocks, quick) in SHAPES.items():
        size = arguments.blocks or (quick if arguments.quick else blocks)
        spent_of[cells], holds[cells] = measured(template, size, arguments.repeat)
    after = primitives(noise)
    cost = {name: min(before[name], after[name]) for name in before}
    print(markdown([("Primitive", "ns"), *((n, f"{v:.3f}") for n, v in cost.items())]))
    rows: list[tuple[object, ...]] = [("Cells", "Activity", "us/block", "Limit", "Ratio")]
    result: dict[str, Any] = {}
    for cells, spent in spent_of.items():
        limits = limits_of(holds[cells], cost)
        spent, limits = ({**one, "all": sum(one.values())} for one in (spent, limits))
        result[str(cells)] = {}
        for name, value in spent.items():
            ratio = value / limits[name]
            rows.append((cells, name, f"{value:.1f}", f"{limits[name]:.1f}", f"{ratio:.1f}"))
            result[str(cells)][name] = {
                "microseconds_per_block": round(value, 2),
                "limit": round(limits[name], 2),
                "ratio": round(ratio, 2),
            }
    print("\n" + markdown(rows))
    result["primitives"] = {name: round(value, 4) for name, value in cost.items()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
