"""Measure the exact samplers: python -m bench.sampler [--quick].

The last line is one JSON object. Every figure is per second of processor
time of one core, and includes making the random words.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from das.mechanisms.entropy import BitSource, NoiseKey
from das.mechanisms.gaussian import DiscreteGaussian
from das.mechanisms.noise import add_noise
from das.mechanisms.table import BLOCK_WORDS, gaussian_table
from das.mechanisms.wide import wide_gaussian
from tests.builders.streams import bits_at, stream, words_at
from tests.evidence.reference import discrete_gaussian

SIGMA_SQ = ("1.2", "10", "100", "909", "8000")
WIDE_SIGMA_SQ = "1000000000000"
COMPARED = "100"
STREAM_WORDS = 4 * BLOCK_WORDS
ROW_CELLS = 2016  # cells of the largest redistricting query
KEY = NoiseKey.for_testing(0)


def rate(run: Callable[[int], int], *, seconds: float) -> float:
    """Return draws per second of processor time, in the fastest of five shares of the time.

    Processor time, because the machine may be shared; so is the choice of the fastest.
    """
    run(0)
    best = 0.0
    call = 1
    for _ in range(5):
        end = time.perf_counter() + seconds / 5
        start = time.process_time()
        draws = 0
        while time.perf_counter() < end:
            draws += run(call)
            call += 1
        best = max(best, draws / (time.process_time() - start))
    return best


def table_rate(sigma_sq: Fraction, *, seconds: float) -> tuple[float, float]:
    """Return draws per second, and the share of draws that needed further bits."""
    table = gaussian_table(sigma_sq)
    totals = np.zeros(2, np.int64)

    def run(call: int) -> int:
        words = words_at(KEY, STREAM_WORDS, call)
        values, undecided = table.lookup(words)
        totals[:] += values.size, undecided.size
        return values.size

    return rate(run, seconds=seconds), float(totals[1] / totals[0])


def wide_share(sigma_sq: Fraction) -> float:
    """Return the share of draws of a large scale that the slow definition finishes."""
    n_draws = 1 << 17
    finished: list[int] = []

    def more(draw: int) -> BitSource:
        finished.append(draw)
        return bits_at(KEY, draw)

    words = words_at(KEY, 2 * n_draws)
    wide_gaussian(sigma_sq).draw_many(words, more)
    return len(finished) / n_draws


def release_rate(sigma_sq: Fraction, n_cells: int, *, seconds: float) -> float:
    """Return noisy answers per second of add_noise for rows of n_cells."""
    answers = np.zeros((max(1, 2**17 // n_cells), n_cells), np.int64)

    def run(call: int) -> int:
        mechanism = DiscreteGaussian(sigma_sq)
        return add_noise(
            answers, mechanism=mechanism, stream=stream(KEY, len(answers), (call,))
        ).size

    return rate(run, seconds=seconds)


def reference_rate(sigma_sq: Fraction, *, seconds: float) -> float:
    """Return draws per second of the readable sampler on the system's bits."""
    bits = bits_at(NoiseKey.draw(), 0)

    def run(_: int) -> int:
        for _draw in range(100):
            discrete_gaussian(sigma_sq=sigma_sq, bits=bits)
        return 100

    return rate(run, seconds=seconds)


def opendp_rate(sigma_sq: Fraction, *, seconds: float) -> float | None:
    """Return draws per second of OpenDP's discrete Gaussian, None if it is not installed."""
    try:
        import opendp.prelude as dp
    except ImportError:
        return None
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    mechanism = dp.m.make_gaussian(*space, scale=float(sigma_sq) ** 0.5)
    zeros = [0] * 500
    return rate(lambda _: len(mechanism(zeros)), seconds=seconds)


def build_seconds(sigma_sq: Fraction) -> float:
    """Return the time of building the sampler from nothing."""
    gaussian_table.cache_clear()
    wide_gaussian.cache_clear()
    start = time.perf_counter()
    DiscreteGaussian(sigma_sq).sampler()
    return time.perf_counter() - start


def main() -> None:
    """Measure, print a table, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="end within 45 seconds")
    seconds = 1.0 if parser.parse_args().quick else 5.0

    scales = {text: Fraction(text) for text in (*SIGMA_SQ, WIDE_SIGMA_SQ)}
    builds = {text: build_seconds(scale) for text, scale in scales.items()}
    draws: dict[str, float] = {}
    shares: dict[str, float] = {}
    for text in SIGMA_SQ:
        draws[text], shares[text] = table_rate(scales[text], seconds=seconds)
    shares[WIDE_SIGMA_SQ] = wide_share(scales[WIDE_SIGMA_SQ])
    releases = {
        text: release_rate(scale, ROW_CELLS, seconds=seconds) for text, scale in scales.items()
    }
    short = {cells: release_rate(scales[COMPARED], cells, seconds=seconds) for cells in (1, 300)}
    reference = reference_rate(scales[COMPARED], seconds=seconds)
    opendp = {text: opendp_rate(scales[text], seconds=seconds) for text in SIGMA_SQ}

    print(f"{'sigma_sq':>14} {'draws/s':>14} {'add_noise/s':>14} {'OpenDP/s':>12} {'build ms':>9}")
    for text in scales:
        cells = (draws.get(text), releases[text], opendp.get(text))
        shown = [f"{value:,.0f}" if value else "-" for value in cells]
        print(f"{text:>14} {shown[0]:>14} {shown[1]:>14} {shown[2]:>12} {builds[text] * 1e3:9.1f}")
    print(f"add_noise is for rows of {ROW_CELLS} cells; at sigma_sq {COMPARED}, for rows of")
    for n_cells, value in short.items():
        print(f"  {n_cells} cells: {value:,.0f} answers/s")
    print(f"reference sampler at sigma_sq {COMPARED}: {reference:,.0f} draws/s")

    compared = opendp[COMPARED]
    result = {
        "draws_per_second": draws,
        "add_noise_per_second": releases,
        "reference_draws_per_second": reference,
        "opendp_draws_per_second": None if compared is None else opendp,
        "ratio_to_opendp": None if compared is None else draws[COMPARED] / compared,
        "extra_bit_share": shares,
        "table_build_seconds": builds,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
