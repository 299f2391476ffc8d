"""Survey runs: the same commands as for censuses, in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from jobs.cli.options import FolderOptions, RunOptions, name_files, refuse_options
from jobs.pipeline.storage.place import Place

if TYPE_CHECKING:
    from jobs.pipeline.tasks.progress import Reporter
    from jobs.survey.plan import SurveyPlan


def refuse_cluster(options: RunOptions) -> None:
    """Refuse a master or a cluster for a survey, which runs in one process.

    Raises:
      ConfigError: A master or a cluster was given.
    """
    why = "is for censuses; a survey runs in one process"
    refuse_options(why, master=options.master, cluster=options.cluster)


def work_on_survey(
    work: Callable[[SurveyPlan, Reporter], list[Place]],
    config: Path,
    out: Place | None,
    solution: str | None,
    options: RunOptions,
) -> None:
    """Load the run file of a survey, work on it, and print the written files."""
    from jobs.survey.plan import load_survey

    refuse_cluster(options)
    plan = load_survey(config, output=out, confidential=options.confidential, solution=solution)
    name_files(work(plan, options.reporter()), plan.config.output.roots)


def resume_survey(
    out: Place, options: RunOptions, folder: FolderOptions, solution: str | None
) -> None:
    """Print the progress of a survey run; unless only checking, finish it and print its files."""
    from jobs.survey.folder import load_folder
    from jobs.survey.run import check_survey, run_survey

    refuse_cluster(options)
    plan = load_folder(out, folder.config, solution, options.confidential)
    for line in check_survey(plan):
        typer.echo(line)
    if not folder.check:
        files = run_survey(plan, options.reporter(), moved=folder.moved)
        name_files(files, plan.config.output.roots)
