"""Orthogonal components in which every measured query on a schema is a small matrix.

The Gram matrices of marginals commute and share the residual components (total | differences
between levels) of every attribute. Those of recodes with groups of unequal size do not commute with
the total, nested or not, so one number per component is not enough. Here each attribute splits into

    groups: the span of the group indicators u_a = 1_a / sqrt(size_a), one per atom a of the common
            refinement of its recodes (without recodes the whole attribute is the one atom), and
    within: everything orthogonal to that, on which a recode is zero and the identity is one.

A factor whose Gram matrix is a I + b J fits any atoms. Any other factor refines the atoms until
levels of one atom have equal columns. A component of the schema takes one of the two parts for
every attribute. On a component, the Gram matrix of a query is a small matrix times the identity.
The small matrix has one row per combination of atoms. Least squares over a whole census then works
on these small matrices. Without recodes they are 1 x 1: the residual basis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from das.arrays import FloatArray, IntArray, kron
from das.errors import SchemaError
from das.queries.factor import Factor
from das.queries.query import Query

MOST_GROUPS = 256  # rows of the largest matrix of a component; default, not measured


@dataclass(frozen=True, eq=False)
class SpineComponents:
    """Orthogonal components for a set of measured or exact queries.

    Attributes:
      atoms: Per attribute, int64[n_i]: the atom of each level.
      within: Per component and attribute, whether the component takes the part within the atoms.
    """

    atoms: tuple[IntArray, ...]
    within: tuple[tuple[bool, ...], ...]

    @classmethod
    def of_queries(
        cls,
        queries: Sequence[Query],
        most_groups: int | None = None,
        split: Collection[int] = (),
    ) -> SpineComponents:
        """Find the components that all these queries respect.

        Args:
          queries: Queries over one schema, at least one.
          most_groups: Most combinations of atoms; None for MOST_GROUPS, which suits a tree of
            classes of geounits.
          split: Indexes of attributes of which every level is an atom.

        Raises:
          SchemaError: There are more combinations of atoms than that.

        >>> from das.queries.query import parse_query
        >>> from das.schema import Attribute, Recode, Schema
        >>> age = Attribute("age", ("0", "1", "2"))
        >>> adult = Recode("adult", "age", ("no", "yes"), (0, 0, 1))
        >>> schema = Schema("s", (Attribute("sex", ("f", "m")), age), (adult,))
        >>> components = SpineComponents.of_queries([parse_query(schema, "adult * sex")])
        >>> components.atoms[1].tolist(), components.sizes
        ([1, 1, 0], (2, 1, 2, 1))
        """
        factors = zip(*(query.factors for query in queries), strict=True)
        atoms = tuple(
            np.arange(some[0].matrix.shape[1]) if axis in split else atoms_of(some)
            for axis, some in enumerate(factors)
        )
        refuse_many_groups(math.prod(int(codes.max()) + 1 for codes in atoms), most_groups)
        return cls(atoms, _products(atoms))

    @property
    def every(self) -> tuple[tuple[bool, ...], ...]:
        """Return all components of these atoms, in the form of `within`."""
        return _products(self.atoms)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of rows of the matrix of every component."""
        return tuple(
            math.prod(
                int(codes.max()) + 1
                for codes, inside in zip(self.atoms, component, strict=True)
                if not inside
            )
            for component in self.within
        )

    def grams(self, query: Query) -> list[FloatArray]:
        """Return the Gram matrix of a fitting query on every component, float64[D, D]."""
        between, inside = zip(*self.parts(query), strict=True)
        return self._kronecker(between, inside)

    def parts(self, query: Query) -> list[tuple[FloatArray, float]]:
        """Split F^T F per attribute: float64[k, k] between groups, and one factor within them.

        Q^T Q on a component is the Kronecker product of one of the two for every attribute.
        """
        between, inside = self._parts(query)
        counts = [max(len(codes) - int(codes.max()) - 1, 1) for codes in self.atoms]
        return [(part, x / n) for part, x, n in zip(between, inside, counts, strict=True)]

    def trace_forms(self, query: Query) -> list[FloatArray]:
        """Return the form T of a query's summed variance, float64[D, D] per component.

        T is Q^T Q with the part within the atoms traced out. The summed variance of all answers is
        the sum of <T, S> over components, where S is the covariance on the component.
        """
        return self._kronecker(*self._parts(query))

    def _parts(self, query: Query) -> tuple[list[FloatArray], list[float]]:
        """Split F^T F per attribute: the matrix between the groups, and the trace within them."""
        between, inside = [], []
        for factor, codes in zip(query.factors, self.atoms, strict=True):
            answered = factor.matrix.astype(np.float64) @ normalized(codes)
            part = np.asarray(answered.T @ answered)
            between.append(part)
            if codes.max() + 1 == len(codes) or merges_atoms(factor, codes):
                inside.append(0.0)
                continue
            whole = float((factor.matrix.astype(np.float64) ** 2).sum())
            inside.append(whole - float(np.trace(part)))
        return between, inside

    def _kronecker(
        self, between: Sequence[FloatArray], inside: Sequence[float]
    ) -> list[FloatArray]:
        out = []
        for component in self.within:
            parts = [
                np.array([[scalar]]) if is_inside else matrix
                for matrix, scalar, is_inside in zip(between, inside, component, strict=True)
            ]
            out.append(kron(parts))
        return out


