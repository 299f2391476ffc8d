"""Ready run files of the 2020 demographic and housing characteristics, on some of their geolevels."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import yaml

from tests.checkout import ROOT

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


def run_file(folder: Path, name: str, levels: list[str]) -> Path:
    """A ready run file on some of its geolevels, data and outputs in a folder, noise seeded."""
    text = (ROOT / "conf" / "run" / f"{name}.yaml").read_text()
    text = text.replace("../../build/", f"{folder}/").replace("../", f"{ROOT}/conf/")
    document = yaml.safe_load(text)
    spine = document["geography"]["levels"]
    kept = [level for level in spine if level["name"] in levels]
    document["geography"]["levels"] = kept
    document["privacy"] = {"randomness": {"source": "seeded_not_for_release", "seed": 3}}
    document["runtime"] = {"master": "local[2]", "driver_memory": "1g"}
    for product in document["products"].values():
        product["output"] |= {"tables": ["total"], "microdata": []}
        if len(kept) < len(spine):
            own = product["privacy"]["allocation"]
            product["privacy"]["allocation"] = cut_allocation(folder, Path(own), levels)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def cut_allocation(folder: Path, path: Path, levels: list[str]) -> str:
    """The same queries and shares at some geolevels alone."""
    document = yaml.safe_load(path.read_text())
    kept = {name: one for name, one in document["levels"].items() if name in levels}
    total = sum(Fraction(one["share"]) for one in kept.values())
    for one in kept.values():
        one["share"] = str(Fraction(one["share"]) / total)
    (folder / path.name).write_text(yaml.safe_dump({**document, "levels": kept}))
    return str(folder / path.name)
