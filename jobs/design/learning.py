"""`das plan --learn`: train regressions that correct released counts, on public counts.

A run is simulated on public tables of other places: measured with seeded noise and solved, as the
run that will use the regressions. The regression of a query learns the true less the released
answer. All of this is public, and fixed before confidential data are measured.
"""

from __future__ import annotations

import hashlib
import shlex
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from das.arrays import IntArray
from das.errors import ConfigError
from das.histograms import Histograms
from jobs.pipeline.confidential.histograms import true_counts
from jobs.pipeline.confidential.training import sketch_of
from jobs.pipeline.config.learned import digests_of, forest_document, write_learned
from jobs.pipeline.config.load import load_training
from jobs.pipeline.config.mistakes import at
from jobs.pipeline.config.product import Product
from jobs.pipeline.config.resolve import read_named
from jobs.pipeline.config.runnable import refuse_unlearnable, require_runnable
from jobs.pipeline.release.covariate import families_to_solve
from jobs.pipeline.release.learned import released_answers
from jobs.pipeline.release.level import LevelReader
from jobs.pipeline.release.pieces import read_pieces
from jobs.pipeline.run import do_stages, open_job
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.tasks.batches import Sizing, all_geounits
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from solvers.learned.forest import Forest, fit_forest

_STAGES = ("plan", "read", "resolve_constraints", "reserve_budget", "measure", "estimate", "solve")
_DRAWS = 4  # simulations of each table; default, not measured
_MOST_ROWS = 200_000  # answers of a query that a regression is fitted to, evenly taken

Rows = tuple[list[IntArray], IntArray]
"""Features of N released answers, int64[N] each, and int64[N], the true less the released."""


def learn(run: Path, tables: Sequence[Path], file: Path, reporter: Reporter) -> None:
    """Train regressions for the last geolevel of a run, and write them to a new file.

    Args:
      run: The run file.
      tables: Public tables of other places, in the input format of the run.
      file: The new file.
      reporter: Receives progress.

    Raises:
      ConfigError: No table is given, or the run cannot be simulated on one, or cannot be corrected.
      DasError: A simulation fails.
      OutputError: The file exists or cannot be written.
    """
    if not tables:
        raise ConfigError("--learn", "needs public counts to train on", want="--public TABLE")
    rows = defaultdict[str, list[Rows]](list)
    sketch, described = list[str](), []
    for table in tables:
        data = table.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        described.append({"name": table.name, "bytes": len(data), "sha256": digest})
        for seed in range(1, _DRAWS + 1):
            with reporter.line("learn", f"{table.name}, {seed} of {_DRAWS}"):
                product, truth, found = simulate(run, table, seed)
            for name, of_query in found:
                rows[name].append(of_query)
        sketch.append(" ".join(sketch_of(truth)))
    with reporter.line("learn", "regressions"):
        forests = {name: forest_document(_fitted(parts)) for name, parts in rows.items()}
    command = ["das", "plan", str(run), "--learn", str(file)]
    command += [word for table in tables for word in ("--public", str(table))]
    named = read_named(load_training(run, tables[0], file, 0).config)[product.name]
    write_learned(
        file,
        {
            "format": 1,
            "source": shlex.join(command),
            "tables": described,
            **digests_of(*named, product.plan.budget),
            "geolevel": product.plan.leaf.name,
            "sketch": sketch,
            "forests": forests,
        },
    )


def simulate(
    run: Path, table: Path, seed: int
) -> tuple[Product, Histograms, list[tuple[str, Rows]]]:
    """Measure and solve a public table, in a temporary folder.

    Args:
      run: The run file.
      table: The public table.
      seed: Public seed of the noise.

    Returns:
      The product, its true counts at the last geolevel, and by query the features of the released
      answers with the true less the released answer.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        resolved = load_training(run, table, Path(folder) / "out", seed)
        require_runnable(resolved)
        product, plan, release = resolved.last, resolved.plan, resolved.last.release
        with at(f"{run}: --learn"):
            refuse_unlearnable(plan)
        quiet, tasks = Reporter(quiet=True), LocalTasks(Sizing(1))
        with open_job(resolved, quiet, tasks=tasks) as job:
            do_stages(job, _STAGES)
        reader = LevelReader(plan, release, plan.leaf.index)
        read_true = partial(true_counts, plan, product.confidential, plan.leaf.name)
        true = read_true(read_public_geocodes(release, plan.leaf.name)).reveal()
        for piece in read_pieces(reader, all_geounits(plan.leaf.index)):
            if not families_to_solve(piece):
                continue
            counts = read_counts(release, plan.leaf.name, piece.codes, plan.schema.size)
            truth = read_true(piece.codes).reveal()
            released, children = released_answers(piece, counts.dense())
            for number, query in enumerate(released.queries):
                wanted = released.sums(truth.dense()[children], number)
                missing = (wanted - released.known[number][0])[released.live(number)]
                found.append((query.name, (released.columns(number), missing)))
    return product, true, found


def _fitted(parts: Sequence[Rows]) -> Forest:
    """Fit the regression of a query to the answers of all simulations."""
    missing = np.concatenate([of_part for _, of_part in parts])
    step = -(-len(missing) // _MOST_ROWS)
    columns = [np.concatenate(some)[::step] for some in zip(*(c for c, _ in parts), strict=True)]
    return fit_forest(columns, missing[::step].astype(np.float64))
