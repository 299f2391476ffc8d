"""Commands that use a release: verify, report, tables, estimates, other formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from das.errors import ConfigError, OutputError
from jobs.analysis.boundaries import Boundaries
from jobs.analysis.requests import (
    AreasRequest,
    EstimateRequest,
    ExploreRequest,
    IntervalSettings,
    NmfImport,
    ReplicateSettings,
    TablesRequest,
    product_named,
)
from jobs.analysis.results import ResultFile
from jobs.cli.application import app
from jobs.cli.finished import Finished, is_survey_file
from jobs.cli.options import (
    AnyPlace,
    ConfigArgument,
    JsonOption,
    MovedConfigOption,
    OutOption,
    PageOption,
    ProductOption,
    QuietOption,
    RunOptions,
    SolutionOption,
    name_files,
    read_address,
    read_local,
    refuse_cluster,
    with_arrow_alone,
    with_options,
)
from jobs.cli.surveys import refuse_old_survey_command
from jobs.pipeline.printable import printable


@app.command()
@with_options
def tables(release: Finished, request: TablesRequest, options: RunOptions) -> None:
    """Write tables of a release, any query of any geolevel, a file each."""
    if release.run_file is not None and is_survey_file(release.run_file):
        refuse_old_survey_command("tables")
    from jobs.analysis.tables import write_release_tables

    refuse_cluster(options, "is for runs; tables of a release are written by one process")
    for path in write_release_tables(release.load(), request, options.reporter()):
        _name_published(path)


def _name_published(path: Path | None) -> None:
    """Name a file that was written from a release alone."""
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
    from jobs.pipeline.storage.layout import ReleaseLayout, Roots, is_release, release_folder
    from jobs.survey.folder import is_survey_folder
    from jobs.survey.reports import write_pages, write_public_page

    alone = is_release(out) and solution is None
    roots = Roots.of(out) if alone else remembered_roots(out)
    release = ReleaseLayout(out if alone else release_folder(out, solution))
    with understanding(release.manifest, "restore it from a copy of the release"):
        try:
            if alone and is_survey_release(out):
                files = [write_public_page(release, to)]
            elif not alone and (out / "run.json").exists() and is_survey_folder(out):
                files = write_pages(roots, solution, to)
            else:
                elsewhere = f"`das report {out} --to FOLDER` writes it elsewhere"
                remedy = "name another folder" if to is not None else elsewhere
                public = write_public_reports(release.root, to, remedy=remedy)
                is_whole = not alone and to is None
                files = write_internal_reports(roots, solution) if is_whole else []
                files += public
        except TemplateError as error:
            raise ValueError(str(error)) from None
    name_files(files, roots)


@app.command()
@with_options
def verify(release: Finished, quiet: QuietOption = False) -> None:
    """Check a finished release from its files alone: digests, sums over the tree, invariants."""
    from jobs.pipeline.release.verify import verify_run
    from jobs.pipeline.tasks.progress import Reporter

    survey = release.load_survey()
    if survey is not None:
        from jobs.survey.manifest import verify_survey

        typer.echo(json.dumps(verify_survey(survey)))
        return
    resolved = release.load()
    with Reporter(quiet=quiet).line("verify", str(resolved.release.root)) as tick:
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
    product: ProductOption = None,
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
        document = inspect_geounit(out, geocode, query, solution, product)
    print_inspection(document, as_json=as_json)


@app.command()
@with_options
def estimate(
    release: Finished,
    request: EstimateRequest,
    intervals: IntervalSettings,
    file: ResultFile,
    as_json: JsonOption = False,
) -> None:
    """Unbiased estimates of any area from the noisy answers, with standard errors and intervals."""
    from jobs.analysis.estimate import CSV_START, answer_request, print_estimates

    file.check("das estimate", CSV_START)
    found, notes = answer_request(release.load(), request, intervals)
    for note in notes:
        typer.echo(printable(f"{request.area}: {note}"), err=True)
    if file.path is None:
        print_estimates(found, as_json=as_json)
    else:
        file.write(found)
        _name_published(file.path)


@app.command()
@with_options
def areas(
    release: Finished,
    request: AreasRequest,
    boundaries: Boundaries,
    file: ResultFile,
    as_json: JsonOption = False,
) -> None:
    """Tables of districts or other areas: counts, estimates, intervals, deviation from the ideal.

    Counts have intervals too after `das replicate --areas`.
    """
    from jobs.analysis.areas import (
        CSV_START,
        MOST_PRINTED,
        MOST_ROWS,
        name_areas,
        print_areas,
        tabulate_areas,
    )

    file.check("das areas", CSV_START)
    is_printed = not boundaries.check() and file.path is None
    resolved = release.load()
    named = name_areas(resolved, request)
    for note in named.notes:
        typer.echo(printable(f"{request.assign}: {note}"), err=True)
    settings = (request.confidence, request.ideal, MOST_PRINTED if is_printed else MOST_ROWS)
    found = tabulate_areas(resolved, named, request.table, *settings)
    if boundaries.geojson is not None:
        for note in boundaries.write(found.table):
            typer.echo(printable(f"{boundaries.boundaries}: {note}"), err=True)
        _name_published(boundaries.geojson)
    if file.path is not None:
        file.write(found.table)
        _name_published(file.path)
    if is_printed:
        print_areas(found, as_json=as_json)


@app.command()
@with_options
def explore(
    release: Finished,
    request: ExploreRequest,
    output: PageOption = Path("explore.html"),
    product: ProductOption = None,
    internal: Annotated[
        bool,
        typer.Option(
            "--internal", help="With errors, told from the truth: the page is CONFIDENTIAL."
        ),
    ] = False,
) -> None:
    """Write one page to find places of a release, compare them and see a map; it needs no network.

    Protected counts, estimates and intervals side by side.
    """
    from jobs.analysis.explore import explore as write_page
    from jobs.pipeline.report.page import START
    from jobs.pipeline.storage.files import refuse_foreign
    from jobs.pipeline.storage.layout import is_publishable

    refuse_foreign(output, START, "a page, which is replaced")
    resolved = release.load_folder()
    own, errors = product_named(resolved, product), None
    if internal:
        from jobs.pipeline.confidential.errors import errors_of

        if is_publishable(output, resolved.config.output.directory):
            raise OutputError(
                str(output), "lies in the release; the page is confidential", want="another folder"
            )
        errors = errors_of(own)
    size, notes = write_page(own, request, output, errors)
    for note in notes:
        typer.echo(printable(note), err=True)
    kind = "CONFIDENTIAL" if internal else "publishable"
    typer.echo(printable(f"{output}  {size / 1e6:.1f} MB  {kind}"))


@app.command()
@with_options
def certificate(
    release: Finished,
    output: PageOption = Path("certificate.html"),
    product: ProductOption = None,
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
    survey = release.load_survey()
    if survey is not None:
        from jobs.survey.documents import read_survey_manifest
        from jobs.survey.manifest import verify_survey
        from jobs.survey.report.public import write_survey_certificate

        if product is not None:
            raise ConfigError("--product", "is for censuses: a survey is one product", got=product)
        place = survey.made.manifest
        found = Verified(digest_of(place), datetime.now(UTC), verify_survey(survey))
        write_survey_certificate(read_survey_manifest(place), found, output)
    else:
        resolved = release.load()
        own = product_named(resolved, product)
        with Reporter(quiet=quiet).line("verify", str(resolved.release.root)) as tick:
            checked = verify_run(resolved, tick)
        found = Verified(digest_of(own.release.manifest), datetime.now(UTC), checked)
        write_certificate(read_manifest(own.release), found, output)
    _name_published(output)


@app.command()
@with_options
def import_nmf(request: NmfImport, quiet: QuietOption = False) -> None:
    """Read the Census Bureau's noisy measurement files as a run that has measured; spends nothing.

    Then `das solve` makes counts of them, and `das estimate` estimates and intervals.
    """
    from jobs.analysis.import_nmf import read_nmf
    from jobs.pipeline.tasks.progress import Reporter

    typer.echo(printable(str(read_nmf(request, Reporter(quiet=quiet)))))


@app.command()
def export_nmf(
    config: ConfigArgument,
    folder: Annotated[
        Path, typer.Argument(help="New folder for <Geolevel>.parquet.", parser=read_local)
    ],
    out: OutOption = None,
    product: ProductOption = None,
    without_constraints: Annotated[
        bool, typer.Option("--without-constraints", help="Leave the invariants out.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Write the noisy answers of a run in the layout of the Bureau's noisy measurement files."""
    from jobs.analysis.export_nmf import write_nmf
    from jobs.pipeline.config.load import load_run
    from jobs.pipeline.tasks.progress import Reporter

    own = product_named(load_run(config, output=out), product)
    reporter = Reporter(quiet=quiet)
    rows = write_nmf(own, folder, reporter, with_constraints=not without_constraints)
    typer.echo(json.dumps(rows))


@app.command()
@with_options
def replicate(
    out: Annotated[AnyPlace, typer.Argument(help="Folder of a finished run.", parser=read_address)],
    settings: ReplicateSettings,
    options: RunOptions,
    config: MovedConfigOption = None,
    solution: SolutionOption = None,
) -> None:
    """Repeat a run from its release as if that were the truth: errors and intervals of counts.

    Reads nothing confidential and costs no budget. Run again with a larger count, it goes on.
    """
    from jobs.analysis.replicate import replicate as replicate_all
    from jobs.survey.folder import refuse_survey_folder

    refuse_survey_folder(out)
    resolved = with_arrow_alone(options.load_again(out, config, solution))
    files = replicate_all(resolved, settings, options.reporter())
    name_files(files, resolved.config.output.roots)
