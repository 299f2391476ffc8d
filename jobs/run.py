"""The pipeline. Plan, read, measure, solve, write, seal, evaluate: each stage is done once.

Every stage takes what it needs as arguments and publishes whole datasets; a stage whose output is
published is skipped, so running again continues where the last run stopped.
"""

from __future__ import annotations

import os
import platform
import shutil
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from das.arrays import Geocodes
from das.errors import DasError, InfeasibleError, InputError, LedgerError, OutputError
from das.mechanisms.entropy import NoiseKey
from das.queries.query import parse_query
from geography.lattice import Lattice
from jobs.confidential.check import check_input
from jobs.confidential.evaluate import evaluate
from jobs.confidential.exact import publish_invariants
from jobs.confidential.histograms import write_truth
from jobs.confidential.inputs import refuse_unreadable
from jobs.confidential.measure import MeasureStage
from jobs.confidential.noise_key import sweep_shares
from jobs.confidential.read.formats import list_geounits, read_entries, read_geocodes
from jobs.config.frozen import freeze
from jobs.config.load import account_of, claim_of, h1_query, planned_geolevels
from jobs.config.models import RunConfig
from jobs.config.product import Product, Resolved
from jobs.config.solvable import refuse_large_families
from jobs.documents.document import json_of
from jobs.documents.statistics import statistics_of
from jobs.documents.summary import SUMMARY, read_summary
from jobs.folder.draws import Draws, draw_once
from jobs.folder.resume import (
    has_spent,
    is_sealed,
    note_account,
    only_driver,
    refuse_damage,
    stated_configuration,
)
from jobs.folder.solutions import (
    begin_solution,
    note_solve,
    refuse_sealed,
    remove_outdated,
    settings_of,
    solution_document,
)
from jobs.neighborhoods import FROM_DATA, geounits_from_data
from jobs.planning.ledger import planned_ledger
from jobs.printable import result_console
from jobs.release.estimate import CONFIDENCE, EstimateStage, LevelEstimator
from jobs.release.given import publish_given_counts
from jobs.release.implied import publish_implied
from jobs.release.manifest import RunFacts, write_manifest
from jobs.release.microdata import write_microdata
from jobs.release.solve import solve_level
from jobs.release.tables import write_h1, write_tables
from jobs.report.costs import summary_table
from jobs.report.internal import write_internal_report
from jobs.report.public import write_public_report
from jobs.storage.account import (
    account_document,
    check_account,
    check_claim,
    make_claim,
    note_failed_check,
)
from jobs.storage.dataset import Dataset, check_sizes, dataset_digest, is_published, sweep
from jobs.storage.files import create_file, json_text, read_json, write_json, writing
from jobs.storage.geography import write_geography
from jobs.storage.layout import (
    ConfidentialLayout,
    ReleaseLayout,
    confidential_layout,
    release_layout,
)
from jobs.storage.ledger import read_ledger, record_measured, seal_ledger, start_ledger
from jobs.storage.modes import close_folder, open_to_readers
from jobs.tasks.costs import Recorder
from jobs.tasks.executor import Tasks, open_tasks
from jobs.tasks.progress import Line, Reporter
from jobs.tasks.resources import PeakMemory


@dataclass(frozen=True, eq=False)
class Job:
    """An opened run: its configuration and identity, what runs its tasks, and who watches it.

    `moved` says that its folder is the one that goes on, wherever else it lies.
    """

    resolved: Resolved
    identity: str
    tasks: Tasks
    reporter: Reporter
    recorder: Recorder
    moved: bool = False

    def draws(self, product: Product) -> Draws | None:
        """What the account knows of a product; none if noise is seeded, which spends nothing."""
        if product.plan.not_for_release:
            return None
        return Draws(
            account_of(self.resolved.config),
            claim_of(self.resolved, product, self.identity),
            self.out,
        )

    @property
    def out(self) -> Path:
        """Folder of the run."""
        return self.resolved.config.output.directory

    @property
    def release(self) -> ReleaseLayout:
        """The release, or the solution beside it that is worked on."""
        return release_layout(self.out, self.resolved.solution)

    @property
    def products(self) -> tuple[Product, ...]:
        """The products, in the order of work."""
        return tuple(self.resolved.products.values())

    def stage(
        self, name: str, what: str, geolevel: str | None = None
    ) -> AbstractContextManager[Line]:
        """Show progress of a stage, or of part of it, and record what it costs."""
        return self.recorder.stage(name, what, geolevel)


