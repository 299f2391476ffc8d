"""Commands that use a release: checks, reports, tables, estimates, other formats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from das.errors import ConfigError, OutputError
from jobs.analysis.boundaries import Boundaries
from jobs.analysis.requests import (
    AreasRequest,
    CompareRequest,
    EstimateRequest,
    ExploreRequest,
    ExportRequest,
    InspectRequest,
    IntervalSettings,
    NmfImport,
    ReplicateSettings,
    TablesRequest,
    product_named,
)
from jobs.analysis.results import ResultFile
from jobs.cli.finished import Finished, is_finished, is_survey_file
from jobs.cli.options import (
    ConfigArgument,
    FolderArgument,
    JsonOption,
    ProductOption,
    QuietOption,
    SessionOptions,
    name_files,
    read_local,
    refuse_options,
    refuse_others,
    with_arrow_alone,
    with_options,
)
from jobs.pipeline.printable import printable
from jobs.pipeline.storage.place import Place


@with_options
def verify(
    release: Finished,
    certificate: Annotated[
        Path | None,
        typer.Option(help="Also write a certificate to this HTML file.", parser=read_local),
    ] = None,
    registry: Annotated[
        Path | None,
        typer.Option(help="Also write a draft for the registry of deployments.", parser=read_local),
    ] = None,
    product: Annotated[
        str | None, typer.Option(help="With --certificate: only this product. Default: all.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Check a release from its files alone.

    Checks digests, sums over the tree and invariants. The certificate is one page to sign:
    guarantee, budget, exact values, digests, for each product and for everything released. The
    draft is YAML for the Differential Privacy Deployments Registry.
    """
    from jobs.pipeline.documents.intervals import digest_of
    from jobs.pipeline.documents.manifest import read_manifest
    from jobs.pipeline.release.verify import verify_run
    from jobs.pipeline.report import registry as registry_draft
    from jobs.pipeline.report.certificate import Verified
    from jobs.pipeline.report.page import START
    from jobs.pipeline.storage.files import refuse_foreign
    from jobs.pipeline.tasks.progress import Reporter

    if certificate is None:
        refuse_options("goes with --certificate", product=product)
    else:
        refuse_foreign(certificate, START, "a page, which is replaced")
    if registry is not None:
        refuse_foreign(registry, registry_draft.START, "a draft, which is replaced")
    survey = release.load_survey()
    if survey is not None:
        from jobs.survey.manifest import verify_survey

        refuse_options("is for censuses", product=product, registry=registry)
        manifests = [survey.made.manifest]
        checked: Mapping[str, int | float | str] = verify_survey(survey)
    else:
        resolved = release.load()
        named = [product] if product is not None else [*resolved.products]
        certified = [product_named(resolved, name).release for name in named]
        manifests = [release.manifest for release in certified]
        with Reporter(quiet=quiet).line("verify", str(resolved.release.root)) as tick:
            checked = verify_run(resolved, tick)
    if not quiet:
        typer.echo("verified: digests, sums, exact values and budget are right", err=True)
    typer.echo(json.dumps(checked))
    if registry is not None:
        about = resolved.config.about
        registry_draft.write_registry_draft(read_manifest(resolved.last.release), about, registry)
        _name_published(registry)
    if certificate is None:
        return
    verified = Verified([*map(digest_of, manifests)], datetime.now(UTC), checked)
    if survey is not None:
        from jobs.survey.documents import read_survey_manifest
        from jobs.survey.report.public import write_survey_certificate

        write_survey_certificate(read_survey_manifest(*manifests), verified, certificate)
    else:
        from jobs.pipeline.report.certificate import write_certificate

        write_certificate([*map(read_manifest, certified)], verified, certificate)
    _name_published(certificate)


def _name_published(path: Path | None) -> None:
    """Print the path of a written file, and mark it as publishable."""
    typer.echo(printable(f"{path}  publishable"))


@with_options
def inspect(out: FolderArgument, request: InspectRequest, as_json: JsonOption = False) -> None:
    """Print what a run folder or a release holds.

    Reads no confidential data. With --reports, write the reports again. Of a run folder, they
    include the internal report, which is made from its evaluation and confidential.
    """
    if request.reports:
        refuse_others(request, "reports", "to", "solution")
        refuse_options("does not go with --reports", json=as_json)
        _write_reports(out, request.to, request.solution)
        return
    refuse_options("goes with --reports", to=request.to)
    from jobs.analysis.inspect import inspect_geounit, inspect_run, print_inspection
    from jobs.survey.folder import refuse_survey_folder

    if request.geounit is None:
        refuse_options("goes with --geounit", query=request.query, product=request.product)
        document = inspect_run(out, request.solution)
    else:
        refuse_survey_folder(out)
        named = (request.geounit, request.query, request.solution, request.product)
        document = inspect_geounit(out, *named)
    print_inspection(document, as_json=as_json)


