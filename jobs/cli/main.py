"""The command line: `das COMMAND CONFIG`.

Results go to standard output, progress to standard error. Exit codes: 0 done, 2 configuration or
input, 3 budget, 4 infeasible, 5 solver, 6 a promise is broken, 7 this machine lacks something.
"""

from __future__ import annotations

import atexit
import gc
import inspect as introspection
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from das.errors import ConfigError, DasError, OutputError
from das.tree.information import Information
from jobs.pipeline.printable import printable
from jobs.pipeline.storage.place import Place, lies_in
from jobs.pipeline.tasks.failures import hide_bridge_logs, machine_failure

if TYPE_CHECKING:
    from jobs.pipeline.config.product import Product, Resolved
    from jobs.pipeline.documents.account import Account
    from jobs.pipeline.storage.layout import Roots
    from jobs.pipeline.tasks.progress import Reporter
    from jobs.survey.plan import SurveyPlan

    AnyPlace = Place
else:
    AnyPlace = type("Place", (), {})  # typer takes no union; the parser gives either kind

_OBJECTS_BETWEEN_COLLECTIONS = 500_000

app = typer.Typer(
    name="das",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Protect census and survey microdata: measure with exact noise, solve, write microdata.",
)


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        from jobs.pipeline.revision import revision

        source = f" ({revision()})" if revision() else ""
        try:
            typer.echo(f"das {version('topdown-das')}{source}")
        except PackageNotFoundError:
            typer.echo(f"das, not installed as a package{source}")
        raise typer.Exit


@app.callback()
def _every_command(
    version: Annotated[
        bool,
        typer.Option("--version", help="Say the version.", is_eager=True, callback=_say_version),
    ] = False,
) -> None:
    """What comes before the name of a command."""


def _local(value: str | Path) -> Path:
    """Read a path; the parser of every path on the command line.

    Raises:
      ConfigError: It is none of this machine, such as a URL.
    """
    from jobs.pipeline.config.local_path import is_endless, local_path

    try:
        path = local_path(value)
    except ValueError as error:
        raise ConfigError(f"path {value}", str(error)) from None
    if is_endless(path):
        raise ConfigError(f"path {value}", "is a device that does not end", want="a file or folder")
    return path


def _master(value: str) -> str:
    """Read a master; the parser of every master on the command line.

    Raises:
      ConfigError: It holds a secret, or is the URL of no server.
    """
    from jobs.pipeline.config.protection import refuse_bad_remote

    try:
        refuse_bad_remote(value)
    except ValueError as error:
        raise ConfigError("--master", str(error)) from None
    return value


def _place(value: str | Place) -> Place:
    """Read a path or an address; the parser of what the command line says of data and runs.

    Raises:
      ConfigError: It is neither, or no store of its kind is known.
    """
    from jobs.pipeline.config.local_path import read_place, without_secrets

    try:
        place = read_place(value)
    except ValueError as error:
        raise ConfigError(f"path {without_secrets(str(value))}", str(error)) from None
    return _local(place) if isinstance(place, Path) else place


