"""Survey microdata by every method: k-way errors, core seconds and memory.

    python -m bench.synthesis [--quick] [--data NAME] [--epsilons 1 5] [--seeds N]
    python -m bench.synthesis --methods mixture mst
    python -m bench.synthesis --data acs_2018_public_coverage --methods mixture aim gem hdmm_pgm
    python -m bench.synthesis --quick --mbi CHECKOUT [--steps 1000]

Adult (48,842 records, 15 attributes, 4 x 10^16 cells) unless another file of tests/data is named. Each
release is of the stated epsilon at delta 10^-9 by zCDP, unbounded neighbors, and as many records as
the truth. Errors are mean L1 distances of shares over all pairs and triples. Every release is made
in a process of its own with one thread, so seconds are of one core from noise to records, and the
peak is of the whole process (0.15 GB of it imports). Seeds are 0, 1, ...; none is chosen.

`aim` is AIM with a model of 1 MB and 50 steps a round, which takes longer than the mixture;
`aim_official`, in full runs only, has the size of its authors, one seed, and is stopped at the limit.
`aim_mbi` is that of ryan112358/private-pgm in the size of `aim`, with the same rho, from a checkout
that the reader makes: one before its change from numpy to jax (514dea3, 2024-11-09) if there is no
jax. Of the packages hdmm and autodp, which it imports and hardly uses, stand-ins are made.
`hdmm_pgm` has one clique of all cells, so it needs data of few cells; Adult is too large.

Prints a table, mean and standard error over seeds, and one line of JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import resource
import subprocess
import sys
import time
import types
import warnings
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse

from das.confidential import Confidential
from das.mechanisms.entropy import NoiseKey, Streams
from das.privacy.accounting import rho_from_epsilon
from das.queries.sensitivity import Neighbors
from das.synthesis.adaptive import AdaptiveRounds, measure_adaptively, measure_tree
from das.synthesis.graphical import fit_model
from das.synthesis.measure import Spending, measure_marginals, measure_plan
from das.synthesis.mixture import Fit, fit_products, synthesize
from das.synthesis.model import synthesize_chosen
from das.synthesis.records import ChosenMarginals, Merging, Records
from das.synthesis.targets import targets_of
from das.workload.choices import Method
from das.workload.plan import plan_workload
from das.workload.workload import AttributeWorkload, Workload
from tests.builders.microdata import k_way_error, read_microdata
from tests.checkout import ROOT

DELTA = Fraction(1, 10**9)
MBI, STEPS = "BENCH_MBI", "BENCH_STEPS"  # tell the checkout and --steps to the process of a release
# A model of 1 MB and 50 steps a round take as many core seconds as the mixture, or more.
SMALL_AIM = AdaptiveRounds(most_megabytes=1.0, steps=int(os.environ.get(STEPS, "50")))
GEM = AdaptiveRounds(steps=50, fitter=fit_products)


def release_mixture(truth: Records, rho: Fraction, seed: int) -> Records:
    """All one- and two-way residuals, and the mixture."""
    measured = measure_marginals(
        Confidential(truth),
        rho,
        Neighbors.UNBOUNDED,
        Streams(NoiseKey.for_testing(seed)),
        spending=Spending(),
    )
    return synthesize(measured, targets_of(measured), Fit(), len(truth.codes), seed)


def release_mst(truth: Records, rho: Fraction, seed: int, n: int | None = None) -> Records:
    """A tree of pairs, and the graphical model; n records, by default as many as the truth."""
    streams = Streams(NoiseKey.for_testing(seed))
    measured = measure_tree(Confidential(truth), rho, Neighbors.UNBOUNDED, streams)
    return synthesize_chosen(measured, fit_model, 1000, n or len(truth.codes), seed)


def release_aim(
    truth: Records,
    rho: Fraction,
    seed: int,
    n: int | None = None,
    rounds: AdaptiveRounds = SMALL_AIM,
) -> Records:
    """Marginals selected in rounds, and the graphical model; n as for `release_mst`."""
    streams = Streams(NoiseKey.for_testing(seed))
    measured = measure_adaptively(Confidential(truth), rho, Neighbors.UNBOUNDED, streams, rounds)
    return synthesize_chosen(measured, fit_model, 1000, n or len(truth.codes), seed)


def release_official_aim(truth: Records, rho: Fraction, seed: int) -> Records:
    """AIM in the size of its authors: 80 MB, 1000 steps a round. Hours."""
    return release_aim(truth, rho, seed, rounds=AdaptiveRounds())


def release_gem(truth: Records, rho: Fraction, seed: int, n: int | None = None) -> Records:
    """Marginals selected in rounds, and mixtures of products; n as for `release_mst`."""
    streams = Streams(NoiseKey.for_testing(seed))
    measured = measure_adaptively(Confidential(truth), rho, Neighbors.UNBOUNDED, streams, GEM)
    fitter = partial(fit_products, fit=Fit(), seed=seed)
    return synthesize_chosen(measured, fitter, Fit().steps, n or len(truth.codes), seed)


def release_hdmm_pgm(truth: Records, rho: Fraction, seed: int) -> Records:
    """All marginals on up to three attributes by HDMM's plan, and one graphical model of all cells."""
    domain = truth.domain
    attributes = list(map(AttributeWorkload.identity, domain.names, domain.sizes))
    plan = plan_workload(Workload.k_way(attributes, range(4)), Method.HDMM).measure_exactly(rho)
    answers = measure_plan(Confidential(truth), plan, Streams(NoiseKey.for_testing(seed)))
    whole = Merging(tuple(np.arange(size) for size in domain.sizes), domain.sizes)
    measured = ChosenMarginals(domain, whole, (), (), answers)
    return synthesize_chosen(measured, fit_model, 100, len(truth.codes), seed)


