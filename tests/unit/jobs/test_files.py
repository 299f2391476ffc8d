"""Small JSON files: whole or not at all."""

from __future__ import annotations

import pytest

from das.errors import OutputError
from jobs.files import read_json, write_json


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
