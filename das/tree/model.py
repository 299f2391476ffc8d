"""The queries of every geolevel as small matrices on shared coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from das.arrays import BoolArray, FloatArray
from das.mechanisms.mechanism import Mechanism
from das.queries.query import Query
from das.tree.components import MOST_GROUPS
from das.tree.coordinates import Coordinates, Matrices
from das.tree.errors import null_space, range_space

# Most combinations of groups for a span: matrices of 8 MB, a few per query.
_MOST_SPANNED = 1024
_RANK = 1e-9  # eigenvalues of exact information below this times the largest are zero
LEAST_VARIANCE = 1e-6  # floor for integer noise that is nonzero less than once in 10^6 draws


def precision(mechanism: Mechanism) -> float:
    """Return 1 / variance of the noise of a mechanism; the variance counts as at least 1e-6."""
    return 1.0 / max(mechanism.variance(), LEAST_VARIANCE)


@dataclass(frozen=True, eq=False)
class GeolevelTerms:
    """Noisy and exact queries of one geolevel on shared coordinates.

    Attributes:
      coordinates: Coordinates that fit the queries of all geolevels.
      measured: Q queries answered with noise.
      exact: Queries answered exactly.
      known: Per component, float64[D, k], orthonormal: the subspace determined by the answers of
        this geolevel and of every geolevel above. None if the answers in the subtree of every
        geounit determine all cells.
      types: Partition query of the types of cells that can be empty in single geounits, as is
        publicly known; None if nothing is known. It goes with `known` None.
    """

    coordinates: Coordinates
    measured: tuple[Query, ...]
    exact: tuple[Query, ...]
    known: tuple[FloatArray, ...] | None = None
    types: Query | None = None

    @cached_property
    def grams(self) -> Matrices:
        """Return Q'Q of the measured queries per component, float64[Q, D, D]."""
        return gram_matrices(self.coordinates, self.measured)

    @cached_property
    def exact_gram(self) -> tuple[FloatArray, ...]:
        """Return Q'Q of the exact queries per component, float64[D, D]."""
        return tuple(part.sum(axis=0) for part in gram_matrices(self.coordinates, self.exact))

    @cached_property
    def unknown(self) -> tuple[FloatArray, ...]:
        """Return per component a basis float64[D, k] of the subspace that only noise determines.

        Invariants do not fix it, and measured queries determine it. If the answers determine all
        cells, it is the whole subspace that invariants leave open.
        """
        left = tuple(null_space(gram) for gram in self.exact_gram)
        if self.known is None:
            return left
        return tuple(
            part @ range_space(part.T @ _scaled_sum(gram) @ part)
            for part, gram in zip(left, self.grams, strict=True)
        )

    @cached_property
    def shared(self) -> tuple[FloatArray, ...]:
        """Return per component a basis float64[D, k] of the subspace that families add up.

        It is the part of `unknown` that every geolevel above determines too.
        """
        if self.known is None:
            return self.unknown
        left = (null_space(gram) for gram in self.exact_gram)
        return tuple(
            part @ range_space(part.T @ known @ known.T @ part)
            for part, known in zip(left, self.known, strict=True)
        )

    def determines(self, query: Query) -> bool:
        """Test whether a query has an estimate in every geounit of this geolevel."""
        return self.known is None or self.coordinates.determines(query, self.known)

    @cached_property
    def known_inverse(self) -> tuple[FloatArray, ...]:
        """Return per component the pseudo-inverse of the exact queries' Gram matrix."""
        return tuple(
            np.asarray(np.linalg.pinv(gram, _RANK, hermitian=True), np.float64)
            for gram in self.exact_gram
        )

    def can_be_positive(self, has_type: BoolArray) -> tuple[BoolArray, ...]:
        """Return per component bool[K, D], the coordinates of the types that geounits have.

        Args:
          has_type: bool[K, t]; False for the types that are empty in K kinds of geounits.
        """
        of = () if self.types is None else self.coordinates.types(self.types)
        return tuple(has_type[:, types] for types in of)

    def information(self, precisions: FloatArray) -> Matrices:
        """Return the information sum_q w_q Q_q'Q_q for K vectors of precisions, float64[K, Q]."""
        return tuple(np.einsum("kq,qde->kde", precisions, gram) for gram in self.grams)

    def restricted(self, coordinates: Coordinates) -> GeolevelTerms:
        """Restrict the terms to some of their components.

        The queries stay the same. Gram matrices and known subspaces of the other components are
        dropped.

        Args:
          coordinates: Coordinates of a subset of the components, as from `Coordinates.touched_by`.
        """
        known = None if self.known is None else coordinates.select(self.coordinates, self.known)
        return replace(self, coordinates=coordinates, known=known)


