"""What small seeded runs of every kind come to: one JSON line, dataset -> digest.

    python -m bench.digests [--quick] [--only CASE ...] [--against FILE] [--list]

The line must be the same on every processor, for every number of cores, and before and after a
change that means to change no result. Keys read like paths, `CASE/DATASET/GEOLEVEL`. With
--against, an earlier line, the keys that differ are listed on standard error and the exit code is
1. Without --quick the larger cases run too, and three cases run on Spark with 1, 2 and 3 slots,
whose digests must be those of this process; where one is not, the exit code is 1.

**What a digest covers.** Every row of a dataset of a release: measurements, their answers as
numbers however they are packed, invariants, given and
implied counts, geography, counts, microdata, tables. Rows are sorted, so neither the number of
part files nor their names nor their order matter; times and identities are not looked at. Counts
are integers and enter in full. Estimates and variances are floats, which no two processors compute
to the same last digit; they enter on a grid of 1/1000, wide beside the differences (about 1e-9) and
narrow beside any noise. The grid is shifted by an irrational part of its width, since quotients of
small integers do lie half way between thousandths.
Tables for people have them rounded, and enter without. `estimates/whole` and `estimates/subtree` are float64 for later stages and enter by their geocodes:
what they say shows in `estimates/tables` and in the counts. Not covered: reports, manifests,
ledgers, and whatever is confidential.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from bench.state import RUNS, persons_of, run_file
from jobs.design.synthetic.generate import GenerateSpec, generate
from jobs.pipeline.config.load import load_run
from jobs.pipeline.run import run
from jobs.pipeline.storage.columns import with_lists
from jobs.pipeline.storage.dataset import MANIFEST, Dataset
from jobs.pipeline.tasks.progress import Reporter
from jobs.pipeline.tasks.session import spark_session
from tests.builders import in_process, toy, units
from tests.pipeline.local import test_facilities, test_failsafe

GRID = 1e-3
_SHIFT = GRID / math.pi
_FOR_LATER_STAGES = ("values", "matrices")
_IN_TABLES = ("estimate", "standard_error", "estimate_lower", "estimate_upper")
_DIGITS = 16


@dataclass(frozen=True)
class Case:
    """A run.

    Attributes:
      configure: Writes input and run file into an empty folder, and returns the run file.
      datasets: Beginnings of the names of the datasets that are looked at; of cases that share
        their measurements with another, those that differ.
      patch: What is changed in the program while it runs.
      quick: Whether --quick runs it too.
    """

    configure: Callable[[Path], Path]
    datasets: tuple[str, ...] = ("",)
    patch: Callable[[pytest.MonkeyPatch], None] = lambda _: None
    quick: bool = True


# --- digests -------------------------------------------------------------------------------------


def digests_of(out: Path) -> dict[str, str]:
    """Digest of every published dataset of the release in a run folder, by its path.

    Those of persons are named without their folder, and those of other products without `products`.
    """
    release, found = out / "release", {}
    for path in sorted(release.rglob(MANIFEST)):
        named = str(path.parent.relative_to(release)).replace("level=", "")
        found[named.removeprefix("products/").removeprefix("persons/")] = digest_of(path.parent)
    return found


def digest_of(dataset: Path) -> str:
    """Digest of the rows of a published dataset, in whatever order and files."""
    parts = Dataset.open(dataset).parts
    rows = sorted(row for part in parts for row in _rows(dataset / part.file))
    whole = hashlib.sha256()
    for row in rows:
        whole.update(row.encode() + b"\n")
    return whole.hexdigest()[:_DIGITS]


def _rows(path: Path) -> Iterator[str]:
    """Every row as text; columns by name."""
    if path.suffix == ".csv":
        with path.open(newline="") as handle:
            for row in csv.DictReader(handle):
                yield json.dumps(_of_counts(row), sort_keys=True)
        return
    table = with_lists(pq.read_table(path, partitioning=None))
    kept = [name for name in table.column_names if name not in _FOR_LATER_STAGES]
    for row in table.select(kept).to_pylist():
        kept_values = {name: _on_grid(value) for name, value in _of_counts(row).items()}
        yield json.dumps(kept_values, sort_keys=True)


def _of_counts(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a table without what it has of `estimates/tables`, rounded to thousandths."""
    return row if "geolevel" not in row else {k: v for k, v in row.items() if k not in _IN_TABLES}


