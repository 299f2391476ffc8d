"""Commands that use a release: verify, report, tables, estimates, other formats."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from das.errors import ConfigError, OutputError
from jobs.cli.application import app
from jobs.cli.finished import (
    is_survey_file,
    load_finished,
    load_finished_run,
    load_finished_survey,
    product_named,
)
from jobs.cli.options import (
    AnyPlace,
    ConfidenceOption,
    ConfigArgument,
    CsvOption,
    FinishedArgument,
    GeolevelOption,
    JsonOption,
    MovedConfigOption,
    OutOption,
    PageOption,
    ParquetOption,
    QuietOption,
    RunOptions,
    SolutionOption,
    WhoseOption,
    name_files,
    read_address,
    read_local,
    refuse_cluster,
    with_arrow_alone,
    with_run_options,
)
from jobs.cli.surveys import refuse_old_survey_command
from jobs.pipeline.printable import printable


@app.command()
@with_run_options
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
            help="Folder for the files, which may be there. Default: tables.", parser=read_local
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
    if isinstance(config, Path) and not config.is_dir() and is_survey_file(config):
        refuse_old_survey_command("tables")
    from jobs.analysis.tables import TablesRequest, write_release_tables

    refuse_cluster(options, "is for runs; tables of a release are written by one process")
    names = (table or (), geolevel or (), formats or ("csv",))
    request = TablesRequest(*names, product, confidence)
    resolved = with_arrow_alone(load_finished(config, out, solution))
    folder = Path("tables") if to is None else to
    for path in write_release_tables(resolved, request, folder, options.reporter()):
        typer.echo(printable(f"{path}  publishable"))


@app.command()
def report(
    out: Annotated[
        AnyPlace,
        typer.Argument(help="Folder of a finished run, or of a release.", parser=read_address),
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the public reports, which are then all that is written. Default: the "
            "release.",
            parser=read_local,
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
    name_files(files, roots)


@app.command()
def verify(
    config: FinishedArgument,
    out: OutOption = None,
    solution: SolutionOption = None,
    quiet: QuietOption = False,
) -> None:
    """Check a finished release from its files alone: digests, sums over the tree, invariants."""
    survey = load_finished_survey(config, out, solution)
    if survey is not None:
        from jobs.survey.manifest import verify_survey

        typer.echo(json.dumps(verify_survey(survey)))
        return
    from jobs.pipeline.release.verify import verify_run
    from jobs.pipeline.tasks.progress import Reporter

    resolved = with_arrow_alone(load_finished(config, out, solution))
    with Reporter(quiet=quiet).line("verify", str(resolved.last.release.root)) as tick:
        checked = verify_run(resolved, tick)
    typer.echo(json.dumps(checked))


@app.command()
def inspect(
    out: Annotated[
        AnyPlace,
        typer.Argument(
            help="Folder of a run, complete or not, or of a release.", parser=read_address
        ),
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
            parser=read_address,
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
    resolved = load_finished(config, out, solution)
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
            parser=read_address,
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
        Path | None, typer.Option(help="GeoJSON of the areas, for --geojson.", parser=read_local)
    ] = None,
    join: Annotated[
        str | None, typer.Option(help="Property of its features that names the area.")
    ] = None,
    geojson: Annotated[
        Path | None,
        typer.Option(help="Write the boundaries with the numbers to this file.", parser=read_local),
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
    resolved = with_arrow_alone(load_finished(config, out, solution))
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
            parser=read_address,
        ),
    ],
    output: PageOption = Path("explore.html"),
    boundaries: Annotated[
        Path | None,
        typer.Option(
            help="GeoJSON, or GeoParquet with WKB, that has the outlines of geounits.",
            parser=read_local,
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
    resolved = with_arrow_alone(load_finished_run(config, out, solution))
    own, errors = product_named(resolved, product), None
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
    survey = load_finished_survey(config, out, solution)
    if survey is not None:
        from jobs.survey.documents import read_survey_manifest
        from jobs.survey.manifest import verify_survey
        from jobs.survey.report.public import write_survey_certificate

        if product is not None:
            raise ConfigError("--product", "is for censuses: a survey is one product", got=product)
        place = survey.made.manifest
        found = Verified(digest_of(place), datetime.now(UTC), verify_survey(survey))
        write_survey_certificate(read_survey_manifest(place), found, output)
        typer.echo(printable(f"{output}  publishable"))
        return
    resolved = with_arrow_alone(load_finished(config, out, solution))
    own = product_named(resolved, product)
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
            help="Folder with <Geolevel>.parquet, such as US_Person_PL_PROD.", parser=read_local
        ),
    ],
    folder: Annotated[
        Path, typer.Argument(help="New folder for the run file and the run.", parser=read_local)
    ],
    schema: Annotated[
        Path | None,
        typer.Option(
            help="Schema file. Default: the ready one of their attributes.", parser=read_local
        ),
    ] = None,
    allocation: Annotated[
        Path | None,
        typer.Option(
            help="Allocation that was measured. Default: a published one with these variances, or "
            "what they say.",
            parser=read_local,
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
        Path, typer.Argument(help="New folder for <Geolevel>.parquet.", parser=read_local)
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
@with_run_options
def replicate(  # noqa: PLR0913 - one parameter per command-line option
    out: Annotated[AnyPlace, typer.Argument(help="Folder of a finished run.", parser=read_address)],
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
    resolved = with_arrow_alone(
        options.on_cluster(
            load_again(out.resolve(), config, options.master, solution, options.confidential)
        )
    )
    settings = ReplicateSettings(count, seed, Fraction(str(confidence)), areas)
    files = replicate_all(resolved, settings, options.reporter())
    name_files(files, resolved.config.output.roots)
