"""Query: an integer linear map of a histogram, one factor matrix per attribute.

A query over a schema with attributes i = 1..d is Q = kron_i F_i, F_i an integer matrix of shape
(m_i, n_i). Marginals, recoded marginals, residual, prefix and range queries all have this form;
only the factors differ.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from das.arrays import FloatArray, IntArray, joined_ranges, sums_at
from das.errors import SchemaError
from das.histograms import Histograms
from das.queries.factor import FUNCTIONS, Factor, FactorKind, identity, partition, total
from das.queries.group import Group
from das.queries.grouped import grouped
from das.schema import Schema

_NUMBERS = 4_000_000  # cells or answers in memory at a time: 32 MB
_MOST_COLUMNS = 20_000_000  # distinct columns of a query over more cells: 160 MB per array


@dataclass(frozen=True, eq=False)
class Query:
    """Q = kron_i F_i with a name; answers are int64[m], m = prod m_i, in C order of the rows.

    Attributes:
      name: Canonical name, for example "hispanic * cenrace", "total", "detailed".
      factors: One per attribute of the schema, in the schema's order.
    """

    name: str
    factors: tuple[Factor, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the numbers of rows of the factors, (m_1, ..., m_d)."""
        return tuple(f.matrix.shape[0] for f in self.factors)

    @property
    def size(self) -> int:
        """Return m, the number of answers."""
        return math.prod(self.shape)

    @property
    def n_cells(self) -> int:
        """Return n, the number of cells of the schema."""
        return math.prod(f.matrix.shape[1] for f in self.factors)

    @property
    def kept(self) -> tuple[int, ...]:
        """Return the positions of the attributes that are not summed out."""
        kinds = [factor.kind for factor in self.factors]
        return tuple(i for i, kind in enumerate(kinds) if kind is not FactorKind.TOTAL)

    @property
    def is_partition(self) -> bool:
        """Return whether every cell counts in exactly one answer, once."""
        return all(f.kind is not FactorKind.GENERAL for f in self.factors)

    @property
    def counts_once(self) -> bool:
        """Return whether every cell counts in at most one answer, once."""
        return all(f.counts_once for f in self.factors)

    @property
    def is_signed(self) -> bool:
        """Return whether answers can be negative."""
        return any(f.matrix.min() < 0 for f in self.factors)

    @property
    def is_listed(self) -> bool:
        """Return whether the name can be parsed; planned queries have a digest in their name."""
        return "#" not in self.name

    def rows_of(self, cells: IntArray) -> IntArray:
        """Return the answer of a partition query that counts each of k given cells, int64[k].

        Raises:
          SchemaError: The query is not a partition.
        """
        if not self.is_partition:
            raise SchemaError(f"query {self.name}", "is not a partition of the cells")
        out = np.zeros(len(cells), np.int64)
        below = self.n_cells
        for factor in self.factors:
            below //= factor.matrix.shape[1]
            if factor.kind is not FactorKind.TOTAL:  # its levels do not matter
                levels = cells // below % factor.matrix.shape[1]
                out = out * len(factor.labels) + factor.codes[levels]
        return out

    def first_cells(self, positions: IntArray) -> IntArray:
        """Return the first cell that each of p answers of a partition query counts, int64[p]."""
        cells = np.zeros(len(positions), np.int64)
        codes = np.unravel_index(positions, self.shape)
        for factor, code in zip(self.factors, codes, strict=True):
            cells = cells * factor.matrix.shape[1] + factor.first_levels[code]
        return cells

    def cells_of(self, positions: IntArray) -> IntArray:
        """Return all cells that given answers of a partition query count, int64[k], ascending.

        Args:
          positions: int64[p], distinct indices of answers.
        """
        cells, owner = np.zeros(len(positions), np.int64), np.arange(len(positions))
        codes = np.unravel_index(positions, self.shape)
        for factor, code in zip(self.factors, codes, strict=True):
            order = np.argsort(factor.codes, kind="stable")
            starts = np.searchsorted(factor.codes[order], np.arange(len(factor.labels) + 1))
            group = code[owner]
            entry, member = joined_ranges(starts[group], np.diff(starts)[group])
            cells = cells[entry] * factor.matrix.shape[1] + order[member]
            owner = owner[entry]
        return np.sort(cells)

    def columns(self, cells: IntArray) -> IntArray:
        """Return the columns of Q for k given cells, dense, int64[m, k]; for small k or tests."""
        out = np.ones((1, len(cells)), np.int64)
        for factor, levels in zip(self.factors, self._levels(cells), strict=True):
            part = factor.matrix[:, levels]
            out = (out[:, None, :] * part[None, :, :]).reshape(len(out) * len(part), len(cells))
        return out

    def _levels(self, cells: IntArray) -> tuple[npt.NDArray[np.intp], ...]:
        """Return the level of each cell, one int64[k] per attribute."""
        return np.unravel_index(cells, [f.matrix.shape[1] for f in self.factors])

    def answer(self, histograms: Histograms) -> IntArray:
        """Evaluate the query exactly.

        Args:
          histograms: G geounits over the schema's n cells.

        Returns:
          int64[G, m], a new array. Memory is proportional to these answers and to the entries of
          the histograms; Q itself is never formed.

        Raises:
          SchemaError: The histograms are of another schema, or an answer may exceed 63 bits.
            Answers of prefix and range queries are counts of persons and always fit.
        """
        if histograms.n_cells != self.n_cells:
            raise SchemaError(
                f"query {self.name}",
                "was evaluated on histograms of another schema",
                got=f"{histograms.n_cells} cells",
                want=f"{self.n_cells} cells",
            )
        if not self.is_partition:
            return self._multiply(histograms)
        spots = histograms.owners() * self.size + self.rows_of(histograms.cells)
        answers = sums_at(spots, histograms.counts, histograms.n_geounits * self.size)
        return answers.reshape(histograms.n_geounits, self.size)

    def answer_at(self, histograms: Histograms, positions: IntArray) -> IntArray:
        """Evaluate some answers of a partition query, without computing the others.

        Args:
          histograms: G geounits over the schema's n cells.
          positions: int64[p], ascending indices of answers.

        Returns:
          int64[G, p], the columns of `answer` at these positions; a new array.

        Raises:
          SchemaError: The query is not a partition, or the histograms are of another schema.
        """
        if histograms.n_cells != self.n_cells:
            raise SchemaError(f"query {self.name}", "was evaluated on histograms of another schema")
        rows = self.rows_of(histograms.cells)
        spots = np.minimum(np.searchsorted(positions, rows), max(0, len(positions) - 1))
        counts = positions[spots] == rows if len(positions) else np.zeros(len(rows), np.bool_)
        out = np.zeros((histograms.n_geounits, len(positions)), np.int64)
        np.add.at(out, (histograms.owners()[counts], spots[counts]), histograms.counts[counts])
        return out

    def _multiply(self, histograms: Histograms) -> IntArray:
        """Evaluate the query: group levels of partition factors, then multiply axis by axis.

        values[u, p] belongs to row p of the multiplied axes. u numbers the occurring combinations
        of a geounit and levels of the other axes. Levels with equal columns count as one, and the
        factors that shrink their axis most come first, so that `values` stays about as small as the
        answers.
        """
        self._refuse_overflow(histograms)
        general = [f.kind is FactorKind.GENERAL for f in self.factors]
        grouped = [axis for axis, is_general in enumerate(general) if not is_general]
        multiplied = sorted(
            (axis for axis, is_general in enumerate(general) if is_general),
            key=lambda axis: self.shape[axis] / self.factors[axis].distinct[0].shape[1],
        )
        key = histograms.owners()
        levels = self._levels(histograms.cells)
        for axis in grouped:
            key = key * self.shape[axis] + self.factors[axis].codes[levels[axis]]
        for axis in reversed(multiplied):  # the axis multiplied first is the last digit of the key
            matrix, of_level = self.factors[axis].distinct
            key = key * matrix.shape[1] + of_level[levels[axis]]
        key, position = np.unique(key, return_inverse=True)
        values = sums_at(position, histograms.counts, len(key))[:, None]
        for axis in multiplied:
            matrix, _ = self.factors[axis].distinct
            rows, columns = matrix.shape
            key, level = key // columns, key % columns
            key, position = np.unique(key, return_inverse=True)
            table = np.zeros((len(key), values.shape[1], columns), np.int64)
            table[position, :, level] = values
            product = table.reshape(-1, columns) @ matrix.T
            values = product.reshape(len(key), values.shape[1] * rows)
        order = [*grouped, *multiplied]
        kept = math.prod(self.shape[axis] for axis in grouped)
        out = np.zeros((histograms.n_geounits * kept, self.size // kept), np.int64)
        out[key] = values
        out = out.reshape(histograms.n_geounits, *(self.shape[axis] for axis in order))
        out = out.transpose(0, *(1 + np.argsort(order)))
        return out.reshape(histograms.n_geounits, self.size)

    def _refuse_overflow(self, histograms: Histograms) -> None:
        coefficient = math.prod(max(1, f.largest) for f in self.factors)
        largest = coefficient * int(histograms.totals().max(initial=0))
        combinations = math.prod(
            f.distinct[0].shape[1] if f.kind is FactorKind.GENERAL else len(f.labels)
            for f in self.factors
        )
        if max(largest, combinations * histograms.n_geounits) >= 2**63:
            raise SchemaError(
                f"query {self.name}",
                "needs numbers of more than 63 bits",
                got=f"coefficients up to {coefficient}, {combinations} combinations of levels",
            )

    def gram(self, cells: IntArray) -> FloatArray:
        """Return the rows and columns of Q'Q for k given cells, float64[k, k]."""
        out = np.ones((len(cells), len(cells)))
        for factor, level in zip(self.factors, self._levels(cells), strict=True):
            out *= factor.gram[np.ix_(level, level)]
        return out

    def gram_diagonal(self, cells: IntArray) -> FloatArray:
        """Return the diagonal of Q'Q at k given cells, float64[k], without forming the matrix."""
        out = np.ones(len(cells))
        for factor, level in zip(self.factors, self._levels(cells), strict=True):
            out *= factor.gram.diagonal()[level]
        return out

    def gram_times(self, cells: IntArray, x: FloatArray) -> FloatArray:
        """Return Q'Q x at k given cells for G vectors x, float64[G, k], without forming Q'Q.

        Args:
          cells: int64[k], flat indexes of cells.
          x: float64[G, k], values of these cells; x is 0 in all others.
        """
        out = np.empty_like(x)
        axes, cells = self._few(cells)
        sizes = [axis.shape[1] for axis in axes]
        at_once = max(1, _NUMBERS // max(math.prod(sizes), self.size))
        for low in range(0, len(x), at_once):
            some = x[low : low + at_once]
            flat = np.zeros((len(some), math.prod(sizes)))
            if self.n_cells <= _NUMBERS:
                flat[:, cells] = some
            else:  # cells with equal columns share an entry
                for row, values in zip(flat, some, strict=True):
                    np.add.at(row, cells, values)
            tensor = flat.reshape(len(some), *sizes)
            # The factor that shrinks its axis most comes first, so that little is left to multiply.
            for axis in sorted(range(len(sizes)), key=lambda i: self.shape[i] / sizes[i]):
                rows = axes[axis].T.astype(np.float64)
                tensor = np.moveaxis(np.moveaxis(tensor, axis + 1, -1) @ rows, -1, axis + 1)
            answers = tensor.reshape(len(some), self.size)
            out[low : low + at_once] = self._adjoint(answers, axes, cells)
        return out

    def _few(self, cells: IntArray) -> tuple[list[IntArray], IntArray]:
        """Return the factors as matrices, and the column, from 0, of given cells in their product.

        Above 4,000,000 cells the matrices have distinct columns only, so that memory is
        proportional to the query and not to the schema.

        Raises:
          SchemaError: There are more than 20,000,000 combinations of distinct columns.
        """
        if self.n_cells <= _NUMBERS:
            return [factor.matrix for factor in self.factors], cells
        distinct = [factor.distinct for factor in self.factors]
        columns = math.prod(matrix.shape[1] for matrix, _ in distinct)
        if columns > _MOST_COLUMNS:
            raise SchemaError(
                f"query {self.name}",
                "has too many distinct columns to be applied",
                got=columns,
                want=f"at most {_MOST_COLUMNS}",
            )
        numbers = np.zeros(len(cells), np.int64)
        for (matrix, of_level), level in zip(distinct, self._levels(cells), strict=True):
            numbers = numbers * matrix.shape[1] + of_level[level]
        return [matrix for matrix, _ in distinct], numbers

    def adjoint(
        self, answers: npt.NDArray[np.integer | np.floating], cells: IntArray
    ) -> FloatArray:
        """Return Q'y at k given cells for G geounits, float64[G, k], attribute by attribute.

        Args:
          answers: number[G, m], one row y per geounit.
          cells: int64[k], flat indexes of the cells for which Q'y is returned.
        """
        return self._adjoint(answers, *self._few(cells))

    def _adjoint(
        self,
        answers: npt.NDArray[np.integer | np.floating],
        axes: Sequence[IntArray],
        cells: IntArray,
    ) -> FloatArray:
        tensor = answers.astype(np.float64).reshape(len(answers), *self.shape)
        sizes = [axis.shape[1] for axis in axes]
        # The factor that widens its axis most comes last, so that little is multiplied before.
        for axis in sorted(range(len(sizes)), key=lambda i: sizes[i] / self.shape[i]):
            moved = np.moveaxis(tensor, axis + 1, -1) @ axes[axis].astype(np.float64)
            tensor = np.moveaxis(moved, -1, axis + 1)
        return np.ascontiguousarray(tensor.reshape(len(answers), math.prod(sizes))[:, cells])

    def labels(self) -> list[str]:
        """Return the labels of the m rows, such as "hispanic / white alone"."""
        parts = [self.factors[i].labels for i in self.kept]
        out = [""]
        for labels in parts:
            out = [f"{left} / {right}" if left else right for left in out for right in labels]
        return out if parts else ["total"]


def is_refinement(fine: Query, coarse: Query) -> bool:
    """Return whether every answer of `coarse` is a sum of answers of `fine`.

    Args:
      fine: A query; False if it is not a partition.
      coarse: A query; False if it is not a partition.
    """
    if not (fine.is_partition and coarse.is_partition):
        return False
    for f, c in zip(fine.factors, coarse.factors, strict=True):
        coarse_row = np.zeros(len(f.labels), np.int64)  # of one level of each fine row
        coarse_row[f.codes] = c.codes
        if not np.array_equal(coarse_row[f.codes], c.codes):
            return False
    return True


def of_answers(coarse: Query, fine: Query) -> Query:
    """Express a coarse partition query as a query on the answers of a finer one.

    >>> from das.schema import Attribute
    >>> schema = Schema("toy", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
    >>> both, sex = parse_query(schema, "detailed"), parse_query(schema, "sex")
    >>> of_answers(sex, both).cells_of(np.array([1])).tolist()
    [3, 4, 5]
    """
    factors = []
    for f, c in zip(fine.factors, coarse.factors, strict=True):
        factors.append(partition(c.labels, tuple(c.codes[f.first_levels].tolist())))
    return Query(f"{coarse.name} of {fine.name}", tuple(factors))


def common_refinement(first: Query, second: Query) -> Query:
    """Return the coarsest partition query that refines both, with an answer per occurring pair.

    Recodes of one attribute are intersected level by level, so that every answer counts a cell.

    Raises:
      SchemaError: `first` or `second` is not a partition query.

    >>> from das.schema import Attribute, Recode
    >>> age = Attribute("age", ("0-4", "5-17", "18+"))
    >>> recodes = (Recode("adult", "age", ("no", "yes"), (0, 0, 1)),)
    >>> recodes += (Recode("school", "age", ("before", "from 5"), (0, 1, 1)),)
    >>> schema = Schema("toy", (Attribute("sex", ("f", "m")), age), recodes)
    >>> both = common_refinement(parse_query(schema, "adult"), parse_query(schema, "school"))
    >>> both.labels()
    ['no & before', 'no & from 5', 'yes & from 5']
    """
    for query in (first, second):
        if not query.is_partition:
            raise SchemaError(f"query {query.name}", "is not a partition of the cells")
    pairs = zip(first.factors, second.factors, strict=True)
    return Query(f"{first.name} & {second.name}", tuple(_meet(f, s) for f, s in pairs))


def _meet(first: Factor, second: Factor) -> Factor:
    if second.kind is FactorKind.TOTAL or first.kind is FactorKind.IDENTITY:
        return first
    if first.kind is FactorKind.TOTAL or second.kind is FactorKind.IDENTITY:
        return second
    width = len(second.labels)
    pairs, codes = np.unique(first.codes * width + second.codes, return_inverse=True)
    labels = [f"{first.labels[i // width]} & {second.labels[i % width]}" for i in pairs.tolist()]
    return partition(tuple(labels), tuple(codes.reshape(-1).tolist()))


def is_answered_by(partition: Query, query: Query) -> bool:
    """Return whether the answers of a partition query determine the answers of another query.

    This holds if, for every attribute, the levels of one group have equal columns. No factor is
    zero, so products of columns are equal only if all columns are.

    Args:
      partition: The partition query.
      query: The other query, which need not be a partition.
    """
    for groups, factor in zip(partition.factors, query.factors, strict=True):
        columns = factor.distinct[1]
        if (columns != columns[groups.first_levels[groups.codes]]).any():
            return False
    return True


def restricted(query: Query, group: Group) -> Query:
    """Return the query restricted to the records of a group.

    Columns of cells outside the group are zero, so a record there changes no answer. Answers that
    count only such cells are dropped. A partition of all cells becomes a partition of the group's
    cells. Its squared L2 sensitivity is 1 for an added record, 2 for a record that changes within
    the group, and 1 for a record that leaves or enters the group.

    Args:
      query: Any query over the schema.
      group: A group of the schema's cells, not all of them.

    Raises:
      SchemaError: The query counts no cell of the group, or is restricted already.

    >>> from das.schema import Attribute
    >>> schema = Schema("toy", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
    >>> age_of_men = restricted(parse_query(schema, "age"), parse_group(schema, "sex=m"))
    >>> age_of_men.name, age_of_men.columns(np.arange(6)).tolist()
    ('age where sex=m', [[0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1]])
    """
    if " where " in query.name:
        raise SchemaError(f"query {query.name}", "is restricted to a group already", got=group.name)
    factors = []
    for factor, allowed, label in zip(query.factors, group.allowed, group.labels, strict=True):
        if allowed.all():
            factors.append(factor)
            continue
        inside = np.where(allowed, factor.matrix, 0)
        kept: list[bool] = (inside != 0).any(axis=1).tolist()
        if not any(kept):
            raise SchemaError(f"query {query.name}", "counts no cell of the group", got=group.name)
        is_summed = factor.kind is FactorKind.TOTAL
        names = (label,) if is_summed else tuple(itertools.compress(factor.labels, kept))
        factors.append(Factor(inside[kept], names))
    return Query(f"{query.name} where {group.name}", tuple(factors))


def groups_of(schema: Schema, query: Query) -> tuple[Group, ...]:
    """Return the groups of cells that the answers of a partition query count, in their order.

    Raises:
      SchemaError: The query is not a partition: its answers overlap, or leave cells out.

    >>> from das.schema import Attribute
    >>> schema = Schema("toy", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
    >>> [group.name for group in groups_of(schema, parse_query(schema, "sex"))]
    ['sex=f', 'sex=m']
    """
    if not query.is_partition:
        raise SchemaError(
            f"query {query.name}",
            "makes no groups: some cells count in several answers, or in none",
            remedy="use attributes and recodes",
        )
    axes = _split_terms(schema, query.name)
    rows = itertools.product(*(_axis(schema, axis)[1].labels for axis in axes))
    return tuple(_group(schema, list(zip(axes, labels, strict=True))) for labels in rows)


def parse_group(schema: Schema, text: str) -> Group:
    """Parse a group from conditions "axis=label" joined by " and "; labels may have any text.

    Raises:
      SchemaError: An attribute, recode or label is unknown, or an attribute is used twice.

    >>> from das.schema import Attribute
    >>> schema = Schema("toy", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
    >>> parse_group(schema, "age=2 and sex=m").name
    'sex=m and age=2'
    """
    axes = [*(a.name for a in schema.attributes), *(r.name for r in schema.recodes)]
    known = {
        f"{axis}={label}": (axis, label) for axis in axes for label in _axis(schema, axis)[1].labels
    }
    rest, conditions = text.strip(), []
    while True:
        fits = [text for text in known if rest == text or rest.startswith(f"{text} and ")]
        if not fits:
            raise SchemaError(
                f"schema {schema.name}",
                "has no such group",
                got=rest,
                want="name=label, or several joined by and: an attribute or recode, and one of its "
                "levels or groups",
            )
        longest = max(fits, key=len)
        conditions.append(known[longest])
        if rest == longest:
            return _group(schema, conditions)
        rest = rest.removeprefix(f"{longest} and ").strip()


def _group(schema: Schema, conditions: Sequence[tuple[str, str]]) -> Group:
    allowed = [np.ones(size, np.bool_) for size in schema.shape]
    labels = [""] * len(schema.shape)
    position = {a.name: index for index, a in enumerate(schema.attributes)}
    ordered = []
    for axis, label in conditions:
        owner, groups = _axis(schema, axis)
        index = position[owner]
        if labels[index]:
            raise SchemaError(f"group {axis}={label}", "uses an attribute twice", got=owner)
        allowed[index] = groups.codes == groups.labels.index(label)
        labels[index] = label
        ordered.append((index, axis, label))
    ordered.sort()
    name = " and ".join(f"{axis}={label}" for _, axis, label in ordered)
    return Group(name, tuple(allowed), tuple(labels), tuple(axis for _, axis, _ in ordered))


def kronecker(schema: Schema, name: str, terms: Sequence[tuple[str, Factor]]) -> Query:
    """Build the query that applies a factor to some attributes and sums out the others.

    Args:
      schema: The schema.
      name: The query's name; it must be unique, because it selects the stream of the noise.
      terms: An attribute or recode and any factor over its levels or groups, in any order.

    Raises:
      SchemaError: A name is unknown, two terms use the same attribute, or a factor does not fit.

    >>> from das.schema import Attribute
    >>> schema = Schema("toy", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
    >>> terms = [("age", Factor(np.array([[0, 1, 2]]), ("years",))), ("sex", identity(("f", "m")))]
    >>> kronecker(schema, "years lived by sex", terms).labels()
    ['f / years', 'm / years']
    """
    chosen: dict[str, Factor] = {}
    for axis, factor in terms:
        owner, groups = _axis(schema, axis)
        if owner in chosen:
            raise SchemaError(f"query {name}", "uses an attribute twice", got=owner)
        if factor.matrix.shape[1] != len(groups.labels):
            raise SchemaError(
                f"query {name}",
                f"has a factor that does not fit {axis}",
                got=f"{factor.matrix.shape[1]} columns",
                want=f"{len(groups.labels)} columns",
            )
        chosen[owner] = factor.of_groups(groups)
    factors = (chosen.get(a.name) or total(a.levels) for a in schema.attributes)
    return Query(name, tuple(factors))


def _axis(schema: Schema, name: str) -> tuple[str, Factor]:
    """Return the attribute of an attribute or recode, and the factor of its levels or groups."""
    for recode in schema.recodes:
        if recode.name == name:
            return recode.attribute, partition(recode.groups, recode.codes)
    attribute = schema.attribute(name)
    return attribute.name, identity(attribute.levels)


def marginal(schema: Schema, axes: Sequence[str]) -> Query:
    """Build the marginal over attributes or recodes (the matrix M_B of the residual algebra).

    Args:
      schema: The schema.
      axes: Names of attributes or recodes, at most one per attribute, in any order; empty for
        the total.

    Returns:
      A partition query whose factors are identities, recode partitions, or rows of ones.

    Raises:
      SchemaError: A name is unknown or two axes use the same attribute.
    """
    return parse_query(schema, " * ".join(axes) or "total")


def terms_of(schema: Schema, query: Query) -> list[str]:
    """Return for each kept attribute the term that names its labels in `Query.labels`.

    A term is an attribute or recode, or a function of one. For groups of levels it is the attribute
    or recode; for an attribute that only the condition names, the name in the condition.

    >>> from das.schema import Attribute, Recode
    >>> age = Attribute("age", ("0-4", "5-17", "18+"))
    >>> adult = Recode("adult", "age", ("no", "yes"), (0, 0, 1))
    >>> schema = Schema("toy", (Attribute("sex", ("f", "m")), age), (adult,))
    >>> terms_of(schema, parse_query(schema, "prefix(age) where sex=m"))
    ['sex', 'prefix(age)']
    >>> [terms_of(schema, parse_query(schema, name)) for name in ("adult", "total")]
    [['adult'], []]
    """
    whole, _, condition = query.name.partition(" where ")
    axes = parse_group(schema, condition).axes if condition else ()
    terms = {_axis(schema, axis)[0]: axis for axis in axes}
    for text in _split_terms(schema, whole):
        term = _read_term(schema, text)
        terms[_axis(schema, term.axis)[0]] = term.axis if term.is_group else text
    return [terms[schema.attributes[index].name] for index in query.kept]


def parse_query(schema: Schema, text: str) -> Query:
    """Parse a query: "total", "detailed", or terms joined by "*", optionally with a condition.

    A term is an attribute or recode, or a function of one: "prefix(age)", "ranges(age)",
    "residual(age)", "contrasts(age)" (see `das.queries.factor`), or groups of its levels,
    "age[0-17, 65+]" (`das.queries.grouped`). Attributes without a term are summed out.
    "age where sex=f" counts only records of a group (`das.queries.group`), as does
    "age where sex=f and race=white". The name of the result has its terms in the order of the
    schema and parses to the same query.

    Raises:
      SchemaError: A name, label or function is unknown, an attribute is used twice, or a residual
        has only one level.

    >>> from das.schema import Attribute
    >>> schema = Schema("toy", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
    >>> parse_query(schema, "age * sex").name, parse_query(schema, "age").size
    ('detailed', 3)
    >>> parse_query(schema, "prefix( age )*sex").name
    'sex * prefix(age)'
    >>> parse_query(schema, "age where sex=m").labels()
    ['m / 0', 'm / 1', 'm / 2']
    >>> parse_query(schema, "sex * age[1+]").labels()
    ['f / 1+', 'm / 1+']
    """
    whole, of_some, condition = text.partition(" where ")
    if of_some:
        return restricted(parse_query(schema, whole), parse_group(schema, condition))
    terms = [_read_term(schema, term) for term in _split_terms(schema, whole)]
    position = {a.name: index for index, a in enumerate(schema.attributes)}
    terms.sort(key=lambda term: position[_axis(schema, term.axis)[0]])
    name = " * ".join(term.name for term in terms) or "total"
    if [term.name for term in terms] == list(position):
        name = "detailed"
    return kronecker(schema, name, [(term.axis, term.factor) for term in terms])


def _split_terms(schema: Schema, text: str) -> list[str]:
    """Split a query text without a condition into terms: none for "total"."""
    match text.strip():
        case "total":
            return []
        case "detailed":
            return [a.name for a in schema.attributes]
        case terms:
            return [term.strip() for term in terms.split("*")]


class _Term(NamedTuple):
    """A term of a query: its attribute or recode, its canonical text and its factor."""

    axis: str
    name: str
    factor: Factor
    is_group: bool = False


def _read_term(schema: Schema, text: str) -> _Term:
    """Read "axis", "function(axis)" or "axis[groups]"."""
    names = [*(a.name for a in schema.attributes), *(r.name for r in schema.recodes)]
    if text in names:
        return _Term(text, text, identity(_axis(schema, text)[1].labels))
    groups = re.fullmatch(r"(.*?)\s*\[(.*)\]", text)
    if groups and groups[1] in names:
        inside = ", ".join(part.strip() for part in groups[2].split(","))
        factor = grouped(_axis(schema, groups[1])[1].labels, inside)
        return _Term(groups[1], f"{groups[1]}[{inside}]", factor, is_group=True)
    call = re.fullmatch(r"(.*?)\((.*)\)", text)
    function, axis = (call[1].strip(), call[2].strip()) if call else ("", text)
    if axis not in names:
        joined = r"(?:,|;|&| \+ | x | by |\u00d7)(?![^\[\]]*\])"
        parts = [part.strip() for part in re.split(joined, text)]
        bare = [re.sub(r"[(\[].*", "", part).strip() for part in parts]
        known = len(parts) > 1 and all(part in names for part in bare)
        raise SchemaError(
            f"schema {schema.name}",
            "has no such attribute or recode",
            got=axis,
            want=f"total, detailed, or some of {names} joined by *",
            remedy=f"write {' * '.join(parts)}" if known else None,
        )
    if function not in FUNCTIONS:
        raise SchemaError(
            f"query {text}",
            "applies an unknown function",
            got=function,
            want=f"one of {list(FUNCTIONS)}",
        )
    factor = FUNCTIONS[function](_axis(schema, axis)[1].labels)
    return _Term(axis, f"{function}({axis})", factor)


def split_queries(text: str) -> list[str]:
    """Split a comma-separated list of query texts.

    >>> split_queries("total, sex * age[0-17, 65+]")
    ['total', 'sex * age[0-17, 65+]']
    """
    return [part.strip() for part in re.split(r",(?![^\[\]]*\])", text)]


def names_groups(schema: Schema, query: Query) -> bool:
    """Return whether a parsed query has groups of levels that are not recodes of the schema."""
    whole = query.name.partition(" where ")[0]
    return any(_read_term(schema, term).is_group for term in _split_terms(schema, whole))
