r"""Joint sensitivity: the largest weighted effect of one record on the answers of several queries.

Queries q with independent discrete Gaussian noise of parameter sigma_q^2 cost, for two histograms
that differ by d, sum_q |Q_q d|^2 / (2 sigma_q^2) in zCDP. With weights w_q = 1 / (2 sigma_q^2) this
is d' V d for V = sum_q w_q Q_q' Q_q, and Q_q' Q_q = kron_i R_qi is a product of the Gram matrices
of the factors. One added record costs V_jj. One changed record is

- a change within a geounit: V_jj + V_kk - 2 V_jk, or
- a move between geounits, whose noise is independent: V_jj + V_kk, at most twice the worst column.

The sum of the worst cases of single queries is up to twice as large for residual queries, since no
pair of records is the worst case of all queries.

A pair of cells enters through the triple (R_jj, R_kk, R_jk) of each attribute and distinct factor,
and the cost is linear in the triples of every attribute. So equal triples count once. For residuals
of plain counts there are two per attribute, equal levels and different levels, hence 2^d patterns.
If there are too many patterns, pairs of levels are grouped into boxes, for attributes with one
factor besides the total. A triple of a box lies below an average of two corners (largest R_jj,
largest R_kk, least or largest R_jk), so the largest cost over corners bounds the cost over the box.
The boxes of the largest cost are halved until a pair of records nearly attains the bound.

Patterns are searched in floats, with a bound on rounding errors. Patterns that may be the largest
are evaluated exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from das.queries.query import Query
from das.queries.sensitivity import Neighbors, l2_sensitivity_sq

_MOST_COMBINATIONS = 1 << 19  # 4 MiB of floats, some 50 ms
_MOST_WORK = 1 << 26  # terms times combinations, where terms are added one by one
_MOST_SPLITS = 60  # default, not measured
_MOST_TIES = 256  # default, not measured
_CLOSE = 1e-6  # a bound this close to an attained cost is not refined; default, not measured
_EXACT = 2.0**53  # integers up to this are exact in float64


@dataclass(frozen=True)
class JointSensitivity:
    """The largest weighted squared distances between the answers of neighbors, over all queries.

    Every number is exact or an upper bound.

    Attributes:
      column: One record added: max_j sum_q w_q |q_j|^2.
      pair: One record changed within its geounit: max_jk sum_q w_q |q_j - q_k|^2.
      attributes: As `pair`, per attribute, for cells j, k that differ in this attribute alone.
    """

    column: Fraction
    pair: Fraction
    attributes: tuple[Fraction, ...]

    def of(self, neighbors: Neighbors) -> Fraction:
        """Return the cost of the worst neighbors; a changed record may also move to a geounit."""
        if neighbors is Neighbors.UNBOUNDED:
            return self.column
        return max(2 * self.column, self.pair)


def joint_sensitivity(queries: Sequence[Query], weights: Sequence[Fraction]) -> JointSensitivity:
    """Return the largest weighted squared distances of several queries together.

    Args:
      queries: At least one, all over the same attributes.
      weights: One positive number per query; with 1 / (2 sigma^2) the result is in rho.

    Returns:
      Exact if there are few combinations of distinct pairs of levels, as for plain counts.
      Otherwise upper bounds: within 1e-6 of an attained cost for residual plans of usual size, and
      never above the sum of the costs of single queries.

    >>> from das.queries.query import parse_query
    >>> from das.schema import Attribute, Schema
    >>> schema = Schema("s", (Attribute("sex", ("f", "m")), Attribute("old", ("no", "yes"))))
    >>> texts = ["total", "residual(sex)", "residual(old)", "residual(sex) * residual(old)"]
    >>> queries = [parse_query(schema, text) for text in texts]
    >>> joint = joint_sensitivity(queries, [Fraction(1)] * 4)
    >>> str(joint.column), str(joint.pair), [str(cost) for cost in joint.attributes]
    ('9', '24', ['24', '24'])
    """
    together = gram_sum(queries, weights)
    axes = range(len(queries[0].factors))
    if together is None:
        separate = _separately(queries, weights)
        return JointSensitivity(*separate, (separate[1],) * len(axes))
    column, pair = together.largest_column(), together.largest_pair()
    changes = tuple(together.largest_change(axis) for axis in axes)
    return JointSensitivity(
        column, pair.value if pair else _separately(queries, weights)[1], changes
    )


def gram_sum(queries: Sequence[Query], weights: Sequence[Fraction]) -> GramSum | None:
    """Return sum_q w_q Q_q'Q_q in factored form; None if floats cannot hold the factors exactly.

    Args:
      queries: The queries Q_q, all over the same attributes.
      weights: The weight w_q of each query.
    """
    n_attributes = len(queries[0].factors)
    kinds = np.zeros((len(queries), n_attributes), np.int64)
    grams = []
    for axis in range(n_attributes):
        factors = [query.factors[axis] for query in queries]
        distinct = {factor.key: factor for factor in factors}
        number = {key: index for index, key in enumerate(distinct)}
        kinds[:, axis] = [number[factor.key] for factor in factors]
        if any(4 * len(f.matrix) * f.largest**2 > _EXACT for f in distinct.values()):
            return None
        grams.append(np.stack([factor.gram for factor in distinct.values()]))
    return GramSum(tuple(weights), kinds, tuple(grams))


def _separately(queries: Sequence[Query], weights: Sequence[Fraction]) -> tuple[Fraction, Fraction]:
    """Return bounds on `column` and `pair`: the sums of the worst cases of single queries."""
    column, pair = (
        sum(
            (w * l2_sensitivity_sq(q, n) for w, q in zip(weights, queries, strict=True)),
            Fraction(0),
        )
        for n in (Neighbors.UNBOUNDED, Neighbors.BOUNDED)
    )
    return column, pair


@dataclass(frozen=True, eq=False)
class WorstPair:
    """The pair of cells with the largest weighted squared distance.

    Attributes:
      value: The distance of the pair, or an upper bound for every pair.
      triples: Per attribute and factor R_jj, R_kk and R_jk, float64[m_i, 3] each.
    """

    value: Fraction
    triples: tuple[FloatArray, ...]


@dataclass(frozen=True, eq=False)
class GramSum:
    """V = sum_q weights_q kron_i R_i[kinds[q, i]], never formed.

    Attributes:
      weights: Positive, one per term.
      kinds: int64[terms, d]: index of the Gram matrix of attribute i in the term.
      grams: Per attribute the distinct Gram matrices, float64[m_i, n_i, n_i], with exact entries.
    """

    weights: tuple[Fraction, ...]
    kinds: IntArray
    grams: tuple[FloatArray, ...]

    def largest_column(self) -> Fraction:
        """Return the largest V_jj, or a bound if factors have too many distinct columns."""
        return self._largest([_diagonals(gram) for gram in self.grams])

    def largest_change(self, axis: int) -> Fraction:
        """Return the largest distance of cells that differ in attribute `axis` alone, or a bound.

        Attributes are numbered from 0.
        """
        columns = [_diagonals(gram) for gram in self.grams]
        gram = self.grams[axis]
        lengths = columns[axis]
        apart = lengths[:, None] + lengths[None, :] - 2 * np.moveaxis(gram, 0, -1)
        columns[axis] = apart.reshape(-1, len(gram))
        return self._largest(columns)

    def largest_pair(self, *, exact: bool = True) -> WorstPair | None:
        """Return the pair with the largest (e_j - e_k)' V (e_j - e_k) over all cells.

        Args:
          exact: Whether to evaluate the worst pair exactly. Otherwise its value is an upper bound,
            up to rounding.

        Returns:
          The pair, or an artificial pair that bounds all; None if there are too many to search.
        """
        if all((gram >= 0).all() for gram in self.grams):
            # Then V_jk >= 0, so no pair within a geounit is worse than a move.
            corner = [_diagonals(gram).max(0) for gram in self.grams]
            triples = tuple(np.stack([top, top, np.zeros_like(top)], axis=-1) for top in corner)
            return WorstPair(2 * self.largest_column(), triples)
        tables = [_distinct_triples(gram) for gram in self.grams]
        boxes = self._first_boxes(tables)
        if boxes is None:
            return None
        for _ in range(_MOST_SPLITS):
            corners = [_corners(table, cut) for table, cut in zip(tables, boxes, strict=True)]
            distances = self._distances([corner.triples for corner in corners])
            if not np.isfinite(distances).all():
                return None  # beyond the range of floats
            index = np.unravel_index(int(distances.argmax()), distances.shape)
            chosen = zip(corners, index, strict=True)
            attained = self._distances([corner.inside[[at]] for corner, at in chosen]).item()
            finer = [
                _split(table, cut, corner.box[at])
                for table, cut, corner, at in zip(tables, boxes, corners, index, strict=True)
            ]
            if distances.max() <= attained * (1 + _CLOSE) or not self._fits(
                [sum(map(_n_corners, cut)) for cut in finer]
            ):
                break
            boxes = finer
        return self._worst(distances, [corner.triples for corner in corners], exact)

    def _first_boxes(self, tables: Sequence[FloatArray]) -> list[list[IntArray]] | None:
        """Return one box per triple if these can be searched, else one per large attribute."""
        single = [[np.array([row]) for row in range(len(table))] for table in tables]
        if self._fits([len(cut) for cut in single]):
            return single
        boxes = [
            cut if len(cut) <= 4 or _varying(table).sum() > 1 else [np.arange(len(table))]
            for cut, table in zip(single, tables, strict=True)
        ]
        return boxes if self._fits([sum(map(_n_corners, cut)) for cut in boxes]) else None

    def _fits(self, sizes: Sequence[int]) -> bool:
        combinations = math.prod(sizes)
        work = combinations * (1 if self._is_dense else len(self.weights))
        return combinations <= _MOST_COMBINATIONS and work <= _MOST_WORK

    @cached_property
    def _numbers(self) -> FloatArray:
        return np.array([float(weight) for weight in self.weights])

    @property
    def _is_dense(self) -> bool:
        return math.prod(map(len, self.grams)) <= max(64, 4 * len(self.weights))

    @cached_property
    def _tensor(self) -> FloatArray:
        """Return float64[m_1, ..., m_d]: the sum of weights by the kinds of their factors."""
        out = np.zeros([len(gram) for gram in self.grams])
        np.add.at(out, tuple(self.kinds.T), self._numbers)
        return out

    @np.errstate(over="ignore", invalid="ignore")
    def _sums(self, values: Sequence[FloatArray]) -> FloatArray:
        """Return float64[c_1, ..., c_d]: sum_q w_q prod_i values_i[c_i, kinds[q, i]], no BLAS."""
        if self._is_dense:
            out = self._tensor
            for table in values:
                parts = (out[kind][..., None] * table[:, kind] for kind in range(table.shape[1]))
                out = np.asarray(sum(parts))
            return out
        out = np.zeros([len(table) for table in values])
        for weight, kinds in zip(self._numbers, self.kinds.tolist(), strict=True):
            term = np.array(weight)
            for table, kind in zip(values, kinds, strict=True):
                term = term[..., None] * table[:, kind]
            out += term
        return out

    def _distances(self, triples: Sequence[FloatArray]) -> FloatArray:
        first, second, both = (self._sums([t[..., part] for t in triples]) for part in range(3))
        with np.errstate(invalid="ignore"):
            return np.asarray(first + second - 2 * both)

    def _rounding(self, largest: Sequence[FloatArray]) -> float:
        """Return a bound on the rounding error of a sum; largest_i[m_i] bounds the factors."""
        sizes = float(self._sums([bound[None] for bound in largest]).item())
        operations = len(self.weights) + sum(map(len, self.grams)) + 3 * len(self.grams) + 16
        return 4 * sizes * operations * 2.0**-52

    def _largest(self, columns: Sequence[FloatArray]) -> Fraction:
        """Return the largest sum_q w_q prod_i columns_i[c_i, kind] over c_i, or a bound.

        All numbers are nonnegative.
        """
        tables = [_undominated(table) for table in columns]
        top = [table.max(0) for table in tables]
        sums = self._sums(tables) if self._fits([len(table) for table in tables]) else None
        if sums is None or not np.isfinite(sums).all():
            return self._evaluate([bound[:, None] for bound in top])[0]
        near = np.argwhere(sums >= sums.max() - 2 * self._rounding(top))
        if len(near) > _MOST_TIES:
            return Fraction(float(sums.max() + self._rounding(top)))
        return max(
            self._evaluate([t[at][:, None] for t, at in zip(tables, index, strict=True)])[0]
            for index in near.tolist()
        )

    def _worst(
        self, distances: FloatArray, triples: Sequence[FloatArray], exact: bool
    ) -> WorstPair:
        slack = self._rounding([np.abs(table).max(axis=(0, 2)) for table in triples])
        near = np.argwhere(distances >= distances.max() - 2 * slack)
        pairs = [
            tuple(table[at] for table, at in zip(triples, index, strict=True))
            for index in near[:_MOST_TIES].tolist()
        ]
        if not exact or len(near) > _MOST_TIES:
            return WorstPair(Fraction(float(distances.max() + slack)), pairs[0])
        exact_parts = map(self._evaluate, pairs)
        values = [first + second - 2 * both for first, second, both in exact_parts]
        best = max(range(len(pairs)), key=values.__getitem__)
        return WorstPair(values[best], pairs[best])

    def _evaluate(self, chosen: Sequence[FloatArray]) -> list[Fraction]:
        """Return sum_q w_q prod_i chosen_i[kind, p] exactly, per p; chosen_i is float64[m_i, p]."""
        exact = [[[_exact(v) for v in row] for row in table.tolist()] for table in chosen]
        out = [Fraction(0)] * chosen[0].shape[1]
        for weight, kinds in zip(self.weights, self.kinds.tolist(), strict=True):
            for part in range(len(out)):
                term: int | Fraction = 1
                for rows, kind in zip(exact, kinds, strict=True):
                    term *= rows[kind][part]
                out[part] += weight * term
        return out


def _exact(value: float) -> int | Fraction:
    return int(value) if value.is_integer() else Fraction(value)


def _diagonals(gram: FloatArray) -> FloatArray:
    """Return float64[n, m]: the squared lengths of the columns."""
    return np.asarray(np.diagonal(gram, axis1=1, axis2=2).T)


def _undominated(table: FloatArray) -> FloatArray:
    """Return the rows float64[c, m] that may attain a maximum of products of nonnegatives."""
    rows = np.unique(table, axis=0)
    varying = (rows != rows[0]).any(axis=0)
    if varying.sum() <= 1:
        return rows[-1:]  # sorted: the last one is the largest
    kept = rows[::-1]
    for at in range(len(kept)):
        if at >= len(kept):
            break
        below = (kept <= kept[at]).all(axis=1)
        below[: at + 1] = False
        kept = kept[~below]
    return np.asarray(kept)


def _distinct_triples(gram: FloatArray) -> FloatArray:
    """Return float64[c, m, 3]: the distinct (R_jj, R_kk, R_jk) of all pairs of levels."""
    lengths = _diagonals(gram)
    n, m = lengths.shape
    both = np.moveaxis(gram, 0, -1)
    parts = np.broadcast_arrays(lengths[:, None], lengths[None], both)
    return np.unique(np.stack(parts, axis=-1).reshape(n * n, 3 * m), axis=0).reshape(-1, m, 3)


def _varying(table: FloatArray) -> BoolArray:
    """Return bool[m]: which factors of an attribute differ between pairs."""
    return np.asarray((table != table[0]).any(axis=(0, 2)))


@dataclass(frozen=True, eq=False)
class _Corners:
    """Candidates of one attribute: corners, a true triple near each, and the box of each."""

    triples: FloatArray
    inside: FloatArray
    box: list[int]


def _n_corners(box: IntArray) -> int:
    return min(2, len(box))


def _corners(table: FloatArray, boxes: Sequence[IntArray]) -> _Corners:
    triples, inside, owner = [], [], []
    for number, box in enumerate(boxes):
        rows = table[box]
        if len(box) == 1:
            triples.append(rows[0])
            inside.append(rows[0])
            owner.append(number)
            continue
        kind = int(_varying(table).argmax())
        top = rows.max(axis=0)
        for at in (int(rows[:, kind, 2].argmin()), int(rows[:, kind, 2].argmax())):
            corner = top.copy()
            corner[kind, 2] = rows[at, kind, 2]
            triples.append(corner)
            inside.append(rows[at])
            owner.append(number)
    return _Corners(np.stack(triples), np.stack(inside), owner)


def _split(table: FloatArray, boxes: list[IntArray], number: int) -> list[IntArray]:
    """Halve box `number`, from 0, along the longest of its three sides; one triple stays."""
    box = boxes[number]
    if len(box) == 1:
        return boxes
    rows = table[box][:, _varying(table).argmax()]
    low, high = rows.min(axis=0), rows.max(axis=0)
    side = int((high - low).argmax())
    lower = rows[:, side] <= (low[side] + high[side]) / 2
    if lower.all():  # neighboring floats, whose mean is the larger one, or equal ones
        lower = np.arange(len(box)) < len(box) // 2
    return [*boxes[:number], box[lower], box[~lower], *boxes[number + 1 :]]
