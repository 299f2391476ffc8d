"""Predicted error of every table at every geolevel, without reading data.

The covariance of least squares on noisy answers depends on the noise and the tree alone. On one
component (see `das.tree.symmetry`), let W_u be the information of the queries measured in node u
and N_l a basis of what the invariants of geolevel l leave unknown. Going up, with S_c the
covariance of child c given all measurements in its subtree,

    B_u = sum_c S_c ,       S_u = N (N^T (W_u + B_u^+) N)^{-1} N^T .

Going down, the covariance given all measurements of the tree is F_root = S_root and

    F_c = S_c + S_c Y_u S_c ,     Y_u = B_u^+ F_u B_u^+ - B_u^+ .

Both passes run over classes of equal subtrees. This is the recursion of a Kalman smoother on a
tree, exact up to rounding, and linear in F: a mean over geounits needs only sums per class, and the
gradient in all precisions costs two more such passes.

References:
  Rauch, Tung & Striebel, AIAA Journal 3, 1965 (smoothing).
  Hay, Rastogi, Miklau & Suciu, PVLDB 3, 2010, arXiv:0904.0942 (least squares on a tree of counts).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray, joined_ranges
from das.errors import SchemaError
from das.queries.query import Query
from das.tree.classes import Chain, SubtreeClasses
from das.tree.components import SpineComponents
from das.tree.information import Information
from das.tree.symmetry import SymmetricComponents

_NULL = 1e-9  # eigenvalues of exact information below this times the largest are zero
# Entries of the matrices of all classes on all components: 1 GiB, of which a pass keeps four.
_MOST_ENTRIES = 1 << 27


@dataclass(frozen=True, eq=False)
class SpineModel:
    """Tree, queries and tables: all that errors depend on besides the precisions.

    Attributes:
      tree: Classes of equal subtrees.
      measured: Queries that may be measured anywhere, Q of them.
      exact: Per geolevel, its invariant queries. They include all invariant queries of the next
        finer geolevel.
      tables: T queries of any kind whose errors are predicted.
      spine_components: Components to use instead of the smaller symmetric ones.

    Raises:
      SchemaError: The matrices of the measured and exact queries are too large.
    """

    tree: SubtreeClasses
    measured: tuple[Query, ...]
    exact: tuple[tuple[Query, ...], ...]
    tables: tuple[Query, ...]
    spine_components: SpineComponents | None = None

    def __post_init__(self) -> None:
        numbers = sum(size**2 for size in self.components.sizes)
        if numbers * self.tree.n_classes > _MOST_ENTRIES:
            raise SchemaError(
                "prediction of errors",
                "needs too much memory",
                got=f"{numbers} numbers for each of {self.tree.n_classes} subtrees",
                remedy="measure fewer or coarser recodes",
            )

    @property
    def answered(self) -> list[Query]:
        """Return the queries measured or exact at some geolevel."""
        return [*self.measured, *(query for queries in self.exact for query in queries)]

    @cached_property
    def components(self) -> SpineComponents | SymmetricComponents:
        """Return the components that the measured and exact queries fit."""
        return self.spine_components or SymmetricComponents.of_queries(self.answered)

    @cached_property
    def terms(self) -> tuple[ComponentTerms, ...]:
        """Return the matrices of the queries on every component."""
        grams = [self.components.grams(query) for query in self.measured]
        forms = [self.components.trace_forms(table) for table in self.tables]
        exact = {q.name: self.components.grams(q) for queries in self.exact for q in queries}
        out = []
        for index, size in enumerate(self.components.sizes):
            known = [
                sum((exact[q.name][index] for q in queries), np.zeros((size, size)))
                for queries in self.exact
            ]
            out.append(
                ComponentTerms(
                    np.stack([gram[index] for gram in grams]),
                    np.stack([form[index] for form in forms]),
                    tuple(null_space(matrix) for matrix in known),
                )
            )
        return tuple(out)

    @cached_property
    def table_scale(self) -> FloatArray:
        """Return 1 / (answers of the table x geounits of the geolevel), float64[T, L]."""
        answers = np.array([float(table.size) for table in self.tables])
        return np.asarray(1.0 / np.outer(answers, self.tree.level_sizes()))

    @cached_property
    def is_determined(self) -> BoolArray:
        """Test whether the invariants alone determine a whole table, bool[T, L]."""
        left, whole = np.zeros_like(self.table_scale), np.zeros((len(self.tables), 1))
        for terms in self.terms:
            whole[:, 0] += np.einsum("tii->t", terms.forms)
            for level, basis in enumerate(terms.unknown):
                left[:, level] += np.einsum("ik,tij,jk->t", basis, terms.forms, basis)
        return np.asarray(left <= _NULL * whole)

    def noisy(self, chain: Chain, variances: FloatArray) -> FloatArray:
        """Set the variances of tables to 0 where the first geolevel of a chain determines them.

        All geolevels of a chain have the same counts. Rounding left variances of -4e-16.

        Args:
          chain: A chain of only children.
          variances: float64[T], the variance of each table.
        """
        return np.where(self.is_determined[:, chain.first], 0.0, variances)

    @cached_property
    def edges(self) -> tuple[Any, ...]:
        """Return per chain sparse float64[nodes, C]: children of each class per node."""
        from scipy.sparse import csr_array

        tree = self.tree
        shape = (tree.n_classes, tree.n_classes)
        numbers = tree.number.astype(np.float64)
        whole = csr_array((numbers, (tree.parent, tree.child)), shape=shape)
        return tuple(whole[chain.start : chain.stop] for chain in tree.chains)


@dataclass(frozen=True, eq=False)
class ComponentTerms:
    """Queries and tables on one component of D x D matrices.

    Attributes:
      grams: float64[Q, D, D], Q^T Q of the measured queries.
      forms: float64[T, D, D], forms whose product with a covariance is the summed variance.
      unknown: Per geolevel, float64[D, k], a basis of what the invariants do not determine.
    """

    grams: FloatArray
    forms: FloatArray
    unknown: tuple[FloatArray, ...]


@dataclass(frozen=True, eq=False)
class PredictedErrors:
    """Expected squared errors of the unbiased linear estimate, in persons squared.

    Attributes:
      mean: float64[T, L], mean over the answers of a table and all geounits of a geolevel.
      worst: float64[T, L], mean over the answers in the geounit where it is largest.
    """

    mean: FloatArray
    worst: FloatArray


def predict_errors(
    model: SpineModel, precisions: FloatArray, information: Information
) -> PredictedErrors:
    """Predict the error of every table at every geolevel.

    Args:
      model: Tree, queries and tables.
      precisions: float64[chains, Q], 1 / variance of the noise of one answer of each measured
        query in the nodes of each chain; 0 where it is not measured.
      information: What the estimate of a geounit may use.

    Returns:
      Errors before nonnegativity and rounding; these change the final counts.
    """
    solved = solve_spine(model, precisions, information)
    chains = model.tree.chains
    shape = (len(model.tables), model.tree.n_levels)
    worst = np.zeros(shape)
    if information is Information.GEOUNIT:
        for row, chain in enumerate(chains):
            variances = sum(
                np.einsum("tij,ij->t", terms.forms, solution.subtree[row])
                for terms, solution in zip(model.terms, solved.passes, strict=True)
            )
            _raise_to(worst, model, chain, np.asarray(variances))
    else:
        for chain, variances in _every_node(model, solved):
            _raise_to(worst, model, chain, variances.max(axis=1))
    answers = np.array([float(table.size) for table in model.tables])
    return PredictedErrors(solved.mean, np.where(model.is_determined, 0, worst / answers[:, None]))


def _raise_to(worst: FloatArray, model: SpineModel, chain: Chain, variances: FloatArray) -> None:
    columns = slice(chain.first, chain.last + 1)
    worst[:, columns] = np.maximum(worst[:, columns], model.noisy(chain, variances)[:, None])


@dataclass(frozen=True, eq=False)
class _Pass:
    """Covariances on one component: one matrix per class, or per chain without the tree.

    Attributes:
      subtree: float64[., D, D], S.
      below: float64[C, D, D], B^+; empty without the tree.
      total: float64[., D, D], the sum of F over the nodes of the class; of S without the tree.
      spread: float64[C, D, D], the sum of Y over the parents of all nodes; empty without the tree.
    """

    subtree: FloatArray
    below: FloatArray
    total: FloatArray
    spread: FloatArray


@dataclass(frozen=True, eq=False)
class SolvedSpine:
    """Mean squared errors at given precisions, with the covariances for their gradient.

    Attributes:
      model: The model.
      information: The measurements that estimates use.
      mean: float64[T, L], as in `PredictedErrors`, times `factor`.
      passes: Covariances per component.
      factor: float64[T, L], by which errors are multiplied; None for 1.
    """

    model: SpineModel
    information: Information
    mean: FloatArray
    passes: tuple[_Pass, ...]
    factor: FloatArray | None = None

    def scaled(self, factor: FloatArray) -> SolvedSpine:
        """Return a copy with `mean` multiplied by `factor`, float64[tables, geolevels]."""
        return replace(self, mean=self.mean * factor, factor=factor)

    def mean_covariances(self) -> tuple[FloatArray, ...]:
        """Return per component the mean covariance of a geolevel's geounits, float64[L, D, D]."""
        tree = self.model.tree
        out = []
        for solution in self.passes:
            summed = np.zeros((tree.n_levels, *solution.total.shape[1:]))
            for row, chain in enumerate(tree.chains):
                part = solution.total[_rows(self.model, self.information, row)].sum(axis=0)
                summed[chain.first : chain.last + 1] += part
            out.append(summed / tree.level_sizes()[:, None, None])
        return tuple(out)

    def gradient(self, weights: FloatArray) -> FloatArray:
        """Return d(sum of weights * mean) / d(precision), float64[chains, Q], never positive.

        Args:
          weights: float64[T, L], the weight of each table at each geolevel.
        """
        model = self.model
        backward = _backward_geounit if self.information is Information.GEOUNIT else _backward_tree
        out = np.zeros((len(model.tree.chains), len(model.measured)))
        scaled = weights * model.table_scale
        if self.factor is not None:
            scaled = scaled * self.factor
        for terms, solution in zip(model.terms, self.passes, strict=True):
            per_level = np.einsum("tl,tij->lij", scaled, terms.forms)
            seeds = np.stack(
                [per_level[c.first : c.last + 1].sum(axis=0) for c in model.tree.chains]
            )
            out += np.einsum("cij,qij->cq", backward(model, terms, solution, seeds), terms.grams)
        return out


