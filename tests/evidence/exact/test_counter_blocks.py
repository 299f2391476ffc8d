"""No block is encrypted twice under a key, so all words are distinct inputs of one permutation.

The layout of a block is inverted by `place_of`, written from its description alone: what has an
inverse tells any two places and numbers apart. Whole runs are then watched block by block.
"""

from __future__ import annotations

import hashlib
import string
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from das.mechanisms import entropy
from das.mechanisms.entropy import (
    MOST_WORDS,
    NUMBER_BITS,
    NoiseKey,
    Places,
    PurposeWords,
    extra_bits,
)
from das.mechanisms.gaussian import DiscreteGaussian
from das.mechanisms.noise import add_noise
from jobs.config.load import load_run
from jobs.run import MEASURING, do_stages, open_job
from jobs.run_survey import run_survey, wanted_parts
from jobs.survey.plan import load_survey
from jobs.tasks.progress import Reporter
from tests.bench.digests import on_toy, with_units
from tests.builders import in_process
from tests.builders.survey import write_survey
from tests.pipeline.local.test_strata import SHIPPED

KEY = NoiseKey.for_testing(4)
SYMBOLS = string.digits + string.ascii_letters
short_names = st.text(SYMBOLS, max_size=16)
any_names = st.text(max_size=20)


@dataclass
class Watch:
    """What AES was asked for.

    Attributes:
      blocks: By key: every block, 16 bytes each, as often as it was encrypted.
      hashed: By key: the personalisations and names it was hashed from.
    """

    blocks: dict[bytes, Counter[bytes]] = field(default_factory=lambda: defaultdict(Counter))
    hashed: dict[bytes, set[tuple[bytes, bytes]]] = field(default_factory=lambda: defaultdict(set))

    def repeated(self) -> int:
        return sum(n > 1 for counts in self.blocks.values() for n in counts.values())


@dataclass
class Encryptor:
    """An AES context that says what it encrypts."""

    real: CipherContext
    seen: Counter[bytes]

    def update_into(self, data: memoryview, room: memoryview) -> int:
        text = bytes(data)
        self.seen.update(text[i : i + 16] for i in range(0, len(text), 16))
        return self.real.update_into(data, room)


@contextmanager
def watched() -> Iterator[Watch]:
    watch = Watch()
    cipher, hashed = entropy._block_cipher, entropy._hashed

    def seen_cipher(secret: bytes) -> Encryptor:
        return Encryptor(cipher(secret), watch.blocks[secret])

    def seen_hashed(key: NoiseKey, person: bytes, name: bytes) -> bytes:
        secret = hashed(key, person, name)
        watch.hashed[secret].add((key.secret + person, name))
        return secret

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entropy, "_block_cipher", seen_cipher)
        patch.setattr(entropy, "_hashed", seen_hashed)
        yield watch


def place_of(block: bytes) -> tuple[str, int]:
    """Name of the place and number of the block, or an error if it is no such block."""
    first, second = (int.from_bytes(block[i : i + 8], "little") for i in (0, 8))
    bits = f"{first:064b}"[4:] + f"{second:064b}"
    characters = [int(bits[6 * i : 6 * i + 6], 2) for i in range(16)]
    name = "".join(SYMBOLS[c - 1] for c in characters if c)
    assert first >> 60 == 0
    assert characters == [SYMBOLS.index(c) + 1 for c in name] + [0] * (16 - len(name))
    return name, int(bits[96:], 2)


