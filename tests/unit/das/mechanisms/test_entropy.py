"""Streams can be replayed, are apart from one another, and keys stay secret."""

import copy
import os
import pickle

import numpy as np
import pytest

from das.errors import BudgetError, RuntimeSetupError
from das.mechanisms.entropy import (
    MOST_WORDS,
    NoiseKey,
    Places,
    PurposeWords,
    SystemBits,
    extra_bits,
    stream_label,
)

KEY = NoiseKey.for_testing(1)


def words_of(names, n, purpose="total", key=KEY):
    return PurposeWords(key, purpose)(Places.of(names), slice(None), n)


WORDS = [[1952704421366783960, 4661074330590168705], [1985338730464294479, 2177174916343103700]]
NAMES = ("", "0", "01", "010010201001000", "A" * 16, "A" * 17, "a b", "\u00e9")


def test_same_key_purpose_and_place_give_the_same_words():
    first = words_of(NAMES, 5)
    assert first.dtype == np.uint64
    assert first.shape == (len(NAMES), 5)
    assert (words_of(NAMES[::-1], 5, key=NoiseKey.for_testing(1)) == first[::-1]).all()
    some = PurposeWords(KEY, "total")(Places.of(NAMES), slice(2, 5), 5)
    assert (some == first[2:5]).all()
    assert (words_of(["01", "a b"], 5) == first[[2, 6]]).all()


def test_the_words_of_a_key_never_change():
    """A run that is resumed by a later version must draw the same noise."""
    assert words_of(["01001", "a b"], 2).tolist() == WORDS
    assert extra_bits(KEY, b"a", 0).bits(64) == 10644351225186721078


@pytest.mark.parametrize("n_words", [0, 1, 2, 3, 1000])
def test_more_words_begin_with_the_fewer(n_words):
    longer = words_of(NAMES, n_words + 3)
    assert (words_of(NAMES, n_words) == longer[:, :n_words]).all()


def test_no_places_have_no_words():
    assert words_of([], 7).shape == (0, 7)


def test_words_of_all_places_purposes_and_keys_are_apart():
    keys = [NoiseKey.for_testing(seed) for seed in (1, 2)]
    words = [words_of(NAMES, 50, purpose, key) for key in keys for purpose in ("", "1", "01")]
    assert len(np.unique(words)) == 6 * len(NAMES) * 50


def test_many_words_do_not_repeat():
    assert len(np.unique(words_of(["a", "a b"], 20_000))) == 40_000


def test_more_words_than_blocks_can_be_numbered_are_refused():
    with pytest.raises(BudgetError, match="more draws in one place than counter blocks can number"):
        words_of(["a"], MOST_WORDS + 1)


def test_labels_are_unambiguous():
    assert stream_label("a", "bc") != stream_label("ab", "c")
    assert stream_label("", "a") != stream_label("a", "")
    assert stream_label("é", "x") == stream_label("é", "x")


def test_further_bits_are_apart_from_all_words_and_each_other():
    labels = [b"a", b"a\0", b"", b"\0" * 7 + b"\1a"]
    main = b"".join(words_of(["", "a"], 8, purpose.decode()).tobytes() for purpose in labels)
    further = [
        extra_bits(KEY, label, index).bits(512).to_bytes(64, "big")
        for label in labels
        for index in (0, 1, 256)
    ]
    assert len(set(further)) == len(further)
    pieces = {main[i : i + 8] for i in range(0, len(main), 8)}
    assert not any(piece in block for block in further for piece in pieces)


@pytest.mark.parametrize("make", [SystemBits, lambda: extra_bits(KEY, b"a", 3)])
def test_bits_have_the_asked_width(make):
    source = make()
    assert source.bits(0) == 0
    draws = [source.bits(n) for n in (1, 7, 64, 1000, 3, 10_000)]
    assert all(d < 2**n for d, n in zip(draws, (1, 7, 64, 1000, 3, 10_000), strict=True))
    assert draws[5].bit_length() > 9_900


def test_keyed_bits_do_not_depend_on_how_they_are_read():
    whole = extra_bits(KEY, b"a", 3).bits(3000)
    source = extra_bits(KEY, b"a", 3)
    parts = "".join(f"{source.bits(n):0{n}b}" for n in (1, 2, 61, 936, 2000))
    assert int(parts, 2) == whole


@pytest.mark.parametrize("make", [SystemBits, lambda: extra_bits(KEY, b"a", 3)])
def test_bits_are_fair(make):
    assert abs(make().bits(100_000).bit_count() - 50_000) < 1100  # 7 standard errors


def test_a_forked_child_has_bits_of_its_own():
    source = SystemBits()
    source.bits(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, source.bits(256).to_bytes(32, "big"))
        os._exit(0)
    os.waitpid(child, 0)
    assert int.from_bytes(os.read(reader, 32), "big") != source.bits(256)
    os.close(reader)
    os.close(writer)


def test_drawn_keys_differ_and_are_not_marked():
    first, second = NoiseKey.draw(), NoiseKey.draw()
    assert first != second
    assert not first.is_for_testing
    assert KEY.is_for_testing
    assert NoiseKey.for_testing(1) != NoiseKey.for_testing(2)
    assert NoiseKey.for_testing(1, "state") != NoiseKey.for_testing(1, "block")
    assert NoiseKey.for_testing(1, "state") == NoiseKey.for_testing(1, "state")


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
    with pytest.raises(RuntimeSetupError, match=f"no random bytes; got {type(failure).__name__}"):
        NoiseKey.draw()
    with pytest.raises(RuntimeSetupError, match="no random bytes"):
        SystemBits().bits(1)