def _products(atoms: Sequence[IntArray]) -> tuple[tuple[bool, ...], ...]:
    sides = [(False, True) if codes.max() + 1 < len(codes) else (False,) for codes in atoms]
    return tuple(itertools.product(*sides))


def refuse_many_groups(groups: int, most: int | None = None) -> None:
    """Refuse matrices with too many rows.

    Raises:
      SchemaError: There are more groups than `most`, or than MOST_GROUPS by default.
    """
    most = MOST_GROUPS if most is None else most
    if groups > most:
        raise SchemaError(
            "prediction of errors",
            "the measured queries group the levels in too many ways",
            got=f"{groups} combinations of groups",
            want=f"at most {most}",
            remedy="measure fewer recodes, prefixes or ranges",
        )


def atoms_of(factors: Sequence[Factor]) -> IntArray:
    """Return the coarsest atoms of an attribute's levels that fit all factors, int64[n]."""
    codes = np.zeros(factors[0].matrix.shape[1], np.int64)
    for factor in dict.fromkeys(factors):
        if not _is_symmetric(factor):
            merged = factor.distinct[1]
            pairs = codes * (int(merged.max()) + 1) + merged
            codes = np.unique(pairs, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return codes


def _is_symmetric(factor: Factor) -> bool:
    """Test whether F^T F = a I + b J, so that all levels are treated alike."""
    gram, diagonal = factor.gram, factor.gram.diagonal()
    off_diagonal = gram[~np.eye(len(gram), dtype=np.bool_)]
    return bool((diagonal == diagonal[0]).all() and (off_diagonal == off_diagonal[:1]).all())


def merges_atoms(factor: Factor, codes: IntArray) -> bool:
    """Test whether a factor has equal columns for all levels of one atom, codes int64[n]."""
    first = np.unique(codes, return_index=True)[1]
    return bool((factor.matrix == factor.matrix[:, first[codes]]).all())


def indicators(codes: IntArray) -> IntArray:
    """Return the indicator matrix of codes, int64[n, k]."""
    return np.asarray(codes[:, None] == np.arange(int(codes.max()) + 1), np.int64)


def normalized(codes: IntArray) -> FloatArray:
    """Return the indicators with columns of length 1, float64[n, k]."""
    columns = indicators(codes).astype(np.float64)
    return np.asarray(columns / np.sqrt(columns.sum(axis=0)))
