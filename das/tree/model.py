"""The queries of every geolevel as small matrices on shared coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from das.arrays import FloatArray
from das.mechanisms.mechanism import Mechanism
from das.queries.query import Query
from das.tree.components import MOST_GROUPS
from das.tree.coordinates import Coordinates, Matrices
from das.tree.errors import null_space, range_space

# Combinations of groups of which a span is sought: matrices of 8 MB, a few per query.
_MOST_SPANNED = 1024
_RANK = 1e-9  # eigenvalues of exact information below this times the largest are zero
LEAST_VARIANCE = 1e-6  # integer noise that is zero but once in a million draws counts as this


def precision(mechanism: Mechanism) -> float:
    """1 / variance of one noisy answer."""
    return 1.0 / max(mechanism.variance(), LEAST_VARIANCE)


@dataclass(frozen=True, eq=False)
class GeolevelTerms:
    """What one geolevel asks, noisily and exactly.

    Attributes:
      coordinates: Coordinates that fit the queries of all geolevels.
      measured: Q queries answered with noise.
      exact: Queries answered exactly.
      known: Per component, float64[D, k], orthonormal: what the answers of this geolevel know, and
        those of every geolevel above; None if the answers in the subtree of every geounit
        determine all.
    """

    coordinates: Coordinates
    measured: tuple[Query, ...]
    exact: tuple[Query, ...]
    known: tuple[FloatArray, ...] | None = None

    @cached_property
    def grams(self) -> Matrices:
        """Per component, float64[Q, D, D]: Q'Q of the measured queries."""
        return gram_matrices(self.coordinates, self.measured)

    @cached_property
    def _exact_gram(self) -> Matrices:
        return tuple(part.sum(axis=0) for part in gram_matrices(self.coordinates, self.exact))

    @cached_property
    def unknown(self) -> tuple[FloatArray, ...]:
        """Per component, float64[D, k]: a basis of what the invariants leave open, and is measured.

        Where the answers determine all, that is all that the invariants leave open.
        """
        left = tuple(null_space(gram) for gram in self._exact_gram)
        if self.known is None:
            return left
        return tuple(
            part @ range_space(part.T @ _scaled_sum(gram) @ part)
            for part, gram in zip(left, self.grams, strict=True)
        )

    @cached_property
    def shared(self) -> tuple[FloatArray, ...]:
        """Per component, float64[D, k]: a basis of what is added up over the children of a family.

        That is `unknown`, as far as every geolevel above knows it too.
        """
        if self.known is None:
            return self.unknown
        left = (null_space(gram) for gram in self._exact_gram)
        return tuple(
            part @ range_space(part.T @ known @ known.T @ part)
            for part, known in zip(left, self.known, strict=True)
        )

    def determines(self, query: Query) -> bool:
        """Whether any query has an estimate at this geolevel, in every geounit."""
        return self.known is None or self.coordinates.sees(query, self.known)

    @cached_property
    def known_inverse(self) -> tuple[FloatArray, ...]:
        """Per component, float64[D, D]: takes the adjoint exact answers to what they fix."""
        return tuple(
            np.asarray(np.linalg.pinv(gram, _RANK, hermitian=True), np.float64)
            for gram in self._exact_gram
        )

    def information(self, precisions: FloatArray) -> Matrices:
        """Return K matrices sum_q w_q Q_q'Q_q for precisions float64[K, Q]."""
        return tuple(np.einsum("kq,qde->kde", precisions, gram) for gram in self.grams)

    def restricted(self, coordinates: Coordinates) -> GeolevelTerms:
        """The same queries on fewer components."""
        known = None if self.known is None else coordinates.select(self.coordinates, self.known)
        return GeolevelTerms(coordinates, self.measured, self.exact, known)


