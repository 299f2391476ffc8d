"""Reconstruction of marginals from residual answers: one tensor per marginal.

The residual answers of all subsets of A fill a tensor with axes [total, residual rows of i] for the
members i of A. Applying W_i [u_i | R_i] along each axis sums all 2^k terms at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from das.arrays import FloatArray, IntArray
from das.errors import SchemaError
from das.workload.incidence import locate_subsets
from das.workload.residual.plan import ResidualPlan
from das.workload.workload import AttributeWorkload

DEFAULT_BYTES = 1 << 30

# Above this many rows per level, W is applied by sums, not as a matrix. Default, not measured.
_MOST_ROWS_PER_LEVEL = 8


@dataclass(frozen=True, eq=False)
class Decoder:
    """Map from [total, residual answers] of one attribute to its answers.

    Attributes:
      matrix: W [u | R], float64[m, 1 + q], or [u | R], float64[n, 1 + q].
      remaining: The base matrix still to apply, if W has far more rows than levels.
    """

    matrix: FloatArray
    remaining: AttributeWorkload | None


@dataclass(frozen=True, eq=False)
class ResidualAnswers:
    """Answers y_S of all residual sets of a plan, in one array.

    Attributes:
      plan: The plan by which the residuals were measured.
      values: float64[sum of sizes]; set by set, each in C order of its residual rows.

    Raises:
      SchemaError: The number of values does not fit the plan.
    """

    plan: ResidualPlan
    values: FloatArray

    def __post_init__(self) -> None:
        if self.values.shape != (int(self.starts[-1]),):
            raise SchemaError(
                "residual answers",
                "do not fit the plan",
                got=self.values.shape,
                want=f"({self.starts[-1]},)",
            )

    @cached_property
    def starts(self) -> IntArray:
        """Return the first position of each set, and the end, int64[sets + 1]."""
        return locate_answers(self.plan)

    @cached_property
    def decoders(self) -> tuple[Decoder, ...]:
        """Return one decoder per attribute, shared by attributes of equal basis and base matrix."""
        built: dict[Hashable, Decoder] = {}
        out = []
        for attribute, basis in zip(self.plan.workload.attributes, self.plan.bases, strict=True):
            key = (attribute.signature, id(basis))
            if key not in built:
                sums = attribute.n_rows > _MOST_ROWS_PER_LEVEL * attribute.size
                matrix = basis.decoder if sums else attribute.apply(basis.decoder)
                built[key] = Decoder(np.ascontiguousarray(matrix), attribute if sums else None)
            out.append(built[key])
        return tuple(out)


def locate_answers(plan: ResidualPlan) -> IntArray:
    """Return the position, from 0, of the first answer of each residual set, and the end."""
    widths = np.array([len(basis.subtraction) for basis in plan.bases], np.float64)
    return np.concatenate([[0], np.cumsum(plan.residuals.product(widths))]).astype(np.int64)


def index_answers(plan: ResidualPlan, members: Sequence[int]) -> IntArray:
    """Return the positions of the answers of all subsets of a marginal, as one tensor.

    Args:
      plan: The plan.
      members: Positions of the attributes of the marginal, increasing.

    Returns:
      int64[1 + q_1, ..., 1 + q_k]; index 0 of an axis is the total, the others its residual rows.

    Raises:
      SchemaError: The marginal was not planned.
    """
    starts, order = locate_answers(plan), len(members)
    subsets = locate_subsets(plan.residuals, np.array([members], np.int64).reshape(1, order))[0]
    index = np.zeros([1 + len(plan.bases[i].subtraction) for i in members], np.int64)
    for mask, flat in zip(itertools.product((0, 1), repeat=order), subsets.tolist(), strict=True):
        block = tuple(slice(1, None) if is_in else slice(0, 1) for is_in in mask)
        index[block] = np.arange(starts[flat], starts[flat + 1]).reshape(index[block].shape)
    return index


def reconstruct(
    residuals: ResidualAnswers, names: Sequence[str], *, most_bytes: int = DEFAULT_BYTES
) -> FloatArray:
    """Answer one marginal: the best linear unbiased estimate from the residual answers.

    Args:
      residuals: The residual answers.
      names: Attributes in the order of the workload; any subset of a planned marginal.
      most_bytes: Most memory for the work.

    Returns:
      float64[m_1, ..., m_k].

    Raises:
      SchemaError: An attribute is unknown, or the marginal was not planned or is too large.

    References:
      He, Xiao, Toksoz, Ding, Zhang & Kifer, ResidualPlanner+, Algorithm 6 (term by term).
    """
    members = residuals.plan.workload.members_of(names)[None, :]
    _check_memory(residuals.plan, members[0], most_bytes)
    positions = locate_subsets(residuals.plan.residuals, members)
    return np.asarray(_answer(residuals, members, positions)[0])


def decode_marginal(
    residuals: ResidualAnswers,
    members: IntArray,
    positions: IntArray,
    decoded: Sequence[FloatArray],
) -> FloatArray:
    """Answer one marginal with other rows than those of its base matrices.

    Args:
      residuals: The residual answers.
      members: int64[1, k], its attributes.
      positions: int64[1, 2^k], the flat indexes of its subsets.
      decoded: Per member the map from [total, residual answers] to answers, float64[m_i, 1 + q_i].

    Returns:
      float64[m_1, ..., m_k].
    """
    decoders = [Decoder(matrix, None) for matrix in decoded]
    return np.asarray(_decode_along(_fill(residuals, members, positions), decoders)[0])


def _answer(residuals: ResidualAnswers, members: IntArray, positions: IntArray) -> FloatArray:
    """Answer marginals whose attributes have the same decoders, float64[m, m_1, ..., m_k].

    Args:
      residuals: The residual answers.
      members: int64[m, k], the attributes of m marginals.
      positions: int64[m, 2^k], flat indexes of the subsets of every marginal.
    """
    decoders = [residuals.decoders[i] for i in members[0].tolist()]
    return _decode_along(_fill(residuals, members, positions), decoders)


def _decode_along(out: FloatArray, decoders: Sequence[Decoder]) -> FloatArray:
    """Apply one decoder along each axis but the first, last axis first."""
    for axis in range(len(decoders), 0, -1):
        before, after = out.shape[:axis], out.shape[axis + 1 :]
        block = out.reshape(math.prod(before), out.shape[axis], math.prod(after))
        answered = _apply_along(decoders[axis - 1], block)
        out = answered.reshape(*before, answered.shape[1], *after)
    return out


def _fill(residuals: ResidualAnswers, members: IntArray, positions: IntArray) -> FloatArray:
    """Collect the residual answers of all subsets, float64[m, 1 + q_1, ..., 1 + q_k].

    Args:
      residuals: The residual answers.
      members: int64[m, k], the attributes of m marginals; attribute i of each has q_i residual
        rows.
      positions: int64[m, 2^k], flat indexes of the subsets of every marginal.
    """
    widths = [len(residuals.plan.bases[i].subtraction) for i in members[0]]
    out = np.empty((len(members), *(1 + width for width in widths)))
    starts = residuals.starts[positions]
    masks = itertools.product((False, True), repeat=len(widths))
    for mask, begins in zip(masks, starts.T, strict=True):
        shape = [width for width, inside in zip(widths, mask, strict=True) if inside]
        block = tuple(slice(1, None) if inside else 0 for inside in mask)
        values = _gather(residuals.values, begins, math.prod(shape))
        out[(slice(None), *block)] = values.reshape(len(members), *shape)
    return out


def _gather(values: FloatArray, begins: IntArray, size: int) -> FloatArray:
    """Return slices of equal length of an array, float64[m, size].

    Args:
      values: The array.
      begins: int64[m], index at which each slice begins.
      size: Length of each slice.
    """
    if (np.diff(begins) == size).all():
        return values[begins[0] : begins[-1] + size].reshape(-1, size)
    return np.asarray(np.lib.stride_tricks.sliding_window_view(values, size)[begins])


def _apply_along(decoder: Decoder, block: FloatArray) -> FloatArray:
    """Apply a decoder along the middle axis of float64[lead, 1 + q, trail].

    Args:
      decoder: The decoder of one attribute.
      block: float64[lead, 1 + q, trail], its total and q residual answers along the middle axis.
    """
    if block.shape[2] == 1:
        out = (block[:, :, 0] @ decoder.matrix.T)[:, :, None]
    else:
        out = np.matmul(decoder.matrix, block)
    if decoder.remaining is None:
        return out
    lead, levels, trail = out.shape
    answers = decoder.remaining.apply(out.transpose(1, 0, 2).reshape(levels, -1))
    return answers.reshape(-1, lead, trail).transpose(1, 0, 2)


def _check_memory(plan: ResidualPlan, members: IntArray, most_bytes: int) -> None:
    pairs = [(plan.workload.attributes[i], plan.bases[i]) for i in members.tolist()]
    sizes = [max(one.n_rows, 1 + len(basis.subtraction)) for one, basis in pairs]
    refuse_large_marginal(plan.workload.names_of(members), float(math.prod(sizes)), most_bytes)


def refuse_large_marginal(names: Sequence[str], numbers: float, most_bytes: int) -> None:
    """Refuse to reconstruct a marginal that needs too much memory.

    Raises:
      SchemaError: Two tensors of `numbers` floats need more than `most_bytes`.
    """
    needed = 16 * numbers
    if needed > most_bytes:
        raise SchemaError(
            f"marginal {list(names)}",
            "is too large to reconstruct",
            got=f"{needed:.3g} bytes",
            want=f"at most {most_bytes}",
            remedy="allow more memory, or ask for a marginal with fewer answers",
        )
