"""Whoever can connect to the ports of a Spark session and knows no secret: asks for its broadcasts.

Speaks as much of Spark's block transfer protocol as it takes. A message is its length in 8 bytes, a
byte for its kind, then its fields; integers are big-endian.
"""

from __future__ import annotations

import socket
import struct

import psutil

CHUNK_REQUEST, CHUNK, REQUEST, ANSWER, FAILURE = 0, 1, 3, 4, 5
OPEN_BLOCKS = 0
LARGEST = 1 << 30
Door = tuple[str, int]
PATIENCE = 5.0  # seconds for an answer


class RefusedError(Exception):
    """What was asked for was not given."""


def doors(process: psutil.Process) -> list[Door]:
    """TCP addresses on which a process waits for connections."""
    found = process.net_connections(kind="tcp")
    waiting = {one.laddr for one in found if one.status == psutil.CONN_LISTEN}
    return sorted((_reachable(address.ip), address.port) for address in waiting)


def _reachable(host: str) -> str:
    """An address to connect to; a process may wait on all there are, or write IPv4 as IPv6."""
    return "127.0.0.1" if host in ("::", "0.0.0.0") else host.removeprefix("::ffff:")


def ask_for_block(door: Door, block: str) -> bytes:
    """Ask for a block without any credential.

    Raises:
      RefusedError: The answer is no; says what the answer was.
    """
    try:
        with socket.create_connection(door, timeout=PATIENCE) as connection:
            wanted = _text("app") + _text("executor") + struct.pack(">i", 1) + _text(block)
            body = bytes([OPEN_BLOCKS]) + wanted
            _send(connection, REQUEST, struct.pack(">qi", 1, len(body)) + body)
            kind, answer = _receive(connection)
            if kind != ANSWER:
                raise RefusedError(f"kind {kind}: {answer[12:300]!r}")
            (stream,) = struct.unpack(">q", answer[13:21])  # after number, size and type
            _send(connection, CHUNK_REQUEST, struct.pack(">qi", stream, 0))
            kind, chunk = _receive(connection)
            if kind != CHUNK:
                raise RefusedError(f"kind {kind}: {chunk[12:300]!r}")
            return chunk[12:]
    except OSError as error:
        raise RefusedError(f"{type(error).__name__}: {error}") from None


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">i", len(encoded)) + encoded


def _send(connection: socket.socket, kind: int, content: bytes) -> None:
    connection.sendall(struct.pack(">q", 8 + 1 + len(content)) + bytes([kind]) + content)


def _receive(connection: socket.socket) -> tuple[int, bytes]:
    (size,) = struct.unpack(">q", _exactly(connection, 8))
    if not 9 <= size < LARGEST:
        raise RefusedError("does not speak this protocol")
    message = _exactly(connection, size - 8)
    return message[0], message[1:]


def _exactly(connection: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        piece = connection.recv(n - len(data))
        if not piece:
            raise RefusedError("hangs up")
        data += piece
    return data
