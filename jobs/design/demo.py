"""The command `das demo`: ready files, a synthetic state and its run, in one folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow.parquet as pq

from das.errors import OutputError
from jobs.design.requests import GenerateSpec
from jobs.design.synthetic.files import check_spec
from jobs.design.synthetic.generate import generate
from jobs.pipeline.config.files import ready_files
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.run import run
from jobs.pipeline.storage.files import writing
from jobs.pipeline.storage.layout import Roots
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.executor import require_run_packages
from jobs.pipeline.tasks.java import find_java_home
from jobs.pipeline.tasks.progress import Reporter

_CONF = PurePosixPath("conf")
_RUN_FILE = _CONF / "run" / "demo.yaml"
_DATA = PurePosixPath("build/demo-data")  # as the run file names them
_OUT = PurePosixPath("build/demo")


@dataclass(frozen=True)
class Demo:
    """Options of `das demo`.

    Attributes:
      folder: Folder of the demonstration: new, empty, or with the ready files.
      blocks: Approximate number of blocks of the synthetic state.
      seed: Seed of the synthetic state. The noise is secret, as in every release.
    """

    folder: Path
    blocks: int = 2500
    seed: int = 2020

    def run(
        self, load: Callable[[Path], Resolved], reporter: Reporter
    ) -> tuple[list[Place], Roots]:
        """Write the ready files and the synthetic state, and run conf/run/demo.yaml.

        Args:
          load: Function that loads a run file.
          reporter: Receives progress.

        Returns:
          The files to name to the user, and the roots of the run.

        Raises:
          ConfigError: The blocks or the seed are out of range; nothing was written.
          OutputError: The folder holds other files or cannot be written.
          RuntimeSetupError: There is no Java, or this installation makes no releases; nothing was
            written.
        """
        require_run_packages()
        spec = GenerateSpec(seed=self.seed, blocks=self.blocks)
        check_spec(spec)
        self._refuse_others()
        if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit brings its own Java
            find_java_home()
        for name, content in ready_files().items():
            path = self.folder / _CONF / name
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.exists():  # an existing file is equal: `_refuse_others`
                    path.write_bytes(content)
        with reporter.line("generate", f"{self.blocks} blocks") as tick:
            generate(spec, self.folder / _DATA, progress=tick)
        resolved = load(self.folder / _RUN_FILE)
        return run(resolved, reporter), resolved.config.output.roots

    def next_commands(self) -> list[str]:
        """List commands to try next, from the present working directory."""
        first = pq.read_table(self.folder / _DATA / "geounits.parquet", columns=["geocode"])[0][0]
        county = str(first)[:5]
        here = self.folder.resolve() == Path.cwd()
        return [
            *([] if here else [f"cd {shlex.quote(str(self.folder))}"]),
            f"das inspect {_OUT}",
            f"das verify {_RUN_FILE}",
            f'das estimate {_RUN_FILE} --query "votingage * hispanic" --geounit {county}',
            f"das validate {_RUN_FILE}",
        ]

    def _refuse_others(self) -> None:
        """Refuse a folder with other files than the ready files."""
        if not self.folder.exists():
            return
        for made in (_DATA, _OUT):
            if (self.folder / made).exists():
                raise OutputError(
                    str(self.folder / made),
                    "exists from an earlier demonstration",
                    remedy=f"remove it, or continue with `das run {_RUN_FILE}` in that folder",
                )
        conf = self.folder / _CONF
        is_ready = all(
            (conf / name).is_file() and (conf / name).read_bytes() == content
            for name, content in ready_files().items()
        )
        if not self.folder.is_dir() or (any(self.folder.iterdir()) and not is_ready):
            raise OutputError(
                str(self.folder), "holds other files", remedy="choose a new folder for the demo"
            )
