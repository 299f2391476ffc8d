"""The pipeline. Plan, read, measure, solve, write, seal, evaluate: each stage is done once.

Every stage takes what it needs as arguments and publishes whole datasets; a stage whose output is
published is skipped, so running again continues where the last run stopped.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from das.errors import InputError, LedgerError, OutputError
from das.mechanisms.entropy import NoiseKey
from das.queries.query import parse_query
from geography.lattice import Codes, Lattice
from jobs.account import account_document, check_claim, make_claim
from jobs.config.load import Resolved, account_of, claim_of, h1_query
from jobs.config.models import RunConfig
from jobs.dataset import dataset_digest, is_published, sweep
from jobs.estimate import CONFIDENCE, EstimateStage, LevelEstimator
from jobs.evaluate import evaluate
from jobs.internal_report import write_internal_report
from jobs.invariants import check_input, publish_given_counts
from jobs.layout import ConfidentialLayout, ReleaseLayout, confidential_layout, release_layout
from jobs.limits import publish_implied
from jobs.manifest import RunFacts, read_json, write_json, write_manifest
from jobs.measure import MeasureStage
from jobs.plan import Plan, planned_ledger, write_geography
from jobs.progress import Reporter
from jobs.public_report import write_public_report
from jobs.read.read import list_geounits, read_entries, read_geocodes
from jobs.resources import PeakMemory, Stopwatch
from jobs.run_ledger import read_ledger, record_measured, seal_ledger, start_ledger
from jobs.session import java_in_use, spark_session
from jobs.solve import solve_level
from jobs.truth import write_truth
from jobs.write import write_h1, write_microdata, write_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, eq=False)
class Product:
    """One of the products of a run, and where it lies.

    Attributes:
      resolved: What it is, as a run.
      release: Its publishable half.
      confidential: Its other half.
      records: What its records are: persons or units.
    """

    resolved: Resolved
    release: ReleaseLayout
    confidential: ConfidentialLayout
    records: str

    @property
    def plan(self) -> Plan:
        """All that the stages after reading need."""
        return self.resolved.plan

    @property
    def config(self) -> RunConfig:
        """Its configuration."""
        return self.resolved.config

    def label(self, text: str) -> str:
        """Text of a progress line; persons go without saying."""
        return text if self.records == "persons" else f"{self.records}, {text}"


def products_of(resolved: Resolved) -> tuple[Product, ...]:
    """The products of a run in the order of work: units first, since they may bind the persons."""
    out = resolved.config.output.directory
    release, confidential = release_layout(out), confidential_layout(out)
    persons = Product(resolved, release, confidential, "persons")
    if resolved.units is None:
        return (persons,)
    return (Product(resolved.units, release.units, confidential.units, "units"), persons)


@dataclass(frozen=True, eq=False)
class Job:
    """An opened run: its configuration and identity, a Spark session, a reporter, memory watch."""

    resolved: Resolved
    identity: str
    spark: SparkSession
    reporter: Reporter
    memory: PeakMemory

    @property
    def out(self) -> Path:
        """Folder of the run."""
        return self.resolved.config.output.directory

    @property
    def products(self) -> tuple[Product, ...]:
        """The products, in the order of work."""
        return products_of(self.resolved)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Record wall and processor seconds of a stage in OUT/stages.json."""
        watch = Stopwatch()
        yield
        seconds, core_seconds = watch.read()
        stages = recorded_stages(self.out)
        old = stages.get(name, {"seconds": 0.0, "core_seconds": 0.0})
        stages[name] = {
            "seconds": old["seconds"] + seconds,
            "core_seconds": old["core_seconds"] + core_seconds,
        }
        write_json(self.out / "stages.json", stages)


def recorded_stages(out: Path) -> dict[str, dict[str, float]]:
    """Seconds per stage so far."""
    path = out / "stages.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def claim(out: Path, digest: str) -> str:
    """Make the run folder ours: create it, or check that it belongs to the same configuration.

    Returns:
      The identity of the run folder.

    Raises:
      OutputError: It cannot be written, belongs to another configuration, or holds other files.
    """
    path = out / "run.json"
    if path.exists():
        document = read_json(path, "remove the folder")
        owner = document.get("configuration_digest")
        if owner != digest:
            raise OutputError(
                str(out),
                "belongs to a different configuration",
                got=str(owner)[:12],
                want=digest[:12],
                remedy="choose another output.directory or remove the folder",
            )
        return str(document["run"])
    try:
        out.mkdir(parents=True, exist_ok=True)
        foreign = next(out.iterdir(), None)
    except OSError as error:
        raise OutputError(str(out), "cannot be created", got=error.strerror) from None
    if foreign is not None:
        raise OutputError(
            str(out),
            "is not empty and is not the folder of a run",
            got=foreign.name,
            remedy="choose another output.directory",
        )
    if not os.access(out, os.W_OK):
        raise OutputError(str(out), "cannot be written")
    run = uuid.uuid4().hex
    write_json(path, {"configuration_digest": digest, "run": run})
    return run


