"""Smaller components for predicted errors, from the symmetry of levels under all queries.

The matrices of `das.tree.components` grow with the combinations of atoms. Crossed or nested recodes
on two attributes of many levels make a thousand of them. Most atoms are interchangeable. For
example, ages 25 to 29 and 30 to 34 are groups of five in one recode, and together in every coarser
one: swapping them changes no Gram matrix. By Schur's lemma a matrix invariant under such swaps acts
on

    kinds: the span of the indicators of the kinds, as a matrix; a kind is a class of
           interchangeable atoms,
    between: differences between the n atoms of a kind, of dimension n - 1, as one number per kind,
    within: differences between the levels of atoms, as one number, as in `das.tree.components`.

A component takes one of these parts for every attribute. An attribute with a single kind is plain.
Most queries are zero on its differences, such as those between races; there the kinds of the other
attributes follow from the remaining queries, and are fewer. Covariances of least squares have the
same symmetry, so the error of a table needs only the trace of its Gram matrix on each part. There
are more components, but the largest had 189 rows instead of 1,075.

References:
  Serre, Linear Representations of Finite Groups, Springer 1977, section 2.2 (Schur's lemma).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from das.arrays import FloatArray, IntArray, kron
from das.queries.factor import Factor
from das.queries.query import Query
from das.tree.components import atoms_of, indicators, merges_atoms, refuse_many_groups


@dataclass(frozen=True, eq=False)
class _Axis:
    """Parts of one attribute.

    Attributes:
      atoms: int64[n], the atom of each level.
      kinds: int64[k], the kind of each atom.
    """

    atoms: IntArray
    kinds: IntArray

    @cached_property
    def sizes(self) -> IntArray:
        """Return the number of levels of each atom, int64[k]."""
        return np.bincount(self.atoms)

    @cached_property
    def several(self) -> list[int]:
        """Return the kinds that more than one atom has."""
        return np.flatnonzero(np.bincount(self.kinds) > 1).tolist()

    @property
    def n_kinds(self) -> int:
        return int(self.kinds.max()) + 1

    @property
    def dimensions(self) -> list[int]:
        """Return the dimensions of the parts between atoms, per kind, and within atoms."""
        numbers = np.bincount(self.kinds)
        between = [int(numbers[kind]) - 1 for kind in self.several]
        inside = len(self.atoms) - len(self.kinds)
        return [*between, inside] if inside else between

    def parts(self, factor: Factor) -> tuple[FloatArray, list[float]]:
        """Split F^T F: the matrix on the kinds, float64[k, k], and the trace on other parts."""
        summed = factor.matrix @ indicators(self.atoms)
        gram = summed.T @ summed  # integers: differences without effect are exactly 0
        of_kind = indicators(self.kinds)
        numbers, sizes = of_kind.sum(0), self.sizes[np.unique(self.kinds, return_index=True)[1]]
        whole = of_kind.T @ gram @ of_kind
        roots = np.sqrt((numbers * sizes).astype(np.float64))
        diagonal = of_kind.T @ np.diag(gram)
        traces = [
            float(numbers[kind] * diagonal[kind] - whole[kind, kind])
            / float(numbers[kind] * sizes[kind])
            for kind in self.several
        ]
        if len(self.atoms) > len(self.kinds):
            every = float((factor.matrix.astype(np.float64) ** 2).sum())
            on_atoms = float((np.diag(gram) / self.sizes).sum())
            traces.append(0.0 if merges_atoms(factor, self.atoms) else every - on_atoms)
        return whole / np.outer(roots, roots), traces


@dataclass(frozen=True, eq=False)
class _Piece:
    """Components with the same parts of the plain attributes (attributes of one kind).

    Attributes:
      axes: Parts of every attribute; of the others, for the queries that are not zero here.
      parts: Per component and attribute, the index of its part: 0 for the kinds, then as in
        `_Axis.dimensions`.
    """

    axes: tuple[_Axis, ...]
    parts: tuple[tuple[int, ...], ...]

    @property
    def largest(self) -> int:
        """Return the number of rows of the largest matrix."""
        return math.prod(axis.n_kinds for axis in self.axes)

    def sizes(self) -> list[int]:
        return [
            math.prod(
                axis.n_kinds for axis, part in zip(self.axes, component, strict=True) if not part
            )
            for component in self.parts
        ]

    def matrices(self, query: Query, *, means: bool) -> list[FloatArray]:
        """Return Q^T Q on every component, as matrices on the kinds.

        Args:
          query: The query Q.
          means: Whether parts other than the kinds are averaged, trace / dimension; otherwise they
            enter by their trace.
        """
        by_axis: list[list[FloatArray]] = []
        for axis, factor in zip(self.axes, query.factors, strict=True):
            of_kinds, traces = axis.parts(factor)
            if means:
                traces = [trace / n for trace, n in zip(traces, axis.dimensions, strict=True)]
            by_axis.append([of_kinds, *(np.array([[trace]]) for trace in traces)])
        return [
            kron(blocks[part] for blocks, part in zip(by_axis, component, strict=True))
            for component in self.parts
        ]


@dataclass(frozen=True, eq=False)
class SymmetricComponents:
    """Components of predicted errors for a set of measured or exact queries.

    Attributes:
      pieces: The components, grouped by their parts of the plain attributes.
    """

    pieces: tuple[_Piece, ...]

    @classmethod
    def of_queries(cls, queries: Sequence[Query]) -> SymmetricComponents:
        """Find the components that all these queries respect.

        Args:
          queries: Queries over one schema, at least one.

        Raises:
          SchemaError: There are more combinations of kinds than
            `das.tree.components.MOST_GROUPS`.

        >>> from das.queries.query import parse_query
        >>> from das.schema import Attribute, Recode, Schema
        >>> age = Attribute("age", tuple("012345"))
        >>> of_two = Recode("of_two", "age", ("young", "middle", "old"), (0, 0, 1, 1, 2, 2))
        >>> schema = Schema("s", (age,), (of_two,))
        >>> queries = [parse_query(schema, text) for text in ("total", "of_two", "detailed")]
        >>> SymmetricComponents.of_queries(queries).sizes  # total, pairs, within pairs
        (1, 1, 1)
        """
        axes = [_axis(factors) for factors in zip(*(q.factors for q in queries), strict=True)]
        plain = [index for index, axis in enumerate(axes) if axis.n_kinds == 1]
        pieces = []
        for chosen in itertools.product(*(range(1 + len(axes[i].dimensions)) for i in plain)):
            fixed = dict(zip(plain, chosen, strict=True))
            live = [
                q
                for q in queries
                if all(_is_nonzero(axes[i], q.factors[i], p) for i, p in fixed.items())
            ]
            split = [
                axis if index in fixed else _axis([q.factors[index] for q in live or queries])
                for index, axis in enumerate(axes)
            ]
            parts = itertools.product(
                *(
                    [fixed[index]] if index in fixed else range(1 + len(axis.dimensions))
                    for index, axis in enumerate(split)
                )
            )
            pieces.append(_Piece(tuple(split), tuple(parts)))
        refuse_many_groups(max(piece.largest for piece in pieces))
        return cls(tuple(pieces))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of rows of the matrix of every component."""
        return tuple(size for piece in self.pieces for size in piece.sizes())

    def grams(self, query: Query) -> list[FloatArray]:
        """Return the Gram matrix of a fitting query on every component, float64[D, D]."""
        return [part for piece in self.pieces for part in piece.matrices(query, means=True)]

    def trace_forms(self, query: Query) -> list[FloatArray]:
        """Return the form T of a query's summed variance, float64[D, D] per component.

        T is Q^T Q with all parts but the kinds traced out. The summed variance of all answers is
        the sum of <T, S> over components, where S is the covariance on the component.
        """
        return [part for piece in self.pieces for part in piece.matrices(query, means=False)]


