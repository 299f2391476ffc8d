"""A budget chosen by what its noise keeps: `epsilon_from: noise` of a run file."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement

from das.errors import BudgetError
from das.privacy.budget import Budget
from das.privacy.loss_distribution import unit_shift
from das.privacy.target import rho_from_noise
from das.strategy import Strategy, noisy_queries
from jobs.pipeline.config.models.run import PrivacyConfig


def budget_by_noise(privacy: PrivacyConfig, epsilon: Fraction, strategy: Strategy) -> Budget:
    """The largest budget whose noise keeps an epsilon at delta, whichever geounits are alone.

    Args:
      privacy: Delta and the neighbors.
      epsilon: The target, exact.
      strategy: What is measured.

    Raises:
      BudgetError: Epsilon is the total itself, a query is not a partition, or no budget fits.
    """
    if privacy.definition.is_pure:
        raise BudgetError(
            "epsilon_from",
            "is noise, but under pure the total is epsilon itself",
            remedy="leave epsilon_from out",
        )
    unit = Budget(Fraction(1), privacy.delta, privacy.neighbors)
    n_levels = len(strategy.levels)
    noise = {
        chain: noisy_queries(strategy, unit, *chain)
        for chain in combinations_with_replacement(range(n_levels), 2)
    }
    names = {noisy.stratum for queries in noise.values() for noisy in queries} - {""}
    measured = tuple(
        tuple(
            (
                chain,
                tuple(
                    unit_shift(noisy.query, noisy.mechanism)
                    for noisy in queries
                    if noisy.stratum in ("", stratum)
                ),
            )
            for chain, queries in noise.items()
        )
        for stratum in sorted(names) or [""]
    )
    rho = rho_from_noise(n_levels, measured, privacy.neighbors, epsilon, privacy.delta)
    return Budget(rho, privacy.delta, privacy.neighbors, epsilon_by_noise=epsilon)
