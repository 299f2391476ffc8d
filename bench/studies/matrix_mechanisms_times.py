"""CPU seconds of the planners, one thread."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

import numpy as np

from bench.studies.matrix_mechanisms_published import PAPER_SECONDS, SIZES
from das.workload.residual.bases import uniform_basis
from das.workload.residual.convex_loss import minimize_largest_variance
from das.workload.residual.oblique_largest import plan_oblique_largest
from das.workload.residual.plan import ResidualPlan
from das.workload.residual.reconstruction import ResidualAnswers, locate_answers, reconstruct
from das.workload.workload import AttributeWorkload, BaseKind, Workload
from tests.builders.residual_plans import plan_marginals, plan_oblique


def seconds(action: Callable[[], object], repeats: int = 3) -> float:
    """The least CPU seconds of a few runs."""
    times = []
    for _ in range(repeats):
        gc.collect()
        started = time.process_time()
        action()
        times.append(time.process_time() - started)
    return min(times)


def measure_times(numeric: Callable[[str], Sequence[AttributeWorkload]]) -> dict[str, float]:
    """Print selection and reconstruction times; return those of the goals."""
    print("CPU seconds, marginals on up to 3 of d attributes of 10 levels")
    print("  paper: elapsed seconds, 12 threads; its largest variance for ranges is of prefixes")
    print(f"  {'':<16}{'sum/paper':>18}{'largest/paper':>18}{'reconstruct/paper':>18}")
    _select_largest(_attributes(BaseKind.IDENTITY, 4))  # loads what is imported late
    out: dict[str, float] = {}
    for count, papers in PAPER_SECONDS.items():
        for kind, paper in zip((BaseKind.IDENTITY, BaseKind.RANGES), papers, strict=True):
            row = times_of(kind, count)
            cells = (
                f"{'-' if ours is None else f'{ours:.4f}'}/{printed or '-'}"
                for ours, printed in zip(row, paper, strict=True)
            )
            label = f"{kind} d={count}"
            print(f"  {label:<16}" + "".join(f"{cell:>18}" for cell in cells), flush=True)
            if count == 100 and kind is BaseKind.IDENTITY:
                names = ("select_rmse_d100_cpu_s", "select_maxvar_d100_cpu_s", "reconstruct_d100_s")
                out = dict(zip(names, (round(value, 4) for value in row), strict=True))
    print("\nCPU seconds of oblique selection, prefixes and counts, up to 3-way")
    for name in SIZES:
        attributes = numeric(name)
        by_sum = seconds(partial(_select_sum, attributes), 1)
        by_largest = seconds(partial(_select_small_largest, attributes), 1)
        print(f"  {name:<14}sum {by_sum:6.3f}   largest, small {by_largest:6.3f}", flush=True)
        out[f"select_orp_{name.lower()}_cpu_s"] = round(by_sum, 3)
    return out


def _attributes(kind: BaseKind, count: int) -> list[AttributeWorkload]:
    return [AttributeWorkload(f"a{i}", kind, 10) for i in range(count)]


def _select_sum(attributes: Sequence[AttributeWorkload]) -> ResidualPlan:
    workload = Workload.k_way(attributes, range(4))
    plain = attributes[0].kind is BaseKind.IDENTITY
    return (plan_marginals if plain else plan_oblique)(workload)


def _select_largest(attributes: Sequence[AttributeWorkload]) -> ResidualPlan:
    workload = Workload.k_way(attributes, range(4))
    if attributes[0].kind is BaseKind.IDENTITY:
        basis = uniform_basis(attributes[0])
        return minimize_largest_variance(workload, (basis,) * len(attributes)).plan
    return plan_oblique_largest(workload, gap=1e-3).plan


def _select_small_largest(attributes: Sequence[AttributeWorkload]) -> ResidualPlan:
    return plan_oblique_largest(Workload.k_way(attributes, range(4), most_answers=5000)).plan


def times_of(kind: BaseKind, count: int) -> tuple[float, float | None, float | None]:
    """CPU seconds of selection for the sum and for the largest variance, and of reconstruction."""
    attributes = _attributes(kind, count)
    by_sum = seconds(partial(_select_sum, attributes))
    if kind is BaseKind.RANGES and count == 100:
        return by_sum, None, None
    by_largest = seconds(partial(_select_largest, attributes), 1)
    plan = _select_sum(attributes)
    answers = ResidualAnswers(plan, np.ones(int(locate_answers(plan)[-1])))
    return by_sum, by_largest, seconds(partial(_reconstruct, answers), 1 if count == 100 else 3)


def _reconstruct(answers: ResidualAnswers) -> float:
    workload, total = answers.plan.workload, 0.0
    for members in chain.from_iterable(workload.marginals.by_order):
        total += float(reconstruct(answers, workload.names_of(members)).flat[0])
    return total
