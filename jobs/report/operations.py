"""Invariants, geography, solver, time and files of a run. Public."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jobs.documents.summary import Straggler, Summary
from jobs.report import text
from jobs.report.headline import Manifest, part, rows, words
from jobs.report.page import Block, Row, Section, TableBlock
from jobs.report.table import Cell, Column, Table, bars, code, name, number

_HARD = 12  # nodes listed as those that took longest
_OPTIONAL = (
    ("wall_seconds", "Elapsed", "", text.duration),
    ("iterations", "Iterations", "", text.integer),
    ("newton_steps", "Newton", "steps", text.integer),
    ("widened", "Widened", "rounding", text.integer),
)  # key, title, hint and format of columns that only some solvers fill
_MOVED = (Column("Failsafe", hint="parents moved"), Column("Moved", hint="records"))


def exact_section(manifest: Manifest) -> Section:
    """Invariants and geography: what is published without noise."""
    invariants = Table(
        "invariants",
        "Queries published exactly",
        [Column("Query", numeric=False), Column("Exact at", numeric=False)],
        [
            [
                name(words(row.get("query") or text.NOT_RECORDED)),
                name(", ".join(words(v) for v in row.get("geolevels") or [])),
            ]
            for row in rows(manifest, "invariants")
        ]
        or [[name("none" if manifest.get("invariants") == [] else None), name("")]],
    )
    geography = _geography_table(manifest)
    from_data = manifest.get("geounits_source") == "data"
    lead = "Invariants carry no noise and lie outside the privacy guarantee. So does the list of "
    lead += "geounits, " + ("taken from the data." if from_data else "which was public before.")
    blocks: list[Block] = [Row([TableBlock(invariants), TableBlock(geography)])]
    if manifest.get("limits"):
        blocks.append(TableBlock(_limits_table(manifest)))
    return Section("exact", "Published exactly", lead, blocks)


def _limits_table(manifest: Manifest) -> Table:
    return Table(
        "limits",
        "Limits that counts keep",
        [
            Column("Kind", numeric=False),
            Column("Of", numeric=False),
            Column("Types", numeric=False),
            Column("Holds at", numeric=False),
        ],
        [
            [
                name(words(row.get("kind") or text.NOT_RECORDED)),
                name(words(row.get("name") or text.NOT_RECORDED)),
                Cell(", ".join(words(v) for v in row.get("types") or [])),
                Cell(", ".join(words(v) for v in row.get("geolevels") or []) or "every geolevel"),
            ]
            for row in rows(manifest, "limits")
        ],
        "Facility counts are public; counts of persons must be possible with them."
        if any(row.get("kind") == "facilities" for row in rows(manifest, "limits"))
        else "",
    )


def _geography_table(manifest: Manifest) -> Table:
    return Table(
        "geography",
        "Geounits of each geolevel",
        [
            Column("Geolevel", numeric=False),
            Column("Digits", hint="of geocode"),
            Column("Geounits"),
            Column("Measured"),
            Column("Only children"),
        ],
        [
            [
                name(words(row.get("geolevel") or text.NOT_RECORDED)),
                number(row.get("digits")),
                number(row.get("geounits")),
                number(row.get("measured")),
                number(row.get("only_children")),
            ]
            for row in rows(manifest, "geography")
        ],
    )


def solver_section(manifest: Manifest) -> Section:
    """Statistics of the node problems of each geolevel."""
    lead = (
        "Each parent and its children form one problem: find the nonnegative integers closest to "
        "all noisy answers that add up. Each solution is certified by its optimality residual."
    )
    solved = rows(manifest, "solve")
    moved = any(row.get("moved") is not None for row in solved)
    if moved:
        lead += (
            " Where no children of a parent can keep what they must, the failsafe moves the parent "
            "to the nearest counts that allow it."
        )
    optional = [
        entry for entry in _OPTIONAL if any(row.get(entry[0]) is not None for row in solved)
    ]
    columns = [
        Column("Geolevel", numeric=False, hint="of the children"),
        Column("Nodes", hint="solved"),
        Column("Copied", hint="one child"),
        Column("Trivial", hint="no freedom"),
        Column("Variables"),
        Column("Solver time", hint="all cores"),
        Column("Per node"),
        *(Column(title, hint=hint) for _, title, hint, _ in optional),
        *(_MOVED if moved else ()),
        Column("Worst residual"),
    ]
    times = bars([row.get("seconds") for row in solved], text.duration)
    body = [
        [
            *_solved(row, time),
            *(number(row.get(key), show) for key, _, _, show in optional),
            *(_moved(row) if moved else ()),
            number(row.get("max_residual"), text.scientific),
        ]
        for row, time in zip(solved, times, strict=True)
    ]
    table = Table("solver", "Node problems of each geolevel", columns, body)
    blocks: list[Block] = [TableBlock(table)]
    hard = [(row, node) for row in solved for node in row.get("worst_nodes") or []]
    if hard:
        blocks.append(TableBlock(_hard_table(hard)))
    return Section("solver", "Solver", lead, blocks)


def _solved(row: Manifest, time: Cell) -> list[Cell]:
    seconds, nodes = row.get("seconds"), row.get("nodes")
    each = None if seconds is None or not nodes else seconds / nodes
    return [
        name(words(row.get("geolevel") or text.NOT_RECORDED)),
        number(nodes),
        number(row.get("copied")),
        number(row.get("trivial")),
        number(row.get("variables")),
        time,
        number(each, text.duration),
    ]


def _moved(row: Manifest) -> tuple[Cell, Cell]:
    """How many parents the failsafe moved, and how many records it added, removed or moved."""
    moves = row.get("moved")
    if moves is None:
        return number(None), number(None)
    records = 0
    for move in moves:
        added = sum(max(change, 0) for change in move["changes"])
        records += max(added, added - sum(move["changes"]))
    return number(len(moves)), number(records)


def _hard_table(hard: Sequence[tuple[Manifest, Manifest]]) -> Table:
    ranked = sorted(hard, key=lambda pair: -(pair[1].get("seconds") or 0))[:_HARD]
    body = [
        [
            code(node.get("geocode") or ("root" if node.get("geocode") == "" else None)),
            name(words(row.get("geolevel") or text.NOT_RECORDED)),
            number(node.get("seconds"), text.duration),
            number(node.get("residual"), text.scientific),
        ]
        for row, node in ranked
    ]
    columns = [
        Column("Parent", numeric=False),
        Column("Geolevel", numeric=False, hint="of the children"),
        Column("Time"),
        Column("Residual"),
    ]
    return Table("hard-nodes", "The nodes that took longest", columns, body)


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
    blocks: list[Block] = [Row([TableBlock(_stages_table(summary)), TableBlock(machine)])]
    if summary.stragglers:
        blocks.append(TableBlock(_stragglers_table(summary.stragglers)))
    return Section("run", "Run", lead, blocks)


def _stages_table(summary: Summary) -> Table:
    stages = summary.stages.values()
    times = bars([costs.seconds for costs in stages], text.duration)
    elapsed = summary.total.seconds or 1
    return Table(
        "stages",
        "Cost of each stage",
        [
            Column("Stage", numeric=False),
            Column("Elapsed"),
            Column("Share"),
            Column("Core time", hint="all cores"),
            Column("Peak memory", hint="driver's machine"),
            Column("Largest task", hint="memory"),
            Column("Geounits", hint="per second"),
        ],
        [
            [
                name(stage),
                time,
                number(costs.seconds / elapsed, text.percent),
                number(costs.core_seconds, text.duration),
                number(costs.peak_memory_bytes, text.size),
                _unless_zero(costs.task_peak_memory_bytes, text.size),
                _unless_zero(costs.rate, text.decimal),
            ]
            for (stage, costs), time in zip(summary.stages.items(), times, strict=True)
        ],
    )


def _unless_zero(value: float | None, show: Callable[[float | None], str]) -> Cell:
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
                name(words(straggler.step)),
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
    environment, software = part(manifest, "environment"), part(manifest, "software")
    out = [
        (key.capitalize(), environment.get(key)) for key in ("cores", "slots", "platform", "java")
    ]
    out += [("Spark", environment.get("spark")), ("Python", software.get("python"))]
    out += [(str(key), version) for key, version in sorted(part(software, "libraries").items())]
    return [(key, text.NOT_RECORDED if v is None else str(v)) for key, v in out]


def files_table(manifest: Manifest) -> Table:
    """Every file of the release with its digest."""
    outputs = rows(manifest, "outputs")
    body = [
        [
            code(row.get("path")),
            number(row.get("rows")),
            number(row.get("bytes"), text.size),
            code(row.get("sha256")),
        ]
        for row in outputs
    ]
    columns = [
        Column("Path", numeric=False),
        Column("Rows"),
        Column("Size"),
        Column("SHA-256", numeric=False),
    ]
    return Table("files", "Files of the release", columns, body)