@contextmanager
def open_job(resolved: Resolved, reporter: Reporter) -> Iterator[Job]:
    """Claim the run folder, start Spark, and note the peak memory of the run."""
    out = resolved.config.output.directory
    identity = claim(out, resolved.plan.digest)
    if not resolved.plan.not_for_release:
        for product in products_of(resolved):
            check_claim(account_of(resolved.config), claim_of(product.resolved, identity))
    confidential_layout(out).root.mkdir(mode=0o700, exist_ok=True)
    runtime = resolved.config.runtime
    with ExitStack() as stack:
        memory = stack.enter_context(PeakMemory())
        with reporter.line("start", "Spark"):
            spark = stack.enter_context(
                spark_session(
                    resolved.config.name,
                    master=runtime.master,
                    driver_memory=runtime.driver_memory,
                    properties=runtime.spark,
                )
            )
        yield Job(resolved, identity, spark, reporter, memory)
        write_json(out / "peak.json", {"peak_memory_bytes": memory.peak_bytes})


def input_files(config: RunConfig) -> dict[str, list[int]]:
    """Size and time of change of every input file, by path."""
    roots = [config.data.path, *([config.units.data.path] if config.units else [])]
    if config.geography.geounits is not None:
        roots.append(config.geography.geounits.path)
    stated = [*config.invariants, *(config.units.invariants if config.units else [])]
    tables = [getattr(entry, "table", None) for entry in stated]
    roots += [table.path for table in tables if table is not None]
    files = [p for root in roots for p in (sorted(root.rglob("*")) if root.is_dir() else [root])]
    return {str(p): [p.stat().st_size, p.stat().st_mtime_ns] for p in files if p.is_file()}


def check_same_input(config: RunConfig, path: Path) -> None:
    """Refuse to go on with other input than was read: noise is drawn for one data set only.

    Raises:
      InputError: An input file is not the one that was read.
    """
    seen, before = input_files(config), read_json(path, "remove the run folder")
    if before != seen:
        changed = sorted(name for name in {*seen, *before} if seen.get(name) != before.get(name))
        raise InputError(
            str(config.data.path),
            "the input changed since it was read",
            got=changed[:3],
            remedy="give another output.directory; noise must not be drawn for other data here",
        )


def plan_and_read(job: Job) -> None:
    """Write the public geounits and the planned ledgers, then the confidential histograms."""
    config, spine, out = job.resolved.config, job.resolved.plan.spine, job.out
    seen = confidential_layout(out).root / "input.json"
    if all(is_published(p.confidential.histograms(spine.levels[0])) for p in job.products):
        check_same_input(config, seen)
        return
    if seen.exists() and read_json(seen, "remove the run folder") != input_files(config):
        # Nothing was measured yet. What an earlier start made of other input must not be mixed in.
        shutil.rmtree(release_layout(out).root / "geography", ignore_errors=True)
        for product in job.products:
            shutil.rmtree(product.confidential.root / "histograms", ignore_errors=True)
            product.release.ledger.unlink(missing_ok=True)
    write_json(seen, input_files(config))
    with job.stage("plan"), job.reporter.line("plan", "geounits"):
        lattice = Lattice.from_leaves(spine, leaf_geocodes(job.resolved, job.spark))
        for product in job.products:
            plan = product.plan
            granted = {**plan.budget.exact(), "randomness": plan.randomness}
            start_ledger(product.release.ledger, granted, planned_ledger(plan, lattice))
        write_geography(lattice, release_layout(out))
    for product in job.products:
        _read(job, product, lattice)


def leaf_geocodes(resolved: Resolved, spark: SparkSession) -> Codes:
    """Geocodes of the public list; without one, those in the data of all products."""
    public, spine = resolved.config.geography.geounits, resolved.plan.spine
    if public is not None:
        return list_geounits(public, spine)
    data = [product.config.data for product in products_of(resolved)]
    return np.unique(
        np.concatenate([read_geocodes(one, None, spine=spine, spark=spark) for one in data])
    )


