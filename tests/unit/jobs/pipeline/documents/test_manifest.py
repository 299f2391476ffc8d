"""The manifest as a value: what it refuses, and what follows from its budget."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from das.errors import OutputError
from jobs.pipeline.documents.document import json_of, write_document
from jobs.pipeline.documents.manifest import BudgetRow, expected_rmse, read_manifest
from jobs.pipeline.storage.layout import ReleaseLayout
from tests.unit.jobs.pipeline.report.report_samples import (
    budget_row,
    made,
    manifest,
    manifest_document,
)

LEVELS = ("nation", "county", "block")


def rows(*documents: dict) -> list[BudgetRow]:
    return [made(BudgetRow, document) for document in documents]


def test_noise_averages_variances_over_all_chains_through_a_geolevel() -> None:
    budget = rows(
        budget_row("nation", "total") | {"chain_end": "county", "variance": 4.0, "geounits": 1},
        budget_row("county", "total") | {"variance": 16.0, "geounits": 3},
        budget_row("block", "sex") | {"variance": 9.0},
    )
    assert expected_rmse(budget, LEVELS) == {
        ("nation", "total"): 2.0,
        ("county", "total"): math.sqrt((4 + 3 * 16) / 4),
        ("block", "sex"): 3.0,
    }


def test_what_no_geounit_is_measured_by_has_no_noise() -> None:
    assert expected_rmse(rows(budget_row("block", "sex") | {"geounits": 0}), LEVELS) == {}
    assert expected_rmse([], LEVELS) == {}


def test_a_manifest_is_read_from_the_release_as_it_was_written(tmp_path: Path) -> None:
    release = ReleaseLayout(tmp_path)
    write_document(release.manifest, manifest())
    assert read_manifest(release) == manifest()
    assert read_manifest(release).levels == LEVELS
    assert read_manifest(release).counted == 1_052_567


def test_a_release_that_is_not_finalized_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is missing; use `das run RUN --only solve` first"):
        read_manifest(ReleaseLayout(tmp_path))


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ({"mae": 73}, "mae: Unexpected keyword argument"),
        ({"budget": [budget_row("block", "sex") | {"mae": 1}]}, "budget.0.mae: Unexpected"),
        ({"budget": [{"geolevel": "block"}]}, "budget.0.chain_end: Field required"),
        ({"not_for_release": "no"}, "not_for_release: Input should be a valid boolean"),
        ({"privacy": None}, "privacy: Input should be an object"),
        ({"totals": {"persons": 1.5}}, "totals.persons: Input should be a valid integer"),
    ],
)
def test_a_manifest_that_says_more_or_less_is_damaged(tmp_path: Path, change, got) -> None:
    release = ReleaseLayout(tmp_path)
    release.manifest.write_text(json.dumps(manifest_document(**change)))
    with pytest.raises(OutputError, match="is damaged") as caught:
        read_manifest(release)
    assert str(caught.value.got).startswith(got)


@pytest.mark.parametrize("format_", [2, 4, None])
def test_a_manifest_of_another_format_is_not_read(tmp_path: Path, format_) -> None:
    release = ReleaseLayout(tmp_path)
    release.manifest.write_text(json.dumps(manifest_document(format=format_)))
    with pytest.raises(OutputError, match="of a format that this version does not read"):
        read_manifest(release)


def test_the_composition_of_products_is_there_only_with_other_products() -> None:
    assert "together" not in json_of(manifest())
