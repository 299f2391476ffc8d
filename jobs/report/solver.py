"""How the node problems of each geolevel were solved. Public."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jobs.documents.manifest import SolvedLevel
from jobs.documents.statistics import EstimatedError, ExpectedTotals, SlowNode
from jobs.report import text
from jobs.report.page import Block, Section, TableBlock
from jobs.report.table import EMPTY, Cell, Column, Table, bars, code, label, number

_WAYS = {"plain": "plain", "totals": "totals expected", "composition": "cells expected"}
_HARD = 12  # nodes listed as those that took longest


def solver_section(solved: Sequence[SolvedLevel]) -> Section:
    """Statistics of the node problems of each geolevel."""
    worst = max(level.max_residual for level in solved)
    lead = (
        "Each parent and its children form one problem: find the nonnegative integers closest to "
        "all noisy answers that add up. Each solution is certified by its optimality residual; "
        f"the worst of all is {text.scientific(worst)}."
    )
    if any(level.moved for level in solved):
        lead += f" {_failsafe(solved)}"
    times = bars([level.seconds for level in solved], text.duration)
    columns = [
        Column("Geolevel", numeric=False, hint="of the children"),
        Column("Nodes", hint="solved"),
        Column("Copied", hint="one child"),
        Column("Trivial", hint="no freedom"),
        Column("Variables"),
        Column("Elapsed"),
        Column("Solver time", hint="all cores"),
        Column("Per node"),
        Column("Iterations"),
        Column("Newton", hint="steps"),
        Column("Widened", hint="rounding"),
        Column("Failsafe", hint="parents moved"),
        Column("Moved", hint="records"),
        Column("Worst residual"),
    ]
    body = [_row(level, time) for level, time in zip(solved, times, strict=True)]
    blocks: list[Block] = [
        TableBlock(Table("solver", "Node problems of each geolevel", columns, body))
    ]
    slow = [(level.geolevel, node) for level in solved for node in level.worst_nodes]
    if slow:
        blocks.append(TableBlock(_slow_table(slow)))
    blocks += _expected_blocks(solved)
    return Section("solver", "Solver", lead, blocks)


def solving_section(solved: Sequence[SolvedLevel]) -> Section:
    """The same for readers of a release: what was solved, and what had to be moved for it."""
    lead = (
        "Each parent and its children form one problem: find the nonnegative whole numbers closest "
        "to all noisy answers that add up. Every solution is certified; manifest.json has the "
        "certificates."
    )
    columns = [
        Column("Geolevel", numeric=False, hint="of the children"),
        Column("Problems", hint="solved"),
        Column("Copied", hint="one child"),
        Column("Widened", hint="rounding"),
        Column("Failsafe", hint="parents moved"),
        Column("Moved", hint="records"),
    ]
    body = [
        [
            label(level.geolevel),
            number(level.nodes),
            number(level.copied),
            number(level.widened),
            number(len(level.moved)),
            number(sum(move.records for move in level.moved)),
        ]
        for level in solved
    ]
    note = (
        "Widened: no whole numbers next to the solution add up, so the next ones were tried. "
        f"Failsafe: {_failsafe(solved)}"
    )
    table = Table("solving", "How counts were made", columns, body, note)
    return Section("solving", "Solving", lead, [TableBlock(table), *_expected_blocks(solved)])


def _failsafe(solved: Sequence[SolvedLevel]) -> str:
    """What the failsafe does, and which counts it chose."""
    by = {move.by for level in solved for move in level.moved}
    chosen = {
        "exact": "the nearest counts that allow it",
        "penalty": "the sum of the children that fit the noisy answers best with a penalty on "
        "what the parent moves",
    }
    return (
        "Where no children of a parent can keep what they must, the failsafe moves the parent to "
        f"{' or '.join(chosen[way] for way in sorted(by or {'exact'}))}."
    )


def _expected_blocks(solved: Sequence[SolvedLevel]) -> list[TableBlock]:
    """What was expected by housing units, where that was asked for."""
    expected = [(level.geolevel, level.expected_totals) for level in solved]
    asked = [(geolevel, one) for geolevel, one in expected if one is not None]
    return [TableBlock(_expected_table(asked))] if asked else []


def _row(level: SolvedLevel, time: Cell) -> list[Cell]:
    counts: list[tuple[float | None, Callable[[float | None], str]]] = [
        (level.iterations, text.integer),
        (level.newton_steps, text.integer),
        (level.widened, text.integer),
        (len(level.moved), text.integer),
        (sum(move.records for move in level.moved), text.integer),
        (level.max_residual, text.scientific),
    ]
    return [
        label(level.geolevel),
        number(level.nodes),
        number(level.copied),
        number(level.trivial),
        number(level.variables),
        number(level.wall_seconds, text.duration),
        time,
        number(level.seconds / level.nodes, text.duration) if level.nodes else Cell(EMPTY),
        *(number(value, show) for value, show in counts),
    ]


def _expected_table(asked: Sequence[tuple[str, ExpectedTotals]]) -> Table:
    body = [
        [
            label(geolevel),
            label(_WAYS[one.way]),
            number(one.kappa, text.decimal),
            number(one.children),
            number(one.flat),
            *_errors(error),
        ]
        for geolevel, one in asked
        for error in one.errors or (None,)
    ]
    columns = [
        Column("Geolevel", numeric=False),
        Column("Released", numeric=False),
        Column("Kappa"),
        Column("Seen", hint="geounits learned from"),
        Column("Apart", hint="nothing is expected of them"),
        Column("Marginal", numeric=False),
        Column("Way", numeric=False),
        Column("Squared error", hint="estimated"),
        Column("Of the difference", hint="standard error"),
    ]
    return Table(
        "expected-totals",
        "Totals expected by housing units",
        columns,
        body,
        "Counts are shrunk toward the mean household of their parent, so geounits with many "
        "persons a unit lose; estimates are not. Errors are estimated from noisy answers alone.",
    )


def _errors(error: EstimatedError | None) -> list[Cell]:
    """Of one marginal; nothing where too few geounits were seen to estimate any."""
    if error is None:
        return [Cell(EMPTY)] * 4
    shown = (error.error, error.difference_error)
    names = (label(error.query), label(_WAYS[error.way]))
    return [*names, *(number(value, text.decimal) for value in shown)]


def _slow_table(slow: Sequence[tuple[str, SlowNode]]) -> Table:
    ranked = sorted(slow, key=lambda pair: -pair[1].seconds)[:_HARD]
    body = [
        [
            code(node.geocode or "root"),
            label(geolevel),
            number(node.seconds, text.duration),
            number(node.residual, text.scientific),
        ]
        for geolevel, node in ranked
    ]
    columns = [
        Column("Parent", numeric=False),
        Column("Geolevel", numeric=False, hint="of the children"),
        Column("Time"),
        Column("Residual"),
    ]
    return Table("hard-nodes", "The nodes that took longest", columns, body)
