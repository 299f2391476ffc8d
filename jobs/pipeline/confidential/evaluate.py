"""Evaluation: errors of the release against the true data. Its output is confidential.

Each task compares one range of geounits of one geolevel. It returns exact, mergeable summaries,
whose size does not grow with the number of geounits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce

import numpy as np

from das.confidential import redact_errors
from das.metrics.accuracy import ErrorSummary, empty_summary, merge, summarize_query
from das.metrics.parity import Areas, GroupErrors
from das.metrics.statistics import describe
from das.queries.query import Query, parse_query
from invariants.exact import invariants_at
from jobs.pipeline.confidential.histograms import read_truth
from jobs.pipeline.confidential.parity import (
    Comparisons,
    Known,
    comparisons_at,
    merged,
    parity_results,
)
from jobs.pipeline.config.mistakes import at
from jobs.pipeline.config.product import Grouping
from jobs.pipeline.documents.document import adapter, write_document
from jobs.pipeline.documents.evaluation import Evaluation, ParityResult, Result
from jobs.pipeline.documents.manifest import expected_rmse, read_manifest
from jobs.pipeline.input.areas import read_areas
from jobs.pipeline.plan import Plan
from jobs.pipeline.storage.dataset import Dataset, RangeReader
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.histograms import read_histograms
from jobs.pipeline.storage.layout import ConfidentialLayout, ReleaseLayout
from jobs.pipeline.tasks.executor import Tasks

BATCH = 4_096  # geounits that a task reads and compares at a time; default, not measured
# Every slice reads part files of two datasets from their start: 25,181 blocks take 0.5 to 0.8 s
# with two slices a slot, 0.9 to 1.3 s with four (`python -m bench.state`).
_SLICES_PER_SLOT = 2


@dataclass(frozen=True)
class Slice:
    """The geounits of one task: a range of one geolevel.

    Attributes:
      release: Paths of the release.
      confidential: Paths of the confidential files.
      queries: Queries whose answers are compared.
      geolevel: The geolevel.
      low: First geocode.
      high: Last geocode.
      cost: Predicted cost, in geounits.
      grouped: Comparisons by population group and by type of geounit.
    """

    release: ReleaseLayout
    confidential: ConfidentialLayout
    queries: tuple[Query, ...]
    geolevel: str
    low: str
    high: str
    cost: int
    grouped: Comparisons = field(default_factory=Comparisons)


def evaluate(
    release: ReleaseLayout,
    confidential: ConfidentialLayout,
    plan: Plan,
    tasks: Tasks,
    *,
    tables: Sequence[Query] = (),
    grouping: Grouping | None = None,
) -> Evaluation:
    """Compare the released counts with the truth at every geolevel and write the evaluation.

    Evaluated queries: listed queries measured at any geolevel, invariants, each attribute, the
    total, the detailed query and `tables`.

    Args:
      release: Paths of geography, counts and manifest; the manifest gives the noise.
      confidential: Paths of the true histograms and of the evaluation.
      plan: Schema, spine, strategy and invariants of the run.
      tasks: Runs the tasks.
      tables: Further queries.
      grouping: Population groups whose errors are compared; None without groups.

    Returns:
      The evaluation written.

    Raises:
      OutputError: A dataset is not complete, or the evaluation cannot be written.
      InputError: The types of geounits cannot be read.
    """
    compared = evaluated_queries(plan, tables)
    levels = plan.geolevels
    areas = _areas(release, grouping, plan.spine.levels)
    grouped = {name: comparisons_at(grouping, areas.get(name, {})) for name in levels}
    slices = [
        piece
        for geolevel in levels
        for piece in _slices(release, confidential, compared, grouped[geolevel], geolevel, tasks)
    ]
    slices.sort(key=lambda piece: -piece.cost)
    results = tasks.run("evaluate", slices, compare)
    noise = dict[tuple[str, str], float]()  # expected RMSE of noisy answers; needs the manifest
    if release.manifest.exists():
        manifest = read_manifest(release)
        noise = expected_rmse(manifest.budget, manifest.levels)
    summaries, parity = dict[tuple[str, str], ErrorSummary](), list[ParityResult]()
    for name in levels:
        at_level = [r for s, r in zip(slices, results, strict=True) if s.geolevel == name]
        of_queries = zip(*(of_slice for of_slice, _ in at_level), strict=True)
        for query, of_slices in zip(compared, of_queries, strict=False):
            summaries[name, query.name] = reduce(merge, of_slices)
        if grouping is not None:
            errors, known = merged(groups for _, groups in at_level), _known(plan, name, noise)
            parity += parity_results(grouping, name, grouped[name], errors, known)
    evaluation = _evaluation(plan, compared, summaries, parity, noise)
    write_document(confidential.evaluation, evaluation)
    return evaluation


def evaluated_queries(plan: Plan, tables: Sequence[Query] = ()) -> tuple[Query, ...]:
    """Return the evaluated queries, coarse before fine, each once."""
    texts = ["total", *(a.name for a in plan.schema.attributes), "detailed"]
    every = [*(parse_query(plan.schema, text) for text in texts), *tables]
    for level in range(len(plan.spine.levels)):
        every += [m.query for m in plan.strategy.measured(level) if m.query.is_listed]
    every += [invariant.query for invariant in plan.invariants]
    by_name = {query.name: query for query in every}
    return tuple(sorted(by_name.values(), key=lambda query: (query.size, query.name)))


@redact_errors
def compare(piece: Slice) -> tuple[Sequence[ErrorSummary], Sequence[GroupErrors]]:
    """Compare the true and the released counts of one slice.

    Returns:
      Error summaries, one per query, and errors by group.
    """
    geocodes = [*read_public_geocodes(piece.release, piece.geolevel, piece.low, piece.high)]
    true = RangeReader(Dataset.open(piece.confidential.histograms(piece.geolevel)))
    protected = RangeReader(Dataset.open(piece.release.counts(piece.geolevel)))
    n_cells = piece.queries[0].n_cells
    summaries = [empty_summary() for _ in piece.queries]
    groups = []
    for low in range(0, len(geocodes), BATCH):
        batch = geocodes[low : low + BATCH]
        truth = read_truth(true, batch, n_cells).reveal()
        released = read_histograms(protected, batch, n_cells)
        for index, query in enumerate(piece.queries):
            summary = summarize_query(query, batch, truth, released)
            summaries[index] = merge(summaries[index], summary)
        groups.append(piece.grouped.slice(low, low + BATCH).compare(truth, released))
    return summaries, merged(groups)


def _slices(
    release: ReleaseLayout,
    confidential: ConfidentialLayout,
    queries: tuple[Query, ...],
    grouped: Comparisons,
    geolevel: str,
    tasks: Tasks,
) -> list[Slice]:
    """Cut a geolevel into slices of similar size."""
    geography = Dataset.open(release.geography(geolevel))
    size = tasks.sizing.evaluate_geounits
    step = min(max(-(-geography.rows // (_SLICES_PER_SLOT * tasks.slots)), size.least), size.most)
    slices, before = [], 0  # number of geounits in earlier parts
    for part in geography.parts:
        codes = geography.read(part.low, part.high, ("geocode",)).column("geocode").to_pylist()
        for start in range(0, len(codes), step):
            some, first = codes[start : start + step], before + start
            here = grouped.slice(first, first + len(some))
            slices.append(
                Slice(release, confidential, queries, geolevel, some[0], some[-1], len(some), here)
            )
        before += len(codes)
    return slices


def _known(plan: Plan, geolevel: str, noise: Mapping[tuple[str, str], float]) -> Known:
    """Return the queries that are published at a geolevel, noisy or exact."""
    measured = {
        entry.query.name: entry.query for level in plan.strategy.levels for entry in level.queries
    }
    noisy = [
        (query, noise[geolevel, name])
        for name, query in measured.items()
        if query.is_partition and (geolevel, name) in noise
    ]
    return Known(noisy, [exact.query for exact in invariants_at(plan.invariants, geolevel)])


def _areas(
    release: ReleaseLayout, grouping: Grouping | None, levels: Sequence[str]
) -> dict[str, dict[str, Areas]]:
    """Read the types of geounits at each geolevel.

    Args:
      release: Paths of the geography.
      grouping: Population groups and files of types; None without groups.
      levels: Geolevels.

    Returns:
      geolevel -> geolevel with types, equal or coarser -> types. Empty without groups.
    """
    areas: dict[str, dict[str, Areas]] = {name: {} for name in levels}
    for above, file in ({} if grouping is None else grouping.areas).items():
        codes = read_public_geocodes(release, above).astype(np.bytes_)
        with at(f"evaluate.areas.{above}"):
            types = read_areas(file, codes)
        for name in levels[levels.index(above) :]:
            below = read_public_geocodes(release, name).astype(np.bytes_)
            within = np.searchsorted(codes, below.astype(codes.dtype))  # geocodes are prefixes
            areas[name][above] = Areas(types.labels, types.of_geounits[within])
    return areas


def _evaluation(
    plan: Plan,
    queries: Sequence[Query],
    summaries: Mapping[tuple[str, str], ErrorSummary],
    parity: Sequence[ParityResult],
    noise: Mapping[tuple[str, str], float],
) -> Evaluation:
    measured = {
        (name, entry.query.name)
        for level, name in enumerate(plan.spine.levels)
        for entry in plan.strategy.measured(level)
    }
    results = [
        {
            "geolevel": level,
            "query": query.name,
            "size": query.size,
            "measured": (level, query.name) in measured,
            "expected_rmse": noise.get((level, query.name)),
            **describe(summaries.get((level, query.name), empty_summary())),
        }
        for level in plan.geolevels
        for query in queries
    ]
    return Evaluation(
        format=1,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        levels=tuple(plan.geolevels),
        queries=tuple(query.name for query in queries),
        results=adapter(tuple[Result, ...]).validate_python(results),
        parity=tuple(parity),
    )
