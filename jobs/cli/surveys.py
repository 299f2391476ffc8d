"""Work on the run file of a survey; commands are those of censuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from das.errors import ConfigError
from jobs.cli.application import app
from jobs.cli.options import ConfigArgument, RunOptions, name_files, refuse_cluster
from jobs.pipeline.storage.place import Place

if TYPE_CHECKING:
    from jobs.pipeline.tasks.progress import Reporter
    from jobs.survey.plan import SurveyPlan


def refuse_old_survey_command(name: str) -> NoReturn:
    """Name the commands by which a survey is drawn now.

    Raises:
      ConfigError: Always.
    """
    raise ConfigError(
        f"das {name}",
        "no longer draws noise: `das run` and `das measure` alone do",
        want="das run FILE for all parts; das solve FILE --solution NAME to make means or "
        "microdata again with other settings",
    )


@app.command(hidden=True)
def means(config: ConfigArgument) -> None:
    """Name `das run`, which measures the means of a survey."""
    refuse_old_survey_command("means")


@app.command(hidden=True)
def synthesize(config: ConfigArgument) -> None:
    """Name `das run`, which draws microdata of a survey."""
    refuse_old_survey_command("synthesize")


def work_on_survey(
    work: Callable[[SurveyPlan, Reporter], list[Place]],
    config: Path,
    out: Place | None,
    solution: str | None,
    options: RunOptions,
) -> None:
    """Load the run file of a survey, do some work on it, and name the files."""
    from jobs.survey.plan import load_survey

    refuse_cluster(options)
    plan = load_survey(config, output=out, confidential=options.confidential, solution=solution)
    name_files(work(plan, options.reporter()), plan.config.output.roots)


def resume_survey(
    out: Place,
    config: Path | None,
    solution: str | None,
    options: RunOptions,
    *,
    check: bool,
    moved: bool,
) -> None:
    """Go on with the run of a folder, or say what is done, and name the files."""
    from jobs.survey.folder import load_folder
    from jobs.survey.run import check_survey, run_survey

    refuse_cluster(options)
    plan = load_folder(out, config, solution, options.confidential)
    for line in check_survey(plan):
        typer.echo(line)
    if not check:
        files = run_survey(plan, options.reporter(), moved=moved)
        name_files(files, plan.config.output.roots)
