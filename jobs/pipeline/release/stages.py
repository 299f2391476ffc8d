"""The stages after measuring, which cannot see the truth: estimate, solve, write, finalize."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable

from jobs.pipeline.config.between import joining_of
from jobs.pipeline.config.product import Product, TablesWanted
from jobs.pipeline.config.released import released_configuration
from jobs.pipeline.documents.manifest import Environment, Manifest
from jobs.pipeline.documents.shipped import released_schemas
from jobs.pipeline.documents.statistics import statistics_of
from jobs.pipeline.folder.progress import is_census_finalized
from jobs.pipeline.folder.solutions import note_solve, settings_of, solution_of
from jobs.pipeline.job import Job
from jobs.pipeline.plan import Level, why_no_estimates
from jobs.pipeline.release.census import publish_census_counts, publish_census_estimates
from jobs.pipeline.release.estimate import CONFIDENCE, EstimateStage, LevelEstimator
from jobs.pipeline.release.finalizing import tidy_release
from jobs.pipeline.release.implied import publish_implied
from jobs.pipeline.release.manifest import finalize_census, finalize_product, product_facts
from jobs.pipeline.release.microdata import write_joined, write_microdata
from jobs.pipeline.release.solve import solve_level, solve_support
from jobs.pipeline.release.tables import write_tables
from jobs.pipeline.report.finished import write_public_reports
from jobs.pipeline.storage.dataset import Dataset, is_published
from jobs.pipeline.storage.journal import write_whole
from jobs.pipeline.storage.ledger import finalize_ledger, read_ledger
from jobs.pipeline.tasks.executor import Tasks


def estimate(job: Job) -> None:
    """Estimate tables with intervals in every geounit of every product, once.

    Raises:
      SchemaError: The measured queries group levels in too many ways.
      SolverError: The queries of the leaves do not have full column rank.
    """
    for product in job.products:
        plan = product.plan
        if why_no_estimates(plan) is not None:
            continue
        queries = tuple(product.tabulated.values())
        stage = EstimateStage(
            LevelEstimator(plan, product.release, queries, CONFIDENCE),
            job.tasks,
        )
        with job.stage("estimate", product.label("intervals")):
            stage.run()
            publish_census_estimates(stage.estimator, job.tasks)


def solve(
    job: Job,
    measure_on_demand: Callable[[Job, Product, Level], None],
    learn: Callable[[Job, Product], None],
) -> None:
    """Solve every geolevel of every product from the root down, once.

    Args:
      job: The run.
      measure_on_demand: Draws the on-demand queries of a geolevel after the geolevel above is
        solved. An argument, since modules of `release` must not import those that see the truth.
      learn: Learns the regressions of a product from its own noisy answers; so is this.
    """
    note_solve(job.release, settings_of(job.resolved.config))
    for product in job.products:
        if product.plan.limits.depends_on_other_products:
            with job.stage("solve", product.label("constraints")):
                publish_implied(product.plan, product.release, job.tasks)
        learn(job, product)
        for level in product.plan.levels:
            if product.plan.support and not level.index:
                with job.stage("solve", product.label(f"support of {level.name}"), level.name):
                    solve_support(plan=product.plan, release=product.release, tasks=job.tasks)
            measure_on_demand(job, product, level)
            dataset = product.release.counts(level.name)
            is_new = not is_published(dataset)
            with job.stage("solve", product.label(level.name), level.name) as line:
                solve_level(level, plan=product.plan, release=product.release, tasks=job.tasks)
            if is_new:
                job.reporter.solved(line.place, statistics_of(Dataset.open(dataset)))
        publish_census_counts(product.plan, product.release, job.tasks)
        if product.plan.on_demand:
            finalize_ledger(product.release.ledger)


def write(job: Job, describe_counts: Callable[[Job], None]) -> None:
    """Write microdata, joined microdata and tables of every product, once.

    Args:
      job: The run.
      describe_counts: Makes the intervals of the counts, which tables have beside them.
    """
    describe_counts(job)
    for product in job.products:
        plan, release, output = product.plan, product.release, product.config.output
        with job.stage("write", product.label("microdata and tables")):
            write_microdata(plan, release, output.microdata, job.tasks)
            joining = joining_of(product, job.resolved.products)
            if joining is not None:
                write_joined(plan, release, joining, job.tasks)
            write_tables(plan, release, TablesWanted.of(product), job.tasks)


def finalize(job: Job) -> None:
    """Write the manifests of products and release, and the public reports.

    A finalized release that holds what its manifests name keeps them.
    """
    if is_census_finalized(job.resolved):
        write_public_reports(job.release.root)
        return
    resolved, release = job.resolved, job.release
    folders = [release, *(product.release for product in job.products)]
    public = {release.configuration: released_configuration(resolved)}
    public[release.schemas] = released_schemas()
    texts = {folder / name: text for folder, of in public.items() for name, text in of.items()}
    with job.stage("finalize", "manifest and public report"):
        written = [path for product in job.products for path in product.release.documents]
        tidy_release(folders, texts, written)
        finalized: dict[str, Manifest] = {}
        write_whole(release.solves)
        for product in job.products:
            finalize_ledger(product.release.ledger)
            ledger = read_ledger(product.release.ledger).spent()
            write_whole(product.release.ledger)
            facts = product_facts(
                resolved,
                product,
                environment=environment_of(job.tasks),
                solution=solution_of(resolved, release),
            )
            finalized[product.name] = finalize_product(product.plan, ledger, product.release, facts)
        finalize_census(resolved, finalized)
        write_public_reports(release.root)


def environment_of(tasks: Tasks) -> Environment:
    """Return cores, slots, platform and versions of Spark and Java of a run."""
    return Environment(
        cores=os.cpu_count(),
        slots=tasks.slots,
        spark=tasks.environment["spark"],
        java=tasks.environment["java"],
        platform=platform.platform(),
    )
