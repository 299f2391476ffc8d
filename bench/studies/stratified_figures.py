"""Figures 4, 5, 7 and 9 of Rosenblatt, Stoyanovich & Musco, by synthesizer, strata and epsilon.

    python -m bench.studies.stratified_figures [--quick] [--seeds N] [--epsilons 0.1 1 ...]
        [--methods mst mst_strata ...] [--join FILE.json ...] [--output FILE.json] [--plot FILE.png]

Data, strata and methods are those of `bench.strata_synthesis`: `_strata` is one model of each
stratum, `_shrunk` a model of all records with strata shrunk toward it, neither one model of all.

- 4: accuracy of the logistic regression that is trained on the microdata to predict employment, on
  the true records; of the true records themselves at the end.
- 5: parity error of the means of the attributes that define no strata.
- 7a: largest relative error of a mean in a stratum. 7b: demographic parity of the predictions, 1 at
  parity. 7c: largest difference of false negative rates between strata.
- 9: parity error of the 3-way marginals.

Prints a table of means over seeds and one line of JSON, which --output also writes, with every seed.
"""

from __future__ import annotations

import argparse
import json
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from bench.strata_synthesis import DELTA, METHODS, ONE_BASED, data, evaluate, release
from das.metrics.classifier import train
from das.metrics.microdata import (
    demographic_parity_ratio,
    disparities,
    false_negative_rate_difference,
)
from das.privacy.accounting import rho_from_epsilon
from das.synthesis.records import Records
from das.synthesis.strata import Strata

EPSILONS = ("0.01", "0.05", "0.1", "0.5", "1", "5")
MODELS = ("everybody", "strata", "shrunk", "mst", "mst_strata", "mst_shrunk", "gem", "gem_strata",
          "gem_shrunk", "aim", "aim_strata", "aim_shrunk")  # fmt: skip
PREDICTED = "ESR"
FIGURES = {
    "accuracy": "4: accuracy",
    "means": "5: parity error of means",
    "disparity": "7a: largest disparity of a mean",
    "demographic_parity": "7b: demographic parity",
    "fnr_difference": "7c: difference of false negative rates",
    "parity": "9: parity error of 3-way marginals",
}


def use(truth: Records, released: Records, strata: Strata) -> dict[str, float]:
    """Figures 4 and 7, of one release."""
    domain = truth.domain
    at = domain.names.index(PREDICTED)
    others = [i for i in range(len(domain.names)) if i != at]
    fitted = train(
        released.codes[:, others],
        [domain.sizes[i] for i in others],
        released.codes[:, at] == 1,
    )
    positive, groups = truth.codes[:, at] == 1, strata.of_records(truth.codes)
    predicted = fitted.predict(truth.codes[:, others])
    inner = list(strata.inner(domain))
    base = np.array([float(domain.names[i] in ONE_BASED) for i in inner])
    there = strata.of_records(released.codes)
    means = [
        np.stack([rows.codes[of == k][:, inner].mean(0) + base for k in range(strata.n_strata)
                  if (groups == k).any() and (there == k).any()])
        for rows, of in ((truth, groups), (released, there))
    ]  # fmt: skip
    return {
        "accuracy": float((predicted == positive).mean()),
        "disparity": float(np.nanmax(disparities(*means))),
        "demographic_parity": demographic_parity_ratio(predicted, groups),
        "fnr_difference": false_negative_rate_difference(positive, predicted, groups),
    }


def table(epsilons: list[str], methods: list[str], n_seeds: int) -> list[dict[str, Any]]:
    """Print the table; one row for each epsilon, method and seed."""
    rows = []
    print("| epsilon | method | " + " | ".join(FIGURES.values()) + " | core seconds |")
    print("|---" * (len(FIGURES) + 3) + "|")
    for epsilon in epsilons:
        for method in methods:
            found = []
            for seed in range(n_seeds):
                truth, strata = data(seed)
                start = time.process_time()
                made = release(
                    method, truth, strata, rho_from_epsilon(Fraction(epsilon), DELTA), seed
                )
                seconds = time.process_time() - start
                errors = evaluate(truth, made, strata) | use(truth, made, strata)
                found.append({"epsilon": epsilon, "method": method, "seed": seed,
                              "cpu_seconds": round(seconds, 1), **errors})  # fmt: skip
            rows += found
            cells = [f"{np.mean([row[key] for row in found]):.3f}" for key in FIGURES]
            cells.append(f"{np.mean([row['cpu_seconds'] for row in found]):.1f}")
            print(f"| {epsilon} | {method} | " + " | ".join(cells) + " |", flush=True)
    truth, strata = data(0)
    real = use(truth, truth, strata)
    print(
        "| | true records | " + " | ".join(f"{real.get(key, 0.0):.3f}" for key in FIGURES) + " | |"
    )
    return [*rows, {"epsilon": None, "method": "truth", "seed": 0, **real}]


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw a panel for each figure: a color for each synthesizer, a line for each kind of strata."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    names = {"everybody": "mixture", "strata": "mixture_strata", "shrunk": "mixture_shrunk"}
    methods = [*dict.fromkeys(row["method"] for row in rows if row["epsilon"])]
    colors = dict(zip(("mixture", "mst", "gem", "aim"), plt.get_cmap("tab10").colors, strict=False))
    lines = {"": "--", "strata": ":", "shrunk": "-", "private": "-."}
    figure, panels = plt.subplots(2, 3, figsize=(15, 8.5), layout="constrained")
    for panel, (key, title) in zip(panels.flat, FIGURES.items(), strict=True):
        for method in methods:
            by: dict[float, list[float]] = {}
            for row in rows:
                if row["method"] == method:
                    by.setdefault(float(row["epsilon"]), []).append(row[key])
            name, _, way = names.get(method, method).partition("_")
            panel.plot([*by], [np.mean(each) for each in by.values()], lines[way],
                       color=colors[name], marker="o", markersize=3,
                       label=names.get(method, method))  # fmt: skip
        if key in rows[-1]:
            panel.axhline(rows[-1][key], color="black", linewidth=0.8, label="true records")
        if key in ("means", "parity", "disparity"):
            panel.set_yscale("log")
        panel.set(xscale="log", xlabel="epsilon (delta 1e-9)", title=f"Figure {title}")
    figure.legend(*panels.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    figure.savefig(path, dpi=80)


def main() -> None:
    """Print the table and the line; write and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="epsilon 0.1 and 1, one seed, no AIM")
    parser.add_argument("--epsilons", nargs="+")
    parser.add_argument("--methods", nargs="+", choices=METHODS)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--join", nargs="+", type=Path, default=[], help="earlier outputs to add")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    quick = [name for name in MODELS if not name.startswith("aim")]
    methods = given.methods or (quick if given.quick else [*MODELS])
    epsilons = given.epsilons or (["0.1", "1"] if given.quick else [*EPSILONS])
    rows = table(epsilons, methods, given.seeds or (1 if given.quick else 5))
    for path in given.join:
        rows = json.loads(path.read_text())["stratified_figures"][:-1] + rows
    line = json.dumps({"stratified_figures": rows})
    print(line)
    if given.output is not None:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(line)
    if given.plot is not None:
        given.plot.parent.mkdir(parents=True, exist_ok=True)
        plot(rows, given.plot)


if __name__ == "__main__":
    main()
