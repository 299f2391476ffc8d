"""What a command on a finished run is given: a run file, a folder, or a release alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from das.errors import ConfigError
from jobs.pipeline.storage.place import Place

if TYPE_CHECKING:
    from jobs.pipeline.config.product import Product, Resolved
    from jobs.survey.plan import SurveyPlan


def load_finished(config: Place, out: Place | None, solution: str | None) -> Resolved:
    """The run of a run file, or of the folder of a release alone.

    Raises:
      ConfigError: Options that go with a run file were given with a folder.
    """
    from jobs.pipeline.config.load import load_run
    from jobs.pipeline.config.released import load_release

    if isinstance(config, Path) and not config.is_dir():
        return load_run(config, output=out, solution=solution)
    refuse_beside_folder(config, out, solution)
    return load_release(config)


def load_finished_survey(
    config: Place, out: Place | None, solution: str | None
) -> SurveyPlan | None:
    """The run of a survey, by its run file or the folder of its release alone; None of a census."""
    from jobs.pipeline.config.released import is_survey_release

    if isinstance(config, Path) and not config.is_dir():
        if not is_survey_file(config):
            return None
        from jobs.survey.plan import load_survey

        return load_survey(config, output=out, solution=solution)
    if not is_survey_release(config):
        return None
    from jobs.survey.manifest import load_survey_release

    refuse_beside_folder(config, out, solution)
    return load_survey_release(config)


def refuse_beside_folder(config: Place, out: Place | None, solution: str | None) -> None:
    """Refuse options of a run file beside the folder of a release.

    Raises:
      ConfigError: One was given.
    """
    if out is not None or solution is not None:
        raise ConfigError("--out and --solution", "go with a run file", got=f"the folder {config}")


def load_finished_run(config: Place, out: Place | None, solution: str | None) -> Resolved:
    """As `load_finished`, or of the folder of a run, which remembers its run file."""
    from jobs.pipeline.folder.identity import load_again
    from jobs.pipeline.storage.layout import is_release
    from jobs.survey.folder import refuse_survey_folder

    if is_release(config) or not (config / "run.json").is_file():
        return load_finished(config, out, solution)
    refuse_survey_folder(config)
    return load_again(config.resolve(), None, None, solution)


def product_named(resolved: Resolved, name: str | None) -> Product:
    """A product of a run by its name, or the last."""
    if name is not None and name not in resolved.products:
        raise ConfigError("--product", "is unknown", got=name, want=[*resolved.products])
    return resolved.last if name is None else resolved.products[name]


def is_survey_file(config: Path) -> bool:
    """Whether a run file says that it is one of a survey."""
    from jobs.pipeline.config.files import is_survey

    return is_survey(config)