def solve_spine(model: SpineModel, precisions: FloatArray, information: Information) -> SolvedSpine:
    """Compute covariances and mean squared errors; arguments as in `predict_errors`."""
    forward = _forward_geounit if information is Information.GEOUNIT else _forward_tree
    passes = []
    summed = np.zeros((len(model.tables), model.tree.n_levels))
    for terms in model.terms:
        informations = np.einsum("cq,qij->cij", precisions, terms.grams)
        solution = forward(model, terms, informations)
        passes.append(solution)
        for row, chain in enumerate(model.tree.chains):
            rows = _rows(model, information, row)
            total = np.einsum("tij,ij->t", terms.forms, solution.total[rows].sum(axis=0))
            summed[:, chain.first : chain.last + 1] += model.noisy(chain, total)[:, None]
    mean = np.where(model.is_determined, 0, summed * model.table_scale)
    return SolvedSpine(model, information, mean, tuple(passes))


def _rows(model: SpineModel, information: Information, row: int) -> slice:
    """Return where the matrices of a chain stand in a pass.

    Args:
      model: The model.
      information: The measurements that estimates use.
      row: Index of the chain.
    """
    if information is Information.GEOUNIT:
        return slice(row, row + 1)
    chain = model.tree.chains[row]
    return slice(chain.start, chain.stop)


