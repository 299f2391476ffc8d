"""The benchmark of the uncertainty principle: 31 histograms, 6 methods, published tables again.

    python -m bench.studies.uncertainty [--quick] [--data FOLDER]

Laplace noise, epsilon 0.5 in all, on the sum, both one-way marginals and single cells (one-way data:
sum and cells). Tables 1 and 2 cover 16 of the histograms and 5 methods. A cell of them is off if it
differs from ours by more than 2 standard errors of the difference; theirs is taken from our spread
and their 1000 runs. Their sequential and max fits kept only the runs in which their solver
succeeded; how many is not published, and is estimated from the scatter of the sequential sum, which
has one law for all data. The column `kept` has the distance in standard errors for that many runs.
The last row of each method, if any, is the largest error of a cell, the maximum of noisy means,
hence only comparable at 1000 runs.

15 of the histograms are counts of real records. They and the printed tables are not part of the project:
put them into a folder (`pums/*.csv`, 9 rows of 24 counts each below a heading and behind a label, from
github.com/uscensusbureau/CostOfMicrodataNeurIPS2021, folder Nonneg/data, and `paper_tables_1_2.json`, the
tables as data set -> method -> Sum, Max, Total) and name it by --data. Without it only the 16 synthetic
histograms are measured, which are made here from their definition.

All histograms are then used to compare methods on sum and cells, with the same draws for all
methods; on the 16 also with Gaussian noise. Published methods have 1000 runs, but 100 for the
published slack of max fit; posterior and the other histograms have 300. --quick: 100 runs of max
fit, 50 of posterior and of the other histograms, no Gaussian noise.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import json
import resource
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.studies.postprocessing_methods import TableMethod, fit_largest, post_process
from bench.studies.postprocessing_table import NoisyQuery, NoisyTable
from das.mechanisms.gaussian import Gaussian
from das.mechanisms.laplace import Laplace
from das.mechanisms.mechanism import Continuous

NAMES = {"seq": "sequential", "reweight": "reweighted"}
RUNS = 1000
AS_PUBLISHED = "maxfit + 0.01"  # the published program leaves that much room
SELECTED = ("sequential", "maxfit", AS_PUBLISHED)  # published for successful runs only
LAPLACE_KURTOSIS = 20  # variance of the square over scale^4


@dataclass(frozen=True)
class Errors:
    """Squared errors of one method on one histogram.

    Attributes:
      of_sum: float64[R], squared error of the sum.
      of_cells: float64[R, n].
    """

    of_sum: np.ndarray
    of_cells: np.ndarray

    @property
    def n_runs(self) -> int:
        return len(self.of_sum)

    def summary(self) -> dict[str, tuple[float, float]]:
        """Mean and spread of a run, of the sum, all cells, and the worst cell."""
        totals = self.of_cells.sum(1)
        worst = self.of_cells[:, self.of_cells.mean(0).argmax()]
        samples = {"Sum": self.of_sum, "Total": totals, "Max": worst}
        return {name: (float(s.mean()), float(s.std(ddof=1))) for name, s in samples.items()}


def synthetic_histograms() -> dict[str, np.ndarray]:
    """The 16 by name: 8 patterns of 100 cells with one large cell, in a row and by columns of ten."""
    number, first_half = np.arange(1.0, 101.0), np.arange(100) < 50
    patterns = {f"Level{level:02d}": np.full(100, float(level)) for level in (0, 1, 16, 32)}
    patterns["SplitStairs"] = np.where(number < 50, number, 0.0)
    patterns["Stair"] = number
    patterns |= {f"Step{v}": np.where(first_half, 0.0, float(v)) for v in (16, 50)}
    found = {}
    for name, cells in patterns.items():
        row = cells.copy()
        row[0] = 10_000
        found[f"{name}_1d"] = row
        found[f"{name}_2d"] = row.reshape(10, 10, order="F")
    return found


def remark_two(cells: int, epsilon: float) -> dict[str, np.ndarray]:
    """The histograms of Remark 2, by name: no microdata fit the hard one well, all fit the easy one."""
    hard = np.zeros(cells)
    hard[0] = np.log(cells) / epsilon
    return {"hard": hard, "easy": np.full(cells, 500 / epsilon)}


def real_histograms(folder: Path) -> dict[str, np.ndarray]:
    """The 15 by name, from the folder of --data."""
    return {
        path.stem: np.loadtxt(path, delimiter=",", skiprows=1)[:, 1:]
        for path in sorted((folder / "pums").glob("*.csv"))
    }


def draw(histogram: np.ndarray, runs: int, seed: int, law: type[Continuous]) -> NoisyTable:
    """Noisy answers with budget epsilon 1/2 or rho 1/8, split evenly over the queries."""
    rng = np.random.default_rng(seed)
    truth = histogram.ravel()
    axes = [np.zeros(truth.size, int)]
    if histogram.ndim > 1:
        axes += [axis.ravel() for axis in np.indices(histogram.shape)]
    axes.append(np.arange(truth.size))
    scale = 2 * len(axes)
    variance = 2 * scale**2 if law is Laplace else 4 * len(axes)
    queries = []
    for groups in axes:
        shape = (runs, groups.max() + 1)
        if law is Laplace:
            noise = rng.laplace(0, scale, shape)
        else:
            noise = rng.normal(0, variance**0.5, shape)
        answers = np.bincount(groups, weights=truth) + noise
        queries.append(NoisyQuery(groups, answers, float(variance)))
    return NoisyTable(tuple(queries[:-1]), queries[-1], law)


def first(table: NoisyTable, runs: int) -> NoisyTable:
    """The first draws only."""
    parts = [
        NoisyQuery(q.groups, q.answers[:runs], q.variance) for q in (*table.coarse, table.cells)
    ]
    return NoisyTable(tuple(parts[:-1]), parts[-1], table.noise)


def measure(
    histogram: np.ndarray, seed: int, runs: dict[str, int], law: type[Continuous] = Laplace
) -> dict[str, Errors]:
    """Errors of the methods with a number of runs."""
    table = draw(histogram, max(runs.values()), seed, law)
    out = {}
    for name, count in runs.items():
        part = first(table, count)
        if name == AS_PUBLISHED:
            x = fit_largest(part, slack=0.01)
        else:
            x = post_process(part, TableMethod(name))
        error = x - histogram.ravel()
        out[name] = Errors(error.sum(1) ** 2, error**2)
    return out


def estimate_kept_runs(published: dict) -> float:
    """Runs behind the sequential sums: their scatter, less what all runs of one seed share.

    Subsets of size K of the same 1000 runs have means that scatter with variance
    (1 / K - 1 / 1000) times that of a run.
    """
    sums = [cells["seq"]["Sum"] for cells in published.values()]
    of_a_run = LAPLACE_KURTOSIS * 8.0**4
    return 1 / (float(np.var(sums, ddof=1)) / of_a_run + 1 / RUNS)


def compare_with_print(
    published: dict, measured: dict[str, dict[str, Errors]]
) -> dict[str, list[float]]:
    """Print tables 1 and 2 beside ours; return distances in standard errors per method."""
    kept = estimate_kept_runs(published)
    print(f"kept runs of sequential, from the scatter of its sums: about {kept:.0f} of {RUNS}")
    distances: dict[str, list[float]] = {}
    rng = np.random.default_rng(3)
    for data, by_method in published.items():
        print(
            f"\n{data}\n  {'':<16}{'':<6}{'published':>10}{'ours':>10}{'se':>8}{'z':>7}{'kept':>7}"
        )
        for printed_name, cells in by_method.items():
            name = NAMES.get(printed_name, printed_name)
            for ours_name in (name, AS_PUBLISHED) if name == "maxfit" else (name,):
                errors = measured[data][ours_name]
                for column, (mean, spread) in errors.summary().items():
                    if column == "Max" and errors.n_runs < RUNS:
                        continue
                    error = spread / errors.n_runs**0.5
                    z = (mean - cells[column]) / np.hypot(error, spread / RUNS**0.5)
                    key = f"{ours_name} {column}"
                    distances.setdefault(key, []).append(float(z))
                    text = ""
                    if ours_name in SELECTED:
                        of_kept = kept_distance(errors, column, cells[column], round(kept), rng)
                        distances.setdefault(f"{key} kept", []).append(of_kept)
                        text = f"{of_kept:7.1f}"
                    mark = "!" if abs(z) > 2 else " "
                    print(
                        f"  {ours_name:<16}{column:<6}{cells[column]:>10.1f}{mean:>10.1f}"
                        f"{error:>8.1f}{z:>6.1f}{mark}{text}",
                        flush=True,
                    )
    return distances


def kept_distance(
    errors: Errors, column: str, printed: float, kept: int, rng: np.random.Generator
) -> float:
    """Standard errors between print and a random choice of `kept` of our runs."""
    values = []
    for _ in range(200):
        rows = rng.choice(errors.n_runs, kept, replace=errors.n_runs < 2 * kept)
        values.append(Errors(errors.of_sum[rows], errors.of_cells[rows]).summary()[column][0])
    ours = errors.summary()[column][1] / errors.n_runs**0.5
    return float((np.mean(values) - printed) / np.hypot(np.std(values), ours))


def rank_methods(measured: dict[str, dict[str, Errors]], title: str) -> dict[str, int]:
    """Print mean squared errors of sum and cells; count where `posterior` beats its rivals."""
    names = [name for name in next(iter(measured.values())) if name != AS_PUBLISHED]
    print(
        f"\n{title}: squared error of sum / all cells\n  {'':<18}"
        + "".join(f"{n:>18}" for n in names)
    )
    better = {
        f"{rival} {column}": 0 for rival in ("nnls", "reweighted") for column in ("Sum", "Total")
    }
    ratios: dict[str, list[float]] = {name: [] for name in better}
    both = 0
    for data, by_method in measured.items():
        runs = min(errors.n_runs for errors in by_method.values())
        same = {  # the same draws for all methods
            name: Errors(e.of_sum[:runs], e.of_cells[:runs]).summary()
            for name, e in by_method.items()
        }
        shown = (f"{same[n]['Sum'][0]:.1f} / {same[n]['Total'][0]:.1f}" for n in names)
        print(f"  {data:<18}" + "".join(f"{text:>18}" for text in shown), flush=True)
        wins = {}
        for key in better:
            rival, column = key.split()
            ratio = same["posterior"][column][0] / same[rival][column][0]
            ratios[key].append(ratio)
            wins[key] = ratio < 1
            better[key] += ratio < 1
        both += all(wins.values())
    for key, values in ratios.items():
        mean = np.exp(np.mean(np.log(values)))
        print(f"  posterior / {key}: geometric mean {mean:.2f}, worst {max(values):.2f}")
    return {**better, "all four": both, "histograms": len(measured)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--data", type=Path, help="folder of the real histograms and printed tables"
    )
    given = parser.parse_args()
    histograms, published = synthetic_histograms(), {}
    if given.data:
        printed = given.data / "paper_tables_1_2.json"
        real = real_histograms(given.data)
        if len(real) != 15 or not printed.exists():
            parser.error(f"--data {given.data}: wants 15 files pums/*.csv and {printed.name}")
        histograms = {**real, **histograms}
        published = json.loads(printed.read_text(encoding="utf-8"))
    else:
        print("synthetic histograms alone; --help says how to add the real ones by --data")
    fast = {name: RUNS for name in ("ols", "nnls", "sequential", "reweighted")}
    slow, rest = (100, 50) if given.quick else (RUNS, 300)
    measured = {}
    for seed, (data, histogram) in enumerate(histograms.items()):
        if data in published:
            runs = {**fast, "maxfit": slow, AS_PUBLISHED: 100, "posterior": rest}
        else:
            runs = dict.fromkeys((*fast, "maxfit", "posterior"), rest)
        measured[data] = measure(histogram, seed, runs)
    distances = (
        compare_with_print(published, {data: measured[data] for data in published})
        if published
        else {}
    )
    print(f"\n  {'':<26}{'cells':>6}{'off':>5}{'mean z':>8}{'rms z':>7}")
    for key, values in distances.items():
        z = np.array(values)
        print(
            f"  {key:<26}{z.size:>6}{int((np.abs(z) > 2).sum()):>5}{z.mean():>8.2f}"
            f"{np.sqrt((z**2).mean()):>7.2f}"
        )
    wins = rank_methods(measured, "epsilon 1/2, Laplace noise")
    if published and not given.quick:
        gaussian = {
            data: measure(
                histograms[data],
                seed,
                dict.fromkeys((*fast, "maxfit", "posterior"), 100),
                Gaussian,
            )
            for seed, data in enumerate(published)
        }
        rank_methods(gaussian, "rho 1/8, Gaussian noise")
    plain = {k: v for k, v in distances.items() if not k.endswith("kept") and AS_PUBLISHED not in k}
    off = {key: sum(abs(z) > 2 for z in values) for key, values in plain.items()}
    summary = {
        "cells_checked": sum(len(values) for values in plain.values()),
        "cells_off_by_more_than_2_se": sum(off.values()),
        "off_by_column": {key: count for key, count in off.items() if count},
        "off_if_runs_were_selected": {
            key: sum(abs(z) > 2 for z in values)
            for key, values in distances.items()
            if key.endswith("kept")
        },
        "posterior_better_than": wins,
        "cpu_seconds": round(resource.getrusage(resource.RUSAGE_SELF).ru_utime, 1),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
