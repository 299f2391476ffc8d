"""Release that a command reads, named by a run file, a run folder or a release folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.cli.options import refuse_options, with_arrow_alone
from jobs.pipeline.storage.place import Place

if TYPE_CHECKING:
    from jobs.pipeline.config.product import Resolved
    from jobs.survey.plan import SurveyPlan


@dataclass(frozen=True)
class Finished:
    """Finished release, as named on the command line.

    Attributes:
      release: Folder of a release or of a run, or a run file.
      solution: Name of a further solution, in OUT/solutions.
    """

    release: Place
    solution: str | None = None

    @property
    def run_file(self) -> Path | None:
        """Return the run file, or None if the argument of the command is a folder."""
        path = self.release
        return path if isinstance(path, Path) and not path.is_dir() else None

    def load(self) -> Resolved:
        """Load the run from its run file, or from the release folder alone.

        Raises:
          ConfigError: A solution was named together with a release folder.
        """
        from jobs.pipeline.config.load import load_run
        from jobs.pipeline.config.released import load_release

        if self.run_file is not None:
            return with_arrow_alone(load_run(self.run_file, solution=self.solution))
        return with_arrow_alone(load_release(self._folder()))

    def load_folder(self) -> Resolved:
        """Load the run like `load`; for a run folder include confidential files."""
        from jobs.pipeline.folder.identity import load_again
        from jobs.pipeline.storage.layout import is_release
        from jobs.survey.folder import refuse_survey_folder

        if is_release(self.release) or not (self.release / "run.json").is_file():
            return self.load()
        refuse_survey_folder(self.release)
        return with_arrow_alone(load_again(self.release.resolve(), None, None, self.solution))

    def load_survey(self) -> SurveyPlan | None:
        """Load the survey from its run file or release folder; None for a census."""
        from jobs.pipeline.config.released import is_survey_release

        if self.run_file is not None:
            if not is_survey_file(self.run_file):
                return None
            from jobs.survey.plan import load_survey

            return load_survey(self.run_file, solution=self.solution)
        folder = self._folder()
        if not is_survey_release(folder):
            return None
        from jobs.survey.manifest import load_survey_release

        return load_survey_release(folder)

    def _folder(self) -> Place:
        """Return the release folder: the named folder, or the one inside it."""
        from jobs.pipeline.storage.layout import is_release, release_folder

        if is_release(self.release):
            refuse_options("goes with a run file or a run folder", solution=self.solution)
            return self.release
        inner = release_folder(self.release, self.solution)
        is_run = is_release(inner) or (self.release / "run.json").is_file()
        return inner if is_run else self.release


def is_finished(path: Place) -> bool:
    """Return whether a path names a release or a run, rather than files of others."""
    from jobs.pipeline.storage.layout import is_release, release_folder

    if isinstance(path, Path) and path.suffix in (".yaml", ".yml"):
        return True
    return is_release(path) or is_release(release_folder(path, None))


def is_survey_file(config: Path) -> bool:
    """Return whether a run file belongs to a survey."""
    from jobs.pipeline.config.files import is_survey

    return is_survey(config)