@given(names=st.lists(short_names, max_size=6, unique=True), m=st.integers(0, 7))
def test_a_block_says_its_place_and_number(names: list[str], m: int) -> None:
    """So blocks are distinct: an inverse exists."""
    with watched() as watch:
        PurposeWords(KEY, "q")(Places.of(names), slice(None), m)
    (seen,) = watch.blocks.values()
    wanted = [(name, i) for name in names for i in range(-(-m // 2))]
    assert sorted(place_of(block) for block in seen.elements()) == sorted(wanted)


def test_the_last_number_still_fits_beside_the_name() -> None:
    """The greatest names differ in their last bit; numbers never reach it."""
    last = MOST_WORDS // 2 - 1
    assert last.bit_length() == NUMBER_BITS
    heads = Places.of(["Z" * 16, "Z" * 15 + "Y"]).heads
    blocks = [(int(head[1]) | number) for head in heads for number in (0, last)]
    assert len(set(blocks)) == 4
    assert all(int(head[1]) % (1 << NUMBER_BITS) == 0 for head in heads)
    texts = [int(head[0]).to_bytes(8, "little") + (int(head[1]) | last).to_bytes(8, "little")
             for head in heads]  # fmt: skip
    assert [place_of(text) for text in texts] == [("Z" * 16, last), ("Z" * 15 + "Y", last)]


@given(names=st.lists(any_names | short_names, min_size=1, max_size=6, unique=True))
def test_other_names_have_keys_of_their_own(names: list[str]) -> None:
    with watched() as watch:
        PurposeWords(KEY, "q")(Places.of(names), slice(None), 4)
    fitting = {n for n in names if len(n) <= 16 and set(n) <= set(SYMBOLS)}
    assert sum(entropy.PLACE_KEY in p for ((p, _),) in watch.hashed.values()) == len(
        set(names) - fitting
    )
    shared = entropy._hashed(KEY, entropy.PURPOSE_KEY, b"q")
    for secret, seen in watch.blocks.items():
        if secret != shared:
            assert [place_of(block) for block in seen] == [("", 0), ("", 1)]


@pytest.mark.parametrize("name", ["0", "240317001011000", "zZ9" * 5 + "a"])
def test_words_are_aes_256_of_the_blocks(name: str) -> None:
    """By counter mode, which encrypts the block it is told to start from."""
    secret = hashlib.blake2b(b"total", digest_size=32, key=KEY.secret, person=b"das purpose key")
    head = [int(word) for word in Places.of([name]).heads[0]]
    wanted = b""
    for number in range(3):
        start = head[0].to_bytes(8, "little") + (head[1] + number).to_bytes(8, "little")
        cipher = Cipher(algorithms.AES(secret.digest()), modes.CTR(start))
        wanted += cipher.encryptor().update(bytes(16))
    words = PurposeWords(KEY, "total")(Places.of([name]), slice(None), 6)
    assert words[0].tolist() == np.frombuffer(wanted, "<u8").tolist()


def measured(config: Path) -> None:
    """Draw all noise of a run; lazy queries need counts of the geolevel above."""
    resolved = load_run(config)
    if resolved.last.plan.levels[-1].lazy:
        in_process.execute(resolved)
        return
    tasks = in_process.tasks_of(resolved.config)
    with open_job(resolved, Reporter(quiet=True), tasks=tasks) as job:
        do_stages(job, MEASURING)


LAZY = {"privacy__lazy_queries": ["detailed", "sex"], "solve": {"targets": "own"}}


@pytest.mark.parametrize(
    "configure",
    [on_toy(privacy__allocation=str(SHIPPED)), with_units, on_toy(**LAZY)],
    ids=["strata", "units", "lazy"],
)
def test_no_run_encrypts_a_block_twice(configure, tmp_path: Path) -> None:
    """However a run is cut into tasks; strata, units and lazy queries have keys of their own."""
    with watched() as watch:
        measured(configure(tmp_path))
    assert sum(map(len, watch.blocks.values())) > 100
    assert watch.repeated() == 0
    assert all(len(origins) == 1 for origins in watch.hashed.values())


def test_no_survey_encrypts_a_block_twice(tmp_path: Path) -> None:
    plan = load_survey(write_survey(tmp_path))
    with watched() as watch:
        run_survey(plan, Reporter(quiet=True), wanted_parts(plan, ("means", "synthesis")))
    assert sum(map(len, watch.blocks.values())) > 20
    assert watch.repeated() == 0
    assert all(len(origins) == 1 for origins in watch.hashed.values())


def test_the_watch_sees_what_is_drawn_twice() -> None:
    """Two queries of one name, as in the attacks of tests/evidence/privacy."""
    zeros, places = np.zeros((3, 4), np.int64), Places.of(["1", "2", "a long name that has a key"])
    mechanism = DiscreteGaussian(Fraction(9))
    with watched() as watch:
        for purpose in ("age", "sex"):
            add_noise(zeros, mechanism=mechanism, key=KEY, purpose=purpose, places=places)
    assert watch.repeated() == 0
    with watched() as watch:
        for _ in range(2):
            add_noise(zeros, mechanism=mechanism, key=KEY, purpose="any", places=places)
    assert watch.repeated() == 3 * 2  # places, blocks of each


def test_further_bits_come_under_other_keys() -> None:
    with watched() as watch:
        PurposeWords(KEY, "q")(Places.of(["", "1", "a b"]), slice(None), 8)
        for index in range(3):
            extra_bits(KEY, b"q", index).bits(64)
    persons = Counter(origin[-len(b"key") :] for ((origin, _),) in watch.hashed.values())
    assert len(watch.hashed) == 2 + 3
    assert len(watch.blocks) == 2
    assert persons == {b"key": 2, b"tra": 3}


# --- words as bits -------------------------------------------------------------------------------

ALPHA_DEVIATIONS = 7.0  # of 10^5 scores none is so large but once in 10^6 runs; keys are fixed


def scores(words: np.ndarray) -> dict[str, float]:
    """The largest deviations from fair, independent bits, in standard deviations.

    Args:
      words: uint64[G, m], of G places whose names follow one another.
    """
    bits = np.unpackbits(words.view(np.uint8).reshape(len(words), -1), axis=1).astype(np.int64)
    signs = 2 * bits - 1

    def largest(sums: np.ndarray, n: int) -> float:
        return float(np.abs(sums).max() / n**0.5)

    return {
        "columns": largest(signs.sum(axis=0), len(signs)),
        "rows": largest(signs.sum(axis=1), signs.shape[1]),
        "next place": largest((signs[1:] * signs[:-1]).sum(axis=1), signs.shape[1]),
        "next block": largest((signs[:, 128:] * signs[:, :-128]).sum(axis=0), len(signs)),
        "next word": largest((signs[:, 64:] * signs[:, :-64]).sum(axis=0), len(signs)),
    }


def of_purpose(purpose: str) -> np.ndarray:
    names = [f"{i:015}" for i in range(1500)]
    return PurposeWords(KEY, purpose)(Places.of(names), slice(None), 64)


def test_bits_are_fair_and_independent_from_place_to_place_and_block_to_block() -> None:
    words, other = of_purpose("detailed"), of_purpose("total")
    assert max(scores(words).values()) < ALPHA_DEVIATIONS
    assert max(scores(words ^ other).values()) < ALPHA_DEVIATIONS  # between queries


@pytest.mark.parametrize(
    ("seen_by", "spoil"),
    [
        ("next place", lambda words: np.repeat(words[::2], 2, axis=0)),
        ("next block", lambda words: np.tile(words[:, :2], 32)),
        ("next word", lambda words: np.repeat(words[:, ::2], 2, axis=1)),
        ("columns", lambda words: words | np.uint64(1) << (words >> np.uint64(61))),
        ("rows", lambda words: np.where(np.arange(1500)[:, None] == 7, words & 0xFFFFFFFE, words)),
    ],
)
def test_repeated_or_unfair_bits_are_seen(seen_by: str, spoil) -> None:
    spoilt = np.ascontiguousarray(spoil(of_purpose("detailed")), np.uint64)
    assert scores(spoilt)[seen_by] > ALPHA_DEVIATIONS
