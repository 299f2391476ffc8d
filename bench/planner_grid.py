"""Every planner in every setting: solved, or refused before anything is claimed.

    python -m bench.planner_grid [--quick | --full]

A case is a planner, a schema, exact totals or none, fit_to, whether every geolevel is planned, and
the neighbors. It runs in this process on a few generated blocks, from the run file to the finalized
release. Prints a table, then one line of JSON. `rmse_ratio_to_hdmm` is of PL 94's own workload at
equal rho and bounded neighbors, from predicted errors of one geounit.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from das.errors import DasError
from jobs.pipeline.confidential.inputs import check_geounits
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.config.schema import load_schema
from tests.builders.in_process import execute
from tests.builders.places import release_of
from tests.builders.run_files import to_products
from tests.checkout import ROOT

LEVELS = ("state", "county", "block")
METHODS = ("residual_planner", "residual_planner_plus", "orp", "hdmm", "auto", "listed")
TABLES: dict[str, dict[str, int]] = {
    "block16": {"total": 1, "votingage": 1, "ethnicity_race": 1, "detailed": 1},
    "pl94_tables": {"total": 1, "votingage": 1, "hispanic * cenrace": 1, "detailed": 1},
    "pl94": {"total": 1, "hhgq": 1, "votingage": 1, "hispanic * cenrace": 1, "detailed": 1},
    "census1940": {"total": 1, "sex * age": 1, "hispanic * race": 1, "detailed": 1},
}
PREFIX = {"census1940": {"age": ["prefix"]}}  # bases beside plain counts
SOLVED, REFUSED, FAILED = "solved", "refused by validate", "failed after claim"


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes:
      schema: Name of a schema under conf/schema.
      method: A planner, or "listed" for a list of queries.
      is_exact: Whether the total of the root is exact.
      fit_to: As in `solve.fit_to`.
      planned: "all" geolevels, or "some": the last is listed.
      neighbors: As in `privacy.neighbors`.
    """

    schema: str
    method: str
    is_exact: bool
    fit_to: str
    planned: str
    neighbors: str

    def __str__(self) -> str:
        return " ".join(map(str, astuple(self)))


def every_case() -> Iterator[Case]:
    """The whole grid."""
    for one in itertools.product(
        TABLES, METHODS, (True, False), ("tree", "level"), ("all", "some"), ("bounded", "unbounded")
    ):
        case = Case(*one)
        if not (case.method == "listed" and case.planned == "some"):
            yield case


def quick_cases() -> list[Case]:
    """Every planner in the standard setting on every schema, and each other choice once."""
    standard = [Case(s, m, True, "tree", "all", "bounded") for s in TABLES for m in METHODS]
    small = ("pl94_tables", "residual_planner")
    return [
        *standard,
        Case(*small, False, "tree", "all", "bounded"),
        Case(*small, True, "level", "all", "bounded"),
        Case(*small, True, "tree", "some", "bounded"),
        Case(*small, True, "tree", "all", "unbounded"),
        Case("pl94_tables", "orp", False, "level", "some", "unbounded"),
    ]


