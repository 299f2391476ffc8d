"""A journal only grows, and any other change of it is noticed."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from das.errors import LedgerError, OutputError
from jobs.storage import journal
from jobs.storage.journal import append_to_journal, read_journal


def add(path: Path, *lines: dict) -> list[dict]:
    return append_to_journal(path, lambda _: lines)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "a.jsonl"
    add(path, {"n": 0}, {"n": 1})
    add(path, {"n": 2, "text": "ä\n"})
    return path


WHOLE = [{"n": 0}, {"n": 1}, {"n": 2, "text": "ä\n"}]


def test_lines_come_back_in_order(path):
    assert read_journal(path) == WHOLE
    assert add(path, {"n": 3}) == [*WHOLE, {"n": 3}]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_is_not_there_is_empty(tmp_path):
    assert read_journal(tmp_path / "none") == []


def test_a_refusal_changes_nothing(path):
    before = path.read_bytes()

    def refuse(lines):
        assert lines == WHOLE
        raise LedgerError("here", "no")

    with pytest.raises(LedgerError, match="here: no"):
        append_to_journal(path, refuse)
    assert add(path) == WHOLE
    assert path.read_bytes() == before


def change(line: bytes) -> bytes:
    return line.replace(b'"n": 1', b'"n": 7')


@pytest.mark.parametrize(
    ("edit", "wrong"),
    [
        (lambda lines: [lines[0], change(lines[1]), lines[2]], 3),
        (lambda lines: lines[1:], 1),
        (lambda lines: [lines[0], lines[2]], 2),
        (lambda lines: [lines[1], lines[0], lines[2]], 1),
        (lambda lines: [*lines, lines[2]], 4),
        (lambda lines: [lines[0], b"\n", *lines[1:]], 2),
        (lambda lines: [b"{}\n", *lines], 1),
        (lambda lines: [b"no json\n"], 1),
        (lambda lines: [b"[1]\n"], 1),
    ],
)
def test_every_edit_is_noticed(path, edit, wrong):
    path.write_bytes(b"".join(edit(path.read_bytes().splitlines(keepends=True))))
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=f"line {wrong}: does not continue"):
        read_journal(path)
    with pytest.raises(LedgerError):
        add(path, {"n": 3})
    assert path.read_bytes() == before


def test_a_torn_last_line_was_never_written(path):
    with path.open("ab") as handle:
        handle.write(b'{"line": 3, "previ')
    assert read_journal(path) == WHOLE
    assert add(path, {"n": 3}) == [*WHOLE, {"n": 3}]
    assert read_journal(path) == [*WHOLE, {"n": 3}]


def test_a_full_disk_leaves_the_lines_there_were(path, monkeypatch):
    real = os.write
    monkeypatch.setattr(journal.os, "write", lambda handle, data: real(handle, data[:5]))
    monkeypatch.setattr(journal.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OutputError, match="cannot be written; got full"):
        add(path, {"n": 3})
    monkeypatch.undo()
    assert read_journal(path) == WHOLE
    assert path.read_bytes().endswith(b"\n")


def test_places_that_cannot_be_written_or_read(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        add(tmp_path / "file" / "below", {})
    with pytest.raises(OutputError, match="cannot be read"):
        read_journal(tmp_path)


def count_up(path: Path, times: int) -> None:
    for _ in range(times):
        append_to_journal(path, lambda lines: [{"n": len(lines)}])


def test_processes_take_turns(tmp_path):
    path = tmp_path / "turns"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=count_up, args=(path, 20)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [line["n"] for line in read_journal(path)] == list(range(80))
    assert json.loads(path.read_text().splitlines()[5])["line"] == 5
