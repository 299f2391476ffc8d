"""Runs of surveys: claim, measure once, make means, tables and microdata, seal, evaluate.

What is measured is never measured again; what follows from it costs nothing and is made again
where it is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from das.confidential import Confidential
from das.errors import ConfigError
from jobs.confidential.survey.evaluate import evaluate
from jobs.confidential.survey.measure import measure_part
from jobs.confidential.survey.read import SurveyTruth, read_survey, table_of
from jobs.documents.survey import read_survey_manifest
from jobs.folder.fingerprint import check_same_files, files_under
from jobs.folder.identity import claim_as
from jobs.folder.lock import only_driver
from jobs.folder.roots import make_roots
from jobs.input.files import plan_chunks
from jobs.storage.dataset import is_published, sweep
from jobs.storage.files import write_json
from jobs.storage.journal import write_whole
from jobs.storage.modes import open_to_readers
from jobs.storage.place import Place
from jobs.survey.folder import (
    claim_grant,
    draws_of,
    files_of_interest,
    owner_of,
    refuse_lost_ledger,
    refuse_lost_measurements,
    refuse_other_draws,
    refuse_other_settings,
    refuse_spent_grant,
    remove_damaged,
)
from jobs.survey.manifest import is_made, write_manifest
from jobs.survey.means import released_mean, write_means
from jobs.survey.measurements import part_folder, read_answers, read_sums
from jobs.survey.microdata import draw_microdata, write_microdata
from jobs.survey.plan import SYNTHESIS, SurveyPlan
from jobs.survey.reports import write_internal_page, write_public_page
from jobs.survey.tables import write_tables
from jobs.tasks.progress import Reporter


@dataclass(frozen=True, eq=False)
class SurveyJob:
    """An opened run of a survey.

    Attributes:
      plan: What is public of it.
      identity: That of its folder.
      reporter: Who watches.
      moved: Whether its folder is known to be the one that goes on.
    """

    plan: SurveyPlan
    identity: str
    reporter: Reporter
    moved: bool

    @cached_property
    def truth(self) -> Confidential[SurveyTruth]:
        """The survey, read once."""
        plan = self.plan
        seen = plan.confidential.root / "input.json"
        files = files_under([plan.config.data.path], plan.account())
        if any(is_published(part_folder(plan.release, part)) for part in plan.costs):
            check_same_files(files, plan.config.data.path, seen)
        else:
            write_json(seen, files)
        with self.reporter.line("read", str(plan.config.data.path)):
            return read_survey(plan)


@contextmanager
def open_survey(plan: SurveyPlan, reporter: Reporter, *, moved: bool) -> Iterator[SurveyJob]:
    """Claim the run folder and check what lies in it.

    Raises:
      OutputError: The folder cannot be written, or belongs to another configuration or driver.
      LedgerError: The grant was spent by another run, or noisy answers are lost.
    """
    if not (plan.out / "run.json").exists():  # then nothing is left of a run that is refused
        refuse_spent_grant(plan, "")
        plan_chunks(table_of(plan))
    make_roots(plan.config.output.roots)
    with only_driver(plan.out):
        identity = claim_as(owner_of(plan))
        refuse_spent_grant(plan, identity)
        refuse_lost_ledger(plan, identity)
        refuse_lost_measurements(plan)
        refuse_other_draws(plan, identity)
        yield SurveyJob(plan, identity, reporter, moved)


def run_survey(
    plan: SurveyPlan, reporter: Reporter, parts: Sequence[str], *, moved: bool = False
) -> list[Place]:
    """Measure some parts, once, and release what follows from them.

    Returns:
      The files of interest.

    Raises:
      DasError: As `open_survey`; or the file cannot be read, or a part is sealed with other
        settings.
    """
    with open_survey(plan, reporter, moved=moved) as job:
        for part in parts:
            refuse_other_settings(plan, part)
        _measure(job, parts)
        for error in remove_damaged(plan):
            reporter.say(f"{error.where}: {error.what}; made again")
        _release(job, parts)
    return files_of_interest(plan)


def _measure(job: SurveyJob, parts: Sequence[str]) -> None:
    plan = job.plan
    absent = [part for part in parts if not is_published(part_folder(plan.release, part))]
    if absent:
        _ = job.truth  # what is wrong with the file is told before the grant is claimed
    claim_grant(plan, job.identity)
    draws = draws_of(plan, job.identity)
    for part in parts:
        with job.reporter.line("measure", part):
            measure_part(plan, part, lambda: job.truth, draws, moved=job.moved)


def _release(job: SurveyJob, parts: Sequence[str]) -> None:
    plan, definition = job.plan, job.plan.config.privacy.definition
    kinds = {plan.kind(part) for part in parts}
    if "means" in kinds:
        with job.reporter.line("solve", "means"):
            statistics = [
                released_mean(mean, read_sums(part_folder(plan.release, mean.name)), definition)
                for mean in plan.means
            ]
            write_means(plan, statistics)
        for one in statistics:
            for warning in one.warnings:
                job.reporter.say(f"{one.name}: {warning}")
    if "tables" in kinds:
        with job.reporter.line("solve", "tables"):
            write_tables(plan)
    if SYNTHESIS in parts and not is_made(plan, SYNTHESIS):
        with job.reporter.line("solve", "microdata"):
            measured = read_answers(part_folder(plan.release, SYNTHESIS), plan.strata)
            write_microdata(plan, draw_microdata(plan, measured))
    with job.reporter.line("seal", "manifest"):
        sweep(plan.made.root)
        write_whole(plan.release.ledger)
        write_manifest(plan, [part for part in plan.costs if is_made(plan, part)])
    with job.reporter.line("seal", "report"):
        write_public_page(plan.made)
        open_to_readers(plan.made.root)


def wanted_parts(plan: SurveyPlan, wanted: Sequence[str]) -> list[str]:
    """The parts of a run of some kinds.

    Args:
      plan: The run.
      wanted: Of `means`, `tables` and `synthesis`; of several, what there is.

    Raises:
      ConfigError: There are none.
    """
    parts = [part for part in plan.costs if plan.kind(part) in wanted]
    if not parts:
        section = "statistics" if "means" in wanted else wanted[0]
        raise ConfigError(str(plan.source), f"has no section `{section}`", want=section)
    return parts


def check_survey(plan: SurveyPlan) -> list[str]:
    """What of a run is done, a line per part; no data is read.

    Raises:
      LedgerError: Noisy answers are lost.
    """
    refuse_lost_measurements(plan)
    lines = []
    for part in plan.costs:
        measured = is_published(part_folder(plan.release, part))
        done = "released" if is_made(plan, part) else "measured" if measured else "to do"
        lines.append(f"{part:<24}{done}")
    return lines


def evaluate_survey(plan: SurveyPlan, reporter: Reporter) -> list[Place]:
    """Compare a sealed release with the truth.

    Returns:
      The files of interest, all confidential.

    Raises:
      OutputError: The release is not sealed.
    """
    read_survey_manifest(plan.made.manifest)
    with open_survey(plan, reporter, moved=False) as job:
        truth = job.truth
        with reporter.line("evaluate", "against the truth"):
            evaluate(plan, truth)
        with reporter.line("evaluate", "report"):
            report = write_internal_page(plan.made, plan.confidential)
    return [plan.confidential.evaluation, report]
