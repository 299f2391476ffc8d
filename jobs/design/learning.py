"""`das plan --learn`: train regressions that correct released counts, on public counts.

A run is simulated on public tables of other places, or on its own finished release: measured with
seeded noise and solved, as the run that will use the regressions. The regression of a query learns
the true less the released answer. All of this is public: no confidential count is read.
"""

from __future__ import annotations

import hashlib
import shlex
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from das.arrays import IntArray, ObjectArray
from das.histograms import Histograms
from jobs.pipeline.confidential.histograms import true_counts
from jobs.pipeline.confidential.training import sketch_of
from jobs.pipeline.config.learned import digests_of, forest_document, write_learned
from jobs.pipeline.config.load import load_run, load_training
from jobs.pipeline.config.mistakes import at
from jobs.pipeline.config.product import Product
from jobs.pipeline.config.resolve import read_named
from jobs.pipeline.config.runnable import refuse_unlearnable, require_runnable
from jobs.pipeline.documents.manifest import read_manifest
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.covariate import families_to_solve
from jobs.pipeline.release.learned import released_answers
from jobs.pipeline.release.level import LevelReader
from jobs.pipeline.release.pieces import read_pieces
from jobs.pipeline.repeat import Repeated, make_replicate, noise_key
from jobs.pipeline.run import do_stages, open_job
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import ReleaseLayout
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
      tables: Public tables of other places, in the input format of the run; none to measure the
        finished release of the run again.
      file: The new file.
      reporter: Receives progress.

    Raises:
      ConfigError: The run cannot be simulated on a table, or cannot be corrected.
      DasError: A simulation fails.
      OutputError: The file exists or cannot be written, or without a table nothing is finished.
    """
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
    if tables:
        config = load_training(run, tables[0], file, 0).config
    else:
        resolved = load_run(run)
        config, product = resolved.config, resolved.last
        for seed in range(1, _DRAWS + 1):
            with reporter.line("learn", f"the release, {seed} of {_DRAWS}"):
                found = simulate_again(product, seed)
            for name, of_query in found:
                rows[name].append(of_query)
    with reporter.line("learn", "regressions"):
        forests = {name: forest_document(_fitted(parts)) for name, parts in rows.items()}
    command = ["das", "plan", str(run), "--learn", str(file)]
    command += [word for table in tables for word in ("--public", str(table))]
    named = read_named(config)[product.name]
    write_learned(
        file,
        {
            "format": 1,
            "source": shlex.join(command),
            "tables": described,
            **digests_of(*named, product.plan.budget, product.plan.limits),
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
    with tempfile.TemporaryDirectory() as folder:
        resolved = load_training(run, table, Path(folder) / "out", seed)
        require_runnable(resolved)
        product, plan, release = resolved.last, resolved.plan, resolved.last.release
        with at(f"{run}: --learn"):
            refuse_unlearnable(plan)
        quiet, tasks = Reporter(quiet=True), LocalTasks(Sizing(1))
        with open_job(resolved, quiet, tasks=tasks) as job:
            do_stages(job, _STAGES)
        read_true = partial(true_counts, plan, product.confidential, plan.leaf.name)
        true = read_true(read_public_geocodes(release, plan.leaf.name)).reveal()
        found = list(_missing(plan, release, lambda codes: read_true(codes).reveal()))
    return product, true, found


def simulate_again(product: Product, seed: int) -> list[tuple[str, Rows]]:
    """Measure and solve a finished release again, its counts in place of the truth.

    Args:
      product: The product of the release.
      seed: Public seed of the noise.

    Returns:
      By query the features of the answers with the released less the answer.

    Raises:
      ConfigError: The answers cannot be corrected.
      OutputError: The release is not finished.
    """
    read_manifest(product.release)
    with at("--learn"):
        refuse_unlearnable(product.plan)
    plain = replace(product.plan.solving, learned=None, covariate=None, empirical_bayes=())
    plan, leaf = replace(product.plan, not_for_release=True, solving=plain), product.plan.leaf.name

    def read_released(codes: ObjectArray) -> Histograms:
        return read_counts(product.release, leaf, codes, plan.schema.size)

    key, tasks = partial(noise_key, seed, 0, 0), LocalTasks(Sizing(1))
    repeated = Repeated(product.name, plan, product.release, ())
    truths = {product.name: product.release}
    with tempfile.TemporaryDirectory() as folder:
        (made,) = make_replicate([repeated], truths, Path(folder), key, tasks).values()
        return list(_missing(plan, made, read_released))


def _missing(
    plan: Plan, release: ReleaseLayout, read_true: Callable[[ObjectArray], Histograms]
) -> Iterator[tuple[str, Rows]]:
    """Yield the rows of a simulation by query; `read_true` reads true counts by geocode."""
    leaf = plan.leaf
    for piece in read_pieces(LevelReader(plan, release, leaf.index), all_geounits(leaf.index)):
        if not families_to_solve(piece):
            continue
        counts = read_counts(release, leaf.name, piece.codes, plan.schema.size).dense()
        released, children = released_answers(piece, counts, plan.limits.quarters)
        truth = read_true(piece.codes).dense()[children]
        for number, query in enumerate(released.queries):
            wanted = released.sums(truth, number)
            missing = (wanted - released.known[number][0])[released.live(number)]
            yield query.name, (released.columns(number), missing)


def _fitted(parts: Sequence[Rows]) -> Forest:
    """Fit the regression of a query to the answers of all simulations."""
    missing = np.concatenate([of_part for _, of_part in parts])
    step = -(-len(missing) // _MOST_ROWS)
    columns = [np.concatenate(some)[::step] for some in zip(*(c for c, _ in parts), strict=True)]
    return fit_forest(columns, missing[::step].astype(np.float64))
