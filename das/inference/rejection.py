"""Exact posterior draws given noisy answers, by rejection (approximate Bayesian computation).

The acceptance step that makes approximate Bayesian computation approximate is here the privacy
mechanism itself, whose distribution is known, so the draws are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from das.arrays import FloatArray
from das.errors import SchemaError, SolverError
from das.inference.simulation import Generator
from das.mechanisms.mechanism import Distribution

BATCH = 1 << 14
MOST_PROPOSALS = 1 << 26


@dataclass(frozen=True, eq=False)
class PosteriorDraws:
    """Independent draws given the noisy answers.

    Attributes:
      parameters: float64[n, p], of the parameters.
      answers: float64[n, m], of the confidential answers.
      proposals: Number of proposals that were simulated to get these draws.
    """

    parameters: FloatArray
    answers: FloatArray
    proposals: int

    @property
    def acceptance(self) -> float:
        """Return the share of the proposals that were kept."""
        return len(self.parameters) / self.proposals


def draw_posterior(
    draw_prior: Callable[[int, Generator], FloatArray],
    draw_answers: Callable[[FloatArray, Generator], npt.NDArray[np.generic]],
    noisy: npt.ArrayLike,
    distributions: tuple[Distribution, ...],
    n: int,
    generator: Generator,
) -> PosteriorDraws:
    """Draw parameters and confidential answers given noisy answers.

    Parameters come from the prior, answers from the model, and both are kept with probability
    prod_j eta_j(noisy_j - answer_j) / eta_j(0), where eta_j is the density of the noise.

    Args:
      draw_prior: (n, generator) to float64[n, p] parameters.
      draw_answers: (float64[n, p], generator) to [n, m] confidential answers, one row each.
      noisy: float[m], the noisy answers.
      distributions: m distributions of noise.
      n: Number of draws to return.
      generator: Randomness of the analyst.

    Law: Independent draws, exactly from the posterior given the noisy answers, up to floating point
    and the draws of the two callables.

    Raises:
      SchemaError: Simulated answers, noisy answers and distributions do not fit together.
      SolverError: Fewer than n of 2^26 proposals were kept: the noise is too precise, or the
        answers are too many, for rejection.

    References:
      Gong, Exact Inference with Approximate Computation for Differentially Private Data via
      Perturbations, 2019, arXiv:1909.12237.
    """
    wanted, where = np.asarray(noisy, np.float64), "rejection sampling"
    if wanted.shape != (len(distributions),) or not np.isfinite(wanted).all():
        want = f"{len(distributions)} finite numbers, one for each distribution"
        raise SchemaError(where, "noisy answers", got=wanted.shape, want=want)
    parameters: list[FloatArray] = []
    answers: list[FloatArray] = []
    kept = proposals = 0
    while kept < n:
        if proposals >= MOST_PROPOSALS:
            raise SolverError(
                where,
                "keeps too few proposals",
                got=f"{kept} of {proposals}",
                want=f"{n} draws",
                remedy="use fewer answers at a time, or maximize_likelihood",
            )
        drawn = draw_prior(BATCH, generator)
        simulated = np.asarray(draw_answers(drawn, generator), np.float64)
        if simulated.shape != (BATCH, len(wanted)):
            want = f"{(BATCH, len(wanted))}"
            raise SchemaError(where, "simulated answers", got=simulated.shape, want=want)
        log_keep = np.zeros(BATCH)
        for column, distribution in enumerate(distributions):
            log_keep += distribution.log_ratio(wanted[column] - simulated[:, column])
        keep = np.flatnonzero(np.log(generator.random(BATCH)) < log_keep)[: n - kept]
        parameters.append(drawn[keep])
        answers.append(simulated[keep])
        kept += len(keep)
        # Proposals after the last draw that is needed do not count.
        proposals += int(keep[-1]) + 1 if kept == n and len(keep) else BATCH
    return PosteriorDraws(np.concatenate(parameters), np.concatenate(answers), proposals)
