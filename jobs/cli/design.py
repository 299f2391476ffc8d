"""Commands before a run: drafts, generated data, planned budgets and spines."""

from __future__ import annotations

import json
import shlex
from functools import partial
from typing import Annotated

import typer

from jobs.cli.options import (
    ConfigArgument,
    JsonOption,
    NewFolderArgument,
    QuietOption,
    read_local,
    refuse_options,
    refuse_others,
    with_options,
)
from jobs.design.requests import DraftRequest, GenerateSpec, PlanRequest
from jobs.pipeline.printable import printable


@with_options
def plan(
    config: ConfigArgument,
    request: PlanRequest,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Predict the errors of tables, optimize the allocation, or train on public counts.

    Reads the list of geounits. No data are read, except for geocodes if there is no list.
    """
    if request.spine:
        refuse_others(request, "spine")
        from jobs.analysis.respine import summarize_spine
        from jobs.pipeline.config.load import load_run

        typer.echo(json.dumps(summarize_spine(load_run(config)), indent=1))
        return
    if request.compare_planners:
        refuse_others(request, "compare_planners", "geolevel", "order", "tables")
        from jobs.design.planning.planners import compare_planners
        from jobs.design.planning.terminal import print_planners
        from jobs.pipeline.config.load import load_run

        print_planners(compare_planners(load_run(config).last, request), as_json=as_json)
        return
    if request.learn is not None:
        refuse_others(request, "learn", "public", "allocation")
        refuse_options("needs --public: tables of other places", learn=not request.public)
        from jobs.design.learning import learn
        from jobs.pipeline.tasks.progress import Reporter

        learn(
            config,
            [read_local(table) for table in request.public],
            request.learn,
            Reporter(quiet=quiet),
            request.allocation,
        )
        return
    refuse_options("goes with --learn", public=request.public or None)
    comparing = {"geolevel": request.geolevel, "order": request.order}
    refuse_options("goes with --compare-planners", **comparing)
    from jobs.design.planning.request import explain
    from jobs.design.planning.terminal import cost_together, print_summaries
    from jobs.pipeline.confidential.geounits import lattice_of
    from jobs.pipeline.config.load import load_plan
    from jobs.pipeline.config.runnable import require_runnable
    from jobs.pipeline.tasks.progress import Reporter

    wanted = None if request.optimize is None else request.tables or ()
    resolved = load_plan(config, wanted, request.allocation, None, request.product)
    require_runnable(resolved)
    geounits, reporter = partial(lattice_of, resolved), Reporter(quiet=quiet)
    summaries = explain(resolved, request, geounits, reporter)
    print_summaries(summaries, as_json=as_json, together=cost_together(resolved))


@with_options
def init(request: DraftRequest) -> None:
    """Draft a schema, run file and allocation from records.

    Reads confidential data, and prints and writes no counts, except for the number of records of a
    survey. Compare the levels, which are taken from the data, with the questionnaire.
    """
    places: dict[str, object] = {"geolevels": request.geolevels, "geounits": request.geounits}
    if request.survey:
        from jobs.design.drafting.survey import draft_survey
        from jobs.survey.plan import load_survey

        refuse_options("is for a census", **places, geocode=request.geocode, into=request.into)
        made = draft_survey(request, load_survey)
    else:
        from jobs.design.drafting.draft import draft

        if request.into is not None:
            refuse_options("comes from the run file of --into", **places)
        made = draft(request)
    for path in made.files:
        typer.echo(printable(str(path)))
    if not made.is_whole:
        what = f"the first {request.rows:,} rows only"
        typer.echo(f"read {what}: later rows can hold codes without a level")
    typer.echo("\nCheck in these files:")
    for check in made.checks:
        typer.echo(printable(f"  {check}"))
    typer.echo("\nThen continue with:\n")
    run = shlex.quote(str(made.run_file))
    rehearsal = () if request.survey else ("generate rehearsal --like",)
    for command in ("validate", *rehearsal, "run"):
        typer.echo(printable(f"  das {command} {run}"))


@with_options
def generate(out: NewFolderArgument, spec: GenerateSpec, quiet: QuietOption = False) -> None:
    """Generate a synthetic nation, or a rehearsal of a run file.

    With --like, or a schema file as --schema, persons are invented whose attributes are independent
    of each other.
    """
    from jobs.design.synthetic.generate import generate_any
    from jobs.pipeline.tasks.progress import Reporter

    typer.echo(json.dumps(generate_any(spec, out, Reporter(quiet=quiet)), default=str))


def generate_survey(
    out: NewFolderArgument,
    persons: Annotated[int, typer.Option(help="Number of persons.")] = 20_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same survey.")] = 2020,
) -> None:
    """Generate an invented survey and weights of its strata."""
    from jobs.design.synthetic.survey import generate_survey as write_survey

    typer.echo(json.dumps(write_survey(out, persons, seed)))
