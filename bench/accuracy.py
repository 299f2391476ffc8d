"""Error of the integer release on real blocks: the way of 2020 against ours.

    python -m bench.accuracy [--quick | --headline] [--seeds N] [--states ri,de,cook]
                                   [--ways own,full] [--keep FOLDER] [--data FOLDER]

Blocks are those of `tests/data`, of a sixth of the tracts of two states and of an eighteenth of Cook
County, or more of them in the folder of --data. Ways: own, the production allocation and targets of the
own geolevel, as the 2020 release was made; full, the same measurements with targets from all
information; optimised, full information with the allocation of the run file, which `das plan
--optimize` made; optimised_t, the same with totals of blocks expected by their housing units;
learned, optimised with the corrections of the run file, learned from other places; self, optimised
with corrections that the run learns from its own noisy answers; eb, full with
empirical Bayes at blocks. In Cook County housing units and facilities are public, and
nobody is in blocks without any in all of the ways, as in 2020; the other files have no housing units,
so there optimised_t is optimised itself. In Cook County learned is optimised too, but for other tracts
in the folder of --data, since the regressions with housing units are trained on the extract.

Every seed, from 1 on, draws the noise of an allocation once, and every way of solving post-processes
the same measurements. Mean squared errors are over geounits and answers, then means over seeds; a
ratio is of these means, to own; those of learned and self are to optimised. areas_100 are areas of 100 blocks. The bias is the mean error of cells by their true count. With
--keep, errors of a run that was done before are read from there. Prints tables and one line of JSON:
geolevel to marginal to errors and ratios, of all states together under "levels", of each under
"states". --headline prints one table, of seeds 0 to 9: own against the best way of each state.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import yaml

from bench.state import persons_of
from das.queries.query import parse_query
from jobs.pipeline.confidential.histograms import read_truth
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.run import do_stages, open_job
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.geography import read_geography
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from solvers.problem import group_sums
from tests.builders.places import release_of, truth_of
from tests.checkout import ROOT

DATA = ROOT / "tests" / "data"
RUNS = ROOT / "conf" / "run"
WITH_UNITS = ROOT / "conf" / "learned" / "block16-units-cook-2010.yaml"
PRODUCTION = ROOT / "conf" / "allocation" / "block16-2020-state.yaml"
STATES = {"ri": "Rhode Island", "de": "Delaware", "cook": "Cook County", "hi": "Hawaii"}
QUERIES = {
    "total": "total",
    "ethnicity_race": "ethnicity_race",
    "votingage": "votingage",
    "cells": "detailed",
}
AREA = 100  # blocks, in the order of their geocodes


@dataclass(frozen=True)
class Way:
    """How a release is made.

    Attributes:
      solve: Settings of solving.
      allocation: Allocation file; None for that of the run file.
    """

    solve: Mapping[str, object]
    allocation: Path | None = PRODUCTION


WAYS = {
    "own": Way({"fit_to": "level"}),
    "full": Way({"fit_to": "tree"}),
    "optimised": Way({"fit_to": "tree"}, None),
    "optimised_t": Way({"fit_to": "tree", "housing_units": {"geolevels": ["block"]}}, None),
    "learned": Way({"fit_to": "tree", "learned": None}, None),
    "self": Way({"fit_to": "tree", "learned": "self"}, None),
    "eb": Way({"fit_to": "tree", "empirical_bayes": ["block"]}),
}
QUICK = ("own", "full", "optimised", "optimised_t", "learned")
HEADLINE = ("own", "optimised", "optimised_t")
SIZES = ((0, 0), (1, 2), (3, 9), (10, 49), (50, 10**9))
KINDS = ("empty", "1-9", "10-49", "50-199", "200+", "adults only, 50+", "mostly minorities")

Errors = dict[str, dict[str, list[float]]]  # geolevel -> marginal or "bias" -> numbers


def blocks_of(state: str, data: Path) -> Path:
    """The file with the blocks of a state."""
    return data / f"{state}_2010_block.parquet"


def state_of(blocks: Path) -> str:
    """The state whose blocks a file has."""
    return blocks.name.partition("_")[0]


def run_file_of(state: str) -> Path:
    """The run file of a state."""
    return RUNS / f"{state}-2010.yaml"


def has_units(state: str) -> bool:
    """Whether housing units are public there."""
    persons = persons_of(yaml.safe_load(run_file_of(state).read_text()))
    return any("living_quarters" in invariant for invariant in persons["invariants"])


def learned_of(blocks: Path) -> Path | None:
    """The regressions for blocks; None if they were trained on these."""
    source = run_file_of(state_of(blocks))
    own = persons_of(yaml.safe_load(source.read_text()))["solve"].get("learned")
    if own is not None:
        return (source.parent / own["file"]).resolve()
    return None if blocks.parent == DATA else WITH_UNITS


def is_made(blocks: Path, way: str) -> bool:
    """Whether a way differs from `optimised` there."""
    if way == "learned":
        return learned_of(blocks) is not None
    return way != "optimised_t" or has_units(state_of(blocks))


def resolve(
    blocks: Path, way: str, seed: int, out: Path, allocation: Path | None = None
) -> Resolved:
    """The run of one state, way and seed, with all its files under a folder.

    The allocation is that of the way if none is given.
    """
    source = run_file_of(state_of(blocks))
    document = yaml.safe_load(source.read_text())
    persons = persons_of(document)
    for invariant in persons["invariants"]:
        if "table" in invariant:  # of housing units, in the file of the blocks
            invariant["table"]["path"] = str(blocks.resolve())
    persons["schema"] = str((source.parent / persons["schema"]).resolve())
    persons["data"]["path"] = str(blocks.resolve())
    given = allocation or WAYS[way].allocation or source.parent / persons["privacy"]["allocation"]
    persons["privacy"]["allocation"] = str(given.resolve())
    document["privacy"] = {"randomness": {"source": "seeded_not_for_release", "seed": seed}}
    own = persons["solve"]
    persons["solve"] = {"rounding_passes": own["rounding_passes"], **WAYS[way].solve}
    if "learned" in WAYS[way].solve:
        file = WAYS[way].solve["learned"] or str(learned_of(blocks))
        persons["solve"]["learned"] = {"geolevels": ["block"], "file": file}
    persons["output"] = {"microdata": []}
    document["output"] = {"directory": str(out)}
    path = out.parent / "run.yaml"
    path.write_text(yaml.safe_dump(document))
    return load_run(path)


def errors_of_seed(blocks: Path, seed: int, ways: Sequence[str]) -> dict[str, Errors]:
    """Measure a state once for each allocation, and solve it in every way."""
    found: dict[str, Errors] = {}
    for allocation in dict.fromkeys(WAYS[way].allocation for way in ways):
        found |= _of_one_noise(
            blocks, seed, [way for way in ways if WAYS[way].allocation == allocation]
        )
    return found


def _of_one_noise(blocks: Path, seed: int, ways: Sequence[str]) -> dict[str, Errors]:
    """Measure a state once, in one run, and solve it in ways that have the same allocation."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "out"
        first = resolve(blocks, ways[0], seed, out)
        tasks = LocalTasks(
            Sizing(1)
        )  # in this process: small states are done before Spark has begun
        with open_job(first, Reporter(quiet=True), tasks=tasks) as job:
            do_stages(job, ("plan", "read"))
            do_stages(job, ("resolve_constraints", "reserve_budget", "measure"))
            do_stages(job, ("estimate",))
            for way in ways:
                other = replace(job, resolved=resolve(blocks, way, seed, out))
                do_stages(other, ("solve",))
                found[way] = errors(other.resolved)
                shutil.rmtree(release_of(out).root / "counts")
    return found


