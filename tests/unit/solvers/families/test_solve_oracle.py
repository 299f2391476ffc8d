"""Packed families have the counts that `solve_node` finds node by node, or others as near."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from solvers.families import solve as families
from solvers.families.solve import FamilySettings, PackedFamilies, Parents
from solvers.node import NodeSettings, NodeSolution, solve_node
from solvers.problem import LeastSquaresTerm, NodeProblem, RoundingQuery
from solvers.rounding import round as round_module
from solvers.rounding.sums import gather_sums
from tests.builders.strategies import nested
from tests.unit.solvers.rounding.roundings import is_controlled, least_cost_by_milp, pass_cost

SETTINGS = NodeSettings()
# Costs are sums over the grid of 1/10,000 person: a point that differs in its last digits may lie
# on the other side of an edge in some of the sums of a pass.
EDGES = 1e-4


@dataclass(frozen=True)
class Draw:
    """How families are drawn.

    Attributes:
      families: F.
      cells: n, of the schema.
      levels: Groups of the rounding queries of each pass, before single cells.
      persons: Mean of a cell of a child.
      sparse: Probability that a child has nobody in a cell.
      noise: Standard deviation of the answers.
      whole: Whether answers are multiples of 100 of it, so that many roundings cost the same.
      own_weights: Whether children differ in precision, and in the ratios of their weights.
      first: The query of a first pass of least squares: 0 counts everybody, 1 and 2 are groups.
      truth: Multiple of the noise-free answers that is noised; 0 has nothing to do with the parent.
    """

    families: int = 6
    cells: int = 12
    levels: tuple[tuple[int, ...], ...] = ((1,), (3, 6))
    persons: float = 2.0
    sparse: float = 0.6
    noise: float = 3.0
    whole: bool = True
    own_weights: bool = False
    truth: float = 1.0
    first: int | None = None


def draw(how: Draw, seed: int) -> tuple[PackedFamilies, list[NodeProblem]]:
    """Families packed, and their node problems."""
    rng = np.random.default_rng(seed)
    n = how.cells
    sizes = [size for one in how.levels for size in one]
    chain = nested(n, [*sizes, n])
    order = rng.permutation(n)  # groups are no ranges of cells
    levels = [chain[size][order] for size in sizes] + [np.arange(n)]
    asked = np.zeros((len(how.levels), len(levels)), np.int64)
    asked[
        np.repeat(np.arange(len(how.levels)), [len(o) for o in how.levels]), range(len(sizes))
    ] = 1
    asked[-1, -1] = 1
    queries = [np.zeros(n, np.int64), rng.integers(0, 3, n), levels[0], np.arange(n)]
    children = rng.integers(1, 9, how.families)
    rows = np.concatenate(([0], np.cumsum(np.where(children > 1, children, 0))))
    M = rows[-1]
    answers = [np.zeros((M, int(one.max()) + 1)) for one in queries]
    weights = np.repeat(rng.choice([0.1, 1.0, 4.0], (1, len(queries))), M, axis=0)
    weights *= rng.choice([1.0, 2.0, 0.3], (M, 1))
    if how.own_weights:
        weights *= rng.choice([0.0, 0.5, 1.0, 20.0], weights.shape)
        weights[:, -1] = np.maximum(weights[:, -1], 0.1)
    cells, counts = [], []
    problems = []
    for f, C in enumerate(children):
        truth = rng.poisson(how.persons * rng.gamma(0.5, 2.0, n), (C, n))
        truth[rng.random((C, n)) < how.sparse] = 0
        live = np.flatnonzero(truth.sum(0))
        cells.append(live)
        counts.append(truth.sum(0)[live])
        own = slice(rows[f], rows[f + 1])
        if C > 1:
            for one, groups in zip(answers, queries, strict=True):
                mean = how.truth * truth @ (groups[:, None] == np.arange(one.shape[1]))
                noise = rng.normal(0, how.noise, mean.shape)
                one[own] = np.rint(mean + noise) if how.whole else mean + noise
        terms = []
        for one, groups, weight in zip(answers, queries, weights.T, strict=True):
            present, number = np.unique(groups[live], return_inverse=True)
            terms.append(LeastSquaresTerm(number, one[own][:, present], weight[own].copy()))
        rounding = [np.unique(groups[live], return_inverse=True)[1] for groups in levels]
        passes = tuple(
            tuple(RoundingQuery(rounding[level]) for level in np.flatnonzero(one)) for one in asked
        )
        problems.append(
            NodeProblem(
                f"node {f}", len(live), counts[-1], tuple(terms), (), passes, order=order_of(how)
            )
        )
    parents = Parents(
        [problem.geocode for problem in problems],
        children,
        np.minimum(rows[:-1], max(M - 1, 0)),
        np.concatenate(([0], np.cumsum([len(one) for one in cells]))),
        np.concatenate(cells).astype(np.int64),
        np.concatenate(counts).astype(np.int64),
    )
    questions = FamilySettings(np.array(levels), asked, SETTINGS.tolerance)
    return PackedFamilies(
        questions, np.array(queries), parents, answers, weights, how.first
    ), problems


def order_of(how: Draw) -> tuple[tuple[int, ...], ...]:
    """Least-squares passes by numbers of queries."""
    if how.first is None:
        return ()
    return (how.first,), tuple(number for number in range(4) if number != how.first)


def table(packed: PackedFamilies, number: int, problem: NodeProblem) -> np.ndarray:
    """int64[C, k] of a family, out of its histograms."""
    ends, cells, counts = packed.histograms(number, number + 1)
    out = np.zeros((len(ends) - 1, problem.n_cells), np.int64)
    low, high = packed.parents.offsets[number : number + 2]
    live = packed.parents.cells[low:high]
    owners = np.repeat(np.arange(len(out)), np.diff(ends))
    out[owners, np.searchsorted(live, cells)] = counts
    return out


def is_as_good(problem: NodeProblem, ours: np.ndarray, theirs: NodeSolution) -> bool:
    """Whether counts keep all that rounding keeps, at the same cost in every pass."""
    values = theirs.estimate.values
    snapped = np.where(np.abs(values - np.rint(values)) <= 1e-6, np.rint(values), values)
    if not is_controlled(problem, snapped, ours):
        return False
    for number in range(len(problem.passes)):
        mine = pass_cost(problem, number, values, ours)
        least = pass_cost(problem, number, values, theirs.counts)
        if number and mine > least + EDGES * ours.size:  # a tie before it left less to this pass
            least = least_cost_by_milp(problem, values, ours, number)
        if mine > least + EDGES * ours.size:
            return False
    return True


def is_long_way(problem: NodeProblem, theirs: NodeSolution) -> bool:
    """Whether supports cycled, or no pass-wise rounding on the finest sums of each pass is found."""
    if theirs.estimate.iterations:
        return True
    values = theirs.estimate.values
    sums = gather_sums(problem, values, np.arange(len(values)))
    low, high = np.maximum(sums.least, sums.whole), np.minimum(sums.most, sums.next_whole)
    return round_module._round_coarsely(sums, low, high) is None


DRAWS = [
    Draw(),
    Draw(whole=False),
    Draw(noise=0.0),
    Draw(noise=0.5, truth=0.5),  # halves: every rounding costs the same
    Draw(truth=0.0, noise=10.0),
    Draw(persons=1e5, sparse=0.2, noise=20.0),
    Draw(persons=1e9, sparse=0.1),
    Draw(levels=((1,), ()), cells=30),
    Draw(levels=((),), cells=4, families=12),
    Draw(levels=((1, 2), (4,), (8, 15)), cells=40, own_weights=True),
    Draw(cells=90, families=3, own_weights=True, whole=False),
    Draw(cells=1, levels=((1,), ()), families=10),
    Draw(persons=0.05, cells=20, families=20),
    Draw(first=0),
    Draw(first=0, own_weights=True, persons=0.3, cells=20),
    Draw(first=2, whole=False, cells=24),
    Draw(first=1, noise=10.0, truth=0.0),
    Draw(first=1, persons=1e5, noise=30.0, own_weights=True),
    Draw(first=0, cells=2, levels=((1,), ())),
]


def test_packed_families_have_the_counts_of_nodes_solved_one_by_one():
    for how in DRAWS:
        solved = 0
        for seed in range(5):
            packed, problems = draw(how, seed)
            for number, problem in enumerate(problems):
                found = packed.solve(number)
                if packed.parents.n_children[number] == 1 or not problem.n_cells:
                    assert found is None
                    continue
                theirs = solve_node(problem, SETTINGS)
                if found is None:
                    assert is_long_way(problem, theirs)
                    continue
                ours = table(packed, number, problem)
                solved += 1
                assert found.residual <= SETTINGS.tolerance
                assert found.variables == ours.size
                assert found.live == np.count_nonzero(ours)
                assert np.array_equal(ours.sum(0), problem.parent)
                assert is_as_good(problem, ours, theirs)
        assert solved


@pytest.mark.parametrize("own_weights", [False, True])
def test_heavy_families_are_left_out_where_children_have_weights_of_their_own(
    own_weights, monkeypatch
):
    how = Draw(own_weights=own_weights)
    packed, problems = draw(how, 1)
    solved = [packed.solve(number) is not None for number in range(len(problems))]
    most = max(C * p.n_cells**2 for C, p in zip(packed.parents.n_children, problems, strict=True))
    monkeypatch.setattr(families, "DUAL_ASCENT_CELLS", 1)
    for limit, expected in ((most, solved), (0, [one and not own_weights for one in solved])):
        monkeypatch.setattr(families, "MOST_NUMBERS", limit)
        packed, _ = draw(how, 1)
        assert [packed.solve(number) is not None for number in range(len(problems))] == expected
    assert any(solved)
