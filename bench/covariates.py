"""Errors of block counts with and without what is known of housing units, against the truth.

    python -m bench.covariates [--quick] [--seeds N] [--data FILE] [--tracts EVERY]

Ways: `own`, each geolevel by its own measurements; `a`, all information; `a0`, the same where nobody lives
without living quarters; `b` and `b0`, both with the learned prior; `t`, with totals expected by housing units
(kappa 2); `c2`, with cells expected too. All are integer releases of the same seeded noise. Without --data blocks are generated whose
persons follow their housing units about as real ones do, and others whose housing units are shuffled, so
that expecting persons by them does harm: the certificate must see which is which. --data names a file
of real blocks with the columns `geoid`, counts of 16 or 44 cells, `hu` and perhaps `gq_facilities`; without
that, blocks with persons and no unit have a facility. Every EVERY-th tract of it is read.

The allocation is that of 2020. Mean squared errors are of blocks, of sums over 100 consecutive blocks (`area`, off the spine) and of
the first half of the blocks of each block group (`half`). `concentration` is the relative error of a group
summed over blocks where its share is 1.5 times that of the block group; `household` the mean relative error
of totals by persons per unit over those of the block group. Prints tables and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from bench.state import persons_of, production_of
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.documents.statistics import ExpectedTotals, use_of
from jobs.pipeline.run import MEASURING, do_stages, open_job
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from tests.checkout import ROOT

RUN = ROOT / "conf" / "run" / "ri-2010.yaml"
GROUPS = ("hisp", "white", "black", "aian", "asian", "nhpi", "other", "two")
CELLS = tuple(f"{age}_{group}" for age in "ma" for group in GROUPS)
WAYS: Mapping[str, Mapping[str, Any]] = {
    "own": {"fit_to": "level"},
    "a": {},
    "a0": {},
    "b": {"empirical_bayes": ["block"]},
    "b0": {"empirical_bayes": ["block"]},
    "t": {"housing_units": {"geolevels": ["block"], "only_if_better": False}},
    "c2": {
        "housing_units": {"geolevels": ["block"], "expect": "composition", "only_if_better": False}
    },
}
SOLVED = {"plain": "a0", "totals": "t", "composition": "c2"}  # as the manifest calls them
WITHOUT_QUARTERS = ("own", "a", "b")
AREA = 100  # blocks
_MARGINALS = ("total", "race", "cells", "area_total", "area_race", "half_total", "half_race")
_HOUSEHOLDS = (0, 0.5, 0.8, 1.2, 1.5, 1e9)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks with their truth.

    Attributes:
      codes: str[N], rising.
      counts: int64[N, 2, 8], by age and group.
      units: int64[N], housing units.
      facilities: int64[N].
    """

    codes: np.ndarray
    counts: np.ndarray
    units: np.ndarray
    facilities: np.ndarray

    def write(self, path: Path) -> None:
        """Write the file that the run reads, input and public table in one."""
        flat = self.counts.reshape(len(self.codes), -1)
        columns = {"geoid": self.codes.tolist(), **dict(zip(CELLS, flat.T, strict=True))}
        columns |= {"hu": self.units, "gq": self.facilities}
        pq.write_table(pa.table(columns), path)