def _read(job: Job, product: Product, lattice: Lattice) -> None:
    """Read the confidential histograms of one product."""
    plan, label = product.plan, product.label("histograms")
    with job.stage("read"), job.reporter.line("read", label) as tick:
        write_truth(
            read_entries(product.config.data, plan.schema, spine=plan.spine),
            lattice,
            schema=plan.schema,
            layout=product.confidential,
            spark=job.spark,
            progress=lambda _, finished, total: tick(finished, total),
        )


def settle_invariants(job: Job) -> None:
    """Check the input against the invariants, publish what is exact, and what it implies.

    Comes before grants are claimed: a contradiction costs nothing.

    Raises:
      InfeasibleError, InputError: Invariants contradict each other, or the data break one.
    """
    batches = job.resolved.config.runtime.batches_per_slot
    units: Plan | None = None
    for product in job.products:
        plan, release, stated = product.plan, product.release, product.config.invariants
        line = job.reporter.line("check", product.label("invariants"))
        with job.stage("measure"), line:
            publish_given_counts(plan, stated, release, units)
            check_input(plan, stated, release, product.confidential, job.spark)
            stage = MeasureStage(plan, release, product.confidential, job.spark, batches)
            for level in range(len(plan.spine.levels)):
                stage.publish_invariants(level)
            publish_implied(plan, release, job.spark, batches)
        units = plan


def measure_all(job: Job) -> None:
    """Measure every geolevel of every product, once.

    All grants are claimed before the first draw, and stay spent whatever happens after.

    Raises:
      LedgerError: A grant was spent by another run, or measurements that were published before
        are gone.
    """
    settle_invariants(job)
    if not job.resolved.plan.not_for_release:
        account = account_of(job.resolved.config)
        spent = [make_claim(account, claim_of(p.resolved, job.identity)) for p in job.products]
        write_json(release_layout(job.out).account, account_document(spent[-1]))
    for product in job.products:
        _measure(job, product)


def _measure(job: Job, product: Product) -> None:
    plan, release, config = product.plan, product.release, product.config
    seed = config.privacy.randomness.seed
    key = NoiseKey.for_testing(seed) if plan.not_for_release and seed is not None else None
    stage = MeasureStage(
        plan, release, product.confidential, job.spark, config.runtime.batches_per_slot
    )
    measured = read_ledger(release.ledger).measured
    for level, geolevel in enumerate(plan.spine.levels):
        dataset = release.measurements(geolevel)
        if not is_published(dataset):
            if geolevel in measured:
                raise LedgerError(
                    str(dataset),
                    "was measured and its measurements are gone; drawing again would spend twice",
                    remedy="restore them from a backup, or grant a new budget in a new run folder",
                )
            line = job.reporter.line("measure", product.label(geolevel))
            with job.stage("measure"), line as tick:
                stage.measure(level, key, tick)
        record_measured(release.ledger, geolevel, dataset_digest(dataset))
    seal_ledger(release.ledger)


def estimate_all(job: Job) -> None:
    """Estimate tables with intervals in every geounit of every product, once.

    Raises:
      SchemaError, SolverError: The measured queries are too many kinds for it, or do not tell the
        cells of the leaves apart.
    """
    for product in job.products:
        plan, tables = product.plan, tabulated(product.resolved)
        queries = tuple(parse_query(plan.schema, name) for name in tables)
        stage = EstimateStage(
            LevelEstimator(plan, product.release, queries, CONFIDENCE),
            job.spark,
            job.resolved.config.runtime.batches_per_slot,
        )
        line = job.reporter.line("estimate", product.label("intervals"))
        with job.stage("estimate"), line:
            stage.run()


def solve_all(job: Job) -> None:
    """Solve every geolevel of every product from the root down, once."""
    batches = job.resolved.config.runtime.batches_per_slot
    for product in job.products:
        for level, geolevel in enumerate(product.plan.spine.levels):
            line = job.reporter.line("solve", product.label(geolevel))
            with job.stage("solve"), line as tick:
                solve_level(
                    level,
                    plan=product.plan,
                    release=product.release,
                    spark=job.spark,
                    batches_per_slot=batches,
                    progress=tick,
                )


def write_all(job: Job) -> None:
    """Write microdata and tables."""
    for product in job.products:
        plan, release, output = product.plan, product.release, product.config.output
        batches = product.config.runtime.batches_per_slot
        line = job.reporter.line("write", product.label("microdata and tables"))
        with job.stage("write"), line as tick:
            write_microdata(
                plan,
                release,
                output.microdata,
                job.spark,
                batches_per_slot=batches,
                progress=tick,
            )
            queries = tabulated(product.resolved)
            write_tables(plan, release, queries, job.spark, batches_per_slot=batches)
            if output.h1 is not None:
                query = h1_query(plan.schema, output.h1)
                write_h1(plan, release, query, job.spark, batches_per_slot=batches)