def errors(resolved: Resolved) -> Errors:
    """Mean squared error by geolevel and query, and mean error of cells by true count."""
    plan, out = resolved.plan, resolved.config.output.directory
    release, confidential = release_of(out), truth_of(out)
    n = plan.schema.size
    found: Errors = {}
    for geolevel in plan.spine.levels:
        geounits = read_geography(release, geolevel, columns=("geocode",))
        codes = geounits.column("geocode").to_numpy(zero_copy_only=False)
        ours = read_counts(release, geolevel, codes, n).dense()
        truth = (
            read_truth(Dataset.open(confidential.histograms(geolevel)), codes, n).reveal().dense()
        )
        off = ours - truth
        found[geolevel] = {"bias": [mean_of(off, truth, *size) for size in SIZES]}
        for name, text in QUERIES.items():
            query = parse_query(plan.schema, text)
            sums = group_sums(off, query.rows_of(np.arange(n)), query.size)
            found[geolevel][name] = [float((sums**2).mean())]
        found[geolevel]["geounits"] = [float(len(codes))]
    found[plan.leaf.name]["kinds"] = kinds_of(off, truth)
    stated = Dataset.open(release.counts(plan.leaf.name)).facts.get("learned", {"errors": []})
    for one in stated["errors"]:  # as the certificate estimates them, without the truth
        query = {"detailed": "cells"}.get(one["query"], one["query"])
        found[plan.leaf.name][f"{one['way']} {query}"] = [one["error"]]
    starts = np.arange(0, len(off), AREA)  # of the last geolevel
    off = np.add.reduceat(off, starts, axis=0)
    found["areas_100"] = {"geounits": [float(len(starts))]}
    for name, text in QUERIES.items():
        query = parse_query(plan.schema, text)
        sums = group_sums(off, query.rows_of(np.arange(n)), query.size)
        found["areas_100"][name] = [float((sums**2).mean())]
    return found