def _axis(factors: Sequence[Factor]) -> _Axis:
    atoms = atoms_of(factors)
    return _Axis(atoms, _kinds(list(dict.fromkeys(factors)), atoms))


def _is_nonzero(axis: _Axis, factor: Factor, part: int) -> bool:
    """Test whether a factor is nonzero on part `part` of a plain attribute: 0 for the kind."""
    of_kinds, traces = axis.parts(factor)
    return bool(traces[part - 1] if part else of_kinds[0, 0])


def _kinds(factors: Sequence[Factor], atoms: IntArray) -> IntArray:
    """Return the kind of each atom; atoms of one kind can be swapped in all Gram matrices.

    Interchangeability is transitive, so comparing with the first atom of a kind suffices.
    """
    columns = indicators(atoms)
    sizes, count = columns.sum(0), columns.shape[1]
    summed = [factor.matrix @ columns for factor in factors]
    grams = [np.diag(sizes), *(matrix.T @ matrix for matrix in summed)]
    kinds = np.arange(count)
    for first in range(count):
        if kinds[first] != first:
            continue
        for other in range(first + 1, count):
            if kinds[other] == other and all(_swaps(gram, first, other) for gram in grams):
                kinds[other] = first
    return np.asarray(np.unique(kinds, return_inverse=True)[1].reshape(-1), np.int64)


def _swaps(gram: IntArray, first: int, other: int) -> bool:
    """Test whether swapping two rows and columns leaves a symmetric matrix unchanged."""
    if gram[first, first] != gram[other, other]:
        return False
    differ = gram[first] != gram[other]
    differ[[first, other]] = False
    return not differ.any()