def claim(resolved: Resolved) -> str:
    """Make the run folder ours: create it, or check that it belongs to the same configuration.

    It remembers where the run file is, for `das resume`. A folder of another configuration under
    which nothing was measured and no grant was claimed is emptied and taken over; the caller is the
    only driver.

    Returns:
      The identity of the run folder.

    Raises:
      OutputError: It cannot be written, belongs to another configuration, or holds other files.
    """
    out, digest = resolved.config.output.directory, resolved.plan.digest
    path, stated = out / "run.json", stated_configuration(resolved)
    make_folder(out)
    fresh = {"configuration_digest": digest, "run": uuid.uuid4().hex, **stated}
    if not path.exists() and create_file(path, json_text(fresh)):
        return str(fresh["run"])
    document = read_json(path, "remove the folder")
    owner = document.get("configuration_digest")
    if owner != digest:
        spent = has_spent(out, account_of(resolved.config))
        if spent is not None:
            raise OutputError(
                str(out),
                "belongs to a different configuration",
                got=f"{str(owner)[:12]}, {spent}",
                want=digest[:12],
                remedy="choose another output.directory",
            )
        for name in ("release", "confidential"):
            shutil.rmtree(out / name, ignore_errors=True)
        (out / SUMMARY).unlink(missing_ok=True)
    wanted = {**document, "configuration_digest": digest, **stated}
    if wanted != document:
        write_json(path, wanted)
    return str(document["run"])


def make_folder(out: Path) -> None:
    """Create the folder of a run, or check that it may be one.

    Raises:
      OutputError: It cannot be written, holds other files, or cannot be closed to other users.
    """
    # A draft of run.json and a lock are what a start leaves that dies at once.
    ours = ("run.json", ".run.json.", "driver.lock")
    try:
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        foreign = next((path for path in out.iterdir() if not path.name.startswith(ours)), None)
    except OSError as error:
        raise OutputError(str(out), "cannot be created", got=error.strerror) from None
    if foreign is not None and not (out / "run.json").exists():
        raise OutputError(
            str(out),
            "is not empty and is not the folder of a run",
            got=foreign.name,
            remedy="choose another output.directory",
        )
    if not os.access(out, os.W_OK):
        raise OutputError(str(out), "cannot be written")
    close_folder(out)


def refuse_spent_grants(resolved: Resolved, identity: str) -> None:
    """Refuse a run that could not claim its grants.

    Args:
      resolved: The run.
      identity: That of its folder; empty if there is none yet.

    Raises:
      LedgerError: A grant was spent by another run.
      OutputError: The account cannot be written.
    """
    if resolved.plan.not_for_release:
        return
    account = account_of(resolved.config)
    if not identity:
        check_account(account)
    for product in resolved.products.values():
        check_claim(account, claim_of(resolved, product, identity))


@contextmanager
def open_job(
    resolved: Resolved, reporter: Reporter, *, moved: bool = False, tasks: Tasks | None = None
) -> Iterator[Job]:
    """Claim the run folder, start Spark, and sum up what the run cost.

    Args:
      resolved: The run.
      reporter: Who watches it.
      moved: Whether its folder is known to be the one that goes on, wherever else it lies.
      tasks: What runs its tasks; None starts Spark as the run file wants it.
    """
    out = resolved.config.output.directory
    refuse_released_log(reporter, out)
    if not (out / "run.json").exists():  # then nothing is left of a run that is refused
        refuse_spent_grants(resolved, "")
    make_folder(out)
    with _told(reporter), ExitStack() as stack:
        stack.enter_context(only_driver(out))
        identity = claim(resolved)
        refuse_spent_grants(resolved, identity)
        confidential = confidential_layout(out).root
        confidential.mkdir(mode=0o700, exist_ok=True)
        close_folder(confidential)
        for product in resolved.products.values():
            sweep_shares(product.confidential.keys)
        if resolved.solution is not None:
            begin_solution(resolved)
        refuse_damage(resolved)
        memory = stack.enter_context(PeakMemory())
        costs = costs_folder(out, resolved.solution)
        recorder = Recorder(costs, reporter, memory)
        with recorder.stage("start", "Spark"):
            if tasks is None:
                tasks = stack.enter_context(open_tasks(resolved.config))
        reporter.event("run_started", name=resolved.config.name, output=str(out), slots=tasks.slots)
        job = Job(resolved, identity, tasks, reporter, recorder, moved)
        refuse_other_draws(job)
        yield job
        summary = read_summary(costs)
        reporter.event("run_finished", **json_of(summary.total))
        if not reporter.console.quiet:
            result_console().print(summary_table(summary))


