"""Coverage of the intervals of released counts against the truth, by geolevel and size class.

    python -m bench.replicate_coverage [--quick] [--states ri,de,pl94] [--runs N] [--count R] [--data FOLDER]

Each run measures and solves a state with its own noise: Rhode Island, Delaware or Hawaii, the blocks of
`tests/data` or of the folder of --data, and a generated state of 2,016 cells. `ri-learned` is Rhode
Island with the optimised allocation and learned counts, `ri-optimised` the same without; so of other
states. The intervals are those of the run itself, or with --count of so many replicates by `das
replicate`. An interval covers if the
true answer lies in it; answers that invariants fix are left out. Coverage is a mean over answers of
all runs; its standard error is over runs. By mark of the class too, which is what the product says
without the truth. Prints a table and one line of JSON: geolevel -> size class -> coverage, and for
each state coverage and answers by size class, and by table and size class, of 1,000 answers or more.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bench.accuracy import DATA, blocks_of, resolve
from bench.state import generated, persons_of
from das.metrics.accuracy import TRUE_EDGES, TRUE_LABELS, bins_of
from jobs.analysis.replicate import ReplicateSettings, replicate
from jobs.pipeline.confidential.histograms import read_truth
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import Product, Resolved
from jobs.pipeline.documents.intervals import read_intervals
from jobs.pipeline.release.intervals import MARKS, class_tables
from jobs.pipeline.release.public_bounds import PublicBounds
from jobs.pipeline.run import MEASURING, SOLVING, do_stages, open_job
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter

CONFIDENCE = Fraction(9, 10)
LEAST = 1_000  # answers of a class that counts
BLOCKS = 600  # of the generated state
BLOCK16 = ["total", "votingage", "ethnicity_race", "detailed"]
TABLES = {
    "ri": BLOCK16,
    "de": BLOCK16,
    "hi": BLOCK16,
    "pl94": ["total", "hhgq", "votingage * hispanic", "cenrace", "detailed"],
}

Cell = tuple[str, str, str, str]  # geolevel, size class, mark, table
Covered = dict[Cell, tuple[int, int]]  # answers covered, and all


def run_of(state: str, seed: int, folder: Path, data: Path = DATA) -> Resolved:
    """The run of a state, its detailed table among its tables."""
    if state == "pl94":
        path = generated("demo.yaml", folder, BLOCKS)
    else:
        place, _, way = state.partition("-")
        resolve(blocks_of(place, data), way or "full", seed, folder / "out")
        path = folder / "run.yaml"
    document = yaml.safe_load(path.read_text())
    document["privacy"] = {"randomness": {"source": "seeded_not_for_release", "seed": seed}}
    persons_of(document)["output"] = {"microdata": [], "tables": TABLES.get(state, BLOCK16)}
    path.write_text(yaml.safe_dump(document))
    return load_run(path)


def covered_of(product: Product) -> Iterator[tuple[Cell, int, int]]:
    """Answers of a release that their intervals cover, and all, by query."""
    plan, release = product.plan, product.release
    tables = class_tables(read_intervals(release, plan.leaf.name))
    for level in plan.levels:
        codes = read_public_geocodes(release, level.name)
        counts = read_counts(release, level.name, codes, plan.schema.size)
        dataset = Dataset.open(product.confidential.histograms(level.name))
        truth = read_truth(dataset, codes, plan.schema.size).reveal()
        exact = {query.name for query in level.exact}
        bounds = PublicBounds(plan, release, level.name)
        for query in product.tabulated.values():
            if query.name in exact:
                continue
            true = query.answer(truth)
            seen, lower, upper, mark = tables[level.name, query.name].at(
                query, counts, bounds.of(query, codes)
            )
            inside = (true >= lower) & (true <= upper)
            bins = bins_of(seen, TRUE_EDGES)
            for one in np.unique(bins).tolist():
                for said in np.unique(mark[bins == one]).tolist():
                    here = (bins == one) & (mark == said)
                    cell = (level.name, TRUE_LABELS[one], MARKS[said], query.name)
                    yield cell, int(inside[here].sum()), int(here.sum())


def one_run(state: str, seed: int, count: int | None, data: Path) -> Covered:
    """Coverage in one run."""
    found: Covered = {}
    with tempfile.TemporaryDirectory() as name:
        resolved = run_of(state, seed, Path(name), data)
        tasks = LocalTasks(Sizing(resolved.config.runtime.batches_per_slot))
        with open_job(resolved, Reporter(quiet=True), tasks=tasks) as job:
            do_stages(job, (*MEASURING, *SOLVING))
        if count:
            settings = ReplicateSettings(count, 1, CONFIDENCE)
            replicate(resolved, settings, Reporter(quiet=True), tasks)
        for cell, inside, number in covered_of(resolved.last):
            before = found.get(cell, (0, 0))
            found[cell] = (before[0] + inside, before[1] + number)
    return found


def shares(runs: list[Covered], key: Callable[[Cell], Any]) -> dict[Any, dict[str, float]]:
    """Coverage by a key of cells: mean over answers of all runs, its standard error over runs."""
    out = {}
    for one in dict.fromkeys(key(cell) for run in runs for cell in run):
        sums = np.array(
            [
                np.sum([run[cell] for cell in run if key(cell) == one], axis=0)
                if any(key(cell) == one for cell in run)
                else (0, 0)
                for run in runs
            ]
        )
        inside, number = sums.sum(0)
        share = inside / number
        error = np.sqrt(((sums[:, 0] - share * sums[:, 1]) ** 2).sum()) / number
        out[one] = {
            "coverage": round(float(share), 4),
            "error": round(float(error), 4),
            "answers": int(number),
        }
    return out


def main() -> None:
    """Run, print tables, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2 runs of each")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--count", type=int)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--states", default="ri,de,pl94")
    arguments = parser.parse_args()
    runs = arguments.runs or (2 if arguments.quick else 10)
    count = arguments.count
    result: dict[str, Any] = {}
    for state in arguments.states.split(","):
        found = [one_run(state, seed, count, arguments.data) for seed in range(1, runs + 1)]
        by_marked = shares(found, lambda cell: cell[:3])
        by_size = shares(found, lambda cell: cell[:2])
        by_mark = shares(found, lambda cell: cell[2])
        by_table = shares(found, lambda cell: (cell[0], cell[3], cell[1]))
        print(f"\n{state}: {runs} runs, {count or 'their own'} replicates of each")
        print(f"{'geolevel':<14}{'count':<14}{'coverage':>9}{'error':>8}{'answers':>10}  marks")
        for (geolevel, size), row in by_size.items():
            marks = {c[2]: r for c, r in by_marked.items() if c[:2] == (geolevel, size)}
            said = ", ".join(f"{m} {r['coverage']:.3f} of {r['answers']}" for m, r in marks.items())
            print(
                f"{geolevel:<14}{size:<14}{row['coverage']:>9.3f}{row['error']:>8.3f}"
                f"{row['answers']:>10}  {said}"
            )
        levels: dict[str, dict[str, float]] = {}
        for (geolevel, size), row in by_size.items():
            levels.setdefault(geolevel, {})[size] = row["coverage"]
        large = {
            name: {", ".join(key): r for key, r in rows.items() if r["answers"] >= LEAST}
            for name, rows in (("classes", by_size), ("tables", by_table))
        }
        result[state] = {"levels": levels, "marks": by_mark, **large}
    first = next(iter(result.values()))["levels"]
    print(json.dumps({"runs": runs, "replicates": count, **first, "states": result}))


if __name__ == "__main__":
    main()
