"""Means by strata: error for everybody, and parity between strata.

    python -m bench.strata [--quick] [--runs N] [--splits N]

First on synthetic mixtures, then on columns of a survey (`column_means`), last microdata of strata
(`strata_synthesis`). For each setting the same records are estimated by one mean for everybody (Coinpress), by strata
(StratCoinpress), by strata with weights of as many public records (PubStratCoinpress), by strata
whose intervals are intersected, and by these shrunk toward one another. Values are counted in
thousandths, noise is exact and discrete, neighbors change a record.

Error is |estimate - mean of the private records|. Parity error is (1/k) of the relative error of
everybody plus the sum of the relative errors of the strata (Rosenblatt, Stoyanovich & Musco,
Definition 11); it grows with k, so k stands beside it. Mean and standard error of the first,
median of the second. `REFERENCE` was computed by another program, with continuous normal noise and
other draws; z is the difference of the error in standard errors of both.

Prints three tables and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from fractions import Fraction

import numpy as np

from bench import strata_synthesis
from bench.column_means import compare
from das.confidential import Confidential
from das.means.estimates import Column, Steps, Strata, shrink
from das.means.measure import StratumValues, estimate_means
from das.mechanisms.entropy import NoiseKey, Streams
from das.metrics.parity import parity_error
from das.queries.sensitivity import Neighbors

UNIT = 1000
# n private records, strata, concentration of their sizes, rho.
QUICK = ((4000, 3, 0.3, "1/2"), (10_000, 12, 1.0, "1/2"), (10_000, 6, 0.3, "1/8"))
SETTINGS = (
    *((n, 3, 0.3, "1/2") for n in (2000, 4000, 6000, 8000, 10_000, 20_000)),
    *((10_000, k, 0.3, "1/2") for k in (6, 12, 24)),
    *((10_000, 12, alpha, "1/2") for alpha in (0.1, 1.0, 3.0, 10.0)),
    *((10_000, 6, 0.3, rho) for rho in ("1/200", "1/50", "1/8", "2")),
)
METHODS = ("coinpress", "strata", "public", "intersected", "shrunk")
# n, k, alpha, rho to the error for everybody and its standard error in 50 runs: of coinpress,
# strata, public, intersected.
REFERENCE = {
    (2000, 3, 0.3, "1/2"): ((0.0064, 0.0008), (0.0142, 0.002), (0.023, 0.0023), (0.0073, 0.0008)),
    (4000, 3, 0.3, "1/2"): ((0.0034, 0.0003), (0.0104, 0.0019), (0.0188, 0.0037), (0.0034, 0.0004)),
    (6000, 3, 0.3, "1/2"): ((0.0023, 0.0003), (0.0046, 0.001), (0.0101, 0.0016), (0.0032, 0.0003)),
    (8000, 3, 0.3, "1/2"): ((0.0019, 0.0002), (0.0046, 0.001), (0.0099, 0.0018), (0.0107, 0.0068)),
    (10000, 3, 0.3, "1/2"): (
        (0.0012, 0.0001),
        (0.0047, 0.0011),
        (0.0111, 0.0025),
        (0.0015, 0.0002),
    ),
    (20000, 3, 0.3, "1/2"): (
        (0.0007, 0.0001),
        (0.0012, 0.0002),
        (0.0034, 0.0007),
        (0.0009, 0.0001),
    ),
    (10000, 6, 0.3, "1/2"): (
        (0.0014, 0.0001),
        (0.0085, 0.0013),
        (0.0128, 0.0024),
        (0.0022, 0.0002),
    ),
    (10000, 12, 0.3, "1/2"): ((0.0016, 0.0002), (0.0103, 0.0014), (0.02, 0.0024), (0.0039, 0.0005)),
    (10000, 24, 0.3, "1/2"): (
        (0.0016, 0.0002),
        (0.0198, 0.0019),
        (0.0307, 0.0038),
        (0.005, 0.0005),
    ),
    (10000, 12, 0.1, "1/2"): ((0.0012, 0.0001), (0.0224, 0.0024), (0.041, 0.0053), (0.003, 0.0003)),
    (10000, 12, 1.0, "1/2"): (
        (0.0014, 0.0002),
        (0.0034, 0.0006),
        (0.0127, 0.0019),
        (0.0048, 0.0007),
    ),
    (10000, 12, 3.0, "1/2"): (
        (0.0015, 0.0002),
        (0.0029, 0.0004),
        (0.0112, 0.0012),
        (0.003, 0.0003),
    ),
    (10000, 12, 10.0, "1/2"): (
        (0.0013, 0.0002),
        (0.0033, 0.0004),
        (0.0101, 0.0014),
        (0.0033, 0.0005),
    ),
    (10000, 6, 0.3, "1/200"): (
        (0.0143, 0.0015),
        (0.7258, 0.1341),
        (0.8643, 0.2163),
        (0.0231, 0.0027),
    ),
    (10000, 6, 0.3, "1/50"): (
        (0.0071, 0.0007),
        (0.1847, 0.0335),
        (0.2205, 0.0543),
        (0.0115, 0.0014),
    ),
    (10000, 6, 0.3, "1/8"): ((0.0028, 0.0003), (0.0312, 0.0054), (0.039, 0.0088), (0.0044, 0.0005)),
    (10000, 6, 0.3, "2"): ((0.0007, 0.0001), (0.0025, 0.0003), (0.0071, 0.001), (0.0011, 0.0001)),
}


def mixture(n: int, k: int, concentration: float, rng: np.random.Generator):
    """Values and strata of n records: Dirichlet sizes, means N(0, 1), spreads U(0.1, 2)."""
    shares = rng.dirichlet(np.full(k, concentration))
    sizes = np.maximum(np.round(shares * n).astype(int), 2)
    sizes[np.argmax(sizes)] += n - sizes.sum()
    means, spreads = rng.normal(0, 1, k), rng.uniform(0.1, 2, k)
    strata = np.repeat(np.arange(k), sizes)
    order = rng.permutation(n)
    return rng.normal(means[strata], spreads[strata])[order], strata[order]


def means_of(values, strata, names, spread, rho, intersect, key):
    """Estimates of the strata, in units of one standard deviation."""
    _, position = np.unique(strata, return_inverse=True)
    sizes = dict(zip(names, np.bincount(position).tolist(), strict=True))
    data = StratumValues(np.round(values * UNIT).astype(np.int64), position, len(names))
    return estimate_means(
        Confidential(data),
        Column("x", -3 * UNIT, 3 * UNIT, spread * UNIT),
        Steps.split(rho, 2, intersect=intersect),
        Strata(sizes, Neighbors.BOUNDED),
        Streams(key),
    )


def parity(true, estimates, everybody, estimate) -> float:
    """Definition 11 with omega = 1/k."""
    relative = np.abs((true - estimates) / true)
    return parity_error(relative, float(abs((everybody - estimate) / everybody)))


def one_run(setting, number: int) -> dict[str, tuple[float, float]]:
    """Error for everybody and parity error of every method on one draw of records."""
    n, k, concentration, text = setting
    rho = Fraction(text)
    rng = np.random.default_rng([number, n, k, round(concentration * 100)])
    values, strata = mixture(2 * n, k, concentration, rng)
    public = np.bincount(strata[n:], minlength=k)
    values, strata = values[:n], strata[:n]
    present = np.unique(strata)
    counts = np.bincount(strata, minlength=k)[present]
    true = np.bincount(strata, weights=values, minlength=k)[present] / counts
    everybody = values.mean()
    names = [f"stratum {i}" for i in present]
    weights, public_weights = counts / n, public[present] / n
    keys = [NoiseKey(rng.bytes(32)) for _ in range(3)]
    # sqrt(1 + E spread^2) = 1.55 is the spread of everybody.
    whole = means_of(values, np.zeros(n, int), ["all"], 1.55, rho, False, keys[0])
    plain = means_of(values, strata, names, 1.0, rho, False, keys[1])
    kept = means_of(values, strata, names, 1.0, rho, True, keys[2])
    variances = np.minimum(kept.noise_sd**2 + UNIT**2 / counts, 3.0 * UNIT**2)
    found = {
        "coinpress": (
            np.full(len(present), whole.means[0]),
            np.full(len(present), 1 / len(present)),
        ),
        "strata": (plain.means, weights),
        "public": (plain.means, public_weights),
        "intersected": (kept.means, weights),
        "shrunk": (shrink(kept.means, variances), weights),
    }
    out = {}
    for method, (means, shares) in found.items():
        of_strata = means / UNIT
        total = kept.means / UNIT @ weights if method == "shrunk" else of_strata @ shares
        out[method] = (
            float(abs(total - everybody)),
            parity(true, of_strata, everybody, total),
        )
    return out


def main() -> None:
    """Print the table and the line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="three settings, 20 runs")
    parser.add_argument("--runs", type=int, help="draws of records a setting")
    parser.add_argument("--splits", type=int, default=10, help="splits of the survey")
    arguments = parser.parse_args()
    settings = QUICK if arguments.quick else SETTINGS
    runs = arguments.runs or (20 if arguments.quick else 50)
    results = {}
    print("| n | k | alpha | rho | " + " | ".join(METHODS) + " | largest z | seconds |")
    print("|---" * (6 + len(METHODS)) + "|")
    for setting in settings:
        start = time.perf_counter()
        rows = [one_run(setting, number) for number in range(runs)]
        cells = {method: summary([row[method] for row in rows]) for method in METHODS}
        for method, (expected, error) in zip(METHODS, REFERENCE.get(setting, ()), strict=False):
            cell = cells[method]
            away = (cell["error"] - expected) / float(np.hypot(cell["standard_error"], error))
            cell |= {"reference": expected, "z": round(away, 2)}
        text = " | ".join(
            f"{c['error']:.4f} ± {c['standard_error']:.4f}, {c['parity']:.2f}"
            for c in cells.values()
        )
        largest = max(abs(cell.get("z", 0.0)) for cell in cells.values())
        seconds = time.perf_counter() - start
        print(
            "| " + " | ".join(map(str, setting)) + f" | {text} | {largest:.1f} | {seconds:.1f} |",
            flush=True,
        )
        results["/".join(map(str, setting))] = cells
    columns = compare(arguments.splits)
    synthesis = strata_synthesis.table(["0.1", "1", "5"], 1 if arguments.quick else 3)
    found = {"runs": runs, "settings": results, "splits": arguments.splits, "columns": columns}
    print(json.dumps(found | {"synthesis": synthesis}))


def summary(found: list[tuple[float, float]]) -> dict[str, float]:
    """Mean error with its standard error, and the median parity error."""
    errors = np.array([error for error, _ in found])
    return {
        "error": round(float(errors.mean()), 5),
        "standard_error": round(float(errors.std(ddof=1) / len(errors) ** 0.5), 5),
        "parity": round(float(np.median([parity for _, parity in found])), 2),
    }


if __name__ == "__main__":
    main()
