"""Commands before a run: drafts, generated data, planned budgets, other spines."""

from __future__ import annotations

import json
import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from das.tree.information import Information
from jobs.cli.application import app
from jobs.cli.options import (
    AnyPlace,
    ConfigArgument,
    JsonOption,
    LossesOption,
    MasterOption,
    NewFolderArgument,
    QuietOption,
    read_address,
    read_local,
)
from jobs.cli.runs import cost_together
from jobs.pipeline.printable import printable


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
        typer.Option(
            help="Allocation file, in the place of that of the run file.", parser=read_local
        ),
    ] = None,
    optimize: Annotated[
        Path | None,
        typer.Option(
            help="Write the best allocation for the tables to this new file.", parser=read_local
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="YAML: table to a weight or {geolevel: weight}. Default: all equal.",
            parser=read_local,
        ),
    ] = None,
    targets: Annotated[
        Path | None,
        typer.Option(
            help="YAML: table to the largest root mean squared error or {geolevel: it}.",
            parser=read_local,
        ),
    ] = None,
    floors: Annotated[
        Path | None,
        typer.Option(
            help="YAML: table to the largest root mean squared error that the best allocation may "
            "leave it, or {geolevel: it}.",
            parser=read_local,
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
            parser=read_local,
        ),
    ] = None,
    information: Annotated[
        Information, typer.Option(help="Optimize estimates from these measurements.")
    ] = Information.OWN,
    report: Annotated[
        Path | None,
        typer.Option(help="Write tables and plots to this HTML file.", parser=read_local),
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
    print_summaries(summaries, as_json=as_json, together=cost_together(resolved))


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
        typer.Option(help="Write tables and pictures to this HTML file.", parser=read_local),
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
def init(  # noqa: PLR0913 - one parameter per command-line option
    data: Annotated[
        AnyPlace,
        typer.Argument(
            help="CSV or Parquet file of person records, or a folder.", parser=read_address
        ),
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
        typer.Option(help="Public list of all geounits, empty ones included.", parser=read_address),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(help='Wanted, such as "sex * age"; again for more. Default: one each.'),
    ] = None,
    rho: Annotated[str | None, typer.Option(help="The budget, a fraction. Default: 1.")] = None,
    codebook: Annotated[
        AnyPlace | None,
        typer.Option(help="Public table with columns column, code and label.", parser=read_address),
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
            parser=read_address,
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
            parser=read_local,
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
        own = OwnSpec(read_local(schema), blocks, states, listed, column, persons, seed, output)
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
