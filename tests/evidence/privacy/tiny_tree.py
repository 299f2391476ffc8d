"""Small trees, all their neighboring data sets, and how far every noisy answer moves."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from das.privacy.budget import Budget
from das.queries.query import parse_group, parse_query
from das.queries.sensitivity import Neighbors
from das.schema import Attribute, Schema
from das.strategy import (
    LevelStrategy,
    NoisyQuery,
    QueryShare,
    Strategy,
    Stratum,
    noisy_queries,
)
from tests.builders.histograms import from_dense
from tests.evidence.privacy.output_laws import Move

SCHEMA = Schema("tiny", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
BASE = 7  # persons of another kind, who change nothing


@dataclass(frozen=True)
class Tree:
    """Leaves, and the measured geounits as (first geolevel, last geolevel, leaves below)."""

    n_levels: int
    n_leaves: int
    measured: tuple[tuple[int, int, tuple[int, ...]], ...]


ONE_PLACE = Tree(1, 1, ((0, 0, (0,)),))
TWO_PLACES = Tree(1, 2, ((0, 0, (0,)), (0, 0, (1,))))
TWO_BLOCKS = Tree(2, 2, ((0, 0, (0, 1)), (1, 1, (0,)), (1, 1, (1,))))
# state > county {block, block} and county {block}, whose county and block are measured once
ONLY_CHILD = Tree(
    3, 3, ((0, 0, (0, 1, 2)), (1, 1, (0, 1)), (2, 2, (0,)), (2, 2, (1,)), (1, 2, (2,)))
)

Level = dict[str, str]  # query and share of the geolevel
Levels = Sequence[tuple[str, Level]]  # with the share of each geolevel, root first


def strategy(levels: Levels, strata: Mapping[str, Levels] = MappingProxyType({})) -> Strategy:
    """What is measured of everybody, and of strata named by their condition."""
    return Strategy(
        _levels(levels),
        strata=tuple(
            Stratum(parse_group(SCHEMA, name), _levels(own, f" where {name}"))
            for name, own in strata.items()
        ),
    )


def _levels(levels: Levels, of_whom: str = "") -> tuple[LevelStrategy, ...]:
    return tuple(
        LevelStrategy(
            f"level{index}",
            Fraction(share),
            tuple(
                QueryShare(parse_query(SCHEMA, f"{text}{of_whom}"), Fraction(part))
                for text, part in queries.items()
            ),
        )
        for index, (share, queries) in enumerate(levels)
    )


def neighbors_of(tree: Tree, relation: Neighbors) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All pairs of neighboring data sets, int64[leaves, cells], up to the persons they share."""
    base = np.full((tree.n_leaves, SCHEMA.size), BASE, np.int64)
    places = list(itertools.product(range(tree.n_leaves), range(SCHEMA.size)))
    for place in places:
        one = base.copy()
        one[place] += 1
        if relation is Neighbors.UNBOUNDED:
            yield base, one
            continue
        for other in places:
            if other != place:
                changed = base.copy()
                changed[other] += 1
                yield one, changed


def planned(tree: Tree, plan: Strategy, budget: Budget) -> list[tuple[NoisyQuery, tuple[int, ...]]]:
    """Every measurement of a tree: a query with its noise, and the leaves it is asked of."""
    return [
        (query, leaves)
        for first, last, leaves in tree.measured
        for query in noisy_queries(plan, budget, first, last)
    ]


def all_moves(
    tree: Tree, measurements: Sequence[tuple[NoisyQuery, tuple[int, ...]]], relation: Neighbors
) -> list[tuple[Move, ...]]:
    """The moves of every pair of neighbors; pairs with equal moves are given once."""
    found = set()
    for one, other in neighbors_of(tree, relation):
        moves = []
        for noisy, leaves in measurements:
            both = from_dense(np.stack([one[list(leaves)].sum(0), other[list(leaves)].sum(0)]))
            answers = noisy.query.answer(both)
            moves += [
                Move(noisy.mechanism, abs(int(distance)))
                for distance in answers[1] - answers[0]
                if distance
            ]
        moves.sort(key=lambda move: (move.mechanism.kind, move.mechanism.parameter, move.distance))
        found.add(tuple(moves))
    return sorted(found, key=len)
