"""Seeded noise: the root, whose code is "0", and a geounit with the code "0" share none."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import yaml

from tests.builders import in_process, toy
from tests.builders.datasets import rows_of
from tests.builders.places import release_of

LEVELS = {"nation": 0, "state": 1}
PERSONS = {"0": 40, "1": 25}  # by state, all of one cell


def configuration(folder: Path) -> Path:
    with (folder / "records.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["block", "sex", "age"])
        for state, persons in PERSONS.items():
            writer.writerows([[state, "female", "under_18"]] * persons)
    shares = {"share": "1/2", "queries": {"detailed": "1"}}
    allocation = {"name": "two", "levels": dict.fromkeys(LEVELS, shares)}
    (folder / "allocation.yaml").write_text(yaml.safe_dump(allocation, default_flow_style=None))
    config = toy.configuration(
        folder,
        geography={"levels": [{"name": name, "digits": digits} for name, digits in LEVELS.items()]},
        privacy__rho="1/100",
        privacy__allocation=str(folder / "allocation.yaml"),
        invariants=[],
    )
    return config


def noise(out: Path, level: str, persons: dict[str, int]) -> dict[str, np.ndarray]:
    """What was added to the six cells of each geounit."""
    rows = rows_of(release_of(out).measurements(level))
    return {
        row["geocode"]: np.array(row["answers"]) - [persons[row["geocode"]], 0, 0, 0, 0, 0]
        for row in rows
    }


def test_geolevels_whose_codes_agree_have_noise_of_their_own(tmp_path: Path) -> None:
    out = in_process.execute(configuration(tmp_path))
    nation = noise(out, "nation", {"0": sum(PERSONS.values())})["0"]
    states = noise(out, "state", PERSONS)
    assert np.abs(nation).max() > 3  # so noise that is shared would be seen
    for state in states.values():
        assert (state != nation).any()
