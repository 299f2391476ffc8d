"""Off-spine entities and how far they are from the spine.

A place, a county subdivision, a school district or a tribal area is a set of leaves that need not
be a geounit. Its off-spine distance is the least number of geounits whose sums and differences give
it; the noise of an estimate of its counts grows with that number.

References:
  Cumings-Menon, Abowd, Ashmead, Kifer, Leclerc, Ocker, Ratcliffe & Zhuravlev, Geographic Spines in
  the 2020 Census Disclosure Avoidance System, J. Privacy and Confidentiality 14(3), 2024,
  arXiv:2203.16654.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from das.arrays import IntArray
from das.errors import GeographyError, require_distinct
from geography.lattice import Lattice

NO_ENTITY = -1


@dataclass(frozen=True, eq=False)
class Entities:
    """Table of the off-spine entities, by kind, in which each leaf lies.

    Attributes:
      kinds: Names such as ("place", "county_subdivision"), K of them.
      members: int64[n, K], row by row for n leaves; the number of the entity, or `NO_ENTITY`.

    Raises:
      GeographyError: Names repeat, the shape does not fit, or a number is below `NO_ENTITY`.
    """

    kinds: tuple[str, ...]
    members: IntArray

    def __post_init__(self) -> None:
        members = np.array(self.members, np.int64)
        members.flags.writeable = False
        object.__setattr__(self, "members", members)
        require_distinct(self.kinds, GeographyError, "entities", "name a kind twice")
        if members.ndim != 2 or members.shape[1] != len(self.kinds):
            raise GeographyError(
                "entities", "need one column per kind", got=members.shape, want=len(self.kinds)
            )
        if members.size and members.min() < NO_ENTITY:
            raise GeographyError("entities", "have a negative number", got=members.min())

    def take(self, leaves: IntArray) -> Entities:
        """Return the rows of the given leaves, in the order given."""
        return Entities(self.kinds, self.members[leaves])

    def numbered(self) -> IntArray:
        """Return int64[n, K]: entities numbered 0..E-1 through all kinds; `NO_ENTITY` stays."""
        out = np.full(self.members.shape, NO_ENTITY, np.int64)
        first = 0
        for kind in range(len(self.kinds)):
            is_member = self.members[:, kind] != NO_ENTITY
            values, index = np.unique(self.members[is_member, kind], return_inverse=True)
            out[is_member, kind] = first + index
            first += len(values)
        return out


@dataclass(frozen=True, eq=False)
class Coverage:
    """Numbers of geounits that give the parts of an entity inside and outside a geounit.

    Only pairs where the geounit contains a leaf of the entity are listed. For other pairs `inside`
    is 0 and `outside` is 1: the geounit itself.

    Attributes:
      geounits: int64[P], sorted.
      entities: int64[P], sorted within a geounit.
      inside: int64[P], least number of geounits at or below this one that give the part of the
        entity in it.
      outside: int64[P], least number of geounits that give the rest of the geounit.
    """

    geounits: IntArray
    entities: IntArray
    inside: IntArray
    outside: IntArray


def combine(inside: IntArray, outside: IntArray) -> tuple[IntArray, IntArray]:
    """Return the fewest geounits that give the parts of a geounit inside and outside an entity.

    The part inside comes from the children alone, or as the geounit itself minus the part outside:
    inside = min(sum inside, 1 + sum outside) and outside = min(sum outside, 1 + sum inside), with
    sums over the children of the geounit.

    Args:
      inside: Sums over the children of the geounits needed for the part inside.
      outside: Sums over the children of the geounits needed for the part outside.

    >>> [int(n) for n in combine(np.int64(5), np.int64(1))]
    [2, 1]
    """
    return np.minimum(inside, 1 + outside), np.minimum(outside, 1 + inside)


def coverage(lattice: Lattice, entities: Entities) -> tuple[Coverage, ...]:
    """Count the geounits needed for each entity and geounit that it touches, leaves first.

    Args:
      lattice: The geounits.
      entities: One row per leaf, in the order of `lattice.codes[-1]`.

    Returns:
      Per geolevel, root first. The root's `inside` are the off-spine distances.

    Raises:
      GeographyError: There is not one row per leaf.
    """
    if len(entities.members) != len(lattice.codes[-1]):
        raise GeographyError(
            "entities",
            "need one row per leaf",
            got=len(entities.members),
            want=len(lattice.codes[-1]),
        )
    numbered = entities.numbered()
    leaf, kind = np.nonzero(numbered != NO_ENTITY)
    ones = np.ones(len(leaf), np.int64)
    here = Coverage(leaf, numbered[leaf, kind], ones, np.zeros_like(ones))
    levels = [here]
    for level in range(len(lattice.spine.levels) - 2, -1, -1):
        parents = lattice.parents[level + 1][here.geounits]
        n_entities = int(here.entities.max(initial=-1)) + 1
        pairs, index = np.unique(parents * n_entities + here.entities, return_inverse=True)
        geounits, touching = np.divmod(pairs, max(n_entities, 1))
        touched = np.bincount(index, minlength=len(pairs))
        inside = np.zeros(len(pairs), np.int64)
        outside = lattice.n_children(level)[geounits] - touched
        np.add.at(inside, index, here.inside)
        np.add.at(outside, index, here.outside)
        here = Coverage(geounits, touching, *combine(inside, outside))
        levels.insert(0, here)
    return tuple(levels)


def offspine_distances(lattice: Lattice, entities: Entities) -> dict[str, IntArray]:
    """Return the least number of geounits whose sums and differences give each entity.

    Args:
      lattice: The geounits.
      entities: One row per leaf, in the order of `lattice.codes[-1]`.

    Returns:
      Per kind, int64[entities of the kind] in the order of their numbers; each at least 1.

    Raises:
      GeographyError: There is not one row per leaf.

    References:
      Cumings-Menon et al., arXiv:2203.16654.

    >>> from geography.lattice import Spine
    >>> lattice = Lattice.from_leaves(Spine(("all", "leaf"), (0, 1)), list("abcde"))
    >>> places = Entities(("place",), np.array([[0], [0], [0], [0], [NO_ENTITY]]))
    >>> offspine_distances(lattice, places)["place"].tolist()  # all - e
    [2]
    """
    distances = coverage(lattice, entities)[0].inside
    sizes = [
        len(np.unique(column[column != NO_ENTITY])) for column in np.transpose(entities.members)
    ]
    parts = np.split(distances, np.cumsum(sizes, dtype=np.int64))[: len(sizes)]
    return dict(zip(entities.kinds, parts, strict=True))
