"""Growing states, all stages and the verification: what a further block costs, and a whole nation.

    python -m bench.scale [--quick] [--blocks N,N,...] [--shape pl94|census1940] [--slots N]
                                [--repeat N]

Every size is a generated state, run from input to evaluation and verified. Processor seconds are those
of all processes, Java included. A run costs a start that does not grow, and so much for each block; what
a state of 100 blocks costs is taken for the start. Counties have 27 tracts on
average at every size, as those of the census of 2020: a nation has more counties, not larger ones. Of repeated runs the one of least processor seconds
counts. The nation is

    start + blocks x cost of a block between the smallest and the largest size.

Prints Markdown tables and one line of JSON, in which `flatness` is the largest over the smallest
processor seconds per block without the start, `gross_flatness` the same with it, and
`marginal_core_seconds_per_1000` what a further 1,000 blocks cost from each size to the next.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.state import das, generated
from tests.builders.places import release_of
from tests.checkout import ROOT

_START = 100  # leaf geounits of the state that is nearly all start


@dataclass(frozen=True)
class Shape:
    """A kind of census.

    Attributes:
      template: Its run file.
      nation: Leaf geounits of the whole nation.
      sizes: Leaf geounits of the states that are run.
      quick: The same, with --quick.
      tracts: Mean number of tracts of a county; None for that of the generator.
    """

    template: str
    nation: int
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    tracts: float | None = None


SHAPES = {
    # Blocks of 2020, see docs/planning.md. Below 12,000 a further block is dearer, 0.35 core seconds
    # for 1,000 against 0.2, since there are more tasks, each of which starts.
    "pl94": Shape("demo.yaml", 8_174_955, (12_000, 50_000, 200_000), (12_000, 36_000, 60_000), 27),
    "census1940": Shape("census1940.yaml", 152_000, (250, 500, 1_500), (100, 200, 300)),
}


@dataclass(frozen=True)
class Cost:
    """What a run of one size costs.

    Attributes:
      blocks: Its leaf geounits.
      persons: Its persons.
      seconds: Wall, without generating the data.
      peak_gb: Largest memory of all processes together.
      task_gb: Largest memory of the process of a task.
      stages: Processor seconds by stage, of all processes as the run's summary has them; `other`
        is what the process of the command spends outside of stages: the start of Python, reports.
      seconds_of: Wall seconds by stage.
    """

    blocks: int
    persons: int
    seconds: float
    peak_gb: float
    task_gb: float
    stages: Mapping[str, float]
    seconds_of: Mapping[str, float]

    @property
    def core_seconds(self) -> float:
        """Processor seconds of everything."""
        return sum(self.stages.values())


def run_size(shape: Shape, blocks: int, slots: int) -> Cost:
    """Generate a state, run all stages, verify the release."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = generated(shape.template, folder, blocks, tracts=shape.tracts)
        return run_whole(config, folder / "out", slots)


def run_whole(config: Path, out: Path, slots: int) -> Cost:
    """Run all stages of a run file whose run folder is `out`, and verify the release."""
    document = yaml.safe_load(config.read_text())
    document.setdefault("runtime", {})["master"] = f"local[{slots},4]"
    config.write_text(yaml.safe_dump(document, sort_keys=False))  # products stay in order
    started = time.monotonic()
    outside = _run(config)
    ran = time.monotonic()
    before = _children()
    das("verify", config)
    verified = time.monotonic()
    checking = _children() - before
    summary = json.loads((out / "summary.json").read_text())
    manifest = json.loads((release_of(out).manifest).read_text())
    stages = {stage: row["core_seconds"] for stage, row in summary["stages"].items()}
    seconds = {stage: row["seconds"] for stage, row in summary["stages"].items()}
    seconds["other"] = ran - started - sum(seconds.values())
    seconds["verify"] = verified - ran
    stages |= {"other": outside, "verify": checking}
    return Cost(
        manifest["totals"]["leaf_geounits"],
        manifest["totals"][manifest["records"]],
        verified - started,
        summary["total"]["peak_memory_bytes"] / 1e9,
        summary["total"]["task_peak_memory_bytes"] / 1e9,
        stages,
        seconds,
    )


def _run(config: Path) -> float:
    """Run a run file as `das run` does; processor seconds of its process outside of all stages."""
    words = [sys.executable, "-c", _OUTSIDE, "run", str(config)]
    done = subprocess.run(words, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.splitlines()[-1])


# Before the first stage Python starts and reads the run file; after the last it writes reports.
_OUTSIDE = """
import contextlib, sys, time
from jobs.cli.main import main
from jobs.pipeline.tasks.progress import Recorder
inside, depth, stage = 0.0, 0, Recorder.stage
@contextlib.contextmanager
def timed(*args, **kwargs):
    global inside, depth
    began, depth = time.process_time(), depth + 1
    try:
        with stage(*args, **kwargs) as line:
            yield line
    finally:
        depth -= 1
        inside += (time.process_time() - began) * (depth == 0)
Recorder.stage = timed
code = main()
print(time.process_time() - inside)
sys.exit(code)
"""


