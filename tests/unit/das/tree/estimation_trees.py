"""Random trees with answers, estimated in memory by the passes that production code uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from das.arrays import BoolArray, FloatArray, IntArray
from das.queries.query import Query
from das.schema import Schema
from das.tree.area import CutChild, Share, estimate_share, share_of_family
from das.tree.coordinates import Coordinates
from das.tree.model import GeolevelTerms, spine_terms
from das.tree.passes import (
    Kinds,
    Moments,
    gather_evidence,
    pass_down,
    pass_up,
    sum_below,
)
from geography.lattice import Lattice
from tests.builders.strategies import dense_matrix

TermsMaker = Callable[
    [Sequence[Sequence[Query]], Sequence[Sequence[Query]]], tuple[GeolevelTerms, ...]
]


@dataclass(frozen=True, eq=False)
class LevelAnswers:
    """Answers of all geounits of one geolevel.

    Attributes:
      starts: int64[U], first row of the children of every geounit one geolevel up; [0] at the root.
      is_only: bool[G], only children; the root is none.
      noisy: Per measured query, number[G', m], of the geounits that are not only children.
      exact: Per invariant, number[G, m].
      precisions: float64[K, Q], 1 / variance of one answer of each query, by kind of geounit.
      kind: int64[G'], of the geounits that are not only children.
      has_type: bool[K, t], types of cells that a kind can have; None for all.
      is_last: bool[K], kinds with nothing below.
    """

    starts: IntArray
    is_only: BoolArray
    noisy: tuple[npt.NDArray[np.integer | np.floating], ...]
    exact: tuple[npt.NDArray[np.integer | np.floating], ...]
    precisions: FloatArray
    kind: IntArray
    has_type: BoolArray | None = None
    is_last: BoolArray | None = None


@dataclass(frozen=True, eq=False)
class TreeEstimate:
    """Estimates of every geounit of a tree, per geolevel, root first.

    Attributes:
      messages: From the subtree alone; of only children, what lies below.
      below: Sums and precisions below every geounit; none at the last geolevel.
      whole: From all answers of the tree.
    """

    messages: tuple[Moments, ...]
    below: tuple[Moments, ...]
    whole: tuple[Moments, ...]


def estimate_tree(terms: Sequence[GeolevelTerms], answers: Sequence[LevelAnswers]) -> TreeEstimate:
    """Estimate a whole tree that fits in memory.

    Raises:
      SolverError: The answers do not determine every cell.
    """
    messages: list[Moments] = []
    sums: list[Moments] = []
    for level in range(len(terms) - 1, -1, -1):
        one = answers[level]
        evidence = gather_evidence(
            terms[level],
            noisy=one.noisy,
            exact=[part[~one.is_only] for part in one.exact],
            kinds=Kinds(one.precisions, one.kind, one.has_type, one.is_last),
        )
        below = None
        if messages:
            next_one = answers[level + 1]
            below = sum_below(messages[0], next_one.starts, next_one.is_only, terms[level + 1])
            sums.insert(0, below)
        messages.insert(0, pass_up(terms[level], evidence, below, one.is_only))
    whole = [messages[0]]
    for level in range(1, len(terms)):
        one = answers[level]
        whole.append(
            pass_down(messages[level], sums[level - 1], whole[-1], one.starts, one.is_only)
        )
    return TreeEstimate(tuple(messages), tuple(sums), tuple(whole))


@dataclass(frozen=True, eq=False)
class TreeCase:
    """A lattice, its queries and answers: truth plus normal noise of random precision."""

    lattice: Lattice
    terms: tuple[GeolevelTerms, ...]
    answers: tuple[LevelAnswers, ...]
    n_cells: int
    has_type: BoolArray | None = None

    @property
    def coordinates(self) -> Coordinates:
        return self.terms[0].coordinates

    @property
    def n_leaves(self) -> int:
        return len(self.lattice.codes[-1])

    def held(self, level: int) -> np.ndarray:
        """float64[G_l, leaves]: which leaves each geounit holds."""
        leaves, digits = self.lattice.codes[-1], self.lattice.spine.digits[level]
        owner = leaves.astype(f"S{digits}") if digits else np.full(len(leaves), b"0")
        return (self.lattice.codes[level][:, None] == owner[None, :]).astype(float)

    @classmethod
    def random(
        cls,
        lattice: Lattice,
        schema: Schema,
        measured: Sequence[Sequence[Query]],
        exact: Sequence[Sequence[Query]],
        seed: int,
        *,
        equal_noise: bool = False,
        make: TermsMaker = spine_terms,
        has_type: BoolArray | None = None,
    ) -> TreeCase:
        """Draw answers; `has_type` bool[leaves, t] says which types each leaf can have."""
        rng = np.random.default_rng(seed)
        terms = make(measured, exact)
        truth = rng.poisson(3.0, (len(lattice.codes[-1]), schema.size)).astype(float)
        if has_type is not None:
            truth[~has_type[:, terms[0].types.rows_of(np.arange(schema.size))]] = 0
        case = cls(lattice, terms, (), schema.size)
        depth = len(lattice.spine.levels)
        answers = []
        for level in range(depth):
            counts = case.held(level) @ truth
            only = lattice.is_only_child[level]
            ends = lattice.chain_end[level][~only]
            asked = terms[level].measured
            precisions = 10 ** rng.uniform(-1, 1, (depth, len(asked)))
            if equal_noise:
                order = (np.arange(len(asked)) + 2 * level) % len(asked)
                precisions = np.ones((depth, 1)) * (1.0 + order)
            noisy = tuple(
                counts[~only] @ dense_matrix(query).T
                + rng.normal(size=(len(ends), query.size)) / np.sqrt(precisions[ends, [q]])[:, None]
                for q, query in enumerate(asked)
            )
            stated = tuple(counts @ dense_matrix(query).T for query in terms[level].exact)
            starts = lattice.first_child[level - 1][:-1] if level else np.zeros(1, np.int64)
            kind, of_kind, is_last = ends, None, None
            if has_type is not None:
                held = (case.held(level)[~only] @ has_type) > 0
                pairs, kind = np.unique(np.column_stack([ends, held]), axis=0, return_inverse=True)
                precisions, of_kind, kind = precisions[pairs[:, 0]], pairs[:, 1:] > 0, kind.ravel()
                is_last = pairs[:, 0] == depth - 1
            answers.append(
                LevelAnswers(starts, only, noisy, stated, precisions, kind, of_kind, is_last)
            )
        return cls(lattice, terms, tuple(answers), schema.size, has_type)


def area_by_shares(case: TreeCase, found: TreeEstimate, inside: np.ndarray) -> Moments:
    """Estimate a set of leaves from the root down, cutting only what the area cuts."""
    depth = len(case.terms)

    def share(level: int, g: int) -> Share | str:
        leaves = case.held(level)[g] > 0
        if inside[leaves].all():
            return "whole"
        if not inside[leaves].any():
            return "none"
        first = case.lattice.first_child[level]
        rows = np.arange(first[g], first[g + 1])
        children = found.messages[level + 1].take(rows)
        shares = [share(level + 1, int(row)) for row in rows]
        if len(rows) == 1:
            return shares[0]
        cut = [
            CutChild(
                one,
                tuple(part[i] for part in children.values),
                tuple(part[children.kind[i]] for part in children.matrices),
            )
            for i, one in enumerate(shares)
            if isinstance(one, Share)
        ]
        whole = np.array([one == "whole" for one in shares])
        below = found.below[level].take(np.array([g]))
        return share_of_family(children, is_whole=whole, cut=cut, below=below)

    level, g = 0, 0
    while level + 1 < depth:  # the smallest geounit that holds the area
        first = case.lattice.first_child[level]
        rows = [
            row
            for row in range(first[g], first[g + 1])
            if inside[case.held(level + 1)[row] > 0].any()
        ]
        if len(rows) > 1:
            break
        level, g = level + 1, rows[0]
    holder = found.whole[level].take(np.array([g]))
    one = share(level, g)
    if one == "whole":
        matrices = tuple(part[holder.kind] for part in holder.matrices)
        return Moments(holder.values, matrices, np.zeros(1, np.int64))
    return estimate_share(one, holder)
