"""Streams can be replayed, are apart from one another and opened once; keys stay secret."""

import copy
import hashlib
import hmac
import os
import pickle

import numpy as np
import pytest

from das.errors import BudgetError, RuntimeSetupError
from das.mechanisms.entropy import NoiseKey, Stream, Streams, derive_key
from tests.builders.streams import bits_at, stream, words_at

KEY = NoiseKey.for_testing(1)
ROWS = (0, 1, 2, 240_317, 2**40, 2**62)


def words_of(rows, n, position=(0,), key=KEY):
    return stream(key, rows, position).words(np.arange(len(rows)), n)


# --- keys ----------------------------------------------------------------------------------------

# NIST's validation vectors for SP 800-108 in counter mode, PRF HMAC-SHA-256, 32 bits of counter
# before the fixed data (CAVP, KDFCTR_gen.txt, the first ones of some lengths): key, fixed data,
# output.
NIST = [
    (
        "dd1d91b7d90b2bd3138533ce92b272fbf8a369316aefe242e659cc0ae238afe0",
        "01322b96b30acd197979444e468e1c5c6859bf1b1cf951b7e725303e237e46b864a145fab25e517b08f8683d"
        "0315bb2911d80a0e8aba17f3b413faac",
        "10621342bfb0fd40046c0e29f2cfdbf0",
    ),
    (
        "c4bedbddb66493e7c7259a3bbbc25f8c7e0ca7fe284d92d431d9cd99a0d214ac",
        "1c69c54766791e315c2cc5c47ecd3ffab87d0d273dd920e70955814c220eacace6a5946542da3dfe24ff626b"
        "4897898cafb7db83bdff3c14fa46fd4b",
        "1da47638d6c9c4d04d74d4640bbd42ab814d9e8cc22f4326695239f96b0693f12d0dd1152cf44430",
    ),
    (
        "e204d6d466aad507ffaf6d6dab0a5b26152c9e21e764370464e360c8fbc765c6",
        "7b03b98d9f94b899e591f3ef264b71b193fba7043c7e953cde23bc5384bc1a6293580115fae3495fd845dadb"
        "d02bd6455cf48d0f62b33e62364a3a80",
        "770dfab6a6a4a4bee0257ff335213f78d8287b4fd537d5c1fffa956910e7c779",
    ),
]

WORDS, BITS, FURTHER = (
    [9289885861659872323, 1229407171917600923],
    8184943002940027304,
    17334753234835124399,
)


def counter_mode(secret: bytes, fixed: bytes, n_bytes: int) -> bytes:
    """SP 800-108, 4.1, from its text: K(i) = PRF(K, [i] || fixed), one after the other."""
    out, i = b"", 0
    while len(out) < n_bytes:
        i += 1
        out += hmac.new(secret, i.to_bytes(4, "big") + fixed, hashlib.sha256).digest()
    return out[:n_bytes]


