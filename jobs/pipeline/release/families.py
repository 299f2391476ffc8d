"""Pieces whose families are solved by compiled loops, and which are not. Reads no files.

`solvers.families` takes least squares of partition queries in one pass, under the parent alone, and
rounding by nested queries: what most families of most runs are. Which geolevels are such,
`questions_of` says from the plan, and which families `Packed.solve`, from their sizes and weights;
all others are solved one by one.
"""

from __future__ import annotations

import numpy as np

from das.histograms import Histograms
from jobs.pipeline.plan import Level, Plan
from jobs.pipeline.release.pieces import Piece
from jobs.pipeline.release.problems import Family, NodeTemplate
from jobs.pipeline.storage.answers import DrawnAnswers
from solvers.choices import LeastSquaresSolver, Method
from solvers.families.solve import Packed, Parents, Questions

# Cells of a schema for which the answer of every cell is kept, by query, at 8 bytes.
_MOST_CELLS = 50_000


def questions_of(plan: Plan, level: Level) -> Questions | None:
    """How the families of a geolevel are rounded; None if they are solved one by one.

    So are those of the root, which has no parent, of geolevels with invariants, limits, lazy or
    planned queries, a learned prior, first passes of more than one query or that are rounded, and
    all of a run with another method or least-squares solver.
    """
    solving = plan.solving
    is_plain = (
        solving.method == Method.NNLS
        and solving.least_squares == LeastSquaresSolver.STRUCTURED
        and level.name not in solving.learned_prior
    )
    order = solving.order.get(level.name, ())
    is_rounded = bool(order) and solving.round_passes
    if is_rounded or len(order) > 1 or any(len(names) > 1 for names in order):
        return None
    is_free = not (
        level.published
        or level.bound
        or level.bounded_rows
        or plan.limits.binds(level.name)
        or plan.hints
    )
    if not (level.index and is_plain and is_free) or plan.schema.size > _MOST_CELLS:
        return None
    if level.lazy or not all(query.is_partition for query in level.queries):
        return None
    cells = np.arange(plan.schema.size)
    chain = list(dict.fromkeys(query for queries in plan.passes for query in queries))
    asked = [[queries.count(query) for query in chain] for queries in plan.passes]
    rows = np.array([query.rows_of(cells) for query in chain], np.int64)
    first = order[0][0] if order and len(level.queries) > 1 else None
    return Questions(rows, np.array(asked), solving.tolerance, first)


def pack_families(questions: Questions, template: NodeTemplate, piece: Piece) -> Packed | None:
    """Pack the families of a piece of a geolevel that has a parent.

    None if what they are fitted to are not answers of partitions.
    """
    targets, cells = piece.targets, np.arange(template.n_cells)
    if not all(query.is_partition for query in targets.queries):
        return None
    names = [query.name for query in targets.queries]
    queries = [template.groups.rows_of(query, cells) for query in targets.queries]
    parents = [_parent(family) for family in piece.families]
    starts = np.array([family.rows.start for family in piece.families])
    sizes = [len(parent.cells) for parent in parents]
    none = np.zeros(0, np.int64)
    answers = [one for one in targets.answers if not isinstance(one, DrawnAnswers)]
    return Packed(
        questions,
        np.array(queries, np.int64),
        Parents(
            [family.geocode for family in piece.families],
            np.array([family.n_children for family in piece.families]),
            np.asarray(targets.row, np.int64)[starts],
            np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))),
            np.concatenate([none, *(parent.cells for parent in parents)]),
            np.concatenate([none, *(parent.counts for parent in parents)]),
        ),
        answers,
        np.stack(targets.weights, axis=1),
        None if questions.first is None else names.index(questions.first),
    )


def _parent(family: Family) -> Histograms:
    if family.parent is None:
        raise ValueError("the root has no parent")
    return family.parent