def _write_reports(out: Place, to: Path | None, solution: str | None) -> None:
    """Write the reports of a finished run again; for a release folder only the public ones.

    Args:
      out: A run folder or a release folder.
      to: Folder of the public reports; None for the release.
      solution: A further solution of the run; None for the release itself.
    """
    from jinja2 import TemplateError

    from jobs.pipeline.config.released import is_survey_release
    from jobs.pipeline.folder.roots import remembered_roots
    from jobs.pipeline.report.finished import write_internal_reports, write_public_reports
    from jobs.pipeline.storage.files import understanding
    from jobs.pipeline.storage.layout import ReleaseLayout, Roots, is_release, release_folder
    from jobs.survey.folder import is_survey_folder
    from jobs.survey.report.internal import write_pages
    from jobs.survey.report.public import write_public_page

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
                in_place = f"use `das inspect {out} --reports --to FOLDER`"
                remedy = "name another folder" if to is not None else in_place
                public = write_public_reports(release.root, to, remedy=remedy)
                is_whole = not alone and to is None
                files = write_internal_reports(roots, solution) if is_whole else []
                files += public
        except TemplateError as error:
            raise ValueError(str(error)) from None
    name_files(files, roots)


@with_options
def tables(release: Finished, request: TablesRequest, quiet: QuietOption = False) -> None:
    """Write tables of a release: any query at any geolevel."""
    from jobs.analysis.tables import write_release_tables
    from jobs.pipeline.tasks.progress import Reporter

    if release.run_file is not None and is_survey_file(release.run_file):
        what = "is the run file of a survey, whose tables are in its release"
        raise ConfigError(str(release.run_file), what, want="`das run RUN`")
    for path in write_release_tables(release.load(), request, Reporter(quiet=quiet)):
        _name_published(path)


@with_options
def estimate(
    release: Finished,
    request: EstimateRequest,
    intervals: IntervalSettings,
    file: ResultFile,
    as_json: JsonOption = False,
) -> None:
    """Estimate any query for any area, with intervals.

    Estimates are unbiased, from the noisy answers, with standard errors.
    """
    from jobs.analysis.estimate import CSV_START, answer_request, print_estimates

    survey, notes = release.load_survey(), list[str]()
    if survey is not None:
        from das.tree.intervals import IntervalKind
        from jobs.survey.estimate import SURVEY_START, estimate_table

        named = {"geounit": request.geounit or None, "geolevel": request.geolevel}
        refuse_options("is for censuses: a survey has no areas", area=request.area, **named)
        file.check("das estimate", SURVEY_START)
        kind = IntervalKind(**vars(intervals))
        table = estimate_table(survey, request.query, request.covariance, kind)
    else:
        file.check("das estimate", CSV_START)
        table, warnings = answer_request(release.load(), request, intervals)
        notes += warnings
    for note in notes:
        typer.echo(printable(f"{request.area}: {note}"), err=True)
    if file.output is None:
        print_estimates(table, as_json=as_json)
    else:
        file.write(table)
        _name_published(file.output)


@with_options
def areas(
    release: Finished,
    request: AreasRequest,
    boundaries: Boundaries,
    file: ResultFile,
    as_json: JsonOption = False,
) -> None:
    """Tabulate districts or other areas.

    Prints counts, estimates, intervals and deviations from the ideal. Counts have intervals after
    `das replicate --areas`.
    """
    from jobs.analysis import areas as work

    file.check("das areas", work.CSV_START)
    is_printed = not boundaries.check() and file.output is None
    resolved = release.load()
    named = work.name_areas(resolved, request)
    for note in named.notes:
        typer.echo(printable(f"{request.assign}: {note}"), err=True)
    if is_printed:
        work.refuse_long_print(resolved, named, request.table)
    settings = (request.confidence, request.ideal, request.share)
    tabulated = work.tabulate_areas(resolved, named, request.table, *settings)
    if boundaries.geojson is not None:
        for note in boundaries.write(tabulated.table):
            typer.echo(printable(f"{boundaries.boundaries}: {note}"), err=True)
        _name_published(boundaries.geojson)
    if file.output is not None:
        file.write(tabulated.table)
        _name_published(file.output)
    if is_printed:
        work.print_areas(tabulated, as_json=as_json)


