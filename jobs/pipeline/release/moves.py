"""Failsafe: move a parent to counts that its children can sum to, and carry the move up the tree.

Two choices: the nearest counts in L1, or the counts at which the children fit their noisy answers
best, with a penalty on the persons that the parent moves.

The manifest of a solved geolevel lists its moves. Each geolevel above is then replaced atomically
by counts that include the moves, and its new manifest names them. So an interrupted run continues
where it stopped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from das.arrays import IntArray
from das.errors import InfeasibleError, SchemaError, VerificationError
from das.histograms import Histograms
from geography.lattice import Spine
from jobs.pipeline.documents.statistics import HOLDS, Move, statistics_of
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.pieces import Piece
from jobs.pipeline.release.problems import Family, NodeTemplate, node_problem
from jobs.pipeline.storage.dataset import Dataset, PartFile, PartWriter, replace_published
from jobs.pipeline.storage.histograms import SPARSE_SCHEMA, align_histograms, sparse_table
from jobs.pipeline.storage.layout import ReleaseLayout
from solvers.backends.registry import mixed_integer
from solvers.choices import Failsafe, Method
from solvers.node import NodeSettings, solve_node
from solvers.objectives.penalty import loosen
from solvers.problem import NodeProblem
from solvers.rounding.failsafe import KeptSums, nearest_parent

# Weight of a person moved in the parent, relative to the largest weight of a noisy answer of a
# child. In `bench.failsafe` parents moved 142.5 persons to the nearest counts, 154 with a weight
# of 10, 292.5 with 1; errors of blocks were 34.1, 33.9 and 37.9 (docs/invariants.md).
PENALTY = 10.0

Moves = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, eq=False)
class Contradicted:
    """A family whose constraints contradict the counts of its parent, and how that may move.

    Attributes:
      template: The node template of the geolevel of the children.
      piece: The piece that contains the family.
      family: The family.
      cells: int64[k], cells whose counts may change, sorted.
      kept: Exact queries and linear rows of coarser geolevels whose values must stay.
    """

    template: NodeTemplate
    piece: Piece
    family: Family
    cells: IntArray
    kept: KeptSums

    @classmethod
    def of(cls, plan: Plan, template: NodeTemplate, piece: Piece, family: Family) -> Contradicted:
        """Find what may move in the parent of a family.

        Cells without drawn on-demand answers stay empty. A linear row keeps its sum, unless the
        geolevel of the children states bounds for it.

        Raises:
          InfeasibleError: No count may change.
        """
        level = template.level
        if level.on_demand and family.parent is not None:
            cells = family.parent.cells
            if not len(cells):
                raise InfeasibleError(
                    f"node {family.geocode}", "is empty, but its children must have persons"
                )
        else:
            cells = plan.limits.possible(plan.schema)
        partitions: dict[str, IntArray] = {}
        rows: dict[str, IntArray] = {}
        for above in plan.levels[: level.index]:
            for query in above.kept:
                partitions[query.name] = query.rows_of(cells)
            for row in plan.limits.rows_at(above.name):
                if row.is_exact or level.name not in row.geolevels:
                    rows[row.name] = row.coefficients[cells]
        kept = KeptSums(tuple(partitions.values()), tuple(rows.values()))
        return cls(template, piece, family, cells, kept)

    @property
    def before(self) -> IntArray:
        """Return int64[k], the counts of the parent in the k cells of `cells`, before the move."""
        return _counts_in(self.family.parent, self.cells)

    def with_parent(self, counts: IntArray) -> Family:
        """Return the family with other counts of the parent, int64[k] in `cells`."""
        live = np.flatnonzero(counts)
        cells = self.cells[live]
        offsets = np.array([0, len(cells)])
        parent = Histograms(self.template.n_cells, offsets, cells, counts[live])
        return replace(self.family, parent=parent)

    def problem(self, live: IntArray) -> NodeProblem:
        """Make the node problem in which only some of `cells` may have persons.

        It depends on which counts of the parent are positive, not on their values.
        """
        counts = np.zeros_like(self.before)
        counts[live] = np.maximum(self.before[live], 1)
        family, piece = self.with_parent(counts), self.piece
        return node_problem(self.template, family, piece.targets, piece.constraints)


def moved_family(node: Contradicted, failsafe: Failsafe, settings: NodeSettings) -> Family:
    """Move the parent of a family to counts that its children can sum to.

    EXACT takes the nearest such counts in L1. PENALTY fits the children to their noisy answers,
    with a penalty on moved persons (`solvers.objectives.penalty`), rounds the children, and takes
    their sum. PENALTY moves only cells in which the old or the nearest parent has persons.

    Args:
      node: The family, which has a parent.
      failsafe: EXACT or PENALTY.
      settings: Solver settings; the method is always least squares.

    Raises:
      InfeasibleError: No parent that keeps `node.kept` has such children.
      SolverError: A solver did not finish.
    """
    everywhere = node.problem(np.arange(len(node.cells)))
    nearest = nearest_parent(everywhere, node.before, node.kept, mixed_integer(settings.integers))
    if failsafe is Failsafe.PENALTY:
        return node.with_parent(_fitted_counts(node, nearest, settings))
    return node.with_parent(nearest)


def _fitted_counts(node: Contradicted, nearest: IntArray, settings: NodeSettings) -> IntArray:
    """Return int64[k], the sum of the children that fit best, in the k cells of `node.cells`.

    Children are fitted to their noisy answers, with a penalty on moved persons.

    Args:
      node: The family.
      nearest: int64[k], the nearest feasible counts of the parent. They prove that a solution
        exists, and show which empty cells of the parent it needs.
      settings: Solver settings.
    """
    before, rules = node.before, node.kept
    live = np.flatnonzero((before > 0) | (nearest > 0))
    problem = node.problem(live)
    kept = KeptSums(
        tuple(p[live] for p in rules.partitions), tuple(row[live] for row in rules.rows)
    )
    least_squares = replace(settings, method=Method.NNLS)
    room = 1 + 2 * int(np.abs(nearest - before).max())  # the nearest counts are within it
    while True:
        loose = loosen(problem, before[live], kept, room=room, weight=PENALTY)
        solution = solve_node(loose, least_squares)
        # Every cell has at least one person of slack left, so the slack bound is not active.
        if solution.estimate.values[-1].min() >= 1:
            break
        room *= 2
    after = np.zeros_like(before)
    after[live] = solution.counts[:-1].sum(0)
    return after


def move_of(node: Contradicted, after: Family, failsafe: Failsafe) -> Move:
    """Return the changes of the parent of a family."""
    cells = node.cells
    changes = _counts_in(after.parent, cells) - node.before
    changed = np.flatnonzero(changes)
    return Move(
        geocode=node.family.geocode,
        cells=tuple(cells[changed].tolist()),
        changes=tuple(changes[changed].tolist()),
        by="penalty" if failsafe is Failsafe.PENALTY else "exact",
    )


def _counts_in(histograms: Histograms | None, cells: IntArray) -> IntArray:
    """Return int64[k], counts of one geounit in k ascending cells; 0 if `histograms` is None."""
    counts = np.zeros(len(cells), np.int64)
    if histograms is not None and len(cells):
        spots = np.minimum(np.searchsorted(cells, histograms.cells), len(cells) - 1)
        found = cells[spots] == histograms.cells
        counts[spots[found]] = histograms.counts[found]
    return counts


def carry_up(level: int, *, spine: Spine, n_cells: int, release: ReleaseLayout) -> None:
    """Add the moves of a geolevel to the counts of all geolevels above; idempotent.

    Raises:
      VerificationError: A count would become negative; a defect of this program.
    """
    geolevel = spine.levels[level]
    moved = statistics_of(Dataset.open(release.counts(geolevel))).moved
    for above in range(level - 1, -1, -1):
        counts = Dataset.open(release.counts(spine.levels[above]))
        holds = counts.facts.get(HOLDS, [])
        if not moved or geolevel in holds:
            continue
        moves: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for move in moved:
            code = spine.code_at(move.geocode, above)
            for cell, change in zip(move.cells, move.changes, strict=True):
                moves[code][cell] += change
        facts = {**counts.facts, HOLDS: [*holds, geolevel]}
        replace_published(counts, _rewrite(counts, moves, n_cells), facts)


def _rewrite(dataset: Dataset, moves: Moves, n_cells: int) -> list[PartFile]:
    """Rewrite the parts that contain a moved geounit; keep the other parts.

    Ranges of parts do not overlap, so a moved geounit without a row goes to the first part that
    ends at or after it, or to the last part. If no part has rows, it goes to the first.
    """
    ordered = sorted((p for p in dataset.parts if p.rows), key=lambda part: part.low)
    ordered = ordered or list(dataset.parts[:1])
    share: dict[int, dict[str, Mapping[int, int]]] = defaultdict(dict)
    for code, changes in moves.items():
        index = next((i for i, p in enumerate(ordered) if code <= p.high), len(ordered) - 1)
        share[max(index, 0)][code] = changes
    kept = [p for p in dataset.parts if p not in ordered]
    for index, part in enumerate(ordered):
        kept.append(_with_moves(dataset, part, share[index], n_cells) if index in share else part)
    return kept


def _with_moves(
    dataset: Dataset, part: PartFile, moves: Mapping[str, Mapping[int, int]], n_cells: int
) -> PartFile:
    table = replace(dataset, parts=(part,)).read()
    codes = sorted({*table.column("geocode").to_pylist(), *moves})
    old = align_histograms(table, codes, n_cells)
    moved = [(row, *move) for row, code in enumerate(codes) for move in moves.get(code, {}).items()]
    added = np.array(moved, np.int64).reshape(-1, 3).T
    columns = zip((old.owners(), old.cells, old.counts), added, strict=True)
    try:
        histograms = Histograms.from_entries(n_cells, len(codes), *map(np.concatenate, columns))
    except SchemaError:
        what = "a failsafe move leaves a negative count"
        raise VerificationError(str(dataset.path), what) from None
    writer = PartWriter(dataset.path, SPARSE_SCHEMA)
    writer.write(sparse_table(codes, histograms))
    return writer.close(**part.facts)