ConfigArgument = Annotated[Path, typer.Argument(help="Run file (YAML).", parser=_local)]
FinishedArgument = Annotated[
    AnyPlace,
    typer.Argument(
        help="Folder of a release, a path or an address, or its run file (YAML).", parser=_place
    ),
]
OutOption = Annotated[
    AnyPlace | None,
    typer.Option("--out", help="Path or address; replaces output.directory.", parser=_place),
]
ConfidentialOption = Annotated[
    AnyPlace | None,
    typer.Option(
        "--confidential", help="Path or address; replaces output.confidential.", parser=_place
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option("--master", help="Replaces runtime.master.", parser=_master, metavar="TEXT"),
]
LossesOption = Annotated[
    bool,
    typer.Option(
        "--losses", help="Also what the distribution of the noise says, which is more than its rho."
    ),
]
ClusterOption = Annotated[
    Path | None,
    typer.Option("--cluster", help="YAML whose `runtime` replaces that of the run.", parser=_local),
]
LogOption = Annotated[
    AnyPlace | None,
    typer.Option(
        "--log-json",
        help="Add events to this file, one JSON a line; a path, or an address such as s3://...",
        parser=_place,
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress lines.")]
SolutionOption = Annotated[
    str | None,
    typer.Option("--solution", help="Name of a solution beside the release, in OUT/solutions."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
NewFolderArgument = Annotated[Path, typer.Argument(help="Empty or new folder.", parser=_local)]
MovedConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="Where the run file is now, if it moved.", parser=_local),
]
GeolevelOption = Annotated[
    str | None, typer.Option(help="All geounits of this geolevel, such as county.")
]
ConfidenceOption = Annotated[float, typer.Option(help="Of the intervals.")]
ParquetOption = Annotated[Path | None, typer.Option(help="Write this Parquet file.", parser=_local)]
CsvOption = Annotated[Path | None, typer.Option(help="Write this CSV file.", parser=_local)]
PageOption = Annotated[
    Path, typer.Option("--output", "-o", help="HTML file to write.", parser=_local)
]
WhoseOption = Annotated[str | None, typer.Option(help="Whose release. Default: the last product.")]


@dataclass(frozen=True)
class RunOptions:
    """Options of every command that works on the folder of a run."""

    master: MasterOption = None
    quiet: QuietOption = False
    cluster: ClusterOption = None
    log: LogOption = None
    confidential: ConfidentialOption = None

    def load(
        self,
        config: Path,
        out: Place | None,
        solution: str | None = None,
        groups: Sequence[str] | None = None,
    ) -> Resolved:
        """The run of a run file, on what a cluster file says."""
        from jobs.pipeline.config.load import load_run

        resolved = load_run(
            config,
            output=out,
            confidential=self.confidential,
            master=self.master,
            solution=solution,
            groups=groups,
        )
        return _with_arrow_alone(self.on_cluster(resolved))

    def on_cluster(self, resolved: Resolved) -> Resolved:
        """A run on what a cluster file says."""
        from jobs.pipeline.config.cluster import on_cluster

        return on_cluster(resolved, self.cluster, self.master)

    def reporter(self) -> Reporter:
        """Who watches."""
        from jobs.pipeline.tasks.progress import Reporter

        return Reporter(quiet=self.quiet, log=self.log)


def _with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each field of its parameter `options` as an option of its own."""
    own = dict(introspection.signature(command, eval_str=True).parameters)
    own.pop("options")
    common = introspection.signature(RunOptions, eval_str=True).parameters
    parameters = {**own, **common}

    @wraps(command)
    def run(**values: Any) -> None:  # noqa: ANN401 - as the command line gives them
        options = RunOptions(**{name: values.pop(name) for name in common})
        command(**values, options=options)

    run.__annotations__ = {name: option.annotation for name, option in parameters.items()}
    run.__signature__ = introspection.Signature([*parameters.values()])  # type: ignore[attr-defined]
    return run


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

    if _is_survey(config):
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
    from jobs.pipeline.config.claims import account_of
    from jobs.pipeline.config.load import load_run

    resolved = load_run(config)
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
    print_summaries(summaries, as_json=as_json, together=_together(resolved))


def _together(resolved: Resolved) -> Account | None:
    """What the products of a run cost together; None of one."""
    from jobs.pipeline.config.claims import claim_of
    from jobs.pipeline.documents.account import account_of_grants

    claims = [claim_of(resolved, product, "") for product in resolved.products.values()]
    return account_of_grants(claims) if len(claims) > 1 else None


@app.command()
def plan(  # noqa: PLR0913 - one parameter per command-line option
    config: ConfigArgument,
    losses: LossesOption = False,
    as_json: JsonOption = False,
    master: MasterOption = None,
    quiet: QuietOption = False,
    tables: Annotated[
        str | None,
        typer.Option(
            help='Tables to predict and optimize, such as "total, sex * age". Default: '
            "output.tables."
        ),
    ] = None,
    allocation: Annotated[
        Path | None,
        typer.Option(help="Allocation file, in the place of that of the run file.", parser=_local),
    ] = None,
    optimize: Annotated[
        Path | None,
        typer.Option(
            help="Write the best allocation for the tables to this new file.", parser=_local
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="YAML: table to a weight or {geolevel: weight}. Default: all equal.",
            parser=_local,
        ),
    ] = None,
    targets: Annotated[
        Path | None,
        typer.Option(
            help="YAML: table to the largest root mean squared error or {geolevel: it}.",
            parser=_local,
        ),
    ] = None,
    floors: Annotated[
        Path | None,
        typer.Option(
            help="YAML: table to the largest root mean squared error that the best allocation may "
            "leave it, or {geolevel: it}.",
            parser=_local,
        ),
    ] = None,
    others: Annotated[
        float | None,
        typer.Option(
            help="Factor by which no table may get worse at any geolevel: 1 for not at all."
        ),
    ] = None,
    equity: Annotated[
        Path | None,
        typer.Option(
            help="YAML: groups whose errors are predicted; with --optimize, made least for the "
            "worst of them, or met as targets.",
            parser=_local,
        ),
    ] = None,
    information: Annotated[
        Information, typer.Option(help="Optimize estimates from these measurements.")
    ] = Information.OWN,
    report: Annotated[
        Path | None,
        typer.Option(help="Write tables and plots to this HTML file.", parser=_local),
    ] = None,
    covariance: Annotated[
        str | None,
        typer.Option(
            help='Predict covariances of the answers of two queries, such as "sex * age; total", '
            "or of one."
        ),
    ] = None,
    product: Annotated[
        str | None,
        typer.Option(help="Product that all options are about. Default: the last."),
    ] = None,
) -> None:
    """Read the list of geounits; print what will be measured where, and how far off tables will be.

    With --optimize, also find the allocation that makes the tables most accurate.
    """
    from das.queries.query import split_queries
    from jobs.design.planning.allocation import GoalFiles
    from jobs.design.planning.request import PlanRequest, explain
    from jobs.design.planning.terminal import print_summaries
    from jobs.pipeline.confidential.geounits import lattice_of
    from jobs.pipeline.config.load import load_plan
    from jobs.pipeline.tasks.progress import Reporter

    asked = None if tables is None else split_queries(tables)
    wanted = None if optimize is None else asked or []
    resolved = load_plan(config, wanted, allocation, master, product)
    goal = GoalFiles(optimize, weights, targets, floors, others, allocation)
    request = PlanRequest(asked, losses, goal, equity, information, report, covariance, product)
    summaries = explain(resolved, request, partial(lattice_of, resolved), Reporter(quiet=quiet))
    print_summaries(summaries, as_json=as_json, together=_together(resolved))


@app.command()
def fairness(
    config: ConfigArgument,
    geolevel: Annotated[
        str | None, typer.Option(help="Whose budget is planned with. Default: the last.")
    ] = None,
    tables: Annotated[
        str | None,
        typer.Option(
            help='Tables of attributes, such as "total, sex * age". Default: those of the '
            "workload of the allocation, or all of few attributes."
        ),
    ] = None,
    order: Annotated[int, typer.Option(help="Most attributes of a table, by default.")] = 3,
    report: Annotated[
        Path | None,
        typer.Option(help="Write tables and pictures to this HTML file.", parser=_local),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Which cells would get more noise than others, by planner and objective; reads no data."""
    from das.queries.query import split_queries
    from jobs.design.planning.fairness import FairnessRequest, compare_methods
    from jobs.design.planning.fairness_terminal import print_fairness
    from jobs.pipeline.config.load import load_run
    from jobs.pipeline.storage.files import refuse_foreign

    if report is not None:
        refuse_foreign(report, b"<!DOCTYPE html>", "a report, which is replaced")
    asked = None if tables is None else split_queries(tables)
    product = load_run(config).last
    summary = compare_methods(product, FairnessRequest(geolevel, asked, order))
    if report is not None:
        from jobs.design.planning.fairness_page import write_fairness_page

        write_fairness_page(summary, report)
    print_fairness(summary, as_json=as_json)


@app.command()
@_with_run_options
def run(config: ConfigArgument, out: OutOption = None, *, options: RunOptions) -> None:
    """Run every stage that is not complete, and name the files written."""
    if _is_survey(config):
        from jobs.survey.run import run_survey

        _work_on_survey(run_survey, config, out, None, options)
        return
    from jobs.pipeline.run import run as run_all

    resolved = options.load(config, out)
    _name_files(run_all(resolved, options.reporter()), resolved.config.output.roots)


@app.command()
@_with_run_options
def demo(
    folder: NewFolderArgument = Path("das-demo"),
    blocks: Annotated[int, typer.Option(help="About how many blocks.")] = 2500,
    seed: Annotated[int, typer.Option(help="Of the state; the noise is secret.")] = 2020,
    *,
    options: RunOptions,
) -> None:
    """Generate a synthetic state and run every stage on it; copies of all ready files come along.

    The run file is that of the 2020 redistricting data: its schema, budget and allocation.
    """
    from jobs.design.demo import Demo

    made = Demo(folder, blocks, seed)
    files, roots = made.run(partial(options.load, out=None), options.reporter())
    _name_files(files, roots)
    typer.echo(
        "\nOpen the first file in a browser: how far the release is from the truth. The second is\n"
        "what the public reads, with microdata and tables beside it. Then go on with:\n"
    )
    for line in made.next_commands():
        typer.echo(f"  {line}")


@app.command()
def init(  # noqa: PLR0913 - one parameter per command-line option
    data: Annotated[
        AnyPlace,
        typer.Argument(help="CSV or Parquet file of person records, or a folder.", parser=_place),
    ],
    folder: NewFolderArgument = Path("das-init"),
    geocode: Annotated[
        str | None,
        typer.Option(
            help="Column of the geocodes, or, root first, those that make them, such as "
            "PROV,MUN,SECC. Default: one is found out."
        ),
    ] = None,
    geolevels: Annotated[
        str | None,
        typer.Option(
            help='Names and lengths of geocodes, root first, such as "province 2, village 6". '
            "Default: proposed."
        ),
    ] = None,
    geounits: Annotated[
        AnyPlace | None,
        typer.Option(help="Public list of all geounits, empty ones included.", parser=_place),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(help='Wanted, such as "sex * age"; again for more. Default: one each.'),
    ] = None,
    rho: Annotated[str | None, typer.Option(help="The budget, a fraction. Default: 1.")] = None,
    codebook: Annotated[
        AnyPlace | None,
        typer.Option(help="Public table with columns column, code and label.", parser=_place),
    ] = None,
    leave_out: Annotated[
        list[str] | None, typer.Option(help="Column that is not used; again for more.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Column of codes that looks like something else; again for more."),
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(help="Field separator of a CSV file. Default: found out.")
    ] = None,
    rows: Annotated[int, typer.Option(help="How many rows are looked at.")] = 1_000_000,
) -> None:
    """Look at person records and propose schema, run file and allocation for them.

    Reads confidential data, and prints and writes no counts. Levels of the schema are suggestions
    from the data, to be compared with the questionnaire.
    """
    from jobs.design.drafting.draft import Request, draft

    made = draft(
        Request(
            data,
            folder,
            geocode,
            () if geolevels is None else tuple(geolevels.split(",")),
            geounits,
            tuple(table or ()),
            rho,
            codebook,
            tuple(leave_out or ()),
            tuple(keep or ()),
            delimiter,
            rows,
        )
    )
    for path in made.files:
        typer.echo(printable(str(path)))
    if not made.is_whole:
        typer.echo(f"looked at the first {rows:,} rows: codes may come later that have no level")
    typer.echo("\nCheck, in these files:")
    for check in made.checks:
        typer.echo(printable(f"  {check}"))
    typer.echo("\nThen go on with:\n")
    run = shlex.quote(str(folder / "run.yaml"))
    for line in (f"das validate {run}", f"das generate rehearsal --like {run}", f"das run {run}"):
        typer.echo(printable(f"  {line}"))


@app.command()
@_with_run_options
def measure(config: ConfigArgument, out: OutOption = None, *, options: RunOptions) -> None:
    """Read the data and draw the noisy measurements, once."""
    if _is_survey(config):
        from jobs.survey.run import measure_survey

        _work_on_survey(measure_survey, config, out, None, options)
        return
    from jobs.pipeline.run import run_measuring

    resolved = options.load(config, out)
    files = run_measuring(resolved, options.reporter())
    _name_files(files, resolved.config.output.roots)


@app.command()
@_with_run_options
def solve(
    config: ConfigArgument,
    out: OutOption = None,
    solution: SolutionOption = None,
    *,
    options: RunOptions,
) -> None:
    """From committed measurements to counts, microdata, tables, manifest and public report.

    The sections `solve` and `output` of the run file may change after measuring. A sealed release
    is never made again with other settings; --solution makes another one beside it. Of a survey:
    means, tables and microdata from its measurements; `shrink` and the settings of the model may
    change.
    """
    if _is_survey(config):
        from jobs.survey.run import solve_survey

        _work_on_survey(solve_survey, config, out, solution, options)
        return
    from jobs.pipeline.run import run_solving

    resolved = options.load(config, out, solution)
    files = run_solving(resolved, options.reporter())
    _name_files(files, resolved.config.output.roots)


def _refuse_old_survey_command(name: str) -> NoReturn:
    """Name the commands by which a survey is drawn now.

    Raises:
      ConfigError: Always.
    """
    raise ConfigError(
        f"das {name}",
        "no longer draws noise: `das run` and `das measure` alone do",
        want="das run FILE for all parts; das solve FILE --solution NAME to make means or "
        "microdata again with other settings",
    )


@app.command(hidden=True)
def means(config: ConfigArgument) -> None:
    """Name `das run`, which measures the means of a survey."""
    _refuse_old_survey_command("means")


@app.command(hidden=True)
def synthesize(config: ConfigArgument) -> None:
    """Name `das run`, which draws microdata of a survey."""
    _refuse_old_survey_command("synthesize")


@app.command()
@_with_run_options
def tables(  # noqa: PLR0913 - one parameter per command-line option
    config: FinishedArgument,
    table: Annotated[
        list[str] | None,
        typer.Option(help='Table, such as "sex * age"; again for more. Default: output.tables.'),
    ] = None,
    geolevel: Annotated[
        list[str] | None,
        typer.Option(help="Geolevel, such as tract; again for more. Default: all of a table."),
    ] = None,
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", help="csv, parquet or xlsx; again for more. Default: csv."),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the files, which may be there. Default: tables.", parser=_local
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            help="Of intervals. Default: 0.9. With another than that of `das replicate` there are "
            "no intervals of counts."
        ),
    ] = None,
    product: Annotated[
        str | None, typer.Option(help="Whose tables. Default: the last product.")
    ] = None,
    out: OutOption = None,
    solution: SolutionOption = None,
    *,
    options: RunOptions,
) -> None:
    """Write tables of a release, any query of any geolevel, a file each."""
    if isinstance(config, Path) and not config.is_dir() and _is_survey(config):
        _refuse_old_survey_command("tables")
    from jobs.analysis.tables import TablesRequest, write_release_tables

    _refuse_cluster(options, "is for runs; tables of a release are written by one process")
    names = (table or (), geolevel or (), formats or ("csv",))
    request = TablesRequest(*names, product, confidence)
    resolved = _with_arrow_alone(_finished(config, out, solution))
    folder = Path("tables") if to is None else to
    for path in write_release_tables(resolved, request, folder, options.reporter()):
        typer.echo(printable(f"{path}  publishable"))


@app.command()
@_with_run_options
def evaluate(
    config: ConfigArgument,
    out: OutOption = None,
    solution: SolutionOption = None,
    groups: Annotated[
        str | None,
        typer.Option(
            help='Whose errors are added up, such as "cenrace, hispanic * cenrace". Default: '
            "evaluate.groups."
        ),
    ] = None,
    *,
    options: RunOptions,
) -> None:
    """Compare a finished release with the truth (confidential) and write the internal report."""
    if _is_survey(config):
        if groups is not None:
            raise ConfigError("--groups", "is for censuses; the run file of a survey has strata")
        from jobs.survey.run import evaluate_survey

        _work_on_survey(evaluate_survey, config, out, solution, options)
        return
    from das.queries.query import split_queries
    from jobs.pipeline.run import run_evaluating

    asked = None if groups is None else split_queries(groups)
    resolved = options.load(config, out, solution, asked)
    files = run_evaluating(resolved, options.reporter())
    _name_files(files, resolved.config.output.roots)


@app.command()
@_with_run_options
def resume(
    out: Annotated[
        AnyPlace, typer.Argument(help="Folder of a run, complete or not.", parser=_place)
    ],
    config: MovedConfigOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only say what is done and what is damaged.")
    ] = False,
    moved: Annotated[
        bool,
        typer.Option("--moved", help="This folder goes on; every other copy of it is given up."),
    ] = False,
    solution: SolutionOption = None,
    *,
    options: RunOptions,
) -> None:
    """Go on with the run of a folder: check all that is done, make again what is damaged, finish.

    Nothing is measured twice. Lost noisy answers are an error.
    """
    from jobs.survey.folder import is_survey_folder

    if is_survey_folder(out):
        _resume_survey(out.resolve(), config, solution, options, check=check, moved=moved)
        return
    from jobs.pipeline.folder.damage import refuse_damage, repair
    from jobs.pipeline.folder.identity import load_again
    from jobs.pipeline.folder.lock import only_driver
    from jobs.pipeline.folder.progress import count_files, stage_progress
    from jobs.pipeline.folder.solutions import refuse_sealed
    from jobs.pipeline.run import STAGES
    from jobs.pipeline.run import run as run_all

    resolved = options.on_cluster(
        load_again(out.resolve(), config, options.master, solution, options.confidential)
    )
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
        _name_files(made, resolved.config.output.roots)


