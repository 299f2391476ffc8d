"""Small JSON files: whole or not at all."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from das.errors import OutputError
from jobs.cli.main import main
from jobs.pipeline.storage.files import create_file, read_json, refuse_foreign, write_json, writing


def test_what_is_written_is_read(tmp_path):
    write_json(tmp_path / "new" / "file.json", {"a": 1})
    assert read_json(tmp_path / "new" / "file.json", "write it") == {"a": 1}


def test_a_file_that_cannot_be_written_leaves_no_draft(tmp_path):
    held = tmp_path / "file.json"
    held.mkdir()
    with pytest.raises(OutputError, match="cannot be written"):
        write_json(held, {"a": 1})
    assert list(tmp_path.iterdir()) == [held]


def test_a_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(OutputError, match="taken"):
        write_json(tmp_path / "taken" / "file.json", {})


def test_a_file_is_created_by_one_of_all_who_try(tmp_path):
    assert create_file(tmp_path / "new" / "file", "one")
    assert not create_file(tmp_path / "new" / "file", "other")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]
    assert (tmp_path / "new" / "file").read_text() == "one"


def test_only_files_of_the_kind_are_written_over(tmp_path):
    path = tmp_path / "file"
    refuse_foreign(path, b"PAR1", "estimates")
    for own in (b"", b"PAR1 and more"):
        path.write_bytes(own)
        refuse_foreign(path, b"PAR1", "estimates")
    for other in (tmp_path, Path("/dev/null")):
        with pytest.raises(OutputError, match="is not written over"):
            refuse_foreign(other, b"PAR1", "estimates")
    path.write_bytes(b"PAR")
    with pytest.raises(OutputError, match="name a new file, or remove this one"):
        refuse_foreign(path, b"PAR1", "estimates")


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "conf/run/toy.yaml", "--report"],
        ["run", "conf/run/toy.yaml", "--log-json"],
    ],
)
def test_commands_write_over_no_other_file(tmp_path, monkeypatch, capsys, words):
    kept = tmp_path / "letter.txt"
    kept.write_text("dear reader")
    monkeypatch.setattr(sys, "argv", ["das", *words, str(kept)])
    assert main() == 2
    assert "is another file and is not written over" in capsys.readouterr().err
    assert kept.read_text() == "dear reader"


@pytest.mark.parametrize(
    ("number", "what"),
    [
        (errno.ENOSPC, "give the disk room"),
        (errno.EACCES, "give this user the right to write there, or name another place"),
        (errno.EROFS, "give this user the right to write there, or name another place"),
        (errno.ENOENT, "name a folder that exists or can be made"),
        (errno.EIO, "see to the disk"),
    ],
)
def test_what_to_do_follows_from_why_it_cannot_be_written(
    tmp_path: Path, number: int, what: str
) -> None:
    with (
        pytest.raises(
            OutputError, match=f"got {os.strerror(number)}; {what}; then repeat the command"
        ),
        writing(tmp_path / "file"),
    ):
        raise OSError(number, "")