def generated(seed: int, tracts: int) -> Blocks:
    """Blocks whose persons are those of their housing units, within what real blocks have.

    A block group has its own persons per unit and shares of groups; a block is off by a variance of
    1.5 mu + 0.025 mu^2, which is what 33,000 real blocks of Cook County had. A quarter of the blocks has
    neither units nor facilities.
    """
    rng = np.random.default_rng(seed)
    codes, counts, units, facilities = [], [], [], []
    for tract in range(tracts):
        for group in range(1, 4):
            usual = rng.dirichlet(np.array([2, 4, 2, 0.05, 0.7, 0.02, 0.05, 0.3]))
            per_unit, minors = rng.lognormal(0.9, 0.2), rng.uniform(0.15, 0.3)
            for block in range(25):
                has_units = rng.random() > 0.27
                own = int(rng.lognormal(2.9, 0.9)) + 1 if has_units else 0
                facility = int(rng.random() < 0.01)
                mu = own * per_unit
                spread = np.sqrt(1.5 * mu + 0.025 * mu**2)
                persons = max(0, round(rng.normal(mu, spread)))
                persons += facility * int(rng.lognormal(3.5, 1))
                shares = rng.dirichlet(8 * usual + 1e-3)
                groups = rng.multinomial(persons, shares)
                young = rng.binomial(groups, minors)
                codes.append(f"44001{tract:06d}{group}{block:03d}")
                counts.append([young, groups - young])
                units.append(own)
                facilities.append(facility)
    return Blocks(np.array(codes), np.array(counts), np.array(units), np.array(facilities))


def shuffled(blocks: Blocks, seed: int) -> Blocks:
    """The same persons, whose housing units are those of other blocks that have some."""
    rng = np.random.default_rng(seed)
    units = blocks.units.copy()
    some = np.flatnonzero(units > 0)
    units[some] = rng.permutation(units[some])
    return replace(blocks, units=units)


def counts_of(column: Mapping[str, np.ndarray]) -> np.ndarray:
    """int64[N, 2, 8], by age and group, of columns of 16 or 44 cells."""
    if "m_hisp" in column:
        counts = np.stack([np.stack([column[f"{a}_{g}"] for g in GROUPS], 1) for a in "ma"], 1)
    else:
        one = [g for g in GROUPS if g not in ("hisp", "two")]
        many = [f"r{n}" for n in range(2, 7)]
        counts = np.stack(
            [
                np.stack(
                    [
                        np.sum([column[f"{a}_h_{g}"] for g in (*one, *many)], axis=0),
                        *(column[f"{a}_nh_{g}"] for g in one),
                        np.sum([column[f"{a}_nh_{g}"] for g in many], axis=0),
                    ],
                    1,
                )
                for a in "ma"
            ],
            1,
        )
    return np.asarray(counts, np.int64)


def real(path: Path, every: int) -> Blocks:
    """Blocks of a file, of every so manieth tract."""
    table = pq.read_table(path)
    codes = np.array(table["geoid"].to_pylist())
    column = {name: table[name].to_numpy() for name in table.column_names if name != "geoid"}
    counts = counts_of(column)
    units = column["hu"].astype(np.int64)
    inferred = (units == 0) & (counts.sum((1, 2)) > 0)
    facilities = column.get("gq_facilities", inferred).astype(np.int64)
    facilities = np.maximum(facilities, inferred)
    tracts = np.array([code[:11] for code in codes])
    kept = np.isin(tracts, np.unique(tracts)[::every])
    order = np.flatnonzero(kept)[np.argsort(codes[kept], kind="stable")]
    return Blocks(codes[order], counts[order], units[order], facilities[order])


# --- runs ----------------------------------------------------------------------------------------


def resolve(way: str, seed: int, folder: Path, blocks: Path) -> Resolved:
    """The run of one way; ways with and without living quarters have folders of their own."""
    document = yaml.safe_load(RUN.read_text())
    persons = persons_of(document)
    persons["schema"] = str((RUN.parent / persons["schema"]).resolve())
    persons["data"]["path"] = str(blocks)
    del persons["data"]["checks"]
    allocation = (RUN.parent / persons["privacy"]["allocation"]).resolve()
    persons["privacy"]["allocation"] = str(production_of(allocation))
    document["privacy"] = {"randomness": {"source": "seeded_not_for_release", "seed": seed}}
    if way not in WITHOUT_QUARTERS:
        table = {
            "path": str(blocks),
            "geocode": "geoid",
            "columns": {"housing_units": "hu", "facilities": "gq"},
        }
        quarters = {"living_quarters": ["housing_units"], "geolevel": "block", "table": table}
        persons["invariants"].append(quarters)
    persons["solve"] = {"rounding_passes": persons["solve"]["rounding_passes"], **WAYS[way]}
    persons["output"] = {"microdata": []}
    out = folder / ("out" if way in WITHOUT_QUARTERS else "out0")
    document["output"] = {"directory": str(out)}
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(document))
    return load_run(path)


