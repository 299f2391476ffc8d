"""Persons and the units they live in, solved apart and so that they agree; against the truth.

    python -m bench.products [--quick] [--blocks N] [--seeds N] [--without-sizes]

A generated state of the schemas `residents` and `dwellings`, of which `das generate` draws persons and units together. The run
is conf/run/residents.yaml, once without its constraints and once with them: the same noise. With --without-sizes, occupied units
hold 1 to 97 persons each, whatever their size. `inconsistent` is how many geounits
break some constraint as it was stated, by geolevel, and by constraint in the blocks. `cuts` are sets of types whose bounds nodes missed,
`failsafes` parents that moved. `ratio` is the mean squared error of counts with constraints over that without, per query and
geolevel. Seconds are of the processor, of the stage `solve`.

`households` compares joint tables of persons and households, which neither product has, with those of the true households of
`das generate`, by table and geolevel: what share of the households or persons of a geounit is in another cell (half the sum of absolute
differences, added over geounits, by all of them). `rule` and `chance` are joined from the true counts, by the rule of the run and by chance alone: the error
of joining. `released` is the joined file of the release, and `released by chance` of the same counts: with the noise. Prints tables and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

import solvers.node
from das.histograms import Histograms
from das.queries.query import parse_query
from das.schema import Schema
from invariants.between import CrossProductConstraints
from invariants.joining import Order, join
from jobs.design.synthetic.generate import GenerateSpec, generate
from jobs.pipeline.config.between import Joining, joining_of
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import Product, Resolved
from jobs.pipeline.documents.statistics import statistics_of
from jobs.pipeline.run import MEASURING, do_stages, open_job
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.histograms import read_counts, read_histograms
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from tests.checkout import ROOT

RUN = ROOT / "conf" / "run" / "residents.yaml"
QUERIES = {"persons": ("total", "residence", "detailed"), "dwellings": ("occupancy", "detailed")}
WAYS = ("apart", "together")


def resolved(folder: Path, data: Path, way: str, seed: int, *, with_sizes: bool = True) -> Resolved:
    """The run of a way, seeded."""
    run = yaml.safe_load(RUN.read_text())
    run["geography"]["geounits"]["path"] = str(data / "geounits.parquet")
    run["privacy"] = {"randomness": {"source": "seeded_not_for_release", "seed": seed}}
    for product in run["products"].values():
        for key, kind in (("schema", "schema"),):
            product[key] = str(ROOT / "conf" / kind / Path(product[key]).name)
        allocation = Path(product["privacy"]["allocation"]).name
        product["privacy"]["allocation"] = str(ROOT / "conf" / "allocation" / allocation)
        product["data"]["path"] = str(data / Path(product["data"]["path"]).name)
    for constraint, persons in zip(run["cross_product_constraints"][1:3], (1, 97), strict=True):
        if not with_sizes:
            occupied = {"cells": {"occupancy": ["occupied"]}, "coefficient": persons}
            constraint["right"]["row"] = [occupied]
    if way == "apart":
        del run["cross_product_constraints"], run["products"]["persons"]["output"]["joined"]
    out = folder / way
    out.mkdir()
    run["output"]["directory"] = str(out / "out")
    (out / "run.yaml").write_text(yaml.safe_dump(run, sort_keys=False))
    return load_run(out / "run.yaml")


@contextmanager
def counted_cuts() -> Iterator[list[int]]:
    """The cuts of every node with leaves that is solved."""
    found: list[int] = []
    inner = solvers.node.solve_with_cuts

    def solve_with_cuts(*arguments: Any) -> Any:
        solved = inner(*arguments)
        found.append(solved.cuts)
        return solved

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solvers.node, "solve_with_cuts", solve_with_cuts)
        yield found


def counts(product: Product, geolevel: str, *, truth: bool = False) -> Histograms:
    """All geounits of a geolevel."""
    codes, size = read_public_geocodes(product.release, geolevel), product.plan.schema.size
    if truth:
        dataset = Dataset.open(product.confidential.histograms(geolevel))
        return read_histograms(dataset, codes, size)
    return read_counts(product.release, geolevel, codes, size)


def inconsistent(run: Resolved, ties: CrossProductConstraints, geolevel: str) -> dict[str, int]:
    """Geounits that break each constraint, and some, of `geounits`."""
    others = {name: counts(run.products[name], geolevel) for name in ties.sizes}
    own = counts(run.last, geolevel)
    broken = {tie.name: tie.broken(own, others) for tie in ties.entries}
    found = {name: int(mask.sum()) for name, mask in broken.items()}
    some = np.logical_or.reduce([*broken.values()])
    return {"geounits": own.n_geounits, "some": int(some.sum()), **found}


def squared_errors(run: Resolved) -> dict[str, float]:
    """Mean squared error of an answer, by product, query and geolevel."""
    out = {}
    for name, texts in QUERIES.items():
        product = run.products[name]
        for level in product.plan.levels:
            released, truth = (counts(product, level.name, truth=t) for t in (False, True))
            for text in texts:
                query = parse_query(product.plan.schema, text)
                off = query.answer(released) - query.answer(truth)
                out[f"{name} {text} {level.name}"] = float((off**2).mean())
    return out


def solved(run: Resolved, ties: CrossProductConstraints | None) -> dict[str, Any]:
    """One way, from its input to its counts; `ties` are those of the other way."""
    stated = run.plan.limits.ties if ties is None else ties
    with counted_cuts() as cuts, open_job(run, Reporter(quiet=True), tasks=tasks()) as job:
        do_stages(job, (*MEASURING, "estimate"))
        started = time.process_time()
        do_stages(job, ("solve",))
        seconds = time.process_time() - started
    moved = [
        move
        for product in run.products.values()
        for level in product.plan.levels
        for move in statistics_of(Dataset.open(product.release.counts(level.name))).moved
    ]
    assert stated is not None
    return {
        "ties": stated,
        "seconds": seconds,
        "cuts": sum(cuts),
        "nodes_with_bounds": len(cuts),
        "failsafes": len(moved),
        "inconsistent": {
            level.name: inconsistent(run, stated, level.name) for level in run.plan.levels
        },
        "errors": squared_errors(run),
    }


People = tuple[np.ndarray, np.ndarray, np.ndarray]  # leaf, number of the household, cell


def joint_tables(schema: Schema, people: People, n_leaves: int) -> dict[str, np.ndarray]:
    """int64[n_leaves, cells]: what is asked of a joined file, of households or of who lives there.

    Sizes are up to 7 and more, minors up to 4 and more, adults up to 3 and more.
    """
    leaf, number, cell = people
    codes = schema.codes_of(cell)
    home, first, who = np.unique(
        leaf * (int(number.max()) + 1) + number, return_index=True, return_inverse=True
    )
    head, group, adult = codes["residence"] == 0, codes["ethnicity_race"], codes["votingage"]
    householder = np.zeros(len(home), np.int64)
    householder[who[head]] = group[head]
    size = np.minimum(np.bincount(who), 7) - 1
    minors = np.minimum(np.bincount(who, adult == 0).astype(np.int64), 4)
    adults = np.minimum(np.bincount(who, adult == 1).astype(np.int64), 3)
    others = np.bincount(who, group != householder[who]).astype(np.int64)
    found = {
        "households: size x minors": (leaf[first], 5 * size + minors),
        "households: adults x minors": (leaf[first], 5 * adults + minors),
        "households: group of householder x minors": (leaf[first], 5 * householder + minors),
        "households: size x group of householder": (leaf[first], 8 * size + householder),
        "households: size x all of one group": (leaf[first], 2 * size + (others > 0)),
        "persons: adult x size of household": (leaf, 7 * adult + size[who]),
        "persons: adult x adults in the household": (leaf, 4 * (1 - adult) + adults[who]),
        "persons: group x group of householder": (leaf, 8 * group + householder[who]),
    }
    out = {}
    for name, (where, kind) in found.items():
        out[name] = np.zeros((n_leaves, 64), np.int64)
        np.add.at(out[name], (where, kind), 1)
    return out


def true_people(data: Path, codes: np.ndarray, schema: Schema) -> People:
    """Everybody in a household, as generated."""
    table = pq.read_table(data / "households")
    leaf = np.searchsorted(codes.astype(str), table.column("geocode").to_numpy().astype(str))
    levels = {
        one.name: pc.index_in(table.column(one.name).cast(pa.string()), pa.array(one.levels))
        for one in schema.attributes
    }
    cells = schema.cells_of({name: column.to_numpy() for name, column in levels.items()})
    return leaf, table.column("household").to_numpy(), cells


def joined_people(run: Resolved, joining: Joining, order: Order, *, truth: bool) -> People:
    """Everybody in a household, joined from the counts of both products."""
    leaf = run.plan.leaf.name
    codes = read_public_geocodes(run.last.release, leaf)
    units = counts(run.products[joining.places.product], leaf, truth=truth)
    found = join(joining.places, order, codes.tolist(), units, counts(run.last, leaf, truth=truth))
    inside = run.plan.schema.codes_of(found.cells)["residence"] <= 1
    return found.leaves[inside], found.numbers[inside], found.cells[inside]


def households(run: Resolved, data: Path) -> dict[str, dict[str, dict[str, float]]]:
    """By table and geolevel, the share of households or persons in another cell than in truth."""
    schema, spine = run.plan.schema, run.plan.spine
    joining = joining_of(run.last, run.products)
    assert joining is not None
    codes = read_public_geocodes(run.last.release, run.plan.leaf.name)
    nobody = np.zeros(schema.size)
    chance = Order(nobody > 0, nobody.astype(np.int64), joining.order.units, 0)
    people = {
        "rule": joined_people(run, joining, joining.order, truth=True),
        "chance": joined_people(run, joining, chance, truth=True),
        "released": joined_people(run, joining, joining.order, truth=False),
        "released by chance": joined_people(run, joining, chance, truth=False),
    }
    truth = joint_tables(schema, true_people(data, codes, schema), len(codes))
    out: dict[str, dict[str, dict[str, float]]] = {name: {} for name in truth}
    for way, some in people.items():
        for name, table in joint_tables(schema, some, len(codes)).items():
            for level, digits in zip(spine.levels, spine.digits, strict=True):
                _, above = np.unique([code[:digits] for code in codes], return_inverse=True)
                sums = np.zeros((int(above.max()) + 1, table.shape[1]), np.int64)
                np.add.at(sums, above, table - truth[name])
                wrong = np.abs(sums).sum() / 2 / truth[name].sum()
                out[name].setdefault(level, {})[way] = float(wrong)
    return out


def tasks() -> LocalTasks:
    """In this process, without a session."""
    return LocalTasks(Sizing(1))


def compared(data: Path, seeds: int, *, with_sizes: bool) -> dict[str, Any]:
    """Both ways for some seeds, added up."""
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    joined: list[dict[str, dict[str, dict[str, float]]]] = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            both, alone = (
                resolved(Path(folder), data, way, seed, with_sizes=with_sizes)
                for way in ("together", "apart")
            )
            together = solved(both, None)
            joined.append(households(both, data))
            apart = solved(alone, together["ties"])
        runs["together"].append(together)
        runs["apart"].append(apart)
    out: dict[str, Any] = {"seeds": seeds}
    for way, found in runs.items():
        out[way] = {
            key: sum(one[key] for one in found)
            for key in ("seconds", "cuts", "nodes_with_bounds", "failsafes")
        }
        out[way]["inconsistent"] = {
            level: {
                name: sum(one["inconsistent"][level][name] for one in found)
                for name in found[0]["inconsistent"][level]
            }
            for level in found[0]["inconsistent"]
        }
        out[way]["errors"] = {
            name: float(np.mean([one["errors"][name] for one in found]))
            for name in found[0]["errors"]
        }
    out["households"] = {
        name: {
            level: {way: float(np.mean([one[name][level][way] for one in joined])) for way in ways}
            for level, ways in levels.items()
        }
        for name, levels in joined[0].items()
    }
    apart, both = out["apart"]["errors"], out["together"]["errors"]
    out["ratio"] = {name: both[name] / apart[name] for name in apart if apart[name]}
    return out


def show(found: dict[str, Any]) -> None:
    """Tables."""
    print(f"{'geounits that contradict themselves':<56}{'apart':>9}{'together':>10}{'of':>9}")
    apart, both = (found[way]["inconsistent"] for way in WAYS)
    for level, row in apart.items():
        print(f"{level:<56}{row['some']:>9}{both[level]['some']:>10}{row['geounits']:>9}")
    leaf = [*apart][-1]
    for name in [*apart[leaf]][2:]:
        print(f"  {leaf}: {name[:46]:<46}{apart[leaf][name]:>9}{both[leaf][name]:>10}")
    for key in ("failsafes", "cuts", "nodes_with_bounds", "seconds"):
        values = (found[way][key] for way in WAYS)
        print(f"{key:<56}" + "".join(f"{value:>9.4g} " for value in values))
    print(f"\n{'mean squared error':<56}{'apart':>9}{'together':>10}{'ratio':>9}")
    for name, ratio in found["ratio"].items():
        values = [found[way]["errors"][name] for way in WAYS]
        print(f"{name:<56}{values[0]:>9.4g}{values[1]:>10.4g}{ratio:>9.3f}")
    ways = ("rule", "chance", "released", "released by chance")
    print(f"\n{'share of records in another cell':<54}" + "".join(f"{way:>20}" for way in ways))
    for name, levels in found["households"].items():
        for level, shares in levels.items():
            print(f"{f'{name} {level}':<54}" + "".join(f"{shares[way]:>20.3f}" for way in ways))


def main() -> None:
    """Generate, solve, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="600 blocks, one seed")
    parser.add_argument("--blocks", type=int, default=8_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--without-sizes", action="store_true", help="of households")
    given = parser.parse_args()
    blocks, seeds = (600, 1) if given.quick else (given.blocks, given.seeds)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        generate(GenerateSpec(seed=2020, blocks=blocks, schema="residents"), data)
        found = compared(data, seeds, with_sizes=not given.without_sizes)
    show(found)
    print(
        json.dumps(
            {"bench": "products", "blocks": blocks, "sizes": not given.without_sizes, **found}
        )
    )


if __name__ == "__main__":
    main()
