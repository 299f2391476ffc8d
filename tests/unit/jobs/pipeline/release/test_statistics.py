"""Statistics of tasks add up to those of the geolevel; the slowest nodes of all are named."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from jobs.pipeline.documents.statistics import Move, SlowNode
from jobs.pipeline.release.solve import of_node, total, unsolved


def solution(*, residual: float, widened: int = 0):
    """What `of_node` reads of a solved node of two children and three live cells."""
    return SimpleNamespace(
        counts=np.zeros((2, 3), np.int64),
        estimate=SimpleNamespace(
            certificate=SimpleNamespace(residual=residual), iterations=2, newton_steps=5
        ),
        rounding=SimpleNamespace(widened=widened),
    )


def node(code: str, seconds: float, residual: float = 0.0, widened: int = 0):
    solved = solution(residual=residual, widened=widened)
    return of_node(code, solved, live=4, seconds=seconds, moved=())


def test_a_node_counts_once():
    move = Move(geocode="11", cells=(1,), changes=(2,))
    solved = solution(residual=0.5, widened=7)
    statistics = of_node("11", solved, live=4, seconds=1.5, moved=(move,))
    assert (statistics.nodes, statistics.copied, statistics.trivial) == (1, 0, 0)
    assert (statistics.live, statistics.variables, statistics.seconds) == (4, 6, 1.5)
    assert (statistics.iterations, statistics.newton_steps, statistics.widened) == (2, 5, 1)
    assert statistics.worst_nodes == (SlowNode(geocode="11", residual=0.5, seconds=1.5),)
    assert statistics.moved == (move,)


def test_sums_of_two_families_and_one_that_needed_no_solving():
    parts = [
        node("11", 1.0, residual=0.25),
        node("12", 2.0, residual=0.125, widened=1),
        unsolved(live=3, is_copied=True),
        unsolved(live=0, is_copied=False),
    ]
    whole = total(parts)
    assert (whole.nodes, whole.copied, whole.trivial) == (2, 1, 1)
    assert (whole.live, whole.variables, whole.seconds) == (11, 12, 3.0)
    assert (whole.iterations, whole.newton_steps, whole.widened) == (4, 10, 1)
    assert whole.max_residual == 0.25
    assert total([total(parts[:1]), total(parts[1:])]) == whole
    assert total([]).max_residual == 0.0


def test_the_slowest_nodes_stay_whatever_task_they_were_in():
    seconds = {"11": 0.5, "12": 7.0, "13": 3.0, "14": 3.0, "15": 0.1, "16": 9.0, "17": 0.2}
    parts = [node(code, own) for code, own in seconds.items()]
    whole = total([total(parts[:3]), total(parts[3:])])
    assert [slow.geocode for slow in whole.worst_nodes] == ["16", "12", "13", "14", "11"]


def test_moves_of_all_tasks_are_kept_in_their_order():
    moves = [Move(geocode=code, cells=(0,), changes=(1,)) for code in ("12", "11")]
    parts = [replace(node(move.geocode, 1.0), moved=(move,)) for move in moves]
    assert [move.geocode for move in total(parts).moved] == ["12", "11"]
