"""Commands that run a census or a survey: from `das validate` to `das evaluate`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from das.errors import ConfigError
from jobs.cli.application import app
from jobs.cli.finished import is_survey_file
from jobs.cli.options import (
    AnyPlace,
    ConfigArgument,
    JsonOption,
    LossesOption,
    MovedConfigOption,
    NewFolderArgument,
    OutOption,
    RunOptions,
    SolutionOption,
    name_files,
    read_address,
    with_options,
)
from jobs.cli.surveys import resume_survey, work_on_survey

if TYPE_CHECKING:
    from jobs.pipeline.config.product import Resolved
    from jobs.pipeline.documents.account import Account


@app.command()
def validate(
    config: ConfigArgument, losses: LossesOption = False, as_json: JsonOption = False
) -> None:
    """Check a run file, its files and the list of geounits, and print the budget.

    Of the data no more is read than the names of columns, if they are there. Stores are asked
    whether they let this machine write: a file is created and removed in each.
    """
    from jobs.pipeline.folder.roots import check_roots
    from jobs.pipeline.storage.account import check_account

    if is_survey_file(config):
        from jobs.survey.plan import load_survey
        from jobs.survey.summary import print_summary

        plan = load_survey(config)
        if not plan.not_for_release:
            check_account(plan.account())
        check_roots(plan.config.output.roots)
        print_summary(plan, as_json=as_json)
        return
    from jobs.design.planning.summary import budget_summary
    from jobs.design.planning.terminal import print_summaries
    from jobs.pipeline.confidential.inputs import absent_files, check_present
    from jobs.pipeline.config.load import load_run
    from jobs.pipeline.config.product import account_of
    from jobs.pipeline.config.runnable import require_runnable

    resolved = load_run(config)
    require_runnable(resolved)
    if resolved.plan.spends:
        check_account(account_of(resolved.config))
    check_roots(resolved.config.output.roots)
    absent = tuple(absent_files(resolved))
    closed = tuple(check_present(resolved))
    source = resolved.config.geography.source
    summaries = {
        name: budget_summary(product, source, losses=losses)
        for name, product in resolved.products.items()
    }
    last = resolved.last.name
    summaries[last] = replace(summaries[last], absent=absent, closed=closed)
    print_summaries(summaries, as_json=as_json, together=cost_together(resolved))


def cost_together(resolved: Resolved) -> Account | None:
    """What the products of a run cost together; None of one."""
    from jobs.pipeline.config.product import claim_of
    from jobs.pipeline.documents.account import account_of_grants

    claims = [claim_of(resolved, product, "") for product in resolved.products.values()]
    return account_of_grants(claims) if len(claims) > 1 else None


@app.command()
@with_options
def run(config: ConfigArgument, options: RunOptions, out: OutOption = None) -> None:
    """Run every stage that is not complete, and name the files written."""
    if is_survey_file(config):
        from jobs.survey.run import run_survey

        work_on_survey(run_survey, config, out, None, options)
        return
    from jobs.pipeline.run import run as run_all

    resolved = options.load(config, out)
    name_files(run_all(resolved, options.reporter()), resolved.config.output.roots)


@app.command()
@with_options
def demo(
    options: RunOptions,
    folder: NewFolderArgument = Path("das-demo"),
    blocks: Annotated[int, typer.Option(help="About how many blocks.")] = 2500,
    seed: Annotated[int, typer.Option(help="Of the state; the noise is secret.")] = 2020,
) -> None:
    """Generate a synthetic state and run every stage on it; copies of all ready files come along.

    The run file is that of the 2020 redistricting data: its schema, budget and allocation.
    """
    from jobs.design.demo import Demo

    made = Demo(folder, blocks, seed)
    files, roots = made.run(partial(options.load, out=None), options.reporter())
    name_files(files, roots)
    typer.echo(
        "\nOpen the first file in a browser: how far the release is from the truth. The second is\n"
        "what the public reads, with microdata and tables beside it. Then go on with:\n"
    )
    for line in made.next_commands():
        typer.echo(f"  {line}")


@app.command()
@with_options
def measure(config: ConfigArgument, options: RunOptions, out: OutOption = None) -> None:
    """Read the data and draw the noisy measurements, once."""
    if is_survey_file(config):
        from jobs.survey.run import measure_survey

        work_on_survey(measure_survey, config, out, None, options)
        return
    from jobs.pipeline.run import run_measuring

    resolved = options.load(config, out)
    files = run_measuring(resolved, options.reporter())
    name_files(files, resolved.config.output.roots)


@app.command()
@with_options
def solve(
    config: ConfigArgument,
    options: RunOptions,
    out: OutOption = None,
    solution: SolutionOption = None,
) -> None:
    """From committed measurements to counts, microdata, tables, manifest and public report.

    The sections `solve` and `output` of the run file may change after measuring. A sealed release
    is never made again with other settings; --solution makes another one beside it. Of a survey:
    means, tables and microdata from its measurements; `shrink` and the settings of the model may
    change.
    """
    if is_survey_file(config):
        from jobs.survey.run import solve_survey

        work_on_survey(solve_survey, config, out, solution, options)
        return
    from jobs.pipeline.run import run_solving

    resolved = options.load(config, out, solution)
    files = run_solving(resolved, options.reporter())
    name_files(files, resolved.config.output.roots)


@app.command()
@with_options
def evaluate(
    config: ConfigArgument,
    options: RunOptions,
    out: OutOption = None,
    solution: SolutionOption = None,
    groups: Annotated[
        str | None,
        typer.Option(
            help='Whose errors are added up, such as "cenrace, hispanic * cenrace". Default: '
            "evaluate.groups."
        ),
    ] = None,
) -> None:
    """Compare a finished release with the truth (confidential) and write the internal report."""
    if is_survey_file(config):
        if groups is not None:
            raise ConfigError("--groups", "is for censuses; the run file of a survey has strata")
        from jobs.survey.run import evaluate_survey

        work_on_survey(evaluate_survey, config, out, solution, options)
        return
    from das.queries.query import split_queries
    from jobs.pipeline.run import run_evaluating

    asked = None if groups is None else split_queries(groups)
    resolved = options.load(config, out, solution, asked)
    files = run_evaluating(resolved, options.reporter())
    name_files(files, resolved.config.output.roots)


@app.command()
@with_options
def resume(
    out: Annotated[
        AnyPlace, typer.Argument(help="Folder of a run, complete or not.", parser=read_address)
    ],
    options: RunOptions,
    config: MovedConfigOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only say what is done and what is damaged.")
    ] = False,
    moved: Annotated[
        bool,
        typer.Option("--moved", help="This folder goes on; every other copy of it is given up."),
    ] = False,
    solution: SolutionOption = None,
) -> None:
    """Go on with the run of a folder: check all that is done, make again what is damaged, finish.

    Nothing is measured twice. Lost noisy answers are an error.
    """
    from jobs.survey.folder import is_survey_folder

    if is_survey_folder(out):
        resume_survey(out.resolve(), config, solution, options, check=check, moved=moved)
        return
    from jobs.pipeline.config.runnable import require_runnable
    from jobs.pipeline.folder.lock import only_driver
    from jobs.pipeline.folder.progress import count_files, refuse_damage, repair, stage_progress
    from jobs.pipeline.folder.solutions import refuse_sealed
    from jobs.pipeline.run import STAGES
    from jobs.pipeline.run import run as run_all

    resolved = options.load_again(out, config, solution)
    require_runnable(resolved)
    refuse_sealed(resolved)
    with only_driver(out):
        for line in stage_progress(STAGES, resolved):
            typer.echo(f"{line.product:<10}{line.stage:<10}{line.done:>4} of {line.outputs} done")
        if check:
            refuse_damage(resolved)
        for damage in [] if check else repair(resolved):
            again = f"{len(damage.redo)} dataset{'s' * (len(damage.redo) > 1)} made again"
            typer.echo(f"{damage.error.where}: {damage.error.what}; {again}")
        is_complete = all(line.is_complete for line in stage_progress(STAGES, resolved))
    if is_complete and not moved:  # one that moved may have to tell the account of its draws
        datasets, files = count_files(resolved)
        typer.echo(f"complete: {files} files of {datasets} datasets are as they were published")
    elif not check:
        made = run_all(resolved, options.reporter(), moved=moved)
        name_files(made, resolved.config.output.roots)


@app.command()
def prepare() -> None:
    """Check this machine and make embedded sessions start faster; run once after installing."""
    from jobs.pipeline.tasks.executor import require_run_packages
    from jobs.pipeline.tasks.java import find_java_home, java_version, make_class_archive
    from jobs.pipeline.tasks.shipping import compile_packages
    from solvers.least_squares.machine_code import compile_kernels

    require_run_packages()
    home = find_java_home()
    archive = make_class_archive()
    typer.echo(f"Java {java_version(home / 'bin' / 'java')} at {home}")
    typer.echo(f"class archive {archive or 'not made; sessions start, only slower'}")
    kept = compile_packages()
    typer.echo(f"byte code {'kept' if kept else 'not kept; each process compiles'}")
    places = [f"in {place}" for place in compile_kernels()]
    for place in places or ["not kept; each process compiles"]:
        typer.echo(f"compiled solvers {place}")


@app.command()
def account(config: ConfigArgument, as_json: JsonOption = False) -> None:
    """List every budget granted for the people of a run file's data, and what they add up to.

    Also the checks of the data that failed, whose errors told something that no budget paid for.
    """
    from jobs.design.planning.terminal import print_account
    from jobs.pipeline.config.load import load_run
    from jobs.pipeline.config.product import account_of
    from jobs.pipeline.documents.account import account_of_grants
    from jobs.pipeline.storage.account import read_account, read_failed_checks

    if is_survey_file(config):
        from jobs.survey.plan import load_survey

        path = load_survey(config).account()
    else:
        path = account_of(load_run(config).config)
    granted = account_of_grants(read_account(path))
    print_account(path, granted, read_failed_checks(path), as_json=as_json)