def write_case(case: Case, folder: Path) -> Path:
    """Write data, allocation and run file of a case; returns the run file."""
    schema = load_schema(ROOT / "conf" / "schema" / f"{case.schema}.yaml")
    names = [attribute.name for attribute in schema.attributes]
    rng = random.Random(7)
    blocks = [f"99{county:03d}{block:03d}" for county in (1, 3) for block in range(3)]
    with (folder / "records.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["block", *names])
        for block in blocks[:-1]:
            for _ in range(rng.choice((5, 60))):
                levels = (attribute.levels for attribute in schema.attributes)
                writer.writerow([block, *(one[min(rng.randrange(len(one)), 9)] for one in levels)])
    with (folder / "blocks.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows([["geocode"], *([block] for block in blocks)])
    tables = TABLES[case.schema]
    listed: dict[str, Any] = {"queries": dict.fromkeys(tables, f"1/{len(tables)}")}
    workload: dict[str, Any] = {"method": case.method, "tables": tables}
    if case.method != "residual_planner":
        workload["bases"] = PREFIX.get(case.schema, {})
    planned = listed if case.method == "listed" else {"workload": workload}
    levels = {level: {"share": "1/3", **planned} for level in LEVELS}
    if case.planned == "some":
        levels[LEVELS[-1]] = {"share": "1/3", **listed}
    allocation = folder / "allocation.yaml"
    allocation.write_text(yaml.safe_dump({"name": "grid", "levels": levels}))
    run = {
        "name": "grid",
        "schema": str(ROOT / "conf" / "schema" / f"{case.schema}.yaml"),
        "data": {
            "input_format": "records",
            "path": str(folder / "records.csv"),
            "geocode": "block",
            "columns": {name: name for name in names},
        },
        "geography": {
            "levels": [
                {"name": name, "digits": digits}
                for name, digits in zip(LEVELS, (2, 5, 8), strict=True)
            ],
            "geounits": {"path": str(folder / "blocks.csv")},
        },
        "privacy": {
            "rho": "2",
            "neighbors": case.neighbors,
            "allocation": str(allocation),
            "randomness": {"source": "seeded_not_for_release", "seed": 5},
        },
        "invariants": [{"query": "total", "geolevel": "state"}] if case.is_exact else [],
        "solve": {"fit_to": case.fit_to},
        "output": {"directory": str(folder / "out"), "tables": ["total"]},
        "runtime": {"master": "local[1]", "driver_memory": "1g"},
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(to_products(run)))
    return path


def run_case(case: Case, folder: Path) -> tuple[str, str]:
    """How a case ended, and the message if it did not solve."""
    path = write_case(case, folder)
    try:
        resolved = load_run(path)
        check_geounits(resolved)
    except DasError as error:
        return REFUSED, str(error)
    except Exception as error:  # noqa: BLE001 - a refusal has a name
        return FAILED, f"before any claim: {type(error).__name__}: {error}"
    try:
        out = execute(resolved)
    except Exception as error:  # noqa: BLE001 - whatever it is, it came too late
        return FAILED, f"{type(error).__name__}: {error}"
    finalized = release_of(out).manifest.exists()
    return (SOLVED, "") if finalized else (FAILED, "no manifest")


def rmse_ratios() -> dict[str, float]:
    """Predicted RMSE of PL 94's workload over that of HDMM, at equal rho, in one geounit."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        for method in METHODS[:-1]:
            folder = Path(name) / method
            folder.mkdir()
            case = Case("pl94_tables", method, False, "level", "all", "bounded")
            found[method] = _rmse(load_run(write_case(case, folder)))
    return {method: value / found["hdmm"] for method, value in found.items()}


def _rmse(resolved: Resolved) -> float:
    """Root of the mean over tables of the mean variance of their answers at the root."""
    from das.queries.query import parse_query
    from das.tree.coordinates import Coordinates
    from das.tree.errors import covariance_matrices

    plan = resolved.plan
    noisy = plan.noise(0, 0)
    queries = [one.query for one in noisy]
    coordinates = Coordinates.of_queries(queries)
    grams = [coordinates.components.grams(query) for query in queries]
    weights = [1 / float(one.mechanism.continuous_variance) for one in noisy]
    covariances = tuple(
        covariance_matrices(
            np.array([sum(w * gram[i] for w, gram in zip(weights, grams, strict=True))]),
            np.eye(size),
        )
        for i, size in enumerate(coordinates.sizes)
    )
    tables = [parse_query(plan.schema, text) for text in TABLES[plan.schema.name]]
    means = [coordinates.variances(query, covariances).mean() for query in tables]
    return float(np.sqrt(np.mean(means)))


def main() -> None:
    """Run the grid and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true")
    size.add_argument("--full", "--long", action="store_true")
    full = parser.parse_args().full
    counts: Counter[str] = Counter()
    for case in every_case() if full else quick_cases():
        folder = Path(tempfile.mkdtemp())
        started = time.process_time()
        ended, message = run_case(case, folder)
        shutil.rmtree(folder, ignore_errors=True)
        counts[ended] += 1
        seconds = time.process_time() - started
        print(f"{case!s:60} {seconds:6.1f} s  {ended}  {message[:160]}", flush=True)
    ratios = {method: round(value, 4) for method, value in rmse_ratios().items()}
    print(
        json.dumps(
            {
                "cases": counts.total(),
                "solved": counts[SOLVED],
                "refused_by_validate": counts[REFUSED],
                "failed_after_claim": counts[FAILED],
                "rmse_ratio_to_hdmm": ratios,
            }
        )
    )


if __name__ == "__main__":
    main()