@app.command()
def prepare() -> None:
    """Check this machine and make embedded sessions start faster; run once after installing."""
    from jobs.pipeline.tasks.byte_code import compile_packages
    from jobs.pipeline.tasks.installed import require_run_packages
    from jobs.pipeline.tasks.java import find_java_home, java_version, make_class_archive
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
def report(
    out: Annotated[
        AnyPlace,
        typer.Argument(help="Folder of a finished run, or of a release.", parser=_place),
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the public reports, which are then all that is written. Default: the "
            "release.",
            parser=_local,
        ),
    ] = None,
    solution: SolutionOption = None,
) -> None:
    """Write the reports of a finished run again, from its manifest and evaluation.

    Of a release alone, the public ones.
    """
    from jinja2 import TemplateError

    from jobs.pipeline.config.released import is_survey_release
    from jobs.pipeline.folder.roots import remembered_roots
    from jobs.pipeline.report.finished import write_internal_reports, write_public_reports
    from jobs.pipeline.storage.files import understanding
    from jobs.pipeline.storage.layout import ReleaseLayout, Roots, is_release, release_layout
    from jobs.survey.folder import is_survey_folder
    from jobs.survey.reports import write_pages, write_public_page

    alone = is_release(out) and solution is None
    roots = Roots.of(out) if alone else remembered_roots(out)
    release = ReleaseLayout(out) if alone else release_layout(out, solution)
    with understanding(release.manifest, "restore it from a copy of the release"):
        try:
            if alone and is_survey_release(out):
                files = [write_public_page(release, to)]
            elif not alone and (out / "run.json").exists() and is_survey_folder(out):
                files = write_pages(roots, solution, to)
            else:
                elsewhere = f"`das report {out} --to FOLDER` writes it elsewhere"
                remedy = "name another folder" if to is not None else elsewhere
                public = write_public_reports(release, to, remedy=remedy)
                is_whole = not alone and to is None
                files = write_internal_reports(roots, solution) if is_whole else []
                files += public
        except TemplateError as error:
            raise ValueError(str(error)) from None
    _name_files(files, roots)