def _on_grid(value: Any) -> Any:
    if isinstance(value, float):
        return math.floor((value + _SHIFT) / GRID) if math.isfinite(value) else str(value)
    if isinstance(value, list):
        return [_on_grid(one) for one in value]
    return value


# --- cases ---------------------------------------------------------------------------------------

AFTER_MEASURING = ("counts", "tables", "microdata")
CHOICES: dict[str, dict[str, Any]] = {
    "full": {},
    "own": {"fit_to": "level"},
    "order": {"l2_passes": {"county": [["total"]], "tract": [["total"], ["sex"]]}},
    "sequential": {"method": "sequential"},
    "sequential-own": {"method": "sequential", "fit_to": "level"},
    "reweighted": {"method": "reweighted"},
    "reweighted-own": {"method": "reweighted", "fit_to": "level"},
    "maxfit": {"method": "maxfit"},
    "maxfit-own": {"method": "maxfit", "fit_to": "level"},
    "piqp": {"least_squares": "piqp"},
    "learned-prior": {"empirical_bayes": ["tract", "block"]},
    "crossing-rounding": {"rounding_passes": [["sex"], ["detailed"]], "fit_to": "level"},
}
PLANNERS = ("residual_planner", "residual_planner_plus", "orp", "hdmm", "auto")


def on_toy(**changes: Any) -> Callable[[Path], Path]:
    """The toy state with changed keys of its run file."""

    def configure(folder: Path) -> Path:
        toy.write_records(folder)
        return toy.configuration(folder, **changes)

    return configure


def with_units(folder: Path) -> Path:
    """Persons and units of the toy state."""
    toy.write_records(folder)
    units.write_units(folder)
    return toy.configuration(folder, units=units.section(folder))


def planned(method: str, loss: str = "sum_of_variances") -> Callable[[Path], Path]:
    """Every geolevel of the toy state measures what one planner chose."""

    def configure(folder: Path) -> Path:
        tables = {"total": 1, "sex": 1, "age": 1, "detailed": 1}
        workload: dict[str, Any] = {"method": method, "loss": loss, "tables": tables}
        level = {"share": "1/4", "workload": workload}
        levels = {name: json.loads(json.dumps(level)) for name in toy.LEVELS}
        if method != "residual_planner":
            levels["county"]["workload"]["bases"] = {"age": ["ranges"]}
        path = folder / "allocation.yaml"
        path.write_text(yaml.safe_dump({"name": "planned", "levels": levels}))
        return on_toy(privacy__allocation=str(path))(folder)

    return configure


