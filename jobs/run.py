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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from das.errors import InputError, LedgerError, OutputError
from das.mechanisms.entropy import NoiseKey
from geography.lattice import Lattice
from jobs.account import account_document, check_claim, make_claim
from jobs.config.load import Resolved, account_of, claim_of
from jobs.config.models import RunConfig
from jobs.dataset import dataset_digest, is_published, sweep
from jobs.evaluate import evaluate
from jobs.internal_report import write_internal_report
from jobs.layout import confidential_layout, release_layout
from jobs.manifest import RunFacts, read_json, write_json, write_manifest
from jobs.measure import MeasureStage
from jobs.plan import planned_ledger, write_geography
from jobs.progress import Reporter
from jobs.public_report import write_public_report
from jobs.read.read import read_entries, read_geocodes
from jobs.resources import PeakMemory, Stopwatch
from jobs.run_ledger import read_ledger, record_measured, seal_ledger, start_ledger
from jobs.session import java_in_use, spark_session
from jobs.solve import solve_level
from jobs.truth import write_truth
from jobs.write import write_microdata, write_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        check_claim(account_of(resolved.config), claim_of(resolved, identity))
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
    roots = [config.data.path]
    if config.geography.geounits is not None:
        roots.append(config.geography.geounits.path)
    files = [p for root in roots for p in (sorted(root.rglob("*")) if root.is_dir() else [root])]
    return {str(p): [p.stat().st_size, p.stat().st_mtime_ns] for p in files if p.is_file()}


def check_input(config: RunConfig, path: Path) -> None:
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
    """Write the public geounits and the planned ledger, then the confidential histograms."""
    resolved, plan, out = job.resolved, job.resolved.plan, job.out
    config = resolved.config
    truth = confidential_layout(out)
    seen = truth.root / "input.json"
    if is_published(truth.histograms(plan.spine.levels[0])):
        check_input(config, seen)
        return
    if seen.exists() and read_json(seen, "remove the run folder") != input_files(config):
        # Nothing was measured yet. What an earlier start made of other input must not be mixed in.
        shutil.rmtree(truth.root / "histograms", ignore_errors=True)
        shutil.rmtree(release_layout(out).root / "geography", ignore_errors=True)
        release_layout(out).ledger.unlink(missing_ok=True)
    write_json(seen, input_files(config))
    with job.stage("plan"), job.reporter.line("plan", "geounits"):
        codes = read_geocodes(
            config.data, config.geography.geounits, spine=plan.spine, spark=job.spark
        )
        lattice = Lattice.from_leaves(plan.spine, codes)
        ledger = planned_ledger(plan, lattice)
        granted = {**plan.budget.exact(), "randomness": plan.randomness}
        start_ledger(release_layout(out).ledger, granted, ledger)
        write_geography(lattice, release_layout(out))
    with job.stage("read"), job.reporter.line("read", "histograms") as tick:
        entries = read_entries(config.data, plan.schema, spine=plan.spine)
        write_truth(
            entries,
            lattice,
            schema=plan.schema,
            layout=truth,
            spark=job.spark,
            progress=lambda _, finished, total: tick(finished, total),
        )


def measure_all(job: Job) -> None:
    """Measure every geolevel, once.

    The grant is claimed before the first draw, and stays spent whatever happens after.

    Raises:
      LedgerError: The grant was spent by another run, or measurements that were published before
        are gone.
    """
    plan, out, config = job.resolved.plan, job.out, job.resolved.config
    seed = config.privacy.randomness.seed
    key = NoiseKey.for_testing(seed) if plan.not_for_release and seed is not None else None
    release = release_layout(out)
    stage = MeasureStage(
        plan, release, confidential_layout(out), job.spark, config.runtime.batches_per_slot
    )
    if not plan.not_for_release:
        spent = make_claim(account_of(config), claim_of(job.resolved, job.identity))
        write_json(release.account, account_document(spent))
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
            with job.stage("measure"), job.reporter.line("measure", geolevel) as tick:
                stage.publish_invariants(level)
                stage.measure(level, key, tick)
        record_measured(release.ledger, geolevel, dataset_digest(dataset))
    seal_ledger(release.ledger)


def solve_all(job: Job) -> None:
    """Solve every geolevel from the root down, once."""
    plan, release = job.resolved.plan, release_layout(job.out)
    batches = job.resolved.config.runtime.batches_per_slot
    for level, geolevel in enumerate(plan.spine.levels):
        if is_published(release.counts(geolevel)):
            continue
        with job.stage("solve"), job.reporter.line("solve", geolevel) as tick:
            solve_level(
                level,
                plan=plan,
                release=release,
                spark=job.spark,
                batches_per_slot=batches,
                progress=tick,
            )


def write_all(job: Job) -> None:
    """Write microdata and tables."""
    plan, release, config = job.resolved.plan, release_layout(job.out), job.resolved.config
    batches = config.runtime.batches_per_slot
    queries = tabulated(job.resolved)
    with job.stage("write"), job.reporter.line("write", "microdata and tables") as tick:
        write_microdata(
            plan,
            release,
            config.output.microdata,
            job.spark,
            batches_per_slot=batches,
            progress=tick,
        )
        write_tables(plan, release, queries, job.spark, batches_per_slot=batches)


def tabulated(resolved: Resolved) -> list[str]:
    """Queries tabulated per geolevel."""
    chosen = resolved.config.output.tables
    return (
        ["total", *(a.name for a in resolved.plan.schema.attributes)] if chosen is None else chosen
    )


def evaluate_all(job: Job) -> dict[str, object]:
    """Compare the release with the truth; returns and writes the internal evaluation."""
    plan, out = job.resolved.plan, job.out
    with job.stage("evaluate"), job.reporter.line("evaluate", "against the truth") as tick:
        return evaluate(
            release_layout(out),
            confidential_layout(out),
            plan,
            job.spark,
            queries=[*(i.query.name for i in plan.invariants), *tabulated(job.resolved)],
            progress=tick,
        )


def seal(job: Job) -> dict[str, Any]:
    """Write the manifest and the public report."""
    out, config = job.out, job.resolved.config
    release = release_layout(out)
    with job.reporter.line("seal", "manifest and public report"):
        sweep(release.root)
        ledger = seal_ledger(release.ledger)
        facts = RunFacts(
            config.name,
            read_json(release.account, "run `das measure`") if release.account.exists() else None,
            "public list" if config.geography.geounits else "data",
            environment_of(job.spark),
        )
        manifest = write_manifest(job.resolved.plan, ledger, release, facts)
        write_public_report(manifest, release.report)
    return manifest


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
        solve_all(job)
        write_all(job)
        manifest = seal(job)
        evaluation = evaluate_all(job)
    out = resolved.config.output.directory
    release, confidential = release_layout(out), confidential_layout(out)
    with reporter.line("report", "internal report"):
        write_internal_report(with_costs(manifest, out), evaluation, confidential.report)
    return [
        confidential.report,
        release.report,
        *(release.microdata / name for name in resolved.config.output.microdata),
        release.root / "measurements",
        release.root / "counts",
        release.root / "tables",
        release.manifest,
    ]