def refuse_other_draws(job: Job) -> None:
    """Refuse a folder whose measurements are not those that the account knows.

    Raises:
      LedgerError: Others were measured under the grant, in a copy of the folder.
    """
    for product in job.products:
        draws = job.draws(product)
        for geolevel in product.plan.spine.levels:
            dataset = product.release.measurements(geolevel)
            if draws is not None and is_published(dataset):
                draws.confirm(geolevel, dataset_digest(dataset), "", write=False)


def refuse_released_log(reporter: Reporter, out: Path) -> None:
    """Keep the times of stages that see the truth out of what may be published.

    Raises:
      OutputError: The log would lie in the release.
    """
    public = [path.resolve() for path in (release_layout(out).root, out / "solutions")]
    if reporter.log is not None and any(map(reporter.log.resolve().is_relative_to, public)):
        raise OutputError(
            str(reporter.log),
            "lies in the release; its times depend on the confidential data",
            remedy="choose another place for the log",
        )


@contextmanager
def _told(reporter: Reporter) -> Iterator[None]:
    """Tell the log how the block failed; of an unforeseen error only the type."""
    try:
        yield
    except BaseException as error:
        text = str(error) if isinstance(error, DasError) else None
        reporter.event("run_failed", error=type(error).__name__, message=text)
        raise


def input_files(config: RunConfig) -> dict[str, list[int]]:
    """Size and time of change of every input file, by path."""
    products = config.products.values()
    roots = [product.data.path for product in products]
    if config.geography.geounits is not None:
        roots.append(config.geography.geounits.path)
    stated = [entry for product in products for entry in product.invariants]
    tables = [getattr(entry, "table", None) for entry in stated]
    roots += [table.path for table in tables if table is not None]
    files = [p for root in roots for p in (sorted(root.rglob("*")) if root.is_dir() else [root])]
    account = account_of(config)  # may lie among them
    return {
        str(p): [p.stat().st_size, p.stat().st_mtime_ns]
        for p in files
        if p.is_file() and p != account
    }


def check_same_input(config: RunConfig, path: Path) -> None:
    """Refuse to go on with other input than was read: noise is drawn for one data set only.

    Raises:
      InputError: An input file is not the one that was read.
    """
    seen = input_files(config)
    before = read_json(path, "restore it; or go on from the measurements with `das solve`")
    if before != seen:
        changed = sorted(name for name in {*seen, *before} if seen.get(name) != before.get(name))
        raise InputError(
            str([*config.products.values()][-1].data.path),
            "the input changed since it was read",
            got=changed[:3],
            remedy="give another output.directory; noise must not be drawn for other data here",
        )


def plan_and_read(job: Job) -> None:
    """Write the public geounits and the planned ledgers, then the confidential histograms."""
    config, spine, out = job.resolved.config, job.resolved.plan.spine, job.out
    seen, levels = confidential_layout(out).root / "input.json", spine.levels
    read = [p.confidential.histograms(level) for p in job.products for level in levels]
    read += [job.release.geography(level) for level in levels]
    measured = any((p.release.root / "measurements").exists() for p in job.products)
    if measured or all(is_published(dataset) for dataset in read):
        check_same_input(config, seen)
    if all(is_published(dataset) for dataset in read):
        return
    if seen.exists() and read_json(seen, "remove the run folder") != input_files(config):
        # Nothing was measured yet. What an earlier start made of other input must not be mixed in.
        shutil.rmtree(job.release.root / "geography", ignore_errors=True)
        for product in job.products:
            shutil.rmtree(product.confidential.root / "histograms", ignore_errors=True)
            product.release.ledger.unlink(missing_ok=True)
    write_json(seen, input_files(config))
    if config.geography.source == FROM_DATA:
        job.reporter.say(f"exact: {geounits_from_data(levels[-1])}")
    with job.stage("plan", "geounits"):
        lattice = Lattice.from_leaves(spine, leaf_geocodes(job.resolved, job.tasks))
        for product in job.products:
            refuse_large_families(product.plan, lattice)
        for product in job.products:
            plan = product.plan
            freeze_strategy(product)
            granted = {**plan.budget.exact(), "randomness": plan.randomness}
            start_ledger(product.release.ledger, granted, planned_ledger(plan, lattice))
        write_geography(lattice, job.release)
    for product in job.products:
        _read(job, product, lattice)


