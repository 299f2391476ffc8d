"""Correct released answers by regressions that were trained on public counts.

Families are solved as without regressions. From what is then released and noisy, the regression of
a query predicts the true less the released answer (`solvers.learned`). Corrected answers take the
place of the noisy ones, with the same weights, and the families are solved again. So counts are
nonnegative, add up and keep all constraints, as ever. Regressions were fixed before measuring, and
see noisy answers and released parents only: post-processing, at no privacy cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Final

import numpy as np

from das.arrays import IntArray
from invariants.quarters import LivingQuarters
from jobs.pipeline.release.covariate import PLAIN, SureEstimate, families_to_solve, rows_of
from jobs.pipeline.release.pieces import Piece
from jobs.pipeline.storage.answers import DrawnAnswers
from solvers.learned.features import Released
from solvers.learned.forest import Forest

LEARNED: Final = "learned"
# Of the perturbation, in standard deviations of the noise. Rounded counts and trees move by jumps,
# so that smaller steps have larger standard errors. Default, not measured.
CORRECTION_STEP = 0.3
# Children whose families are solved again, about. In all blocks of Rhode Island estimated errors
# then fall by 4 to 7 standard errors (docs/learned-counts.md).
MOST_CORRECTED = 5_000
# Standard errors by which the estimated error must fall. Default, not measured.
_CLEARLY = 1.0


def released_answers(
    piece: Piece, counts: IntArray, living: LivingQuarters | None
) -> tuple[Released, IntArray]:
    """Gather what is released and noisy of the children that are solved.

    Args:
      piece: The piece, with at least one family of two children and with persons.
      counts: int64[G, n], released counts of its geounits.
      living: Living quarters of the run; None if unknown.

    Returns:
      The answers, and int64[M], the position of each child in the piece.
    """
    families, targets = families_to_solve(piece), piece.targets
    rows = np.concatenate([rows_of(family) for family in families])
    measured = targets.row[rows]
    parents = [family.parent.dense() for family in families if family.parent is not None]
    noisy = [one for one in targets.answers if not isinstance(one, DrawnAnswers)]
    limits, quarters = piece.constraints.limits, None
    if living is not None and limits is not None and limits.quarters is not None:
        of_kinds = limits.quarters[rows]
        quarters = np.column_stack((living.housing_units(of_kinds), living.facilities(of_kinds)))
    released = Released(
        targets.queries,
        np.repeat(np.arange(len(families)), [family.n_children for family in families]),
        np.concatenate(parents),
        counts[rows],
        [answers[measured] for answers in noisy],
        [weights[measured] for weights in targets.weights],
        quarters,
    )
    return released, rows


def correct(
    piece: Piece, counts: IntArray, forests: Mapping[str, Forest], living: LivingQuarters | None
) -> Piece:
    """Return the piece with corrected released answers in place of the noisy ones.

    Args:
      piece: The piece.
      counts: int64[G, n], its counts when solved without corrections.
      forests: Regressions by query; released answers of other queries stay as they are.
      living: Living quarters of the run; None if unknown.
    """
    if not families_to_solve(piece):
        return piece
    released, rows = released_answers(piece, counts, living)
    measured, answers = piece.targets.row[rows], []
    for number, (query, noisy, _) in enumerate(piece.targets.each()):
        of_query = released.known[number][0].astype(np.float64)
        if query.name in forests:
            at = released.live(number)
            of_query[at] += forests[query.name].predict(released.columns(number))
        whole = np.array(noisy, np.float64)
        whole[measured] = of_query
        answers.append(whole)
    return replace(piece, targets=replace(piece.targets, answers=answers))


def improved(risks: SureEstimate, corrected: Set[str]) -> frozenset[str]:
    """Return the corrected queries whose estimated error clearly falls.

    None is returned if the error of another marginal clearly rises.
    """
    change, limit = risks.mean(LEARNED) - risks.mean(PLAIN), _CLEARLY * risks.error(LEARNED)
    names = np.array(risks.names)
    if {*names[change > limit].tolist()} - corrected:
        return frozenset()
    return frozenset(names[change < -limit].tolist()) & corrected