def released(blocks: Blocks, seed: int) -> tuple[dict[str, np.ndarray], ExpectedTotals]:
    """Counts of the blocks by way, and what the run says of the expected totals."""
    found: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        blocks.write(folder / "blocks.parquet")
        for ways in (WITHOUT_QUARTERS, [way for way in WAYS if way not in WITHOUT_QUARTERS]):
            first = resolve(ways[0], seed, folder, folder / "blocks.parquet")
            tasks = LocalTasks(Sizing(1))  # in this process, without a session
            with open_job(first, Reporter(quiet=True), tasks=tasks) as job:
                for stage in (*MEASURING, "estimate"):
                    do_stages(job, (stage,))
                for way in ways:
                    resolved = resolve(way, seed, folder, folder / "blocks.parquet")
                    do_stages(replace(job, resolved=resolved), ("solve",))
                    layout = resolved.last.release
                    counts = read_counts(layout, "block", blocks.codes.astype(object), 16)
                    found[way] = counts.dense().reshape(-1, 2, 8)
                    if way == "c2":
                        said = use_of(
                            Dataset.open(layout.counts("block")), "expected_totals", ExpectedTotals
                        )
                    for level in resolved.plan.spine.levels:
                        _remove(layout.counts(level))
    assert said is not None
    return found, said


def _remove(dataset: Any) -> None:
    for path in dataset.iterdir():
        path.unlink()
    dataset.rmdir()


# --- errors --------------------------------------------------------------------------------------


def errors(blocks: Blocks, counts: np.ndarray) -> dict[str, float]:
    """Mean squared errors by marginal, and what is lost where."""
    off, truth = (counts - blocks.counts).astype(float), blocks.counts
    groups, first = np.unique([code[:12] for code in blocks.codes], return_index=True)
    owners = np.searchsorted(groups, [code[:12] for code in blocks.codes])
    sums = np.concatenate([np.zeros((1, 2, 8)), np.cumsum(off, 0)])
    starts = np.random.default_rng(7).integers(0, max(1, len(off) - AREA), 400)
    area = sums[np.minimum(starts + AREA, len(off))] - sums[starts]
    sizes = np.bincount(owners)
    is_first = np.arange(len(off)) - first[owners] < sizes[owners] // 2
    half = np.zeros((len(groups), 2, 8))
    np.add.at(half, owners, np.where(is_first[:, None, None], off, 0))
    found = {
        "total": mean_square(off.sum((1, 2))),
        "race": mean_square(off.sum(1)),
        "cells": mean_square(off),
        "area_total": mean_square(area.sum((1, 2))),
        "area_race": mean_square(area.sum(1)),
        "half_total": mean_square(half.sum((1, 2))),
        "half_race": mean_square(half.sum(1)),
    }
    persons, by_group = truth.sum((1, 2)), truth.sum(1)
    above = np.zeros((len(groups), 8))
    np.add.at(above, owners, by_group)
    shares = (above / np.maximum(above.sum(1, keepdims=True), 1))[owners]
    for number, group in ((0, "hisp"), (2, "black"), (4, "asian")):
        own = by_group[:, number]
        here = (own >= 5) & (own / np.maximum(persons, 1) > 1.5 * shares[:, number])
        found[f"concentration_{group}"] = relative(off.sum(1)[:, number], own, here)
    is_usual = (blocks.facilities == 0) & (blocks.units >= 3) & (persons > 0)
    with_units = np.where(is_usual, blocks.units, 0)
    per_unit = np.bincount(owners, np.where(is_usual, persons, 0)) / np.maximum(
        np.bincount(owners, with_units), 1
    )
    household = persons / np.maximum(blocks.units, 1) / np.maximum(per_unit[owners], 1e-9)
    for low, high in zip(_HOUSEHOLDS[:-1], _HOUSEHOLDS[1:], strict=True):
        here = is_usual & (household >= low) & (household < high)
        found[f"household_{low:g}"] = relative(off.sum((1, 2)), persons, here)
    return found


