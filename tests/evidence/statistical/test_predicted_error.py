"""Predicted errors are those of releases: noise of measure(), least squares, the truth subtracted.

Each ratio of a mean over releases to its prediction must be within CRITICAL standard errors of 1;
a prediction that is 5 % off in the error must not be.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from das.confidential import Confidential
from das.histograms import Histograms
from das.measure import measure
from das.mechanisms.entropy import NoiseKey, Streams
from das.privacy.budget import Budget
from das.queries.query import parse_query
from das.queries.sensitivity import Neighbors
from das.schema import Attribute, Recode, Schema
from das.strategy import LevelStrategy, QueryShare, Strategy, noisy_queries
from das.tree.classes import SubtreeClasses
from das.tree.errors import SpineModel, predict_errors
from das.tree.information import Information
from geography.lattice import Lattice, Spine
from tests.builders.strategies import dense_matrix

N_RELEASES = 2000
CRITICAL = 5.0  # two-sided level 6e-7 per comparison
SCHEMA = Schema(
    "s",
    (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))),
    (Recode("adult", "age", ("no", "yes"), (0, 1, 1)),),
)
# County 1 has blocks 11, 12, 13; county 2 is a chain; county 3 has blocks 31, 32.
LATTICE = Lattice.from_leaves(
    Spine(("state", "county", "block"), (0, 1, 2)), ["11", "12", "13", "20", "31", "32"]
)
MEASURED = tuple(parse_query(SCHEMA, text) for text in ("total", "sex * adult", "detailed"))
TABLES = tuple(parse_query(SCHEMA, text) for text in ("total", "adult", "sex * age", "prefix(age)"))
EXACT = ((MEASURED[0],), (), ())
SHARES = {"state": ("1/5", (1, 2, 3)), "county": ("1/2", (3, 1, 2)), "block": ("3/10", (1, 1, 4))}


def strategy() -> Strategy:
    return Strategy(
        tuple(
            LevelStrategy(
                name,
                Fraction(share),
                tuple(
                    QueryShare(q, Fraction(p, sum(parts)))
                    for q, p in zip(MEASURED, parts, strict=True)
                ),
            )
            for name, (share, parts) in SHARES.items()
        )
    )


BUDGET = Budget(Fraction(1, 2), Fraction(1, 10**10), Neighbors.BOUNDED)


@cache
def squared_errors(information: Information) -> dict[tuple[int, int], np.ndarray]:
    """(table, geolevel) -> float64[N_RELEASES]: mean squared error over answers and geounits."""
    n, leaves = SCHEMA.size, len(LATTICE.codes[-1])
    truth = np.random.default_rng(7).integers(0, 9, (leaves, n))
    streams = Streams(NoiseKey.for_testing(2020))
    rows = np.arange(N_RELEASES)
    blocks = []  # (held by leaves, noisy answers of all releases, matrix, precision)
    for level in range(3):
        for g in np.flatnonzero(~LATTICE.is_only_child[level]):
            code = LATTICE.codes[level][g].decode()
            held = np.array(
                [
                    code in ("0", leaf.decode()[: LATTICE.spine.digits[level]])
                    for leaf in LATTICE.codes[-1]
                ]
            )
            counts = truth[held].sum(axis=0)
            cells = np.flatnonzero(counts)
            stacked = Histograms(
                n,
                np.arange(N_RELEASES + 1) * len(cells),
                np.tile(cells, N_RELEASES),
                np.tile(counts[cells], N_RELEASES),
            )
            planned = noisy_queries(strategy(), BUDGET, level, int(LATTICE.chain_end[level][g]))
            for i, noisy in enumerate(planned):
                answers = measure(
                    Confidential(stacked),
                    noisy.query,
                    mechanisms=[noisy.mechanism] * N_RELEASES,
                    stream=streams.open((level, int(g), i), rows),
                ).answers
                blocks.append((level, g, held, answers, noisy))
    out = {}
    if information is Information.TREE:
        found = solve(blocks, leaves, truth.ravel(), EXACT[0])
        errors = (found - truth.ravel()).reshape(N_RELEASES, leaves, n)
    for level, (t, table) in itertools.product(range(3), enumerate(TABLES)):
        per_geounit = []
        for g in range(len(LATTICE.codes[level])):
            top, spot = level, g
            while LATTICE.is_only_child[top][spot]:
                top, spot = top - 1, int(LATTICE.parents[top][spot])
            mine = [block for block in blocks if block[:2] == (top, spot)]
            held = mine[0][2]
            if information is Information.TREE:
                wrong = errors[:, held].sum(axis=1)
            else:
                counts = truth[held].sum(axis=0)
                alone = [(0, 0, np.array([True]), *block[3:]) for block in mine]
                wrong = solve(alone, 1, counts, EXACT[top]) - counts
            per_geounit.append(((wrong @ dense_matrix(table).T) ** 2).mean(axis=1))
        out[t, level] = np.mean(per_geounit, axis=0)
    return out


def solve(blocks, n_leaves: int, truth: np.ndarray, exact) -> np.ndarray:
    """Dense least squares for every release, with exact answers of the root imposed."""
    rows, right, weights = [], [], []
    for _, _, held, answers, noisy in blocks:
        rows.append(np.kron(held[None, :].astype(float), dense_matrix(noisy.query)))
        right.append(answers)
        weights.append(np.full(answers.shape[1], 1 / noisy.mechanism.variance()))
    design, observed, weight = (
        np.concatenate(rows),
        np.concatenate(right, axis=1),
        np.concatenate(weights),
    )
    basis = np.eye(design.shape[1])
    for query in exact:
        known = np.kron(np.ones((1, n_leaves)), dense_matrix(query))
        basis = np.linalg.svd(known)[2][np.linalg.matrix_rank(known) :].T
    base = truth - basis @ (basis.T @ truth)  # what the invariant tells
    gram = basis.T @ (design.T * weight) @ design @ basis
    moved = (observed - design @ base) * weight @ design @ basis
    return base + np.linalg.solve(gram, moved.T).T @ basis.T


def predictions(information: Information) -> np.ndarray:
    tree = SubtreeClasses.of_tree([LATTICE.n_children(level) for level in range(3)])
    model = SpineModel(tree, MEASURED, EXACT, TABLES)
    precisions = np.array(
        [
            [
                1 / noisy.mechanism.variance()
                for noisy in noisy_queries(strategy(), BUDGET, c.first, c.last)
            ]
            for c in tree.chains
        ]
    )
    return predict_errors(model, precisions, information).mean


@pytest.mark.parametrize("information", Information)
def test_releases_have_the_predicted_error_and_not_another(information):
    predicted = predictions(information)
    rejected = 0
    for (t, level), squares in squared_errors(information).items():
        wanted = predicted[t, level]
        if wanted == 0:
            assert squares.max() < 1e-15
            continue
        error = squares.std(ddof=1) / np.sqrt(N_RELEASES)
        assert abs(squares.mean() - wanted) < CRITICAL * error, (TABLES[t].name, level)
        for off in (1.05**2, 1 / 1.05**2):
            rejected += abs(squares.mean() - off * wanted) > CRITICAL * error
    assert rejected >= 4  # of 22, those with many answers and geounits


def test_own_and_full_predictions_differ_by_what_releases_show():
    """So neither test above would pass with the other's prediction."""
    own, full = predictions(Information.GEOUNIT), predictions(Information.TREE)
    squares = squared_errors(Information.TREE)
    for t in range(len(TABLES)):
        error = squares[t, 1].std(ddof=1) / np.sqrt(N_RELEASES)
        assert abs(squares[t, 1].mean() - own[t, 1]) > CRITICAL * error
        assert full[t, 1] < own[t, 1]