# --- measurements of the geounit alone ------------------------------------------------------------


def _forward_geounit(model: SpineModel, terms: ComponentTerms, informations: FloatArray) -> _Pass:
    subtree = np.stack(
        [
            covariance_matrices(informations[row : row + 1], terms.unknown[chain.first])[0]
            for row, chain in enumerate(model.tree.chains)
        ]
    )
    nodes = np.array([float(model.tree.geounits_in(chain)) for chain in model.tree.chains])
    empty = np.zeros((0, *subtree.shape[1:]))
    return _Pass(subtree, empty, nodes[:, None, None] * subtree, empty)


def _backward_geounit(
    model: SpineModel, terms: ComponentTerms, solution: _Pass, seeds: FloatArray
) -> FloatArray:
    nodes = np.array([float(model.tree.geounits_in(chain)) for chain in model.tree.chains])
    return -nodes[:, None, None] * (solution.subtree @ seeds @ solution.subtree)


# --- measurements of the whole tree --------------------------------------------------------------


def _forward_tree(model: SpineModel, terms: ComponentTerms, informations: FloatArray) -> _Pass:
    tree = model.tree
    size = informations.shape[1]
    subtree, below, total, spread = (np.zeros((tree.n_classes, size, size)) for _ in range(4))
    for row, chain in enumerate(tree.chains):
        nodes = slice(chain.start, chain.stop)
        if chain.last + 1 < tree.n_levels:
            sums = _gather(model, row, subtree)
            below[nodes] = covariance_matrices(sums, terms.unknown[chain.last + 1])
        subtree[nodes] = covariance_matrices(
            informations[row] + below[nodes], terms.unknown[chain.first]
        )
    counts = tree.geounits[:, None, None].astype(np.float64)
    for row, chain in reversed(list(enumerate(tree.chains))):
        nodes = slice(chain.start, chain.stop)
        covariance = subtree[nodes]
        total[nodes] = counts[nodes] * covariance + covariance @ spread[nodes] @ covariance
        if chain.last + 1 < tree.n_levels:
            inverse = below[nodes]
            moved = inverse @ total[nodes] @ inverse - counts[nodes] * inverse
            _scatter(model, row, moved, spread)
    return _Pass(subtree, below, total, spread)


