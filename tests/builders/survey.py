"""A small invented survey, its public weights and its run file."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import yaml

RECORDS = 600
SEXES, GROUPS = ("m", "f"), ("a", "b", "c")

CONFIG: dict[str, Any] = {
    "kind": "survey",
    "format": 3,
    "name": "small",
    "privacy": {"rho": "4"},
    "data": {
        "path": "persons.csv",
        "n_records": RECORDS,
        "columns": {
            "sex": {"column": "SEX", "codes": {"1": "m", "2": "f"}},
            "group": {"column": "GROUP", "codes": {"A": "a", "B": "b", "C": "c"}},
            "age": {"column": "AGE", "bins": [0, 16, 30, 50, 70]},
            "income": {
                "column": "INCOME",
                "bins": [0, 1000, 2000, 5000],
                "missing": {"": "under 16"},
            },
        },
    },
    "statistics": [
        {
            "mean": "income",
            "low": 0,
            "high": 10000,
            "sd_bound": 1500,
            "share": "1/4",
            "stratify_by": ["sex", "group"],
            "weights": "weights.csv",
            "missing": 0,
        },
        {"mean": "age", "low": 0, "high": 100, "sd_bound": 25, "share": "1/4"},
    ],
    "synthesis": {
        "share": "1/2",
        "components": 20,
        "n_fits": 1,
        "steps": 20,
        "n_remeasured_pairs": 1,
    },
    "output": {"directory": "out"},
}
WEIGHTS = [
    "sex,group,weight",
    "m,a,0.30",
    "m,b,0.15",
    "m,c,0.05",
    "f,a,3/10",
    "f,b,3/20",
    "f,c,1/20",
]


def people(n: int = RECORDS, seed: int = 7) -> list[tuple[str, str, str, str]]:
    """Rows of SEX, GROUP, AGE, INCOME; nobody is of sex f and group c, and one of sex m is."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        age = int(rng.integers(0, 90))
        income = "" if age < 16 else str(int(rng.lognormal(7.2, 0.6)))
        rows.append(("12"[int(rng.integers(2))], "AB"[int(rng.random() < 0.3)], str(age), income))
        if i == 0:
            rows[0] = ("1", "C", str(age), income)
    return rows


def write_people(folder: Path, rows: list[tuple[str, str, str, str]] | None = None) -> Path:
    """Write persons.csv."""
    lines = [",".join(row) for row in (people() if rows is None else rows)]
    path = folder / "persons.csv"
    path.write_text("\n".join(["SEX,GROUP,AGE,INCOME", *lines, ""]))
    return path


def write_survey(folder: Path, **changes: Any) -> Path:
    """Write data, weights and a run file; a change a__b=c sets key b of section a."""
    write_people(folder)
    (folder / "weights.csv").write_text("\n".join([*WEIGHTS, ""]))
    return configure(folder, **changes)


def configure(folder: Path, **changes: Any) -> Path:
    """Write the run file alone; a number among the keys is a place in a list, None removes."""
    config = copy.deepcopy(CONFIG)
    for keys, value in changes.items():
        *path, last = keys.split("__")
        section: Any = config
        for key in path:
            section = section[int(key)] if isinstance(section, list) else section[key]
        if value is None:
            section.pop(last)
        else:
            section[last] = value
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    return file
