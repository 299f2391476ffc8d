"""Hypothesis strategies and seeded builders: schemas, histograms, queries, lattices, nodes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from das.mechanisms.mechanism import Mechanism
from das.mechanisms.registry import choose_mechanism
from das.privacy.budget import Budget
from das.queries.query import Factor, Query, marginal
from das.queries.sensitivity import Neighbors, sensitivity
from das.schema import Attribute, Recode, Schema
from das.strategy import LevelStrategy, QueryShare, Strategy
from geography.lattice import Spine
from solvers.problem import (
    NO_LIMIT,
    ExactTerm,
    LeastSquaresTerm,
    NodeProblem,
    RoundingQuery,
    RowsTerm,
    group_sums,
)

# --- schemas, histograms, queries ----------------------------------------------------------------


@st.composite
def schemas(draw: st.DrawFn, most_attributes: int = 3, most_levels: int = 4) -> Schema:
    """1 to 3 attributes of 1 to 4 levels, each with at most one recode."""
    sizes = draw(st.lists(st.integers(1, most_levels), min_size=1, max_size=most_attributes))
    attributes, recodes = [], []
    for index, size in enumerate(sizes):
        attribute = Attribute(f"a{index}", tuple(f"l{index}{level}" for level in range(size)))
        attributes.append(attribute)
        if draw(st.booleans()):
            codes = draw(st.lists(st.integers(0, size - 1), min_size=size, max_size=size))
            used = draw(st.permutations(sorted(set(codes))))
            groups = {
                f"g{index}{code}": tuple(
                    level for level, c in zip(attribute.levels, codes, strict=True) if c == code
                )
                for code in used
            }
            recodes.append(Recode.from_groups(f"r{index}", attribute, groups))
    return Schema("drawn", tuple(attributes), tuple(recodes))


@st.composite
def marginals(draw: st.DrawFn, schema: Schema) -> Query:
    """A marginal over any attributes and recodes, one per attribute at most."""
    axes = []
    for attribute in schema.attributes:
        names = [attribute.name, *(r.name for r in schema.recodes if r.attribute == attribute.name)]
        chosen = draw(st.sampled_from([None, *names]))
        if chosen:
            axes.append(chosen)
    return marginal(schema, draw(st.permutations(axes)))


@st.composite
def general_queries(draw: st.DrawFn, schema: Schema, least: int = -2, most: int = 3) -> Query:
    """A Kronecker product of any small integer matrices."""
    factors = []
    for attribute in schema.attributes:
        rows = draw(st.integers(1, 3))
        entries = draw(
            st.lists(
                st.integers(least, most),
                min_size=rows * attribute.size,
                max_size=rows * attribute.size,
            )
        )
        matrix = np.array(entries, np.int64).reshape(rows, attribute.size)
        factors.append(Factor(matrix, tuple(f"row{row}" for row in range(rows))))
    return Query("general", tuple(factors))


def queries(schema: Schema) -> st.SearchStrategy[Query]:
    """Marginals and general queries."""
    return st.one_of(marginals(schema), general_queries(schema))


@st.composite
def dense_counts(draw: st.DrawFn, n_cells: int, most_geounits: int = 3) -> np.ndarray:
    """int64[G, n] nonnegative counts, many of them zero."""
    geounits = draw(st.integers(1, most_geounits))
    value = st.one_of(st.just(0), st.integers(0, 9))
    rows = st.lists(value, min_size=n_cells, max_size=n_cells)
    drawn = draw(st.lists(rows, min_size=geounits, max_size=geounits))
    return np.array(drawn, np.int64).reshape(geounits, n_cells)


# --- definitions, spelled out --------------------------------------------------------------------


def cells_in_order(schema: Schema) -> list[tuple[int, ...]]:
    """Level positions of every cell, in order of cell number."""
    return list(itertools.product(*(range(attribute.size) for attribute in schema.attributes)))


def dense_matrix(query: Query) -> np.ndarray:
    """The Kronecker product of the factors, as a matrix."""
    out = np.ones((1, 1), np.int64)
    for factor in query.factors:
        out = np.kron(out, factor.matrix)
    return out


# --- geography -----------------------------------------------------------------------------------


@st.composite
def spines(draw: st.DrawFn, most_levels: int = 4) -> Spine:
    """1 to 4 geolevels; the root has a prefix of no digits, or of some."""
    depth = draw(st.integers(1, most_levels))
    root = draw(st.integers(0 if depth > 1 else 1, 2))
    steps = draw(st.lists(st.integers(1, 2), min_size=depth - 1, max_size=depth - 1))
    digits = tuple(itertools.accumulate(steps, initial=root))
    return Spine(tuple(f"level{index}" for index in range(depth)), digits)


@st.composite
def trees(draw: st.DrawFn, most_levels: int = 4, most_leaves: int = 12) -> tuple[Spine, list[str]]:
    """A spine and the geocodes of its leaves in any order; only children are frequent."""
    spine = draw(spines(most_levels))
    root = "7" * spine.digits[0]
    length = spine.digits[-1] - spine.digits[0]
    below = st.text(alphabet="012", min_size=length, max_size=length)
    leaves = draw(st.sets(below, min_size=1, max_size=most_leaves))
    return spine, draw(st.permutations([root + leaf for leaf in sorted(leaves)]))


def fractions_that_sum_to_one(parts: int) -> st.SearchStrategy[tuple[Fraction, ...]]:
    """Positive exact shares."""
    weights = st.lists(st.integers(1, 97), min_size=parts, max_size=parts)
    return weights.map(lambda drawn: tuple(Fraction(w, sum(drawn)) for w in drawn))


@st.composite
def strategies_for(draw: st.DrawFn, schema: Schema, spine: Spine) -> Strategy:
    """A strategy that measures some marginals, and the detailed query, at each geolevel."""
    detailed = marginal(schema, [a.name for a in schema.attributes])
    shares = draw(fractions_that_sum_to_one(len(spine.levels)))
    levels = []
    for name, share in zip(spine.levels, shares, strict=True):
        asked = {q.name: q for q in draw(st.lists(marginals(schema), max_size=2))}
        asked[detailed.name] = detailed
        parts = draw(fractions_that_sum_to_one(len(asked)))
        entries = tuple(QueryShare(q, p) for q, p in zip(asked.values(), parts, strict=True))
        levels.append(LevelStrategy(name, share, entries))
    return Strategy(tuple(levels))


@st.composite
def budgets(draw: st.DrawFn) -> Budget:
    """Any rho from 1/1000 to 1000, both neighbor relations."""
    rho = Fraction(draw(st.integers(1, 1000)), draw(st.integers(1, 1000)))
    return Budget(rho, Fraction(1, 10**10), draw(st.sampled_from(list(Neighbors))))


# --- node problems -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """What a node looks like; `random_node` fills it with numbers.

    Attributes:
      children: C.
      cells: k.
      exact: Numbers of groups of the invariants, coarse before fine.
      passes: Numbers of groups of the rounding queries of each pass before the last query.
      spread: Ratio of the largest weight to the smallest.
      persons: About how many persons per cell of the node.
      sparse: Probability that a child has nobody in a cell.
      scales: Whether children differ in precision.
      is_root: Whether there is no parent.
      rows: Number of other linear rows, some of them equalities.
      unequal: Whether children differ in the ratios of their weights too, some of them zero.
    """

    children: int = 3
    cells: int = 5
    exact: tuple[int, ...] = ()
    passes: tuple[tuple[int, ...], ...] = ((1,), (2,))
    spread: float = 10.0
    persons: float = 20.0
    sparse: float = 0.4
    scales: bool = False
    is_root: bool = False
    rows: int = 0
    unequal: bool = False


def partition(cells: int, groups: int) -> np.ndarray:
    """int64[cells]: contiguous groups as even as can be."""
    return np.arange(cells) * min(groups, cells) // cells


def nested(cells: int, sizes: Sequence[int]) -> dict[int, np.ndarray]:
    """A chain of partitions with (at most) these numbers of groups, each refining the coarser."""
    out: dict[int, np.ndarray] = {}
    finer = np.arange(cells)
    for size in sorted(set(sizes), reverse=True):
        finer = partition(int(finer.max()) + 1, size)[finer]
        out[size] = finer
    return out


def random_node(shape: Shape, seed: int) -> NodeProblem:
    """A feasible node: a hidden truth, its exact answers, and noisy ones."""
    rng = np.random.default_rng(seed)
    C = 1 if shape.is_root else shape.children
    k = shape.cells
    profile = rng.gamma(0.5, size=k) + 0.01
    truth = rng.poisson(shape.persons * profile / profile.mean(), (C, k)).astype(np.int64)
    truth[rng.random((C, k)) < shape.sparse] = 0
    truth[rng.integers(0, C, k), np.arange(k)] += 1  # every cell is live
    chain = nested(k, [*shape.exact, *itertools.chain.from_iterable(shape.passes)])
    cells = np.arange(k)
    partitions = [np.zeros(k, np.int64), np.unique(rng.integers(0, 3, k), return_inverse=True)[1]]
    partitions.append(cells)
    scales = rng.choice([1.0, 2.0, 3.5], C) if shape.scales else np.ones(C)
    exponents = rng.permutation(np.linspace(0, 1, len(partitions)))
    terms = []
    for groups, exponent in zip(partitions, exponents, strict=True):
        m = int(groups.max()) + 1
        weight = float(shape.spread**exponent) / max(1.0, shape.persons)
        noise = rng.normal(0, 1 / np.sqrt(weight), (C, m))
        terms.append(
            LeastSquaresTerm(groups, np.rint(group_sums(truth, groups, m) + noise), weight * scales)
        )
    exact = tuple(
        ExactTerm(chain[size], group_sums(truth, chain[size], int(chain[size].max()) + 1))
        for size in sorted(set(shape.exact))
    )
    passes = [tuple(RoundingQuery(chain[size]) for size in one) for one in shape.passes]
    passes[-1] = (*passes[-1], RoundingQuery(cells))
    if shape.unequal:
        factors = rng.choice([0.0, 0.1, 1.0, 5.0], (len(terms), C))
        factors[-1] = np.maximum(factors[-1], 0.1)  # single cells are asked everywhere
        terms = [replace(t, weights=t.weights * f) for t, f in zip(terms, factors, strict=True)]
    rows = (random_rows(truth, shape.rows, rng),) if shape.rows else ()
    return NodeProblem(
        f"node-{seed}",
        k,
        None if shape.is_root else truth.sum(0),
        tuple(terms),
        exact,
        tuple(passes),
        rows,
    )


def random_rows(truth: np.ndarray, count: int, rng: np.random.Generator) -> RowsTerm:
    """Rows that the truth satisfies: equalities, one-sided and two-sided, some of them tight."""
    C, k = truth.shape
    coefficients = rng.choice([0, 1, 1, 2, -1], (count, k))
    values = truth @ coefficients.T
    least = values - rng.integers(0, 5, (C, count))
    most = values + rng.integers(0, 5, (C, count))
    kind = rng.integers(0, 4, (C, count))
    least = np.where(kind == 0, -NO_LIMIT, np.where(kind == 1, values, least))
    most = np.where(kind == 2, NO_LIMIT, np.where(kind == 1, values, most))
    return RowsTerm(coefficients, least, most, tuple(f"row {n}" for n in range(count)))


def shapes(most_children: int = 4, most_cells: int = 6) -> st.SearchStrategy[Shape]:
    """Small nodes of every kind."""
    groups = st.integers(1, 3)
    return st.builds(
        Shape,
        children=st.integers(1, most_children),
        cells=st.integers(1, most_cells),
        exact=st.lists(groups, max_size=2).map(tuple),
        passes=st.lists(st.lists(groups, max_size=2).map(sorted).map(tuple), min_size=1, max_size=2)
        .filter(_ascends)
        .map(tuple),
        spread=st.sampled_from([1.0, 10.0, 1e3]),
        persons=st.sampled_from([0.5, 3.0, 100.0]),
        sparse=st.sampled_from([0.0, 0.5, 0.9]),
        scales=st.booleans(),
        is_root=st.sampled_from([False, False, False, True]),
    )


def _ascends(passes: Sequence[Sequence[int]]) -> bool:
    flat = list(itertools.chain.from_iterable(passes))
    return flat == sorted(flat)


def nodes(most_children: int = 4, most_cells: int = 6) -> st.SearchStrategy[NodeProblem]:
    """Feasible node problems."""
    return st.builds(random_node, shapes(most_children, most_cells), st.integers(0, 2**32 - 1))


def permuted_children(problem: NodeProblem, order: np.ndarray) -> NodeProblem:
    """The same node with its children in another order."""
    return replace(
        problem,
        terms=tuple(
            replace(t, answers=t.answers[order], weights=t.weights[order]) for t in problem.terms
        ),
        exact=tuple(replace(e, targets=e.targets[order]) for e in problem.exact),
        rows=tuple(replace(r, least=r.least[order], most=r.most[order]) for r in problem.rows),
    )


def permuted_cells(problem: NodeProblem, order: np.ndarray) -> NodeProblem:
    """The same node with its cells in another order; answers of single cells follow them."""

    def of(groups: np.ndarray, answers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if answers.shape[1] == problem.n_cells and np.array_equal(
            groups, np.arange(problem.n_cells)
        ):
            return groups, answers[:, order]
        return groups[order], answers

    terms, exact = [], []
    for term in problem.terms:
        groups, answers = of(term.groups, term.answers)
        terms.append(replace(term, groups=groups, answers=answers))
    for entry in problem.exact:
        groups, targets = of(entry.groups, entry.targets)
        exact.append(ExactTerm(groups, targets))
    return replace(
        problem,
        parent=None if problem.parent is None else problem.parent[order],
        terms=tuple(terms),
        exact=tuple(exact),
        rows=tuple(replace(r, coefficients=r.coefficients[:, order]) for r in problem.rows),
        passes=tuple(
            tuple(
                query
                if np.array_equal(query.groups, np.arange(problem.n_cells))
                else RoundingQuery(query.groups[order])
                for query in one
            )
            for one in problem.passes
        ),
    )


def fractional_point(
    problem: NodeProblem, seed: int, tables: int = 8, moves: int = 30
) -> np.ndarray:
    """A fractional point that keeps every equality: the mean of integer tables that keep them.

    With a power of two of tables its entries are exact in floating point.
    """
    rng = np.random.default_rng(seed)
    start = _integer_point(problem)
    finest = problem.exact[-1].groups if problem.exact else np.zeros(problem.n_cells, np.int64)
    total = np.zeros(start.shape)
    for _ in range(tables):
        table = start.copy()
        for _ in range(rng.integers(moves + 1) if problem.parent is None else moves):
            _move(table, finest, problem, rng)
        total += table
    return total / tables


def _integer_point(problem: NodeProblem) -> np.ndarray:
    """Deal each cell to the children by the north-west corner rule within each exact group."""
    C, k = problem.n_children, problem.n_cells
    if not problem.exact:
        if problem.parent is None:
            return np.arange(k)[None, :] % 4
        table = np.zeros((C, k), np.int64)
        table[np.arange(k) % C, np.arange(k)] = problem.parent
        return table
    left = problem.exact[-1].targets.copy()
    groups = problem.exact[-1].groups
    table = np.zeros((C, k), np.int64)
    if problem.parent is None:
        for g in range(left.shape[1]):
            table[0, np.flatnonzero(groups == g)[0]] = left[0, g]
        return table
    for cell in range(k):
        missing = int(problem.parent[cell])
        for child in range(C):
            given = min(missing, int(left[child, groups[cell]]))
            table[child, cell] += given
            left[child, groups[cell]] -= given
            missing -= given
    return table


def _move(
    table: np.ndarray, finest: np.ndarray, problem: NodeProblem, rng: np.random.Generator
) -> None:
    """Move one person along a cycle that changes no equality, if it leaves nothing negative."""
    C, k = table.shape
    i, j = rng.integers(0, k, 2)
    c, d = rng.integers(0, C, 2)
    if problem.parent is None:
        if not problem.exact:
            table[0, i] += 1
        elif finest[i] == finest[j] and table[0, i] > 0:
            table[0, i] -= 1
            table[0, j] += 1
        return
    if not problem.exact:
        if table[c, i] > 0:
            table[c, i] -= 1
            table[d, i] += 1
        return
    if finest[i] == finest[j] and i != j and c != d and table[c, i] > 0 and table[d, j] > 0:
        table[c, i] -= 1
        table[d, i] += 1
        table[d, j] -= 1
        table[c, j] += 1


def query_mechanism(budget: Budget, query: Query, cost: Fraction) -> Mechanism:
    """The noise of a query that is measured alone, at a cost."""
    noise = choose_mechanism(budget.definition)
    charged = sensitivity(query, budget.neighbors, noise.norms[budget.definition])
    return noise.costing(budget.definition, cost, charged)
