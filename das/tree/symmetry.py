"""Components of errors in which levels that all queries treat alike are one.

The matrices of `das.tree.components` grow with the combinations of atoms, and recodes that cross or
nest on two attributes of many levels make a thousand of them. Most atoms are alike: ages 25 to 29
and 30 to 34, each a group of five in one recode and together in every coarser one, can be swapped
and no Gram matrix changes. By Schur's lemma a matrix that all such swaps leave as it is acts on

    kinds: the span of the indicators of the kinds, where a kind is all atoms that are alike, as a
           matrix,
    between: what tells the n atoms of a kind apart, of dimension n - 1, as one number a kind,
    within: what tells the levels of atoms apart, as one number, as in `das.tree.components`.

A component takes one of these for every attribute. Covariances of least squares are such matrices
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
from functools import cached_property, reduce

import numpy as np

from das.arrays import FloatArray, IntArray
from das.queries.factor import Factor
from das.queries.query import Query
from das.tree.components import atoms_of, merges_atoms, refuse_many_groups


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
        summed = factor.matrix @ _indicators(self.atoms)
        gram = summed.T @ summed  # integers: what a factor does not tell apart is 0 exactly
        of_kind = _indicators(self.kinds)
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
class SymmetricComponents:
    """The components of errors for a set of measured or exact queries.

    Attributes:
      axes: The parts of every attribute.
      parts: Per component, for every attribute its part: 0 for the kinds, then those of
        `_Axis.dimensions`.
    """

    axes: tuple[_Axis, ...]
    parts: tuple[tuple[int, ...], ...]

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
        axes = []
        for factors in zip(*(query.factors for query in queries), strict=True):
            atoms = atoms_of(factors)
            axes.append(_Axis(atoms, _kinds(list(dict.fromkeys(factors)), atoms)))
        refuse_many_groups(math.prod(axis.n_kinds for axis in axes))
        numbers = [range(1 + len(axis.dimensions)) for axis in axes]
        return cls(tuple(axes), tuple(itertools.product(*numbers)))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Rows of the matrix of every component."""
        return tuple(
            math.prod(
                axis.n_kinds for axis, part in zip(self.axes, component, strict=True) if not part
            )
            for component in self.parts
        )

    def grams(self, query: Query) -> list[FloatArray]:
        """Return Q^T Q on every component, float64[D, D], for one of the queries given."""
        of_kinds, traces = self._parts(query)
        return self._kronecker(
            of_kinds,
            [
                [trace / n for trace, n in zip(own, axis.dimensions, strict=True)]
                for own, axis in zip(traces, self.axes, strict=True)
            ],
        )

    def trace_forms(self, query: Query) -> list[FloatArray]:
        """Return T, float64[D, D] per component, for any query.

        The sum of the variances of all its answers is sum of <T, S> over components, where S is
        the covariance on the component: T is Q^T Q with all but the kinds traced out.
        """
        return self._kronecker(*self._parts(query))

    def _parts(self, query: Query) -> tuple[list[FloatArray], list[list[float]]]:
        found = [axis.parts(factor) for axis, factor in zip(self.axes, query.factors, strict=True)]
        return [of_kinds for of_kinds, _ in found], [traces for _, traces in found]

    def _kronecker(
        self, of_kinds: Sequence[FloatArray], others: Sequence[Sequence[float]]
    ) -> list[FloatArray]:
        out = []
        for component in self.parts:
            each = [
                np.array([[numbers[part - 1]]]) if part else matrix
                for matrix, numbers, part in zip(of_kinds, others, component, strict=True)
            ]
            out.append(reduce(np.kron, each))
        return out


def _indicators(codes: IntArray) -> IntArray:
    """int64[n, k]: 1 where a level or an atom has the code."""
    return np.asarray(codes[:, None] == np.arange(int(codes.max()) + 1), np.int64)


def _kinds(factors: Sequence[Factor], atoms: IntArray) -> IntArray:
    """The kind of each atom: two are of one if swapping them changes no Gram matrix.

    Swaps of a with b and of b with c make that of a with c, so kinds are classes.
    """
    indicators = _indicators(atoms)
    sizes, count = indicators.sum(0), indicators.shape[1]
    summed = [factor.matrix @ indicators for factor in factors]
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
