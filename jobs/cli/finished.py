"""What a command on a finished run is given: a run file, a folder, or a release alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from das.errors import ConfigError
from jobs.cli.options import with_arrow_alone
from jobs.pipeline.storage.place import Place

if TYPE_CHECKING:
    from jobs.pipeline.config.product import Resolved
    from jobs.survey.plan import SurveyPlan


@dataclass(frozen=True)
class Finished:
    """A finished run as the command line names it.

    Attributes:
      config: Folder of a release, a path or an address, or its run file (YAML).
      out: Path or address; replaces output.directory.
      solution: Name of a solution beside the release, in OUT/solutions.
    """

    config: Place
    out: Place | None = None
    solution: str | None = None

    @property
    def run_file(self) -> Path | None:
        """The run file; None if a folder is named."""
        place = self.config
        return place if isinstance(place, Path) and not place.is_dir() else None

    def load(self) -> Resolved:
        """Load the run of a run file, or of the folder of a release alone.

        Raises:
          ConfigError: Options that go with a run file were given with a folder.
        """
        from jobs.pipeline.config.load import load_run
        from jobs.pipeline.config.released import load_release

        if self.run_file is not None:
            return with_arrow_alone(
                load_run(self.run_file, output=self.out, solution=self.solution)
            )
        self._refuse_options()
        return with_arrow_alone(load_release(self.config))

    def load_folder(self) -> Resolved:
        """Do as `load`, or load the run of a folder, which remembers its run file."""
        from jobs.pipeline.folder.identity import load_again
        from jobs.pipeline.storage.layout import is_release
        from jobs.survey.folder import refuse_survey_folder

        if is_release(self.config) or not (self.config / "run.json").is_file():
            return self.load()
        refuse_survey_folder(self.config)
        return with_arrow_alone(load_again(self.config.resolve(), None, None, self.solution))

    def load_survey(self) -> SurveyPlan | None:
        """Load the run of a survey, by its run file or its release alone; None of a census."""
        from jobs.pipeline.config.released import is_survey_release

        if self.run_file is not None:
            if not is_survey_file(self.run_file):
                return None
            from jobs.survey.plan import load_survey

            return load_survey(self.run_file, output=self.out, solution=self.solution)
        if not is_survey_release(self.config):
            return None
        from jobs.survey.manifest import load_survey_release

        self._refuse_options()
        return load_survey_release(self.config)

    def _refuse_options(self) -> None:
        if self.out is not None or self.solution is not None:
            raise ConfigError(
                "--out and --solution", "go with a run file", got=f"the folder {self.config}"
            )


def is_survey_file(config: Path) -> bool:
    """Say whether a run file is that of a survey."""
    from jobs.pipeline.config.files import is_survey

    return is_survey(config)
