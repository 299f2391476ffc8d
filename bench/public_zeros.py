"""Errors with and without public zeros, on real blocks with facilities.

    python -m bench.public_zeros [--seeds N] [--quick]

The 2020 counts of Delaware with group quarters (conf/run/de-2020-gq.yaml) are measured with seeded
noise and solved twice from the same noisy answers: with estimates that ignore public zeros, and
with those that use them. Prints a table and one line of JSON: geolevel -> {counts, estimates} ->
[without, with], mean squared errors per cell over the seeds; the share of 90 % intervals that hold
the truth, where an estimate has an error; and processor seconds of both ways. --quick runs one seed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import yaml

from bench.delaware_group_quarters import SOURCE, TYPES, blocks
from das.tree.intervals import normal_factor
from jobs.pipeline.config.load import load_run
from jobs.pipeline.plan import plan_terms, types_of_cells
from jobs.pipeline.run import run_measuring, run_solving
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.estimates import read_tables
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import EstimateLayout
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from tests.checkout import ROOT

RUN_FILE = ROOT / "conf" / "run" / "de-2020-gq.yaml"
CELLS = ["household", *TYPES]
QUIET = Reporter(quiet=True)


def run_file(folder: Path, seed: int) -> Path:
    """Write the run file, with seeded noise, and its input."""
    document = yaml.safe_load(RUN_FILE.read_text())
    product = document["products"]["persons"]
    document["privacy"] = {"randomness": {"source": "seeded_not_for_release", "seed": seed}}
    document["output"] = {"directory": "out"}
    product["schema"] = str((RUN_FILE.parent / product["schema"]).resolve())
    privacy = product["privacy"]
    privacy["allocation"] = str((RUN_FILE.parent / privacy["allocation"]).resolve())
    product["data"]["path"] = product["invariants"][1]["table"]["path"] = "blocks.parquet"
    product["output"] = {"microdata": [], "tables": ["detailed"]}
    blocks(SOURCE).to_parquet(folder / "blocks.parquet")
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def errors(folder: Path, seed: int, *, with_zeros: bool) -> dict[str, dict[str, float]]:
    """Run all stages; mean squared errors and coverage by geolevel, and seconds."""
    truth = blocks(SOURCE)
    resolved = load_run(run_file(folder, seed))
    types = types_of_cells if with_zeros else lambda *_, **__: None
    plan_terms.cache_clear()
    started = time.process_time()
    with patch("jobs.pipeline.plan.types_of_cells", types):
        run_measuring(resolved, QUIET, LocalTasks(Sizing(1)))
        run_solving(resolved, QUIET, LocalTasks(Sizing(1)))
    found: dict[str, dict[str, float]] = {"seconds": {"": time.process_time() - started}}
    release = resolved.last.release
    for level in resolved.plan.levels:
        codes = read_public_geocodes(release, level.name).astype(np.str_).astype(object)
        cells = truth.groupby(truth.geoid.astype(str).str[: level.digits])[CELLS].sum().loc[codes]
        counts = read_counts(release, level.name, codes, len(CELLS)).dense()
        table: pd.DataFrame = read_tables(
            Dataset.open(EstimateLayout.of(release).tables(level.name))
        ).to_pandas()
        table = table.set_index("geocode").loc[codes]
        off = np.stack(table.estimate) - cells.to_numpy()
        standard_errors = np.stack(table.standard_error)
        uncertain = standard_errors > 1e-6  # the others are exact, up to rounding
        covered = np.abs(off) <= normal_factor(0.9) * standard_errors
        found[level.name] = {
            "counts": float(((counts - cells.to_numpy()) ** 2).mean()),
            "estimates": float((off**2).mean()),
            "coverage": float(covered[uncertain].mean()),
        }
    return found


def main() -> None:
    """Run both ways for each seed, print a table and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    arguments = parser.parse_args()
    sums: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(lambda: [[], []]))
    for seed in range(1 if arguments.quick else arguments.seeds):
        for with_zeros in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                for level, row in errors(Path(folder), seed, with_zeros=with_zeros).items():
                    for name, value in row.items():
                        sums[level][name][with_zeros].append(value)
    result = {
        level: {name: [round(float(np.mean(x)), 4) for x in pair] for name, pair in row.items()}
        for level, row in sums.items()
    }
    for level, row in result.items():
        cells = (f"{name} {a:>9.4f} {b:>9.4f}" for name, (a, b) in row.items())
        print(f"{level:<12}", *cells, sep="  ")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
