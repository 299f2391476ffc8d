"""Errors of the release with and without the housing-unit covariate. Confidential output.

Families of a geolevel are solved again without the covariate. Released and new counts are compared
with the truth: by persons per unit relative to the parent, where population groups are
concentrated, and in sums of half the children of each parent, which are not geounits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from das.confidential import redact_errors
from das.histograms import Histograms
from das.queries.query import Query, parse_query
from jobs.pipeline.confidential.histograms import read_truth
from jobs.pipeline.documents.evaluation import HouseholdErrors
from jobs.pipeline.plan import Level, Plan
from jobs.pipeline.release.covariate import MOST_CERTIFIED, is_sampled
from jobs.pipeline.release.level import LevelReader
from jobs.pipeline.release.pieces import Piece, read_pieces
from jobs.pipeline.release.problems import Family
from jobs.pipeline.release.solve import LevelSolving, batch_sizes, solve_family
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import ConfidentialLayout, ReleaseLayout
from jobs.pipeline.tasks.batches import Batch, geounit_batches
from jobs.pipeline.tasks.executor import Tasks

# Persons per unit relative to the parent; default, not measured.
_HOUSEHOLDS = (0.0, 0.5, 0.8, 1.2, 1.5, np.inf)
# A group counts as concentrated from this share relative to the parent; default, not measured.
_CONCENTRATED = 1.5
_FEWEST = 5  # fewer records of a group give no share; default, not measured


GroupSums = tuple[str, str, IntArray]
"""Kind and label of a group of geounits, and int64[6]: geounits, records, sums of errors and of
squared errors, each as released and without the covariate. Exact and mergeable."""


def household_errors(
    plan: Plan, release: ReleaseLayout, confidential: ConfidentialLayout, tasks: Tasks
) -> tuple[HouseholdErrors, ...]:
    """Compute errors with and without the covariate at every geolevel that uses it.

    Raises:
      OutputError: A dataset is incomplete.
    """
    covariate, rows = plan.solving.covariate, list[HouseholdErrors]()
    for level in plan.levels:
        if covariate is not None and level.name in covariate.geolevels:
            rows += _of_level(plan, level, release, confidential, tasks)
    return tuple(rows)


def _of_level(
    plan: Plan,
    level: Level,
    release: ReleaseLayout,
    confidential: ConfidentialLayout,
    tasks: Tasks,
) -> list[HouseholdErrors]:
    largest, smallest = batch_sizes(plan, release, level, tasks.sizing)
    batches = geounit_batches(release, level, tasks.batches, largest, smallest)
    share = min(1.0, MOST_CERTIFIED / Dataset.open(release.geography(level.name)).rows)

    @redact_errors
    def run(batch: Batch) -> list[GroupSums]:
        return added_up(_of_batch(plan, release, confidential, batch, share))

    parts = tasks.run(f"households {level.name}", batches, run)
    return [_row(level.name, *sums) for sums in added_up(sums for part in parts for sums in part)]


def added_up(parts: Iterable[GroupSums]) -> list[GroupSums]:
    """Add up the sums by kind and label, and sort them by both."""
    sums: dict[tuple[str, str], IntArray] = {}
    for kind, label, part in parts:
        sums[kind, label] = sums.get((kind, label), np.zeros(6, np.int64)) + part
    return [(kind, label, total) for (kind, label), total in sorted(sums.items())]


def _of_batch(
    plan: Plan,
    release: ReleaseLayout,
    confidential: ConfidentialLayout,
    batch: Batch,
    share: float,
) -> Iterator[GroupSums]:
    solving = LevelSolving.of(plan, batch.level)
    level, n_cells = solving.template.level, plan.schema.size
    attributes = [parse_query(plan.schema, a.name) for a in plan.schema.attributes]
    truth = Dataset.open(confidential.histograms(level.name))
    for piece in read_pieces(LevelReader(plan, release, batch.level), batch):
        for family in piece.families:
            if family.n_children < 2 or not is_sampled(family.geocode, share):
                continue
            codes = piece.codes[family.rows]
            plain, _ = solve_family(solving, piece, family)
            yield from compared(
                read_truth(truth, codes, n_cells).reveal(),
                read_counts(release, level.name, codes, n_cells),
                plain,
                _usual_units(plan, piece, family),
                attributes,
            )


def _usual_units(plan: Plan, piece: Piece, family: Family) -> IntArray:
    """Return int64[C], housing units of each of C children; 0 for children with facilities."""
    limits, quarters = piece.constraints.limits, plan.limits.quarters
    if limits is None or limits.quarters is None or quarters is None:
        raise ValueError("no living quarters are known")
    counts = limits.quarters[family.rows]
    return np.where(quarters.facilities(counts) > 0, 0, quarters.housing_units(counts))


def compared(
    truth: Histograms,
    released: Histograms,
    plain: Histograms,
    units: IntArray,
    attributes: Sequence[Query],
) -> Iterator[GroupSums]:
    """Compute the errors of one family.

    Args:
      truth: True histograms of the C children.
      released: Released counts of the children.
      plain: Counts of the children solved without the covariate.
      units: int64[C], housing units; 0 for children that the covariate does not predict.
      attributes: Queries of single attributes, whose levels are the population groups.
    """
    totals = [_totals(counts) for counts in (truth, released, plain)]
    yield _sums("totals", "all", *totals)
    half = slice(0, len(units) // 2)
    yield _sums(
        "sums", "first half of the children", *(total[half].sum()[None] for total in totals)
    )
    is_usual = (units > 0) & (totals[0] > 0)
    per_unit = totals[0][is_usual].sum() / max(1, units[is_usual].sum())
    ratio: FloatArray = totals[0] / np.maximum(units, 1) / max(per_unit, 1e-9)
    for low, high in pairwise(_HOUSEHOLDS):
        here: BoolArray = is_usual & (ratio >= low) & (ratio < high)
        label = f"{low:g} to {high:g}" if np.isfinite(high) else f"{low:g} and more"
        yield _sums("persons per unit", label, *(total[here] for total in totals))
    for query in attributes:
        true, *others = (query.answer(counts) for counts in (truth, released, plain))
        shares = true.sum(0) / max(1, true.sum())
        within = true / np.maximum(totals[0], 1)[:, None]
        many = (true >= _FEWEST) & (within > _CONCENTRATED * shares) & (shares <= 1 / 2)
        yield _sums("concentrated groups", query.name, true[many], *(o[many] for o in others))


def _totals(counts: Histograms) -> IntArray:
    sums = np.zeros(counts.n_geounits, np.int64)
    np.add.at(sums, counts.owners(), counts.counts)
    return sums


def _sums(kind: str, label: str, truth: IntArray, released: IntArray, plain: IntArray) -> GroupSums:
    off = [released - truth, plain - truth]
    sums = [len(truth), truth.sum(), *(o.sum() for o in off), *((o**2).sum() for o in off)]
    return kind, label, np.array(sums, np.int64)


def _row(geolevel: str, kind: str, label: str, sums: IntArray) -> HouseholdErrors:
    answers, records, released, plain, released_squares, plain_squares = sums.tolist()
    return HouseholdErrors(
        geolevel=geolevel,
        kind=kind,
        label=label,
        answers=answers,
        records=records,
        bias=released / records if records else None,
        bias_plain=plain / records if records else None,
        mse=released_squares / answers if answers else None,
        mse_plain=plain_squares / answers if answers else None,
    )
