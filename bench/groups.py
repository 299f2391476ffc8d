"""For whom a release is worse under three allocations, as predicted and as measured in runs.

    python -m bench.groups [--quick] [--seeds N] [--max-worsening FACTOR] [--data FOLDER]

Blocks are those of Delaware 2010: a sixth of the state, or all of it in the folder of --data. Groups
are the eight of ethnicity and race, compared at the tract and the block group relative to their
sizes. Sizes are public: those of a release of another seed with the production allocation.
Allocations: production, that of the run file; optimized, `das plan --optimize` for equal weights;
groups, `das plan --optimize --groups` where no table of the run gets worse than by FACTOR; free, the
same without that limit. All are made from full information, as counts are solved.

Predicted errors are those of linear estimates, before nonnegativity and rounding; measured ones are
of the released counts, over all geounits and seeds. Both are root mean squared errors, of groups over
the persons in an average geounit. Prints tables and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import yaml

from bench.accuracy import DATA, blocks_of, resolve
from das.arrays import FloatArray
from das.queries.query import Query, groups_of, parse_query, restricted
from das.tree.classes import SubtreeClasses
from das.tree.information import Information
from jobs.design.planning.allocation import Optimized, optimize_weights, write_allocation
from jobs.design.planning.errors import parse_tables, predict, subtree_classes
from jobs.design.planning.group_errors import optimize_for_groups
from jobs.design.planning.groups import read_groups
from jobs.pipeline.confidential.geounits import lattice_of
from jobs.pipeline.confidential.histograms import read_truth
from jobs.pipeline.config.allocation import load_allocation
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.run import MEASURING, do_stages, open_job
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.geography import read_geography
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.tasks.progress import Reporter
from tests.builders.places import release_of, truth_of

GROUPS = "ethnicity_race"
COMPARED = ("tract", "block_group")
TABLES = ("total", "votingage", "ethnicity_race", "detailed")
PUBLIC_SEED = 1000  # of the release whose totals are the public sizes

Errors = dict[str, dict[str, FloatArray]]  # table -> geolevel -> float64[answers], squared


def allocations(
    resolved: Resolved, tree: SubtreeClasses, sizes: Mapping[str, int], others: float, folder: Path
) -> tuple[dict[str, Path], dict[str, dict[str, float]]]:
    """Files of the allocations other than production, and value, bound and seconds of each."""
    plan = resolved.plan
    rows = [f"{GROUPS},{group},{max(1, persons)}" for group, persons in sizes.items()]
    (folder / "sizes.csv").write_text("\n".join(["query,group,persons", *rows]) + "\n")
    asked = {"groups": {GROUPS: dict.fromkeys(COMPARED, "relative")}, "sizes": "sizes.csv"}

    def for_groups(**more: float) -> Optimized:
        path = folder / "groups.yaml"
        path.write_text(yaml.safe_dump(asked | more))
        return optimize_for_groups(plan, tree, TABLES, Information.TREE, read_groups(plan, path))

    searches = {
        "optimized": lambda: optimize_weights(plan, tree, TABLES, Information.TREE),
        "groups": lambda: for_groups(others=others),
        "free": for_groups,
    }
    files, found = {}, {}
    for name, search in searches.items():
        begun = time.perf_counter()
        best = search()
        seconds = time.perf_counter() - begun
        files[name] = folder / f"{name}.yaml"
        write_allocation(best, files[name])
        found[name] = {
            "value": round(best.value, 5),
            "bound": round(best.bound, 5),
            "seconds": round(seconds, 2),
        }
    return files, found


def predicted(resolved: Resolved, tree: SubtreeClasses, allocation: Path | None) -> Errors:
    """Squared errors of linear estimates from all measurements."""
    plan = resolved.plan
    strategy = plan.strategy
    if allocation is not None:
        strategy = load_allocation(allocation, plan.schema, plan.spine)
    groups = groups_of(plan.schema, parse_query(plan.schema, GROUPS))
    total = parse_query(plan.schema, "total")
    rows = [restricted(total, group) for group in groups]
    tables = parse_tables(plan, TABLES)
    found = predict(plan, strategy, tree, [*rows, *tables]).errors[Information.TREE].mean
    errors: Errors = {"groups": {}}
    for level, name in enumerate(plan.spine.levels):
        errors["groups"][name] = found[: len(rows), level]
        for table, value in zip(TABLES, found[len(rows) :, level], strict=True):
            errors.setdefault(table, {})[name] = np.array([value])
    return errors


def run(resolved: Resolved) -> None:
    """All stages from reading to counts."""
    with open_job(resolved, Reporter(quiet=True)) as job:
        stages = (*MEASURING, "estimate", "solve")
        do_stages(job, stages)


def measured(resolved: Resolved) -> Errors:
    """Squared errors of the released counts, means over geounits."""
    plan, out = resolved.plan, resolved.config.output.directory
    release, confidential = release_of(out), truth_of(out)
    errors: Errors = {"groups": {}}
    for level in plan.spine.levels:
        codes = _codes(resolved, level)
        ours = read_counts(release, level, codes, plan.schema.size)
        histograms = Dataset.open(confidential.histograms(level))
        truth = read_truth(histograms, codes, plan.schema.size).reveal()

        def squares(query: Query) -> FloatArray:
            off = query.answer(ours) - query.answer(truth)  # noqa: B023 - called in this turn
            return np.asarray((off.astype(np.float64) ** 2).mean(axis=0))

        errors["groups"][level] = squares(parse_query(plan.schema, GROUPS))
        for table in TABLES:
            mean = squares(parse_query(plan.schema, table)).mean()
            errors.setdefault(table, {})[level] = np.array([mean])
    return errors


def _codes(resolved: Resolved, level: str) -> np.ndarray:
    release = resolved.last.release
    geounits = read_geography(release, level, columns=("geocode",))
    return np.asarray(geounits.column("geocode").to_numpy(zero_copy_only=False))


def released_sizes(resolved: Resolved) -> dict[str, int]:
    """Persons of every group in a release, from the root."""
    plan, root = resolved.plan, resolved.plan.spine.levels[0]
    query = parse_query(plan.schema, GROUPS)
    release = resolved.last.release
    counts = read_counts(release, root, _codes(resolved, root), plan.schema.size)
    return dict(zip(query.labels(), query.answer(counts)[0].tolist(), strict=True))


def mean_errors(every: Sequence[Errors]) -> Errors:
    """Means over seeds."""
    return {
        table: {
            level: np.asarray(np.mean([one[table][level] for one in every], axis=0))
            for level in every[0][table]
        }
        for table in every[0]
    }


def largest(errors: Errors, sizes: Mapping[str, int], geounits: int, level: str) -> FloatArray:
    """float64[groups]: root mean squared error over the persons of an average geounit."""
    persons = np.maximum(1, np.array(list(sizes.values()), np.float64)) / geounits
    return np.asarray(np.sqrt(errors["groups"][level]) / persons)


def main() -> None:
    """Find allocations, run them all with every seed, print tables and JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2 seeds")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--max-worsening", type=float, default=1.25)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the file of blocks")
    arguments = parser.parse_args()
    seeds = arguments.seeds or (2 if arguments.quick else 10)
    blocks = blocks_of("de", arguments.data)
    if not blocks.exists():
        parser.error(f"does not exist: {blocks}; tests/data/README.md says where from")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = resolve(blocks, "full", PUBLIC_SEED, folder / "public")
        run(first)
        sizes = released_sizes(first)
        lattice = lattice_of(first)
        tree = subtree_classes(lattice)
        files, searches = allocations(first, tree, sizes, arguments.max_worsening, folder)
        ways: dict[str, Path | None] = {"production": None, **files}
        plans = {way: predicted(first, tree, path) for way, path in ways.items()}
        runs: dict[str, Errors] = {}
        for way, path in ways.items():
            every = []
            for seed in range(1, seeds + 1):
                resolved = resolve(blocks, "full", seed, folder / f"{way}-{seed}", path)
                run(resolved)
                every.append(measured(resolved))
            runs[way] = mean_errors(every)
    levels = first.plan.spine.levels
    numbers = {level: len(lattice.codes[index]) for index, level in enumerate(levels)}
    result = {
        "seeds": seeds,
        "max_worsening": arguments.max_worsening,
        "sizes": sizes,
        "search": searches,
    }
    print(f"{seeds} seeds; public sizes {sizes}")
    for way, found in searches.items():
        print(f"{way}: {found['value']} of the goal before, least possible {found['bound']}")
    result["groups"] = {
        level: group_table(level, plans, runs, sizes, numbers[level]) for level in COMPARED
    }
    result["tables"] = cost_table(plans, runs, levels)
    print(json.dumps(result))


