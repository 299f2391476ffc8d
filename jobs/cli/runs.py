"""Commands that run a census or a survey: from `das validate` to `das evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from das.errors import ConfigError
from jobs.cli.finished import is_survey_file
from jobs.cli.options import (
    AnyPlace,
    ConfigArgument,
    FolderOptions,
    JsonOption,
    NewFolderArgument,
    RunOptions,
    SessionOptions,
    name_files,
    read_address,
    refuse_options,
    with_options,
)
from jobs.pipeline.printable import printable

if TYPE_CHECKING:
    from jobs.pipeline.config.product import Resolved
    from jobs.pipeline.storage.place import Place
    from jobs.pipeline.tasks.progress import Reporter
    from jobs.survey.plan import SurveyPlan


def validate(
    config: ConfigArgument,
    losses: Annotated[
        bool,
        typer.Option("--losses", help="Also compute epsilon from the distribution of the noise."),
    ] = False,
    as_json: JsonOption = False,
    data: Annotated[
        bool,
        typer.Option(
            "--data",
            help="Also read all rows of the data, and print the mistakes of all columns. "
            "CONFIDENTIAL: it prints codes of the data, on this terminal only.",
        ),
    ] = False,
) -> None:
    """Check a run file and print its budget.

    Checks all files that it names, but reads only the column names of the data, unless --data is
    given. Creates and removes a file in every store, to check that this machine can write there.
    """
    from jobs.design.planning.terminal import check_grants
    from jobs.pipeline.folder.roots import check_roots
    from jobs.pipeline.storage.account import check_account

    if is_survey_file(config):
        from jobs.survey.plan import load_survey
        from jobs.survey.summary import print_summary

        refuse_options("is for censuses; das run checks a survey at once", data=data or None)

        plan = load_survey(config)
        lines = list[str]()
        if not plan.not_for_release:
            check_account(plan.account())
            lines = check_grants(plan.account(), [plan.reservation("")], [plan.config.data.path])
        check_roots(plan.config.output.roots)
        print_summary(plan, as_json=as_json)
        for line in () if as_json else lines:
            typer.echo(printable(line))
        return
    from jobs.design.planning.summary import budget_summary
    from jobs.design.planning.terminal import cost_together, print_summaries
    from jobs.pipeline.confidential.inputs import absent_files, check_present
    from jobs.pipeline.config.load import load_run
    from jobs.pipeline.config.product import account_of, reservation_of
    from jobs.pipeline.config.runnable import require_runnable

    resolved = load_run(config)
    require_runnable(resolved)
    lines = list[str]()
    absent = tuple(absent_files(resolved))
    is_account_known = resolved.config.privacy.account is not None or not absent
    if resolved.plan.spends and is_account_known:  # else it is that beside the data
        path, products = account_of(resolved.config), resolved.products.values()
        check_account(path)
        grants = [reservation_of(resolved, product, "") for product in products]
        lines = check_grants(path, grants, [product.config.input.path for product in products])
    check_roots(resolved.config.output.roots)
    closed = tuple(check_present(resolved))
    source = resolved.config.geography.source
    summaries = {
        name: budget_summary(product, source, losses=losses)
        for name, product in resolved.products.items()
    }
    last = resolved.last.name
    summaries[last] = replace(summaries[last], absent=absent, closed=closed)
    print_summaries(summaries, as_json=as_json, together=cost_together(resolved))
    for line in () if as_json else lines:
        typer.echo(printable(line))
    if data:
        from jobs.pipeline.confidential.whole_input import check_whole_input

        checked = check_whole_input(resolved)
        for line in checked.lines(resolved.plan.leaf.name):
            typer.echo(printable(line), err=True)
        checked.refuse()


@with_options
def run(
    path: Annotated[
        AnyPlace,
        typer.Argument(help="Run file, or the folder of a run to resume.", parser=read_address),
    ],
    options: RunOptions,
    folder: FolderOptions,
    only: Annotated[
        Literal["measure", "solve"] | None,
        typer.Option(help="Only draw the noise, or only solve from measurements."),
    ] = None,
) -> None:
    """Run a census or a survey, or resume it from its folder.

    Complete stages are skipped, and noise is never drawn twice. A folder is checked first, and
    damaged files are made again; lost noisy answers are an error.

    With --only solve, no confidential data are opened. The sections `solve` and `output` of the run
    file may change after measuring. A finalized release never changes: --solution makes a
    further solution.
    """
    if not isinstance(path, Path) or path.is_dir():
        refuse_options(
            "goes with a run file, but the argument is a folder", out=options.out, only=only
        )
        _resume(path, options, folder)
        return
    if not path.exists():
        raise ConfigError(str(path), "does not exist", want="a run file, or the folder of a run")
    refuse_options("goes with the folder of a run, but the argument is a file", **vars(folder))
    if only != "solve":
        refuse_options("goes with --only solve, or the folder of a run", solution=options.solution)
    if is_survey_file(path):
        from jobs.survey.run import measure_survey, run_survey, solve_survey

        parts: Mapping[str | None, Callable[[SurveyPlan, Reporter], list[Place]]]
        parts = {None: run_survey, "measure": measure_survey, "solve": solve_survey}
        _work_on_survey(parts[only], path, options)
        return
    from jobs.pipeline import run as census

    resolved = options.load(path)
    works: Mapping[str | None, Callable[[Resolved, Reporter], list[Place]]]
    works = {None: census.run, "measure": census.run_measuring, "solve": census.run_solving}
    name_files(works[only](resolved, options.reporter()), resolved.config.output.roots)


def _resume(out: Place, options: RunOptions, folder: FolderOptions) -> None:
    """Check the folder of a run, make damaged files again, and finish the run."""
    from jobs.survey.folder import is_survey_folder

    if is_survey_folder(out):
        from jobs.survey.folder import load_folder
        from jobs.survey.run import check_survey, run_survey

        _refuse_cluster(options)
        plan = load_folder(out.resolve(), folder.config, options.solution, options.confidential)
        for line in check_survey(plan):
            typer.echo(line)
        if not folder.check:
            files = run_survey(plan, options.reporter(), moved=folder.moved)
            name_files(files, plan.config.output.roots)
        return
    from jobs.pipeline.run import resume

    resolved = options.load_again(out, folder.config, options.solution, options.confidential)
    reporter = options.reporter()
    files = resume(resolved, reporter, typer.echo, check=folder.check, moved=folder.moved)
    if files:
        name_files(files, resolved.config.output.roots)


def _work_on_survey(
    work: Callable[[SurveyPlan, Reporter], list[Place]], config: Path, options: RunOptions
) -> None:
    """Load the run file of a survey, work on it in this process, and print the written files."""
    from jobs.survey.plan import load_survey

    _refuse_cluster(options)
    out, confidential, solution = options.out, options.confidential, options.solution
    plan = load_survey(config, output=out, confidential=confidential, solution=solution)
    name_files(work(plan, options.reporter()), plan.config.output.roots)


def _refuse_cluster(options: RunOptions) -> None:
    """Refuse a master or a cluster for a survey."""
    why = "is for censuses; a survey runs in one process"
    refuse_options(why, master=options.master, cluster=options.cluster)


@with_options
def demo(
    options: SessionOptions,
    folder: NewFolderArgument = Path("das-demo"),
    blocks: Annotated[int, typer.Option(help="Approximate number of blocks.")] = 2500,
    seed: Annotated[int, typer.Option(help="Seed of the state; the noise is secret.")] = 2020,
) -> None:
    """Generate a synthetic state and run every stage on it.

    The run file has the schema, budget and allocation of the 2020 redistricting data. All ready
    files are copied to the folder.
    """
    from jobs.design.demo import next_commands, run_demo
    from jobs.design.requests import GenerateSpec

    spec = GenerateSpec(blocks=blocks, seed=seed)
    files, roots = run_demo(folder, spec, options.load, options.reporter())
    name_files(files, roots)
    typer.echo(
        "\nOpen the first file in a browser: the errors of the release against the truth. The "
        "second\nis the public report; microdata and tables are in its folder. Then continue "
        "with:\n"
    )
    for line in next_commands(folder):
        typer.echo(f"  {line}")


@with_options
def evaluate(
    config: ConfigArgument,
    options: RunOptions,
    groups: Annotated[
        str | None,
        typer.Option(help='Population groups to compare, such as "cenrace"; else evaluate.groups.'),
    ] = None,
) -> None:
    """Compare a release with the confidential truth.

    Writes the evaluation and the internal report, which are confidential.
    """
    if is_survey_file(config):
        refuse_options("is for censuses; the run file of a survey has strata", groups=groups)
        from jobs.survey.run import evaluate_survey

        _work_on_survey(evaluate_survey, config, options)
        return
    from das.queries.query import split_queries
    from jobs.pipeline.run import run_evaluating

    compared = None if groups is None else split_queries(groups)
    resolved = options.load(config, groups=compared)
    files = run_evaluating(resolved, options.reporter())
    name_files(files, resolved.config.output.roots)


def prepare() -> None:
    """Check this machine and make runs start faster."""
    from jobs.pipeline.tasks.executor import require_run_packages
    from jobs.pipeline.tasks.java import find_java_home, java_version, make_class_archive
    from jobs.pipeline.tasks.shipping import compile_packages
    from solvers.least_squares.machine_code import compile_kernels

    require_run_packages()
    home = find_java_home()
    archive = make_class_archive()
    typer.echo(f"Java {java_version(home / 'bin' / 'java')} at {home}")
    typer.echo(f"class archive {archive or 'not made; sessions start more slowly'}")
    kept = compile_packages()
    typer.echo(f"byte code {'kept' if kept else 'not kept; each process compiles'}")
    folders = [f"in {folder}" for folder in compile_kernels()]
    for where in folders or ["not kept; each process compiles"]:
        typer.echo(f"compiled solvers {where}")


def account(
    config: ConfigArgument,
    limit: Annotated[
        str | None,
        typer.Option(
            help="Record the most that may be granted for these people in all, a fraction: rho, or "
            "epsilon if the run file says pure. A later limit replaces it, and both stay recorded."
        ),
    ] = None,
    reason: Annotated[
        str, typer.Option(help="With --limit: who decided it, and why. It stays in the account.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Print every budget granted for the data of a run file, or limit what may be granted.

    Failed checks of the data are listed too: their messages disclose facts outside the budget.
    """
    from das.rational import parse_fraction
    from jobs.design.planning.terminal import print_account
    from jobs.pipeline.config.load import load_run
    from jobs.pipeline.config.product import account_of
    from jobs.pipeline.storage import account as accounts

    if is_survey_file(config):
        from jobs.survey.plan import load_survey

        plan = load_survey(config)
        path, definition = plan.account(), plan.config.privacy.definition
    else:
        run_file = load_run(config).config
        path, definition = account_of(run_file), run_file.privacy.definition
    if limit is not None:
        total = parse_fraction(limit, "--limit")
        decision = accounts.BudgetLimit(total, definition, reason, accounts.now())
        accounts.set_limit(path, decision)
    else:
        refuse_options("goes with --limit", reason=reason or None)
    spent, limits = accounts.read_account(path), accounts.read_limits(path)
    print_account(path, spent, limits, accounts.read_failed_checks(path), as_json=as_json)