def freeze_strategy(product: Product) -> None:
    """Keep what was planned, for every machine that works on this folder later."""
    plan = product.plan
    planned = planned_geolevels(product.config.privacy.allocation)
    levels = {one.geolevel: one.queries for one in plan.strategy.levels if one.geolevel in planned}
    if levels:
        freeze(product.release.planned, plan.digest, levels)


def leaf_geocodes(resolved: Resolved, tasks: Tasks) -> Geocodes:
    """Geocodes of the public list; without one, those in the data of all products."""
    public, spine = resolved.config.geography.geounits, resolved.plan.spine
    if public is not None:
        return list_geounits(public, spine)
    data = [product.config.data for product in resolved.products.values()]
    return np.unique(
        np.concatenate([read_geocodes(one, None, spine=spine, tasks=tasks) for one in data])
    )


def _read(job: Job, product: Product, lattice: Lattice) -> None:
    """Read the confidential histograms of one product."""
    plan, label = product.plan, product.label("histograms")
    with job.stage("read", label):
        write_truth(
            read_entries(product.config.data, plan.schema, spine=plan.spine),
            lattice,
            schema=plan.schema,
            layout=product.confidential,
            tasks=job.tasks,
        )


def settle_invariants(job: Job) -> None:
    """Check the input against the invariants, publish what is exact, and what it implies.

    Comes before grants are claimed: a contradiction costs nothing.

    Raises:
      InfeasibleError, InputError: Invariants contradict each other, or the data break one.
    """
    public = {product.name: (product.plan, product.release) for product in job.products}
    for product in job.products:
        plan, release, stated = product.plan, product.release, product.config.invariants
        with job.stage("measure", product.label("invariants")):
            publish_given_counts(plan, stated, release, public)
            with noted_failures(job, product):
                check_input(plan, stated, release, product.confidential, job.tasks)
            for level in range(len(plan.spine.levels)):
                publish_invariants(
                    plan,
                    level,
                    release=release,
                    confidential=product.confidential,
                    tasks=job.tasks,
                )
            publish_implied(plan, release, job.tasks)


@contextmanager
def noted_failures(job: Job, product: Product) -> Iterator[None]:
    """Record in the account that the input failed a check, before the error tells where.

    Such an error is an exact answer about the data that no budget pays for, seeded or not.
    """
    try:
        yield
    except (InfeasibleError, InputError) as error:
        account = account_of(job.resolved.config)
        note_failed_check(account, claim_of(job.resolved, product, job.identity), error.where)
        raise


def measure_all(job: Job) -> None:
    """Measure every geolevel of every product, once.

    All grants are claimed before the first draw, and stay spent whatever happens after.

    Raises:
      LedgerError: A grant was spent by another run, measurements that were published before are
        gone, or a copy of this folder drew them.
    """
    settle_invariants(job)
    if not job.resolved.plan.not_for_release:
        account = account_of(job.resolved.config)
        note_account(job.out, account)
        claims = [claim_of(job.resolved, product, job.identity) for product in job.products]
        spent = make_claim(account, *claims)
        write_json(job.release.account, account_document(spent))
    for product in job.products:
        if product.plan.lazy:  # the others follow one by one, each after the one above is solved
            _measure(job, product, 0)
            continue
        for level in range(len(product.plan.spine.levels)):
            _measure(job, product, level)
        seal_ledger(product.release.ledger)


def _measure(job: Job, product: Product, level: int) -> None:
    """Measure one geolevel, once, and record it in the account before anybody can read it."""
    release, geolevel = product.release, product.plan.spine.levels[level]
    dataset, draws = release.measurements(geolevel), job.draws(product)
    if not is_published(dataset):
        if geolevel in read_ledger(release.ledger).measured:
            raise LedgerError(
                str(dataset),
                "was measured and its measurements are gone; drawing again would spend twice",
                remedy="restore them from a backup, or grant a new budget in a new run folder",
            )
        if draws is None:
            _draw(job, product, level, None)
        else:
            draw_once(
                dataset,
                draws,
                geolevel,
                lambda attempt: _draw(job, product, level, attempt),
                moved=job.moved,
            )
    elif draws is not None:
        attempt = str(Dataset.open(dataset).facts.get("attempt", ""))
        draws.confirm(geolevel, dataset_digest(dataset), attempt, write=True)
    record_measured(release.ledger, geolevel, dataset_digest(dataset))