def kinds_of(off: np.ndarray, truth: np.ndarray) -> list[float]:
    """Mean squared error of totals, of cells, and mean error of totals, by kind of block."""
    totals, minors = truth.sum(1), truth[:, : truth.shape[1] // 2].sum(1)
    most = truth.reshape(len(truth), 2, -1).sum(1).argmax(1)  # the largest group of a block
    edges = (0, 1, 10, 50, 200, np.inf)
    masks = [(totals >= low) & (totals < high) for low, high in pairwise(edges)]
    masks += [(totals >= 50) & (minors == 0), (totals > 0) & (most != 1)]  # 1: white
    kinds = [off[mask] for mask in masks]
    squares = [float((one.sum(1) ** 2).mean()) for one in kinds]
    squares += [float((one**2).mean()) for one in kinds]
    return squares + [float(one.sum(1).mean()) for one in kinds]


def certificate_of(
    state: str, every: Mapping[str, Sequence[Errors]], geolevel: str = "block"
) -> dict[str, dict[str, list[float]]]:
    """Errors of `optimised` and of `learned` of each seed, estimated and true, printed."""
    print(f"\n{state}: mean squared error as estimated from noisy answers, and as it is, by seed")
    out: dict[str, dict[str, list[float]]] = {}
    for way, name in (("optimised", "plain"), ("learned", "learned")):
        for query in QUERIES:
            estimates = [
                one[geolevel].get(f"{name} {query}", [np.nan])[0] for one in every["learned"]
            ]
            true = [one[geolevel][query][0] for one in every[way]]
            out.setdefault(way, {})[query] = [round(v, 4) for v in (*estimates, *true)]
            pairs = zip(estimates, true, strict=True)
            print(f"{way:<12}{query:<16}" + "".join(f"{e:>12.3f} {t:>8.3f}" for e, t in pairs))
    return out


def mean_of(off: np.ndarray, truth: np.ndarray, low: int, high: int) -> float:
    """Mean error of the cells whose true count is in a range; not a number if there are none."""
    inside = (truth >= low) & (truth <= high)
    return float(off[inside].mean()) if inside.any() else float("nan")


def runs_of(
    blocks: Path, seeds: Sequence[int], ways: Sequence[str], keep: Path | None
) -> dict[str, list[Errors]]:
    """Errors of all seeds by way; those kept before are not computed again."""
    state = state_of(blocks)
    made = [way for way in ways if is_made(blocks, way)]
    every: dict[str, list[Errors]] = {way: [] for way in made}
    for seed in seeds:
        files = {way: keep / f"{state}-{way}-{seed}.json" for way in made} if keep else {}
        found = {w: json.loads(path.read_text()) for w, path in files.items() if path.exists()}
        missing = [way for way in made if way not in found]
        if missing:
            found |= errors_of_seed(blocks, seed, missing)
        for way in made:
            every[way].append(found[way])
            if way in files:
                files[way].write_text(json.dumps(found[way]))
    return {way: every[way if way in made else "optimised"] for way in ways}


def together(states: Sequence[Mapping[str, Sequence[Errors]]]) -> dict[str, list[Errors]]:
    """Mean squared errors over the geounits of all states, by way and seed."""
    out: dict[str, list[Errors]] = {}
    for way in states[0]:
        out[way] = []
        for parts in zip(*(state[way] for state in states), strict=True):
            whole: Errors = {}
            for geolevel in parts[0]:
                sizes = [part[geolevel]["geounits"][0] for part in parts]
                whole[geolevel] = {
                    name: [
                        float(
                            np.average([part[geolevel][name][0] for part in parts], weights=sizes)
                        )
                    ]
                    for name in QUERIES
                }
            out[way].append(whole)
    return out


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Ratio of two means over the same seeds, and its standard error (linearized)."""
    a, b = np.array(ours), np.array(theirs)
    if not b.mean():
        return 1.0, 0.0
    ratio = a.mean() / b.mean()
    spread = (a - ratio * b).std(ddof=1) / np.sqrt(len(a)) if len(a) > 1 else np.nan
    return float(ratio), float(spread / b.mean())


def table_of(
    state: str, every: Mapping[str, Sequence[Errors]]
) -> dict[str, dict[str, dict[str, float | None]]]:
    """Means over seeds, printed, with the ratio to the own geolevel's targets."""
    others = [way for way in every if way != "own"]
    print(
        f"\n{state}: mean squared error; ratio to own, of learned and self to optimised, -+ its standard error"
    )
    print(f"{'geolevel':<13}{'marginal':<16}{'own':>9}" + "".join(f"{way:>27}" for way in others))
    out: dict[str, dict[str, dict[str, float | None]]] = {}
    for geolevel in every["own"][0]:
        out[geolevel] = {}
        for query in QUERIES:
            values = {way: [one[geolevel][query][0] for one in runs] for way, runs in every.items()}
            means = {way: float(np.mean(some)) for way, some in values.items()}
            row: dict[str, float | None] = {way: round(mean, 4) for way, mean in means.items()}
            shown = f"{means['own']:>9.3f}"
            for way in others:
                is_corrected = way in {"learned", "self"} and "optimised" in values
                base = "optimised" if is_corrected else "own"
                ratio, spread = ratio_of(values[way], values[base])
                row[f"ratio_{way}"] = round(ratio, 4)
                row[f"ratio_error_{way}"] = None if np.isnan(spread) else round(spread, 4)
                shown += f"{means[way]:>12.3f} {ratio:>6.3f} -+ {spread:.3f}"
            out[geolevel][query] = row
            print(f"{geolevel:<13}{query:<16}{shown}")
    return out


def headline_of(states: Mapping[str, Mapping[str, Sequence[Errors]]]) -> dict[str, object]:
    """Errors of the way of 2020 and of ours, printed as a table of the documents."""
    print("| Geolevel | Answers |" + "".join(f" {STATES[state]} | Ratio |" for state in states))
    print("|---|---|" + "---|---|" * len(states))
    out: dict[str, dict[str, dict[str, dict[str, float]]]] = {state: {} for state in states}
    for geolevel in next(iter(states.values()))["own"][0]:
        for query in QUERIES:
            cells = []
            for state, every in states.items():
                own, ours = (
                    [one[geolevel][query][0] for one in every[way]]
                    for way in ("own", "optimised_t")
                )
                ratio, spread = ratio_of(ours, own)
                row = {"own": float(np.mean(own)), "ours": float(np.mean(ours))}
                row |= {"ratio": ratio, "ratio_error": spread}
                rounded = {name: round(value, 4) for name, value in row.items()}
                out[state].setdefault(geolevel, {})[query] = rounded
                shown = f"{row['own']:.2f} → {row['ours']:.2f} | {ratio:.3f} ± {spread:.3f}"
                cells.append(shown if row["own"] else "exact | ")
            if any(not cell.startswith("exact") for cell in cells):
                name = {"ethnicity_race": "race"}.get(query, query)
                print(f"| {geolevel.replace('_', ' ')} | {name} | {' | '.join(cells)} |")
    return {"headline": out}


def kinds_table(
    state: str, every: Mapping[str, Sequence[Errors]], geolevel: str = "block"
) -> dict[str, dict[str, list[float]]]:
    """Errors of kinds of blocks by way, printed."""
    print(f"\n{state}: blocks by kind; squared errors of totals and of cells, error of totals")
    print(f"{'':<12}{'way':<10}" + "".join(f"{kind:>18}" for kind in KINDS))
    out: dict[str, dict[str, list[float]]] = {}
    for way, runs in every.items():
        means = np.mean([one[geolevel]["kinds"] for one in runs], axis=0).reshape(3, -1)
        for name, row in zip(("total", "cells", "bias"), means, strict=True):
            out.setdefault(way, {})[name] = [round(float(value), 4) for value in row]
            print(f"{name:<12}{way:<10}" + "".join(f"{value:>18.3f}" for value in row))
    return out


def bias_of(
    state: str, every: Mapping[str, Sequence[Errors]]
) -> dict[str, dict[str, list[float | None]]]:
    """Mean error of cells by their true count, printed."""
    sizes = [str(low) if low == high else f"{low}-{high}" for low, high in SIZES[:-1]] + ["50+"]
    print(f"\n{state}: mean error of cells by true count")
    print(f"{'geolevel':<13}{'way':<10}" + "".join(f"{size:>10}" for size in sizes))
    out: dict[str, dict[str, list[float | None]]] = {}
    for geolevel in every["own"][0]:
        if "bias" not in every["own"][0][geolevel]:
            continue
        out[geolevel] = {}
        for way, runs in every.items():
            means = np.mean([one[geolevel]["bias"] for one in runs], axis=0)
            out[geolevel][way] = [None if np.isnan(m) else round(float(m), 4) for m in means]
            print(f"{geolevel:<13}{way:<10}" + "".join(f"{m:>10.3f}" for m in means))
    return out


def main() -> None:
    """Run, print tables, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="3 seeds, without empirical Bayes")
    length.add_argument("--headline", action="store_true", help="one table, of 10 seeds")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--states", default="ri,de,cook", help=f"of {', '.join(STATES)}")
    parser.add_argument("--ways", help=f"of {', '.join(WAYS)}")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the files of blocks")
    arguments = parser.parse_args()
    first, number = int(not arguments.headline), arguments.seeds or (3 if arguments.quick else 10)
    seeds = range(first, first + number)
    states = arguments.states.split(",")
    usual = HEADLINE if arguments.headline else QUICK if arguments.quick else WAYS
    asked = arguments.ways.split(",") if arguments.ways and not arguments.headline else usual
    ways = [way for way in WAYS if way == "own" or way in asked]
    files = {state: blocks_of(state, arguments.data) for state in states}
    missing = [str(file) for file in files.values() if not file.exists()]
    if missing:
        parser.error(f"does not exist: {', '.join(missing)}; tests/data/README.md says where from")
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
    runs = {state: runs_of(files[state], seeds, ways, arguments.keep) for state in states}
    if arguments.headline:
        print(json.dumps({"seeds": number, **headline_of(runs)}))
        return
    tables = {state: table_of(state, every) for state, every in runs.items()}
    biases = {state: bias_of(state, every) for state, every in runs.items()}
    kinds = {state: kinds_table(state, every) for state, every in runs.items()}
    pair = {"optimised", "learned"} <= {*ways}
    certified = {s: certificate_of(s, every) for s, every in runs.items() if pair}
    whole = tables[states[0]]
    if len(states) > 1:
        whole = table_of(" and ".join(states), together([*runs.values()]))
    units = [state for state in states if has_units(state)]
    found = {
        "seeds": number,
        "ways": ways,
        "with_housing_units": units,
        "levels": whole,
        "states": tables,
        "bias": biases,
        "kinds": kinds,
        "certificate": certified,
    }
    print(json.dumps(found | whole))


if __name__ == "__main__":
    main()
