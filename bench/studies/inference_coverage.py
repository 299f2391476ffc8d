"""Coverage of maximum likelihood from noisy counts, the noise modelled or ignored.

    python -m bench.studies.inference_coverage [--releases N] [--quick] [--case NAME ...]

Each release has confidential counts of its own from a model with known parameters, measured once. A
region counts as covering when it holds the true parameters: 95 % intervals of a Poisson mean, 95 %
ellipses of intercept and slope for pairs (Gong: x ~ Poisson(10), y = -5 + 4 x + N(0, 25), Laplace
noise with epsilon 0.2; for 100 pairs that of x is discrete, as in a release) and of level and slope
of a Poisson regression. If the noise is ignored, the same model is fitted to the noisy answers
themselves, the residual variance of pairs estimated. A release whose information is not positive
definite gives no region and counts as not covering.

200 releases of each case, about 6 CPU minutes in all; --quick: 40. Prints a table and one line of
JSON.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from das.errors import SolverError
from das.inference.expectation_maximization import AnswerModel, maximize_likelihood
from das.inference.models import CountRegression, NormalRegression, PoissonCounts, PoissonRegression
from das.inference.regions import ellipse
from das.inference.simulation import draw_noise
from das.mechanisms.gaussian import DiscreteGaussian, Gaussian
from das.mechanisms.laplace import DiscreteLaplace, Laplace
from das.mechanisms.mechanism import Distribution

CONFIDENCE = 0.95
LAPLACE = Laplace(5.0)  # epsilon 0.2
LINE = np.array([-5.0, 4.0])
RESIDUAL = 25.0
UNITS = 100
COVARIATES = np.stack((np.ones(UNITS), np.linspace(-1, 1, UNITS)), axis=1)


@dataclass(frozen=True, eq=False)
class Case:
    """A model, what is true of it, and the noise.

    Attributes:
      name: In the table.
      model: Fitted with the noise modelled.
      truth: float64[p], where confidential answers come from, and where the fit starts.
      laws: Of the noise of each answer.
      parameters: Of the region.
      naive: Fitted to the noisy answers as if they were confidential.
      draw: Confidential answers, if not from `model`.
    """

    name: str
    model: AnswerModel
    truth: np.ndarray
    laws: tuple[Distribution, ...]
    parameters: tuple[int, ...]
    naive: AnswerModel
    draw: Callable[[np.random.Generator], np.ndarray] | None = None


def pairs(n: int) -> Callable[[np.random.Generator], np.ndarray]:
    """The pairs of the paper."""

    def draw(generator: np.random.Generator) -> np.ndarray:
        x = generator.poisson(10.0, n).astype(float)
        y = LINE[0] + LINE[1] * x + generator.normal(0.0, RESIDUAL**0.5, n)
        return np.stack((x, y), axis=1)

    return draw


def cases() -> list[Case]:
    """All that are measured."""
    of_pairs = np.array([*LINE, np.log(10.0)])
    as_normal = np.array([*LINE, np.log(RESIDUAL), 10.0, np.log(10.0)])
    regression = PoissonRegression(COVARIATES, np.ones(UNITS))
    gaussian = DiscreteGaussian(Fraction(16))
    small = (Gaussian(4.0), Gaussian(4.0))
    return [
        Case("Poisson", PoissonCounts(20), np.array([12.0]), (gaussian,), (0,), PoissonCounts(20)),
        Case("pairs, 10", CountRegression(10, RESIDUAL), of_pairs, (LAPLACE,) * 2, (0, 1),
             NormalRegression(10), pairs(10)),
        Case("pairs, 100", CountRegression(UNITS, RESIDUAL), of_pairs,
             (DiscreteLaplace(Fraction(5)), LAPLACE), (0, 1), NormalRegression(UNITS),
             pairs(UNITS)),
        Case("normal", NormalRegression(UNITS), as_normal, small, (0, 1),
             NormalRegression(UNITS)),
        Case("Poisson regression", regression, np.array([1.5, 0.8]), (gaussian,), (0, 1),
             regression),
    ]  # fmt: skip


def region_holds(case: Case, theta: np.ndarray, information: np.ndarray) -> bool | None:
    """Whether the region holds the truth; None if there is no region."""
    try:
        region = ellipse(theta, information, CONFIDENCE, case.parameters)
    except SolverError:
        return None
    return bool(region.contains(case.truth[list(case.parameters)]))


def one_release(case: Case, seed: int) -> tuple[bool | None, bool | None]:
    """Whether the regions of one release hold the truth: noise modelled, noise ignored."""
    generator = np.random.default_rng(seed)
    if case.draw is None:
        answers = case.model.draw(case.truth, 1, generator)[0]
    else:
        answers = case.draw(generator)
    noise = np.stack([draw_noise(law, len(answers), generator) for law in case.laws], axis=1)
    noisy = answers + noise
    fit = maximize_likelihood(
        case.model, noisy, case.laws, case.truth, generator, draws=400, iterations=60
    )
    alone = np.ones((1, len(noisy)))
    try:
        ignored = case.naive.maximize(noisy[None], alone)
    except SolverError:
        return region_holds(case, fit.theta, fit.information), None
    return (
        region_holds(case, fit.theta, fit.information),
        region_holds(case, ignored, case.naive.curvature(noisy[None], alone, ignored)),
    )


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--releases", type=int, default=200)
    arguments.add_argument("--quick", action="store_true")
    known = {case.name: case for case in cases()}
    arguments.add_argument("--case", nargs="+", choices=known, default=[*known])
    given = arguments.parse_args()
    releases = 40 if given.quick else given.releases
    print(f"{'':20s}{'modelled':>10s}{'ignored':>10s}{'no region':>11s}{'CPU s':>8s}")
    out = {}
    for case in (known[name] for name in given.case):
        begin = time.process_time()
        found = [one_release(case, seed) for seed in range(releases)]
        seconds = time.process_time() - begin
        modelled, ignored = (
            sum(one is True for one in column) for column in zip(*found, strict=True)
        )
        without = sum(one is None for one, _ in found)
        row = {
            "modelled": modelled / releases,
            "ignored": ignored / releases,
            "without_region": without,
            "seconds": round(seconds, 1),
        }
        out[case.name] = row
        print(f"{case.name:20s}{row['modelled']:10.3f}{row['ignored']:10.3f}{without:11d}{seconds:8.1f}")  # fmt: skip
    print(json.dumps({"releases": releases, "confidence": CONFIDENCE, "coverage": out}))


if __name__ == "__main__":
    main()
