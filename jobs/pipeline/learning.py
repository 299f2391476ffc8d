"""Train regressions that correct released counts, on answers of simulated releases.

The regression of a query learns the true less the released answer. A run that learns from itself
solves its noisy answers once, takes these counts as the truth, measures and solves them again with
public seeds, and then solves with corrections. No confidential count is read, and no budget spent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from das.arrays import IntArray, ObjectArray
from das.histograms import Histograms
from jobs.pipeline.config.learned import (
    digests_of,
    forest_document,
    read_learned,
    write_learned,
)
from jobs.pipeline.config.product import Product
from jobs.pipeline.config.resolve import read_named
from jobs.pipeline.documents.statistics import statistics_of
from jobs.pipeline.job import Job
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.covariate import families_to_solve
from jobs.pipeline.release.learned import released_answers
from jobs.pipeline.release.level import LevelReader
from jobs.pipeline.release.pieces import read_pieces
from jobs.pipeline.release.solve import sampled_families, solve_level
from jobs.pipeline.repeat import Repeated, make_replicate, noise_key
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import ReleaseLayout, SolvedAside
from jobs.pipeline.storage.place import remove_tree
from jobs.pipeline.tasks.batches import all_geounits
from solvers.learned.forest import Forest, fit_forest

DRAWS = 4  # simulations of each table or release; default, not measured
_MOST_ROWS = 200_000  # answers of a query that a regression is fitted to, evenly taken
_MOST_CELLS = 500_000  # of a release, that one simulation of it solves, about: 120 MB of features

Rows = tuple[list[IntArray], IntArray]
"""Features of N released answers, int64[N] each, and int64[N], the true less the released."""


def missing_answers(
    plan: Plan, release: ReleaseLayout, read_true: Callable[[ObjectArray], Histograms]
) -> Iterator[tuple[str, Rows]]:
    """Yield the training rows of a simulated release, by query.

    Args:
      plan: The plan.
      release: The simulated release, or a replicate.
      read_true: Reads true counts of the last geolevel by geocode.
    """
    reader = LevelReader(plan, release, plan.leaf.index)
    for every in read_pieces(reader, all_geounits(plan.leaf.index)):
        piece = sampled_families(reader, every)
        if not families_to_solve(piece):
            continue
        counts = read_counts(release, plan.leaf.name, piece.codes, plan.schema.size).dense()
        released, children = released_answers(piece, counts, plan.limits.quarters)
        truth = read_true(piece.codes).dense()[children]
        for number, query in enumerate(released.queries):
            wanted = released.sums(truth, number)
            missing = (wanted - released.known[number][0])[released.live(number)]
            yield query.name, (released.columns(number), missing)


def fitted(rows: Mapping[str, Sequence[Rows]]) -> dict[str, Any]:
    """Fit a regression to the rows of each query; returns them as their file names them."""
    return {name: forest_document(_fitted(parts)) for name, parts in rows.items()}


def _fitted(parts: Sequence[Rows]) -> Forest:
    missing = np.concatenate([of_part for _, of_part in parts])
    step = -(-len(missing) // _MOST_ROWS)
    columns = [np.concatenate(some)[::step] for some in zip(*(c for c, _ in parts), strict=True)]
    return fit_forest(columns, missing[::step].astype(np.float64))


def learn_again(job: Job, product: Product) -> None:
    """Learn the regressions of a product from its own noisy answers, once, if it asks for that.

    Regressions of other settings are removed.

    Raises:
      SolverError, InfeasibleError: The counts of some geounit could not be solved.
    """
    plan, release, room = product.plan, product.release, job.out / "learning"
    learned, source = plan.solving.learned, f"das run, with settings {plan.solve_digest}"
    is_own = learned is not None and learned.is_own
    if release.learned.exists():
        if is_own and read_learned(release.learned).source.endswith(source):
            return
        release.learned.unlink()
    if not is_own:
        return
    plain = replace(plan, not_for_release=True, solving=replace(plan.solving, learned=None))
    remove_tree(room)  # also what a killed driver left behind
    with job.stage("solve", product.label("regressions"), plan.leaf.name):
        first = SolvedAside(release.root, release.public, release.folders, aside=room)
        for level in plan.levels:
            solve_level(level, plan=plain, release=first, tasks=job.tasks)
        rows = defaultdict[str, list[Rows]](list)
        for seed in range(1, DRAWS + 1):
            for name, of_query in _measured_again(product.name, plain, first, seed, job):
                rows[name].append(of_query)
        document = {
            "format": 1,
            "source": source,
            "tables": [],
            **digests_of(*read_named(job.resolved.config)[product.name], plan.budget, plan.limits),
            "geolevel": plan.leaf.name,
            "sketch": [],
            "forests": fitted(rows),
        }
        write_learned(release.learned, document)
    remove_tree(room)


def _measured_again(
    name: str, plan: Plan, release: SolvedAside, seed: int, job: Job
) -> Iterator[tuple[str, Rows]]:
    """Yield the training rows of a release that is measured and solved again, by query."""
    leaf, room = plan.leaf.name, release.aside / "again"
    share = min(1.0, _MOST_CELLS / max(1, statistics_of(Dataset.open(release.counts(leaf))).live))
    key, repeated = partial(noise_key, seed, 0, 0), [Repeated(name, plan, release, ())]
    (made,) = make_replicate(repeated, {name: release}, room, key, job.tasks, share).values()
    yield from missing_answers(
        plan, made, lambda codes: read_counts(release, leaf, codes, plan.schema.size)
    )
    remove_tree(room)
