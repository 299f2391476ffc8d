"""Ours beside other ways of post-processing the same noisy measurement files, in one run.

    python -m bench.rivals [--quick] [--blocks N] [--seeds N] [--bluedown CHECKOUT] [--limit SECONDS]
                           [--real FILE FILE] [--to SYSTEM]

Two small synthetic states are measured with the budget, allocation and constraints of the 2020
redistricting persons, and exported in the Census Bureau's layout. With --real, the states are the
two largest counties of each of two files of real blocks in 16 cells, such as
`tests/data/ri_2010_block.parquet`: tracts with few blocks, until there are so many. These files
have no race of Hispanic persons (White here), one kind of two races (White and Black here) and no
facilities. So blocks have facilities as often as in Delaware in 2020, with residents and types of
facilities drawn from there. All systems read the exported files:

- ours: full information, rounded, as `das nmf import` sets it;
- ours_by_cell: the same, rounded by totals, then cells;
- own: the way of 2020, each geounit fitted to its own answers, totals first;
- least_squares: full information without rounding and signs, which is unbiased;
- bluedown: google-research/census-bluedown, from a checkout that the user names. Its authors used Gurobi, which needs a licence; SCIP, which
  it also knows, does not end on the quadratic problem of the nation. So its quadratic problems are
  handed to PIQP, and those in integers to SCIP, both open. Its authors report lower errors than the way of 2020
  at every geolevel, most at county and tract (Ghazi, Kamath, Kumar, Manurangsi and Sealfon,
  arXiv:2603.10099).

Errors are over geounits and answers: mean squared ones, and by the metric of that checkout, the sum of
absolute errors of a query's answers in a geounit, mean over geounits. Seconds are of processor time and
memory is the peak of a process for each system, which reads the files and does all it does in one
thread. Prints a table and one line of JSON: system -> geolevel -> query -> {mse, ratio_to_ours,
ratio_error, absolute, absolute_ratio}, seconds and peak_mb of each system, and `below_state`, the
geometric mean of its ratios below the state. `ratio_error` is the jackknife standard error of a
ratio of means over the seeds. `detailed_summary_metrics` are mean absolute errors by geolevel and
metric of the Bureau's Detailed Summary Metrics, [ours, BlueDown], computed by the checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
import yaml

from bench.delaware_group_quarters import SOURCE
from bench.delaware_group_quarters import blocks as blocks_of_delaware
from das.queries.query import parse_query
from das.schema import Schema
from jobs.analysis.export_nmf import write_nmf
from jobs.analysis.import_nmf import read_nmf
from jobs.analysis.nmf_files import GEOLEVELS
from jobs.analysis.nmf_noise import PUBLISHED
from jobs.analysis.requests import NmfImport
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.schema import load_schema
from jobs.pipeline.run import do_stages, open_job, run_measuring, run_solving
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.estimates import read_tables
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import EstimateLayout
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from tests.builders.histograms import from_dense
from tests.checkout import ROOT

DIGITS = {"nation": 0, "state": 3, "county": 9, "tract": 13, "block_group": 15, "block": 31}
QUERIES = {
    "TOTAL": "total",
    "VOTINGAGE": "votingage",
    "HISPANIC": "hispanic",
    "CENRACE": "cenrace",
    "HISPANICxCENRACE": "hispanic * cenrace",
    "HOUSING_TYPE": "hhgq",
    "AGExHISPxCENRACE": "votingage * hispanic * cenrace",
    "DETAILED": "detailed",
}
PASSES: dict[str, Any] = {
    "l2_passes": {level: [["total"]] for level in ("state", "county", "tract", "block_group")},
    "rounding_passes": [
        ["total"],
        ["hhgq", "hhgq * hispanic", "hhgq * hispanic * cenrace", "detailed"],
    ],
}
SETTINGS: dict[str, dict[str, Any]] = {
    "ours": {},
    "ours_by_cell": {"rounding_passes": [["total"], ["detailed"]]},
    "own": {"fit_to": "level", **PASSES},
    "least_squares": {},
}
STATES = ("01", "02")
FEW = 64  # blocks up to which all persons live in households
GAP = 1e-6  # relative, at which SCIP stops
NEAR = 1e-6  # of an integer, where the checkout rounds down
QUIET = Reporter(quiet=True)

CELLS = [
    f"{age}_{race}"
    for age in "ma"
    for race in ("hisp", "white", "black", "aian", "asian", "nhpi", "other", "two")
]
TYPES = {"correctional": 1, "juvenile": 2, "other": 7}  # of Delaware, in the schema

Counts = dict[str, dict[str, npt.NDArray[np.float64]]]  # geolevel -> geocode -> cells


# --- the states ----------------------------------------------------------------------------------


def leaf_geocodes(blocks: int) -> list[str]:
    """About so many geocodes of 31 characters, no geounit an only child.

    The last 16 are state, county, tract, block group and block, as in the official files.
    """
    each = max(2, round(blocks / (len(STATES) * 2 * 2 * 2)))
    return [
        f"0{state}1{county:04d}1{tract:04d}{group:02d}"
        f"{state}{county:03d}{tract:06d}{group}{block:04d}"
        for state in STATES
        for county in (1, 3)
        for tract in (1, 2)
        for group in (1, 2)
        for block in range(1000 * group + 1, 1000 * group + each + 1)
    ]


def synthetic_blocks(
    blocks: int, seed: int
) -> tuple[list[str], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Generate geocodes, persons int64[G, 8, 2, 2, 63] and facilities int64[G, 8] of two states.

    Block sizes are lognormal and one in four is empty; tracts have their own shares of race and
    ethnicity; one block in eight has a facility of some type, if there are many blocks.
    """
    rng = np.random.default_rng(seed)
    codes = leaf_geocodes(blocks)
    counts = np.zeros((len(codes), 8, 2, 2, 63), np.int64)
    units = np.zeros((len(codes), 8), np.int64)
    shares: dict[str, npt.NDArray[np.float64]] = {}
    base = np.concatenate([[60.0, 12, 1, 6, 0.3, 6], np.full(57, 0.1)])
    for row, code in enumerate(codes):
        tract = code[: DIGITS["tract"]]
        if tract not in shares:
            shares[tract] = rng.dirichlet(np.concatenate([base, base / 4]) / 4)
        persons = 0 if rng.random() < 0.25 else int(rng.lognormal(3.5, 0.9))
        cells = rng.multinomial(persons, np.outer([0.23, 0.77], shares[tract]).ravel())
        counts[row, 0] = cells.reshape(2, 2, 63)
        units[row, 0] = -(-persons // 2)
        if blocks > FEW and rng.random() < 1 / 8:
            kind = int(rng.integers(1, 8))
            held = rng.multinomial(20 + int(rng.integers(60)), shares[tract])
            counts[row, kind, 1] = held.reshape(2, 63)
            units[row, kind] = 1
    return codes, counts, units


def real_blocks(
    files: list[Path], blocks: int, seed: int
) -> tuple[list[str], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Read what `synthetic_blocks` generates from files of real blocks, a state each."""
    rng = np.random.default_rng(seed)
    chosen = [
        _chosen(pd.read_parquet(path), blocks // 4, state)
        for path, state in zip(files, STATES, strict=True)
    ]
    read = pd.concat(chosen).sort_values("code")
    counts = np.zeros((len(read), 8, 2, 2, 63), np.int64)
    cells = read[CELLS].to_numpy().reshape(-1, 2, 8)
    counts[:, 0, :, 1, 0] = cells[:, :, 0]  # Hispanic
    counts[:, 0, :, 0, :7] = cells[:, :, 1:]
    units = np.zeros((len(read), 8), np.int64)
    units[:, 0] = -(-cells.sum((1, 2)) // 2)
    listed = blocks_of_delaware(SOURCE)
    residents = listed[[*TYPES]].to_numpy()
    rows, kinds = np.nonzero(residents)
    share = len(np.unique(rows)) / len(listed)
    for row in np.flatnonzero(rng.random(len(read)) < share).tolist():
        one = int(rng.integers(len(rows)))
        name, persons = [*TYPES][kinds[one]], int(residents[rows[one], kinds[one]])
        shares = counts[row, 0].sum(0).ravel() + counts[:, 0].sum((0, 1)).ravel() / 1e6
        held = rng.multinomial(persons, shares / shares.sum())
        counts[row, TYPES[name], int(name != "juvenile")] = held.reshape(2, 63)
        units[row, TYPES[name]] = 1
    return read.code.tolist(), counts, units


def _chosen(read: pd.DataFrame, each: int, state: str) -> pd.DataFrame:
    """Take about `each` blocks of the two largest counties, no geounit an only child."""
    tract, group = read.geoid.str[:11], read.geoid.str[:12]
    many = group.map(group.value_counts()) > 1
    several = tract.map(group[many].groupby(tract[many]).nunique()).fillna(0) > 1
    kept = read[many & several].assign(tract=tract, county=read.geoid.str[:5])
    found = []
    for county in kept.county.value_counts().index[:2].tolist():
        inside = kept[kept.county == county]
        sizes = inside.groupby("tract").size().sort_values(kind="stable")
        before = sizes.cumsum() - sizes
        tracts = sizes.index[(before < each) | (np.arange(len(sizes)) < 2)]
        for number, code in enumerate(sorted(tracts), 1):
            some = inside[inside.tract == code]
            spine = f"0{state}1{county[2:]:0>4}1{number:04d}"
            census = some.geoid.str[:12] + some.geoid.str[11:]
            found.append(some.assign(code=spine + "0" + some.geoid.str[11] + census))
    return pd.concat(found)


def write_truth(folder: Path, schema: Schema, blocks: int, seed: int, files: list[Path]) -> None:
    """Write histograms, geounits and facilities of two states, real ones if files are named."""
    made = real_blocks(files, blocks, seed) if files else synthetic_blocks(blocks, seed)
    codes, counts, units = made
    histograms = from_dense(counts.reshape(len(codes), -1))
    spans = list(zip(histograms.offsets, histograms.offsets[1:], strict=False))
    pq.write_table(
        pa.table(
            {
                "geocode": codes,
                "cells": [histograms.cells[a:b].tolist() for a, b in spans],
                "counts": [histograms.counts[a:b].tolist() for a, b in spans],
            }
        ),
        folder / "histograms.parquet",
    )
    pq.write_table(pa.table({"geocode": codes}), folder / "geounits.parquet")
    types = schema.attribute("hhgq").levels
    columns = {name: units[:, index] for index, name in enumerate(types)}
    pq.write_table(pa.table({"geocode": codes, **columns}), folder / "facilities.parquet")


def measured(folder: Path, blocks: int, seed: int, files: list[Path]) -> Path:
    """Measure the states once and export them; returns the folder of the files."""
    schema_file = ROOT / "conf" / "schema" / "pl94.yaml"
    schema = load_schema(schema_file)
    write_truth(folder, schema, blocks, seed, files)
    document = {
        "format": 3,
        "name": "rivals",
        "geography": {
            "levels": [{"name": name, "digits": digits} for name, digits in DIGITS.items()],
            "geounits": {"path": "geounits.parquet"},
        },
        "privacy": {"randomness": {"source": "seeded_not_for_release", "seed": seed}},
        "products": {
            "persons": {
                "schema": str(schema_file),
                "data": {"input_format": "histograms", "path": "histograms.parquet"},
                "privacy": {
                    "rho": str(PUBLISHED["pl94-2020-us"]),
                    "allocation": str(ROOT / "conf" / "allocation" / "pl94-2020-us.yaml"),
                },
                "invariants": [
                    {"query": "total", "geolevel": "state"},
                    {
                        "facilities": "hhgq",
                        "geolevel": "block",
                        "table": {
                            "path": "facilities.parquet",
                            "columns": {name: name for name in schema.attribute("hhgq").levels},
                        },
                        "at_least": {"household": 0},
                    },
                    {"zero": {"hhgq": ["nursing"], "votingage": ["under_18"]}},
                ],
            }
        },
        "output": {"directory": "measured"},
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(document))
    resolved = load_run(folder / "run.yaml")
    run_measuring(resolved, QUIET, LocalTasks(Sizing(1)))
    write_nmf(resolved.last, folder / "nmf", QUIET)
    return folder / "nmf"


def true_counts(folder: Path) -> Counts:
    """The truth, of every geounit."""
    table = pq.read_table(folder / "histograms.parquet").to_pylist()
    found: Counts = {level: {} for level in DIGITS}
    for row in table:
        for level, digits in DIGITS.items():
            code = row["geocode"][:digits] or "0"
            cells = found[level].setdefault(code, np.zeros(2016))
            np.add.at(cells, row["cells"], row["counts"])
    return found


# --- systems, each in a process of its own -------------------------------------------------------


def solve_ours(name: str, folder: Path) -> None:
    """Import the files and solve them; keep counts as `OUT/NAME.npz`."""
    run_file = read_nmf(NmfImport(folder / "nmf", folder / name), QUIET)
    document = yaml.safe_load(run_file.read_text())
    product = document["products"]["persons"]
    product["solve"] |= SETTINGS[name]
    product["output"] = {"microdata": [], "tables": list(QUERIES.values())}
    run_file.write_text(yaml.safe_dump(document, sort_keys=False))
    resolved = load_run(run_file)
    plan, release = resolved.plan, resolved.last.release
    tasks = LocalTasks(Sizing(1))
    if name == "least_squares":
        with open_job(resolved, QUIET, tasks=tasks) as job:
            do_stages(job, ("estimate",))
        return
    run_solving(resolved, QUIET, tasks)
    kept = {}
    for level in plan.spine.levels:
        codes = read_public_geocodes(release, level)
        kept[f"{level} codes"] = codes.astype(np.str_)
        kept[level] = read_counts(release, level, codes, plan.schema.size).dense()
    np.savez(folder / f"{name}.npz", **kept)


def solve_bluedown(folder: Path, checkout: Path) -> None:
    """Run the passes of the checkout on the files, as its README says, with open solvers."""
    sys.path.insert(0, str(checkout))
    from census_bluedown import constants  # type: ignore[import-not-found]

    constants.FOLDER_IDS = tuple(f"0{state}" for state in STATES)
    from census_bluedown import block, io, main_passes, nonlinear_solver, root

    nonlinear_solver.do_solve = partial(_solve_openly, nonlinear_solver.mathopt)

    census = block.AsymmetricQuery(num_features=4, sliced_feature=0, partition=(1, 4, 3))
    shape = block.BlockShape(
        shape=(8, 2, 2, 63), num_asymmetric_features=3, asymmetric_queries=(census,)
    )
    out = folder / "bluedown"
    _write_state_totals(folder, out)

    def files(state: str, *, split: bool) -> Any:
        return io.ProcessingFormatIO(
            str(out), f"State={state}" if state else "", read_only=False, split_estimates=split
        )

    def published(state: str, kind: str) -> Any:
        return io.InputFormatIO(
            str(folder / "nmf"), f"State={state}" if state else "", path_suffix=f".parquet/{kind}/"
        )

    totals = io.ProcessingFormatIO(str(out / "totals"), "US")
    states = constants.FOLDER_IDS
    started = time.process_time()
    for state in states:
        main_passes.input_pass(
            published(state, "DPQuery"), published(state, "Constraint"),
            files(state, split=True), shape, files(state, split=False),
        )  # fmt: skip
        main_passes.bottom_up_pass(files(state, split=True), files(state, split=True), shape)
    root.root_bottom_up_passes(
        published("", "DPQuery"), published("", "Constraint"), totals,
        files("", split=True), shape, files("", split=False),
    )  # fmt: skip
    regression = time.process_time() - started
    root.root_top_down_pass(
        files("", split=True), files("", split=False), files("", split=False), totals, shape
    )
    for state in states:
        main_passes.optimization_top_down_pass(
            files(state, split=True), files(state, split=False), files(state, split=False), shape
        )
    (folder / "bluedown.json").write_text(json.dumps({"regression": regression}))


class _Point:
    """What the checkout asks of a solution, given the values of all variables."""

    def __init__(self, values: dict[int, float]) -> None:
        self._values = values

    def variable_values(self, variable: Any) -> float:
        return self._values[variable.id]


def _solve_openly(mathopt: Any, model: Any) -> Any:
    """Solve a problem of the checkout: quadratic ones by PIQP, those in integers by SCIP."""
    import piqp

    proto = model.export_model()
    variables, rows = proto.variables, proto.linear_constraints
    if any(variables.integers):
        limits = mathopt.SolveParameters(relative_gap_tolerance=GAP)
        result = mathopt.solve(model, mathopt.SolverType.GSCIP, params=limits)
        if result.termination.reason != mathopt.TerminationReason.OPTIMAL:
            raise RuntimeError(f"SCIP: {result.termination}")
        return result
    place = {number: index for index, number in enumerate(variables.ids)}
    row = {number: index for index, number in enumerate(rows.ids)}
    n = len(place)

    def matrix(sparse: Any, of_rows: dict[int, int], shape: tuple[int, int]) -> sp.csc_matrix:
        at = [of_rows[one] for one in sparse.row_ids], [place[one] for one in sparse.column_ids]
        return sp.csc_matrix((list(sparse.coefficients), at), shape)

    upper = matrix(proto.objective.quadratic_coefficients, place, (n, n))
    P = upper + upper.T  # theirs are of x_i x_j, once for each pair
    q = np.zeros(n)
    linear = proto.objective.linear_coefficients
    q[[place[one] for one in linear.ids]] = list(linear.values)
    A = matrix(proto.linear_constraint_matrix, row, (len(row), n)).tocsr()
    low, high = np.array(rows.lower_bounds), np.array(rows.upper_bounds)
    bounds = np.array(variables.lower_bounds), np.array(variables.upper_bounds)
    equal = low == high
    scale = max(float(np.abs(P.data).max(initial=1.0)), 1e-12)
    solver = piqp.SparseSolver()
    solver.setup(
        sp.csc_matrix(P / scale), q / scale, A[equal].tocsc(), low[equal],
        A[~equal].tocsc(), low[~equal], high[~equal], *bounds,
    )  # fmt: skip
    status = str(solver.solve())
    if "SOLVED" not in status.upper():
        raise RuntimeError(f"PIQP: {status}")
    values = np.clip(np.array(solver.result.x), *bounds)
    near = np.rint(values)
    values = np.where(np.abs(values - near) < NEAR, near, values)
    return _Point(dict(zip(variables.ids, values.tolist(), strict=True)))


def _write_state_totals(folder: Path, out: Path) -> None:
    """The exact totals of the states, which their files do not hold."""
    truth = true_counts(folder)["state"]
    place = out / "totals" / "US"
    place.mkdir(parents=True)
    values = [int(truth[f"0{state}"].sum()) for state in STATES]
    rows = {"geocode": list(STATES), "value": values}
    pq.write_table(pa.table(rows), place / "state_totals.parquet")


# --- comparing -----------------------------------------------------------------------------------


def counts_of(name: str, folder: Path) -> Counts:
    """What a system made of the files, or the truth."""
    if name == "truth":
        return true_counts(folder)
    if name == "bluedown":
        return _theirs(folder)
    with np.load(folder / f"{name}.npz") as kept:
        return {
            level: dict(zip(kept[f"{level} codes"].tolist(), kept[level], strict=True))
            for level in DIGITS
        }


def _theirs(folder: Path) -> Counts:
    """Counts of the checkout: a file of each geolevel and state."""
    names = {name: theirs for theirs, name in GEOLEVELS.items()}
    found: Counts = {}
    for level in DIGITS:
        root = folder / "bluedown" / ("" if level == "nation" else "State=*")
        files = sorted(root.parent.glob(f"{root.name}/{names[level]}/optimized_estimate.parquet"))
        rows = [row for path in files for row in pq.read_table(path).to_pylist()]
        found[level] = {row["geocode"] or "0": np.asarray(row["value"], np.float64) for row in rows}
    below: dict[str, npt.NDArray[np.float64]] = {}
    for code, cells in found["county"].items():  # files of states are named by folder
        state = code[: DIGITS["state"]]
        below[state] = below.get(state, np.zeros(2016)) + cells
    return {**found, "state": below}


def query_errors(name: str, folder: Path) -> Iterator[tuple[str, str, npt.NDArray[np.float64]]]:
    """Geolevel, query and float64[G, m] errors of a system."""
    schema = load_schema(ROOT / "conf" / "schema" / "pl94.yaml")
    queries = {label: parse_query(schema, text) for label, text in QUERIES.items()}
    truth = counts_of("truth", folder)
    if name == "least_squares":
        release = load_run(folder / name / "run.yaml").last.release
        for level, exact in truth.items():
            table = read_tables(Dataset.open(EstimateLayout.of(release).tables(level)))
            for label, query in queries.items():
                rows = [row for row in table.to_pylist() if row["query"] == query.name]
                off = []
                for row in rows:
                    sums = np.bincount(
                        query.rows_of(np.arange(2016)),
                        exact.get(row["geocode"], np.zeros(2016)),
                        query.size,
                    )
                    off.append(np.asarray(row["estimate"]) - sums)
                yield level, label, np.array(off)
        return
    found = counts_of(name, folder)
    for level in DIGITS:
        codes = sorted(found[level])
        cells = np.array(
            [found[level][code] - truth[level].get(code, np.zeros(2016)) for code in codes]
        )
        for label, query in queries.items():
            rows = query.rows_of(np.arange(2016))
            sums = [np.bincount(rows, row, query.size) for row in cells]
            yield level, label, np.array(sums)


def compared_by_theirs(
    folder: Path, checkout: Path
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, npt.NDArray[np.float64]]]]:
    """What `compute_errors` of the checkout finds, by geolevel.

    Returns:
      The errors of our counts by query, and the Detailed Summary Metrics, ours and BlueDown's.
    """
    sys.path.insert(0, str(checkout))
    from census_bluedown import compute_errors, constants, io

    constants.SUBTREE_GEOCODE_PATTERNS = ("0%s",)  # no part of these states is in a reservation
    names = {name: theirs for theirs, name in GEOLEVELS.items()}
    out, truth = folder / "compared", true_counts(folder)
    leaves = pq.read_table(folder / "geounits.parquet").column("geocode").to_pylist()
    counts = {"optimized": counts_of("ours", folder), "baseline": counts_of("bluedown", folder)}
    found: dict[str, dict[str, float]] = {}
    metrics: dict[str, dict[str, npt.NDArray[np.float64]]] = {}
    numbers = dict.fromkeys(DIGITS, 0)
    for state in STATES:
        place = f"State=0{state}"
        for level in [*DIGITS][1:]:
            codes = sorted({leaf[: DIGITS[level]] for leaf in leaves if leaf[1:3] == state})
            exact = [truth[level].get(code, np.zeros(2016)) for code in codes]
            given = out / f"{names[level]}.parquet" / "DPQuery" / place
            given.mkdir(parents=True, exist_ok=True)
            columns = {"geocode": codes, "query_name": ["detailed_dpq"] * len(codes)}
            values = [row.astype(int).tolist() for row in exact]
            pq.write_table(pa.table({**columns, "value": values}), given / "truth.parquet")
            made = out / "processed" / place / names[level]
            made.mkdir(parents=True, exist_ok=True)
            numbers[level] += len(codes)
            for kind, of_system in counts.items():
                own = [of_system[level][code].astype(int).tolist() for code in codes]
                pq.write_table(
                    pa.table({"geocode": codes, "value": own}), made / f"{kind}_estimate.parquet"
                )
        processed = io.ProcessingFormatIO(str(out / "processed"), place, read_only=False)
        for compute in (compute_errors.compute_errors, compute_errors.compute_alternate_errors):
            compute(
                folder_id=f"0{state}",
                ground_truth_io=io.InputFormatIO(str(out), place, path_suffix=".parquet/DPQuery/"),
                processed_io=processed,
                constraint_io=io.InputFormatIO(
                    str(folder / "nmf"), place, path_suffix=".parquet/Constraint/"
                ),
            )
        for theirs in constants.LEVELS:
            level = GEOLEVELS[theirs]
            table = processed.read(theirs, constants.ERRORS_FNAME)
            for label, row in table.iterrows():
                kept = found.setdefault(level, {})
                kept[str(label)] = kept.get(str(label), 0.0) + row["optimized"] * row["n"]
            table = processed.read(theirs, constants.ALTERNATE_ERRORS_FNAME)
            groups = table.index.str.replace(r"_\d+$", "", regex=True)
            both = table[["optimized", "baseline"]].astype(float).mul(table.n, axis=0)
            for label, row in both.groupby(groups).mean().iterrows():
                of_level = metrics.setdefault(level, {})
                of_level[str(label)] = of_level.get(str(label), np.zeros(2)) + row.to_numpy()
    for level, of_level in found.items():
        found[level] = {label: value / numbers[level] for label, value in of_level.items()}
        metrics[level] = {label: x / numbers[level] for label, x in metrics[level].items()}
    return found, metrics


# --- running -------------------------------------------------------------------------------------


def run_system(name: str, folder: Path, checkout: Path | None, limit: float) -> dict[str, Any]:
    """Run one in a process of its own; what it took, or why it did not end."""
    words = [sys.executable, "-m", "bench.rivals", "--child", name, "--folder", str(folder)]
    words += ["--bluedown", str(checkout)] if checkout else []
    with (folder / f"{name}.log").open("w") as log:
        child = subprocess.Popen(words, stdout=log, stderr=log, cwd=ROOT)
        deadline = time.monotonic() + limit
        status, usage = 0, None
        while usage is None:
            pid, status, used = os.wait4(child.pid, os.WNOHANG)
            if pid:
                usage = used
            elif time.monotonic() > deadline:
                child.kill()
                _, status, usage = os.wait4(child.pid, 0)
                return {"stopped": f"after {limit:.0f} s", "peak_mb": usage.ru_maxrss // 1024}
            else:
                time.sleep(0.05)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        last = (folder / f"{name}.log").read_text().strip().splitlines()[-1:]
        return {"failed": " ".join(last)[:300]}
    seconds = usage.ru_utime + usage.ru_stime
    return {"seconds": round(seconds, 2), "peak_mb": usage.ru_maxrss // 1024}


def child(name: str, folder: Path, checkout: Path | None) -> None:
    """What the process of a system does."""
    if name in SETTINGS:
        solve_ours(name, folder)
    elif checkout is not None:
        solve_bluedown(folder, checkout)


def one_seed(blocks: int, seed: int, checkout: Path | None, limit: float, files: list[Path]) -> Run:
    """Errors, system -> geolevel -> query -> (mse, absolute), what each took, and metrics."""
    metrics: dict[str, dict[str, npt.NDArray[np.float64]]] = {}
    errors: dict[str, dict[str, dict[str, tuple[float, float]]]] = {}
    took: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measured(folder, blocks, seed, files)
        systems = [*SETTINGS, *(["bluedown"] if checkout else [])]
        for system in systems:
            took[system] = run_system(system, folder, checkout, limit)
            print(f"seed {seed}, {system}: {took[system]}", flush=True)
        if (folder / "bluedown.json").exists():
            regression = json.loads((folder / "bluedown.json").read_text())["regression"]
            took["bluedown"]["of_which_regression"] = round(regression, 2)
        for system, used in took.items():
            if "seconds" in used:
                found: dict[str, dict[str, tuple[float, float]]] = {}
                for level, label, off in query_errors(system, folder):
                    absolute = float(np.abs(off).sum(1).mean())
                    found.setdefault(level, {})[label] = float((off**2).mean()), absolute
                errors[system] = found
        if checkout and {"ours", "bluedown"} <= set(errors):
            theirs, metrics = compared_by_theirs(folder, checkout)
            _refuse_other_metric(theirs, errors["ours"])
    return errors, took, metrics


def _refuse_other_metric(
    theirs: dict[str, dict[str, float]], ours: dict[str, dict[str, tuple[float, float]]]
) -> None:
    """Stop if their metric of our counts is not what is printed here."""
    for level, row in theirs.items():
        for label, value in row.items():
            assert np.isclose(value, ours[level][label][1]), (level, label, value)
    print("compute_errors of the checkout finds the same absolute errors of ours", flush=True)


def main() -> None:
    """Measure, print a table, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="32 blocks, one seed")
    parser.add_argument("--blocks", type=int, help="about how many; 400, or 32")
    parser.add_argument("--seeds", type=int, help="how many; 3, or 1")
    parser.add_argument("--bluedown", type=Path, help="checkout of google-research/census-bluedown")
    parser.add_argument("--to", default="ours", choices=SETTINGS, help="system of the ratios")
    parser.add_argument("--real", type=Path, nargs=2, default=[], help="files of real blocks")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds a system gets")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.folder, arguments.bluedown)
        return
    blocks = arguments.blocks or (32 if arguments.quick else 400)
    seeds = arguments.seeds or (1 if arguments.quick else 3)
    checkout = None if arguments.bluedown is None else arguments.bluedown.resolve()
    runs = [
        one_seed(blocks, seed, checkout, arguments.limit, arguments.real) for seed in range(seeds)
    ]
    if checkout is None:
        print("bluedown is not named: --bluedown CHECKOUT of google-research/census-bluedown")
    print(json.dumps(summary(runs, arguments.to)))


Run = tuple[
    dict[str, dict[str, dict[str, tuple[float, float]]]],
    dict[str, dict[str, Any]],
    dict[str, dict[str, npt.NDArray[np.float64]]],
]


def summary(runs: list[Run], base_name: str) -> dict[str, Any]:
    """Means over seeds, and ratios of the means to those of a system; prints the table."""
    result: dict[str, Any] = {}
    base = runs[0][0][base_name]
    for system, took in runs[0][1].items():
        result[system] = {key: value for key, value in took.items() if key != "seconds"}
        errors = [run[0][system] for run in runs if system in run[0]]
        if not errors:
            continue
        result[system]["seconds"] = round(
            float(np.mean([run[1][system]["seconds"] for run in runs if system in run[0]])), 2
        )
        for level, labels in base.items():
            row = result[system].setdefault(level, {})
            for label in labels:
                theirs = np.array([of_seed[level][label] for of_seed in errors])
                ours = np.array([run[0][base_name][level][label] for run in runs])
                mean, of_ours = theirs.mean(0), ours.mean(0)
                ratio = mean / np.where(of_ours > 0, of_ours, np.nan)
                row[label] = {
                    "mse": round(float(mean[0]), 4),
                    "ratio_to_ours": None if np.isnan(ratio[0]) else round(float(ratio[0]), 3),
                    "ratio_error": _jackknife(theirs[:, 0], ours[:, 0]),
                    "absolute": round(float(mean[1]), 4),
                    "absolute_ratio": None if np.isnan(ratio[1]) else round(float(ratio[1]), 3),
                }
        ratios = [
            row["ratio_to_ours"]
            for level in [*DIGITS][2:]
            for row in result[system][level].values()
            if row["ratio_to_ours"]
        ]
        result[system]["below_state"] = round(float(np.exp(np.log(ratios).mean())), 3)
    _print_table(result)
    metrics = [run[2] for run in runs if run[2]]
    result["detailed_summary_metrics"] = {
        level: {
            name: np.mean([of_seed[level][name] for of_seed in metrics], axis=0).round(4).tolist()
            for name in names
        }
        for level, names in (metrics[0] if metrics else {}).items()
    }
    return result


def _jackknife(theirs: npt.NDArray[np.float64], ours: npt.NDArray[np.float64]) -> float | None:
    """Standard error of sum(theirs) / sum(ours), float64[seeds] each; None for one seed."""
    n = len(theirs)
    without = ours.sum() - ours
    if n < 2 or len(ours) != n or not (without > 0).all():
        return None
    ratios = (theirs.sum() - theirs) / without
    return round(float(np.sqrt((n - 1) * ((ratios - ratios.mean()) ** 2).mean())), 3)


def _print_table(result: dict[str, Any]) -> None:
    print(f"\n{'system':<18}{'geolevel':<13}" + "".join(f"{name[:16]:>18}" for name in QUERIES))
    for system, found in result.items():
        for level in DIGITS:
            if level in found:
                cells = ""
                for name in QUERIES:
                    ratio, error = (found[level][name][k] for k in ("ratio_to_ours", "ratio_error"))
                    shown = "-" if ratio is None else f"{ratio:.2f}"
                    cells += f"{shown if error is None else f'{shown} +-{error:.2f}':>18}"
                print(f"{system:<18}{level:<13}{cells}")
    print("ratios of mean squared errors\n")


if __name__ == "__main__":
    main()