def facilities(folder: Path) -> Path:
    """Facilities, structural zeros and rows of every kind; exact totals of blocks."""
    people = [one for one in toy.write_records(folder) if one[1:] != ("male", "65_and_over")]
    with (folder / "records.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows([("block", "sex", "age"), *people])
    zero = {"zero": {"sex": ["male"], "age": ["65_and_over"]}}
    row = {
        "name": "men less women",
        "row": [
            {"cells": {"sex": ["male"]}},
            {"cells": {"sex": ["female"]}, "coefficient": -1},
        ],
        "geolevel": "county",
    }
    return test_facilities.configuration(folder, people, zero, row)


def generated(template: str, schema: str, blocks: int, **spec: Any) -> Callable[[Path], Path]:
    """A run file of `conf/run` on a generated state, seeded."""

    def configure(folder: Path) -> Path:
        generate(GenerateSpec(blocks=blocks, schema=schema, **spec), folder / "data")

        def put(document: dict[str, Any]) -> None:
            records = str(folder / "data" / spec.get("format", "records"))
            persons_of(document)["data"]["path"] = records
            document["geography"]["geounits"]["path"] = str(folder / "data" / "geounits.parquet")
            document["privacy"]["randomness"] = {"source": "seeded_not_for_release", "seed": 7}
            if "units" in document["products"]:
                document["products"]["units"]["data"]["path"] = str(folder / "data" / "units")

        return run_file(template, folder, put)

    return configure


def of_cells(folder: Path) -> Path:
    """Random counts of 16 cells as in the published blocks; learned prior at the leaves."""
    schema = RUNS.parent / "schema" / "block16.yaml"
    names = [one["name"] for one in yaml.safe_load(schema.read_text())["attributes"]]
    levels = [one["levels"] for one in yaml.safe_load(schema.read_text())["attributes"]]
    rng = np.random.default_rng(16)
    codes = [f"99{c:03d}{t:06d}{g}{b:03d}" for c in range(2) for t in range(2)
             for g in range(1, 3) for b in range(6)]  # fmt: skip
    rows = []
    for code in codes:
        for place in np.ndindex(*(len(one) for one in levels)):
            count = int(rng.poisson(rng.gamma(0.3, 8.0)))
            rows += [(code, *(one[at] for one, at in zip(levels, place, strict=True)))] * count
    with (folder / "records.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows([("block", *names), *rows])
    with (folder / "blocks.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows([("geocode",), *((code,) for code in codes)])
    allocation = RUNS.parent / "allocation" / "block16-2020-state.yaml"
    spine = (("state", 2), ("county", 5), ("tract", 11), ("block_group", 12), ("block", 15))
    return toy.configuration(
        folder,
        schema=str(schema),
        data={
            "input_format": "records",
            "path": str(folder / "records.csv"),
            "geocode": "block",
            "columns": {name: name for name in names},
        },
        geography={
            "levels": [{"name": name, "digits": digits} for name, digits in spine],
            "geounits": {"path": str(folder / "blocks.csv")},
        },
        privacy={
            "rho": "7/5",
            "allocation": str(allocation),
            "randomness": {"source": "seeded_not_for_release", "seed": 16},
        },
        solve={"empirical_bayes": ["block"]},
    )


def of_real_blocks(step: int) -> Callable[[Path], Path]:
    """Every so many blocks of the extract of Rhode Island 2010."""

    def configure(folder: Path) -> Path:
        def put(document: dict[str, Any]) -> None:
            blocks = pq.read_table((RUNS / persons_of(document)["data"]["path"]).resolve())
            pq.write_table(blocks.take(np.arange(0, len(blocks), step)), folder / "blocks.parquet")
            persons_of(document)["data"]["path"] = str(folder / "blocks.parquet")
            document["privacy"]["randomness"] = {"source": "seeded_not_for_release", "seed": 44}

        return run_file("ri-2010.yaml", folder, put)

    return configure


def with_learned(folder: Path) -> Path:
    """Rhode Island with the optimised shares, its blocks corrected by the ready regressions."""
    path = of_real_blocks(3)(folder)
    document, conf = yaml.safe_load(path.read_text()), RUNS.parent
    persons = persons_of(document)
    persons["privacy"]["allocation"] = str(conf / "allocation" / "block16-optimised-state.yaml")
    file = str(conf / "learned" / "block16-cook-hi-2010.yaml")
    persons["solve"]["learned"] = {"geolevels": ["block"], "file": file}
    path.write_text(yaml.safe_dump(document))
    return path


def hide_what_leaves_imply(patch: pytest.MonkeyPatch) -> None:
    """Parents that their blocks contradict, so that the failsafe moves them."""
    test_failsafe.hide_what_leaves_imply(patch)


CASES: dict[str, Case] = {
    "toy": Case(on_toy(output={"directory": "", "tables": ["sex", "sex * age", "prefix(age)"]})),
    "toy-units": Case(with_units),
    "toy-unbounded": Case(on_toy(privacy__neighbors="unbounded", invariants=[])),
    "toy-pure": Case(
        on_toy(
            privacy={
                "definition": "pure",
                "epsilon": "2",
                "allocation": str(RUNS.parent / "allocation" / "toy.yaml"),
                "randomness": {"source": "seeded_not_for_release", "seed": 5},
            }
        )
    ),
    "toy-lazy": Case(
        on_toy(privacy__on_demand_queries=["detailed", "sex"], solve={"fit_to": "level"})
    ),
    **{
        f"toy-solve/{name}": Case(
            on_toy(privacy__rho="1/10", solve=solve), ("measurements", *AFTER_MEASURING)
        )
        for name, solve in CHOICES.items()
    },
    **{
        f"toy-planned/{method}/{loss}": Case(planned(method, loss))
        for method in PLANNERS
        for loss in ("sum_of_variances", "largest_variance")
    },
    "toy-facilities": Case(facilities),
    "toy-failsafe": Case(test_failsafe.configure, ("counts",), hide_what_leaves_imply),
    "pl94-state": Case(generated("demo.yaml", "pl94", 90)),
    "block16-state": Case(of_cells),
    "ri-2010-thinned": Case(of_real_blocks(12)),
    "ri-2010-learned": Case(with_learned, ("counts",)),
    "ri-2010": Case(of_real_blocks(1), quick=False),
    "pl94-units": Case(generated("demo-units.yaml", "pl94", 400), quick=False),
    "pl94-large-state": Case(generated("demo.yaml", "pl94", 900), quick=False),
    "dhc-state": Case(generated("dhc.yaml", "dhc_persons", 60), quick=False),
    "census1940-state": Case(generated("census1940.yaml", "census1940", 60), quick=False),
}
ON_SPARK = ("toy", "toy-units", "pl94-state")


def digests(name: str, execute: Callable[[Path], Path] = in_process.execute) -> dict[str, str]:
    """Digests of one case, by keys that begin with its name."""
    case = CASES[name]
    with tempfile.TemporaryDirectory(prefix="digests-") as temporary:
        config = case.configure(Path(temporary))
        _into(Path(temporary) / "out", config)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("das.tree.prior._LEAST_OBSERVATIONS", 1)
            case.patch(patch)
            found = digests_of(execute(config))
    return {
        f"{name}/{dataset}": digest
        for dataset, digest in found.items()
        if dataset.startswith(case.datasets)
    }


def _into(out: Path, config: Path) -> None:
    """Let the output of a run file lie in a folder of its own."""
    document = yaml.safe_load(config.read_text())
    document["output"]["directory"] = str(out)
    config.write_text(yaml.safe_dump(document, sort_keys=False))


def on_spark(slots: int) -> Callable[[Path], Path]:
    """Runs with so many tasks at once, in an embedded session."""

    def execute(config: Path) -> Path:
        resolved = load_run(config, master=f"local[{slots}]")
        run(resolved, Reporter(quiet=True))
        return resolved.config.output.directory

    return execute


def main() -> int:
    """Print the line; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the small cases, in this process")
    parser.add_argument("--only", nargs="+", metavar="CASE", help="beginnings of names of cases")
    parser.add_argument("--against", type=Path, help="file with an earlier line")
    parser.add_argument("--list", action="store_true", help="name the cases")
    arguments = parser.parse_args()
    names = [name for name, case in CASES.items() if case.quick or not arguments.quick]
    if arguments.only:
        names = [name for name in names if name.startswith(tuple(arguments.only))]
    if arguments.list:
        print("\n".join(names))
        return 0
    found: dict[str, str] = {}
    for name in names:
        found |= digests(name)
    print(json.dumps(found))
    different = []
    if not arguments.quick:
        for slots in (1, 2, 3):
            with spark_session(
                "digests", master=f"local[{slots}]", driver_memory="1g", properties={}
            ):
                for name in set(ON_SPARK) & set(names):
                    again = digests(name, on_spark(slots))
                    different += [
                        f"{key} with {slots} slots" for key in again if again[key] != found[key]
                    ]
    if arguments.against:
        before = json.loads(arguments.against.read_text())
        every = {key for key in {*before, *found} if key.startswith(tuple(f"{n}/" for n in names))}
        different += sorted(key for key in every if before.get(key) != found.get(key))
    for key in different:
        print(f"differs: {key}", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    raise SystemExit(main())
