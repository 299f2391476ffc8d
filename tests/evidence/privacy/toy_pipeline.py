"""Measure and solve two blocks and their parent, many independent times, with the real functions.

Each run has rows of its own, hence noise of its own: so many runs share one call of measure().
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np

from das.confidential import Confidential
from das.measure import measure
from das.mechanisms.entropy import NoiseKey, Stream, Streams
from das.privacy.budget import Budget
from das.queries.query import parse_query
from das.schema import Attribute, Schema
from das.strategy import LevelStrategy, NoisyQuery, QueryShare, Strategy, noisy_queries
from solvers.node import NodeSettings, solve_node
from solvers.problem import LeastSquaresTerm, NodeProblem, RoundingQuery
from tests.builders.histograms import from_dense

SCHEMA = Schema("toy", (Attribute("kind", ("a", "b")),))
CELLS = np.arange(SCHEMA.size)
TOTAL, DETAILED = (parse_query(SCHEMA, text) for text in ("total", "detailed"))
STRATEGY = Strategy(
    (
        LevelStrategy("state", Fraction(1, 10), (QueryShare(DETAILED, Fraction(1)),)),
        LevelStrategy(
            "block",
            Fraction(9, 10),
            (QueryShare(TOTAL, Fraction(1, 2)), QueryShare(DETAILED, Fraction(1, 2))),
        ),
    )
)
# One person of kind a in the first block becomes one of kind b in the second.
ONE = np.array([[1, 2], [2, 0]])
OTHER = np.array([[0, 2], [2, 1]])

Measure = Callable[[np.ndarray, NoisyQuery, Stream], np.ndarray]


def honest(counts: np.ndarray, noisy: NoisyQuery, stream: Stream) -> np.ndarray:
    """int64[geounits, answers], as the measuring stage does it."""
    truth = Confidential(from_dense(counts))
    laws = [noisy.mechanism] * len(stream)
    return measure(truth, noisy.query, mechanisms=laws, stream=stream).answers


def half_as_loud(counts, noisy, stream) -> np.ndarray:
    """Noise of half the standard deviation."""
    parameter = {"discrete_gaussian": Fraction(1, 4), "discrete_laplace": Fraction(1, 2)}
    factor = parameter[noisy.mechanism.kind]
    quiet = type(noisy.mechanism)(noisy.mechanism.parameter * factor)
    return honest(counts, replace(noisy, mechanism=quiet), stream)


def one_stream(counts, noisy, stream) -> np.ndarray:
    """Queries of a geounit share one stream of noise."""
    shared = Streams(NoiseKey.for_testing(99)).open((0,), stream.rows)
    return honest(counts, noisy, shared)


def exact_zeros(counts, noisy, stream) -> np.ndarray:
    """Noise that depends on the data: none where nobody is."""
    exact = noisy.query.answer(from_dense(counts))
    return np.where(exact == 0, 0, honest(counts, noisy, stream))


def measured(
    blocks: np.ndarray, runs: int, budget: Budget, seed: int, measure_one: Measure
) -> list[np.ndarray]:
    """Noisy answers per query, float64[runs, answers of all geounits of its level]."""
    out = []
    for level, counts in enumerate((blocks.sum(0, keepdims=True), blocks)):
        streams = Streams(NoiseKey.for_testing(seed, (level,)))  # each geolevel has its own key
        rows = np.arange(runs * len(counts))
        repeated = np.tile(counts, (runs, 1))
        for number, noisy in enumerate(noisy_queries(STRATEGY, budget, level, level)):
            answers = measure_one(repeated, noisy, streams.open((number,), rows))
            out.append(answers.reshape(runs, -1).astype(float))
    return out


def released(answers: list[np.ndarray], budget: Budget) -> np.ndarray:
    """All that is released, float64[runs, k]: the noisy answers and the counts solved from them."""
    runs = len(answers[0])
    (state,) = noisy_queries(STRATEGY, budget, 0, 0)
    total, detailed = noisy_queries(STRATEGY, budget, 1, 1)

    @cache
    def root(noisy: tuple[float, ...]) -> np.ndarray:
        return solve(None, [(state, np.array([noisy]))])[0]

    @cache
    def family(parent: tuple[int, ...], totals: tuple[float, ...], cells: tuple[float, ...]):
        terms = [(total, np.reshape(totals, (2, 1))), (detailed, np.reshape(cells, (2, 2)))]
        return solve(np.array(parent), terms).ravel()

    counts = []
    for run in range(runs):
        at_state, totals, cells = (tuple(one[run]) for one in answers)
        parent = root(at_state)
        counts.append(family(tuple(parent.tolist()), totals, cells))
    return np.concatenate([*answers, np.array(counts, float)], axis=1)


def solve(parent: np.ndarray | None, measurements: list[tuple[NoisyQuery, np.ndarray]]):
    """int64[children, cells], by the node problem of these measurements."""
    children = len(measurements[0][1])
    live = CELLS if parent is None else np.flatnonzero(parent)
    out = np.zeros((children, SCHEMA.size), np.int64)
    if not len(live):
        return out
    terms, every = [], []
    for noisy, answers in measurements:
        present, groups = np.unique(noisy.query.rows_of(live), return_inverse=True)
        weight = 1.0 / float(noisy.mechanism.continuous_variance)
        terms.append(LeastSquaresTerm(groups, answers[:, present], np.full(children, weight)))
    for query in (TOTAL, DETAILED):
        every.append(RoundingQuery(np.unique(query.rows_of(live), return_inverse=True)[1]))
    problem = NodeProblem(
        "toy",
        len(live),
        None if parent is None else parent[live],
        tuple(terms),
        (),
        (tuple(every),),
    )
    out[:, live] = solve_node(problem, NodeSettings(1e-6)).counts
    return out
