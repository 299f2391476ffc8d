"""Folders of data: what would not be read is refused, so that no record is lost in silence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from das.errors import InputError
from jobs.pipeline.input.files import find_files


def test_a_folder_is_its_data_files_and_what_is_no_data_may_lie_beside(tmp_path: Path) -> None:
    for name in ("a.csv", "b.TSV", "_SUCCESS", ".a.csv.crc", "README.md", "schema.json"):
        (tmp_path / name).touch()
    assert [file.name for file in find_files(tmp_path)] == ["a.csv", "b.TSV"]


@pytest.mark.parametrize("name", ["b.csv.gz", "b.ZIP", "b.parquet.zst", "b.xlsx", "b.dat"])
def test_a_folder_with_data_that_is_not_read_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.csv").touch()
    (tmp_path / name).touch()
    with pytest.raises(InputError, match=f"holds data that would not be read; got .*{name}"):
        find_files(tmp_path)


def test_links_that_lead_nowhere_or_to_a_folder_are_refused(tmp_path: Path) -> None:
    """A search does not go on in the target of a link, and passes over one without a target."""
    data, other = tmp_path / "data", tmp_path / "other"
    data.mkdir(), other.mkdir()
    (data / "a.csv").touch(), (other / "b.csv").touch()
    (data / "state").symlink_to(other)
    with pytest.raises(InputError, match=r"would not be read; got .*state"):
        find_files(data)
    (data / "state").unlink()
    (data / "c.csv").symlink_to(other / "c.csv")
    with pytest.raises(InputError, match=r"would not be read; got .*c\.csv"):
        find_files(data)
    (data / "c.csv").unlink()
    (data / "b.csv").symlink_to(other / "b.csv")
    assert [file.name for file in find_files(data)] == ["a.csv", "b.csv"]


def test_a_folder_that_may_not_be_listed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "a.csv").touch()
    (tmp_path / "closed" / "b.csv").touch()
    scan = os.scandir

    def refuse(path: object) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return scan(path)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match="cannot be listed; got Permission denied"):
        find_files(tmp_path)