def mean_square(off: np.ndarray) -> float:
    """Mean of the squares."""
    return float((off**2).mean())


def relative(off: np.ndarray, truth: np.ndarray, here: np.ndarray) -> float:
    """Error of a sum over some blocks, over the true sum."""
    return float(off[here].sum() / max(1, truth[here].sum()))


def compared(blocks: Blocks, seeds: int) -> dict[str, Any]:
    """Means over seeds by marginal and way, and whether the certificate chose the better way."""
    every: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    certificates, right = [], []
    for seed in range(1, seeds + 1):
        counts, said = released(blocks, seed)
        for way, own in counts.items():
            every[way].append(errors(blocks, own))
        estimated = {error.way: error for error in said.errors if error.query == "total"}
        true = {way: every[name][-1]["total"] for way, name in SOLVED.items()}
        is_better = {way: true[way] < true["plain"] for way in SOLVED}
        right.append(
            all(
                (estimated[way].error < estimated["plain"].error) == is_better[way]
                for way in SOLVED
            )
        )
        certificates.append(
            [(estimated[way].error, estimated[way].difference_error) for way in SOLVED]
        )
    found: dict[str, Any] = {
        name: {way: float(np.mean([one[name] for one in runs])) for way, runs in every.items()}
        for name in every["a"][0]
    }
    means = np.mean(certificates, 0).tolist()
    found["sure"] = {
        name: {"error": error, "difference_error": spread}
        for name, (error, spread) in zip(SOLVED.values(), means, strict=True)
    }
    found["sure_chose_right"] = all(right)
    return found


def show(name: str, blocks: Blocks, found: Mapping[str, Any]) -> None:
    """Print the table of one set of blocks."""
    ways = [*WAYS]
    print(f"\n{name}: {len(blocks.codes):,} blocks, {int(blocks.counts.sum()):,} persons; ", end="")
    print("mean squared errors, over `own` in brackets")
    print(f"{'':<22}" + "".join(f"{way:>18}" for way in ways))
    for key in _MARGINALS:
        row = found[key]
        cells = "".join(f"{row[way]:>11.3f} ({row[way] / row['own']:.2f})" for way in ways)
        print(f"{key:<22}{cells}")
    for key in found:
        if key.startswith(("concentration", "household")):
            print(f"{key:<22}" + "".join(f"{found[key][way]:>+18.3f}" for way in ways))
    sure = ", ".join(
        f"{way} {one['error']:.2f} (difference to a0 +- {one['difference_error']:.2f})"
        for way, one in found["sure"].items()
    )
    print(f"totals, estimated from noisy answers alone: {sure}")
    print(
        f"each way is estimated to be better or worse than a0 as it is: {found['sure_chose_right']}"
    )


def main() -> None:
    """Run, print tables, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1 seed of 3,000 generated blocks")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--data", type=Path, help="file of real blocks with housing units")
    parser.add_argument("--tracts", type=int, default=1, help="read every so manieth tract")
    arguments = parser.parse_args()
    seeds = arguments.seeds or (1 if arguments.quick else 3)
    if arguments.data is not None and not arguments.data.exists():
        parser.error(f"does not exist: {arguments.data}")
    made = generated(1, 40 if arguments.quick else 200)
    states = {"generated": made, "shuffled": shuffled(made, 2)}
    if arguments.data is not None:
        states = {arguments.data.stem: real(arguments.data, arguments.tracts)}
    results = {}
    for name, blocks in states.items():
        results[name] = compared(blocks, seeds)
        show(name, blocks, results[name])
    first = next(iter(results.values()))
    chose = all(result["sure_chose_right"] for result in results.values())
    print(json.dumps({"seeds": seeds, **first, "sure_chose_right": chose, "states": results}))


if __name__ == "__main__":
    main()
