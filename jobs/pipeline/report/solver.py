"""How the node problems of each geolevel were solved. Public."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.pipeline.documents.manifest import SolvedLevel
from jobs.pipeline.documents.statistics import EstimatedError, ExpectedTotals, SlowNode
from jobs.pipeline.report import text
from jobs.pipeline.report.page import Block, Section
from jobs.pipeline.report.table import Column, Table, bars, codes, known, labels, numbers

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
    per_node = (level.seconds / level.nodes if level.nodes else None for level in solved)
    columns = [
        labels("Geolevel", (level.geolevel for level in solved), "of the children"),
        numbers("Nodes", (level.nodes for level in solved), hint="solved"),
        numbers("Copied", (level.copied for level in solved), hint="one child"),
        numbers("Trivial", (level.trivial for level in solved), hint="no freedom"),
        numbers("Variables", (level.variables for level in solved)),
        numbers("Elapsed", (level.wall_seconds for level in solved), text.duration),
        bars("Solver time", (level.seconds for level in solved), text.duration, "all cores"),
        known("Per node", per_node, text.duration),
        numbers("Iterations", (level.iterations for level in solved)),
        numbers("Newton", (level.newton_steps for level in solved), hint="steps"),
        *_changed(solved),
        numbers("Worst residual", (level.max_residual for level in solved), text.scientific),
    ]
    table = Table.of("solver", "Node problems of each geolevel", columns)
    blocks: list[Block] = [table]
    slow = [(level.geolevel, node) for level in solved for node in level.worst_nodes]
    if slow:
        blocks.append(_slow_table(slow))
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
        labels("Geolevel", (level.geolevel for level in solved), "of the children"),
        numbers("Problems", (level.nodes for level in solved), hint="solved"),
        numbers("Copied", (level.copied for level in solved), hint="one child"),
        *_changed(solved),
    ]
    note = (
        "Widened: no whole numbers next to the solution add up, so the next ones were tried. "
        f"Failsafe: {_failsafe(solved)}"
    )
    table = Table.of("solving", "How counts were made", columns, note)
    return Section("solving", "Solving", lead, [table, *_expected_blocks(solved)])


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


def _expected_blocks(solved: Sequence[SolvedLevel]) -> list[Table]:
    """What was expected by housing units, where that was asked for."""
    expected = [(level.geolevel, level.expected_totals) for level in solved]
    asked = [(geolevel, one) for geolevel, one in expected if one is not None]
    return [_expected_table(asked)] if asked else []


def _changed(solved: Sequence[SolvedLevel]) -> list[Column]:
    """Count where the whole numbers closest to a solution did not do."""
    moved = (sum(move.records for move in level.moved) for level in solved)
    return [
        numbers("Widened", (level.widened for level in solved), hint="rounding"),
        numbers("Failsafe", (len(level.moved) for level in solved), hint="parents moved"),
        numbers("Moved", moved, hint="records"),
    ]


def _expected_table(asked: Sequence[tuple[str, ExpectedTotals]]) -> Table:
    rows = [(geolevel, one, error) for geolevel, one in asked for error in one.errors or (None,)]
    seen = [one for _, one, _ in rows]
    queries, ways, errors, changes = zip(*(_errors(error) for *_, error in rows), strict=True)
    columns = [
        labels("Geolevel", (geolevel for geolevel, *_ in rows)),
        labels("Released", (_WAYS[one.way] for one in seen)),
        numbers("Kappa", (one.kappa for one in seen), text.decimal),
        numbers("Seen", (one.children for one in seen), hint="geounits learned from"),
        numbers("Apart", (one.flat for one in seen), hint="nothing is expected of them"),
        labels("Marginal", queries),
        labels("Way", ways),
        known("Squared error", errors, hint="estimated"),
        known("Of the difference", changes, hint="standard error"),
    ]
    return Table.of(
        "expected-totals",
        "Totals expected by housing units",
        columns,
        "Counts are shrunk toward the mean household of their parent, so geounits with many "
        "persons a unit lose; estimates are not. Errors are estimated from noisy answers alone.",
    )


def _errors(
    error: EstimatedError | None,
) -> tuple[str | None, str | None, float | None, float | None]:
    """Return those of one marginal; nothing where too few geounits were seen to estimate any."""
    if error is None:
        return None, None, None, None
    return error.query, _WAYS[error.way], error.error, error.difference_error


def _slow_table(slow: Sequence[tuple[str, SlowNode]]) -> Table:
    ranked = sorted(slow, key=lambda pair: -pair[1].seconds)[:_HARD]
    columns = [
        codes("Parent", (node.geocode or "root" for _, node in ranked)),
        labels("Geolevel", (geolevel for geolevel, _ in ranked), "of the children"),
        numbers("Time", (node.seconds for _, node in ranked), text.duration),
        numbers("Residual", (node.residual for _, node in ranked), text.scientific),
    ]
    return Table.of("hard-nodes", "The nodes that took longest", columns)
