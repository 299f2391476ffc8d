"""The only source of random bits: system entropy for keys, and keyed streams for noise.

Every part of a run, such as the queries of a geolevel, has a separate key. A stream of that key is
identified by its position: a tuple of indices in the plan, such as the number of a query. Within a
stream, every geounit or stratum has a row. So the noise of a row is a function of (noise key,
position, row): a retried task draws the same noise again instead of spending the budget twice.
`Streams` opens every stream of a key once and refuses the second time, so two answers cannot share
noise.

With keyed streams the privacy guarantee is computational. It holds if HMAC-SHA-256 with 32 secret
bytes is indistinguishable from a random function, and AES-256 from a random permutation. The
samplers are exact given uniform bits.

Keys. One function derives all keys: the counter mode of NIST SP 800-108 with HMAC-SHA-256.

Words. A word is 64 random bits. Each position has a separate AES-256 key. Words 2 i and 2 i + 1 of
a row are the encryption of one block under this key: the number of the row, then i, 64 bits each.
So no block is encrypted twice under a key. N^2 / 2^129 bounds the distance between the encryptions
of N blocks and independent uniform bits.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.kbkdf import KBKDFHMAC, CounterLocation, Mode

from das.arrays import IntArray, WordArray
from das.errors import BudgetError, RuntimeSetupError

KEY_BYTES = 32
BLOCK_BYTES = 16  # one AES block; update_into may ask for one block of room beyond its output
WORDS_PER_BLOCK = BLOCK_BYTES // 8

# Labels: the purpose of a derived key. None contains a zero byte, which ends a label in the hash.
WORDS = b"das noise words"
FURTHER_BITS = b"das noise further bits"
BITS = b"das noise bits"
TESTING_KEY = b"das testing key"
_NO_SECRET = bytes(KEY_BYTES)  # public: testing keys are derived from it

# Bits read one by one: AES in counter mode from zero, safe as each such stream has a separate key.
COUNTER = modes.CTR(bytes(BLOCK_BYTES))

Position = tuple[int, ...]
"""Indices in the fixed plan of a run, 0 <= index < 2^64 each."""


class BitSource(Protocol):
    """A source of fresh uniform bits."""

    def bits(self, n: int) -> int:
        """Return n fresh uniform bits as an integer in [0, 2**n)."""


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """The secret key from which all noise of a part of a run derives; its repr hides the bytes.

    With the key, the noise can be subtracted. Keep it inside the firewall and delete it when the
    part is measured.

    Attributes:
      secret: 32 bytes.
      is_for_testing: Whether the key is derived from a public seed; its noise protects nothing.

    >>> NoiseKey.for_testing(7)
    NoiseKey(redacted)
    """

    secret: bytes
    is_for_testing: bool = field(default=False)

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise RuntimeSetupError(
                "noise key", "has the wrong length", got=len(self.secret), want=f"{KEY_BYTES} bytes"
            )

    def __repr__(self) -> str:
        return "NoiseKey(redacted)"

    @classmethod
    def draw(cls) -> NoiseKey:
        """Draw a key from the operating system.

        Law: the 32 bytes are uniform, if the operating system's are.

        Raises:
          RuntimeSetupError: The operating system has no entropy source.
        """
        return cls(_system_bytes(KEY_BYTES))

    @classmethod
    def for_testing(cls, seed: int, position: Position = ()) -> NoiseKey:
        """Derive a reproducible key for tests; it is marked, so a release refuses it.

        Args:
          seed: Any integer.
          position: The part of the plan; each part has a separate key, as in a release.
        """
        context = b"%d\0" % seed + _encoded(position)
        return cls(derive_key(_NO_SECRET, TESTING_KEY, context), is_for_testing=True)

    def split(self) -> tuple[bytes, bytes]:
        """Split the key into two shares of 32 bytes whose exclusive or is the key.

        Law: each share alone is uniform and independent of the key, if the operating system's
        bytes are uniform.

        Raises:
          RuntimeSetupError: The operating system has no entropy source.
        """
        share = _system_bytes(KEY_BYTES)
        return share, _exclusive_or(share, self.secret)

    @classmethod
    def joined(cls, share: bytes, other: bytes, *, is_for_testing: bool = False) -> NoiseKey:
        """Rebuild a key from its two shares.

        Raises:
          RuntimeSetupError: A share has a length other than 32 bytes.
        """
        for part in (share, other):
            cls(part)  # checks the length
        return cls(_exclusive_or(share, other), is_for_testing)


def derive_key(secret: bytes, label: bytes, context: bytes) -> bytes:
    """Derive 32 bytes from a secret: the only key derivation of the project.

    NIST SP 800-108r1, section 4.1, counter mode: HMAC-SHA-256 of [i] || label || 0x00 || context ||
    [L] under the secret, with i = 1 and L = 256 as 32-bit big-endian integers.

    Law: results of distinct (label, context) are independent and uniform, if HMAC-SHA-256 under
    the secret is a random function.

    Args:
      secret: 32 bytes.
      label: Purpose of the key, without a zero byte.
      context: Distinguishes keys of the same purpose.
    """
    kdf = KBKDFHMAC(
        algorithm=SHA256(),
        mode=Mode.CounterMode,
        length=KEY_BYTES,
        rlen=4,
        llen=4,
        location=CounterLocation.BeforeFixed,
        label=label,
        context=context,
        fixed=None,
    )
    return kdf.derive(secret)


def _encoded(position: Position) -> bytes:
    """Encode each index in 8 bytes, so that distinct positions have distinct codes.

    Raises:
      BudgetError: An index is negative or has more than 64 bits.
    """
    try:
        return struct.pack(f">{len(position)}Q", *position)
    except struct.error:
        raise BudgetError(
            "position of a noise stream",
            "has an index out of range",
            got=position,
            want="0 <= index < 2^64",
        ) from None


class Stream:
    """The noise of some rows at one position, each row drawn once; created by `Streams.open`.

    Args:
      key: The key from which the noise is derived.
      position: Indices that identify the answers in the fixed plan of noise streams.
      rows: int64[G], numbers of the rows, such as of geounits in their geolevel; distinct.
    """

    def __init__(self, key: NoiseKey, position: Position, rows: IntArray) -> None:
        self.position, self.rows = position, rows
        self._secret = key.secret
        self._cipher = _block_cipher(derive_key(key.secret, WORDS, _encoded(position)))
        self._is_drawn = np.zeros(len(rows), np.bool_)

    def __len__(self) -> int:
        return len(self.rows)

    def words(self, some: IntArray, words_per_row: int) -> WordArray:
        """Draw the words of some rows, once; a retried task draws the same words.

        Args:
          some: int64[R], indices into the G rows.
          words_per_row: Words per row, m >= 0. The first words do not depend on m.

        Returns:
          uint64[R, m], the same on any machine.

        Law: words of distinct rows, positions and keys are independent and uniform up to the
        distance that the module states, if its two assumptions hold.

        Raises:
          BudgetError: A row was drawn before.
        """
        if self._is_drawn[some].any():
            raise _used_before(self.position)
        self._is_drawn[some] = True
        n_blocks = -(-words_per_row // WORDS_PER_BLOCK)
        words = _encrypted(self._cipher, self.rows[some], n_blocks)
        return words[:, :words_per_row]

    def further_bits(self, index: int, draw: int) -> BitSource:
        """Return a source of further bits for draw number `draw` of row `rows[index]`.

        Law: independent of all words and of the bits of every other draw, and uniform, under the
        assumptions of the module.
        """
        position = (*self.position, int(self.rows[index]), draw)
        return _KeyedBits(derive_key(self._secret, FURTHER_BITS, _encoded(position)))


class Streams:
    """The noise streams of one key. Each is opened once, so no two answers share noise.

    A position is opened either for rows, in rising order, or for bits. A restarted task creates
    `Streams` anew and draws the same noise again.

    Args:
      key: The key from which all noise is derived.
    """

    def __init__(self, key: NoiseKey) -> None:
        self._key = key
        self._next_row: dict[Position, int] = {}  # the first unused row
        self._bits: set[Position] = set()

    @property
    def is_used(self) -> bool:
        """Return whether any stream was opened."""
        return bool(self._next_row or self._bits)

    def open(self, position: Position, rows: IntArray) -> Stream:
        """Open the streams of some rows at a position.

        Args:
          position: Indices in the fixed plan.
          rows: int64[G], numbers of the rows, rising, above all rows opened before.

        Raises:
          BudgetError: A row repeats, is out of order, or may have been opened before.
        """
        rows = np.asarray(rows, np.int64)
        if len(rows):
            if rows[0] < self._next_row.get(position, 0) or (np.diff(rows) <= 0).any():
                raise _used_before(position)
            self._next_row[position] = int(rows[-1]) + 1
        return Stream(self._key, position, rows)

    def bits(self, position: Position) -> BitSource:
        """Open the stream at a position for reading bit by bit.

        Law: as in `Stream.further_bits`.

        Raises:
          BudgetError: The position was opened before.
        """
        if position in self._bits:
            raise _used_before(position)
        self._bits.add(position)
        return _KeyedBits(derive_key(self._key.secret, BITS, _encoded(position)))


def _used_before(position: Position) -> BudgetError:
    return BudgetError(
        f"noise stream at position {position}",
        "is opened again or out of order: two answers would share their noise",
        want="rising rows, each once for a key",
    )


class _KeyedBits:
    """A keyed stream that is read bit by bit, in order."""

    def __init__(self, secret: bytes) -> None:
        self._stream = Cipher(algorithms.AES(secret), COUNTER).encryptor()
        self._left, self._size = 0, 0  # bits generated and not yet returned

    def bits(self, n: int) -> int:
        if n > self._size:
            n_bytes = max(BLOCK_BYTES, (n - self._size + 7) // 8)
            data = self._stream.update(bytes(n_bytes))
            self._left = self._left << (8 * n_bytes) | int.from_bytes(data, "big")
            self._size += 8 * n_bytes
        self._size -= n
        taken = self._left >> self._size
        self._left &= (1 << self._size) - 1
        return taken


def _block_cipher(secret: bytes) -> CipherContext:
    """Return AES-256 by blocks; as safe as counter mode, since no block is encrypted twice."""
    return Cipher(algorithms.AES(secret), modes.ECB()).encryptor()


def _encrypted(cipher: CipherContext, rows: IntArray, n_blocks: int) -> WordArray:
    """Return the encrypted blocks 0..B-1 of G rows, uint64[G, 2 B], two words per block.

    Args:
      cipher: The block cipher.
      rows: int64[G], row numbers.
      n_blocks: B, blocks per row.
    """
    blocks = np.empty((len(rows), n_blocks, WORDS_PER_BLOCK), "<u8")
    blocks[:, :, 0] = rows[:, None]
    blocks[:, :, 1] = np.arange(n_blocks)
    room = np.empty(blocks.size + WORDS_PER_BLOCK, "<u8")  # AES needs one block beyond its output
    cipher.update_into(blocks.reshape(-1).view(np.uint8).data, room.view(np.uint8).data)
    words = room[: blocks.size].reshape(len(rows), n_blocks * WORDS_PER_BLOCK)
    return words.astype(np.uint64, copy=False)


def _exclusive_or(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def _system_bytes(n: int) -> bytes:
    try:
        return os.urandom(n)
    except (NotImplementedError, OSError) as error:
        raise RuntimeSetupError(
            "entropy",
            "is not available from the operating system",
            got=f"{type(error).__name__}: {error}",
            remedy="run on a machine with getrandom(2) or /dev/urandom",
        ) from error
