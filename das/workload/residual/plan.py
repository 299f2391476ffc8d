"""ResidualPlan: residual sets with noise variances, and the variances of all answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from das.arrays import FloatArray, IntArray
from das.queries.joint_sensitivity import GramSum
from das.workload.attribute_sets import AttributeSets
from das.workload.incidence import Incidence, locate_subsets
from das.workload.kronecker import list_members
from das.workload.residual.bases import AttributeBasis
from das.workload.workload import Workload


@dataclass(frozen=True, eq=False)
class ResidualPlan:
    """Measurements for a workload: residual sets and their noise.

    For each residual set S of attributes,

        y_S = (kron_i Sub_i if i in S else 1^T) x + N(0, noise_S I).

    The answer to marginal A is the sum over S subset of A of
    kron(W_i R_i if i in S else W_i u_i, i in A) y_S. It is unbiased, and no linear unbiased
    estimate from these measurements has less variance, because the residual rows are independent.

    Attributes:
      workload: The marginals to answer.
      bases: One per attribute.
      residuals: The sets S: all subsets of all marginals.
      noise: float64[number of sets], the noise variances.
    """

    workload: Workload
    bases: tuple[AttributeBasis, ...]
    residuals: AttributeSets
    noise: FloatArray

    @property
    def set_costs(self) -> FloatArray:
        """Return the privacy cost prod_{i in S} beta_i of each set S at noise variance 1."""
        return self.residuals.product(np.array([basis.cell_cost for basis in self.bases]))

    @property
    def privacy_cost(self) -> float:
        """Return the privacy cost of all sets: twice zCDP rho, squared Gaussian DP mu."""
        return float((self.set_costs / self.noise).sum())

    def gram_sum(self, weights: Sequence[Fraction]) -> GramSum:
        """Return the Gram matrix of the residual rows, with a weight per residual set."""
        grams = {
            id(basis): np.stack(
                [np.ones((len(basis.pivot),) * 2), basis.subtraction.T @ basis.subtraction]
            )
            for basis in self.bases
        }
        kinds = list_members(self.residuals).astype(np.int64)
        return GramSum(tuple(weights), kinds, tuple(grams[id(basis)] for basis in self.bases))

    @cached_property
    def incidence(self) -> Incidence:
        """Return the residual sets of each marginal of the workload."""
        return Incidence(self.workload.marginals, self.residuals)

    def total_variances(self) -> FloatArray:
        """Return the summed variance of the answers of every marginal, float64[marginals]."""
        matrix = self.incidence.matrix(
            np.array([basis.pivot_variance for basis in self.bases]),
            np.array([basis.residual_variance for basis in self.bases]),
        )
        return np.asarray(matrix @ self.noise)

    def average_variances(self) -> FloatArray:
        """Return the mean variance of the answers of every marginal, float64[marginals].

        For plain marginals every cell has this variance.
        """
        return self.total_variances() / self.workload.sizes

    def root_mean_square_error(self) -> float:
        """Return sqrt(summed variance of all answers / number of answers)."""
        return float(np.sqrt(self.total_variances().sum() / self.workload.sizes.sum()))

    def contract(self, members: IntArray, parts: Sequence[FloatArray]) -> FloatArray:
        """Sum noise_S over subsets S, times column 1 of part i for i in S and column 0 for others.

        Args:
          members: int64[k], positions, from 0, of the attributes of a marginal.
          parts: float64[m_i, 2] per member.

        Returns:
          float64[m_1, ..., m_k].
        """
        order = len(members)
        subsets = locate_subsets(self.residuals, members[None, :])[0]
        out = self.noise[subsets].reshape((2,) * order)
        for part in parts:
            out = np.tensordot(out, part, axes=([0], [1]))
        return np.asarray(out)
