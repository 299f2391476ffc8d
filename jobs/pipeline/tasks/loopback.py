"""Who listens at a port of this machine: a stranger could have taken it before the server did.

Ports above 1024 are free for all users of a machine. Where no certificate says who answers, the
kernel does: it knows the user of every socket.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"  # state of a socket, as Linux numbers them (include/net/tcp_states.h)
_ROOT = 0


def listeners(port: int, tables: Iterable[Path] = _TABLES) -> frozenset[int] | None:
    """Return the users whose programs listen at a port, at any address of this machine.

    All addresses count, since `localhost` may lead to 127.0.0.1 and to ::1.

    Args:
      port: Of TCP.
      tables: The kernel's lists of sockets, of IPv4 and IPv6.

    Returns:
      Numbers of users; None where the system has no such list, as other systems than Linux.
    """
    users: set[int] = set()
    seen = False
    for table in tables:
        try:
            rows = table.read_text().splitlines()[1:]
        except OSError:
            continue
        seen = True
        for row in rows:
            # Columns: number, local address, remote one, state, queues, timer, retries, user.
            words = row.split()
            if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                users.add(int(words[7]))
    return frozenset(users) if seen else None


def stranger_at(port: int) -> str | None:
    """Say why who listens at a port of this machine cannot be trusted; None if it can.

    Trusted are programs of this user and of root. A port where nobody listens is free to be taken:
    a stranger could answer, stop listening before this look, and listen again after it.
    """
    users = listeners(port)
    if users is None:
        return "this system does not show whose program listens there"
    if users - {os.getuid(), _ROOT}:
        return "a program of another user listens there"
    return None if users else "nobody listens there now, so that anybody could"
