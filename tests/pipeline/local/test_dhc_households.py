"""Households of the 2020 schema on a few blocks, bound to a release of occupied and vacant units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from jobs.config.load import load_run
from jobs.release.verify import verify_run
from jobs.synthetic.generate import GenerateSpec, generate
from tests.builders.in_process import execute
from tests.checkout import ROOT
from tests.release_checks import sparse, tree_is_consistent

LEVELS = [
    "nation",
    "state",
    "county",
    "prim",
    "tract_subset_group",
    "tract_subset",
    "block_group",
    "block",
]


def run_file(folder: Path, name: str, **products: Any) -> Path:
    """A ready run file, its data and outputs in a folder, its noise seeded."""
    text = (ROOT / "conf" / "run" / f"{name}.yaml").read_text()
    document = yaml.safe_load(
        text.replace("../../build/", f"{folder}/").replace("../", f"{ROOT}/conf/")
    )
    document["privacy"] = {"randomness": {"source": "seeded_not_for_release", "seed": 3}}
    document["runtime"] = {"master": "local[2]", "driver_memory": "1g"}
    for product in document["products"].values():
        product["output"]["tables"] = ["total"]
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few blocks, and the release of occupied and vacant units."""
    folder = tmp_path_factory.mktemp("households")
    spec = GenerateSpec(
        seed=8, blocks=24, schema="dhc_households", format="histograms", with_prims=True
    )
    generate(spec, folder / "dhc-households-data")
    execute(run_file(folder, "dhc-households-h1"))
    return folder


def units(release: Path, geolevel: str) -> dict[str, tuple[int, int]]:
    """Occupied and vacant units as the first release has them."""
    counts = sparse(release / f"counts/level={geolevel}")
    return {code: (cells.get(0, 0), cells.get(1, 0)) for code, cells in counts.items()}


def test_a_household_is_in_every_unit_that_was_released_as_occupied(folder: Path) -> None:
    run = run_file(folder, "dhc-households")
    out = execute(run)
    resolved = load_run(run)
    assert verify_run(resolved)["families"] > 0
    released = units(folder / "dhc-households-h1/release", "block")
    for geolevel in ("nation", "county", "block"):
        digits = resolved.plan.level(geolevel).digits
        wanted: dict[str, Any] = {}
        for code, counts in released.items():
            above = code[:digits] or "0"
            wanted[above] = np.add(wanted.get(above, 0), counts)
        households = sparse(out / f"release/counts/level={geolevel}")
        vacant = sparse(out / f"release/units/counts/level={geolevel}")
        for code, (occupied, empty) in wanted.items():
            assert sum(households.get(code, {}).values()) == occupied
            assert sum(n for c, n in vacant.get(code, {}).items() if 4 <= c < 11) == empty
            assert sum(n for c, n in vacant.get(code, {}).items() if c < 4) == occupied
    truth = sparse(out / "confidential/histograms/level=block")
    assert {c: sum(v.values()) for c, v in truth.items()} != {
        c: n for c, (n, _) in released.items()
    }
    assert tree_is_consistent(out, LEVELS)
    zeros = resolved.plan.limits.zeros
    cells = {cell for row in households.values() for cell in row}
    assert zeros is not None
    assert not cells & {*zeros.tolist()}
