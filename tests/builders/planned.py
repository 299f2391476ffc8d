"""A small nation to plan for: counties with one to three blocks, a run file, and no data."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.builders.run_files import to_products

LEAVES = ["111", "112", "113", "121", "131", "132", "211", "212", "221", "222", "223", "231"]
LEVELS = ("nation", "county", "block")


def write_run(folder: Path, schema: str, recode: str, tables: list[str]) -> Path:
    """Write run.yaml with rho 2, the total of the nation exact, and the files it names.

    Args:
      folder: Where.
      schema: Schema file (YAML).
      recode: Measured at every geolevel with a quarter of its budget, as the detailed query; the
        total has half.
      tables: To be released.
    """
    (folder / "schema.yaml").write_text(schema)
    shares = {"total": "1/2", recode: "1/4", "detailed": "1/4"}
    levels = {
        name: {"share": share, "queries": shares}
        for name, share in zip(LEVELS, ("1/2", "1/4", "1/4"), strict=True)
    }
    (folder / "old.yaml").write_text(yaml.safe_dump({"name": "old", "levels": levels}))
    (folder / "blocks.csv").write_text("\n".join(["geocode", *LEAVES]) + "\n")
    run = {
        "name": "toy",
        "schema": "schema.yaml",
        "data": {"input_format": "histograms", "path": "absent"},
        "geography": {
            "levels": [
                {"name": name, "digits": digits}
                for name, digits in zip(LEVELS, (0, 2, 3), strict=True)
            ],
            "geounits": {"path": "blocks.csv"},
        },
        "privacy": {"rho": "2", "allocation": "old.yaml"},
        "invariants": [{"query": "total", "geolevel": "nation"}],
        "output": {"directory": "out", "tables": tables},
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(to_products(run)))
    return path
