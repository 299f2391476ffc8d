"""Learned counts in the 2,016 cells of the redistricting data, on places not trained on.

    python -m bench.redistricting [--quick] [--seeds N] [--places generated,de] [--data FOLDER]

`conf/learned/pl94-generated.yaml` corrects blocks of 3,000 generated blocks of another seed, of the
published blocks of `tests/data`, whose races and group quarters within the 16 published cells are
drawn, and of every twelfth tract of Cook County with its 44 published cells, from the folder of
--data. Prints the mean squared errors of blocks with corrections divided by those without them, and
one line of JSON. --quick does generated blocks and Delaware once.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from das.queries.query import parse_query
from jobs.design.requests import GenerateSpec
from jobs.design.synthetic.generate import generate
from jobs.design.synthetic.nation import COMBINATIONS
from jobs.pipeline.confidential.histograms import true_counts
from jobs.pipeline.config.load import load_run
from jobs.pipeline.run import do_stages, open_job
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from tests.checkout import ROOT

QUERIES = ("total", "votingage", "hhgq", "hispanic * cenrace", "detailed")
SINGLE = ("white", "black", "aian", "asian", "nhpi", "other")
WEIGHTS = np.array([0.5, 0.2, 0.12, 0.12, 0.02, 0.3])  # of races within drawn combinations
TYPES = np.array([0.02, 0.03, 0.22, 0.03, 0.06, 0.004, 0.4])  # of group quarters
HISPANIC = np.array([0.22, 0.02, 0.025, 0.004, 0.001, 0.42])  # races of Hispanics
BEFORE = ("plan", "read", "resolve_constraints", "reserve_budget", "measure", "estimate")


def spread(rng: np.random.Generator, counts: Any, races: list[int]) -> np.ndarray:
    """Divide counts among combinations of races, by shares drawn for the tract."""
    weights = np.array([np.prod(WEIGHTS[list(COMBINATIONS[race])]) for race in races])
    shares = rng.dirichlet(weights / weights.sum() * 3 * len(races) + 1e-3)
    return np.asarray(rng.multinomial(counts, shares))


def published(state: str, data: Path, rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    """Geocodes and int64[B, 8, 2, 2, 63] of published blocks; what is not published is drawn."""
    is_cook = state == "cook"
    name = "cook_2010_third_44cells_hu" if is_cook else f"{state}_2010_block"
    table = pq.read_table(data / f"{name}.parquet").sort_by("geoid")
    if is_cook:
        tracts = np.array([code[:11] for code in table["geoid"].to_pylist()])
        table = table.filter(pa.array(np.isin(tracts, np.unique(tracts)[1::4])))
    codes = table["geoid"].to_pylist()
    of_tract = np.array([code[:11] for code in codes])
    columns = {name: table[name].to_numpy() for name in table.column_names if name[:2] in "m_a_"}
    counts = np.zeros((len(codes), 8, 2, 2, 63), np.int64)
    combined = {k: [i for i, c in enumerate(COMBINATIONS) if len(c) == k] for k in range(2, 7)}
    several = [race for races in combined.values() for race in races]
    for tract in np.unique(of_tract):
        rows = np.flatnonzero(of_tract == tract)
        for age, prefix in enumerate("ma"):
            for ethnicity, word in enumerate(("nh_", "h_") if is_cook else ("",)):
                into = counts[:, 0, age, ethnicity]
                for race, single in enumerate(SINGLE):
                    into[rows, race] += columns[f"{prefix}_{word}{single}"][rows]
                for k, races in combined.items() if is_cook else ():
                    drawn = spread(rng, columns[f"{prefix}_{word}r{k}"][rows], races)
                    into[np.ix_(rows, races)] += drawn
            if not is_cook:
                drawn = spread(rng, columns[f"{prefix}_two"][rows], several)
                counts[np.ix_(rows, [0], [age], [0], several)] += drawn.reshape(
                    len(rows), 1, 1, 1, -1
                )
                shares = rng.dirichlet(30 * HISPANIC)
                counts[rows, 0, age, 1, :6] += rng.multinomial(
                    columns[f"{prefix}_hisp"][rows], shares
                )
    total, minors = counts.sum((1, 2, 3, 4)), counts[:, :, 0].sum((1, 2, 3))
    quarters = (total > 0) & (rng.random(len(codes)) < 0.015) | (total >= 50) & (minors == 0)
    if is_cook:
        quarters = (total > 0) & (table["hu"].to_numpy() == 0)
    for block in np.flatnonzero(quarters):
        kind = 1 + rng.choice(7, p=TYPES / TYPES.sum())
        counts[block, [0, kind]] = counts[block, [kind, 0]]
    return codes, counts


def input_of(place: str, data: Path, folder: Path) -> Path:
    """Write the blocks of a place as sparse histograms."""
    if place == "generated":
        generate(GenerateSpec(seed=2, format="histograms"), folder / "data")
        return folder / "data" / "histograms"
    codes, counts = published(place, data, np.random.default_rng(6))
    flat = counts.reshape(len(codes), -1)
    cells = [np.flatnonzero(row) for row in flat]
    table = {"geocode": codes, "cells": cells}
    table |= {"counts": [row[some] for row, some in zip(flat, cells, strict=True)]}
    path = folder / "blocks.parquet"
    pq.write_table(pa.table(table), path)
    return path


def errors_of(place: str, seed: int, data: Path) -> dict[str, dict[str, float]]:
    """Mean squared errors of blocks, without and with corrections of the same noisy answers."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = (ROOT / "conf/run/state-plan.yaml").read_text().replace("../", f"{ROOT}/conf/")
        document = yaml.safe_load(text.replace("pl94-2020", "pl94-optimised"))
        del document["geography"]["geounits"]
        persons = document["products"]["persons"]
        persons["data"]["path"] = str(input_of(place, data, folder))
        persons["output"] = {"microdata": []}
        document["privacy"] = {"randomness": {"source": "seeded_not_for_release", "seed": seed}}
        document["output"] = {"directory": str(folder / "out")}
        file = str(ROOT / "conf/learned/pl94-generated.yaml")
        for way in ("plain", "learned"):
            if way == "learned":
                persons["solve"]["learned"] = {"geolevels": ["block"], "file": file}
            (folder / f"{way}.yaml").write_text(yaml.safe_dump(document))
        first = load_run(folder / "plain.yaml")
        with open_job(first, Reporter(quiet=True), tasks=LocalTasks(Sizing(1))) as job:
            do_stages(job, BEFORE)
            for way in ("plain", "learned"):
                resolved = load_run(folder / f"{way}.yaml")
                do_stages(replace(job, resolved=resolved), ("solve",))
                plan, product = resolved.plan, resolved.last
                codes = read_public_geocodes(product.release, "block")
                truth = true_counts(plan, product.confidential, "block", codes).reveal()
                counts = read_counts(product.release, "block", codes, plan.schema.size)
                found[way] = {}
                for text in QUERIES:
                    query = parse_query(plan.schema, text)
                    off = query.answer(counts) - query.answer(truth)
                    found[way][text] = float((off.astype(np.float64) ** 2).mean())
                shutil.rmtree(product.release.root / "counts")
    return found


def main() -> None:
    """Run, print ratios, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--places", default="generated,de,hi")
    parser.add_argument("--data", type=Path, default=ROOT / "tests" / "data")
    arguments = parser.parse_args()
    places = ("generated", "de") if arguments.quick else arguments.places.split(",")
    result: dict[str, dict[str, float]] = {}
    print(f"{'place':<12}" + "".join(f"{query:>20}" for query in QUERIES))
    for place in places:
        runs = [errors_of(place, seed, arguments.data) for seed in range(1, arguments.seeds + 1)]
        result[place] = {}
        for query in QUERIES:
            plain, learned = (sum(one[way][query] for one in runs) for way in runs[0])
            result[place][query] = round(learned / plain, 4)
        print(f"{place:<12}" + "".join(f"{ratio:>20.3f}" for ratio in result[place].values()))
    print(json.dumps({"seeds": arguments.seeds, "ratios": result}))


if __name__ == "__main__":
    main()
