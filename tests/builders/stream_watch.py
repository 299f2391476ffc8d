"""A watch on AES and on streams while a test draws: no block and no stream may be used twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import CipherContext

from das.arrays import IntArray
from das.mechanisms import entropy
from das.mechanisms.entropy import BitSource, Position, Stream, Streams


@dataclass
class Watch:
    """What AES was asked for, and which streams were opened.

    Attributes:
      blocks: By key: every block, 16 bytes each, as often as it was encrypted.
      derived: By derived key: the secrets, labels and contexts it was derived from.
      rows: By secret and position: every row that was opened, as often as it was.
      bits: By secret and position: how often it was opened for bits.
    """

    blocks: dict[bytes, Counter[bytes]] = field(default_factory=lambda: defaultdict(Counter))
    derived: dict[bytes, set[tuple[bytes, bytes, bytes]]] = field(
        default_factory=lambda: defaultdict(set)
    )
    rows: dict[tuple[bytes, Position], Counter[int]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    bits: Counter[tuple[bytes, Position]] = field(default_factory=Counter)

    def repeated(self) -> int:
        return sum(n > 1 for counts in self.blocks.values() for n in counts.values())

    def opened_again(self) -> int:
        again = sum(n > 1 for counts in self.rows.values() for n in counts.values())
        return again + sum(n > 1 for n in self.bits.values())


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
    """Watch what the block draws in this process."""
    watch = Watch()
    cipher, derive = entropy._block_cipher, entropy.derive_key
    open_rows, open_bits = Streams.open, Streams.bits

    def seen_cipher(secret: bytes) -> Encryptor:
        return Encryptor(cipher(secret), watch.blocks[secret])

    def seen_derive(secret: bytes, label: bytes, context: bytes) -> bytes:
        derived = derive(secret, label, context)
        watch.derived[derived].add((secret, label, context))
        return derived

    def seen_open(self: Streams, position: Position, rows: IntArray) -> Stream:
        watch.rows[self._key.secret, position].update(np.asarray(rows).tolist())
        return open_rows(self, position, rows)

    def seen_bits(self: Streams, position: Position) -> BitSource:
        watch.bits[self._key.secret, position] += 1
        return open_bits(self, position)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entropy, "_block_cipher", seen_cipher)
        patch.setattr(entropy, "derive_key", seen_derive)
        patch.setattr(Streams, "open", seen_open)
        patch.setattr(Streams, "bits", seen_bits)
        yield watch


def assert_once(watch: Watch) -> None:
    """Check that no block was encrypted, no stream opened and no key derived for two purposes."""
    assert watch.repeated() == 0
    assert watch.opened_again() == 0
    assert all(len(origins) == 1 for origins in watch.derived.values())
