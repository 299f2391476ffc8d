"""No block is encrypted twice under a key, so all words are distinct inputs of one permutation.

A block is inverted from its description alone: the number of the row, then that of the block. Whole
runs are then watched block by block and stream by stream.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from bench.digests import CASES, generated, on_toy, with_units
from das.mechanisms.entropy import NoiseKey
from das.mechanisms.gaussian import DiscreteGaussian
from das.mechanisms.noise import add_noise
from jobs.analysis.replicate import ReplicateSettings, replicate
from jobs.pipeline.config.load import load_run
from jobs.pipeline.run import MEASURING, do_stages, open_job
from jobs.pipeline.tasks.progress import Reporter
from jobs.survey.plan import load_survey
from jobs.survey.run import measure_survey
from tests.builders import in_process
from tests.builders.stream_watch import assert_once, watched
from tests.builders.streams import bits_at, stream
from tests.builders.survey import write_survey
from tests.pipeline.local.test_strata import SHIPPED

KEY = NoiseKey.for_testing(4)


def place_of(block: bytes) -> tuple[int, int]:
    """Numbers of the row and of the block."""
    row, number = (int.from_bytes(block[i : i + 8], "little") for i in (0, 8))
    return row, number


@given(rows=st.sets(st.integers(0, 2**62), max_size=6), m=st.integers(0, 7))
def test_a_block_says_its_row_and_number(rows: set[int], m: int) -> None:
    """So blocks are distinct: an inverse exists."""
    numbers = sorted(rows)
    with watched() as watch:
        stream(KEY, numbers).words(np.arange(len(numbers)), m)
    (seen,) = watch.blocks.values()
    wanted = [(row, i) for row in numbers for i in range(-(-m // 2))]
    assert sorted(place_of(block) for block in seen.elements()) == wanted


@pytest.mark.parametrize("row", [0, 7, 2**62])
def test_words_are_aes_256_of_the_blocks(row: int) -> None:
    """By counter mode, which encrypts the block it is told to start from."""
    position = (3, 1)
    fixed = b"das noise words\0" + b"".join(i.to_bytes(8, "big") for i in position)
    fixed = b"\0\0\0\1" + fixed + (256).to_bytes(4, "big")
    secret = hmac.new(KEY.secret, fixed, hashlib.sha256).digest()
    wanted = b""
    for number in range(3):
        start = row.to_bytes(8, "little") + number.to_bytes(8, "little")
        cipher = Cipher(algorithms.AES(secret), modes.CTR(start))
        wanted += cipher.encryptor().update(bytes(16))
    words = stream(KEY, [row], position).words(np.arange(1), 6)
    assert words[0].tolist() == np.frombuffer(wanted, "<u8").tolist()


def measured(config: Path) -> None:
    """Draw all noise of a run; on-demand queries need counts of the geolevel above."""
    resolved = load_run(config)
    if resolved.last.plan.levels[-1].on_demand:
        in_process.execute(resolved)
        return
    tasks = in_process.tasks_of(resolved.config)
    with open_job(resolved, Reporter(quiet=True), tasks=tasks) as job:
        do_stages(job, MEASURING)


def replicated(config: Path) -> None:
    """Draw all noise of a run and of two replicates of it."""
    resolved = load_run(config)
    in_process.execute(resolved)
    tasks = in_process.tasks_of(resolved.config)
    replicate(resolved, ReplicateSettings(2, 1, Fraction(9, 10)), Reporter(quiet=True), tasks)


LAZY = {"privacy__on_demand_queries": ["detailed", "sex"], "solve": {"fit_to": "level"}}


@pytest.mark.parametrize(
    ("configure", "draw"),
    [
        (on_toy(privacy__allocation=str(SHIPPED)), measured),
        (with_units, measured),
        (on_toy(**LAZY), measured),
        (on_toy(), replicated),
        (CASES["toy-pure"].configure, measured),
        (CASES["toy-facilities"].configure, measured),
        (CASES["toy-planned/auto/sum_of_variances"].configure, measured),
        (generated("toy-aian.yaml", "toy", 60), measured),
    ],
    ids=["strata", "units", "lazy", "replicates", "pure", "facilities", "planned", "spine"],
)
def test_no_run_draws_from_a_stream_twice(
    configure: Callable[[Path], Path], draw: Callable[[Path], None], tmp_path: Path
) -> None:
    """However a run is cut into tasks; products and on-demand queries have keys of their own.

    Random run files are watched likewise (tests/pipeline/local/test_random_runs.py).
    """
    with watched() as watch:
        draw(configure(tmp_path))
    assert sum(map(len, watch.blocks.values())) > 100
    assert_once(watch)


PURE = {"definition": "pure", "epsilon": "8", "neighbors": "bounded"}
ONE_MEAN = {"mean": "age", "low": 0, "high": 100, "sd_bound": 25, "share": "1/2"}
SMALL = {"share": "1", "steps": 10, "components": 10, "n_fits": 1}
STRATA = {"attributes": ["sex", "group"], "weights": "weights.csv", "min_share": "1/20"}
MEASURED = {"attributes": ["sex", "group"], "min_share": "1/20"}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"synthesis": {**SMALL, "strata": STRATA}, "statistics": []},
        {"synthesis": {"share": "1", "steps": 10, "model": "tree"}, "statistics": []},
        {
            "synthesis": {"share": "1", "steps": 10, "model": "tree", "strata": MEASURED},
            "statistics": [],
        },
        {
            "synthesis": {
                "share": "1",
                "model": "adaptive",
                "max_model_megabytes": 1,
                "steps_per_round": 5,
            },
            "statistics": [],
        },
        {
            "privacy": PURE,
            "synthesis": None,
            "statistics": [{**ONE_MEAN, "method": "clipped"}],
            "contingency_tables": [
                {"query": "sex * group", "exact": ["sex"], "share": "1/2", "method": "conditioned"}
            ],
        },
    ],
    ids=[
        "means and mixture",
        "strata",
        "tree",
        "tree of strata",
        "adaptive",
        "clipped and tables",
    ],
)
def test_no_survey_draws_from_a_stream_twice(changes: dict[str, Any], tmp_path: Path) -> None:
    plan = load_survey(write_survey(tmp_path, **changes))
    with watched() as watch:
        measure_survey(plan, Reporter(quiet=True))
    assert len(watch.rows) + len(watch.bits) > 1
    assert_once(watch)


def test_the_watch_sees_what_is_drawn_twice() -> None:
    """Two answers at one position, as in the attacks of tests/evidence/privacy."""
    zeros, mechanism = np.zeros((3, 4), np.int64), DiscreteGaussian(Fraction(9))
    with watched() as watch:
        for number in range(2):
            add_noise(zeros, mechanism=mechanism, stream=stream(KEY, 3, (number,)))
    assert watch.repeated() == watch.opened_again() == 0
    with watched() as watch:
        for _ in range(2):
            add_noise(zeros, mechanism=mechanism, stream=stream(KEY, 3))
            bits_at(KEY, 1)
    assert watch.repeated() == 3 * 2  # rows, blocks of each
    assert watch.opened_again() == 3 + 1


def test_words_and_bits_come_under_keys_of_their_own() -> None:
    with watched() as watch:
        opened = stream(KEY, [0, 1])
        opened.words(np.arange(2), 8)
        for draw in range(3):
            opened.further_bits(0, draw).bits(64)
        bits_at(KEY, 0).bits(64)
    labels = Counter(label for ((_, label, _),) in watch.derived.values())
    assert labels == {b"das noise words": 1, b"das noise further bits": 3, b"das noise bits": 1}
    assert len(watch.derived) == 5
    assert len(watch.blocks) == 1


# --- words as bits -------------------------------------------------------------------------------

ALPHA_DEVIATIONS = 7.0  # of 10^5 scores none is so large but once in 10^6 runs; keys are fixed


def scores(words: np.ndarray) -> dict[str, float]:
    """The largest deviations from fair, independent bits, in standard deviations.

    Args:
      words: uint64[G, m], of G rows that follow one another.
    """
    bits = np.unpackbits(words.view(np.uint8).reshape(len(words), -1), axis=1).astype(np.int64)
    signs = 2 * bits - 1

    def largest(sums: np.ndarray, n: int) -> float:
        return float(np.abs(sums).max() / n**0.5)

    return {
        "columns": largest(signs.sum(axis=0), len(signs)),
        "rows": largest(signs.sum(axis=1), signs.shape[1]),
        "next row": largest((signs[1:] * signs[:-1]).sum(axis=1), signs.shape[1]),
        "next block": largest((signs[:, 128:] * signs[:, :-128]).sum(axis=0), len(signs)),
        "next word": largest((signs[:, 64:] * signs[:, :-64]).sum(axis=0), len(signs)),
    }


def of_position(*position: int) -> np.ndarray:
    return stream(KEY, 1500, position).words(np.arange(1500), 64)


def test_bits_are_fair_and_independent_from_row_to_row_and_block_to_block() -> None:
    words, other = of_position(0), of_position(1)
    assert max(scores(words).values()) < ALPHA_DEVIATIONS
    assert max(scores(words ^ other).values()) < ALPHA_DEVIATIONS  # between queries


@pytest.mark.parametrize(
    ("seen_by", "spoil"),
    [
        ("next row", lambda words: np.repeat(words[::2], 2, axis=0)),
        ("next block", lambda words: np.tile(words[:, :2], 32)),
        ("next word", lambda words: np.repeat(words[:, ::2], 2, axis=1)),
        ("columns", lambda words: words | np.uint64(1) << (words >> np.uint64(61))),
        ("rows", lambda words: np.where(np.arange(1500)[:, None] == 7, words & 0xFFFFFFFE, words)),
    ],
)
def test_repeated_or_unfair_bits_are_seen(seen_by: str, spoil) -> None:
    spoilt = np.ascontiguousarray(spoil(of_position(0)), np.uint64)
    assert scores(spoilt)[seen_by] > ALPHA_DEVIATIONS
