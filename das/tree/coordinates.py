"""Coordinates of a histogram in which the information of every measured query is small matrices.

The components of `das.tree.components` are subspaces; here each gets an orthonormal
basis. Attribute i with k groups of levels (atoms) has k coordinates for the normalized sums of its
groups and n_i - k within them. A component with D combinations of groups and R coordinates within
holds a histogram as a D x R array, on which any covariance is a D x D matrix, the same for all R.

Queries that leave much of the space unseen need few of these coordinates: what they see on each
component, their span (`das.tree.span`). Then D is its dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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
_FEW = 64  # answers that are not worth adding up further
_UNSEEN = 1e-9  # of the squared norm of a query; what is not seen of one that differs is far more
_KEPT_ANSWERS = 1 << 16  # of a table of more, which variances are equal is found out every time
_DIGITS = 12  # rows of a table that agree to so many digits have equal variances


@dataclass(frozen=True, eq=False)
class _Marginal:
    """Sums of answers.

    Attributes:
      answers: number[G, rows of attribute 1, ...].
      factors: Per attribute, the factor of these rows on groups, and within them.
      components: Numbers of the components that are read from it.
    """

    answers: npt.NDArray[np.integer | np.floating]
    factors: _Factors
    components: list[int]


@dataclass(frozen=True, eq=False)
class _Product:
    """What a query says of one component, with one multiplication left where others share it.

    Attributes:
      component: Its number.
      tensor: float64, a row per coordinate or level of each attribute, geounits last.
      scale: What it is still to be multiplied by.
      axis: The attribute along which `matrix` is still to be multiplied.
      matrix: One object for all queries with the same entries; None if nothing is left.
    """

    component: int
    tensor: FloatArray
    scale: float
    axis: int = 0
    matrix: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class _AlikeRows:
    """The rows of a query on one attribute, of which some look alike on its groups.

    Attributes:
      every: The factor on groups, and within them.
      first: The same of the first of the rows that look alike.
      group: int64[n], which of those each row looks like.
    """

    every: Mapping[bool, FloatArray | None]
    first: Mapping[bool, FloatArray | None]
    group: IntArray

    @classmethod
    def of(cls, blocks: Mapping[bool, FloatArray | None], size: int) -> _AlikeRows:
        """Compare the `size` rows of a factor on groups."""
        on_groups = blocks[False]
        if on_groups is None:
            return cls(blocks, blocks, np.arange(size))
        _, first, group = np.unique(
            np.round(on_groups, _DIGITS), axis=0, return_index=True, return_inverse=True
        )
        return cls(blocks, {False: on_groups[first], True: None}, group.reshape(-1))

    @property
    def ratio(self) -> float:
        """How many rows look alike, in the mean."""
        return len(self.group) / (int(self.group.max(initial=0)) + 1)


Adding = Callable[[npt.NDArray[np.integer], int, IntArray], npt.NDArray[np.integer]]
"""How whole numbers are added up: `group_sums`, or what gives the same."""


def group_sums(
    answers: npt.NDArray[np.integer], axis: int, group: IntArray
) -> npt.NDArray[np.integer]:
    """Add up answers along an axis, exactly.

    Args:
      answers: integers[G, ...].
      axis: At least 1.
      group: int64[n] of the n answers along the axis, the group of each, from 0 on, all present.

    Returns:
      The same with a sum for each group along the axis, of `sum_type`.
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
    """The narrowest integers that hold every sum of answers of one geounit."""
    few = math.prod(answers.shape[1:]) <= 1 << 16
    return np.int32 if few and answers.dtype.itemsize <= 2 else np.int64


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Orthonormal coordinates of some components.

    Attributes:
      components: The components; possibly a part of those that make up the whole space.
      spans: Per component, float64[groups, D], orthonormal: all that is kept of its combinations of
        groups; None for all of them.
    """

    components: SpineComponents
    spans: tuple[FloatArray, ...] | None = None
    _known_blocks: dict[tuple[tuple[int, ...], bytes], FloatArray] = field(
        default_factory=dict, init=False, repr=False
    )
    _known_alike: dict[Query, Sequence[_AlikeRows]] = field(
        default_factory=dict, init=False, repr=False
    )
    _known_rows: dict[Query, tuple[list[FloatArray], IntArray]] = field(
        default_factory=dict, init=False, repr=False
    )

    @classmethod
    def of_queries(cls, queries: Sequence[Query], most_groups: int | None = None) -> Coordinates:
        """Coordinates of the whole space that fit all these queries; see `SpineComponents`.

        Raises:
          SchemaError: The queries group the levels in too many ways.
        """
        return cls(SpineComponents.of_queries(queries, most_groups))

    def touched_by(self, queries: Sequence[Query]) -> Coordinates:
        """Only the components on which one of the queries is not zero; any queries."""
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
        """Only what one of the queries sees, which the components were made for.

        Args:
          queries: At least one.
          most: The largest D.

        Raises:
          SchemaError: One is larger.
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

    def sees(self, query: Query, within: Sequence[FloatArray]) -> bool:
        """Whether the answers of any query are those of its projection on some of the coordinates.

        Args:
          query: Any query.
          within: Per component, float64[D, k], orthonormal.
        """
        alike, _ = self.alike(query)
        factors = self._factors(alike)
        whole = Coordinates(replace(self.components, within=self.components.every))
        kept = {inside: index for index, inside in enumerate(self.components.within)}
        for index, inside in enumerate(whole.components.within):
            blocks = whole._blocks(factors, index)
            if blocks is None:
                continue
            if inside not in kept:
                return False
            rows = self._row(blocks, kept[inside])
            held = self._reduced(rows, kept[inside]) @ within[kept[inside]]
            left = (rows**2).sum() - (held**2).sum()
            if left > _UNSEEN * (rows**2).sum():
                return False
        return True

    def _reduced(self, rows: FloatArray, index: int) -> FloatArray:
        """float64[m, D] of rows on all combinations of groups of a component."""
        return rows if self.spans is None else np.asarray(rows @ self.spans[index])

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """D of every component."""
        if self.spans is None:
            return self.components.sizes
        return tuple(span.shape[1] for span in self.spans)

    def grams(self, query: Query) -> list[FloatArray]:
        """Return Q'Q on every component, float64[D, D], for a query they are made for."""
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
        """float64[D, D], without the matrix over all combinations of groups."""
        outside = [part for (part, _), inside in zip(parts, within, strict=True) if not inside]
        scale = math.prod(own for (_, own), inside in zip(parts, within, strict=True) if inside)
        tensor = span.reshape(*(len(part) for part in outside), span.shape[1])
        for axis, part in enumerate(outside):
            tensor = along(axis, tensor, part)
        return np.asarray(scale * (span.T @ tensor.reshape(span.shape)))

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The number r of rows of every component."""
        free = [basis[True].shape[1] for basis in self.bases]
        return tuple(
            math.prod(n for n, inside in zip(free, within, strict=True) if inside)
            for within in self.components.within
        )

    @cached_property
    def size(self) -> int:
        """Coordinates of one histogram: the cells, if no component was left out."""
        return sum(d * r for d, r in zip(self.sizes, self.widths, strict=True))

    @cached_property
    def bases(self) -> tuple[dict[bool, FloatArray], ...]:
        """Per attribute, float64[n, k] on groups (False) and float64[n, n - k] within (True)."""
        return tuple({False: normalized(c), True: _within(c)} for c in self.components.atoms)

    # --- histograms and answers ------------------------------------------------------------------

    def adjoint(self, query: Query, answers: npt.NDArray[np.integer | np.floating]) -> Values:
        """Return Q'y.

        Args:
          query: One of the queries the components were made for, or any other.
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
        """Return sum_q w_q Q_q'y_q.

        Args:
          queries: As of `adjoint`.
          answers: Per query, number[G, m].
          weights: Per query one number, or float64[G].
          n_geounits: G.
          add_up: Adds up whole numbers.
        """
        sums: dict[tuple[int, int], tuple[_Product, FloatArray]] = {}
        for query, own, weight in zip(queries, answers, weights, strict=True):
            for one in self._products(query, own, add_up):
                part = (one.scale * weight) * one.tensor
                key = one.component, id(one.matrix)
                if key in sums:
                    np.add(sums[key][1], part, out=part)
                sums[key] = one, part
        found: dict[int, FloatArray] = {}
        for (index, _), (one, part) in sums.items():
            whole = part if one.matrix is None else along(one.axis, part, one.matrix)
            found[index] = found[index] + whole if index in found else whole
        return tuple(
            np.ascontiguousarray(self._from_tensor(found[index], index))
            if index in found
            else np.zeros((n_geounits, size, width))
            for index, (size, width) in enumerate(zip(self.sizes, self.widths, strict=True))
        )

    def _products(
        self, query: Query, answers: npt.NDArray[np.integer | np.floating], add_up: Adding
    ) -> Iterator[_Product]:
        """Q'y on the components where it is not zero.

        Whole numbers are first added up to the marginals that the components need, as integers of
        their own width: few tables look at few components, which see little of many answers.
        """
        alike = self._alike_rows(query)
        factors = [rows.every for rows in alike]
        chosen = [c for c in range(len(self.sizes)) if self._blocks(factors, c) is not None]
        tensor: npt.NDArray[Any] = answers.reshape(len(answers), *query.shape)
        marginals = iter([_Marginal(tensor, factors, chosen)] if chosen else [])
        if np.issubdtype(answers.dtype, np.integer):
            marginals = self._marginals(alike, tensor, chosen, add_up)
        for one in marginals:
            # Geounits run fastest, so that every product is one of large matrices.
            last = np.ascontiguousarray(np.moveaxis(one.answers, 0, -1), np.float64)
            yield from self._split(one.factors, last, set(range(last.ndim - 1)), one.components)

    def _marginals(
        self,
        alike: Sequence[_AlikeRows],
        tensor: npt.NDArray[np.integer],
        chosen: list[int],
        add_up: Adding,
    ) -> Iterator[_Marginal]:
        """Marginals of answers, each with the components that need no more of them."""
        within = self.components.within
        pending = [axis for axis, rows in enumerate(alike) if rows.ratio > 1]

        def descend(
            tensor: npt.NDArray[np.integer], done: frozenset[int], chosen: list[int]
        ) -> Iterator[_Marginal]:
            if not chosen:
                return
            for axis in sorted(pending, key=lambda one: -alike[one].ratio):
                if axis not in done and not any(within[c][axis] for c in chosen):
                    tensor = add_up(tensor, axis + 1, alike[axis].group)
                    done = done | {axis}
            open_axes = [axis for axis in pending if axis not in done]
            split = [a for a in open_axes if len({within[c][a] for c in chosen}) > 1]
            # Who looks into all that is left needs all of it; the others may take it from there.
            whole = any(all(within[c][axis] for axis in split) for c in chosen)
            if whole or math.prod(tensor.shape[1:]) <= _FEW:
                factors = [
                    rows.first if axis in done else rows.every for axis, rows in enumerate(alike)
                ]
                yield _Marginal(tensor, factors, chosen)
                return
            axis = max(split, key=lambda one: alike[one].ratio)
            for inside in (False, True):
                yield from descend(tensor, done, [c for c in chosen if within[c][axis] is inside])

        yield from descend(tensor, frozenset(), chosen)

    def _alike_rows(self, query: Query) -> Sequence[_AlikeRows]:
        """Per attribute, the rows of a query that look alike on groups; found once per query."""
        known = self._known_alike
        if query not in known:
            known[query] = [
                _AlikeRows.of({i: self._kept(b) for i, b in blocks.items()}, size)
                for blocks, size in zip(self._factors(query), query.shape, strict=True)
            ]
        return known[query]

    def _kept(self, block: FloatArray | None) -> FloatArray | None:
        """The first matrix that had these entries."""
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
        """Multiply axis by axis; components that agree on the axes so far share the work.

        `scale` is what axes of one row on one coordinate multiply by, which the end takes.
        """
        if not axes:
            yield _Product(chosen[0], tensor, scale)
            return
        within = self.components.within
        divides = {one: any(within[c][one] for c in chosen) for one in axes}
        # Sums over groups alone come first, of most levels: they leave little to multiply.
        size = tensor.shape
        axis = min(axes, key=lambda one: (divides[one], size[one] if divides[one] else -size[one]))
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
            tensor = self._to_tensor(part, index)
            for axis, block in enumerate(blocks):
                tensor = along(axis, tensor, block.T)
            out += tensor
        return np.ascontiguousarray(out.reshape(query.size, -1).T)

    def variances(self, query: Query, covariances: Matrices) -> FloatArray:
        """Return float64[K, m]: the variance of every answer of any query, for K covariances."""
        rows, place = self._distinct_rows(query)
        out = np.zeros((len(covariances[0]), int(place.max()) + 1))
        for row, matrices in zip(rows, covariances, strict=True):
            if row.any():
                out += ((row @ matrices) * row).sum(axis=2)
        return np.maximum(out, 0)[:, place]

    def _distinct_rows(self, query: Query) -> tuple[list[FloatArray], IntArray]:
        """Per component, rows that differ, and int64[m], which each answer has; found once."""
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
            _, first, place = np.unique(joined, axis=0, return_index=True, return_inverse=True)
            found = [row[first] for row in rows], place.reshape(-1).astype(np.int64)
            if query.size > _KEPT_ANSWERS:
                return found
            known[query] = found
        return known[query]

    def alike(self, query: Query) -> tuple[Query, FloatArray]:
        """One answer of a query for all that have equal variances by their rows, and their numbers.

        Returns:
          A query of the rows of every attribute that differ in these coordinates, and float64 of
          its size: how many answers each of its answers stands for.
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
        """Return float64[K, m, n]: of every answer of one query with every one of another.

        Args:
          first: Any query of m answers.
          second: Any query of n answers.
          covariances: K covariances per component.
        """
        out = np.zeros((len(covariances[0]), first.size, second.size))
        factors = self._factors(first), self._factors(second)
        for index, matrices in enumerate(covariances):
            pair = [blocks for one in factors if (blocks := self._blocks(one, index)) is not None]
            if len(pair) < len(factors):
                continue
            within = self.components.within[index]
            sides = []
            for blocks in pair:
                parts = zip(blocks, within, strict=True)
                side = kron(np.ones((len(b), 1)) if i else b for b, i in parts)
                sides.append(self._reduced(side, index))
            inner = kron(
                one @ other.T if inside else np.ones((len(one), len(other)))
                for one, other, inside in zip(*pair, within, strict=True)
            )
            out += (sides[0] @ matrices @ sides[1].T) * inner
        return out

    def _row(self, blocks: Sequence[FloatArray], index: int) -> FloatArray:
        """float64[m, D]: v_j with v_j'Sv_j the variance of answer j on this component."""
        pairs = zip(blocks, self.components.within[index], strict=True)
        return kron(
            np.linalg.norm(block, axis=1)[:, None] if inside else block for block, inside in pairs
        )

    def _factors(self, query: Query) -> _Factors:
        """Per attribute, the query's factor on coordinates of groups and of what lies within."""
        found = []
        for factor, bases in zip(query.factors, self.bases, strict=True):
            blocks = {
                inside: np.asarray(factor.matrix @ basis, np.float64)
                for inside, basis in bases.items()
            }
            least = _ZERO * factor.largest
            found.append(
                {
                    inside: block if np.abs(block).max(initial=0.0) > least else None
                    for inside, block in blocks.items()
                }
            )
        return found

    def _blocks(self, factors: _Factors, index: int) -> list[FloatArray] | None:
        """Per attribute, the factor on the coordinates of a component; None where it is zero."""
        out = []
        for blocks, inside in zip(factors, self.components.within[index], strict=True):
            block = blocks[inside]
            if block is None:
                return None
            out.append(block)
        return out

    def _tensor_axes(self, index: int) -> tuple[list[int], list[int]]:
        """Attributes in the order groups first, and their numbers of coordinates."""
        within = self.components.within[index]
        order = sorted(range(len(within)), key=lambda axis: within[axis])
        return order, [self.bases[axis][within[axis]].shape[1] for axis in order]

    def _from_tensor(self, tensor: FloatArray, index: int) -> FloatArray:
        order, _ = self._tensor_axes(index)
        moved = tensor.transpose(tensor.ndim - 1, *order)
        part = moved.reshape(len(moved), self.components.sizes[index], self.widths[index])
        return part if self.spans is None else np.asarray(self.spans[index].T @ part)

    def _to_tensor(self, part: FloatArray, index: int) -> FloatArray:
        order, shape = self._tensor_axes(index)
        back = np.argsort(order)
        if self.spans is not None:
            part = np.asarray(self.spans[index] @ part)
        return part.reshape(len(part), *shape).transpose(*(axis + 1 for axis in back), 0)

    # --- flat rows, as files hold them -----------------------------------------------------------

    def flatten(self, parts: Sequence[FloatArray]) -> FloatArray:
        """Return float64[G, size] of values, or float64[K, sum of D^2] of matrices."""
        return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)

    def unflatten(self, rows: FloatArray) -> Values:
        """Undo `flatten` of values."""
        return _parted(rows, list(zip(self.sizes, self.widths, strict=True)))

    def unflatten_matrices(self, rows: FloatArray) -> Matrices:
        """Undo `flatten` of matrices."""
        return _parted(rows, [(size, size) for size in self.sizes])

    def select(self, whole: Coordinates, parts: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
        """Of one array per component of `whole`, those of the components kept here."""
        position = {within: index for index, within in enumerate(whole.components.within)}
        return tuple(parts[position[within]] for within in self.components.within)


def along(axis: int, tensor: FloatArray, block: FloatArray) -> FloatArray:
    """Multiply axis `axis` of an array with float64[n, k]."""
    before, after = tensor.shape[:axis], tensor.shape[axis + 1 :]
    found = block.T @ tensor.reshape(math.prod(before), len(block), math.prod(after))
    return found.reshape(*before, block.shape[1], *after)


def _parted(rows: FloatArray, shapes: Sequence[tuple[int, int]]) -> tuple[FloatArray, ...]:
    """Cut rows into arrays of some shapes, one after the other."""
    parts = np.split(rows, np.cumsum([math.prod(shape) for shape in shapes])[:-1], axis=1)
    return tuple(
        np.ascontiguousarray(part).reshape(len(rows), *shape)
        for part, shape in zip(parts, shapes, strict=True)
    )


def _within(codes: IntArray) -> FloatArray:
    """An orthonormal basis of what sums to zero over every atom, float64[n, n - k]."""
    columns = []
    for atom in range(int(codes.max()) + 1):
        levels = np.flatnonzero(codes == atom)
        for step in range(1, len(levels)):
            column = np.zeros(len(codes))
            column[levels[:step]] = 1.0 / math.sqrt(step * (step + 1))
            column[levels[step]] = -step / math.sqrt(step * (step + 1))
            columns.append(column)
    return np.array(columns).T.reshape(len(codes), len(columns))