@app.command()
def verify(
    config: FinishedArgument,
    out: OutOption = None,
    solution: SolutionOption = None,
    quiet: QuietOption = False,
) -> None:
    """Check a finished release from its files alone: digests, sums over the tree, invariants."""
    survey = _finished_survey(config, out, solution)
    if survey is not None:
        from jobs.survey.verify import verify_survey

        typer.echo(json.dumps(verify_survey(survey)))
        return
    from jobs.pipeline.release.verify import verify_run
    from jobs.pipeline.tasks.progress import Reporter

    resolved = _with_arrow_alone(_finished(config, out, solution))
    with Reporter(quiet=quiet).line("verify", str(resolved.last.release.root)) as tick:
        checked = verify_run(resolved, tick)
    typer.echo(json.dumps(checked))


@app.command()
def account(config: ConfigArgument, as_json: JsonOption = False) -> None:
    """List every budget granted for the people of a run file's data, and what they add up to.

    Also the checks of the data that failed, whose errors told something that no budget paid for.
    """
    from jobs.design.planning.terminal import print_account
    from jobs.pipeline.config.claims import account_of
    from jobs.pipeline.config.load import load_run
    from jobs.pipeline.documents.account import account_of_grants
    from jobs.pipeline.storage.account import read_account, read_failed_checks

    if _is_survey(config):
        from jobs.survey.plan import load_survey

        path = load_survey(config).account()
    else:
        path = account_of(load_run(config).config)
    granted = account_of_grants(read_account(path))
    print_account(path, granted, read_failed_checks(path), as_json=as_json)


