"""Check a finished run folder from its files alone, slowly and obviously. Shared by tests."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

from tests.builders.datasets import rows_of
from tests.builders.places import release_of, truth_of

Histogram = dict[int, int]


def sparse(folder: Path) -> dict[str, Histogram]:
    """Geocode to {cell: count} of all published rows of a dataset of sparse histograms."""
    out: dict[str, Histogram] = {}
    for row in rows_of(folder):
        assert row["geocode"] not in out, f"{row['geocode']} appears twice"
        out[row["geocode"]] = dict(zip(row["cells"], row["counts"], strict=True))
    return out


def geography(out: Path, level: str) -> dict[str, str]:
    """Geocode to parent of all geounits of a geolevel."""
    rows = rows_of(out / "release" / "geography" / f"level={level}")
    return {row["geocode"]: row["parent"] for row in rows}


def tree_is_consistent(out: Path, levels: list[str]) -> bool:
    """Whether children sum to their parent, cell by cell, with positive counts everywhere."""
    for above, below in zip(levels, levels[1:], strict=False):
        parent_of = geography(out, below)
        parents = sparse(release_of(out).counts(above))
        sums: dict[str, Counter[int]] = {}
        for code, cells in sparse(release_of(out).counts(below)).items():
            if min(cells.values()) <= 0:
                return False
            sums.setdefault(parent_of[code], Counter()).update(cells)
        if {code: dict(cells) for code, cells in sums.items()} != parents:
            return False
    return True


def totals_are_exact(out: Path, level: str) -> bool:
    """Whether every geounit of a geolevel has its true number of persons."""
    released = sparse(release_of(out).counts(level))
    truth = sparse(truth_of(out).histograms(level))
    codes = geography(out, level)
    return all(
        sum(released.get(code, {}).values()) == sum(truth.get(code, {}).values()) for code in codes
    )


def output_equals_input(out: Path, level: str) -> bool:
    """Whether the release equals the truth, cell by cell."""
    return sparse(release_of(out).counts(level)) == sparse(truth_of(out).histograms(level))


def microdata_rows(out: Path) -> Counter[tuple[str, ...]]:
    """Rows of the CSV microdata with their multiplicity, header checked."""
    folder = release_of(out).microdata / "csv"
    rows: Counter[tuple[str, ...]] = Counter()
    for part in json.loads((folder / "_manifest.json").read_text())["files"]:
        with (folder / part["file"]).open(newline="") as handle:
            reader = csv.reader(handle)
            header = next(reader)
            assert header[0] == "geocode"
            rows.update(tuple(row) for row in reader)
    return rows
