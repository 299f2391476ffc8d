"""Random bits: the system's, and keyed streams that can be replayed. The only entropy source.

The noise of one row of one query is a function of (noise key, stream label). A task that is retried
or recomputed therefore releases the same noise again instead of spending the budget twice. The
price is that the privacy claim is computational: it holds as far as AES-256 and BLAKE2b keyed with
32 secret bytes cannot be told from random functions. The samplers are exact given uniform bits.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from das.arrays import WordArray
from das.errors import RuntimeSetupError

KEY_BYTES = 32
BLOCK_BYTES = 16  # one AES block; update_into may ask for one block of room beyond its output
POOL_BYTES = 512
ZEROS = memoryview(bytes(1 << 16))  # a key stream is the encryption of zeros

# BLAKE2b personalisations, at most 16 bytes: a different one is a different hash function.
MAIN_STREAM = b"das noise main"
EXTRA_STREAM = b"das noise extra"
TESTING_KEY = b"das testing key"

# AES in counter mode from a zero counter. Safe because every stream has an AES key of its own.
COUNTER = modes.CTR(bytes(BLOCK_BYTES))


class BitSource(Protocol):
    """Anything that hands out fresh uniform bits."""

    def bits(self, n: int) -> int:
        """Return n fresh uniform bits as an integer in [0, 2**n)."""
        ...


class _Pool:
    """Bits already drawn and not yet handed out, first drawn first out."""

    __slots__ = ("_bits", "_size")

    def __init__(self) -> None:
        self._bits = 0
        self._size = 0

    def missing(self, n: int) -> int:
        return max(0, n - self._size)

    def fill(self, data: bytes) -> None:
        self._bits = (self._bits << (8 * len(data))) | int.from_bytes(data, "big")
        self._size += 8 * len(data)

    def take(self, n: int) -> int:
        self._size -= n
        taken = self._bits >> self._size
        self._bits &= (1 << self._size) - 1
        return taken


class SystemBits:
    """Bits of the operating system, buffered; a forked child drops the buffer it inherited."""

    def __init__(self) -> None:
        self._pool = _Pool()
        self._process = os.getpid()

    def bits(self, n: int) -> int:
        """Return n fresh uniform bits of the operating system.

        Raises:
          RuntimeSetupError: The operating system has no entropy source.
        """
        if os.getpid() != self._process:
            self._pool = _Pool()
            self._process = os.getpid()
        if missing := self._pool.missing(n):
            self._pool.fill(_system_bytes(max(POOL_BYTES, (missing + 7) // 8)))
        return self._pool.take(n)


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """32 secret bytes from which all noise of a run derives. Pickles; never prints its bytes.

    Whoever holds the key can subtract the noise. Keep it inside the firewall and destroy it after
    the run, or seal it for an audit.

    Attributes:
      secret: 32 bytes.
      is_for_testing: True if the key can be guessed, so that nothing it protected may be released.

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
    def for_testing(cls, seed: int, geolevel: str = "") -> NoiseKey:
        """Make a key anyone can make again; it is marked, so a release refuses it.

        Args:
          seed: Any integer.
          geolevel: The geolevel it is for: each has a key of its own, as keys that are drawn.
        """
        name = f"{seed} {geolevel}" if geolevel else str(seed)
        digest = hashlib.blake2b(name.encode(), digest_size=KEY_BYTES, person=TESTING_KEY)
        return cls(digest.digest(), is_for_testing=True)

    def split(self) -> tuple[bytes, bytes]:
        """Cut the key into two shares of 32 bytes, whose exclusive or it is.

        Law: each share alone is uniform and independent of the key, if the operating system's
        bytes are uniform.

        Raises:
          RuntimeSetupError: The operating system has no entropy source.
        """
        share = _system_bytes(KEY_BYTES)
        return share, _exclusive_or(share, self.secret)

    @classmethod
    def joined(cls, share: bytes, other: bytes, *, is_for_testing: bool = False) -> NoiseKey:
        """Put a key together from its two shares.

        Raises:
          RuntimeSetupError: A share has not 32 bytes.
        """
        for one in (share, other):
            cls(one)  # of the right length
        return cls(_exclusive_or(share, other), is_for_testing)


def stream_label(geocode: str, query: str) -> bytes:
    """Name the stream of one query in one geounit, so that no two pairs share a name.

    >>> stream_label("a", "bc") == stream_label("ab", "c")
    False
    """
    place = geocode.encode()
    return len(place).to_bytes(4, "big") + place + query.encode()


def stream_words(key: NoiseKey, labels: Sequence[bytes], words_per_stream: int) -> WordArray:
    """Return the first words of several keyed streams.

    Stream i is the AES-256-CTR key stream under BLAKE2b(key, labels[i]). A longer request for the
    same label begins with the same words.

    Args:
      key: The noise key.
      labels: One label per stream, G of them; equal labels give equal streams.
      words_per_stream: Words wanted of each stream, m >= 0.

    Returns:
      uint64[G, m], little-endian words on any machine.

    Law: the words of distinct labels are independent and uniform, if BLAKE2b under the secret key
    and AES-256 in counter mode are random functions.
    """
    size = 8 * words_per_stream
    total = len(labels) * words_per_stream
    words = np.empty(total + BLOCK_BYTES // 8, np.dtype("<u8"))
    room = words.view(np.uint8).data
    for i, label in enumerate(labels):
        stream = _key_stream(key, MAIN_STREAM, label)
        for start in range(i * size, (i + 1) * size, len(ZEROS)):
            end = min(start + len(ZEROS), (i + 1) * size)
            stream.update_into(ZEROS[: end - start], room[start : end + BLOCK_BYTES])
    return words[:total].reshape(len(labels), words_per_stream).astype(np.uint64, copy=False)


def extra_bits(key: NoiseKey, label: bytes, draw_index: int) -> BitSource:
    """Return the stream that finishes draw number `draw_index` of a label.

    Each call starts the same stream from its beginning.

    Law: the bits are independent of every main stream and of every other (label, draw_index), and
    uniform, under the assumption of `stream_words`.
    """
    return _KeyedBits(_key_stream(key, EXTRA_STREAM, draw_index.to_bytes(8, "big") + label))


class _KeyedBits:
    """A keyed stream, read bit by bit."""

    def __init__(self, stream: CipherContext) -> None:
        self._stream = stream
        self._pool = _Pool()

    def bits(self, n: int) -> int:
        if missing := self._pool.missing(n):
            self._pool.fill(self._stream.update(bytes(max(BLOCK_BYTES, (missing + 7) // 8))))
        return self._pool.take(n)


def _key_stream(key: NoiseKey, person: bytes, label: bytes) -> CipherContext:
    secret = hashlib.blake2b(label, digest_size=KEY_BYTES, key=key.secret, person=person).digest()
    return Cipher(algorithms.AES(secret), COUNTER).encryptor()


def _exclusive_or(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def _system_bytes(n: int) -> bytes:
    try:
        return os.urandom(n)
    except (NotImplementedError, OSError) as error:
        raise RuntimeSetupError(
            "entropy",
            "the operating system gives no random bytes",
            got=f"{type(error).__name__}: {error}",
            remedy="run on a machine with getrandom(2) or /dev/urandom",
        ) from error