def _children() -> float:
    """Processor seconds of processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def least_cost(shape: Shape, blocks: int, slots: int, repeat: int) -> Cost:
    """The cheapest of some runs of one size."""
    runs = [run_size(shape, blocks, slots) for _ in range(repeat)]
    return min(runs, key=lambda cost: cost.core_seconds)


def markdown(rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; the first row is its head."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def marginal(one: Cost, other: Cost, stage: str | None = None) -> float:
    """Processor seconds of a further block between two sizes."""
    spent = [c.stages[stage] if stage else c.core_seconds for c in (one, other)]
    return (spent[1] - spent[0]) / (other.blocks - one.blocks)


def report(start: Cost, costs: Sequence[Cost], nation: int) -> dict[str, object]:
    """Print the tables; return what goes into the JSON."""
    first, last = costs[0], costs[-1]
    memory_of = ("Peak memory, GB", "Largest task, GB")
    per = ("Core s per 1,000 blocks", "without the start")
    rows: list[Sequence[object]] = [("Blocks", "Wall, s", "Core s", *memory_of, *per)]
    net = [marginal(start, cost) for cost in costs]
    gross = [cost.core_seconds / cost.blocks for cost in costs]
    for cost, with_start, without in zip(costs, gross, net, strict=True):
        per_1000 = [f"{1000 * with_start:.2f}", f"{1000 * without:.2f}"]
        measured = [f"{value:.1f}" for value in (cost.seconds, cost.core_seconds)]
        measured += [f"{value:.2f}" for value in (cost.peak_gb, cost.task_gb)]
        rows.append((f"{cost.blocks:,}", *measured, *per_1000))
    print(markdown(rows))
    print("\nCore seconds by stage:\n")
    every = (start, *costs)
    rows = [("Stage", *(f"{cost.blocks:,}" for cost in every), "per further 1,000")]
    for stage in last.stages:
        spent = (f"{cost.stages[stage]:.1f}" for cost in every)
        rows.append((stage, *spent, f"{1000 * marginal(first, last, stage):.3f}"))
    spent = (f"{cost.core_seconds:.1f}" for cost in every)
    rows.append(("all", *spent, f"{1000 * marginal(first, last):.3f}"))
    print(markdown(rows))
    print("\nWall seconds by stage:\n")
    rows = [("Stage", *(f"{cost.blocks:,}" for cost in every))]
    rows += [(stage, *(f"{c.seconds_of[stage]:.1f}" for c in every)) for stage in last.seconds_of]
    print(markdown(rows))

    steps = [marginal(a, b) for a, b in zip(costs, costs[1:], strict=False)]
    slope = marginal(first, last)
    hours = (start.core_seconds + nation * slope) / 3600
    memory = (last.peak_gb - first.peak_gb) / (last.blocks - first.blocks)
    print("\nFrom size to size, core s per further 1,000 blocks: "
          + ", ".join(f"{1000 * step:.3f}" for step in steps))  # fmt: skip
    print(
        f"Nation: ({start.core_seconds:.1f} + {nation:,} x {slope:.6f}) / 3,600 = "
        f"{hours:.2f} core hours"
    )
    print(f"Peak memory grows by {1e6 * memory:.2f} MB per 1,000 blocks")
    return {
        "blocks": [cost.blocks for cost in costs],
        "persons": [cost.persons for cost in costs],
        "seconds": [round(cost.seconds, 2) for cost in costs],
        "core_seconds": [round(cost.core_seconds, 2) for cost in costs],
        "peak_gb": [round(cost.peak_gb, 3) for cost in costs],
        "task_gb": [round(cost.task_gb, 3) for cost in costs],
        "us_core_hours": round(hours, 3),
        "start_core_seconds": round(start.core_seconds, 2),
        "flatness": round(max(net) / min(net), 3),
        "gross_flatness": round(max(gross) / min(gross), 3),
        "further_core_seconds_per_1000_blocks": [round(1000 * step, 4) for step in steps],
        "marginal_core_seconds_per_1000": [round(1000 * step, 4) for step in steps],
        "stages": {s: [round(cost.stages[s], 2) for cost in costs] for s in last.stages},
    }


def main() -> None:
    """Run every size and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", help="sizes, increasing, separated by commas")
    parser.add_argument("--shape", choices=SHAPES, default="pl94")
    parser.add_argument("--slots", type=int, default=2, help="tasks at a time")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each size")
    parser.add_argument("--quick", action="store_true", help="small states")
    arguments = parser.parse_args()
    shape = SHAPES[arguments.shape]
    sizes = list(shape.quick if arguments.quick else shape.sizes)
    if arguments.blocks:
        sizes = [int(size) for size in arguments.blocks.split(",")]
    if len(sizes) < 2 or sizes != sorted(set(sizes)):
        parser.error("needs two sizes or more, increasing")
    das("prepare")
    slots, repeat = arguments.slots, arguments.repeat
    run_size(shape, _START, slots)  # brings files into memory
    start = least_cost(shape, _START, slots, repeat)
    costs = [least_cost(shape, size, slots, repeat) for size in sizes]
    result = report(start, costs, shape.nation)
    how = {"shape": arguments.shape, "slots": slots, "repeat": repeat}
    print(json.dumps({**how, **result}))


if __name__ == "__main__":
    main()
