"""`das plan --learn`: train regressions that correct released counts, on public counts.

A run is simulated on public tables of other places: measured with seeded noise and solved, as the
run that will use the regressions. All of this is public: no confidential count is read.
"""

from __future__ import annotations

import hashlib
import shlex
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from das.histograms import Histograms
from jobs.pipeline.confidential.histograms import true_counts
from jobs.pipeline.confidential.training import sketch_of
from jobs.pipeline.config.learned import digests_of, write_learned
from jobs.pipeline.config.load import load_training
from jobs.pipeline.config.mistakes import at
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.config.resolve import read_named
from jobs.pipeline.config.runnable import refuse_unlearnable, require_runnable
from jobs.pipeline.learning import DRAWS, Rows, fitted, missing_answers
from jobs.pipeline.run import do_stages, open_job
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter

_STAGES = ("plan", "read", "resolve_constraints", "reserve_budget", "measure", "estimate", "solve")


def learn(
    run: Path,
    tables: Sequence[Path],
    file: Path,
    reporter: Reporter,
    allocation: Path | None = None,
) -> None:
    """Train regressions for the last geolevel of a run, and write them to a new file.

    Args:
      run: The run file.
      tables: Public tables of other places, one or more, in the input format of the run.
      file: The new file.
      reporter: Receives progress.
      allocation: Allocation file that replaces the one of the run file.

    Raises:
      ConfigError: The run cannot be simulated on a table, or cannot be corrected.
      DasError: A simulation fails.
      OutputError: The file exists or cannot be written.
    """
    rows = defaultdict[str, list[Rows]](list)
    sketch, described = list[str](), []
    for table in tables:
        data = table.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        described.append({"name": table.name, "bytes": len(data), "sha256": digest})
        for seed in range(1, DRAWS + 1):
            with reporter.line("learn", f"{table.name}, {seed} of {DRAWS}"):
                resolved, truth, found = simulate(run, table, seed, allocation)
            for name, of_query in found:
                rows[name].append(of_query)
        sketch.append(" ".join(sketch_of(truth)))
    with reporter.line("learn", "regressions"):
        forests = fitted(rows)
    command = ["das", "plan", str(run), "--learn", str(file)]
    command += [] if allocation is None else ["--allocation", str(allocation)]
    command += [word for table in tables for word in ("--public", str(table))]
    plan, named = resolved.plan, read_named(resolved.config)[resolved.last.name]
    write_learned(
        file,
        {
            "format": 1,
            "source": shlex.join(command),
            "tables": described,
            **digests_of(*named, plan.budget, plan.limits),
            "geolevel": plan.leaf.name,
            "sketch": sketch,
            "forests": forests,
        },
    )


def simulate(
    run: Path, table: Path, seed: int, allocation: Path | None = None
) -> tuple[Resolved, Histograms, list[tuple[str, Rows]]]:
    """Measure and solve a public table, in a temporary folder.

    Args:
      run: The run file.
      table: The public table.
      seed: Public seed of the noise.
      allocation: Allocation file that replaces the one of the run file.

    Returns:
      The simulated run, its true counts at the last geolevel, and by query the features of the
      released answers with the true less the released answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        resolved = load_training(run, table, Path(folder) / "out", seed, allocation)
        require_runnable(resolved)
        product, plan, release = resolved.last, resolved.plan, resolved.last.release
        with at(f"{run}: --learn"):
            refuse_unlearnable(plan)
        quiet, tasks = Reporter(quiet=True), LocalTasks(Sizing(1))
        with open_job(resolved, quiet, tasks=tasks) as job:
            do_stages(job, _STAGES)
        read_true = partial(true_counts, plan, product.confidential, plan.leaf.name)
        true = read_true(read_public_geocodes(release, plan.leaf.name)).reveal()
        found = list(missing_answers(plan, release, lambda codes: read_true(codes).reveal()))
    return resolved, true, found