def tabulated(resolved: Resolved) -> list[str]:
    """Queries tabulated per geolevel."""
    chosen = resolved.config.output.tables
    return (
        ["total", *(a.name for a in resolved.plan.schema.attributes)] if chosen is None else chosen
    )


def evaluate_all(job: Job) -> None:
    """Compare the release with the truth, and write the confidential evaluations."""
    for product in job.products:
        line = job.reporter.line("evaluate", product.label("against the truth"))
        with job.stage("evaluate"), line as tick:
            invariants = (invariant.query.name for invariant in product.plan.invariants)
            evaluate(
                product.release,
                product.confidential,
                product.plan,
                job.spark,
                queries=[*invariants, *tabulated(product.resolved)],
                progress=tick,
            )


def seal(job: Job) -> None:
    """Write the manifests, that of the persons with all, and the public reports."""
    out, config = job.out, job.resolved.config
    account = release_layout(out).account
    facts = RunFacts(
        config.name,
        read_json(account, "run `das measure`") if account.exists() else None,
        "public list" if config.geography.geounits else "data",
        environment_of(job.spark),
    )
    with job.reporter.line("seal", "manifest and public report"):
        sweep(release_layout(out).root)
        for product in job.products:
            ledger = seal_ledger(product.release.ledger)
            own = replace(facts, name=product.config.name, records=product.records)
            sealed = write_manifest(product.plan, ledger, product.release, own)
            together = account_document([claim_of(p.resolved, "") for p in job.products])
            facts = replace(facts, beside={product.records: sealed, "together": together})
        write_public_reports(out)


def finished_products(out: Path) -> list[tuple[ReleaseLayout, ConfidentialLayout]]:
    """Where the sealed products of a run folder lie, persons first."""
    release, confidential = release_layout(out), confidential_layout(out)
    units = [(release.units, confidential.units)] if release.units.manifest.exists() else []
    return [(release, confidential), *units]


def write_public_reports(out: Path) -> list[Path]:
    """Write the public reports of a finished run from its manifests.

    Returns:
      The files written.
    """
    written = []
    for release, _ in finished_products(out):
        write_public_report(read_json(release.manifest, "run `das solve` first"), release.report)
        written.append(release.report)
    return written


def write_internal_reports(out: Path) -> list[Path]:
    """Write the internal reports of the products of a finished run that were evaluated.

    Returns:
      The files written.
    """
    written = []
    for release, confidential in finished_products(out):
        manifest = read_json(release.manifest, "run `das solve` first")
        if confidential.evaluation.exists():
            evaluation = read_json(confidential.evaluation, "run `das evaluate`")
            write_internal_report(with_costs(manifest, out), evaluation, confidential.report)
            written.append(confidential.report)
    return written


def with_costs(manifest: dict[str, Any], out: Path) -> dict[str, Any]:
    """The manifest for the internal report: with stage times and peak memory, never released."""
    peak = out / "peak.json"
    return {
        **manifest,
        "stages": [{"name": name, **spent} for name, spent in recorded_stages(out).items()],
        "peak_memory_bytes": read_json(peak, "")["peak_memory_bytes"] if peak.exists() else None,
    }


def environment_of(spark: SparkSession) -> dict[str, Any]:
    """What the run runs on."""
    return {
        "cores": os.cpu_count(),
        "slots": spark.sparkContext.defaultParallelism,
        "spark": spark.version,
        "java": java_in_use(),
        "platform": platform.platform(),
    }


def run(resolved: Resolved, reporter: Reporter) -> list[Path]:
    """Run all stages that are not complete.

    Returns:
      The files of interest, the internal report first.
    """
    with open_job(resolved, reporter) as job:
        plan_and_read(job)
        measure_all(job)
        estimate_all(job)
        solve_all(job)
        write_all(job)
        seal(job)
        evaluate_all(job)
    out = resolved.config.output.directory
    with reporter.line("report", "internal report"):
        internal = write_internal_reports(out)
    release = release_layout(out)
    units = release.units
    return [
        *internal,
        release.report,
        *(release.microdata / name for name in resolved.config.output.microdata),
        *(release.root / name for name in ("measurements", "counts", "tables")),
        *([units.report, units.root] if resolved.units else []),
        release.manifest,
    ]
