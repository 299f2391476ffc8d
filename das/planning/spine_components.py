"""Orthogonal components in which every query on a schema, recodes included, is a small matrix.

The Gram matrices of marginals commute and share the residual components (total | differences
between levels) of every attribute. Those of recodes with groups of unequal size do not commute with
the total, nested or not, so one number per component is not enough. Here each attribute splits into

    groups: the span of the group indicators u_a = 1_a / sqrt(size_a), one per atom a of the common
            refinement of its recodes (without recodes the whole attribute is the one atom), and
    within: everything orthogonal to that, on which a recode is zero and the identity is one.

A component of the schema takes one of the two for every attribute. The Gram matrix of a partition
query is block diagonal over components, and on each it is the identity on what lies within times a
matrix of the size of the product of the atoms. Least squares over a whole census then works on
these small matrices. Without recodes they are 1 x 1: the residual basis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from das.errors import SchemaError
from das.queries.factor import Factor, FactorKind
from das.queries.query import Query

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MOST_GROUPS = 256  # largest matrix of a component


@dataclass(frozen=True, eq=False)
class SpineComponents:
    """The components for a set of measured or exact partition queries.

    Attributes:
      atoms: Per attribute, int64[n_i]: the atom of each level.
      within: Per component, for every attribute whether it lies within the atoms.
    """

    atoms: tuple[IntArray, ...]
    within: tuple[tuple[bool, ...], ...]

    @classmethod
    def of_queries(cls, queries: Sequence[Query]) -> SpineComponents:
        """Find the components that all these queries respect.

        Args:
          queries: Partition queries over one schema, at least one.

        Raises:
          SchemaError: A query is not a partition, or recodes of several attributes together have
            more than MOST_GROUPS combinations of atoms.

        >>> from das.queries.query import parse_query
        >>> from das.schema.schema import Attribute, Recode, Schema
        >>> age = Attribute("age", ("0", "1", "2"))
        >>> adult = Recode("adult", "age", ("no", "yes"), (0, 0, 1))
        >>> schema = Schema("s", (Attribute("sex", ("f", "m")), age), (adult,))
        >>> found = SpineComponents.of_queries([parse_query(schema, "adult * sex")])
        >>> found.atoms[1].tolist(), found.sizes
        ([0, 0, 1], (2, 1, 2, 1))
        """
        for query in queries:
            if not query.is_partition:
                raise SchemaError(
                    f"query {query.name}", "cannot be part of a plan: it is not a partition"
                )
        atoms = tuple(
            _atoms(factors) for factors in zip(*(query.factors for query in queries), strict=True)
        )
        groups = math.prod(int(codes.max()) + 1 for codes in atoms)
        if groups > MOST_GROUPS:
            raise SchemaError(
                "prediction of errors",
                "the recodes have too many combinations of groups",
                got=groups,
                want=f"at most {MOST_GROUPS}",
                remedy="measure fewer or coarser recodes",
            )
        sides = [(False, True) if codes.max() + 1 < len(codes) else (False,) for codes in atoms]
        return cls(atoms, tuple(itertools.product(*sides)))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of the matrix of every component."""
        return tuple(
            math.prod(
                int(codes.max()) + 1
                for codes, inside in zip(self.atoms, component, strict=True)
                if not inside
            )
            for component in self.within
        )

    def grams(self, query: Query) -> list[FloatArray]:
        """Return Q^T Q on every component, float64[D, D], for a partition query."""
        return self._kronecker(
            [
                _on_groups(factor, codes)
                for factor, codes in zip(query.factors, self.atoms, strict=True)
            ],
            [float(_tells_all_apart(factor)) for factor in query.factors],
        )

    def trace_forms(self, query: Query) -> list[FloatArray]:
        """Return T, float64[D, D] per component, for any query.

        The sum of the variances of all its answers is sum of <T, S> over components, where S is
        the covariance on the component: T is Q^T Q with what lies within the atoms traced out.
        """
        between, inside = [], []
        for factor, codes in zip(query.factors, self.atoms, strict=True):
            part = _on_groups(factor, codes)
            between.append(part)
            whole = float((factor.matrix.astype(np.float64) ** 2).sum())
            inside.append(whole - float(np.trace(part)))
        return self._kronecker(between, inside)

    def _kronecker(
        self, between: Sequence[FloatArray], inside: Sequence[float]
    ) -> list[FloatArray]:
        out = []
        for component in self.within:
            parts = [
                np.array([[scalar]]) if is_inside else matrix
                for matrix, scalar, is_inside in zip(between, inside, component, strict=True)
            ]
            out.append(reduce(np.kron, parts))
        return out


def _tells_all_apart(factor: Factor) -> bool:
    return len(factor.labels) == factor.matrix.shape[1]


def _atoms(factors: Sequence[Factor]) -> IntArray:
    """Common refinement of the factors that merge levels."""
    codes = np.zeros(factors[0].matrix.shape[1], np.int64)
    for factor in dict.fromkeys(factors):
        if factor.kind is FactorKind.PARTITION and not _tells_all_apart(factor):
            pairs = codes * len(factor.labels) + factor.codes
            codes = np.unique(pairs, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return codes


def _on_groups(factor: Factor, codes: IntArray) -> FloatArray:
    """U^T F^T F U, float64[k, k], for the normalized indicators U of the atoms."""
    indicators = (codes[:, None] == np.arange(codes.max() + 1)).astype(np.float64)
    answered = factor.matrix.astype(np.float64) @ (indicators / np.sqrt(indicators.sum(0)))
    return np.asarray(answered.T @ answered)
