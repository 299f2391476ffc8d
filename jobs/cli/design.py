"""Commands before a run: drafts, generated data, planned budgets, other spines."""

from __future__ import annotations

import json
import shlex
from functools import partial

import typer

from jobs.cli.application import app
from jobs.cli.options import (
    ConfigArgument,
    JsonOption,
    LossesOption,
    MasterOption,
    NewFolderArgument,
    QuietOption,
    with_options,
)
from jobs.cli.runs import cost_together
from jobs.design.requests import DraftRequest, FairnessRequest, GenerateSpec, PlanRequest
from jobs.pipeline.printable import printable


@app.command()
@with_options
def plan(
    config: ConfigArgument,
    request: PlanRequest,
    losses: LossesOption = False,
    as_json: JsonOption = False,
    master: MasterOption = None,
    quiet: QuietOption = False,
) -> None:
    """Read the list of geounits; print what will be measured where, and how far off tables will be.

    With --optimize, also find the allocation that makes the tables most accurate.
    """
    from jobs.design.planning.request import explain
    from jobs.design.planning.terminal import print_summaries
    from jobs.pipeline.confidential.geounits import lattice_of
    from jobs.pipeline.config.load import load_plan
    from jobs.pipeline.config.runnable import require_runnable
    from jobs.pipeline.tasks.progress import Reporter

    wanted = None if request.optimize is None else request.tables or ()
    resolved = load_plan(config, wanted, request.allocation, master, request.product)
    require_runnable(resolved)
    geounits, reporter = partial(lattice_of, resolved), Reporter(quiet=quiet)
    summaries = explain(resolved, request, geounits, reporter, losses=losses)
    print_summaries(summaries, as_json=as_json, together=cost_together(resolved))


@app.command()
@with_options
def fairness(config: ConfigArgument, request: FairnessRequest, as_json: JsonOption = False) -> None:
    """Which cells would get more noise than others, by planner and objective; reads no data."""
    from jobs.design.planning.fairness import compare_methods
    from jobs.design.planning.fairness_page import print_fairness, write_fairness_page
    from jobs.pipeline.config.load import load_run
    from jobs.pipeline.storage.files import refuse_foreign

    if request.report is not None:
        refuse_foreign(request.report, b"<!DOCTYPE html>", "a report, which is replaced")
    summary = compare_methods(load_run(config).last, request)
    if request.report is not None:
        write_fairness_page(summary, request.report)
    print_fairness(summary, as_json=as_json)


@app.command()
@with_options
def init(request: DraftRequest) -> None:
    """Look at person records and propose schema, run file and allocation for them.

    Reads confidential data, and prints and writes no counts. Levels of the schema are suggestions
    from the data, to be compared with the questionnaire.
    """
    from jobs.design.drafting.draft import draft

    made = draft(request)
    for path in made.files:
        typer.echo(printable(str(path)))
    if not made.is_whole:
        rows = f"{request.rows:,}"
        typer.echo(f"looked at the first {rows} rows: codes may come later that have no level")
    typer.echo("\nCheck, in these files:")
    for check in made.checks:
        typer.echo(printable(f"  {check}"))
    typer.echo("\nThen go on with:\n")
    run = shlex.quote(str(request.folder / "run.yaml"))
    for line in (f"das validate {run}", f"das generate rehearsal --like {run}", f"das run {run}"):
        typer.echo(printable(f"  {line}"))


@app.command()
def spine(config: ConfigArgument) -> None:
    """What the spine of a run changes, as JSON: geolevels, geounits, distances of entities."""
    from jobs.analysis.respine import summarize_spine
    from jobs.pipeline.config.load import load_run

    typer.echo(json.dumps(summarize_spine(load_run(config)), indent=1))


@app.command()
@with_options
def generate(out: NewFolderArgument, spec: GenerateSpec, quiet: QuietOption = False) -> None:
    """Write a synthetic nation, data and the public list of its blocks; or an invented survey.

    With --like, or a schema file as --schema, persons are invented whose attributes do not depend
    on each other: they look like nobody's, and rehearse a run.
    """
    from jobs.design.synthetic.generate import generate_any
    from jobs.pipeline.tasks.progress import Reporter

    typer.echo(json.dumps(generate_any(spec, out, Reporter(quiet=quiet)), default=str))