def release_mbi_aim(truth: Records, rho: Fraction, seed: int) -> Records:
    """AIM of private-pgm, in the size of `aim`: marginals of three, 1 MB, as many steps a round."""
    checkout = os.environ[MBI]
    sys.path[:0] = [checkout, f"{checkout}/src", f"{checkout}/mechanisms"]
    for name in ("hdmm", "hdmm.matrix", "autodp"):
        sys.modules[name] = types.ModuleType(name)
    vars(sys.modules["hdmm.matrix"])["Identity"] = lambda n: sparse.identity(n, format="csr")
    vars(sys.modules["autodp"])["privacy_calibrator"] = None
    warnings.simplefilter("ignore", FutureWarning)
    from aim import AIM  # type: ignore[import-not-found]
    from mbi import Dataset, Domain  # type: ignore[import-not-found]

    names = list(truth.domain.names)
    data = Dataset(
        pd.DataFrame(truth.codes, columns=names), Domain(names, list(truth.domain.sizes))
    )
    np.random.seed(seed)  # noqa: NPY002 - it draws from the generator of the process
    size = {"max_model_size": SMALL_AIM.most_megabytes, "max_iters": SMALL_AIM.steps}
    mechanism = AIM(1.0, float(DELTA), **size)
    mechanism.rho = float(rho)
    workload = [(three, 1.0) for three in itertools.combinations(names, SMALL_AIM.order)]
    _, drawn = mechanism.run(data, workload, num_synth_rows=len(truth.codes))
    return Records(truth.domain, drawn.df[names].to_numpy(np.int64))


METHODS: dict[str, Callable[[Records, Fraction, int], Records]] = {
    "mixture": release_mixture,
    "mst": release_mst,
    "aim": release_aim,
    "aim_official": release_official_aim,
    "gem": release_gem,
    "hdmm_pgm": release_hdmm_pgm,
    "aim_mbi": release_mbi_aim,
}
QUICK = ("mixture", "mst", "aim")


def one_release(name: str, method: str, epsilon: str, seed: int) -> dict[str, float]:
    """Make a release in this process and measure it."""
    truth = read_microdata(name)
    rho = rho_from_epsilon(Fraction(epsilon), DELTA)
    start = time.process_time()
    released = METHODS[method](truth, rho, seed)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    sizes = truth.domain.sizes
    errors = [k_way_error(truth.codes, released.codes, sizes, k) for k in (3, 2)]
    return {
        "three_way_l1": errors[0],
        "two_way_l1": errors[1],
        "cpu_seconds": seconds,
        "peak_gb": peak,
    }


def in_own_process(limit: float, *what: str) -> dict[str, float] | None:
    """`one_release` in a process with one thread; None if it took longer than the limit."""
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}
    command = [sys.executable, "-m", "bench.synthesis", "--one", *what]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | threads,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        raise SystemExit(f"{' '.join(what)} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def summary(epsilon: str, method: str, found: list[dict[str, float]]) -> dict[str, float]:
    """Print a row of the table, with standard errors of errors; means over seeds."""
    columns = {key: np.array([each[key] for each in found]) for key in found[0]}
    cells = []
    for key, digits in zip(columns, (4, 4, 1, 2), strict=True):
        text = ""
        if len(found) > 1 and key.endswith("l1"):
            text = f" ± {columns[key].std(ddof=1) / len(found) ** 0.5:.{digits}f}"
        cells.append(f"{columns[key].mean():.{digits}f}{text}")
    print(f"| {epsilon} | {method} | " + " | ".join(cells) + " |", flush=True)
    return {key: round(float(column.mean()), 4) for key, column in columns.items()}


def main() -> None:
    """Print the table and the line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="epsilon 1 and 5, two seeds")
    parser.add_argument("--data", default="adult", help="a file of tests/data")
    parser.add_argument("--epsilons", nargs="+")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS))
    parser.add_argument("--limit", type=float, default=3600, help="seconds of one release")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--mbi", metavar="CHECKOUT", help="of ryan112358/private-pgm")
    parser.add_argument("--steps", default="50", help="of AIM's fit after each round")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, method, epsilon, seed = arguments.one
        with contextlib.redirect_stdout(io.StringIO()):  # others print as they go
            found = one_release(name, method, epsilon, int(seed))
        print(json.dumps(found))
        return
    epsilons = arguments.epsilons or (["1", "5"] if arguments.quick else ["0.1", "0.5", "1", "5"])
    n_seeds = arguments.seeds or (2 if arguments.quick else 5)
    methods = arguments.methods or [*QUICK, *(() if arguments.quick else ("aim_official", "gem"))]
    os.environ[STEPS] = arguments.steps
    if arguments.mbi:
        os.environ[MBI] = str(Path(arguments.mbi).resolve())
        methods = [*dict.fromkeys([*methods, "aim_mbi"])]
    results: dict[str, dict[str, dict[str, float]]] = {}
    print("| epsilon | method | 3-way | 2-way | core seconds | peak GB |")
    print("|---|---|---|---|---|---|")
    for epsilon in epsilons:
        results[epsilon] = {}
        for method in methods:
            found = []
            for seed in range(1 if method == "aim_official" else n_seeds):
                what = (arguments.data, method, epsilon, str(seed))
                done = in_own_process(arguments.limit, *what)
                if done is None:
                    break
                found.append(done)
            else:
                results[epsilon][method] = summary(epsilon, method, found)
                continue
            print(f"| {epsilon} | {method} | stopped after {arguments.limit:.0f} s |", flush=True)
            results[epsilon][method] = {"stopped_after_seconds": arguments.limit}
    print(json.dumps({"seeds": n_seeds, "synthesis": results}))


if __name__ == "__main__":
    main()
