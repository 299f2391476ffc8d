"""What a run ran on and, in internal reports alone, what it cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jobs.documents.manifest import Manifest
from jobs.documents.summary import Costs, Straggler, Summary
from jobs.report import text
from jobs.report.page import Block, Row, Section, TableBlock
from jobs.report.table import Cell, Column, Table, bars, code, label, name, number


def run_section(manifest: Manifest, summary: Summary | None = None) -> Section:
    """The machine and, in internal reports only, what each stage cost."""
    machine = Table(
        "environment",
        "Machine and software",
        [Column("What", numeric=False), Column("Value", numeric=False)],
        [[name(key), name(value)] for key, value in _environment(manifest)],
    )
    if summary is None or not summary.stages:
        return Section("run", "Run", "What made this release.", [TableBlock(machine)])
    lead = "Elapsed time is what a clock shows; core time adds up all cores, those of workers too."
    lead += f" In all {text.decimal(summary.total.core_hours)} core hours."
    blocks: list[Block] = [Row([TableBlock(stages_table(summary)), TableBlock(machine)])]
    if summary.stragglers:
        blocks.append(TableBlock(_stragglers_table(summary.stragglers)))
    return Section("run", "Run", lead, blocks)


def stages_table(summary: Summary) -> Table:
    """What each stage cost, and all of them; no geounits of all, since stages share them."""
    costs = [*summary.stages.values(), summary.total]
    times = [
        *bars([stage.seconds for stage in summary.stages.values()], text.duration),
        number(summary.total.seconds, text.duration),
    ]
    elapsed = summary.total.seconds or 1
    return Table(
        "stages",
        "Cost of each stage",
        [
            Column("Stage", numeric=False),
            Column("Elapsed"),
            Column("Share"),
            Column("Core time", hint="all cores"),
            Column("Core hours"),
            Column("Peak memory", hint="driver's machine"),
            Column("Largest task", hint="memory"),
            Column("Geounits", hint="of all steps"),
            Column("Geounits", hint="per second"),
        ],
        [
            [
                name(stage),
                time,
                number(cost.seconds / elapsed, text.percent),
                number(cost.core_seconds, text.duration),
                number(cost.core_hours, "{:.4f}".format),
                number(cost.peak_memory_bytes, text.size),
                _unless_zero(cost.task_peak_memory_bytes, text.size),
                _unless_zero(cost.geounits if isinstance(cost, Costs) else None),
                _unless_zero(cost.rate if isinstance(cost, Costs) else None, text.decimal),
            ]
            for stage, cost, time in zip([*summary.stages, "all"], costs, times, strict=True)
        ],
    )


def _unless_zero(value: float | None, show: Callable[[float | None], str] = text.integer) -> Cell:
    """A number of stages that have tasks, or geounits; empty for the others."""
    return number(value, show) if value else Cell("")


def _stragglers_table(stragglers: Sequence[Straggler]) -> Table:
    return Table(
        "stragglers",
        "Tasks that took much longer than predicted",
        [
            Column("Step", numeric=False),
            Column("From", numeric=False),
            Column("To", numeric=False),
            Column("Geounits"),
            Column("Time"),
            Column("Predicted"),
        ],
        [
            [
                label(straggler.step),
                code(straggler.low),
                code(straggler.high),
                number(straggler.cost),
                number(straggler.seconds, text.duration),
                number(straggler.expected_seconds, text.duration),
            ]
            for straggler in stragglers
        ],
    )


def _environment(manifest: Manifest) -> list[tuple[str, str]]:
    environment, software = manifest.environment, manifest.software
    cores = text.NOT_RECORDED if environment.cores is None else str(environment.cores)
    return [
        ("Cores", cores),
        ("Slots", str(environment.slots)),
        ("Platform", environment.platform),
        ("Java", environment.java),
        ("Spark", environment.spark),
        ("Python", software.python),
        *sorted(software.libraries.items()),
    ]
