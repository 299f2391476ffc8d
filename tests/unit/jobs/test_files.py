"""Small JSON files: whole or not at all."""

from __future__ import annotations

import pytest

from das.errors import OutputError
from jobs.files import create_file, read_json, write_json


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