@with_options
def explore(
    release: Finished,
    request: ExploreRequest,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="HTML file to write.", parser=read_local)
    ] = Path("explore.html"),
    product: ProductOption = None,
    internal: Annotated[
        bool, typer.Option("--internal", help="Add the true errors: the page is CONFIDENTIAL.")
    ] = False,
) -> None:
    """Write one page to search and compare places of a release.

    The page has a map, protected counts, estimates and intervals, and needs no network.
    """
    from jobs.analysis.explore import explore as write_page
    from jobs.pipeline.documents.manifest import read_manifest
    from jobs.pipeline.language import ENGLISH, spoken
    from jobs.pipeline.report.page import START
    from jobs.pipeline.storage.files import refuse_foreign
    from jobs.pipeline.storage.layout import is_publishable

    refuse_foreign(output, START, "a page, which is replaced")
    resolved = release.load_folder() if internal else release.load()
    shown, errors = product_named(resolved, product), None
    if internal:
        from jobs.pipeline.confidential.errors import errors_of

        if is_publishable(output, resolved.config.output.directory):
            what = "lies in the release; the page is confidential"
            raise OutputError(str(output), what, want="another folder")
        errors = errors_of(shown)
    language = ENGLISH if internal else read_manifest(shown.release).language
    with spoken(language):
        size, notes = write_page(shown, request, output, errors)
    for note in notes:
        typer.echo(printable(note), err=True)
    kind = "CONFIDENTIAL" if internal else "publishable"
    typer.echo(printable(f"{output}  {size / 1e6:.1f} MB  {kind}"))


@with_options
def export(release: Finished, request: ExportRequest, quiet: QuietOption = False) -> None:
    """Write a release in the layout that other programs read.

    Layouts are the 2020 redistricting files, privacy-protected microdata, and a wide table with
    intervals; further ones are YAML files.
    """
    from jobs.analysis.export import export_release
    from jobs.pipeline.tasks.progress import Reporter

    for path in export_release(release.load(), request, Reporter(quiet=quiet)):
        _name_published(path)


@with_options
def compare(
    request: CompareRequest,
    file: ResultFile,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare a release with counts that were published.

    Each side is a release, redistricting files, privacy-protected microdata, or tables with a
    column GEOID. They are joined by geocode. Neither is taken for the truth.
    """
    from jobs.analysis.compare import compare as work
    from jobs.analysis.compare.page import write_comparison
    from jobs.analysis.compare.sides import open_sides
    from jobs.pipeline.config.layouts import read_layout
    from jobs.pipeline.report.page import START
    from jobs.pipeline.storage.files import refuse_foreign
    from jobs.pipeline.tasks.progress import Reporter

    file.check("das compare", work.CSV_START)
    if request.page is not None:
        refuse_foreign(request.page, START, "a page, which is replaced")
    layout, paths = read_layout(request.layout), (request.ours, request.theirs)
    runs = [Finished(path).load() if is_finished(path) else None for path in paths]
    sides = open_sides(paths, runs, layout)
    compared = work.compare_sides(sides, layout, request, Reporter(quiet=quiet))
    if file.output is not None:
        file.write(work.joined_rows(compared, layout))
        _name_published(file.output)
    if request.page is not None:
        write_comparison(compared, layout.source, request, request.page)
        _name_published(request.page)
    work.print_summary(compared, as_json=as_json)


@with_options
def replicate(release: Finished, settings: ReplicateSettings, options: SessionOptions) -> None:
    """Repeat a run with its release as the truth.

    Gives errors and intervals of counts. Reads no confidential data and spends no budget. A later
    call with a larger count adds to the existing replicates.
    """
    from jobs.analysis.replicate import replicate as replicate_all
    from jobs.survey.folder import refuse_survey_folder

    if release.run_file is not None:
        resolved = options.load(release.run_file, solution=release.solution)
    else:
        refuse_survey_folder(release.release)
        resolved = options.load_again(release.release, None, release.solution)
    files = replicate_all(with_arrow_alone(resolved), settings, options.reporter())
    name_files(files, resolved.config.output.roots)


@with_options
def import_nmf(request: NmfImport, quiet: QuietOption = False) -> None:
    """Import noisy measurement files as a run that has measured.

    Spends no budget. Continue with `das run RUN --only solve` for counts, or `das estimate`.
    """
    from jobs.analysis.import_nmf import read_nmf
    from jobs.pipeline.tasks.progress import Reporter

    typer.echo(printable(str(read_nmf(request, Reporter(quiet=quiet)))))


def export_nmf(
    config: ConfigArgument,
    folder: Annotated[
        Path, typer.Argument(help="New folder for <Geolevel>.parquet.", parser=read_local)
    ],
    product: ProductOption = None,
    without_constraints: Annotated[
        bool, typer.Option("--without-constraints", help="Leave the invariants out.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Export the noisy answers of a run as noisy measurement files."""
    from jobs.analysis.export_nmf import write_nmf
    from jobs.pipeline.config.load import load_run
    from jobs.pipeline.tasks.progress import Reporter

    reporter = Reporter(quiet=quiet)
    exported = product_named(load_run(config), product)
    rows = write_nmf(exported, folder, reporter, with_constraints=not without_constraints)
    typer.echo(json.dumps(rows))
