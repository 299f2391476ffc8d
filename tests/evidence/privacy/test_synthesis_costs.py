"""What measuring for microdata costs between any two neighbors, added up answer by answer.

The oracle takes every noisy answer as a row of exact integers, for each of all cells: what two data
sets differ by in it, squared, over twice the variance of its noise. Selections of a model that
grows in rounds cost what their mechanism states.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from das.confidential import Confidential
from das.mechanisms.entropy import NoiseKey, Streams
from das.queries.sensitivity import Neighbors
from das.synthesis.adaptive import AdaptiveRounds, measure_adaptively, measure_tree
from das.synthesis.measure import Spending, measure_marginals, measure_strata
from das.synthesis.records import Domain, Records
from das.synthesis.strata import Strata

Cell = tuple[int, ...]
Columns = list[tuple[Fraction, dict[Cell, Any]]]  # weight, and per cell what a record adds


def added(
    answers: Sequence[Any],
    codes: Callable[[Cell], Cell | None],
    sizes: Sequence[int],
    of: list[Cell],
) -> Columns:
    """What one record of each cell adds to answers; zeros where they do not count it."""
    found: Columns = []
    for answer in answers:
        matrix = np.array([[1]], dtype=object)
        for factor in answer.query.factors:
            matrix = np.kron(matrix, factor.matrix.astype(object))
        columns = {}
        for cell in of:
            own = codes(cell)
            index = None if own is None else int(np.ravel_multi_index(own, tuple(sizes)))
            columns[cell] = 0 * matrix[:, 0] if index is None else matrix[:, index]
        found.append((1 / (2 * answer.mechanism.sigma_sq), columns))
    return found


@pytest.mark.parametrize("neighbors", Neighbors)
@pytest.mark.parametrize("kind", ["mixture", "strata", "tree", "adaptive"])
@pytest.mark.parametrize("seed", range(3))
def test_no_two_neighbors_differ_by_more_than_was_paid(kind, neighbors, seed):
    rng = random.Random(f"{kind} {neighbors} {seed}")
    sizes = tuple(rng.randint(2, 3) for _ in range(rng.randint(3, 4)))
    domain = Domain(tuple(f"x{i}" for i in range(len(sizes))), sizes)
    n = rng.choice((3, 40, 400))
    codes = np.array([[rng.randrange(size) for size in sizes] for _ in range(n)], np.int64)
    truth, streams = Confidential(Records(domain, codes)), Streams(NoiseKey.draw())
    rho = Fraction(rng.randint(1, 30), rng.choice((1, 10, 1000)))
    cells = [*itertools.product(*map(range, sizes))]
    selected, within = Fraction(0), None
    if kind == "mixture":
        everybody = measure_marginals(
            truth,
            rho,
            neighbors,
            streams,
            spending=Spending(pairs_again=rng.choice((0, 2))),
        )
    elif kind == "strata":
        strata = Strata.of(domain, ["x0"], np.full(sizes[0], 1 / sizes[0]))
        share = Spending(population=Fraction(rng.randint(1, 9), 10))
        within = measure_strata(truth, strata, rho, neighbors, streams, share)
        everybody = within.population
    elif kind == "tree":
        everybody = measure_tree(truth, rho, neighbors, streams)
    else:
        rounds = AdaptiveRounds(order=2, rounds_per_attribute=2, steps=5)
        everybody = measure_adaptively(truth, rho, neighbors, streams, rounds)
    merged = everybody.merging.sizes()

    def kept(cell: Cell) -> Cell:
        new = everybody.merging.new_level
        return tuple(int(new[i][level]) for i, level in enumerate(cell))

    columns = added(everybody.one_way, lambda cell: cell, sizes, cells)
    if kind in ("tree", "adaptive"):
        columns += added(everybody.marginals, kept, merged, cells)
        selected = sum((one.mechanism.rho for one in everybody.selections), Fraction(0))
    else:
        columns += added((*everybody.residuals, *everybody.again), kept, merged, cells)
    if within is not None:
        inner = strata.inner(domain)
        for number, answers in enumerate(within.inside):

            def of_stratum(cell: Cell, number: int = number) -> Cell | None:
                own = tuple(kept(cell)[i] for i in inner)
                return own if cell[0] == number else None

            columns += added(answers, of_stratum, [merged[i] for i in inner], cells)
    pairs = itertools.combinations(cells, 2)
    if neighbors is Neighbors.UNBOUNDED:
        pairs = ((None, cell) for cell in cells)
    worst = max(
        sum(
            (
                weight * sum(int(x) ** 2 for x in at[other] - (0 if one is None else at[one]))
                for weight, at in columns
            ),
            Fraction(0),
        )
        for one, other in pairs
    )
    assert worst + selected <= rho
    assert worst + selected > rho * Fraction(1, 4)  # the oracle sees what was paid for
