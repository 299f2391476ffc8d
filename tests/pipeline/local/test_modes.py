"""Who can read what of a run folder: nobody but its owner, until a release is finalized."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from das.errors import OutputError
from jobs.pipeline.confidential import draw as drawing
from jobs.pipeline.storage.files import close_folder, make_closed_folder
from tests.builders import in_process, toy
from tests.builders.places import release_of, truth_of

MASKS = [0o022, 0o000, 0o077]
each_mask = pytest.mark.parametrize("mask", MASKS, ids=lambda mask: f"umask {mask:03o}")


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """Mode of a folder and of all in it, by path."""
    paths = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in paths}


def configuration(folder: Path) -> Path:
    toy.write_records(folder)
    return toy.configuration(folder)


@each_mask
def test_a_finished_run_opens_its_release_and_nothing_else(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        out = in_process.execute(configuration(tmp_path))
    found = modes(out)
    assert found["."] == found["confidential"] == 0o700
    for name, mode in found.items():
        is_folder = (out / name).is_dir()
        if name.startswith("release"):
            assert mode == (0o755 if is_folder else 0o644) & ~mask, name
        elif not is_folder:
            assert mode == 0o600, name
    assert {
        "release/products/persons/ledger.jsonl",
        "release/products/persons/manifest.json",
        "release/products/persons/report.html",
    } <= set(found)
    assert {"summary.json", "run.json", "confidential/products/persons/evaluation.json"} <= set(
        found
    )
    assert any("histograms/level=block/part-" in name for name in found)


@each_mask
def test_of_an_interrupted_run_nothing_is_open(tmp_path: Path, mask: int, monkeypatch) -> None:
    """Draws of a geolevel that were not published lie there, and nobody else can read them."""

    def stop(dataset: Path, *_: object) -> None:
        if dataset.name == "level=tract":
            raise KeyboardInterrupt
        publish(dataset, *_)

    publish = drawing.publish
    monkeypatch.setattr(drawing, "publish", stop)
    with umask(mask), pytest.raises(KeyboardInterrupt):
        in_process.execute(configuration(tmp_path))
    out = tmp_path / "out"
    assert list((release_of(out).measurements("tract")).glob("part-*"))
    assert not (release_of(out).measurements("tract") / "_manifest.json").exists()
    assert list((truth_of(out).keys).iterdir()) == []
    assert {name: mode for name, mode in modes(out).items() if mode & 0o077} == {}


def test_folders_that_were_opened_are_closed_at_the_next_start(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    (tmp_path / "out").mkdir(mode=0o755)
    out = in_process.execute(config)
    assert modes(out)["."] == 0o700
    for folder in (out, out / "confidential"):
        folder.chmod(0o755)
    in_process.execute(config)
    assert modes(out)["."] == modes(out)["confidential"] == 0o700
    assert modes(out)["release/products/persons/manifest.json"] == 0o644


def test_a_folder_that_cannot_be_closed_is_refused(tmp_path: Path, monkeypatch) -> None:
    """As on file systems without permissions, where changing them does nothing."""
    tmp_path.chmod(0o755)
    monkeypatch.setattr(Path, "chmod", lambda *_, **__: None)
    with pytest.raises(OutputError, match=r"cannot be closed to them; got mode 755"):
        close_folder(tmp_path)


def test_folders_above_are_closed_too_and_files_are_no_folders(tmp_path: Path) -> None:
    with umask(0):
        make_closed_folder(tmp_path / "a" / "b")
    assert modes(tmp_path)["a"] == modes(tmp_path)["a/b"] == 0o700
    make_closed_folder(tmp_path / "a" / "b")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        make_closed_folder(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        make_closed_folder(tmp_path / "file" / "below")