@pytest.mark.parametrize(("secret", "fixed", "wanted"), NIST)
def test_the_reference_gives_the_answers_of_nist(secret, fixed, wanted):
    found = counter_mode(bytes.fromhex(secret), bytes.fromhex(fixed), len(wanted) // 2)
    assert found.hex() == wanted


@pytest.mark.parametrize("context", [b"", b"\0", b"a" * 100])
def test_keys_are_derived_as_the_reference_does(context):
    secret, label = bytes(range(32)), b"das noise words"
    fixed = label + b"\0" + context + (256).to_bytes(4, "big")
    assert derive_key(secret, label, context) == counter_mode(secret, fixed, 32)


def test_labels_and_contexts_are_told_apart():
    secret = bytes(range(32))
    inputs = [(b"a", b"b"), (b"ab", b""), (b"a", b"b\0"), (b"a", b""), (b"", b"ab")]
    assert len({derive_key(secret, *one) for one in inputs}) == len(inputs)


def test_the_words_of_a_key_never_change():
    """A run that is resumed by a later version must draw the same noise."""
    assert words_at(KEY, 2, 7).tolist() == WORDS
    assert bits_at(KEY, 1, 2).bits(64) == BITS
    assert stream(KEY, [5], (1,)).further_bits(0, 3).bits(64) == FURTHER


# --- streams -------------------------------------------------------------------------------------


def test_same_key_position_and_row_give_the_same_words():
    first = words_of(ROWS, 5)
    assert first.dtype == np.uint64
    assert first.shape == (len(ROWS), 5)
    assert (words_of(ROWS, 5, key=NoiseKey.for_testing(1)) == first).all()
    assert (words_of(ROWS[2:5], 5) == first[2:5]).all()
    backwards = stream(KEY, ROWS).words(np.arange(len(ROWS))[::-1], 5)
    assert (backwards == first[::-1]).all()


@pytest.mark.parametrize("n_words", [0, 1, 2, 3, 1000])
def test_more_words_begin_with_the_fewer(n_words):
    longer = words_of(ROWS, n_words + 3)
    assert (words_of(ROWS, n_words) == longer[:, :n_words]).all()


def test_no_rows_have_no_words():
    assert words_of([], 7).shape == (0, 7)


def test_words_of_all_rows_positions_and_keys_are_apart():
    keys = [NoiseKey.for_testing(seed) for seed in (1, 2)]
    positions = [(0,), (1,), (0, 0), (0, 1), (1, 0), (256,), ()]
    words = [words_of(ROWS, 50, position, key) for key in keys for position in positions]
    assert len(np.unique(words)) == 2 * len(positions) * len(ROWS) * 50


def test_many_words_do_not_repeat():
    assert len(np.unique(words_of([0, 1], 20_000))) == 40_000


def test_further_bits_are_apart_from_all_words_and_each_other():
    places = [(position, row) for position in ((0,), (1,), (0, 1)) for row in (0, 1, 256)]
    main = b"".join(words_of([row], 8, position).tobytes() for position, row in places)
    further = [
        stream(KEY, [row], position).further_bits(0, draw).bits(512).to_bytes(64, "big")
        for position, row in places
        for draw in (0, 1, 256)
    ]
    further += [bits_at(KEY, *p).bits(512).to_bytes(64, "big") for p in ((0, 1), (0, 1, 256))]
    assert len(set(further)) == len(further)
    pieces = {main[i : i + 8] for i in range(0, len(main), 8)}
    assert not any(piece in block for block in further for piece in pieces)


# --- once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [[3], [2, 4], [0, 1], [5, 5], [6, 5]])
def test_rows_are_opened_once_and_rising(rows):
    streams = Streams(KEY)
    streams.open((0,), np.array([1, 3, 4]))
    with pytest.raises(BudgetError, match="two answers would share their noise"):
        streams.open((0,), np.array(rows))
    streams.open((0,), np.array([5, 9]))
    streams.open((1,), np.array([1, 3, 4]))


def test_bits_are_opened_once():
    streams = Streams(KEY)
    streams.bits((0, 1))
    with pytest.raises(BudgetError, match="two answers would share their noise"):
        streams.bits((0, 1))
    streams.bits((1, 0))


def test_words_of_a_row_are_drawn_once():
    opened = stream(KEY, 3)
    opened.words(np.array([0, 2]), 4)
    with pytest.raises(BudgetError, match="two answers would share their noise"):
        opened.words(np.array([1, 2]), 4)
    opened.words(np.array([1]), 4)


@pytest.mark.parametrize("position", [(-1,), (1 << 64,), (0, -5)])
def test_an_index_out_of_range_is_refused(position):
    with pytest.raises(BudgetError, match="index out of range"):
        stream(KEY, 1, position)
    with pytest.raises(BudgetError, match="index out of range"):
        bits_at(KEY, *position)


def test_streams_know_whether_any_was_opened():
    streams = Streams(KEY)
    assert not streams.is_used
    assert isinstance(streams.open((0,), np.arange(2)), Stream)
    assert streams.is_used


# --- bits ----------------------------------------------------------------------------------------


def test_bits_have_the_asked_width():
    source = bits_at(KEY, 3)
    assert source.bits(0) == 0
    draws = [source.bits(n) for n in (1, 7, 64, 1000, 3, 10_000)]
    assert all(d < 2**n for d, n in zip(draws, (1, 7, 64, 1000, 3, 10_000), strict=True))
    assert draws[5].bit_length() > 9_900


def test_keyed_bits_do_not_depend_on_how_they_are_read():
    whole = bits_at(KEY, 3).bits(3000)
    source = bits_at(KEY, 3)
    parts = "".join(f"{source.bits(n):0{n}b}" for n in (1, 2, 61, 936, 2000))
    assert int(parts, 2) == whole


def test_bits_are_fair():
    assert abs(bits_at(KEY, 3).bits(100_000).bit_count() - 50_000) < 1100  # 7 standard errors


def test_drawn_keys_differ_and_are_not_marked():
    first, second = NoiseKey.draw(), NoiseKey.draw()
    assert first != second
    assert not first.is_for_testing
    assert KEY.is_for_testing
    assert NoiseKey.for_testing(1) != NoiseKey.for_testing(2)
    positions = [(), (0,), (1,), (0, 1), (0, 0, 0)]
    assert len({NoiseKey.for_testing(seed, p) for seed in (1, -1, 11) for p in positions}) == 15
    assert NoiseKey.for_testing(1, (3,)) == NoiseKey.for_testing(1, (3,))


def test_a_key_never_prints():
    key = NoiseKey(bytes(range(32)))
    texts = [repr(key), str(key), f"{key}", f"{[key]}", f"{key!r:>40}"]
    assert all("redacted" in text for text in texts)
    assert not any(shown in text for text in texts for shown in (r"\x", "0001", key.secret.hex()))


def test_a_key_travels():
    assert pickle.loads(pickle.dumps(KEY)) == KEY
    assert copy.deepcopy(KEY).is_for_testing


def test_a_key_is_frozen():
    with pytest.raises(AttributeError):
        KEY.is_for_testing = False


def test_a_short_key_is_refused_without_being_shown():
    with pytest.raises(RuntimeSetupError, match="got 3; expected 32 bytes") as caught:
        NoiseKey(b"abc")
    assert "abc" not in str(caught.value)


@pytest.mark.parametrize("failure", [OSError("broken"), NotImplementedError("none")])
def test_a_machine_without_entropy_is_named(monkeypatch, failure):
    def fail(n):
        raise failure

    monkeypatch.setattr(os, "urandom", fail)
    with pytest.raises(
        RuntimeSetupError, match=f"from the operating system; got {type(failure).__name__}"
    ):
        NoiseKey.draw()
