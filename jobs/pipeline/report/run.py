"""Sections on solving, on the machine of a run and, in internal reports only, on its costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from jobs.pipeline.documents.manifest import Manifest, SolvedLevel
from jobs.pipeline.documents.statistics import ExpectedTotals, LearnedAnswers
from jobs.pipeline.documents.summary import Summary
from jobs.pipeline.language import prose, tr
from jobs.pipeline.report import text
from jobs.pipeline.report.page import Block, Row, Section
from jobs.pipeline.report.table import (
    Cell,
    Column,
    Show,
    Table,
    bars,
    labels,
    names,
    number,
    numbers,
)


def run_section(manifest: Manifest, summary: Summary | None = None) -> Section:
    """Return the section on the machine and, if a summary is given, the costs of stages."""
    environment, software = manifest.environment, manifest.software
    cores = tr(text.NOT_RECORDED) if environment.cores is None else str(environment.cores)
    programs = [
        (tr("Cores"), cores),
        (tr("Slots"), str(environment.slots)),
        (tr("Platform"), environment.platform),
        ("Java", environment.java),
        ("Spark", environment.spark),
        ("Python", software.python),
        *sorted(software.libraries.items()),
    ]
    machine = environment_table(tr("Machine and software"), programs)
    if summary is None or not summary.stages:
        return Section("run", tr("Run"), tr("What made this release."), [machine])
    lead = "Core time is the sum over all cores, those of workers included; in all "
    lead += f"{text.decimal(summary.total.core_hours)} core hours."
    blocks: list[Block] = [Row([stages_table(summary), machine])]
    return Section("run", tr("Run"), lead, blocks)


def environment_table(
    caption: str,
    facts: Sequence[tuple[str, str]],
    shown: Callable[[str, Iterable[str]], Column] = names,
) -> Table:
    """Tabulate facts on the machine or software that made a release.

    Args:
      caption: Kind of the facts.
      facts: (name, value) of each fact.
      shown: Makes the column of values, such as `codes`.
    """
    columns = [
        names(tr("What"), (what for what, _ in facts)),
        shown(tr("Value"), (value for _, value in facts)),
    ]
    return Table.of("environment", caption, columns)


def stages_table(summary: Summary, *, is_narrow: bool = False) -> Table:
    """Tabulate the costs of each stage and in total; geounits only by stage.

    Args:
      summary: The costs.
      is_narrow: Whether to leave out shares, core hours and memory: 80 characters are enough.
    """
    stages, total = summary.stages.values(), summary.total.seconds
    costs = [*stages, summary.total]
    peaks = (one.peak_memory_bytes for one in costs)
    task_peaks = (one.task_peak_memory_bytes for one in costs)
    geounits, rates = [*(one.geounits for one in stages), 0], [*(one.rate for one in stages), None]
    columns = [
        names("Stage", [*summary.stages, "all"]),
        bars("Elapsed", (one.seconds for one in stages), text.duration, total=total),
        numbers("Share", (one.seconds / (total or 1) for one in costs), text.percent),
        numbers("Core time", (one.core_seconds for one in costs), text.duration, "all cores"),
        numbers("Core hours", (one.core_hours for one in costs), "{:.4f}".format),
        numbers("Peak memory", peaks, text.size, "driver's machine"),
        _unless_zero("Largest task", task_peaks, text.size, "memory"),
        _unless_zero("Geounits", geounits, text.integer, "of all steps"),
        _unless_zero("Geounits", rates, text.decimal, "per second"),
    ]
    shown = [*columns[:2], columns[3], *columns[7:]] if is_narrow else columns
    return Table.of("stages", "Cost of each stage", shown)


def _unless_zero(title: str, values: Iterable[float | None], show: Show, hint: str) -> Column:
    """Make a column of numbers of stages; the cell is empty if the value is 0 or None."""
    cells = [number(value, show) if value else Cell("") for value in values]
    return Column(title, hint=hint, cells=cells)


_WAYS = {"plain": "plain", "totals": "totals expected", "composition": "cells expected"}
_MOVED_BY = {
    "exact": "the nearest counts that allow it",
    "penalty": "the sum of the children that fit the noisy answers best with a penalty on what the "
    "parent moves",
}


def solving_section(solved: Sequence[SolvedLevel]) -> Section:
    """Return the section on solving by geolevel, and on moves of the failsafe."""
    moved = (sum(move.records for move in level.moved) for level in solved)
    columns = [
        labels(tr("Geolevel"), (level.geolevel for level in solved), tr("of the children")),
        numbers(tr("Problems"), (level.nodes for level in solved), hint=tr("solved")),
        numbers(tr("Copied"), (level.copied for level in solved), hint=tr("one child")),
        numbers(tr("Widened"), (level.widened for level in solved), hint=tr("rounding")),
        numbers(tr("Failsafe"), (len(level.moved) for level in solved), hint=tr("parents moved")),
        numbers(tr("Moved"), moved, hint=tr("records")),
    ]
    ways = {move.by for level in solved for move in level.moved} or {"exact"}
    place = f" {tr('or')} ".join(tr(_MOVED_BY[way]) for way in sorted(ways))
    note = prose("solving.note", place=place)
    tables = [Table.of("solving", tr("How counts were made"), columns, note)]
    expected = [(v.geolevel, v.expected_totals) for v in solved if v.expected_totals is not None]
    if expected:
        tables.append(_expected_table(expected))
    learned = [(v.geolevel, v.learned) for v in solved if v.learned is not None]
    tables += [_learned_table(geolevel, use) for geolevel, use in learned]
    return Section("solving", tr("Solving"), prose("solving.lead"), tables)


def _learned_table(geolevel: str, learned: LearnedAnswers) -> Table:
    plain = {error.query: error.error for error in learned.errors if error.way == "plain"}
    tried = [error for error in learned.errors if error.way != "plain"]
    columns = [
        labels(tr("Answers"), (error.query for error in tried)),
        labels(
            tr("Corrected"), (tr("yes" if e.query in learned.corrected else "no") for e in tried)
        ),
        numbers(
            tr("Plain"), (plain[error.query] for error in tried), text.decimal, tr("squared error")
        ),
        numbers(tr("Corrections"), (e.error for e in tried), text.decimal, tr("squared error")),
        numbers(
            tr("Of the difference"), (e.difference_error for e in tried), text.decimal, tr("s.e.")
        ),
    ]
    note = prose("learned.note", source=learned.source)
    return Table.of(
        f"learned-{geolevel}", tr("Learned counts of {geolevel}s", geolevel=geolevel), columns, note
    )


def _expected_table(requested: Sequence[tuple[str, ExpectedTotals]]) -> Table:
    rows = [
        (geolevel, expected, error)
        for geolevel, expected in requested
        for error in expected.errors or (None,)
    ]
    used, errors = [expected for _, expected, _ in rows], [error for *_, error in rows]
    squared = (None if error is None else error.error for error in errors)
    changes = (None if error is None else error.difference_error for error in errors)
    columns = [
        labels(tr("Geolevel"), (geolevel for geolevel, *_ in rows)),
        labels(tr("Released"), (tr(_WAYS[expected.way]) for expected in used)),
        numbers(tr("Kappa"), (expected.kappa for expected in used), text.decimal),
        numbers(
            tr("Seen"), (expected.children for expected in used), hint=tr("geounits learned from")
        ),
        numbers(
            tr("Apart"),
            (expected.flat for expected in used),
            hint=tr("geounits without prediction"),
        ),
        labels(tr("Marginal"), (None if error is None else error.query for error in errors)),
        labels(tr("Way"), (None if error is None else tr(_WAYS[error.way]) for error in errors)),
        numbers(tr("Squared error"), squared, text.decimal, tr("estimated")),
        numbers(tr("Of the difference"), changes, text.decimal, tr("standard error")),
    ]
    note = prose("expected_totals.note")
    return Table.of("expected-totals", tr("Totals expected by housing units"), columns, note)
