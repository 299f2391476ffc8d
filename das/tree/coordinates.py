"""Coordinates of a histogram in which the information of every measured query is small matrices.

The components of `das.tree.components` are subspaces; here each gets an orthonormal
basis. Attribute i with k groups of levels (atoms) has k coordinates for the normalized sums of its
groups and n_i - k within them. A component with D combinations of groups and R coordinates within
holds a histogram as a D x R array, on which any covariance is a D x D matrix, the same for all R.

Queries that do not determine all cells need few of these coordinates: a basis of their span on each
component (`das.tree.span`). Then D is the dimension of the span.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from das.arrays import FloatArray, IntArray, kron
from das.queries.factor import Factor
from das.queries.query import Query
from das.tree.components import SpineComponents, normalized
from das.tree.span import span_of

Values = tuple[FloatArray, ...]  # per component, float64[G, D, R]: G histograms in coordinates
Matrices = tuple[FloatArray, ...]  # per component, float64[K, D, D]: K covariances or informations

_Factors = Sequence[Mapping[bool, FloatArray | None]]  # per attribute: on groups, and within them

_ZERO = 1e-12  # products of a factor with a basis below this times its largest entry are zero
# Defaults, not measured.
_FEW = 64  # answers; smaller marginals are not summed further
_UNSEEN = 1e-9  # of the squared norm of a query: a smaller residual is rounding
_KEPT_ANSWERS = 1 << 16  # answers of a query; distinct rows of larger queries are not cached
_DIGITS = 12  # decimals to which rows of equal variance agree


@dataclass(frozen=True, eq=False)
class _Marginal:
    """Marginal of the answers of a query.

    Attributes:
      answers: number[G, rows of attribute 1, ...].
      factors: Per attribute, the factor of these rows on groups, and within them.
      components: Indexes of the components computed from this marginal.
    """

    answers: npt.NDArray[np.integer | np.floating]
    factors: _Factors
    components: list[int]


@dataclass(frozen=True, eq=False)
class _Product:
    """Contribution of a query to one component, before a last multiplication shared by queries.

    Attributes:
      component: Index of the component.
      tensor: float64, a row per coordinate or level of each attribute, geounits last.
      scale: Factor still to apply.
      axis: The attribute along which `matrix` is still to be applied.
      matrix: The matrix still to apply, one object per set of entries; None for none.
    """

    component: int
    tensor: FloatArray
    scale: float
    axis: int = 0
    matrix: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class _EqualRows:
    """Rows of a query on one attribute, grouped by equal coordinates on groups.

    Attributes:
      every: The factor on groups, and within them.
      first: The factor of the first row of each group of equal rows.
      group: int64[n], the group of each row.
    """

    every: Mapping[bool, FloatArray | None]
    first: Mapping[bool, FloatArray | None]
    group: IntArray

    @classmethod
    def of(cls, blocks: Mapping[bool, FloatArray | None], size: int) -> _EqualRows:
        """Group the `size` rows of a factor by equal coordinates on groups.

        Args:
          blocks: Coordinates of the rows on groups (False) and within groups (True); None where all
            are 0.
          size: Number of rows.
        """
        on_groups = blocks[False]
        if on_groups is None:
            return cls(blocks, blocks, np.arange(size))
        _, first, group = np.unique(
            np.round(on_groups, _DIGITS), axis=0, return_index=True, return_inverse=True
        )
        return cls(blocks, {False: on_groups[first], True: None}, group.reshape(-1))

    @property
    def ratio(self) -> float:
        """Return the mean number of equal rows."""
        return len(self.group) / (int(self.group.max(initial=0)) + 1)


Adding = Callable[[npt.NDArray[np.integer], int, IntArray], npt.NDArray[np.integer]]
"""Type of functions that sum integers by group: `group_sums`, or an equivalent."""


def group_sums(
    answers: npt.NDArray[np.integer], axis: int, group: IntArray
) -> npt.NDArray[np.integer]:
    """Sum integer answers by group along an axis, exactly.

    Args:
      answers: integers[G, ...], answers of G geounits.
      axis: Axis along which answers are summed, at least 1.
      group: int64[n], the group of each entry along the axis; every group from 0 on occurs.

    Returns:
      The array with one entry per group along the axis, of `sum_type`.
    """
    kind, number = sum_type(answers), int(group.max()) + 1
    if number == 1:
        return np.asarray(answers.sum(axis, dtype=kind, keepdims=True))
    out = np.zeros((*answers.shape[:axis], number, *answers.shape[axis + 1 :]), kind)
    sums, rows = np.moveaxis(out, axis, 0), np.moveaxis(answers, axis, 0)
    for row, into in zip(rows, group, strict=True):
        sums[into] += row
    return out


def sum_type(answers: npt.NDArray[np.integer]) -> type[np.signedinteger[Any]]:
    """Choose the narrowest integer type that holds every sum of answers of one geounit."""
    few = math.prod(answers.shape[1:]) <= 1 << 16
    return np.int32 if few and answers.dtype.itemsize <= 2 else np.int64


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Orthonormal coordinates of some components.

    Attributes:
      components: All components of the whole space, or some.
      spans: Per component, float64[groups, D], an orthonormal basis of the subspace of the
        combinations of groups that is kept; None to keep the whole space.
    """

    components: SpineComponents
    spans: tuple[FloatArray, ...] | None = None
    _known_blocks: dict[tuple[tuple[int, ...], bytes], FloatArray] = field(
        default_factory=dict, init=False, repr=False
    )
    _known_equal: dict[Query, Sequence[_EqualRows]] = field(
        default_factory=dict, init=False, repr=False
    )
    _known_rows: dict[Query, tuple[list[FloatArray], IntArray]] = field(
        default_factory=dict, init=False, repr=False
    )

    @classmethod
    def of_queries(
        cls,
        queries: Sequence[Query],
        most_groups: int | None = None,
        split: Collection[int] = (),
    ) -> Coordinates:
        """Build coordinates of the whole space that fit all these queries; see `SpineComponents`.

        Args:
          queries: The queries that the coordinates fit.
          most_groups: Most combinations of groups of levels; None for the default of
            `SpineComponents`.
          split: Indexes of attributes of which every level is a group of its own.

        Raises:
          SchemaError: The queries group the levels in too many ways.
        """
        return cls(SpineComponents.of_queries(queries, most_groups, split))

    def touched_by(self, queries: Sequence[Query]) -> Coordinates:
        """Keep the components on which some query is not zero; any queries."""
        every = [self._factors(query) for query in queries]
        touched = [
            index
            for index in range(len(self.components.within))
            if any(self._blocks(factors, index) is not None for factors in every)
        ]
        within = tuple(self.components.within[index] for index in touched)
        spans = None if self.spans is None else tuple(self.spans[index] for index in touched)
        return Coordinates(replace(self.components, within=within), spans)

    def spanned_by(self, queries: Sequence[Query], most: int) -> Coordinates:
        """Keep the span of queries that the components fit.

        Args:
          queries: The queries, at least one.
          most: Largest allowed number D of coordinates per component.

        Raises:
          SchemaError: A component needs a larger D.
        """
        part = self.touched_by(queries)
        every = [part._factors(query) for query in queries]
        spans = []
        for index, inside in enumerate(part.components.within):
            seen = [
                query
                for query, factors in zip(queries, every, strict=True)
                if part._blocks(factors, index) is not None
            ]
            spans.append(span_of(seen, part.components.atoms, inside, most))
        return Coordinates(part.components, tuple(spans))

    def determines(self, query: Query, within: Sequence[FloatArray]) -> bool:
        """Test whether a subspace of the coordinates determines all answers of a query.

        Args:
          query: A query over the same schema.
          within: Per component, float64[D, k], orthonormal.
        """
        factors = self._factors(self.distinct_answers(query)[0])
        whole = Coordinates(replace(self.components, within=self.components.every))
        kept = {inside: index for index, inside in enumerate(self.components.within)}
        for index, inside in enumerate(whole.components.within):
            blocks = whole._blocks(factors, index)
            if blocks is None:
                continue
            if inside not in kept:
                return False
            rows = self._row(blocks, kept[inside])
            projected = self._reduced(rows, kept[inside]) @ within[kept[inside]]
            left = (rows**2).sum() - (projected**2).sum()
            if left > _UNSEEN * (rows**2).sum():
                return False
        return True

    def _reduced(self, rows: FloatArray, index: int) -> FloatArray:
        """Project rows to the span of a component, float64[m, D].

        Args:
          rows: Rows on the groups of all attributes.
          index: Index of the component.
        """
        return rows if self.spans is None else np.asarray(rows @ self.spans[index])

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Return the dimension D of every component's matrix."""
        if self.spans is None:
            return self.components.sizes
        return tuple(span.shape[1] for span in self.spans)

    def grams(self, query: Query) -> list[FloatArray]:
        """Return the Gram matrix Q'Q of a fitting query on every component, float64[D, D]."""
        if self.spans is None:
            return self.components.grams(query)
        parts = self.components.parts(query)
        return [
            self._gram_on_span(span, parts, within)
            for span, within in zip(self.spans, self.components.within, strict=True)
        ]

    def _gram_on_span(
        self, span: FloatArray, parts: Sequence[tuple[FloatArray, float]], within: Sequence[bool]
    ) -> FloatArray:
        """Return the Gram matrix of a query on a span, float64[D, D], without one on all groups."""
        outside = [part for (part, _), inside in zip(parts, within, strict=True) if not inside]
        scale = math.prod(
            factor for (_, factor), inside in zip(parts, within, strict=True) if inside
        )
        tensor = span.reshape(*(len(part) for part in outside), span.shape[1])
        for axis, part in enumerate(outside):
            tensor = along(axis, tensor, part)
        return np.asarray(scale * (span.T @ tensor.reshape(span.shape)))

    def types(self, query: Query) -> tuple[IntArray, ...]:
        """Return per component int64[D], the answer of a partition query that counts each row.

        Args:
          query: A partition query. Every level of an attribute that it distinguishes is an atom.
        """
        codes = [
            factor.codes[np.unique(atoms, return_index=True)[1]]
            for factor, atoms in zip(query.factors, self.components.atoms, strict=True)
        ]
        out = []
        for within in self.components.within:
            chosen = [np.zeros(1, np.int64) if i else c for c, i in zip(codes, within, strict=True)]
            grid = np.meshgrid(*chosen, indexing="ij")
            out.append(np.ravel_multi_index(grid, query.shape).reshape(-1).astype(np.int64))
        return tuple(out)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Return R, the number of coordinates within groups, of every component."""
        free = [basis[True].shape[1] for basis in self.bases]
        return tuple(
            math.prod(n for n, inside in zip(free, within, strict=True) if inside)
            for within in self.components.within
        )

    @cached_property
    def size(self) -> int:
        """Return the number of coordinates of one histogram."""
        return sum(d * r for d, r in zip(self.sizes, self.widths, strict=True))

    @cached_property
    def bases(self) -> tuple[dict[bool, FloatArray], ...]:
        """Return per attribute bases float64[n, k] on groups and float64[n, n - k] within."""
        return tuple({False: normalized(c), True: _within(c)} for c in self.components.atoms)

    # --- histograms and answers ------------------------------------------------------------------

    def adjoint(self, query: Query, answers: npt.NDArray[np.integer | np.floating]) -> Values:
        """Apply the transpose of a query to answers: return Q'y in coordinates.

        Args:
          query: A query over the same schema.
          answers: number[G, m], one row y per geounit.
        """
        return self.adjoint_sum([query], [answers], [1.0], len(answers))

    def adjoint_sum(
        self,
        queries: Sequence[Query],
        answers: Sequence[npt.NDArray[np.integer | np.floating]],
        weights: Sequence[float | FloatArray],
        n_geounits: int,
        add_up: Adding = group_sums,
    ) -> Values:
        """Add up the weighted adjoint answers of queries: return sum_q w_q Q_q'y_q.

        Args:
          queries: Queries over the same schema.
          answers: Per query, number[G, m].
          weights: Per query one number, or float64[G].
          n_geounits: G, the number of geounits.
          add_up: Function that sums integers by group.
        """
        sums: dict[tuple[int, int], tuple[_Product, FloatArray]] = {}
        for query, noisy, weight in zip(queries, answers, weights, strict=True):
            for product in self._products(query, noisy, add_up):
                part = (product.scale * weight) * product.tensor
                key = product.component, id(product.matrix)
                if key in sums:
                    np.add(sums[key][1], part, out=part)
                sums[key] = product, part
        tensors: dict[int, FloatArray] = {}
        for (index, _), (product, part) in sums.items():
            whole = part if product.matrix is None else along(product.axis, part, product.matrix)
            tensors[index] = tensors[index] + whole if index in tensors else whole
        return tuple(
            np.ascontiguousarray(self._from_tensor(tensors[index], index))
            if index in tensors
            else np.zeros((n_geounits, size, width))
            for index, (size, width) in enumerate(zip(self.sizes, self.widths, strict=True))
        )

    def _products(
        self, query: Query, answers: npt.NDArray[np.integer | np.floating], add_up: Adding
    ) -> Iterator[_Product]:
        """Yield the adjoint answers Q'y, one product per component where the query is not zero.

        Products are not finished: the caller applies the scale and the matrix of each. Integer
        answers are first summed to marginals, because most components depend on few sums of many
        answers. Float answers are not summed first.

        Args:
          query: Q, a query over the same schema.
          answers: number[G, m], answers y of G geounits.
          add_up: Function that sums integer answers by group, such as `group_sums`.
        """
        equal = self._equal_rows(query)
        factors = [rows.every for rows in equal]
        chosen = [c for c in range(len(self.sizes)) if self._blocks(factors, c) is not None]
        tensor: npt.NDArray[Any] = answers.reshape(len(answers), *query.shape)
        marginals = iter([_Marginal(tensor, factors, chosen)] if chosen else [])
        if np.issubdtype(answers.dtype, np.integer):
            marginals = self._marginals(equal, tensor, chosen, add_up)
        for marginal in marginals:
            # Geounits run fastest, so that every product is one of large matrices.
            last = np.ascontiguousarray(np.moveaxis(marginal.answers, 0, -1), np.float64)
            axes = set(range(last.ndim - 1))
            yield from self._split(marginal.factors, last, axes, marginal.components)

    def _marginals(
        self,
        equal: Sequence[_EqualRows],
        tensor: npt.NDArray[np.integer],
        chosen: list[int],
        add_up: Adding,
    ) -> Iterator[_Marginal]:
        """Yield marginals of the answers, before any product, with the components that use each."""
        within = self.components.within
        pending = [axis for axis, rows in enumerate(equal) if rows.ratio > 1]

        def descend(
            tensor: npt.NDArray[np.integer], done: frozenset[int], chosen: list[int]
        ) -> Iterator[_Marginal]:
            if not chosen:
                return
            for axis in sorted(pending, key=lambda each: -equal[each].ratio):
                if axis not in done and not any(within[c][axis] for c in chosen):
                    tensor = add_up(tensor, axis + 1, equal[axis].group)
                    done = done | {axis}
            open_axes = [axis for axis in pending if axis not in done]
            split = [a for a in open_axes if len({within[c][a] for c in chosen}) > 1]
            # A component within all open axes needs all answers left; the others can share them.
            whole = any(all(within[c][axis] for axis in split) for c in chosen)
            if whole or math.prod(tensor.shape[1:]) <= _FEW:
                factors = [
                    rows.first if axis in done else rows.every for axis, rows in enumerate(equal)
                ]
                yield _Marginal(tensor, factors, chosen)
                return
            axis = max(split, key=lambda each: equal[each].ratio)
            for inside in (False, True):
                yield from descend(tensor, done, [c for c in chosen if within[c][axis] is inside])

        yield from descend(tensor, frozenset(), chosen)

    def _equal_rows(self, query: Query) -> Sequence[_EqualRows]:
        """Group the rows of a query by attribute; cached per query."""
        known = self._known_equal
        if query not in known:
            known[query] = [
                _EqualRows.of({i: self._kept(b) for i, b in blocks.items()}, size)
                for blocks, size in zip(self._factors(query), query.shape, strict=True)
            ]
        return known[query]

    def _kept(self, block: FloatArray | None) -> FloatArray | None:
        """Return the first matrix with these entries, so that equal matrices are one object."""
        if block is None:
            return None
        return self._known_blocks.setdefault((block.shape, block.tobytes()), block)

    def _split(
        self,
        factors: _Factors,
        tensor: FloatArray,
        axes: set[int],
        chosen: list[int],
        scale: float = 1.0,
    ) -> Iterator[_Product]:
        """Yield unfinished products, axis by axis; components that agree on axes share the work.

        `scale` collects the factors of axes with one row and one coordinate. It is not yet
        applied, nor is the `matrix` of a product.
        """
        if not axes:
            yield _Product(chosen[0], tensor, scale)
            return
        within = self.components.within
        divides = {axis: any(within[c][axis] for c in chosen) for axis in axes}
        # Sums over groups come first, largest axes first: they leave little to multiply.
        size = tensor.shape
        axis = min(axes, key=lambda a: (divides[a], size[a] if divides[a] else -size[a]))
        alone = len(chosen) == 1
        if alone and len(axes) == 1 and divides[axis] and sum(within[chosen[0]]) == 1:
            yield _Product(chosen[0], tensor, scale, axis, factors[axis][True])
            return
        for inside in (False, True):
            some = [c for c in chosen if within[c][axis] is inside]
            block = factors[axis][inside]
            if not some or block is None:
                continue
            rest = axes - {axis}
            if len(some) == 1 and not alone:  # whose axes within come last, now
                yield from self._split(factors, tensor, axes, some, scale)
            elif block.size == 1:
                yield from self._split(factors, tensor, rest, some, scale * float(block[0, 0]))
            else:
                yield from self._split(factors, along(axis, tensor, block), rest, some, scale)

    def answer(self, query: Query, values: Values) -> FloatArray:
        """Return float64[G, m]: the answers of any query to histograms in coordinates."""
        out = np.zeros((*query.shape, len(values[0])))
        factors = self._factors(query)
        for index, part in enumerate(values):
            blocks = self._blocks(factors, index)
            if blocks is None:
                continue
            order, shape = self._tensor_axes(index)
            cells = part if self.spans is None else np.asarray(self.spans[index] @ part)
            axes = (*(1 + axis for axis in np.argsort(order)), 0)
            tensor = cells.reshape(len(cells), *shape).transpose(axes)
            for axis, block in enumerate(blocks):
                tensor = along(axis, tensor, block.T)
            out += tensor
        return np.ascontiguousarray(out.reshape(query.size, -1).T)

    def variances(self, query: Query, covariances: Matrices) -> FloatArray:
        """Return float64[K, m]: the variance of every answer of any query, for K covariances."""
        rows, number = self._distinct_rows(query)
        out = np.zeros((len(covariances[0]), int(number.max()) + 1))
        for row, matrices in zip(rows, covariances, strict=True):
            if row.any():
                out += ((row @ matrices) * row).sum(axis=2)
        return np.maximum(out, 0)[:, number]

    def _distinct_rows(self, query: Query) -> tuple[list[FloatArray], IntArray]:
        """Return per component the distinct rows, and int64[m], the row of each answer."""
        known = self._known_rows
        if query not in known:
            factors = self._factors(query)
            rows = [
                np.zeros((query.size, size))
                if blocks is None
                else self._reduced(self._row(blocks, index), index)
                for index, size in enumerate(self.sizes)
                for blocks in [self._blocks(factors, index)]
            ]
            joined = np.round(np.concatenate(rows, axis=1), _DIGITS)
            _, first, number = np.unique(joined, axis=0, return_index=True, return_inverse=True)
            distinct = [row[first] for row in rows], number.reshape(-1).astype(np.int64)
            if query.size > _KEPT_ANSWERS:
                return distinct
            known[query] = distinct
        return known[query]

    def distinct_answers(self, query: Query) -> tuple[Query, FloatArray]:
        """Reduce a query to one answer for all answers of equal variance.

        Returns:
          A query of the rows of every attribute that differ in these coordinates. Then, float64[its
          size], the number of answers that each of its answers represents.
        """
        factors, counts = [], np.ones(1)
        for factor, bases in zip(query.factors, self.bases, strict=True):
            matrix = factor.matrix.astype(np.float64)
            norms = np.linalg.norm(matrix @ bases[True], axis=1)
            rows = np.column_stack([matrix @ bases[False], norms])
            _, first, number = np.unique(
                np.round(rows, _DIGITS), axis=0, return_index=True, return_counts=True
            )
            labels = tuple(factor.labels[i] for i in first.tolist())
            factors.append(Factor(factor.matrix[first], labels))
            counts = np.multiply.outer(counts, number.astype(np.float64)).ravel()
        return Query(query.name, tuple(factors)), counts

    def covariances(self, first: Query, second: Query, covariances: Matrices) -> FloatArray:
        """Return the covariances of the answers of two queries, float64[K, m, n].

        Args:
          first: Any query of m answers.
          second: Any query of n answers.
          covariances: K covariances per component.
        """
        out = np.zeros((len(covariances[0]), first.size, second.size))
        factors = self._factors(first), self._factors(second)
        for index, matrices in enumerate(covariances):
            pair = [blocks for each in factors if (blocks := self._blocks(each, index)) is not None]
            if len(pair) < len(factors):
                continue
            within = self.components.within[index]
            sides = []
            for blocks in pair:
                parts = zip(blocks, within, strict=True)
                side = kron(np.ones((len(b), 1)) if i else b for b, i in parts)
                sides.append(self._reduced(side, index))
            inner = kron(
                left @ right.T if inside else np.ones((len(left), len(right)))
                for left, right, inside in zip(*pair, within, strict=True)
            )
            out += (sides[0] @ matrices @ sides[1].T) * inner
        return out

    def _row(self, blocks: Sequence[FloatArray], index: int) -> FloatArray:
        """Return rows v_j, float64[m, D]: v_j'Sv_j is answer j's variance on component `index`."""
        pairs = zip(blocks, self.components.within[index], strict=True)
        return kron(
            np.linalg.norm(block, axis=1)[:, None] if inside else block for block, inside in pairs
        )

    def _factors(self, query: Query) -> _Factors:
        """Return per attribute the query's factor on the coordinates of groups and within them."""
        out = []
        for factor, bases in zip(query.factors, self.bases, strict=True):
            blocks = {
                inside: np.asarray(factor.matrix @ basis, np.float64)
                for inside, basis in bases.items()
            }
            least = _ZERO * factor.largest
            out.append(
                {
                    inside: block if np.abs(block).max(initial=0.0) > least else None
                    for inside, block in blocks.items()
                }
            )
        return out

    def _blocks(self, factors: _Factors, index: int) -> list[FloatArray] | None:
        """Return the factor per attribute on component `index`, from 0; None if one is zero."""
        out = []
        for blocks, inside in zip(factors, self.components.within[index], strict=True):
            block = blocks[inside]
            if block is None:
                return None
            out.append(block)
        return out

    def _tensor_axes(self, index: int) -> tuple[list[int], list[int]]:
        """Return the attributes of component `index`, groups first, with numbers of coordinates.

        Components and attributes are numbered from 0.
        """
        within = self.components.within[index]
        order = sorted(range(len(within)), key=lambda axis: within[axis])
        return order, [self.bases[axis][within[axis]].shape[1] for axis in order]

    def _from_tensor(self, tensor: FloatArray, index: int) -> FloatArray:
        order, _ = self._tensor_axes(index)
        moved = tensor.transpose(tensor.ndim - 1, *order)
        part = moved.reshape(len(moved), self.components.sizes[index], self.widths[index])
        return part if self.spans is None else np.asarray(self.spans[index].T @ part)

    # --- flat rows, as files hold them -----------------------------------------------------------

    def flatten(self, parts: Sequence[FloatArray]) -> FloatArray:
        """Flatten histograms to float64[G, size], or matrices to float64[K, sum of D^2]."""
        return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)

    def unflatten(self, rows: FloatArray) -> Values:
        """Split flat rows into the histograms of every component."""
        return _parted(rows, list(zip(self.sizes, self.widths, strict=True)))

    def unflatten_matrices(self, rows: FloatArray) -> Matrices:
        """Split flat rows into the matrices of every component."""
        return _parted(rows, [(size, size) for size in self.sizes])

    def select(self, whole: Coordinates, parts: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
        """Select the arrays of the components kept here, from one per component of `whole`."""
        position = {within: index for index, within in enumerate(whole.components.within)}
        return tuple(parts[position[within]] for within in self.components.within)


def along(axis: int, tensor: FloatArray, block: FloatArray) -> FloatArray:
    """Multiply an array along one axis by a matrix.

    Args:
      axis: The axis, numbered from 0, of length n.
      tensor: The array.
      block: float64[n, k], the matrix.
    """
    before, after = tensor.shape[:axis], tensor.shape[axis + 1 :]
    product = block.T @ tensor.reshape(math.prod(before), len(block), math.prod(after))
    return product.reshape(*before, block.shape[1], *after)


def _parted(rows: FloatArray, shapes: Sequence[tuple[int, int]]) -> tuple[FloatArray, ...]:
    """Split rows into consecutive arrays of the given shapes.

    Args:
      rows: float64[m, D], whose columns are split.
      shapes: Shape of each part of a row; the products of the shapes sum to D.
    """
    parts = np.split(rows, np.cumsum([math.prod(shape) for shape in shapes])[:-1], axis=1)
    return tuple(
        np.ascontiguousarray(part).reshape(len(rows), *shape)
        for part, shape in zip(parts, shapes, strict=True)
    )


def _within(codes: IntArray) -> FloatArray:
    """Return an orthonormal basis of vectors that sum to 0 over every atom, float64[n, n - k]."""
    columns = []
    for atom in range(int(codes.max()) + 1):
        levels = np.flatnonzero(codes == atom)
        for step in range(1, len(levels)):
            column = np.zeros(len(codes))
            column[levels[:step]] = 1.0 / math.sqrt(step * (step + 1))
            column[levels[step]] = -step / math.sqrt(step * (step + 1))
            columns.append(column)
    return np.array(columns).T.reshape(len(codes), len(columns))
