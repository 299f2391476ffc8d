"""Distances of a protected table from the confidential one: raw, projected, conditioned.

`python -m bench.conditioning`: the figure of Gong (Towards Good Statistical Inference from
Differentially Private Data, 2020) for its table of 2 sexes by 23 ages, whose total, number of women
and number of minors are kept. Four releases: two-sided geometric noise of epsilon 1 a cell; the same
put onto the nonnegative tables with these sums by least squares; noise of epsilon 1/2 a cell given
that the sums are kept and no count is negative, drawn exactly; noise of epsilon 1/2. The promises
are not equal: the second column says what is proved between data sets one record apart that keep
the sums. Beside it, how often the Markov chain of the paper accepts a proposal.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from fractions import Fraction

import numpy as np

from das.inference.conditional import LinearInvariants, draw_conditional
from das.mechanisms.conditional import conditional_table
from das.mechanisms.entropy import NoiseKey
from das.mechanisms.laplace import DiscreteLaplace
from tests.builders.streams import bits_at

WOMEN = (8, 6, 3, 6, 4, 4, 4, 8, 5, 7, 7, 6, 1, 5, 4, 4, 9, 6, 2, 8, 8, 8, 7)
MEN = (3, 4, 5, 8, 6, 4, 5, 5, 5, 6, 10, 7, 3, 2, 5, 11, 6, 4, 7, 4, 5, 3, 8)
TABLE = np.array(WOMEN + MEN)
N_AGES, N_MINORS = len(WOMEN), 4  # ages below 18 are the first four


def invariants() -> np.ndarray:
    """int64[3, 46]: everybody, women, minors."""
    women = np.arange(len(TABLE)) < N_AGES
    minors = np.arange(len(TABLE)) % N_AGES < N_MINORS
    return np.stack([np.ones(len(TABLE), np.int64), women, minors]).astype(np.int64)


def geometric(rng: np.random.Generator, epsilon: float, shape: tuple[int, ...]) -> np.ndarray:
    """Two-sided geometric noise."""
    p = -math.expm1(-epsilon)
    return rng.geometric(p, shape) - rng.geometric(p, shape)


def projected(noisy: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The nearest nonnegative table with the sums of the confidential one (Dykstra's algorithm)."""
    inverse = np.linalg.pinv(rows)
    kept, at, correction = rows @ TABLE, noisy.astype(float), np.zeros(len(noisy))
    for _ in range(2000):
        on_sums = at - inverse @ (rows @ at - kept)
        moved = np.maximum(on_sums + correction, 0)
        correction += on_sums - moved
        if np.abs(moved - at).max() < 1e-9:
            break
        at = moved
    return at


def acceptance(rng: np.random.Generator, rows: np.ndarray, proposal: str, steps: int) -> float:
    """How often the Markov chain accepts a proposal of this inverse scale."""
    kept = LinearInvariants.nonnegative(rows, rows @ TABLE)
    chain = draw_conditional(
        TABLE, DiscreteLaplace(Fraction(2)), kept, TABLE, steps, rng,
        proposal=DiscreteLaplace(1 / Fraction(proposal)),
    )  # fmt: skip
    return chain.acceptance


def main() -> None:
    """Print the table, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=100, help="releases of each kind")
    parser.add_argument("--steps", type=int, default=20_000, help="proposals of the Markov chain")
    arguments = parser.parse_args()
    rng, rows, bits = np.random.default_rng(1), invariants(), bits_at(NoiseKey.draw(), 0)
    errors: dict[str, list[np.ndarray]] = {
        "raw": [],
        "projected": [],
        "conditioned": [],
        "half": [],
    }
    seconds = 0.0
    for _ in range(arguments.draws):
        raw = TABLE + geometric(rng, 1.0, TABLE.shape)
        start = time.perf_counter()
        drawn = conditional_table(TABLE, rows, Fraction(2), bits)
        seconds += time.perf_counter() - start
        half = TABLE + geometric(rng, 0.5, TABLE.shape)
        for name, table in (
            ("raw", raw),
            ("projected", projected(raw, rows)),
            ("conditioned", drawn),
            ("half", half),
        ):
            errors[name].append(table - TABLE)
    # A record that changes its age moves two counts by 1: k = 2 counts, at epsilon each; and
    # conditioning doubles that.
    proved = {"raw": "2", "projected": "2", "conditioned": "2", "half": "1"}
    print(f"{'release':12} {'epsilon proved':>15} {'L1':>8} {'L2':>8} {'s.e. L1':>8}")
    found = {}
    for name, rows_ in errors.items():
        l1 = np.abs(np.stack(rows_)).sum(axis=1)
        l2 = np.sqrt(np.square(np.stack(rows_)).sum(axis=1))
        error = l1.std() / math.sqrt(len(l1))
        print(f"{name:12} {proved[name]:>15} {l1.mean():8.2f} {l2.mean():8.2f} {error:8.2f}")
        found[name] = {"l1": float(l1.mean()), "l2": float(l2.mean()), "l1_se": float(error)}
    rates = {q: acceptance(rng, rows, q, arguments.steps) for q in ("0.5", "0.6", "0.8")}
    print(f"acceptance of the Markov chain by inverse scale of proposals: {rates}")
    seconds /= arguments.draws
    print(json.dumps({"distances": found, "acceptance": rates, "seconds_per_draw": seconds}))


if __name__ == "__main__":
    main()