def gram_matrices(coordinates: Coordinates, queries: Sequence[Query]) -> Matrices:
    """Return Q'Q per component, float64[Q, D, D], for queries that the coordinates fit."""
    grams = [coordinates.grams(query) for query in queries]
    return tuple(
        np.array([gram[index] for gram in grams]).reshape(len(queries), size, size)
        for index, size in enumerate(coordinates.sizes)
    )


def spine_terms(
    measured: Sequence[Sequence[Query]],
    exact: Sequence[Sequence[Query]],
    most_groups: int | None = None,
    types: Query | None = None,
) -> tuple[GeolevelTerms, ...]:
    """Build the terms of every geolevel, root first, on coordinates that fit all queries.

    Args:
      measured: Per geolevel, the queries measured there; none where it is not measured.
      exact: Per geolevel, its invariants. They include all invariants of the next finer geolevel.
      most_groups: Most combinations of groups of levels; see `SpineComponents`.
      types: As in `GeolevelTerms`.

    Raises:
      SchemaError: The queries and types group the levels in too many ways.
    """
    every = [query for queries in (*measured, *exact) for query in queries]
    factors = () if types is None else types.factors
    split = [axis for axis, factor in enumerate(factors) if factor.codes.any()]
    coordinates = Coordinates.of_queries(every, most_groups, split)
    return tuple(
        GeolevelTerms(coordinates, tuple(noisy), tuple(known), types=types)
        for noisy, known in zip(measured, exact, strict=True)
    )


def partial_terms(
    measured: Sequence[Sequence[Query]], exact: Sequence[Sequence[Query]]
) -> tuple[GeolevelTerms, ...]:
    """Build the terms of queries that need not determine every cell, on their span.

    The known subspace of a geolevel is determined by its answers and by those of every geolevel
    above. Every geounit determines it, in any chain of only children: an only child passes the
    answers below it up, and takes the estimate of its parent. So families can add it up.

    Terms are cached per process, because every task deserializes equal queries again.

    Args:
      measured: Per geolevel, the queries that are measured; at least one query.
      exact: Per geolevel, its invariants. They include all invariants of the next finer geolevel.

    Raises:
      SchemaError: The queries group the levels in too many ways.
    """
    key = tuple(
        tuple((query.name, _entries(query)) for query in queries) for queries in (*measured, *exact)
    )
    return _cached_terms(_LevelQueries(key, measured, exact))


@dataclass(frozen=True)
class _LevelQueries:
    """Queries of every geolevel, hashed by their names and matrices.

    Attributes:
      key: Names and matrices of all queries.
      measured: Per geolevel, the queries that are measured.
      exact: Per geolevel, its invariants.
    """

    key: tuple[object, ...]
    measured: Sequence[Sequence[Query]] = field(compare=False)
    exact: Sequence[Sequence[Query]] = field(compare=False)


@lru_cache(maxsize=4)
def _cached_terms(levels: _LevelQueries) -> tuple[GeolevelTerms, ...]:
    queries = [query for some in (*levels.measured, *levels.exact) for query in some]
    unique = {_entries(query): query for query in queries}
    every = [*unique.values()]
    coordinates = Coordinates.of_queries(every, _MOST_SPANNED).spanned_by(every, MOST_GROUPS)
    unseen = [np.zeros((size, size)) for size in coordinates.sizes]
    # Geolevels often measure the same queries: a Gram matrix each is most of the time.
    grams, out = {key: coordinates.grams(query) for key, query in unique.items()}, []
    for measured, exact in zip(levels.measured, levels.exact, strict=True):
        keys = [_entries(query) for query in (*measured, *exact)]
        for index, size in enumerate(coordinates.sizes):
            gram = np.array([grams[key][index] for key in keys]).reshape(len(keys), size, size)
            seen = range_space(_scaled_sum(gram))
            unseen[index] = unseen[index] + np.eye(len(seen)) - seen @ seen.T
        known = tuple(null_space(part) for part in unseen)
        out.append(GeolevelTerms(coordinates, tuple(measured), tuple(exact), known))
    return tuple(out)


def _entries(query: Query) -> tuple[tuple[tuple[int, ...], bytes], ...]:
    """Return a key that is equal for queries of equal matrices."""
    return tuple(factor.key for factor in query.factors)


def _scaled_sum(grams: FloatArray) -> FloatArray:
    """Sum matrices float64[Q, D, D], each divided by its trace."""
    traces = np.einsum("qdd->q", grams)
    weights = np.divide(1.0, traces, out=np.zeros_like(traces), where=traces > 0)
    return np.asarray(np.tensordot(weights, grams, 1))
