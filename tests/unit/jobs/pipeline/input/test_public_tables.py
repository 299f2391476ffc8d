"""Public tables of counts: what is refused, and geocodes that a spreadsheet took for numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from das.errors import InputError
from jobs.pipeline.config.models.kinds.kind import PublicTable
from jobs.pipeline.input.public_tables import read_public

LABELS = ("homes", "prisons")


def table(folder: Path, text: str, **changes: object) -> PublicTable:
    path = folder / "counts.csv"
    path.write_text(text)
    stated = {"path": str(path), "columns": {"homes": "h", "prisons": "p"}, **changes}
    return PublicTable.model_validate(stated)


def test_counts_by_geounit_in_their_order(tmp_path):
    codes, counts = read_public(table(tmp_path, "geocode,p,h\n0102,1,5\n0101,0,3\n"), LABELS, 4)
    assert codes.tolist() == ["0101", "0102"]
    assert counts.tolist() == [[3, 0], [5, 1]]


def test_leading_zeros_that_were_lost_are_put_back(tmp_path):
    text = "geocode,p,h\n101,0,3\n1102,1,5\nA102,2,2\n"
    codes, counts = read_public(table(tmp_path, text, leading_zeros="lost"), LABELS, 4)
    assert codes.tolist() == ["0101", "1102", "A102"]
    assert counts.tolist() == [[3, 0], [5, 1], [2, 2]]
    with pytest.raises(InputError, match="say `leading_zeros: lost` beside the path"):
        read_public(table(tmp_path, text), LABELS, 4)


def test_zeros_put_back_may_name_a_geounit_twice(tmp_path):
    text = "geocode,p,h\n101,0,3\n0101,1,5\n"
    with pytest.raises(InputError, match=r"geocode appears twice \(1 such\); got 0101"):
        read_public(table(tmp_path, text, leading_zeros="lost"), LABELS, 4)


def test_what_is_not_said_is_not_written(tmp_path):
    """Digests of run files that could not say it stay as they are."""
    kept, lost = table(tmp_path, ""), table(tmp_path, "", leading_zeros="lost")
    assert "leading_zeros" not in kept.model_dump(mode="json")
    assert lost.model_dump(mode="json")["leading_zeros"] == "lost"
