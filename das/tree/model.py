"""The queries of every geolevel as small matrices on shared coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from das.arrays import FloatArray
from das.mechanisms.mechanism import Mechanism
from das.queries.query import Query
from das.tree.coordinates import Coordinates, Matrices
from das.tree.errors import null_space

_RANK = 1e-9  # eigenvalues of exact information below this times the largest are zero
_LEAST_VARIANCE = 1e-6  # integer noise that is zero but once in a million draws counts as this


def precision(mechanism: Mechanism) -> float:
    """1 / variance of one noisy answer."""
    return 1.0 / max(mechanism.variance(), _LEAST_VARIANCE)


@dataclass(frozen=True, eq=False)
class GeolevelTerms:
    """What one geolevel asks, noisily and exactly.

    Attributes:
      coordinates: Coordinates that fit the queries of all geolevels.
      measured: Q queries answered with noise.
      exact: Queries answered exactly.
    """

    coordinates: Coordinates
    measured: tuple[Query, ...]
    exact: tuple[Query, ...]

    @cached_property
    def grams(self) -> Matrices:
        """Per component, float64[Q, D, D]: Q'Q of the measured queries."""
        return gram_matrices(self.coordinates, self.measured)

    @cached_property
    def _exact_gram(self) -> Matrices:
        return tuple(part.sum(axis=0) for part in gram_matrices(self.coordinates, self.exact))

    @cached_property
    def unknown(self) -> tuple[FloatArray, ...]:
        """Per component, float64[D, k]: a basis of what the invariants leave open."""
        return tuple(null_space(gram) for gram in self._exact_gram)

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
        return GeolevelTerms(coordinates, self.measured, self.exact)


def gram_matrices(coordinates: Coordinates, queries: Sequence[Query]) -> Matrices:
    """Per component, float64[Q, D, D]: Q'Q of queries the coordinates were made for."""
    grams = [coordinates.components.grams(query) for query in queries]
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
