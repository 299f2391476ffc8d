"""Six privatized regressions: 95 % ellipses of intercept and slope, the noise ignored and modelled.

python docs/examples/ellipses.py [--releases N] [--units N] [--figure FILE.svg]

x ~ Poisson(10), y = -5 + 4 x + N(0, 25), both with Laplace noise of epsilon 0.2 (Gong, 2019).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from das.inference.regions import Ellipse
from das.mechanisms.laplace import Laplace
from topdown_das import CountRegression, DasError, NormalRegression, ellipse, maximize_likelihood

TRUTH = np.array([-5.0, 4.0])
RESIDUAL = 25.0
NOISE = Laplace(1 / 0.2)
CONFIDENCE = 0.95
PANEL, ACROSS = 220, 3  # pixels of a side, panels of a row


def privatized(units: int, seed: int) -> np.ndarray:
    """float64[units, 2]: pairs as an analyst gets them."""
    generator = np.random.default_rng(seed)  # noqa: TID251 - an analyst's own simulations
    x = generator.poisson(10.0, units)
    y = TRUTH[0] + TRUTH[1] * x + generator.normal(0.0, RESIDUAL**0.5, units)
    return np.stack((x, y), axis=1) + generator.laplace(0.0, NOISE.scale, (units, 2))


def noise_ignored(noisy: np.ndarray) -> Ellipse:
    """The region of the same line through the noisy pairs."""
    model, alone = NormalRegression(len(noisy)), np.ones((1, len(noisy)))
    theta = model.maximize(noisy[None], alone)
    return ellipse(theta, model.curvature(noisy[None], alone, theta), CONFIDENCE)


def noise_modelled(noisy: np.ndarray, seed: int) -> Ellipse | None:
    """The region by Monte Carlo EM; none where the likelihood has no ellipse at its maximum."""
    start = [*TRUTH, np.log(10.0)]
    generator = np.random.default_rng(seed)  # noqa: TID251 - an analyst's own simulations
    fit = maximize_likelihood(
        CountRegression(len(noisy), RESIDUAL), noisy, (NOISE, NOISE), start, generator,
        draws=1000, iterations=80,
    )  # fmt: skip
    try:
        return ellipse(fit.theta, fit.information, CONFIDENCE)
    except DasError:
        return None


def panel(regions: dict[str, Ellipse | None], number: int) -> str:
    """One panel of the figure: intercept to the right, slope upwards, a cross at the truth."""
    left, top = PANEL * (number % ACROSS), PANEL * (number // ACROSS)

    def place(points: np.ndarray) -> np.ndarray:
        share = (points - [-80.0, -4.0]) / [160.0, 16.0]
        return np.stack((left + PANEL * share[:, 0], top + PANEL * (1 - share[:, 1])), axis=1)

    x, y = place(TRUTH[None])[0]
    parts = [
        f'<svg viewBox="{left} {top} {PANEL} {PANEL}" x="{left}" y="{top}" width="{PANEL}" '
        f'height="{PANEL}"><rect x="{left}" y="{top}" width="{PANEL}" height="{PANEL}" '
        'fill="none" stroke="#999"/>',
        f'<path d="M{x - 5:.1f} {y:.1f}h10M{x:.1f} {y - 5:.1f}v10" stroke="black"/>',
    ]
    for color, region in regions.items():
        if region is not None:
            points = " ".join(f"{a:.1f},{b:.1f}" for a, b in place(region.boundary(120)))
            parts.append(f'<polyline points="{points}" fill="none" stroke="{color}"/>')
    return "".join([*parts, "</svg>"])


def row(region: Ellipse | None) -> str:
    """Center, longest half axis and whether the truth lies inside, as text."""
    if region is None:
        return f"{'no ellipse':>34s}"
    length = float(np.linalg.norm(region.axes()[0]))
    inside = "yes" if region.contains(TRUTH) else "no"
    return f"{region.center[0]:10.2f}{region.center[1]:8.2f}{length:10.1f}{inside:>6s}"


def main() -> None:
    """Fit, print, draw."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--releases", type=int, default=6)
    arguments.add_argument("--units", type=int, default=10)
    arguments.add_argument("--figure", type=Path)
    given = arguments.parse_args()
    head = f"{'intercept':>10s}{'slope':>8s}{'half axis':>10s}{'holds':>6s}"
    sys.stdout.write(f"{'noise ignored':>34s}{'noise modelled':>34s}\n{head}{head}\n")
    panels = []
    for seed in range(given.releases):
        noisy = privatized(given.units, seed)
        ignored, modelled = noise_ignored(noisy), noise_modelled(noisy, seed)
        sys.stdout.write(f"{row(ignored)}{row(modelled)}\n")
        panels.append(panel({"gray": ignored, "green": modelled}, seed))
    if given.figure is not None:
        size = PANEL * ACROSS, PANEL * -(-given.releases // ACROSS)
        given.figure.parent.mkdir(parents=True, exist_ok=True)
        given.figure.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}">'
            f"{''.join(panels)}</svg>\n"
        )


if __name__ == "__main__":
    main()
