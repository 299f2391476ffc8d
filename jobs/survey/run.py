"""Stages of a survey run: reserve budget, measure once, compute results, finalize, evaluate.

Measurements are never repeated. Results follow from them at no cost, and are computed again where
they are missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from das.confidential import Confidential
from das.errors import OutputError
from jobs.pipeline.folder.identity import check_same_files, files_under
from jobs.pipeline.folder.open import open_folder
from jobs.pipeline.folder.spending import Spending, refuse_lost, refuse_other_draws, reserve_budgets
from jobs.pipeline.input.files import plan_chunks
from jobs.pipeline.storage.account import noted_failures
from jobs.pipeline.storage.dataset import is_published
from jobs.pipeline.storage.files import write_json
from jobs.pipeline.storage.ledger import finalize_ledger
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.progress import Reporter
from jobs.survey.checks import SYNTHESIS
from jobs.survey.confidential.evaluate import evaluate
from jobs.survey.confidential.measure import measure_part
from jobs.survey.confidential.read import SurveyTruth, read_survey, table_of
from jobs.survey.documents import read_survey_manifest
from jobs.survey.folder import (
    begin_ledger,
    files_of_interest,
    owner_of,
    refuse_other_settings,
    remove_damaged,
    spending_of,
)
from jobs.survey.manifest import finalize_survey, is_made
from jobs.survey.measurements import read_answers
from jobs.survey.plan import SurveyPlan
from jobs.survey.report.internal import write_internal_page
from jobs.survey.report.public import write_public_page
from jobs.survey.results import (
    draw_microdata,
    released_means,
    released_tables,
    write_marginals,
    write_microdata,
    write_results,
)


@dataclass(frozen=True, eq=False)
class SurveyJob:
    """Opened run of a survey.

    Attributes:
      plan: The public plan.
      spending: Budget of the run and its parts.
      reporter: Receives progress.
    """

    plan: SurveyPlan
    spending: Spending
    reporter: Reporter

    @cached_property
    def truth(self) -> Confidential[SurveyTruth]:
        """Read the survey on first use, and keep it."""
        plan = self.plan
        seen = plan.confidential.root / "input.json"
        files = files_under([plan.config.data.path], plan.account())
        if self.spending.measured:
            check_same_files(files, plan.config.data.path, seen)
        else:
            write_json(seen, files)
        noted = noted_failures(plan.account(), self.spending.reservation)
        with self.reporter.line("read", str(plan.config.data.path)), noted:
            return read_survey(plan)


@contextmanager
def open_survey(
    plan: SurveyPlan, reporter: Reporter, *, moved: bool = False
) -> Iterator[SurveyJob]:
    """Lock the run folder and check its contents.

    Raises:
      OutputError: The folder cannot be written, or belongs to another configuration or driver.
      LedgerError: Another run spent the budget, or noisy answers are lost.
    """
    if not (plan.out / "run.json").exists():
        plan_chunks(table_of(plan))
    with open_folder(
        owner_of(plan), lambda run: [spending_of(plan, run)], reporter, moved=moved
    ) as (identity, _):
        spending = spending_of(plan, identity)
        refuse_lost([spending])
        refuse_other_draws([spending])
        yield SurveyJob(plan, spending, reporter)


def run_survey(plan: SurveyPlan, reporter: Reporter, *, moved: bool = False) -> list[Place]:
    """Measure all parts once, release their results, and compare the results with the data.

    Returns:
      The files to name to the user.

    Raises:
      DasError: As `open_survey`; or the file cannot be read, or a part is finalized with other
        settings.
    """
    with open_survey(plan, reporter, moved=moved) as job:
        refuse_other_settings(plan)
        _measure(job, moved=moved)
        _release(job)
        _evaluate(job)
    return files_of_interest(plan)


def measure_survey(plan: SurveyPlan, reporter: Reporter) -> list[Place]:
    """Read the data and draw the noisy answers of all parts, once.

    Returns:
      The folder of the measurements.

    Raises:
      DasError: As `open_survey`; or the file cannot be read.
    """
    with open_survey(plan, reporter) as job:
        _measure(job)
    return [plan.release.root / "measurements"]


def solve_survey(plan: SurveyPlan, reporter: Reporter) -> list[Place]:
    """Release the results of the measured parts, or write a further solution.

    Returns:
      The files to name to the user.

    Raises:
      DasError: As `open_survey`; or a part is not measured, or finalized with other settings.
    """
    with open_survey(plan, reporter) as job:
        measured = {part.name for part in job.spending.measured}
        for part in plan.costs:
            if part not in measured:
                where = f"{plan.out}, {part}"
                raise OutputError(
                    where, "is not measured", remedy="use `das run RUN --only measure`"
                )
        refuse_other_settings(plan)
        _release(job)
    return files_of_interest(plan)


def _measure(job: SurveyJob, *, moved: bool = False) -> None:
    plan, spending = job.plan, job.spending
    if len(spending.measured) < len(spending.parts):
        _ = job.truth  # errors of the file are raised before budget is reserved
    begin_ledger(plan)
    reserve_budgets([spending])
    for part in spending.parts:
        with job.reporter.line("measure", part.name):
            measure_part(plan, part, lambda: job.truth, spending, moved=moved)
    finalize_ledger(plan.release.ledger)


def _release(job: SurveyJob) -> None:
    plan = job.plan
    for error in remove_damaged(plan):
        job.reporter.say(f"{error.where}: {error.what}; computing it again")
    if plan.means:
        with job.reporter.line("solve", "means"):
            means = released_means(plan)
            write_results(plan, means)
        for statistic in means.statistics:
            for warning in statistic.warnings:
                job.reporter.say(f"{statistic.name}: {warning}")
    if plan.tables:
        with job.reporter.line("solve", "tables"):
            write_results(plan, released_tables(plan))
    if plan.marginals is not None:
        with job.reporter.line("solve", "marginals"):
            write_marginals(plan)
    if SYNTHESIS in plan.costs and not is_made(plan, SYNTHESIS):
        with job.reporter.line("solve", "microdata"):
            measured = read_answers(plan.release.measured_part(SYNTHESIS), plan.strata)
            write_microdata(plan, draw_microdata(plan, measured))
    with job.reporter.line("finalize", "manifest"):
        finalize_survey(plan)
    with job.reporter.line("finalize", "report"):
        write_public_page(plan.made)


def _evaluate(job: SurveyJob) -> Place:
    plan, reporter = job.plan, job.reporter
    truth = job.truth
    with reporter.line("evaluate", "against the truth"):
        evaluate(plan, truth)
    with reporter.line("evaluate", "report"):
        return write_internal_page(plan.made, plan.confidential)


def check_survey(plan: SurveyPlan) -> list[str]:
    """List each part of a survey as to do, measured or released, without reading survey data.

    Raises:
      LedgerError: Noisy answers that were paid for, or the ledger, are missing or changed.
    """
    refuse_lost([spending_of(plan)])
    lines = []
    for part in plan.costs:
        measured = is_published(plan.release.measured_part(part))
        done = "released" if is_made(plan, part) else "measured" if measured else "to do"
        lines.append(f"{part:<24}{done}")
    return lines


def evaluate_survey(plan: SurveyPlan, reporter: Reporter) -> list[Place]:
    """Compare a finalized release with the confidential data.

    Returns:
      Places of the written `evaluation.json` and `report.html`; both files are confidential.

    Raises:
      OutputError: The release has no manifest yet, or the manifest is damaged.
    """
    read_survey_manifest(plan.made.manifest)
    with open_survey(plan, reporter) as job:
        report = _evaluate(job)
    return [plan.confidential.evaluation, report]