@app.command()
def inspect(
    out: Annotated[
        AnyPlace,
        typer.Argument(help="Folder of a run, complete or not, or of a release.", parser=_place),
    ],
    geocode: Annotated[str | None, typer.Option(help="Show this geounit's release.")] = None,
    query: Annotated[str | None, typer.Option(help="Only this query.")] = None,
    solution: SolutionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a run folder holds, or what was released of one geounit. Reads no truth."""
    from jobs.analysis.inspect import inspect_geounit, inspect_run, print_inspection
    from jobs.survey.folder import refuse_survey_folder

    if geocode is None:
        document = inspect_run(out, solution)
    else:
        refuse_survey_folder(out)
        document = inspect_geounit(out, geocode, query, solution)
    print_inspection(document, as_json=as_json)


@app.command()
def estimate(  # noqa: PLR0913 - one parameter per command-line option
    config: FinishedArgument,
    query: Annotated[str, typer.Option(help='Query, such as "votingage * hispanic".')] = "total",
    area: Annotated[
        AnyPlace | None,
        typer.Option(
            help="File of leaf geocodes, one a line, or of areas and geocodes, as CSV.",
            parser=_place,
        ),
    ] = None,
    geounit: Annotated[list[str] | None, typer.Option(help="Geocode of any geolevel.")] = None,
    geolevel: GeolevelOption = None,
    confidence: ConfidenceOption = 0.9,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="For all answers of a table together.")
    ] = False,
    positive: Annotated[
        bool, typer.Option("--positive", help="For truths that cannot be negative.")
    ] = False,
    covariance: Annotated[
        str | None,
        typer.Option(help="Covariances with the answers of this query, instead of estimates."),
    ] = None,
    parquet: ParquetOption = None,
    csv: CsvOption = None,
    out: OutOption = None,
    solution: SolutionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Unbiased estimates of any area from the noisy answers, with standard errors and intervals."""
    from jobs.analysis.area_files import AreaFile, read_areas
    from jobs.analysis.estimate import (
        CSV_START,
        IntervalSettings,
        estimate_areas,
        estimate_covariances,
        report_estimates,
    )
    from jobs.analysis.geocodes import NamedGeounits
    from jobs.analysis.results import ResultFile
    from jobs.pipeline.documents.covariance import parse_pair

    file = ResultFile("das estimate", parquet, csv)
    file.check(CSV_START)
    resolved = _finished(config, out, solution)
    release = resolved.last.release
    known, named = NamedGeounits(resolved.plan, release), AreaFile({}, ())
    if area is not None:
        named = read_areas(area, known.leaves, resolved.plan.leaf.name)
    for note in named.notes:
        typer.echo(printable(f"{area}: {note}"), err=True)
    codes = list(geounit or [])
    if geolevel is not None:
        codes += known.all_of(geolevel)
    if covariance is not None:
        pair = parse_pair(resolved.plan.schema, f"{query}; {covariance}")
        found = estimate_covariances(resolved.plan, release, pair, named.areas, codes)
    else:
        wanted = IntervalSettings(confidence, simultaneous, positive)
        found = estimate_areas(resolved.plan, release, query, named.areas, codes, wanted)
    report_estimates(found, file, as_json=as_json)


@app.command()
def areas(  # noqa: PLR0913 - one parameter per command-line option
    config: FinishedArgument,
    assign: Annotated[
        AnyPlace | None,
        typer.Option(
            help="Block-assignment file: areas and leaf geocodes, as CSV of any kind.",
            parser=_place,
        ),
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="Column of the areas, in a file with several.")
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(help='Table beside the total, such as "sex * age[65+]"; again for more.'),
    ] = None,
    geounit: Annotated[
        list[str] | None, typer.Option(help="Geocode of any geolevel, as one more area.")
    ] = None,
    geolevel: GeolevelOption = None,
    confidence: ConfidenceOption = 0.9,
    ideal: Annotated[
        float | None,
        typer.Option(help="Persons of the ideal area. Default: an even share of all."),
    ] = None,
    boundaries: Annotated[
        Path | None, typer.Option(help="GeoJSON of the areas, for --geojson.", parser=_local)
    ] = None,
    join: Annotated[
        str | None, typer.Option(help="Property of its features that names the area.")
    ] = None,
    geojson: Annotated[
        Path | None,
        typer.Option(help="Write the boundaries with the numbers to this file.", parser=_local),
    ] = None,
    parquet: ParquetOption = None,
    csv: CsvOption = None,
    out: OutOption = None,
    solution: SolutionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tables of districts or other areas: counts, estimates, intervals, deviation from the ideal.

    Counts have intervals too after `das replicate --areas`.
    """
    from jobs.analysis.areas import (
        CSV_START,
        MOST_PRINTED,
        MOST_ROWS,
        AreaSettings,
        name_areas,
        report_areas,
        tabulate_areas,
    )
    from jobs.analysis.boundaries import Boundaries
    from jobs.analysis.results import ResultFile

    file = ResultFile("das areas", parquet, csv)
    file.check(CSV_START)
    asked = Boundaries.of(boundaries, join, geojson)
    resolved = _with_arrow_alone(_finished(config, out, solution))
    named = name_areas(resolved, assign, geounit or (), geolevel, column)
    for note in named.notes:
        typer.echo(printable(f"{assign}: {note}"), err=True)
    is_printed = asked is None and file.path is None
    most = MOST_PRINTED if is_printed else MOST_ROWS
    settings = AreaSettings(confidence, ideal, most)
    found = tabulate_areas(resolved, named.areas, table or (), settings, named.notes)
    if asked is not None:
        for note in asked.write(found.table):
            typer.echo(printable(f"{boundaries}: {note}"), err=True)
        typer.echo(printable(f"{geojson}  publishable"))
    if file.path is not None:
        file.write(found.table)
        typer.echo(printable(f"{file.path}  publishable"))
    if is_printed:
        report_areas(found, as_json=as_json)


@app.command()
def explore(  # noqa: PLR0913 - one parameter per command-line option
    config: Annotated[
        AnyPlace,
        typer.Argument(
            help="Folder of a release or of a run, a path or an address, or the run file (YAML).",
            parser=_place,
        ),
    ],
    output: PageOption = Path("explore.html"),
    boundaries: Annotated[
        Path | None,
        typer.Option(
            help="GeoJSON, or GeoParquet with WKB, that has the outlines of geounits.",
            parser=_local,
        ),
    ] = None,
    join: Annotated[
        str | None,
        typer.Option(
            help="Property of the boundaries that is the geocode. Default: the one that fits."
        ),
    ] = None,
    names: Annotated[
        str | None, typer.Option(help="Property of the boundaries that is the name of a place.")
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(help="Table to show, such as total. Default: all of the release."),
    ] = None,
    geolevel: Annotated[
        list[str] | None, typer.Option(help="Geolevel to show. Default: all.")
    ] = None,
    product: WhoseOption = None,
    internal: Annotated[
        bool,
        typer.Option(
            "--internal", help="With errors, told from the truth: the page is CONFIDENTIAL."
        ),
    ] = False,
    megabytes: Annotated[
        float, typer.Option(help="What the page may have; more is left out, and said so.")
    ] = 5.0,
    out: OutOption = None,
    solution: SolutionOption = None,
) -> None:
    """Write one page to find places of a release, compare them and see a map; it needs no network.

    Protected counts, estimates and intervals side by side.
    """
    from jobs.analysis.explore import ExploreRequest
    from jobs.analysis.explore import explore as write_page
    from jobs.pipeline.report.page import START
    from jobs.pipeline.storage.files import refuse_foreign
    from jobs.pipeline.storage.layout import is_publishable

    refuse_foreign(output, START, "a page, which is replaced")
    resolved = _with_arrow_alone(_finished_run(config, out, solution))
    own, errors = _product(resolved, product), None
    if internal:
        from jobs.pipeline.confidential.errors import errors_of

        if is_publishable(output, resolved.config.output.directory):
            raise OutputError(
                str(output), "lies in the release; the page is confidential", want="another folder"
            )
        errors = errors_of(own)
    asked = ExploreRequest(table, geolevel, boundaries, join, names, megabytes)
    made = write_page(own, asked, output, errors)
    for note in made.notes:
        typer.echo(printable(note), err=True)
    kind = "CONFIDENTIAL" if internal else "publishable"
    typer.echo(printable(f"{output}  {made.bytes / 1e6:.1f} MB  {kind}"))


@app.command()
def certificate(
    config: FinishedArgument,
    output: PageOption = Path("certificate.html"),
    product: WhoseOption = None,
    out: OutOption = None,
    solution: SolutionOption = None,
    quiet: QuietOption = False,
) -> None:
    """Verify a release and write one page to sign: guarantee, budget, exact values, digests.

    A browser prints it on one sheet, or as a PDF.
    """
    from datetime import UTC, datetime

    from jobs.pipeline.documents.intervals import digest_of
    from jobs.pipeline.documents.manifest import read_manifest
    from jobs.pipeline.release.verify import verify_run
    from jobs.pipeline.report.certificate import Verified, write_certificate
    from jobs.pipeline.report.page import START
    from jobs.pipeline.storage.files import refuse_foreign
    from jobs.pipeline.tasks.progress import Reporter

    refuse_foreign(output, START, "a page, which is replaced")
    survey = _finished_survey(config, out, solution)
    if survey is not None:
        from jobs.survey.documents import read_survey_manifest
        from jobs.survey.report.certificate import write_survey_certificate
        from jobs.survey.verify import verify_survey

        if product is not None:
            raise ConfigError("--product", "is for censuses: a survey is one product", got=product)
        place = survey.made.manifest
        found = Verified(digest_of(place), datetime.now(UTC), verify_survey(survey))
        write_survey_certificate(read_survey_manifest(place), found, output)
        typer.echo(printable(f"{output}  publishable"))
        return
    resolved = _with_arrow_alone(_finished(config, out, solution))
    own = _product(resolved, product)
    with Reporter(quiet=quiet).line("verify", str(resolved.last.release.root)) as tick:
        checked = verify_run(resolved, tick)
    verified = Verified(digest_of(own.release.manifest), datetime.now(UTC), checked)
    write_certificate(read_manifest(own.release), verified, output)
    typer.echo(printable(f"{output}  publishable"))


@app.command("import-nmf")
def import_nmf(  # noqa: PLR0913 - one parameter per command-line option
    nmf: Annotated[
        Path,
        typer.Argument(
            help="Folder with <Geolevel>.parquet, such as US_Person_PL_PROD.", parser=_local
        ),
    ],
    folder: Annotated[
        Path, typer.Argument(help="New folder for the run file and the run.", parser=_local)
    ],
    schema: Annotated[
        Path | None,
        typer.Option(
            help="Schema file. Default: the ready one of their attributes.", parser=_local
        ),
    ] = None,
    allocation: Annotated[
        Path | None,
        typer.Option(
            help="Allocation that was measured. Default: a published one with these variances, or "
            "what they say.",
            parser=_local,
        ),
    ] = None,
    rho: Annotated[
        str | None, typer.Option(help="Budget that --allocation splits, such as 293764/114921.")
    ] = None,
    root: Annotated[
        str | None, typer.Option(help="Geolevel to begin with, such as state. Default: the first.")
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(help="Constraint that is not taken over, such as hhgq_total_ub."),
    ] = None,
    product: Annotated[
        str | None, typer.Option(help="What the records are called. Default: persons, or units.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Read the Census Bureau's noisy measurement files as a run that has measured; spends nothing.

    Then `das solve` makes counts of them, and `das estimate` estimates and intervals.
    """
    from das.rational import parse_fraction
    from jobs.analysis.import_nmf import NmfImport
    from jobs.pipeline.tasks.progress import Reporter

    asked = NmfImport(
        nmf,
        folder,
        schema,
        allocation,
        None if rho is None else parse_fraction(rho, "--rho"),
        root,
        tuple(leave_out or ()),
        product,
    )
    typer.echo(printable(str(asked.read(Reporter(quiet=quiet)))))


@app.command("export-nmf")
def export_nmf(
    config: ConfigArgument,
    folder: Annotated[
        Path, typer.Argument(help="New folder for <Geolevel>.parquet.", parser=_local)
    ],
    out: OutOption = None,
    product: Annotated[
        str | None, typer.Option(help="Whose measurements. Default: the last product.")
    ] = None,
    without_constraints: Annotated[
        bool, typer.Option("--without-constraints", help="Leave the invariants out.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Write the noisy answers of a run in the layout of the Bureau's noisy measurement files."""
    from jobs.analysis.export_nmf import NmfExport
    from jobs.pipeline.config.load import load_run
    from jobs.pipeline.tasks.progress import Reporter

    resolved = load_run(config, output=out)
    export = NmfExport.of(resolved, product, folder, with_constraints=not without_constraints)
    typer.echo(json.dumps(export.write(Reporter(quiet=quiet))))


@app.command()
@_with_run_options
def replicate(  # noqa: PLR0913 - one parameter per command-line option
    out: Annotated[AnyPlace, typer.Argument(help="Folder of a finished run.", parser=_place)],
    count: Annotated[int, typer.Option(help="How many, those of earlier starts included.")] = 40,
    seed: Annotated[int, typer.Option(help="Of their noise; no secret.")] = 1,
    confidence: ConfidenceOption = 0.9,
    areas: Annotated[
        bool,
        typer.Option("--areas", help="Keep leaf counts, for intervals of `das areas`."),
    ] = False,
    config: MovedConfigOption = None,
    solution: SolutionOption = None,
    *,
    options: RunOptions,
) -> None:
    """Repeat a run from its release as if that were the truth: errors and intervals of counts.

    Reads nothing confidential and costs no budget. Run again with a larger count, it goes on.
    """
    from jobs.analysis.replicate import ReplicateSettings
    from jobs.analysis.replicate import replicate as replicate_all
    from jobs.pipeline.folder.identity import load_again
    from jobs.survey.folder import refuse_survey_folder

    refuse_survey_folder(out)
    resolved = _with_arrow_alone(
        options.on_cluster(
            load_again(out.resolve(), config, options.master, solution, options.confidential)
        )
    )
    settings = ReplicateSettings(count, seed, Fraction(str(confidence)), areas)
    files = replicate_all(resolved, settings, options.reporter())
    _name_files(files, resolved.config.output.roots)


@app.command()
def spine(config: ConfigArgument) -> None:
    """What the spine of a run changes, as JSON: geolevels, geounits, distances of entities."""
    from jobs.analysis.respine import summarize_spine
    from jobs.pipeline.config.load import load_run

    typer.echo(json.dumps(summarize_spine(load_run(config)), indent=1))


@app.command()
def generate(  # noqa: PLR0913 - one parameter per command-line option
    out: NewFolderArgument,
    blocks: Annotated[int, typer.Option(help="About how many blocks.")] = 3000,
    states: Annotated[int, typer.Option(help="Number of states.")] = 1,
    listed: Annotated[
        AnyPlace | None,
        typer.Option(
            "--list",
            help="Public table of blocks with their housing units, which set the numbers of "
            "persons; then --blocks and --states count for nothing.",
            parser=_place,
        ),
    ] = None,
    columns: Annotated[
        str,
        typer.Option(help="Of the list: geocode, housing units and perhaps group quarters."),
    ] = "geocode, housing_units",
    every: Annotated[int, typer.Option(help="Of the list: one of so many tracts.")] = 1,
    tracts: Annotated[
        float | None,
        typer.Option(
            help="Mean number of tracts of a county, 27 in the census of 2020; by default 8, and "
            "more in a state of over 150 counties."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same nation.")] = 2020,
    schema: Annotated[  # the list of jobs.design.synthetic.schemas, which takes long to import
        str,
        typer.Option(
            help="pl94, pl94_tables, block16, group_quarters, dhc_persons, dhc_households, "
            "census1940, toy, residents (persons beside units by size) or survey (persons without "
            "geography; the path of a schema file invents persons of it)."
        ),
    ] = "pl94",
    like: Annotated[
        Path | None,
        typer.Option(
            help="Run file: invent what it reads, and a run file of that, to rehearse it.",
            parser=_local,
        ),
    ] = None,
    output: Annotated[
        str, typer.Option("--format", help="records, histograms or block_table.")
    ] = "records",
    persons: Annotated[
        int | None,
        typer.Option(
            help="Of a survey: persons, by default 20,000. With --like or a schema file: about how "
            "many, by default 40 a block."
        ),
    ] = None,
    prims: Annotated[
        bool,
        typer.Option(
            "--prims",
            help="Geocodes of the eight geolevels of the 2020 tables of persons, and the same "
            "persons in the cells of pl94.",
        ),
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Write a synthetic nation, data and the public list of its blocks; or an invented survey.

    With --like, or a schema file as --schema, persons are invented whose attributes do not depend
    on each other: they look like nobody's, and rehearse a run.
    """
    if like is not None:
        from jobs.design.synthetic.rehearsal import Rehearsal

        typer.echo(json.dumps(Rehearsal(like, out, blocks, persons, seed).write()))
        return
    if schema == "survey":
        from jobs.design.synthetic.survey import generate_survey

        typer.echo(json.dumps(generate_survey(out, persons or 20_000, seed)))
        return
    if schema.endswith((".yaml", ".yml")):
        from jobs.design.synthetic.own_schema import OwnSpec

        column = columns.split(",")[0].strip()
        own = OwnSpec(_local(schema), blocks, states, listed, column, persons, seed, output)
        typer.echo(json.dumps(own.write(out)))
        return
    from jobs.design.synthetic.generate import GenerateSpec
    from jobs.design.synthetic.generate import generate as generate_nation
    from jobs.design.synthetic.listed import BlockList
    from jobs.pipeline.tasks.progress import Reporter

    if listed is None:
        spec = GenerateSpec(
            seed=seed,
            blocks=blocks,
            states=states,
            schema=schema,
            format=output,
            with_prims=prims,
            tracts=tracts,
        )
    else:
        named = tuple(name.strip() for name in columns.split(","))
        source = BlockList(listed, named, every)
        spec = GenerateSpec(
            seed=seed, listed=source, schema=schema, format=output, with_prims=prims
        )
    what = f"{blocks} blocks" if listed is None else str(listed)
    with Reporter(quiet=quiet).line("generate", what) as tick:
        summary: Any = generate_nation(spec, out, progress=tick)
    typer.echo(json.dumps(summary, default=str))


def _with_arrow_alone(resolved: Resolved) -> Resolved:
    """The run, after Arrow was told that there is no pandas; a Connect session needs it."""
    from jobs.pipeline.config.protection import REMOTE_VARIABLE, is_remote

    if not is_remote(resolved.config.runtime.master or os.environ.get(REMOTE_VARIABLE, "")):
        from jobs.pipeline.tasks.arrow_alone import leave_pandas_out

        leave_pandas_out()
    return resolved


def _finished(config: Place, out: Place | None, solution: str | None) -> Resolved:
    """The run of a run file, or of the folder of a release alone.

    Raises:
      ConfigError: Options that go with a run file were given with a folder.
    """
    from jobs.pipeline.config.load import load_run
    from jobs.pipeline.config.released import load_release

    if isinstance(config, Path) and not config.is_dir():
        return load_run(config, output=out, solution=solution)
    _refuse_with_folder(config, out, solution)
    return load_release(config)


def _finished_survey(config: Place, out: Place | None, solution: str | None) -> SurveyPlan | None:
    """The run of a survey, by its run file or the folder of its release alone; None of a census."""
    from jobs.pipeline.config.released import is_survey_release

    if isinstance(config, Path) and not config.is_dir():
        if not _is_survey(config):
            return None
        from jobs.survey.plan import load_survey

        return load_survey(config, output=out, solution=solution)
    if not is_survey_release(config):
        return None
    from jobs.survey.released import load_survey_release

    _refuse_with_folder(config, out, solution)
    return load_survey_release(config)


def _refuse_with_folder(config: Place, out: Place | None, solution: str | None) -> None:
    if out is not None or solution is not None:
        raise ConfigError("--out and --solution", "go with a run file", got=f"the folder {config}")


def _finished_run(config: Place, out: Place | None, solution: str | None) -> Resolved:
    """As `_finished`, or of the folder of a run, which remembers its run file."""
    from jobs.pipeline.folder.identity import load_again
    from jobs.pipeline.storage.layout import is_release
    from jobs.survey.folder import refuse_survey_folder

    if is_release(config) or not (config / "run.json").is_file():
        return _finished(config, out, solution)
    refuse_survey_folder(config)
    return load_again(config.resolve(), None, None, solution)


def _product(resolved: Resolved, name: str | None) -> Product:
    """A product of a run by its name, or the last."""
    if name is not None and name not in resolved.products:
        raise ConfigError("--product", "is unknown", got=name, want=[*resolved.products])
    return resolved.last if name is None else resolved.products[name]


def _is_survey(config: Path) -> bool:
    from jobs.pipeline.config.files import is_survey

    return is_survey(config)


def _work_on_survey(
    work: Callable[[SurveyPlan, Reporter], list[Place]],
    config: Path,
    out: Place | None,
    solution: str | None,
    options: RunOptions,
) -> None:
    """Load the run file of a survey, do some work on it, and name the files."""
    from jobs.survey.plan import load_survey

    _refuse_cluster(options)
    plan = load_survey(config, output=out, confidential=options.confidential, solution=solution)
    _name_files(work(plan, options.reporter()), plan.config.output.roots)


def _resume_survey(
    out: Place,
    config: Path | None,
    solution: str | None,
    options: RunOptions,
    *,
    check: bool,
    moved: bool,
) -> None:
    from jobs.survey.folder import load_folder
    from jobs.survey.run import check_survey, run_survey

    _refuse_cluster(options)
    plan = load_folder(out, config, solution, options.confidential)
    for line in check_survey(plan):
        typer.echo(line)
    if not check:
        files = run_survey(plan, options.reporter(), moved=moved)
        _name_files(files, plan.config.output.roots)


def _refuse_cluster(
    options: RunOptions, why: str = "is for censuses; a survey is worked on by one process"
) -> None:
    """A survey, and what is made of a release, is worked on by one process."""
    for name, value in (("--master", options.master), ("--cluster", options.cluster)):
        if value is not None:
            raise ConfigError(name, why)


def _name_files(files: Sequence[Place], roots: Roots) -> None:
    """Name what was written, and which of it is in the confidential half of a run."""
    width = max(len(str(path)) for path in files)
    confidential = roots.confidential.resolve()
    for path in files:
        is_closed = lies_in(path.resolve(), confidential)
        kind = "CONFIDENTIAL" if is_closed else "publishable"
        typer.echo(printable(f"{path!s:<{width}}  {kind}"))


def main() -> int:
    """Run the command line; errors raised on purpose become one line and an exit code."""
    # Imports make some 90,000 objects and no garbage. Looking for it among them, here and when the
    # process ends, is a quarter of what `das validate` takes. Nor are installed packages asked
    # whether they are plugins of pydantic.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    atexit.register(gc.freeze)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    hide_bridge_logs()
    try:
        app()
    except DasError as error:
        return _say(error)
    except SystemExit as stop:
        return int(stop.code or 0)
    except Exception as error:
        failure = machine_failure(error)
        if failure is None:
            raise
        return _say(failure)
    return 0


def _say(error: DasError) -> int:
    """Print an error as one line; returns its exit code."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        f"[bold red]das: {type(error).__name__}[/] ", end=""
    )
    typer.echo(str(error), err=True)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
