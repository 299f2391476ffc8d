"""The command `das demo`: ready files, a synthetic state and its run, in one folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
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


def run_demo(
    folder: Path, spec: GenerateSpec, load: Callable[[Path], Resolved], reporter: Reporter
) -> tuple[list[Place], Roots]:
    """Write the ready files and a synthetic state, and run conf/run/demo.yaml.

    Args:
      folder: Folder of the demonstration: new, empty, or with the ready files.
      spec: The synthetic state. The noise is secret, as in every release.
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
    check_spec(spec)
    _refuse_others(folder)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit brings its own Java
        find_java_home()
    for name, content in ready_files().items():
        path = folder / _CONF / name
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():  # an existing file is equal: `_refuse_others`
                path.write_bytes(content)
    with reporter.line("generate", f"{spec.blocks} blocks") as tick:
        generate(spec, folder / _DATA, progress=tick)
    resolved = load(folder / _RUN_FILE)
    return run(resolved, reporter), resolved.config.output.roots


def next_commands(folder: Path) -> list[str]:
    """List commands to try next, from the present working directory."""
    first = pq.read_table(folder / _DATA / "geounits.parquet", columns=["geocode"])[0][0]
    here = folder.resolve() == Path.cwd()
    return [
        *([] if here else [f"cd {shlex.quote(str(folder))}"]),
        f"das inspect {_OUT}",
        f"das verify {_RUN_FILE}",
        f'das estimate {_RUN_FILE} --query "votingage * hispanic" --geounit {str(first)[:5]}',
        f"das validate {_RUN_FILE}",
    ]


def _refuse_others(folder: Path) -> None:
    """Refuse a folder with other files than the ready files."""
    if not folder.exists():
        return
    for made in (folder / _DATA, folder / _OUT):
        if made.exists():
            raise OutputError(
                str(made),
                "exists from an earlier demonstration",
                remedy=f"remove it, or continue with `das run {_RUN_FILE}` in the demo's folder",
            )
    ready = {folder / _CONF / name: content for name, content in ready_files().items()}
    is_ready = all(path.is_file() and path.read_bytes() == ready[path] for path in ready)
    if not folder.is_dir() or (any(folder.iterdir()) and not is_ready):
        raise OutputError(
            str(folder), "holds other files", remedy="choose a new folder for the demo"
        )
