"""Coverage of the intervals of the estimate stage over simulated releases.

    python -m bench.coverage [--releases N] [--quick]

A made state of 16 cells with irregular families and chains of only children is measured again and
again by `das.measure` with the budget and allocation of the 2020 redistricting persons, mapped to 16
cells, and estimated from all answers. An interval of an answer counts as covering when the true answer
lies in it; answers that the invariant fixes are left out. Prints a table and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from das.confidential import Confidential
from das.measure import measure
from das.mechanisms.entropy import NoiseKey, Streams
from das.privacy.budget import Budget
from das.queries.query import Query, parse_query
from das.queries.sensitivity import Neighbors
from das.strategy import noisy_queries
from das.tree.intervals import (
    central_intervals,
    normal_factor,
    positive_intervals,
    simultaneous_factor,
)
from das.tree.model import spine_terms
from geography.lattice import Lattice, Spine
from jobs.pipeline.config.allocation import load_allocation
from jobs.pipeline.config.schema import load_schema
from jobs.pipeline.config.workload import ZCDP_BOUNDED
from tests.builders.histograms import from_dense
from tests.checkout import ROOT
from tests.unit.das.tree.estimation_trees import LevelAnswers, estimate_tree

CONFIDENCE = 0.9
TABLES = ("total", "votingage", "ethnicity_race", "detailed")
SPINE = Spine(("state", "county", "tract", "block_group", "block"), (1, 2, 3, 4, 6))


@dataclass(frozen=True, eq=False)
class LevelErrors:
    """Errors of one table at one geolevel in all releases.

    Attributes:
      query: The table.
      errors: float64[releases, G, m], estimate less truth.
      standard_errors: float64[G, m].
      truth: float64[G, m].
    """

    query: Query
    errors: np.ndarray
    standard_errors: np.ndarray
    truth: np.ndarray


def made_lattice(seed: int) -> Lattice:
    """About a hundred blocks; some geounits are only children."""
    rng = np.random.default_rng(seed)
    leaves = []
    for county in range(3):
        for tract in range(int(rng.integers(1, 4))):
            for group in range(int(rng.integers(1, 4))):
                leaves += [
                    f"1{county}{tract}{group}{block:02d}"
                    for block in range(int(rng.integers(1, 12)))
                ]
    return Lattice.from_leaves(SPINE, leaves)


def simulate(releases: int, seed: int = 2020) -> dict[str, list[LevelErrors]]:
    """Measure and estimate the made state many times: geolevel -> errors of every table."""
    schema = load_schema(ROOT / "conf" / "schema" / "block16.yaml")
    path = ROOT / "conf" / "allocation" / "block16-2020-state.yaml"
    strategy = load_allocation(path, schema, SPINE, ZCDP_BOUNDED)
    budget = Budget(Fraction(293764, 114921), Fraction(1, 10**10), Neighbors.BOUNDED)
    lattice = made_lattice(seed)
    rng = np.random.default_rng(seed + 1)
    depth, n = len(SPINE.levels), schema.size
    profile = rng.dirichlet(np.full(n, 0.4))
    sizes = rng.gamma(0.7, 60, len(lattice.codes[-1])) * (rng.random(len(lattice.codes[-1])) > 0.3)
    truth = [rng.poisson(sizes[:, None] * profile).astype(np.int64)]
    for first in reversed(lattice.first_child):
        truth.insert(0, np.add.reduceat(truth[0], first[:-1], axis=0))
    total = parse_query(schema, "total")
    terms = spine_terms(
        [[entry.query for entry in level.queries] for level in strategy.levels],
        [[total], *([[]] * (depth - 1))],
    )
    streams = Streams(NoiseKey.for_testing(seed))
    answers = []
    for level in range(depth):
        only, ends = lattice.is_only_child[level], lattice.chain_end[level]
        measured = np.flatnonzero(~only)
        counts = np.tile(truth[level][measured], (releases, 1))
        rows = np.arange(releases * len(measured))
        noise = [noisy_queries(strategy, budget, level, end) for end in range(level, depth)]
        kind = ends[measured] - level
        noisy = [
            measure(
                Confidential(from_dense(counts)),
                query,
                mechanisms=[noise[k][index].mechanism for k in kind] * releases,
                stream=streams.open((level, index), rows),
            ).answers
            for index, query in enumerate(terms[level].measured)
        ]
        families = lattice.first_child[level - 1][:-1] if level else np.zeros(1, np.int64)
        size = len(only)
        answers.append(
            LevelAnswers(
                (np.arange(releases)[:, None] * size + families).ravel(),
                np.tile(only, releases),
                tuple(noisy),
                tuple(
                    np.tile(q.answer(from_dense(truth[level])), (releases, 1))
                    for q in terms[level].exact
                ),
                np.array([[1 / one.mechanism.variance() for one in row] for row in noise]),
                np.tile(kind, releases),
            )
        )
    found = estimate_tree(terms, answers).whole
    coordinates = terms[0].coordinates
    out: dict[str, list[LevelErrors]] = {}
    for level, name in enumerate(SPINE.levels):
        size = len(truth[level])
        for text in TABLES:
            query = parse_query(schema, text)
            exact = query.answer(from_dense(truth[level])).astype(float)
            values = coordinates.answer(query, found[level].values)
            errors = values.reshape(releases, size, -1) - exact
            variances = coordinates.variances(query, found[level].matrices)
            spread = np.sqrt(variances)[found[level].kind[:size]]
            out.setdefault(name, []).append(LevelErrors(query, errors, spread, exact))
    return out


def coverage(tables: Sequence[LevelErrors], scale: float = 1.0) -> float:
    """Share of answers with an error that their intervals cover, standard errors times scale."""
    inside, number = 0, 0
    for one in tables:
        kept = one.standard_errors > 1e-6
        found = central_intervals(
            one.errors, scale * one.standard_errors, normal_factor(CONFIDENCE)
        )
        covers = ((found.lower <= 0) & (found.upper >= 0))[:, kept]
        inside, number = inside + int(covers.sum()), number + covers.size
    return inside / number


def positive_coverage(tables: Sequence[LevelErrors]) -> float:
    """The same with intervals that know that counts are not negative."""
    inside, number = 0, 0
    for one in tables:
        kept = one.standard_errors > 1e-6
        found = positive_intervals(
            one.errors + one.truth,
            np.broadcast_to(one.standard_errors, one.errors.shape),
            normal_factor(CONFIDENCE),
        )
        covers = ((found.lower <= one.truth) & (found.upper >= one.truth))[:, kept]
        inside, number = inside + int(covers.sum()), number + covers.size
    return inside / number


def simultaneous_coverage(tables: Sequence[LevelErrors]) -> float:
    """Share of tables of one geounit all of whose answers are covered at once."""
    inside, number = 0, 0
    for one in tables:
        uncertain = one.standard_errors > 1e-6
        for g in np.flatnonzero(uncertain.any(axis=1)):
            kept = uncertain[g]
            factor = simultaneous_factor(CONFIDENCE, int(kept.sum()), int(kept.sum()))
            covers = np.abs(one.errors[:, g, kept]) <= factor * one.standard_errors[g, kept]
            inside, number = inside + int(covers.all(axis=1).sum()), number + len(covers)
    return inside / number


def main() -> None:
    """Simulate, print a table, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=int)
    parser.add_argument("--quick", action="store_true", help="500 releases instead of 2,000")
    arguments = parser.parse_args()
    releases = arguments.releases or (500 if arguments.quick else 2_000)
    found = simulate(releases)
    rows = {
        name: {
            "coverage": round(coverage(tables), 4),
            "positive": round(positive_coverage(tables), 4),
            "simultaneous": round(simultaneous_coverage(tables), 4),
        }
        for name, tables in found.items()
    }
    print(f"{'geolevel':<14}{'coverage':>10}{'positive':>10}{'at once':>10}")
    for name, row in rows.items():
        print(f"{name:<14}" + "".join(f"{value:>10.4f}" for value in row.values()))
    result = {
        "releases": releases,
        "confidence": CONFIDENCE,
        **rows,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
