"""A journal only grows, and any other change of it is noticed."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import uuid
from pathlib import Path

import pytest

from das.errors import LedgerError, OutputError
from jobs.pipeline.storage import journal
from jobs.pipeline.storage.journal import append_to_journal, read_journal
from jobs.pipeline.storage.place import Place, StoredPlace
from jobs.pipeline.storage.stores.objects import ObjectStoreFiles
from tests.servers.s3 import s3_server


def add(path: Place, *lines: dict) -> list[dict]:
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


def count_up(path: Place, times: int) -> None:
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


# --- in a store ----------------------------------------------------------------------------------


@pytest.fixture
def stored() -> StoredPlace:
    path = StoredPlace(f"memory://{uuid.uuid4().hex}", "folder/a.jsonl")
    add(path, {"n": 0}, {"n": 1})
    add(path, {"n": 2, "text": "ä\n"})
    return path


def files(path: StoredPlace) -> list[StoredPlace]:
    return list(path.with_name("a.jsonl.lines").iterdir())


def test_a_journal_in_a_store_is_one_file_for_each_append(stored):
    assert read_journal(stored) == WHOLE
    assert [path.name for path in files(stored)] == ["00000000.jsonl", "00000002.jsonl"]
    assert add(stored) == WHOLE
    assert len(files(stored)) == 2


@pytest.mark.parametrize(
    ("edit", "wrong"),
    [
        (lambda first, second: first.store.replace(first.key, change(first.read_bytes())), 3),
        (lambda first, second: first.unlink(), 1),
        (lambda first, second: first.store.replace(first.key, second.read_bytes()), 1),
        (lambda first, second: second.store.replace(second.key, b"{}\n"), 3),
    ],
)
def test_every_edit_in_a_store_is_noticed(stored, edit, wrong):
    edit(*files(stored))
    with pytest.raises(LedgerError, match=f"line {wrong}: does not continue"):
        read_journal(stored)
    with pytest.raises(LedgerError):
        add(stored, {"n": 3})


def test_a_file_that_is_listed_and_not_there_is_no_empty_journal(stored, monkeypatch):
    """An account that counts as empty would grant everything again."""
    read = ObjectStoreFiles.read

    def missing(self: ObjectStoreFiles, name: str) -> bytes:
        if name.endswith("00000000.jsonl"):
            raise FileNotFoundError(name)
        return read(self, name)

    monkeypatch.setattr(ObjectStoreFiles, "read", missing)
    for ask in (read_journal, lambda path: add(path, {"n": 3})):
        with pytest.raises(OutputError, match="cannot be read; got a file of it is listed"):
            ask(stored)


def test_a_journal_that_was_copied_to_a_store_goes_on_there(path, stored):
    copy = stored.with_name("copy.jsonl")
    copy.store.replace(copy.key, path.read_bytes())
    assert read_journal(copy) == WHOLE
    assert add(copy, {"n": 3}) == [*WHOLE, {"n": 3}]
    assert read_journal(copy) == [*WHOLE, {"n": 3}]


def test_processes_append_to_one_journal_of_a_bucket():
    """All lines are kept, in one order. Processes are started afresh: clients do not survive a fork."""
    with s3_server() as server, server.in_environment():
        path = StoredPlace(server.url, "account.jsonl")
        context = multiprocessing.get_context("spawn")
        workers = [context.Process(target=count_up, args=(path, 8)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [worker.exitcode for worker in workers] == [0, 0]
        assert [line["n"] for line in read_journal(path)] == list(range(16))


# --- copies from a store -------------------------------------------------------------------------


@pytest.fixture
def copy(path: Path) -> Path:
    """A journal as a copy from a store has it: one file per append, and none that is whole."""
    whole = path.read_bytes().splitlines(keepends=True)
    folder = path.with_name(path.name + journal.LINES)
    folder.mkdir()
    (folder / "00000000.jsonl").write_bytes(b"".join(whole[:2]))
    (folder / "00000002.jsonl").write_bytes(whole[2])
    path.unlink()
    return path


def test_a_copy_from_a_store_is_read_and_goes_on_in_one_file(copy):
    assert read_journal(copy) == WHOLE
    assert journal.is_begun(copy)
    assert journal.journals_under(copy.parent.parent, copy.name) == [copy]
    assert add(copy, {"n": 3}) == [*WHOLE, {"n": 3}]
    assert add(copy, {"n": 4}) == read_journal(copy) == [*WHOLE, {"n": 3}, {"n": 4}]
    for file in copy.with_name(copy.name + journal.LINES).iterdir():
        file.unlink()
    assert read_journal(copy) == [*WHOLE, {"n": 3}, {"n": 4}], "the one file has all of it"


def test_a_whole_file_that_is_older_than_its_lines_is_no_loss(copy):
    first = (copy.with_name(copy.name + journal.LINES) / "00000000.jsonl").read_bytes()
    copy.write_bytes(first)
    assert read_journal(copy) == WHOLE
    assert add(copy, {"n": 3}) == [*WHOLE, {"n": 3}]


def test_a_copy_that_goes_on_differently_is_refused(copy, tmp_path):
    other = tmp_path / "other.jsonl"
    add(other, {"n": 0}, {"n": 1})
    add(other, {"n": 2, "text": "another"}, {"n": 3})
    copy.write_bytes(other.read_bytes())
    with pytest.raises(LedgerError, match="continue differently"):
        read_journal(copy)
    with pytest.raises(LedgerError, match="continue differently"):
        add(copy, {"n": 4})


def test_removing_a_journal_removes_its_copy(copy):
    journal.remove_journal(copy)
    assert read_journal(copy) == []
    assert not journal.is_begun(copy)
