"""Marginals of wide tables: how long planning, measuring and reconstructing take, and whether errors are as stated.

    python -m bench.marginals [--quick] [--records N] [--ways K]

Prints one line of JSON: shape -> cells of the table, marginals, noisy answers, seconds, and the largest |error| over the
stated standard error of 200 answers drawn at random; for normal errors it is above 4.3 in 1 of 300 runs. Shapes are
those of the tables of ResidualPlanner+ (CPS, Adult, Loans), records are uniform, all tables of up to K attributes are
planned for the sum of variances at rho 1/2. Synthetic shapes, d attributes of 10 levels with plain or range marginals
of up to 3, have `ratio_to_printed_time`: our CPU seconds, one thread, over the seconds printed in the tables 2, 3, 6
and 7 for 12 threads. `--quick` plans tables of up to 2 attributes, leaves d = 100 out, and adds small samples of
`bench.planned` (key `lattice`) and `bench.integer_gap`.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import time
from fractions import Fraction

import numpy as np

from bench import integer_gap, planned
from bench.accuracy import DATA, blocks_of
from bench.studies.matrix_mechanisms_published import PAPER_SECONDS, SIZES
from bench.studies.matrix_mechanisms_times import times_of
from das.confidential import Confidential
from das.mechanisms.entropy import NoiseKey, Streams
from das.queries.factor import identity, total
from das.queries.query import Query
from das.queries.sensitivity import Neighbors
from das.synthesis.measure import measure_plan
from das.synthesis.records import Domain, Records
from das.workload.plan import Method, plan_workload
from das.workload.residual.products import answer_product, product_variances, read_residuals
from das.workload.workload import AttributeWorkload, BaseKind, Weighting, Workload

ANSWERS = 200


def table(sizes: tuple[int, ...], members: tuple[int, ...]) -> Query:
    """A plain marginal as a query over all attributes."""
    levels = [tuple(map(str, range(size))) for size in sizes]
    factors = [identity(each) if i in members else total(each) for i, each in enumerate(levels)]
    return Query(" * ".join(f"a{i}" for i in members), tuple(factors))


def bench(sizes: tuple[int, ...], ways: int, n_records: int, seed: int) -> dict[str, object]:
    """One shape: plan, measure, reconstruct every table, compare some answers with the truth."""
    rng = np.random.default_rng(seed)
    names = tuple(f"a{i}" for i in range(len(sizes)))
    records = Records(
        Domain(names, sizes), np.stack([rng.integers(0, n, n_records) for n in sizes], 1)
    )
    times = [time.perf_counter()]
    attributes = [
        AttributeWorkload.identity(name, size) for name, size in zip(names, sizes, strict=True)
    ]
    workload = Workload.k_way(attributes, range(ways + 1), Weighting.EQUAL)
    plan = plan_workload(workload, Method.RESIDUAL_PLANNER, neighbors=Neighbors.UNBOUNDED)
    exact = plan.measure_exactly(Fraction(1, 2))
    times.append(time.perf_counter())
    measured = measure_plan(Confidential(records), exact, Streams(NoiseKey.for_testing(seed)))
    times.append(time.perf_counter())
    stated = [
        (one.query, float(one.mechanism.continuous_variance), one.answers) for one in measured
    ]
    residuals = read_residuals(names, stated)
    tables = workload.marginals.rows
    chosen = rng.choice(len(tables), ANSWERS)
    scores = []
    for index, members in enumerate(tables):
        query = table(sizes, members)
        estimates = answer_product(residuals, query)
        places = rng.integers(0, query.size, int((chosen == index).sum()))
        if len(places):
            truth = records.answer(query)[places]
            errors = np.sqrt(product_variances(residuals.plan, query)[places])
            scores += (np.abs(estimates[places] - truth) / errors).tolist()
    times.append(time.perf_counter())
    planning, measuring, reconstructing = np.diff(times).tolist()
    return {
        "cells": math.prod(sizes),
        "marginals": len(tables),
        "answers": sum(len(one.answers) for one in measured),
        "plan_seconds": round(planning, 3),
        "measure_seconds": round(measuring, 3),
        "reconstruct_seconds": round(reconstructing, 3),
        "largest_z": round(max(scores), 3),
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def ratios(counts: list[int]) -> dict[str, dict[str, object]]:
    """Our seconds over the printed ones, by shape and phase."""
    out: dict[str, dict[str, object]] = {}
    phases = ("select_sum", "select_largest", "reconstruct")
    for count in counts:
        for kind, printed in zip(
            (BaseKind.IDENTITY, BaseKind.RANGES), PAPER_SECONDS[count], strict=True
        ):
            pairs = zip(phases, times_of(kind, count), printed, strict=True)
            known = {
                name: round(ours / theirs, 3) for name, ours, theirs in pairs if ours and theirs
            }
            out[f"{count} x 10, {kind}"] = {"ratio_to_printed_time": known}
    return out


def main() -> None:
    """Bench all shapes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--ways", type=int, default=3)
    given = parser.parse_args()
    ways = min(given.ways, 2) if given.quick else given.ways
    shapes = {
        name: bench(tuple(sizes), ways, given.records, seed)
        for seed, (name, sizes) in enumerate(SIZES.items())
    }
    shapes |= ratios([10, 30] if given.quick else [*PAPER_SECONDS])
    found: dict[str, object] = {"ways": ways, "records": given.records, "shapes": shapes}
    if given.quick:
        found["lattice"] = planned.bench(blocks_of("ri", DATA), range(2))["lattice"]
        found["integer_gap"] = integer_gap.bench(5, 10.0, 400)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
