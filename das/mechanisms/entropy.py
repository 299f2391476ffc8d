"""Random bits: the system's, and keyed streams that can be replayed. The only entropy source.

The noise of one row of one query is a function of (noise key, query, geocode). A task that is
retried or recomputed therefore releases the same noise again instead of spending the budget twice.
The price is that the privacy claim is computational: it holds as far as AES-256 and BLAKE2b keyed
with 32 secret bytes cannot be told from a random permutation and a random function. The samplers
are exact given uniform bits.

How words are made. A purpose, such as a query, has an AES-256 key of its own: the BLAKE2b hash,
keyed with the noise key, of its name. Words 2 i and 2 i + 1 of a place, such as a geounit, are the
encryption under it of one block of 128 bits:

    word 0:  4 zeros, characters 0-9 of the place's name       6 bits each
    word 1:  characters 10-15, then i                          6 bits each, 28 bits

Characters are ASCII digits and letters, numbered from 1 to 62; 0 stands behind a shorter name. So
the 96 bits tell any two such names apart, i < 2^28, and no block is encrypted twice under a key: of
N blocks, N^2 / 2^129 bounds the distance between their encryptions and independent uniform bits. A
place whose name is longer or has other characters has a key of its own, hashed from purpose and
name under another personalisation, and zeros for the name.
"""

from __future__ import annotations

import hashlib
import os
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from das.arrays import BoolArray, WordArray
from das.errors import BudgetError, RuntimeSetupError

KEY_BYTES = 32
BLOCK_BYTES = 16  # one AES block; update_into may ask for one block of room beyond its output
POOL_BYTES = 512

# BLAKE2b personalisations, at most 16 bytes: a different one is a different hash function.
PURPOSE_KEY = b"das purpose key"
PLACE_KEY = b"das place key"
EXTRA_STREAM = b"das noise extra"
TESTING_KEY = b"das testing key"

# Further bits: AES in counter mode from zero, safe as every draw that needs any has its own key.
COUNTER = modes.CTR(bytes(BLOCK_BYTES))

# The fields of a counter block: a name of up to 16 characters, then the number of the block.
NAME_CHARACTERS = 16
FIRST_CHARACTERS = 10  # of a name, in word 0
CHARACTER_BITS = 6
NUMBER_BITS = 64 - (NAME_CHARACTERS - FIRST_CHARACTERS) * CHARACTER_BITS
WORDS_PER_BLOCK = BLOCK_BYTES // 8
MOST_WORDS = WORDS_PER_BLOCK << NUMBER_BITS  # of one place for one purpose

_SYMBOLS = (string.digits + string.ascii_letters).encode()
_CHARACTER = np.zeros(256, np.uint64)  # 0: no symbol
_CHARACTER[list(_SYMBOLS)] = np.arange(1, len(_SYMBOLS) + 1, dtype=np.uint64)


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


@dataclass(frozen=True, eq=False)
class Places:
    """Names of G places, such as geocodes, and what they are in counter blocks.

    Attributes:
      names: G names.
      fits: bool[G], whether the name is at most 16 ASCII digits and letters.
      heads: uint64[G, 2], words of block 0 of each place; zeros where the name does not fit.
    """

    names: tuple[str, ...]
    fits: BoolArray
    heads: WordArray

    @classmethod
    def of(cls, names: Sequence[str] | Places) -> Places:
        """Make places of any names.

        >>> [f"{word:#x}" for word in Places.of(["01"]).heads[0].tolist()]
        ['0x42000000000000', '0x0']
        """
        if isinstance(names, Places):
            return names
        fits = [len(name) <= NAME_CHARACTERS and _is_plain(name) for name in names]
        plain = [name if fit else "" for name, fit in zip(names, fits, strict=True)]
        text = np.array(plain, f"S{NAME_CHARACTERS}").view(np.uint8)
        characters = _CHARACTER[text.reshape(len(plain), NAME_CHARACTERS)]
        heads = np.zeros((len(plain), WORDS_PER_BLOCK), np.uint64)
        for i in range(NAME_CHARACTERS):
            word = heads[:, int(i >= FIRST_CHARACTERS)]
            np.bitwise_or(word << np.uint64(CHARACTER_BITS), characters[:, i], out=word)
        heads[:, 1] <<= np.uint64(NUMBER_BITS)
        return cls(tuple(names), np.array(fits, np.bool_), heads)

    def __len__(self) -> int:
        return len(self.names)

    def at(self, rows: Sequence[int]) -> Places:
        """Some of the places, in this order."""
        return Places(tuple(self.names[i] for i in rows), self.fits[rows], self.heads[rows])