def _draw(job: Job, product: Product, level: int, attempt: str | None) -> None:
    plan, seed = product.plan, product.seed
    geolevel = plan.spine.levels[level]
    key = None
    if plan.not_for_release and seed is not None:
        key = NoiseKey.for_testing(seed, geolevel)
    stage = MeasureStage(
        plan,
        product.release,
        product.confidential,
        job.tasks,
    )
    _refuse_other_noise(product, level)
    with job.stage("measure", product.label(geolevel), geolevel):
        stage.measure(level, key, attempt)


def _refuse_other_noise(product: Product, level: int) -> None:
    """Check that a geolevel is about to get the noise that its ledger planned and paid for."""
    plan, ledger, levels = product.plan, product.release.ledger, product.plan.spine.levels
    entries = [e for e in read_ledger(ledger).planned.entries if e.geolevel == levels[level]]
    for end in {entry.chain_end for entry in entries}:
        wanted = {entry.query: entry.mechanism for entry in entries if entry.chain_end == end}
        noise = plan.noise(level, levels.index(end))
        if {noisy.query.name: noisy.mechanism for noisy in noise} != wanted:
            raise LedgerError(
                str(ledger),
                f"is of another plan of geolevel {levels[level]}",
                got=sorted(wanted),
                want=sorted(noisy.query.name for noisy in noise),
                remedy=f"restore {product.release.planned} from a backup",
            )


def estimate_all(job: Job) -> None:
    """Estimate tables with intervals in every geounit of every product, once.

    Raises:
      SchemaError, SolverError: The measured queries are too many kinds for it, or those of the
        leaves do not have full column rank.
    """
    for product in job.products:
        plan, tables = product.plan, product.tables
        if plan.lazy:  # estimates of the whole tree need complete measurements
            continue
        queries = tuple(parse_query(plan.schema, name) for name in tables)
        stage = EstimateStage(
            LevelEstimator(plan, product.release, queries, CONFIDENCE),
            job.tasks,
        )
        with job.stage("estimate", product.label("intervals")):
            stage.run()


def solve_all(job: Job) -> None:
    """Solve every geolevel of every product from the root down, once."""
    note_solve(job.release, settings_of(job.resolved.config))
    for product in job.products:
        for level, geolevel in enumerate(product.plan.spine.levels):
            if product.plan.lazy:
                _measure(job, product, level)
            dataset = product.release.counts(geolevel)
            is_new = not is_published(dataset)
            with job.stage("solve", product.label(geolevel), geolevel) as line:
                solve_level(
                    level,
                    plan=product.plan,
                    release=product.release,
                    tasks=job.tasks,
                )
            if is_new:
                job.reporter.solved(line.place, statistics_of(Dataset.open(dataset)))
        if product.plan.lazy:
            seal_ledger(product.release.ledger)


def write_all(job: Job) -> None:
    """Write microdata and tables."""
    for product in job.products:
        plan, release, output = product.plan, product.release, product.config.output
        with job.stage("write", product.label("microdata and tables")):
            write_microdata(plan, release, output.microdata, job.tasks)
            queries = product.tables
            write_tables(plan, release, queries, job.tasks)
            if output.h1 is not None:
                query = h1_query(plan.schema, output.h1)
                write_h1(plan, release, query, job.tasks)


def evaluate_all(job: Job) -> None:
    """Compare the release with the truth, and write the confidential evaluations."""
    for product in job.products:
        with job.stage("evaluate", product.label("against the truth")):
            invariants = (invariant.query.name for invariant in product.plan.invariants)
            evaluate(
                product.release,
                product.confidential,
                product.plan,
                job.tasks,
                queries=[*invariants, *product.tables],
            )