def group_table(
    level: str,
    plans: Mapping[str, Errors],
    runs: Mapping[str, Errors],
    sizes: Mapping[str, int],
    geounits: int,
) -> dict[str, dict[str, dict[str, float]]]:
    """Relative errors of all groups at a geolevel, printed; the largest is the last row."""
    print(f"\n{level}: relative error of groups, predicted / measured")
    print(f"{'group':<18}" + "".join(f"{way:>22}" for way in plans))
    out: dict[str, dict[str, dict[str, float]]] = {way: {} for way in plans}
    columns = {
        way: (
            largest(plans[way], sizes, geounits, level),
            largest(runs[way], sizes, geounits, level),
        )
        for way in plans
    }
    for row, group in enumerate([*sizes, "largest"]):
        shown = f"{group:<18}"
        for way, (before, after) in columns.items():
            pair = [float(v.max() if group == "largest" else v[row]) for v in (before, after)]
            out[way][group] = {"predicted": round(pair[0], 4), "measured": round(pair[1], 4)}
            shown += f"{100 * pair[0]:>11.1f} %{100 * pair[1]:>7.1f} %"
        print(shown)
    return out


def cost_table(
    plans: Mapping[str, Errors], runs: Mapping[str, Errors], levels: Sequence[str]
) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """Root mean squared errors of tables in persons, printed."""
    print("\nroot mean squared error in persons, predicted / measured")
    print(f"{'table':<16}{'geolevel':<13}" + "".join(f"{way:>20}" for way in plans))
    out: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for table in TABLES:
        for level in levels:
            shown = f"{table:<16}{level:<13}"
            for way in plans:
                pair = [float(errors[way][table][level][0]) ** 0.5 for errors in (plans, runs)]
                out.setdefault(table, {}).setdefault(level, {})[way] = {
                    "predicted": round(pair[0], 3),
                    "measured": round(pair[1], 3),
                }
                shown += f"{pair[0]:>12.2f}{pair[1]:>8.2f}"
            print(shown)
    return out


if __name__ == "__main__":
    main()
