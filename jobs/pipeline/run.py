"""The pipeline: its stages in order, and the commands that run them.

Each stage publishes whole datasets and skips published ones, so running again continues where the
last run stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from das.errors import ConfigError
from jobs.pipeline.confidential.inputs import refuse_unreadable
from jobs.pipeline.confidential.noise_key import sweep_shares
from jobs.pipeline.confidential.stages import (
    evaluate,
    measure,
    measure_on_demand,
    plan,
    read,
    resolve_constraints,
)
from jobs.pipeline.confidential.training import refuse_same_counts
from jobs.pipeline.config.product import Product, Resolved, account_of
from jobs.pipeline.config.runnable import require_runnable
from jobs.pipeline.documents.document import json_of
from jobs.pipeline.documents.manifest import read_manifest
from jobs.pipeline.documents.summary import read_summary
from jobs.pipeline.folder.identity import claim_as, owner_of
from jobs.pipeline.folder.lock import only_driver
from jobs.pipeline.folder.open import open_folder
from jobs.pipeline.folder.progress import count_files, refuse_damage, repair, stage_progress
from jobs.pipeline.folder.solutions import begin_solution, refuse_finalized, remove_outdated
from jobs.pipeline.folder.spending import refuse_other_draws, reserve_budgets, spendings_of
from jobs.pipeline.job import Job, Stage
from jobs.pipeline.learning import learn_again
from jobs.pipeline.plan import why_no_estimates
from jobs.pipeline.printable import result_console
from jobs.pipeline.release.bound import bound_entries, open_released, refuse_other_account
from jobs.pipeline.release.implied import implied_limits
from jobs.pipeline.release.stages import estimate, finalize, solve, write
from jobs.pipeline.repeat import describe_counts
from jobs.pipeline.report.console import terminal_table
from jobs.pipeline.report.finished import costs_folder, write_internal_reports
from jobs.pipeline.report.run import stages_table
from jobs.pipeline.storage.layout import EstimateLayout
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.executor import Tasks, open_tasks, require_run_packages
from jobs.pipeline.tasks.progress import WIDE, Recorder, Reporter
from jobs.pipeline.tasks.resources import PeakMemory


def _outputs(stage: str, product: Product) -> list[Place]:
    """Return the datasets and files that a stage writes for a product."""
    plan, release, confidential = product.plan, product.release, product.confidential
    output, levels, learned = product.config.output, plan.levels, plan.solving.learned
    joined = [] if output.joined is None else output.joined.file_formats
    bound = [name for name in plan.spine.levels if plan.limits.is_implied(name)]
    implied = [implied_limits(plan, release, name) for name in bound]
    # Constraints that depend on solved counts of another product are written by the stage solve.
    is_tied = plan.limits.depends_on_other_products
    measurable = why_no_estimates(plan) is None
    known = not plan.is_elsewhere  # imported noisy answers come without the true data
    return {
        "plan": [*map(release.geography, plan.geolevels), release.ledger],
        "read": [*map(confidential.histograms, plan.geolevels)] if known else [],
        "resolve_constraints": [
            *(release.invariants(level.name) for level in levels if level.published),
            *(release.given(level.name) for level in levels if level.bound),
            *([] if is_tied else implied),
        ],
        "reserve_budget": [release.account] if plan.spends else [],
        "measure": [*map(release.measurements, plan.spine.levels)],
        "estimate": [*map(EstimateLayout.of(release).tables, plan.geolevels if measurable else ())],
        "solve": [
            *([release.support(levels[0].name)] if plan.support else []),
            *(implied if is_tied else []),
            *(release.lazy_measurements(level.name) for level in levels if level.on_demand),
            *([release.learned] if learned is not None and learned.is_own else []),
            *map(release.counts, plan.geolevels),
        ],
        "write": [
            *(release.microdata / name for name in output.microdata),
            *(release.joined / name for name in joined),
            *map(release.tables, plan.geolevels),
        ],
        "finalize": [release.manifest, release.report, release.whole.manifest],
        "evaluate": [confidential.evaluation, confidential.report] if known else [],
    }[stage]


def reserve_budget(job: Job) -> None:
    """Reserve the budget of all products, once."""
    for product in job.products:
        for entry in bound_entries(product.config.invariants) if product.plan.spends else ():
            if entry.released is not None and entry.released.path is not None:
                released = open_released(product.plan, entry, entry.released)
                refuse_other_account(released, account_of(job.resolved.config))
    reserve_budgets(spendings_of(job.resolved, job.identity))


# The order is part of the guarantees. `resolve_constraints` checks the invariants before
# `reserve_budget`, so a contradiction costs nothing. `reserve_budget` precedes `measure`, so no
# crash leaves noisy answers whose budget no account reserved.
STAGES = tuple(
    Stage(name, sees_truth, partial(_outputs, name), function)
    for name, sees_truth, function in (
        ("plan", True, plan),  # without a public list, geounits come from the data
        ("read", True, read),
        ("resolve_constraints", True, resolve_constraints),
        ("reserve_budget", False, reserve_budget),
        ("measure", True, measure),
        ("estimate", False, estimate),
        # Solving sees noise only. The function that draws on-demand queries between its geolevels
        # is passed in, so that `release` need not import `confidential`. So are the functions that
        # measure and solve released counts again.
        ("solve", False, partial(solve, measure_on_demand=measure_on_demand, learn=learn_again)),
        ("write", False, partial(write, describe_counts=describe_counts)),
        ("finalize", False, finalize),
        ("evaluate", True, evaluate),
    )
)
MEASURING = tuple(stage.name for stage in STAGES[:5])  # done once
SOLVING = tuple(stage.name for stage in STAGES[5:9])  # post-processing: spends no budget
EVALUATING = (STAGES[9].name,)
# Before the first of these, regressions that were trained on the input are refused: in a new run
# before budget is reserved, in a further solution before it is solved.
_USES_LEARNED = ("reserve_budget", "solve")


@contextmanager
def open_job(
    resolved: Resolved, reporter: Reporter, *, moved: bool = False, tasks: Tasks | None = None
) -> Iterator[Job]:
    """Lock the run folder, start Spark, and print the costs of the stages at the end.

    Args:
      resolved: The run.
      reporter: Receives progress messages.
      moved: Whether the user confirmed that this moved or copied folder continues the run.
      tasks: Runs the tasks; None starts Spark as the run file configures it.

    Raises:
      OutputError: The folder cannot be written, or belongs to another configuration or driver; or a
        dataset is damaged.
      LedgerError: Another run spent the budget, or published noisy answers are lost.
      RuntimeSetupError: Packages that a run needs are not installed, or Spark does not start.
    """
    if tasks is None:
        require_run_packages()
    roots = resolved.config.output.roots
    out = roots.out
    spendings = partial(spendings_of, resolved)
    with ExitStack() as stack:
        opened = open_folder(owner_of(resolved), spendings, reporter, moved=moved)
        identity, hold = stack.enter_context(opened)
        for product in resolved.products.values():
            sweep_shares(product.confidential.keys)  # of the keys of a driver that was killed
        if resolved.solution is not None:
            begin_solution(resolved)
        refuse_damage(resolved)
        memory = stack.enter_context(PeakMemory())
        costs = costs_folder(roots, resolved.solution)
        recorder = Recorder(costs, reporter, memory)
        with recorder.stage("start", "Spark"):
            if tasks is None:
                tasks = stack.enter_context(open_tasks(resolved.config, reporter.say))
        reporter.event("run_started", name=resolved.config.name, output=str(out), slots=tasks.slots)
        job = Job(resolved, identity, tasks, reporter, recorder, hold.refuse_overtaken, moved)
        refuse_other_draws(spendings(identity))
        yield job
        summary = read_summary(costs)
        reporter.event("run_finished", **json_of(summary.total))
        if not reporter.console.quiet:
            console = result_console()
            table = stages_table(summary, is_narrow=console.width < WIDE)
            console.print(terminal_table(table))


def do_stages(job: Job, names: Sequence[str]) -> None:
    """Run the named stages in pipeline order; each skips its complete outputs.

    Before the first stage of post-processing, outputs of other settings are removed.
    """
    before = next((name for name in _USES_LEARNED if name in names), None)
    for stage in STAGES:
        if stage.name not in names:
            continue
        if stage.name == before:
            refuse_same_counts(job)
        if stage.name == SOLVING[0]:
            remove_outdated(job.products)
        stage.function(job)


def run(
    resolved: Resolved, reporter: Reporter, *, moved: bool = False, tasks: Tasks | None = None
) -> list[Place]:
    """Run all incomplete stages.

    A named solution and a run on imported noisy answers skip the stages up to measuring.

    Args:
      resolved: The run.
      reporter: Receives progress messages.
      moved: As for `open_job`.
      tasks: As for `open_job`.

    Returns:
      Main output files, the internal report first.

    Raises:
      OutputError: The release is finalized, with other settings.
    """
    if resolved.plan.is_elsewhere:
        return run_solving(resolved, reporter, tasks)
    require_runnable(resolved)
    refuse_unreadable(resolved)
    refuse_finalized(resolved)
    before = () if resolved.solution else MEASURING
    with open_job(resolved, reporter, moved=moved, tasks=tasks) as job:
        do_stages(job, (*before, *SOLVING, *EVALUATING))
    with reporter.line("report", "internal report"):
        internal = write_internal_reports(resolved.config.output.roots, resolved.solution)
    *others, last = resolved.products.values()
    release = last.release
    return [
        *internal,
        release.report,
        *(release.microdata / name for name in last.config.output.microdata),
        *(release.root / name for name in ("measurements", "counts", "tables")),
        *(path for product in others for path in (product.release.report, product.release.root)),
        release.whole.manifest,
    ]


def resume(
    resolved: Resolved,
    reporter: Reporter,
    tell: Callable[[str], None],
    *,
    check: bool = False,
    moved: bool = False,
) -> list[Place]:
    """Check a run folder, rebuild damaged datasets, and finish the run.

    Args:
      resolved: The run.
      reporter: Receives progress messages.
      tell: Prints one line about complete outputs or damage.
      check: Whether to report only, without changing files.
      moved: As for `open_job`.

    Returns:
      Main output files; empty if the run was complete, or with `check`.

    Raises:
      OutputError: The release is finalized, with other settings; or a dataset is damaged that
        cannot be rebuilt, or with `check` any dataset.
    """
    require_runnable(resolved)
    refuse_finalized(resolved)
    with only_driver(resolved.config.output.directory):
        for line in stage_progress(STAGES, resolved):
            tell(f"{line.product:<10}{line.stage:<20}{line.done:>4} of {line.outputs} done")
        if check:
            refuse_damage(resolved)
        for damage in [] if check else repair(resolved):
            again = f"{len(damage.redo)} dataset{'s' * (len(damage.redo) > 1)} made again"
            tell(f"{damage.error.where}: {damage.error.what}; {again}")
        is_complete = all(line.is_complete for line in stage_progress(STAGES, resolved))
        if is_complete and not check:
            claim_as(owner_of(resolved))  # the folder remembers where the run file is now
    if is_complete and not moved:  # a moved folder may have draws that the account lacks
        datasets, files = count_files(resolved)
        tell(f"complete: {files} files of {datasets} datasets are as they were published")
        return []
    return [] if check else run(resolved, reporter, moved=moved)


def _refuse_elsewhere(resolved: Resolved) -> None:
    """Refuse a stage that needs confidential data in a run on imported noisy answers.

    Raises:
      ConfigError: The noisy answers are imported.
    """
    if resolved.plan.is_elsewhere:
        raise ConfigError(
            f"{resolved.source}: data.format nmf",
            "names imported noisy answers, so there are no true data to measure or compare with",
            remedy="continue with `das run RUN --only solve` or `das estimate`",
        )


def run_measuring(
    resolved: Resolved, reporter: Reporter, tasks: Tasks | None = None
) -> list[Place]:
    """Read the data and draw the noisy answers, once; the arguments are those of `open_job`.

    Returns:
      The folders of measurements.
    """
    _refuse_elsewhere(resolved)
    require_runnable(resolved)
    refuse_unreadable(resolved)
    with open_job(resolved, reporter, tasks=tasks) as job:
        do_stages(job, MEASURING)
    return [product.release.root / "measurements" for product in job.products]


def run_solving(resolved: Resolved, reporter: Reporter, tasks: Tasks | None = None) -> list[Place]:
    """Make a finalized release, or a named solution, from published measurements.

    The arguments are those of `open_job`.

    Returns:
      Main output files.

    Raises:
      OutputError: The release is finalized, with other settings.
    """
    require_runnable(resolved)
    refuse_finalized(resolved)
    with open_job(resolved, reporter, tasks=tasks) as job:
        do_stages(job, SOLVING)
    last = resolved.last.release
    return [last.report, last.microdata, job.release.manifest]


def run_evaluating(
    resolved: Resolved, reporter: Reporter, tasks: Tasks | None = None
) -> list[Place]:
    """Compare a finalized release with the truth, and write the internal reports.

    The arguments are those of `open_job`.

    Returns:
      The reports and evaluations, all confidential.

    Raises:
      OutputError: The release is not finalized.
    """
    _refuse_elsewhere(resolved)
    require_runnable(resolved)
    roots, solution = resolved.config.output.roots, resolved.solution
    read_manifest(resolved.last.release)
    with open_job(resolved, reporter, tasks=tasks) as job:
        do_stages(job, EVALUATING)
    reports = write_internal_reports(roots, solution)
    return [path for file in reports for path in (file, file.with_name("evaluation.json"))]