def seal(job: Job) -> None:
    """Write the manifests, that of the persons with all, and the public reports.

    A release that is sealed already, and holds what its manifest names, keeps its manifest.
    """
    if all(is_sealed(product.release) for product in job.products):
        write_public_reports(job.out, job.resolved.solution)
        return
    config, account = job.resolved.config, job.release.account
    facts = RunFacts(
        config.name,
        read_json(account, "run `das measure`") if account.exists() else None,
        config.geography.source,
        environment_of(job.tasks),
        solution=solution_document(job.resolved, job.release),
    )
    with job.stage("seal", "manifest and public report"):
        sweep(job.release.root)
        check_sizes(job.release.root)
        with writing(job.release.root):
            open_to_readers(job.release.root)
        for product in job.products:
            ledger = seal_ledger(product.release.ledger)
            own = replace(facts, name=product.title, records=product.name)
            sealed = write_manifest(product.plan, ledger, product.release, own)
            together = account_document([claim_of(job.resolved, p, "") for p in job.products])
            facts = replace(facts, beside={product.name: sealed, "together": together})
        write_public_reports(job.out, job.resolved.solution)


def finished_products(
    out: Path, solution: str | None = None
) -> list[tuple[ReleaseLayout, ConfidentialLayout]]:
    """Where the sealed products of a run folder, or of a solution of it, lie, the last first."""
    release, confidential = release_layout(out, solution), confidential_layout(out, solution)
    others = release.sealed_products
    return [
        (release, confidential),
        *((release.product(n), confidential.product(n)) for n in others),
    ]


def write_public_reports(out: Path, solution: str | None = None) -> list[Path]:
    """Write the public reports of a finished run, or of a solution of it, from its manifests.

    Returns:
      The files written.
    """
    written = []
    for release, _ in finished_products(out, solution):
        write_public_report(read_json(release.manifest, "run `das solve` first"), release.report)
        written.append(release.report)
    return written


def write_internal_reports(out: Path, solution: str | None = None) -> list[Path]:
    """Write the internal reports of what was evaluated of a finished run, or of a solution of it.

    Returns:
      The files written.
    """
    written = []
    costs = costs_folder(out, solution)
    for release, confidential in finished_products(out, solution):
        manifest = read_json(release.manifest, "run `das solve` first")
        if confidential.evaluation.exists():
            evaluation = read_json(confidential.evaluation, "run `das evaluate`")
            report = confidential.report
            write_internal_report(manifest, evaluation, read_summary(costs), report)
            written.append(confidential.report)
    return written


def costs_folder(out: Path, solution: str | None) -> Path:
    """Folder of the summary of what a run, or a solution of it, cost."""
    return out if solution is None else confidential_layout(out, solution).compared


def environment_of(tasks: Tasks) -> dict[str, Any]:
    """What the run runs on."""
    return {
        "cores": os.cpu_count(),
        "slots": tasks.slots,
        **tasks.environment,
        "platform": platform.platform(),
    }


def solve(resolved: Resolved, reporter: Reporter, tasks: Tasks | None = None) -> list[Path]:
    """From committed measurements to a sealed release, or to a named solution beside it.

    Returns:
      The files of interest.

    Raises:
      OutputError: It is sealed and was made with other settings.
    """
    refuse_sealed(resolved)
    with open_job(resolved, reporter, tasks=tasks) as job:
        solve_and_seal(job)
    return [job.release.report, job.release.microdata, job.release.manifest]


def solve_and_seal(job: Job) -> None:
    """All stages that follow from measurements and cost nothing, those of other settings anew."""
    remove_outdated(job.products)
    estimate_all(job)
    solve_all(job)
    write_all(job)
    seal(job)


def run(
    resolved: Resolved, reporter: Reporter, *, moved: bool = False, tasks: Tasks | None = None
) -> list[Path]:
    """Run all stages that are not complete.

    Args:
      resolved: The run.
      reporter: Who watches it.
      moved: As for `open_job`.
      tasks: As for `open_job`.

    Returns:
      The files of interest, the internal report first.

    Raises:
      OutputError: The release is sealed and was made with other settings.
    """
    refuse_unreadable(resolved)
    refuse_sealed(resolved)
    with open_job(resolved, reporter, moved=moved, tasks=tasks) as job:
        if resolved.solution is None:
            plan_and_read(job)
            measure_all(job)
        solve_and_seal(job)
        evaluate_all(job)
    out = resolved.config.output.directory
    with reporter.line("report", "internal report"):
        internal = write_internal_reports(out, resolved.solution)
    *others, last = resolved.products.values()
    release = last.release
    return [
        *internal,
        release.report,
        *(release.microdata / name for name in last.config.output.microdata),
        *(release.root / name for name in ("measurements", "counts", "tables")),
        *(path for product in others for path in (product.release.report, product.release.root)),
        release.manifest,
    ]