def gram_matrices(coordinates: Coordinates, queries: Sequence[Query]) -> Matrices:
    """Per component, float64[Q, D, D]: Q'Q of queries the coordinates were made for."""
    grams = [coordinates.grams(query) for query in queries]
    return tuple(
        np.array([gram[index] for gram in grams]).reshape(len(queries), size, size)
        for index, size in enumerate(coordinates.sizes)
    )


def spine_terms(
    measured: Sequence[Sequence[Query]],
    exact: Sequence[Sequence[Query]],
    most_groups: int | None = None,
) -> tuple[GeolevelTerms, ...]:
    """The terms of every geolevel, root first, on coordinates that fit them all.

    Args:
      measured: Per geolevel, the queries measured there; none where it is not measured.
      exact: Per geolevel, the invariants known there; a geolevel knows all that the next one down
        knows.
      most_groups: Most combinations of groups of levels; see `SpineComponents`.

    Raises:
      SchemaError: The queries group the levels in too many ways.
    """
    every = [query for queries in (*measured, *exact) for query in queries]
    coordinates = Coordinates.of_queries(every, most_groups)
    return tuple(
        GeolevelTerms(coordinates, tuple(asked), tuple(known))
        for asked, known in zip(measured, exact, strict=True)
    )


def partial_terms(
    measured: Sequence[Sequence[Query]], exact: Sequence[Sequence[Query]]
) -> tuple[GeolevelTerms, ...]:
    """The terms of queries that need not determine every cell, on coordinates of what they see.

    At a geolevel is known what the answers of the geolevel itself determine, and those of every
    one above. That much every geounit knows, whatever chain it lies in: only children pass on what
    is below them, and take what is known above. So it can be added up over any family.

    Terms of equal queries are made once in a process: tasks come with queries of their own.

    Args:
      measured: As of `spine_terms`; at least one query.
      exact: As of `spine_terms`.

    Raises:
      SchemaError: The queries group the levels in too many ways.
    """
    key = tuple(
        tuple((query.name, _entries(query)) for query in queries) for queries in (*measured, *exact)
    )
    return _made_once(_Asked(key, measured, exact))


@dataclass(frozen=True)
class _Asked:
    """Queries of every geolevel, told apart by their names and matrices.

    Attributes:
      key: Both, of all of them.
      measured: As of `partial_terms`.
      exact: As of `partial_terms`.
    """

    key: tuple[object, ...]
    measured: Sequence[Sequence[Query]] = field(compare=False)
    exact: Sequence[Sequence[Query]] = field(compare=False)


@lru_cache(maxsize=4)
def _made_once(asked: _Asked) -> tuple[GeolevelTerms, ...]:
    measured, exact = asked.measured, asked.exact
    queries = [query for some in (*measured, *exact) for query in some]
    every = [*{_entries(query): query for query in queries}.values()]
    coordinates = Coordinates.of_queries(every, _MOST_SPANNED).spanned_by(every, MOST_GROUPS)
    unseen = [np.zeros((size, size)) for size in coordinates.sizes]
    out = []
    for own, stated in zip(measured, exact, strict=True):
        grams = gram_matrices(coordinates, (*own, *stated))
        for index, gram in enumerate(grams):
            seen = range_space(_scaled_sum(gram))
            unseen[index] = unseen[index] + np.eye(len(seen)) - seen @ seen.T
        known = tuple(null_space(part) for part in unseen)
        out.append(GeolevelTerms(coordinates, tuple(own), tuple(stated), known))
    return tuple(out)


def _entries(query: Query) -> tuple[tuple[tuple[int, ...], bytes], ...]:
    """What is the same for queries of equal matrices."""
    return tuple(factor.key for factor in query.factors)


def _scaled_sum(grams: FloatArray) -> FloatArray:
    """float64[D, D]: the sum of float64[Q, D, D], each over its trace."""
    traces = np.einsum("qdd->q", grams)
    weights = np.divide(1.0, traces, out=np.zeros_like(traces), where=traces > 0)
    return np.asarray(np.tensordot(weights, grams, 1))
