"""What a manifest does not name, or names otherwise, is found in the folder of a release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from das.errors import OutputError, VerificationError
from jobs.pipeline.documents.manifest import Output, ReleasedFile
from jobs.pipeline.release.finalizing import (
    _difference,
    released_files,
    released_outputs,
    tidy_release,
    verify_contents,
)
from jobs.pipeline.storage.dataset import MANIFEST
from jobs.pipeline.storage.layout import ReleaseLayout
from tests.builders import two_families as two
from tests.builders.places import release_of


@dataclass(frozen=True)
class Stated:
    """What a manifest states of the files of a release."""

    outputs: tuple[Output, ...]
    files: tuple[ReleasedFile, ...]
    not_for_release: bool = False


@pytest.fixture
def release(tmp_path: Path) -> ReleaseLayout:
    found = release_of(tmp_path)
    table = pa.table({"geocode": ["1", "2", "3"]})
    two.write(found.root / "counts", [table], table.schema, {})
    (found.root / "codebook.md").write_text("ages in years")
    return found


def add_to(name: str) -> Callable[[Path], object]:
    return lambda root: (root / name).write_bytes((root / name).read_bytes() + b"\n")


def change_a_byte(root: Path) -> None:
    """Of the rows of the dataset, without another size."""
    (part,) = (root / "counts").glob("*.parquet")
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (add_to(f"counts/{MANIFEST}"), "counts.* is not the one the manifest of the release names"),
        (add_to("codebook.md"), "codebook.md: is not the one the manifest of the release names"),
        (change_a_byte, "counts/"),
        (lambda root: (root / "notes").touch(), "notes: lies in the release, and its manifest"),
        (lambda root: (root / "NOT_FOR_RELEASE.txt").touch(), "not_for_release: does not agree"),
    ],
    ids=["dataset", "file", "rows", "stray file", "seeded"],
)
def test_what_differs_from_the_manifest_is_found(release, change, said):
    stated = Stated(released_outputs(release), released_files(release))
    assert verify_contents(release, stated) == 1
    change(release.root)
    with pytest.raises((OutputError, VerificationError), match=said):
        verify_contents(release, stated)


def test_a_file_that_no_run_writes_is_not_finalized(release):
    tidy_release([release], {}, [release.root / "codebook.md"])
    with pytest.raises(OutputError, match=r"codebook.md: is not a file of this run"):
        tidy_release([release], {}, [])


@pytest.mark.parametrize(
    ("stated", "again", "field"),
    [
        ({"parts": [1]}, {"parts": [1, 2]}, "parts"),
        ({}, {"exact": "sex"}, "exact"),
        ({"delta": 1e-10}, {"delta": 1.000001e-10}, "delta"),
        ({"is_pure": 1}, {"is_pure": True}, "is_pure"),
        ({"exact": "sex"}, {}, "exact"),
        ({"rows": {"cost": "1/2"}}, {"rows": {"cost": "1/3"}}, "rows.cost"),
    ],
)
def test_the_field_that_differs_is_named(stated, again, field):
    found = _difference(stated, again, ())
    assert found is not None
    assert found[0] == field


def test_last_bits_may_differ():
    assert _difference({"rho": 0.1 + 0.2}, {"rho": 0.3}, ()) is None
