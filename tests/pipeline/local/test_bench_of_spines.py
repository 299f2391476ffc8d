"""`python -m bench.spines` says what of its input cannot be compared, before any release."""

from __future__ import annotations

import sys

import pyarrow.parquet as pq
import pytest

from bench import spines


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--tracts", "100"), "marked: has no block, so there is nothing to compare; got"),
        (("--kinds", "empty"), "empty: has no block, so there is nothing to compare; got"),
        (("--kinds", "sldl"), "lacks columns"),
        (("--spines", "census,other"), "--spines has no 'other'; there are census, split"),
        (("--tracts", "0"), "--tracts wants 1 or more"),
        (("--data", "absent.parquet"), "absent.parquet"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path, monkeypatch, capsys, words, message):
    table = pq.read_table(spines.DATA)
    path = tmp_path / "blocks.parquet"
    pq.write_table(table.append_column("empty", [["99999"] * len(table)]), path)
    monkeypatch.setattr(sys, "argv", ["spines", "--data", str(path), *words])
    monkeypatch.setattr(spines, "released", None)  # nothing is released
    with pytest.raises(SystemExit) as refused:
        spines.main()
    assert refused.value.code == 2
    assert message in capsys.readouterr().err


def test_blocks_with_all_of_it_are_read():
    blocks = spines.Blocks.read(spines.DATA, [], 1)
    assert blocks.marked.any()
    assert all((names != "").any() for names in blocks.areas().values())