def _backward_tree(
    model: SpineModel, terms: ComponentTerms, solution: _Pass, seeds: FloatArray
) -> FloatArray:
    """Differentiate `_forward_tree` in reverse mode, its last line first."""
    tree = model.tree
    subtree, below = solution.subtree, solution.below
    total, spread = solution.total, solution.spread
    of_subtree, of_spread, of_below = (np.zeros_like(subtree) for _ in range(3))
    counts = tree.geounits[:, None, None].astype(np.float64)
    for row, chain in enumerate(tree.chains):
        nodes = slice(chain.start, chain.stop)
        covariance = subtree[nodes]
        of_total = np.broadcast_to(seeds[row], covariance.shape)
        if chain.last + 1 < tree.n_levels:
            of_y, inverse = _gather(model, row, of_spread), below[nodes]
            of_total = of_total + inverse @ of_y @ inverse
            half = total[nodes] @ inverse @ of_y
            of_below[nodes] = half + half.swapaxes(1, 2) - counts[nodes] * of_y
        half = of_total @ covariance @ spread[nodes]
        of_subtree[nodes] = counts[nodes] * of_total + half + half.swapaxes(1, 2)
        of_spread[nodes] = covariance @ of_total @ covariance
    out = np.zeros_like(seeds)
    for row, chain in reversed(list(enumerate(tree.chains))):
        nodes = slice(chain.start, chain.stop)
        of_information = -(subtree[nodes] @ of_subtree[nodes] @ subtree[nodes])
        out[row] = of_information.sum(axis=0)
        if chain.last + 1 < tree.n_levels:
            inverse = below[nodes]
            of_sums = -(inverse @ (of_below[nodes] + of_information) @ inverse)
            _scatter(model, row, of_sums, of_subtree)
    return out


