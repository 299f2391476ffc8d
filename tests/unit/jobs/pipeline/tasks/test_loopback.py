"""Who listens at a port, by the kernel's lists of sockets."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from jobs.pipeline.tasks import connect_session

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def table(path: Path, *rows: str) -> Path:
    path.write_text(HEAD + "".join(f"   {n}: {row}\n" for n, row in enumerate(rows)))
    return path


def row(address: str, state: str, user: int) -> str:
    return (
        f"{address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {user} 0 1061 1 0"
    )


def test_listeners_at_all_addresses_count(tmp_path: Path) -> None:
    v4 = table(
        tmp_path / "tcp",
        row("0100007F:3A9A", "0A", 1000),
        row("0100007F:3A9B", "0A", 7),  # another port
        row("0100007F:3A9A", "01", 8),  # connected, does not listen
    )
    v6 = table(tmp_path / "tcp6", row("00000000000000000000000001000000:3A9A", "0A", 1001))
    assert connect_session.listeners(15002, [v4, v6]) == {1000, 1001}
    assert connect_session.listeners(15002, [v4, tmp_path / "absent"]) == {1000}
    assert connect_session.listeners(15004, [v4, v6]) == frozenset()
    assert connect_session.listeners(15002, [tmp_path / "absent"]) is None


def test_own_sockets_are_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert connect_session.listeners(server.getsockname()[1]) == {os.getuid()}


@pytest.mark.parametrize(
    ("users", "said"),
    [
        (frozenset(), "no program listens there now, so that any user could"),
        (frozenset({0}), None),
        (frozenset({0, os.getuid()}), None),
        (frozenset({0, os.getuid() + 1}), "a program of another user listens there"),
        (None, "this system does not show whose program listens there"),
    ],
)
def test_others_are_strangers(monkeypatch, users, said) -> None:
    monkeypatch.setattr(connect_session, "listeners", lambda _: users)
    assert connect_session.stranger_at(1) == said
