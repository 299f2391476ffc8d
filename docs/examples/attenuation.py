"""Regress women on men over blocks from noisy counts, ignoring the noise and modelling it.

python docs/examples/attenuation.py RUN_FOLDER [--truth RECORDS]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds

from das.inference.expectation_maximization import maximize_likelihood
from das.inference.models import NormalRegression
from jobs.analysis.measurements import read_measurements

SEED = 2020


def least_squares(pairs: np.ndarray) -> np.ndarray:
    """Intercept, slope, log residual variance, mean and log variance of x."""
    weights = np.full((1, len(pairs)), 1.0)
    return NormalRegression(len(pairs)).maximize(pairs[None].astype(float), weights)


def moments_corrected(theta: np.ndarray, sigma_sq: float) -> np.ndarray:
    """Take the variance of the noise out of the moments of the noisy pairs."""
    intercept, slope, mean = theta[[0, 1, 3]]
    residual, variance = np.exp(theta[[2, 4]])
    clean = variance - sigma_sq
    corrected = slope * variance / clean
    variance_y = residual + slope**2 * variance - sigma_sq
    return np.array(
        [
            intercept + (slope - corrected) * mean,
            corrected,
            np.log(variance_y - corrected**2 * clean),
            mean,
            np.log(clean),
        ]
    )


def true_pairs(records: Path, geocodes: np.ndarray) -> np.ndarray:
    """Men and women of the blocks, counted from the synthetic persons."""
    table = ds.dataset(records).to_table(columns=["geocode", "sex"])
    codes = table.column("geocode").to_numpy(zero_copy_only=False).astype(str)
    men = table.column("sex").to_numpy(zero_copy_only=False) == "male"
    pairs = np.zeros((len(geocodes), 2), np.int64)
    for column, of_sex in enumerate((men, ~men)):
        held = codes[of_sex]
        held = held[np.isin(held, geocodes)]
        np.add.at(pairs[:, column], np.searchsorted(geocodes, held), 1)
    return pairs


def line(name: str, theta: np.ndarray, errors: np.ndarray | None = None) -> None:
    """Write one row of the table."""
    spread = "" if errors is None else f"   ({errors[1]:.3f}, {errors[0]:.1f})"
    sys.stdout.write(
        f"{name:28s} {theta[1]:7.3f} {theta[0]:9.2f} {np.exp(theta[2]):9.1f}{spread}\n"
    )


def main() -> None:
    """Read, fit, print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--truth", type=Path)
    given = arguments.parse_args()

    persons = given.folder / "release" / "products" / "persons"
    measured = read_measurements(persons, "block", "sex")
    mechanism = measured.mechanisms[0]
    measured = measured.under(mechanism)
    men, women = (measured.labels.index(sex) for sex in ("male", "female"))
    noisy = measured.answers[:, [men, women]]
    # The model lets confidential counts be real, so the noise is the Gaussian through its values.
    noise = mechanism.continuous.of_variance(float(mechanism.continuous_variance))

    naive = least_squares(noisy)
    fit = maximize_likelihood(
        NormalRegression(len(noisy)),
        noisy,
        (noise, noise),
        naive,
        np.random.default_rng(SEED),  # noqa: TID251 - an analyst's own simulations
        draws=1000,
        iterations=100,
    )
    sys.stdout.write(
        f"{len(noisy)} blocks, {mechanism.kind} noise with sigma^2 = {mechanism.parameter}\n"
    )
    sys.stdout.write(f"{'':28s} {'slope':>7s} {'intercept':>9s} {'residual':>9s}\n")
    if given.truth is not None:
        line("confidential counts", least_squares(true_pairs(given.truth, measured.geocodes)))
    line("noise ignored", naive)
    line("moments corrected", moments_corrected(naive, noise.sigma_sq))
    line("noise modelled (std. errors)", fit.theta, fit.standard_error)
    sys.stdout.write(f"standard error of simulation: slope {fit.monte_carlo_error[1]:.4f}\n")


if __name__ == "__main__":
    main()