def _gather(model: SpineModel, row: int, values: FloatArray) -> FloatArray:
    """Sum matrices over the children of each node of a chain, float64[nodes, D, D].

    Args:
      model: The model.
      row: Index of the chain.
      values: float64[C, D, D], a matrix per class.
    """
    summed = model.edges[row] @ values.reshape(len(values), -1)
    return np.asarray(summed).reshape(-1, *values.shape[1:])


def _scatter(model: SpineModel, row: int, values: FloatArray, into: FloatArray) -> None:
    """Add the matrix of each node of a chain to the matrices of its children.

    Args:
      model: The model.
      row: Index of the chain.
      values: float64[nodes, D, D], a matrix per node of the chain.
      into: float64[C, D, D], a matrix per class; changed in place.
    """
    added = model.edges[row].T @ values.reshape(len(values), -1)
    into += np.asarray(added).reshape(into.shape)


def _every_node(model: SpineModel, solved: SolvedSpine) -> Iterator[tuple[Chain, FloatArray]]:
    """Yield (chain, float64[T, nodes]): variances of the nodes, summed over a table's answers.

    They are not yet divided by the number of answers, and invariants are not yet set to 0.

    Nodes with equal subtrees below equal parents count once.
    """
    tree = model.tree
    root = len(tree.chains) - 1
    row_of = np.repeat(np.arange(root + 1), [chain.stop - chain.start for chain in tree.chains])
    starts = np.searchsorted(tree.parent, np.arange(tree.n_classes + 1))
    # Per row of a chain: (row of the parents, position of each parent there, class of each node).
    links: dict[int, list[tuple[int, IntArray, IntArray]]] = {row: [] for row in range(root + 1)}
    members: dict[int, IntArray] = {}
    for row in range(root, -1, -1):
        parts = [child for _, _, child in links[row]] or [np.array([tree.n_classes - 1])]
        members[row] = np.concatenate(parts)
        parent, edges = joined_ranges(starts[members[row]], np.diff(starts)[members[row]])
        child = tree.child[edges]
        for lower in np.unique(row_of[child]).tolist():
            chosen = row_of[child] == lower
            links[lower].append((row, parent[chosen], child[chosen]))
    variances = {row: np.zeros((len(model.tables), len(m))) for row, m in members.items()}
    for terms, solution in zip(model.terms, solved.passes, strict=True):
        finals: dict[int, FloatArray] = {}
        forms = terms.forms.reshape(len(terms.forms), -1)
        for row in range(root, -1, -1):
            pieces = [solution.subtree[members[row]]] if row == root else []
            for above, parent, child in links[row]:
                covariance = solution.subtree[child]
                step = covariance @ solution.below[members[above][parent]]
                moved = finals[above][parent] @ step.swapaxes(1, 2)
                pieces.append(covariance + step @ (moved - covariance))
            finals[row] = np.concatenate(pieces)
            variances[row] += forms @ finals[row].reshape(len(finals[row]), -1).T
    for row, chain in enumerate(tree.chains):
        yield chain, variances[row]


# --- small matrices ------------------------------------------------------------------------------


def covariance_matrices(information: FloatArray, unknown: FloatArray) -> FloatArray:
    """Invert information matrices P, float64[k, D, D], on a basis N: N (N^T P N)^{-1} N^T."""
    if unknown.shape[1] == 0:
        return np.zeros_like(information)
    if unknown.shape == (1, 1):
        return 1.0 / information
    if unknown.shape[0] == unknown.shape[1]:
        return np.asarray(np.linalg.inv(information), np.float64)
    inner = np.linalg.inv(unknown.T @ information @ unknown)
    return np.asarray(unknown @ inner @ unknown.T)


def null_space(matrix: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the null space of a positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors[:, values <= _NULL * max(1.0, float(values.max(initial=0.0)))])


def range_space(matrix: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the range of a positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors[:, values > _NULL * max(1.0, float(values.max(initial=0.0)))])
