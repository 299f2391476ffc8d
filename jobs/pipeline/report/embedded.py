"""Numbers and texts inside a page: packed, compressed apart, read by `explore.js` when needed.

Whole numbers are written with the sign in the lowest bit, as few bytes each as the largest needs,
all lowest bytes first, then all second ones: so bytes that are alike stand together, and gzip finds
them. A block is the gzip of one array after the other, or of a text, as base64.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Block = list[int]
"""Where a block stands among the characters of all: first, how many."""


@dataclass(frozen=True)
class Packed:
    """A block before it is put into a page.

    Attributes:
      text: Base64.
      arrays: (name, bytes of a number, how many numbers) of each array in it; none of a text.
    """

    text: str
    arrays: tuple[tuple[str, int, int], ...] = ()


def pack_arrays(arrays: Mapping[str, npt.NDArray[np.int64]]) -> Packed:
    """Pack whole numbers, each array flattened."""
    parts, described = [], []
    for name, values in arrays.items():
        planes = _planes(values.ravel())
        parts.append(planes.tobytes())
        described.append((name, len(planes), values.size))
    return Packed(_encoded(b"".join(parts)), tuple(described))


def pack_text(text: str) -> Packed:
    """Pack a text."""
    return Packed(_encoded(text.encode()))


def _planes(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """uint8[w, n]: byte k of all numbers in row k, signs in the lowest bit."""
    numbers = ((values << 1) ^ (values >> 63)).astype("<u8")
    width = max(1, (int(numbers.max(initial=0)).bit_length() + 7) // 8)
    return np.ascontiguousarray(numbers.view(np.uint8).reshape(-1, 8)[:, :width].T)


def _encoded(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")


@dataclass
class Embedding:
    """The blocks of a page, one after the other.

    Attributes:
      most: Characters that all of them may have.
      parts: Their texts.
      size: Characters so far.
    """

    most: int
    parts: list[str] = field(default_factory=list)
    size: int = 0

    def fits(self, packed: Packed) -> bool:
        """Whether there is room for a block."""
        return self.size + len(packed.text) <= self.most

    def add(self, packed: Packed) -> Block:
        """Put a block in; returns where it stands."""
        place = [self.size, len(packed.text)]
        self.parts.append(packed.text)
        self.size += len(packed.text)
        return place

    @property
    def text(self) -> str:
        """All blocks."""
        return "".join(self.parts)
