"""Microdata of strata: everybody's model, one of each stratum, and strata shrunk toward everybody.

    python -m bench.strata_synthesis [--quick] [--epsilons 0.1 1 5] [--seeds N]
    python -m bench.strata_synthesis --methods mst mst_strata mst_shrunk aim aim_strata aim_shrunk

ACS 2018, 227,658 persons, ten attributes; strata are sex by race whose share of a holdout exceeds
0.1 %, the rest pooled. The holdout gives the weights too, so they are public. `everybody` is the
mixture without strata, `strata` one mixture of each stratum at full rho (they are disjoint), and
`shrunk` everybody at two thirds of rho and every stratum at the other third. `shrunk_private` has no
public weights: a twentieth of rho counts the strata. `mst`, `mst_strata`, `mst_shrunk` are the same
three of MST, and so on.

- everyone: mean 3-way L1 error of all ten attributes.
- parity: Definition 11 with the 3-way error of the eight inner attributes; k = 15 strata or so.
- worst: the largest of its terms.
- means: Definition 11 of the means of the inner attributes, averaged over them.

Prints a table and one line of JSON, by default of the mixtures, with the ratio of `shrunk` to the
better of the other two.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np

from bench.synthesis import GEM, SMALL_AIM, release_aim, release_gem, release_mst
from das.confidential import Confidential
from das.mechanisms.entropy import NoiseKey, Streams
from das.privacy.accounting import rho_from_epsilon
from das.queries.sensitivity import Neighbors
from das.synthesis.adaptive import measure_adaptively, measure_chosen_strata, measure_tree
from das.synthesis.graphical import fit_model
from das.synthesis.measure import Spending, measure_marginals, measure_sizes, measure_strata
from das.synthesis.mixture import Fit, fit_products, synthesize
from das.synthesis.model import Fitter
from das.synthesis.records import Domain, Records
from das.synthesis.strata import Strata, synthesize_strata
from das.synthesis.targets import targets_of
from tests.builders.microdata import k_way_error, read_microdata

DELTA = Fraction(1, 10**9)
N_PRIVATE = 196_967  # as the state in the paper
ATTRIBUTES = ("SEX", "RAC1P")
ONE_BASED = ("MAR", "DIS", "DREM")  # codes of the survey, so that no mean is 0
MIXTURES = ("everybody", "strata", "shrunk")
GRAPHICAL: dict[str, Callable[[Records, Fraction, int, int], Records]] = {
    "mst": release_mst,
    "aim": release_aim,
    "gem": release_gem,
}
SHRUNK = (
    "shrunk_private",
    *(f"{name}_{way}" for name in GRAPHICAL for way in ("shrunk", "private")),
)
METHODS = (*MIXTURES, *GRAPHICAL, *(f"{name}_strata" for name in GRAPHICAL), *SHRUNK)


def data(seed: int) -> tuple[Records, Strata]:
    """Private records, and strata with the weights of the others."""
    every = read_microdata("acs_2018_public_coverage")
    order = np.random.default_rng(seed).permutation(len(every.codes))
    codes = every.codes[order]
    places = every.domain.positions(ATTRIBUTES)
    holdout = Records(every.domain, codes[N_PRIVATE:]).marginal(places)
    total = int(holdout.sum())
    strata = Strata.of(every.domain, ATTRIBUTES, holdout / total, 0.001, sample=total)
    return Records(every.domain, codes[:N_PRIVATE]), strata


def mixture(records: Records, rho: Fraction, key: NoiseKey, n: int, fit: Fit) -> Records:
    """Without strata."""
    measured = measure_marginals(
        Confidential(records),
        rho,
        Neighbors.UNBOUNDED,
        Streams(key),
        spending=Spending(pairs_again=0),
    )
    return synthesize(measured, targets_of(measured), fit, n, 1)


def one_by_one(
    records: Records, strata: Strata, rho: Fraction, seed: int, model: str | None = None
) -> Records:
    """A mixture, or graphical model, of every stratum with all of rho, by public shares."""
    domain = records.domain
    inner = strata.inner(domain)
    inside = Domain(tuple(domain.names[i] for i in inner), tuple(domain.sizes[i] for i in inner))
    stratum_of = strata.of_records(records.codes)
    parts = []
    for stratum, share in enumerate(strata.shares()):
        n = round(float(share) * len(records.codes))
        if not n:
            continue
        part = Records(inside, records.codes[stratum_of == stratum][:, inner])
        if model is None:
            key = NoiseKey.for_testing(seed, (stratum,))
            drawn = mixture(part, rho, key, n, Fit(starts=4))
        else:
            drawn = GRAPHICAL[model](part, rho, 1000 * (seed + 1) + stratum, n)
        holds = strata.groups == stratum
        labels = np.argwhere(holds)
        chances = strata.weights[holds] / strata.weights[holds].sum()
        rng = np.random.default_rng([seed, stratum])
        codes = np.empty((n, len(domain.names)), np.int64)
        codes[:, list(inner)] = drawn.codes
        codes[:, list(strata.attributes)] = labels[rng.choice(len(labels), n, p=chances)]
        parts.append(codes)
    return Records(domain, np.concatenate(parts))


def release(method: str, truth: Records, strata: Strata, rho: Fraction, seed: int) -> Records:
    """Microdata by one of the methods."""
    key, n = NoiseKey.for_testing(seed), len(truth.codes)
    if method == "everybody":
        return mixture(truth, rho, key, n, Fit())
    if method == "strata":
        return one_by_one(truth, strata, rho, seed)
    model, _, way = method.partition("_")
    if way == "strata":
        return one_by_one(truth, strata, rho, seed, model)
    if method in GRAPHICAL:
        return GRAPHICAL[method](truth, rho, seed, n)
    return shrunk(model, truth, None if way == "private" else strata, rho, seed)


def shrunk(model: str, truth: Records, strata: Strata | None, rho: Fraction, seed: int) -> Records:
    """Everybody and strata together; without strata their sizes are measured too."""
    data, streams, to = (
        Confidential(truth),
        Streams(NoiseKey.for_testing(seed)),
        Neighbors.UNBOUNDED,
    )
    rest, steps = rho, 1000 if model in ("mst", "aim") else 400
    fitter: Fitter = partial(fit_products, fit=Fit()) if model == "gem" else fit_model
    if strata is None:
        strata, sizes = measure_sizes(data, ATTRIBUTES, 0.001, rho / 20, to, streams)
        rest -= sizes.rho
    if model == "shrunk":
        measured = measure_strata(data, strata, rest, to, streams)
    else:
        part = rest * Spending().population
        everybody = (
            measure_tree(data, part, to, streams)
            if model == "mst"
            else measure_adaptively(data, part, to, streams, GEM if model == "gem" else SMALL_AIM)
        )
        measured = measure_chosen_strata(data, strata, everybody, rest - everybody.rho, to, streams)
    assert measured.rho == rest
    return synthesize_strata(measured, Fit(steps=steps), len(truth.codes), seed, fitter)


def evaluate(truth: Records, released: Records, strata: Strata) -> dict[str, float]:
    """All four numbers."""
    domain = truth.domain
    inner = strata.inner(domain)
    sizes = [domain.sizes[i] for i in inner]
    base = np.array([float(domain.names[i] in ONE_BASED) for i in inner])
    true_of, made_of = strata.of_records(truth.codes), strata.of_records(released.codes)
    errors, means = [], []
    for stratum in range(strata.n_strata):
        a = truth.codes[true_of == stratum][:, inner]
        b = released.codes[made_of == stratum][:, inner]
        if not len(a):
            continue
        b = b if len(b) else released.codes[:, inner]
        errors.append(k_way_error(a, b, sizes, 3))
        means.append(np.abs((a.mean(0) - b.mean(0)) / (a.mean(0) + base)).mean())
    k = len(errors)
    everyone = k_way_error(truth.codes, released.codes, domain.sizes, 3)
    a, b = truth.codes[:, inner].mean(0), released.codes[:, inner].mean(0)
    of_all = float(np.abs((a - b) / (a + base)).mean())
    return {
        "everyone": everyone,
        "parity": sum(errors) + everyone / k,
        "worst": max(errors),
        "means": float(sum(means)) + of_all / k,
    }


def table(
    epsilons: list[str], n_seeds: int, methods: list[str]
) -> dict[str, dict[str, dict[str, float]]]:
    """Print the table; mean over seeds of each number."""
    print("| epsilon | method | everyone | parity | worst | means | core seconds |")
    print("|---|---|---|---|---|---|---|")
    results: dict[str, dict[str, dict[str, float]]] = {}
    for epsilon in epsilons:
        rho = rho_from_epsilon(Fraction(epsilon), DELTA)
        results[epsilon] = {}
        for method in methods:
            rows = []
            for seed in range(n_seeds):
                truth, strata = data(seed)
                start = time.process_time()
                released = release(method, truth, strata, rho, seed)
                seconds = time.process_time() - start
                rows.append({**evaluate(truth, released, strata), "cpu_seconds": seconds})
            mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
            results[epsilon][method] = {key: round(value, 4) for key, value in mean.items()}
            cells = [
                f"{mean['everyone']:.4f}",
                *(f"{mean[key]:.2f}" for key in ("parity", "worst")),
            ]
            cells += [f"{mean['means']:.2f}", f"{mean['cpu_seconds']:.1f}"]
            print(f"| {epsilon} | {method} | " + " | ".join(cells) + " |", flush=True)
        found = results[epsilon]
        if not {*MIXTURES} <= {*found}:
            continue
        found["ratio"] = {
            key: round(found["shrunk"][key] / min(found["everybody"][key], found["strata"][key]), 3)
            for key in ("everyone", "parity", "worst", "means")
        }
    return results


def main() -> None:
    """Print the table and the line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--epsilons", nargs="+", default=["0.1", "1", "5"])
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*MIXTURES])
    arguments = parser.parse_args()
    n_seeds = arguments.seeds or (1 if arguments.quick else 4)
    found = table(arguments.epsilons, n_seeds, arguments.methods)
    print(json.dumps({"seeds": n_seeds, "synthesis": found}))


if __name__ == "__main__":
    main()
