"""Objectives other than least squares inside a node, as node problems for the same solver.

NNLS is the node problem as it is. SEQUENTIAL solves every query in a separate pass. REWEIGHTED
gives every child a separate weight per answer. MAXFIT has another objective and another solver, for
small nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from das.arrays import BoolArray, FloatArray
from das.errors import SolverError
from das.mechanisms.mechanism import Continuous
from solvers.choices import MOST_ENTRIES, MOST_UNKNOWNS, Method
from solvers.objectives.bounded import Equalities, fit_largest_deviation
from solvers.problem import GeneralTerm, LeastSquaresTerm, NodeProblem, group_sums

CONFIDENCE = 0.99  # default, not measured


def find_low_answers(answers: FloatArray, variance: float, noise: type[Continuous]) -> BoolArray:
    """Mark the answers of disjoint queries that could be noise only.

    In ascending order, the first answer j that the largest of j noises exceeds with probability at
    most 1 - CONFIDENCE is not low. No larger answer is low either.

    Args:
      answers: float64[R, m], noisy answers; each of R rows is searched alone.
      variance: Variance of the noise.
      noise: Family of the noise distribution.

    Returns:
      bool[R, m].
    """
    ranked = np.sort(answers, axis=1)
    rank = np.arange(1, answers.shape[1] + 1)
    surprising = rank * noise.of_variance(variance).log_cdf(ranked) >= np.log(CONFIDENCE)
    n_low = np.where(surprising.any(1), surprising.argmax(1), answers.shape[1])
    below = np.take_along_axis(ranked, np.maximum(n_low - 1, 0)[:, None], axis=1)
    return np.asarray((answers <= below) & (n_low > 0)[:, None])


def downweight(
    low: BoolArray, variance: float, noise: type[Continuous]
) -> tuple[FloatArray, FloatArray]:
    """Return weights of single answers, float64[R, m], and of sums of low answers, float64[R].

    In a row with n low answers, let M be the median of the largest of n noises, in counts (not in
    standard deviations), or 1 if the median is less. Each low answer has the weight
    1 / (2 M^2 variance), and their sum 1 / (2 n variance). All other answers have 1 / variance.
    Without low answers, the sum has the weight 0.

    Args:
      low: bool[R, m], answers that could be noise only, as `find_low_answers` marks them.
      variance: Variance of the noise.
      noise: Family of the noise distribution.
    """
    n_low = low.sum(1)
    some = np.maximum(n_low, 1)
    median = np.maximum(1.0, noise.of_variance(variance).quantiles(0.5 ** (1 / some)))
    each = np.where(low, 1 / (2 * median**2 * variance)[:, None], 1 / variance)
    return each, np.where(n_low > 0, 1 / (2 * some * variance), 0.0)


Objective = Callable[[NodeProblem, type[Continuous] | None], NodeProblem]
"""Function from a node problem and the family of its noise distribution to the node problem whose
least-squares solution minimises the objective."""


def in_sequence(problem: NodeProblem, noise: type[Continuous] | None = None) -> NodeProblem:
    """Give every partition query a separate pass, coarse ones first.

    Terms of single cells and general terms share the last pass.

    Args:
      problem: The node problem.
      noise: Not used.
    """
    sizes = [
        t.answers.shape[1] if isinstance(t, LeastSquaresTerm) else problem.n_cells
        for t in problem.terms
    ]
    ranked = sorted(range(len(sizes)), key=sizes.__getitem__)
    most = max(sizes)
    early = tuple((index,) for index in ranked if sizes[index] < most)
    return replace(problem, order=(*early, tuple(i for i in ranked if sizes[i] == most)))


def reweight(problem: NodeProblem, noise: type[Continuous] | None) -> NodeProblem:
    """Weight the answers of every child by `reweighted.downweight`, and add sums of low ones.

    Low answers differ by child, so each child gets a separate term, with the Gram matrix sum_q M_q'
    diag(w_qc) M_q + v_qc l_qc l_qc', where l_qc are the cells in low answers of query q and v_qc is
    the weight of their sum. General terms stay as they are.

    Args:
      problem: The node problem.
      noise: Family of the noise distribution; None raises an error.
    """
    if noise is None:
        raise SolverError(
            f"node {problem.geocode}", "has no noise distribution, which method reweighted needs"
        )
    C, k = problem.n_children, problem.n_cells
    if C * k * k > MOST_ENTRIES:
        raise SolverError(
            f"node {problem.geocode} ({C} children, {k} live cells)",
            "too large for method reweighted, with a weight per answer and child",
            want=f"at most {MOST_ENTRIES} entries of Gram matrices",
            remedy="solve such nodes with nnls",
        )
    gram, adjoint = np.zeros((C, k, k)), np.zeros((C, k))
    kept = []
    for term in problem.terms:
        if not isinstance(term, LeastSquaresTerm):
            kept.append(term)
            continue
        same = term.groups[:, None] == term.groups[None, :]
        for c in np.flatnonzero(term.weights > 0):
            answers, variance = term.answers[c : c + 1], 1 / float(term.weights[c])
            low = find_low_answers(answers, variance, noise)
            weights, of_sum = downweight(low, variance, noise)
            in_low = low[0, term.groups]
            gram[c] += same * weights[0, term.groups] + of_sum[0] * np.outer(in_low, in_low)
            adjoint[c] += (weights * answers)[0, term.groups]
            adjoint[c] += of_sum[0] * answers[low].sum() * in_low
    terms = tuple(
        GeneralTerm(gram[c], np.where(np.arange(C)[:, None] == c, adjoint[c], 0.0), np.eye(C)[c])
        for c in range(C)
    )
    return replace(problem, terms=(*kept, *terms))


def around_largest(problem: NodeProblem, noise: type[Continuous] | None = None) -> NodeProblem:
    """Return a node problem whose least-squares solution is `fit_largest_in_node(problem)`.

    Args:
      problem: The node problem.
      noise: Not used.
    """
    fitted = fit_largest_in_node(problem)
    term = LeastSquaresTerm(np.arange(problem.n_cells), fitted, np.ones(problem.n_children))
    return replace(problem, terms=(term,), order=())


def fit_largest_in_node(problem: NodeProblem) -> FloatArray:
    """Minimise the largest standardized deviation over all children, then least squares.

    Args:
      problem: A node without other rows and leaves, whose terms are partitions, one of them of
        single cells and measured in all children.

    Returns:
      float64[C, k], nonnegative, with the sums of the parent and of the exact terms.

    Raises:
      SolverError: The node is of another kind or too large, or was not solved.
    """
    C, k = problem.n_children, problem.n_cells
    partitions = [term for term in problem.terms if isinstance(term, LeastSquaresTerm)]
    single = [t for t in partitions if t.answers.shape[1] == k and (t.weights > 0).all()]
    coarse = [term for term in partitions if not single or term is not single[0]]
    unknowns = C * (k + sum(term.answers.shape[1] for term in coarse))
    where = f"node {problem.geocode} ({C} children, {k} live cells)"
    if len(partitions) < len(problem.terms) or not single or problem.rows or problem.leaves:
        raise SolverError(
            where, "method maxfit needs partition queries only, one of them of single cells"
        )
    if unknowns > MOST_UNKNOWNS:
        raise SolverError(
            where, "too large for method maxfit", got=f"{unknowns} unknowns", want=MOST_UNKNOWNS
        )
    rows, answers, variances = [np.zeros((0, C * k))], [], []
    for term in coarse:
        measured = np.flatnonzero(term.weights > 0)
        rows.append(_by_child(term.groups, term.answers.shape[1], C)[measured].reshape(-1, C * k))
        answers.append(term.answers[measured].ravel())
        variances.append(np.repeat(1 / term.weights[measured], term.answers.shape[1]))
    answers.append(single[0].answers[:, single[0].groups].ravel())
    variances.append(np.repeat(1 / single[0].weights, k))
    fixed, targets = [np.zeros((0, C * k))], [np.zeros(0)]
    if problem.parent is not None:
        fixed.append(np.tile(np.eye(k), C))
        targets.append(problem.parent.astype(float))
    for exact in problem.exact:
        fixed.append(_by_child(exact.groups, exact.targets.shape[1], C).reshape(-1, C * k))
        targets.append(exact.targets.astype(float).ravel())
    equalities = Equalities(np.vstack(fixed), np.concatenate(targets)[None])
    x = fit_largest_deviation(
        np.vstack(rows),
        np.concatenate(answers)[None],
        np.concatenate(variances),
        equalities=equalities,
    )
    return x.reshape(C, k)


def _by_child(groups: np.ndarray, n_answers: int, children: int) -> FloatArray:
    """Return float64[C, m, C k]: the query of each child as rows over cells of all children."""
    query = group_sums(np.eye(len(groups)), groups, n_answers).T
    out = np.zeros((children, n_answers, children, len(groups)))
    for c in range(children):
        out[c, :, c] = query
    return out.reshape(children, n_answers, -1)


OBJECTIVES: Mapping[Method, Objective] = MappingProxyType(
    {
        Method.SEQUENTIAL: in_sequence,
        Method.REWEIGHTED: reweight,
        Method.MAXFIT: around_largest,
    }
)
"""Objectives that change the node problem; NNLS does not."""
