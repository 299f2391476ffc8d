"""Totals of districts: errors of their counts, and of their estimates.

    python -m bench.districts [--runs N] [--quick]

Rhode Island 2010, every sixth tract (tests/data), with the allocation of conf/run/ri-2010.yaml and
without its learned corrections. Districts are of equally many consecutive blocks, so they cut
tracts. Every run draws its noise by a seed of its own. Errors are root mean squares over districts and
runs, in persons: of the sum of protected counts, and of the estimate, both by `das areas`. Prints a
table and one line of JSON. --quick is one run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import yaml

from bench.release_tools import write_districts
from bench.state import of_table
from jobs.analysis.geocodes import NamedGeounits
from jobs.pipeline.confidential.histograms import read_truth
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.released import load_release
from jobs.pipeline.run import run
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from tests.builders.places import truth_of
from tests.checkout import ROOT
from topdown_das import open_release

_DISTRICTS = (20, 10, 5, 2)
_RUNS = 5


def released(folder: Path, seed: int) -> Path:
    """Make a release with the noise of a seed; return the run folder."""
    folder.mkdir()
    config = of_table(ROOT / "tests" / "data" / "ri_2010_block.parquet", folder)
    document = yaml.safe_load(config.read_text())
    document["privacy"] = {"randomness": {"source": "seeded_not_for_release", "seed": seed}}
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    run(load_run(config), Reporter(quiet=True), tasks=LocalTasks(Sizing(4), slots=2))
    return folder / "out"


def errors_of(out: Path, districts: int) -> dict[str, list[float]]:
    """Errors of the totals of districts, of their counts and of their estimates."""
    product = load_release(out / "release").last
    codes = NamedGeounits(product.plan, product.release).leaves.astype(np.str_).tolist()
    dataset = Dataset.open(truth_of(out, product.name).histograms(product.plan.leaf.name))
    totals = read_truth(dataset, codes, product.plan.schema.size).reveal().totals()
    truth = np.bincount(np.arange(len(codes)) * districts // len(codes), totals)
    write_districts(out / "baf.csv", codes, districts)
    rows = open_release(out / "release").areas(str(out / "baf.csv"), []).table.to_pylist()
    return {
        kind: [row[kind] - truth[int(row["area"]) - 1] for row in rows]
        for kind in ("count", "estimate")
    }


def main() -> None:
    """Measure, print a table, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=_RUNS)
    parser.add_argument("--quick", action="store_true", help="one run")
    arguments = parser.parse_args()
    errors = {n: {"count": [], "estimate": []} for n in _DISTRICTS}
    with tempfile.TemporaryDirectory(prefix="districts-") as temporary:
        for seed in range(1, 2 if arguments.quick else 1 + arguments.runs):
            out = released(Path(temporary) / str(seed), seed)
            for n, found in errors.items():
                for kind, some in errors_of(out, n).items():
                    found[kind] += some
    rows = {
        n: {
            kind: round(float(np.sqrt(np.mean(np.square(some)))), 1) for kind, some in found.items()
        }
        for n, found in errors.items()
    }
    for n, row in rows.items():
        print(
            f"{n:>3} districts",
            *(f"{kind} {error:>6}" for kind, error in row.items()),
            file=sys.stderr,
        )
    print(json.dumps({"districts": rows}))


if __name__ == "__main__":
    main()