class PurposeWords:
    """The words of all places for one purpose.

    Args:
      key: The noise key.
      purpose: What is drawn, such as the name of a query; never two things under one key.
    """

    def __init__(self, key: NoiseKey, purpose: str) -> None:
        self._key = key
        self._purpose = purpose
        self._encryptor = _block_cipher(_hashed(key, PURPOSE_KEY, purpose.encode()))

    def __call__(self, places: Places, rows: slice, words_per_place: int) -> WordArray:
        """Return the first words of some places.

        A longer request for the same place begins with the same words.

        Args:
          places: All places.
          rows: Which of them, R in number.
          words_per_place: Words wanted of each, m >= 0.

        Returns:
          uint64[R, m], little-endian words on any machine.

        Law: words of distinct places, purposes and keys are independent and uniform up to the
        distance that the module states, if BLAKE2b under the secret key is a random function and
        AES-256 a random permutation.

        Raises:
          BudgetError: m exceeds 2^29, the words that blocks of one place can be numbered for.
        """
        if words_per_place > MOST_WORDS:
            raise BudgetError(
                f"noise of {self._purpose}",
                "has more draws in one place than counter blocks can number",
                got=words_per_place,
                want=f"at most {MOST_WORDS} words",
            )
        heads, fits = places.heads[rows], places.fits[rows]
        n_blocks = -(-words_per_place // WORDS_PER_BLOCK)
        if fits.all():
            words = _encrypted(self._encryptor, heads, n_blocks)
        else:
            words = np.empty((len(heads), n_blocks * WORDS_PER_BLOCK), np.uint64)
            words[fits] = _encrypted(self._encryptor, heads[fits], n_blocks)
            for i in np.flatnonzero(~fits).tolist():
                label = stream_label(places.names[rows][i], self._purpose)
                own = _block_cipher(_hashed(self._key, PLACE_KEY, label))
                words[i] = _encrypted(own, heads[i : i + 1], n_blocks)[0]
        return words[:, :words_per_place]


def extra_bits(key: NoiseKey, label: bytes, draw_index: int) -> BitSource:
    """Return the stream that finishes draw number `draw_index` of a label.

    Each call starts the same stream from its beginning.

    Law: the bits are independent of all words of `PurposeWords` and of every other (label,
    draw_index), and uniform, under its assumption.
    """
    secret = _hashed(key, EXTRA_STREAM, draw_index.to_bytes(8, "big") + label)
    return _KeyedBits(Cipher(algorithms.AES(secret), COUNTER).encryptor())


class _KeyedBits:
    """A keyed stream, read bit by bit."""

    def __init__(self, stream: CipherContext) -> None:
        self._stream = stream
        self._pool = _Pool()

    def bits(self, n: int) -> int:
        if missing := self._pool.missing(n):
            self._pool.fill(self._stream.update(bytes(max(BLOCK_BYTES, (missing + 7) // 8))))
        return self._pool.take(n)


def _is_plain(name: str) -> bool:
    """Whether a name holds nothing but ASCII digits and letters; so does the empty name."""
    return name.isascii() and (name.isalnum() or not name)


def _hashed(key: NoiseKey, person: bytes, name: bytes) -> bytes:
    return hashlib.blake2b(name, digest_size=KEY_BYTES, key=key.secret, person=person).digest()


def _block_cipher(secret: bytes) -> CipherContext:
    """AES-256 block by block: as good as counter mode if, as here, no block is encrypted twice."""
    return Cipher(algorithms.AES(secret), modes.ECB()).encryptor()


def _encrypted(encryptor: CipherContext, heads: WordArray, n_blocks: int) -> WordArray:
    """uint64[G, 2 B]: the encryption of blocks 0..B-1 of every head, uint64[G, 2]."""
    blocks = np.empty((len(heads), n_blocks, WORDS_PER_BLOCK), "<u8")
    blocks[:, :, 0] = heads[:, :1]
    np.bitwise_or(heads[:, 1:], np.arange(n_blocks, dtype=np.uint64), out=blocks[:, :, 1])
    room = np.empty(blocks.size + WORDS_PER_BLOCK, "<u8")  # what AES wants beyond its output
    encryptor.update_into(blocks.reshape(-1).view(np.uint8).data, room.view(np.uint8).data)
    words = room[: blocks.size].reshape(len(heads), n_blocks * WORDS_PER_BLOCK)
    return words.astype(np.uint64, copy=False)


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
