"""The first numbers of a report: how many, at what cost, and how far noisy counts are off."""

from __future__ import annotations

import pytest

from jobs.pipeline.report.text import RHO
from jobs.pipeline.report.tiles import SEEDED, banners, facts, run_time_tile, tiles
from tests.unit.jobs.pipeline.report.report_samples import (
    budget_row,
    manifest,
    manifest_document,
    summary,
)


def shown(**changes) -> dict[str, tuple[str, str]]:
    return {tile.label: (tile.value, tile.detail) for tile in tiles(manifest(**changes))}


def test_a_release_is_headed_by_what_its_readers_ask_first() -> None:
    assert shown() == {
        "Persons": ("1,052,567", "in the microdata"),
        "Leaf geounits": ("25,181", "block, the finest of 3 geolevels"),
        f"Privacy loss {RHO}": ("2.56", "exactly 293764/114921, zero-concentrated DP"),
        "Privacy loss ε": ("17.144", "at δ = 10⁻¹⁰"),
        "Invariants": ("1", "published exactly"),
        "Noise of total": (
            "±4.11",
            "9 in 10 noisy answers at block; on average it has 41.80 persons",
        ),
    }


def test_pure_privacy_has_one_loss() -> None:
    privacy = manifest_document()["privacy"] | {"definition": "pure", "total": "3"}
    labels = [label for label in shown(privacy=privacy) if label.startswith("Privacy")]
    assert labels == ["Privacy loss ε"]
    assert shown(privacy=privacy)["Privacy loss ε"] == ("3.00", "exactly 3, pure DP")


def test_a_total_too_long_to_read_is_left_to_the_section() -> None:
    total = f"{10**12}/{10**12 + 1}"
    privacy = manifest_document()["privacy"] | {"total": total}
    assert shown(privacy=privacy)[f"Privacy loss {RHO}"][1] == "zero-concentrated DP"


def test_without_microdata_nobody_is_counted() -> None:
    found = shown(totals={"persons": None, "leaf_geounits": 25_181})
    assert found["Persons"] == ("none", "in the microdata")
    assert "on average" not in found["Noise of total"][1]


def test_the_coarsest_query_of_the_leaves_stands_for_the_noise() -> None:
    budget = [budget_row("nation", "total"), budget_row("block", "detailed")]
    assert "Noise of detailed" in shown(budget=budget)
    assert not any(label.startswith("Noise") for label in shown(budget=budget[:1]))


@pytest.mark.parametrize(("cores", "detail"), [(1, "on 1 core"), (8, "on 8 cores"), (None, "")])
def test_the_time_of_all_stages_is_for_internal_reports(cores, detail) -> None:
    environment = manifest_document()["environment"] | {"cores": cores}
    tile = run_time_tile(manifest(environment=environment), summary())
    assert (tile.label, tile.value, tile.detail) == ("Run time", "5 min 00 s", detail)


def test_seeded_noise_is_a_banner_and_a_solution_a_fact() -> None:
    assert banners(manifest()) == []
    assert banners(manifest(not_for_release=True)) == [SEEDED]
    solution = manifest_document()["solution"] | {"name": "other"}
    assert facts(manifest(solution=solution))[0] == ("Solution", "other")
    assert dict(facts(manifest()))["Schema"] == "toy, 252 cells"
