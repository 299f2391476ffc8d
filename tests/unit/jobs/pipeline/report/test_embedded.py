"""Numbers inside a page are those that were put there."""

from __future__ import annotations

import base64
import gzip

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobs.pipeline.report.explore import Embedding, Packed, pack_arrays, pack_text

NUMBERS = st.lists(st.integers(-(2**52), 2**52), max_size=40)


def unpacked(packed: Packed) -> dict[str, list[int]]:
    """As `explore.js` reads a block."""
    content = gzip.decompress(base64.b64decode(packed.text))
    found, at = {}, 0
    for name, width, size in packed.arrays:
        values = [
            sum(content[at + plane * size + i] << (8 * plane) for plane in range(width))
            for i in range(size)
        ]
        found[name] = [-(v + 1) // 2 if v % 2 else v // 2 for v in values]
        at += width * size
    assert at == len(content)
    return found


@given(st.dictionaries(st.text("abc", min_size=1), NUMBERS, max_size=4))
def test_numbers_come_out_as_they_went_in(arrays: dict[str, list[int]]) -> None:
    packed = pack_arrays({name: np.array(own, np.int64) for name, own in arrays.items()})
    assert unpacked(packed) == arrays


def test_blocks_are_found_where_they_stand() -> None:
    room = Embedding(80)
    one, other = pack_text("a"), pack_text("b" * 9)
    places = [room.add(one), room.add(other)]
    for (start, length), text in zip(places, ("a", "b" * 9), strict=True):
        assert gzip.decompress(base64.b64decode(room.text[start : start + length])) == text.encode()
    assert room.add(one) is None
    assert room.size == len(room.text)


def test_the_same_numbers_give_the_same_page() -> None:
    assert pack_text("x") == pack_text("x")  # no time in it
