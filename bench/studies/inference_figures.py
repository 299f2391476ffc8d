"""The figures of Gong (Towards Good Statistical Inference, 2020) as numbers.

    python -m bench.studies.inference_figures [--draws N] [--steps N] [--output FILE.json]
        [--plot FILE.png]

Fits: pairs x ~ Poisson(10), y = -5 + 4 x + N(0, 25), ten of them, with continuous and with discrete
Laplace noise of epsilon 0.5, 0.2, 0.1 and none; for each of N draws (20) the line and its 95 %
ellipse, the noise ignored and modelled by Monte Carlo EM. Discrete noise is added to x alone: y is
not an integer. The attenuated slope is the limit of the slope if the noise is ignored.

Chain: the Metropolised independence sampler on the table of 2 sexes by 23 ages whose sums of women,
men and minors are kept: acceptance by inverse scale of the proposals, for discrete and continuous
noise, and traces of two cells at 0.6, one proposed and one solved for, every hundredth state.

Prints two tables and one line of JSON; --output also writes the JSON, with all ellipses and traces;
--plot draws the lines of all draws (figure 1), acceptance and traces (figure 2).
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from bench.conditioning import TABLE, invariants
from bench.studies.inference_coverage import CONFIDENCE, LINE, RESIDUAL, pairs
from das.errors import SolverError
from das.inference.conditional import LinearInvariants, draw_conditional, solve_for_rest
from das.inference.expectation_maximization import maximize_likelihood
from das.inference.models import CountRegression, NormalRegression
from das.inference.regions import ellipse
from das.inference.simulation import draw_noise
from das.mechanisms.laplace import DiscreteLaplace, Laplace
from das.mechanisms.mechanism import Distribution

UNITS, MEAN = 10, 10.0
EPSILONS = (Fraction(1, 2), Fraction(1, 5), Fraction(1, 10))
SCALES = tuple(Fraction(tenths, 10) for tenths in range(3, 10))  # inverse, of proposals
KINDS: dict[str, Callable[[Fraction], Distribution]] = {
    "discrete": DiscreteLaplace,
    "continuous": lambda scale: Laplace(float(scale)),
}
START = [*LINE, np.log(MEAN)]


def region(theta: np.ndarray, information: np.ndarray) -> dict[str, Any] | None:
    """Center, half axes and whether the true line lies inside; None without an ellipse."""
    try:
        found = ellipse(theta, information, CONFIDENCE)
    except SolverError:
        return None
    axes = found.axes().round(4).tolist()
    return {"center": found.center.tolist(), "axes": axes, "holds": bool(found.contains(LINE))}


def one_fit(epsilon: Fraction | None, seed: int, *, discrete: bool) -> dict[str, Any]:
    """Both regions of one draw; without noise, the naive one alone."""
    generator = np.random.default_rng(seed)
    answers, alone = pairs(UNITS)(generator), np.ones((1, UNITS))
    fitted = {}
    if epsilon is not None:
        law = Laplace(float(1 / epsilon))
        laws = (DiscreteLaplace(1 / epsilon) if discrete else law, law)
        answers = answers + np.stack([draw_noise(one, UNITS, generator) for one in laws], axis=1)
        fit = maximize_likelihood(
            CountRegression(UNITS, RESIDUAL), answers, laws, START, generator,
            draws=400, iterations=60,
        )  # fmt: skip
        fitted["modelled"] = region(fit.theta, fit.information)
    model = NormalRegression(UNITS)
    theta = model.maximize(answers[None], alone)
    return {"ignored": region(theta, model.curvature(answers[None], alone, theta)), **fitted}


def fits(draws: int) -> list[dict[str, Any]]:
    """One entry for each privacy loss and kind of noise, with all its draws."""
    out: list[dict[str, Any]] = []
    cases = [(None, False), *((e, kind) for e in EPSILONS for kind in (False, True))]
    print(f"{'epsilon':>8}{'noise':>12}{'':>10}{'slope':>8}{'limit':>8}{'holds':>8}{'none':>6}")
    for epsilon, discrete in cases:
        found = [one_fit(epsilon, seed, discrete=discrete) for seed in range(draws)]
        label = "none" if epsilon is None else "discrete" if discrete else "continuous"
        name, variance = "inf", 0.0
        if epsilon is not None:
            law = DiscreteLaplace(1 / epsilon)
            name = str(float(epsilon))
            variance = law.variance() if discrete else float(law.continuous_variance)
        limit = float(LINE[1]) * MEAN / (MEAN + variance)
        for kind in found[0]:
            regions = [one[kind] for one in found if one[kind]]
            slope = float(np.mean([one["center"][1] for one in regions]))
            holds = sum(one["holds"] for one in regions) / draws
            print(f"{name:>8}{label:>12}{kind:>10}{slope:8.2f}"
                  f"{limit if kind == 'ignored' else float(LINE[1]):8.2f}"
                  f"{holds:8.2f}{draws - len(regions):6d}")  # fmt: skip
        out.append({"epsilon": name, "noise": label, "limit_of_slope": limit, "draws": found})
    return out


def chains(steps: int) -> dict[str, Any]:
    """Acceptance by inverse scale and kind of noise, and the traces at 0.6."""
    rows = invariants()
    kept = LinearInvariants.nonnegative(rows, rows @ TABLE)
    solved = solve_for_rest(kept, np.argsort(-TABLE, kind="stable").tolist())
    cells = {"proposed": int(solved.free[0]), "solved": int(solved.rest[0])}
    out: dict[str, Any] = {}
    print(f"{'inverse scale':>14}{'discrete':>10}{'continuous':>12}")
    for scale in SCALES:
        accepted = {}
        for name, law in KINDS.items():
            drawn = draw_conditional(
                TABLE, law(Fraction(2)), kept, TABLE, steps, np.random.default_rng(1),
                proposal=law(1 / scale),
            )  # fmt: skip
            accepted[name] = drawn.acceptance
            if scale == Fraction(3, 5):
                traces = {k: drawn.tables[::100, at].round(3).tolist() for k, at in cells.items()}
                out[f"traces_{name}"] = traces
        out[f"acceptance_{float(scale)}"] = accepted
        print(f"{float(scale):14.1f}{accepted['discrete']:10.4f}{accepted['continuous']:12.4f}")
    return out


def plot(found: dict[str, Any], path: Path) -> None:
    """Draw the centers of the fits, the acceptance, and the traces of two cells."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 3, figsize=(15, 8), layout="constrained")
    colors = dict(zip(("inf", "0.5", "0.2", "0.1"), plt.get_cmap("tab10").colors, strict=False))
    for panel, kind in zip(panels[0], ("ignored", "modelled"), strict=False):
        for case in found["fits"]:
            centers = [one[kind]["center"] for one in case["draws"] if one.get(kind)]
            if centers:
                mark = "x" if case["noise"] == "discrete" else "o"
                label = f"epsilon {case['epsilon']}, {case['noise']}"
                panel.plot(*zip(*centers, strict=True), mark, color=colors[case["epsilon"]],
                           label=label, markersize=4)  # fmt: skip
        panel.plot(*LINE, "k+", markersize=14, label="true line")
        panel.set(title=f"Figure 1: noise {kind}", xlabel="intercept", ylabel="slope")
        panel.legend(fontsize=7)
    for name in KINDS:
        accepted = [found["chains"][f"acceptance_{float(scale)}"][name] for scale in SCALES]
        panels[0, 2].plot([*map(float, SCALES)], accepted, "o-", label=name)
        for panel, cell in zip(panels[1], ("proposed", "solved"), strict=False):
            trace = found["chains"][f"traces_{name}"][cell]
            panel.plot(100 * np.arange(len(trace)), trace, linewidth=0.6, label=name)
            panel.set(title=f"Figure 2: trace of a {cell} cell", xlabel="state")
            panel.legend()
    panels[0, 2].set(title="Figure 2: acceptance", xlabel="inverse scale of the proposals")
    panels[0, 2].legend()
    panels[1, 2].axis("off")
    figure.savefig(path, dpi=80)


def main() -> None:
    """Fit, sample, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100_000, help="states of each chain")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    found: dict[str, Any] = {"fits": fits(given.draws), "chains": chains(given.steps)}
    if given.output is not None:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps(found))
    if given.plot is not None:
        plot(found, given.plot)
    short = {k: v for k, v in found["chains"].items() if k.startswith("acceptance")}
    print(json.dumps({"draws": given.draws, "steps": given.steps, **short}))


if __name__ == "__main__":
    main()
