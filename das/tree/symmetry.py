"""Components of errors in which levels that all queries treat alike are one.

The matrices of `das.tree.components` grow with the combinations of atoms, and recodes that cross or
nest on two attributes of many levels make a thousand of them. Most atoms are alike: ages 25 to 29
and 30 to 34, each a group of five in one recode and together in every coarser one, can be swapped
and no Gram matrix changes. By Schur's lemma a matrix that all such swaps leave as it is acts on

    kinds: the span of the indicators of the kinds, where a kind is all atoms that are alike, as a
           matrix,
    between: what tells the n atoms of a kind apart, of dimension n - 1, as one number a kind,
    within: what tells the levels of atoms apart, as one number, as in `das.tree.components`.

A component takes one of these for every attribute. Where it takes one of an attribute of a single
kind on which most queries are zero, such as the differences between races, the kinds of the others
are those of the rest alone, which are fewer. Covariances of least squares are such matrices
too, since Gram matrices alone make them, so the error of any table needs but the trace of its Gram
matrix on each part. There are more components, and the largest of 1,075 rows has 189.

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
    """The parts of one attribute.

    Attributes:
      atoms: int64[n], the atom of each level.
      kinds: int64[k], the kind of each atom.
    """

    atoms: IntArray
    kinds: IntArray

    @cached_property
    def sizes(self) -> IntArray:
        """int64[k]: levels of each atom."""
        return np.bincount(self.atoms)

    @cached_property
    def several(self) -> list[int]:
        """Kinds of more than one atom."""
        return np.flatnonzero(np.bincount(self.kinds) > 1).tolist()

    @property
    def n_kinds(self) -> int:
        return int(self.kinds.max()) + 1

    @property
    def dimensions(self) -> list[int]:
        """Of every part but the kinds: between the atoms of each kind, then within atoms."""
        numbers = np.bincount(self.kinds)
        found = [int(numbers[kind]) - 1 for kind in self.several]
        inside = len(self.atoms) - len(self.kinds)
        return [*found, inside] if inside else found

    def parts(self, factor: Factor) -> tuple[FloatArray, list[float]]:
        """F^T F on the kinds, float64[k, k], and its trace on every other part."""
        summed = factor.matrix @ indicators(self.atoms)
        gram = summed.T @ summed  # integers: what a factor does not tell apart is 0 exactly
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
            seen = float((np.diag(gram) / self.sizes).sum())
            traces.append(0.0 if merges_atoms(factor, self.atoms) else every - seen)
        return whole / np.outer(roots, roots), traces


@dataclass(frozen=True, eq=False)
class _Piece:
    """Components that have the parts of the plain attributes, those of one kind, in common.

    Attributes:
      axes: The parts of every attribute; of those that are not plain for the queries alone that are
        not zero here.
      parts: Per component, for every attribute its part: 0 for the kinds, then those of
        `_Axis.dimensions`.
    """

    axes: tuple[_Axis, ...]
    parts: tuple[tuple[int, ...], ...]

    @property
    def largest(self) -> int:
        """Rows of its largest matrix."""
        return math.prod(axis.n_kinds for axis in self.axes)

    def sizes(self) -> list[int]:
        return [
            math.prod(
                axis.n_kinds for axis, part in zip(self.axes, component, strict=True) if not part
            )
            for component in self.parts
        ]

    def matrices(self, query: Query, *, means: bool) -> list[FloatArray]:
        """Q^T Q on every component; what is no kind is traced out, or its mean is taken."""
        found: list[list[FloatArray]] = []
        for axis, factor in zip(self.axes, query.factors, strict=True):
            of_kinds, traces = axis.parts(factor)
            if means:
                traces = [trace / n for trace, n in zip(traces, axis.dimensions, strict=True)]
            found.append([of_kinds, *(np.array([[trace]]) for trace in traces)])
        return [
            kron(own[part] for own, part in zip(found, component, strict=True))
            for component in self.parts
        ]


@dataclass(frozen=True, eq=False)
class SymmetricComponents:
    """The components of errors for a set of measured or exact queries.

    Attributes:
      pieces: The components, by what they have in common.
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
        >>> asked = [parse_query(schema, text) for text in ("total", "of_two", "detailed")]
        >>> SymmetricComponents.of_queries(asked).sizes  # total, pairs, within pairs
        (1, 1, 1)
        """
        axes = [_axis(factors) for factors in zip(*(q.factors for q in queries), strict=True)]
        plain = [index for index, axis in enumerate(axes) if axis.n_kinds == 1]
        pieces = []
        for chosen in itertools.product(*(range(1 + len(axes[i].dimensions)) for i in plain)):
            fixed = dict(zip(plain, chosen, strict=True))
            live = [
                q for q in queries if all(_sees(axes[i], q.factors[i], p) for i, p in fixed.items())
            ]
            own = [
                axis if index in fixed else _axis([q.factors[index] for q in live or queries])
                for index, axis in enumerate(axes)
            ]
            parts = itertools.product(
                *(
                    [fixed[index]] if index in fixed else range(1 + len(axis.dimensions))
                    for index, axis in enumerate(own)
                )
            )
            pieces.append(_Piece(tuple(own), tuple(parts)))
        refuse_many_groups(max(piece.largest for piece in pieces))
        return cls(tuple(pieces))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Rows of the matrix of every component."""
        return tuple(size for piece in self.pieces for size in piece.sizes())

    def grams(self, query: Query) -> list[FloatArray]:
        """Return Q^T Q on every component, float64[D, D], for one of the queries given."""
        return [one for piece in self.pieces for one in piece.matrices(query, means=True)]

    def trace_forms(self, query: Query) -> list[FloatArray]:
        """Return T, float64[D, D] per component, for any query.

        The sum of the variances of all its answers is sum of <T, S> over components, where S is
        the covariance on the component: T is Q^T Q with all but the kinds traced out.
        """
        return [one for piece in self.pieces for one in piece.matrices(query, means=False)]


def _axis(factors: Sequence[Factor]) -> _Axis:
    atoms = atoms_of(factors)
    return _Axis(atoms, _kinds(list(dict.fromkeys(factors)), atoms))


def _sees(axis: _Axis, factor: Factor, part: int) -> bool:
    """Whether a factor is not zero on a part of a plain attribute."""
    of_kinds, traces = axis.parts(factor)
    return bool(traces[part - 1] if part else of_kinds[0, 0])


def _kinds(factors: Sequence[Factor], atoms: IntArray) -> IntArray:
    """The kind of each atom: two are of one if swapping them changes no Gram matrix.

    Swaps of a with b and of b with c make that of a with c, so kinds are classes.
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
    """Whether a symmetric matrix stays as it is if two rows, and the columns, are swapped."""
    if gram[first, first] != gram[other, other]:
        return False
    differ = gram[first] != gram[other]
    differ[[first, other]] = False
    return not differ.any()
