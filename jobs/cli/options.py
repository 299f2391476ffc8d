"""Arguments and options that several commands share, and how they are read."""

from __future__ import annotations

import inspect as introspection
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from das.errors import ConfigError
from jobs.pipeline.printable import printable
from jobs.pipeline.storage.place import Place, lies_in

if TYPE_CHECKING:
    from jobs.pipeline.config.product import Resolved
    from jobs.pipeline.storage.layout import Roots
    from jobs.pipeline.tasks.progress import Reporter

if TYPE_CHECKING:
    AnyPlace = Place
else:
    AnyPlace = type("Place", (), {})  # typer takes no union; the parser gives either kind


def read_local(value: str | Path) -> Path:
    """Read a path; the parser of every path on the command line.

    Raises:
      ConfigError: It is none of this machine, such as a URL.
    """
    from jobs.pipeline.config.local_path import is_endless, local_path

    try:
        path = local_path(value)
    except ValueError as error:
        raise ConfigError(f"path {value}", str(error)) from None
    if is_endless(path):
        raise ConfigError(f"path {value}", "is a device that does not end", want="a file or folder")
    return path


def read_master(value: str) -> str:
    """Read a master; the parser of every master on the command line.

    Raises:
      ConfigError: It holds a secret, or is the URL of no server.
    """
    from jobs.pipeline.config.protection import refuse_bad_remote

    try:
        refuse_bad_remote(value)
    except ValueError as error:
        raise ConfigError("--master", str(error)) from None
    return value


def read_address(value: str | Place) -> Place:
    """Read a path or an address; the parser of what the command line says of data and runs.

    Raises:
      ConfigError: It is neither, or no store of its kind is known.
    """
    from jobs.pipeline.config.local_path import read_place, without_secrets

    try:
        place = read_place(value)
    except ValueError as error:
        raise ConfigError(f"path {without_secrets(str(value))}", str(error)) from None
    return read_local(place) if isinstance(place, Path) else place


ConfigArgument = Annotated[Path, typer.Argument(help="Run file (YAML).", parser=read_local)]
FinishedArgument = Annotated[
    AnyPlace,
    typer.Argument(
        help="Folder of a release, a path or an address, or its run file (YAML).",
        parser=read_address,
    ),
]
OutOption = Annotated[
    AnyPlace | None,
    typer.Option("--out", help="Path or address; replaces output.directory.", parser=read_address),
]
ConfidentialOption = Annotated[
    AnyPlace | None,
    typer.Option(
        "--confidential", help="Path or address; replaces output.confidential.", parser=read_address
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option("--master", help="Replaces runtime.master.", parser=read_master, metavar="TEXT"),
]
LossesOption = Annotated[
    bool,
    typer.Option(
        "--losses", help="Also what the distribution of the noise says, which is more than its rho."
    ),
]
ClusterOption = Annotated[
    Path | None,
    typer.Option(
        "--cluster", help="YAML whose `runtime` replaces that of the run.", parser=read_local
    ),
]
LogOption = Annotated[
    AnyPlace | None,
    typer.Option(
        "--log-json",
        help="Add events to this file, one JSON a line; a path, or an address such as s3://...",
        parser=read_address,
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress lines.")]
SolutionOption = Annotated[
    str | None,
    typer.Option("--solution", help="Name of a solution beside the release, in OUT/solutions."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
NewFolderArgument = Annotated[Path, typer.Argument(help="Empty or new folder.", parser=read_local)]
MovedConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="Where the run file is now, if it moved.", parser=read_local),
]
GeolevelOption = Annotated[
    str | None, typer.Option(help="All geounits of this geolevel, such as county.")
]
ConfidenceOption = Annotated[float, typer.Option(help="Of the intervals.")]
ParquetOption = Annotated[
    Path | None, typer.Option(help="Write this Parquet file.", parser=read_local)
]
CsvOption = Annotated[Path | None, typer.Option(help="Write this CSV file.", parser=read_local)]
PageOption = Annotated[
    Path, typer.Option("--output", "-o", help="HTML file to write.", parser=read_local)
]
WhoseOption = Annotated[str | None, typer.Option(help="Whose release. Default: the last product.")]


@dataclass(frozen=True)
class RunOptions:
    """Options of every command that works on the folder of a run."""

    master: MasterOption = None
    quiet: QuietOption = False
    cluster: ClusterOption = None
    log: LogOption = None
    confidential: ConfidentialOption = None

    def load(
        self,
        config: Path,
        out: Place | None,
        solution: str | None = None,
        groups: Sequence[str] | None = None,
    ) -> Resolved:
        """The run of a run file, on what a cluster file says."""
        from jobs.pipeline.config.load import load_run

        resolved = load_run(
            config,
            output=out,
            confidential=self.confidential,
            master=self.master,
            solution=solution,
            groups=groups,
        )
        return with_arrow_alone(self.on_cluster(resolved))

    def on_cluster(self, resolved: Resolved) -> Resolved:
        """A run on what a cluster file says."""
        from jobs.pipeline.config.load import on_cluster

        return on_cluster(resolved, self.cluster, self.master)

    def reporter(self) -> Reporter:
        """Who watches."""
        from jobs.pipeline.tasks.progress import Reporter

        return Reporter(quiet=self.quiet, log=self.log)


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each field of its parameter `options` as an option of its own."""
    own = dict(introspection.signature(command, eval_str=True).parameters)
    own.pop("options")
    common = introspection.signature(RunOptions, eval_str=True).parameters
    parameters = {**own, **common}

    @wraps(command)
    def run(**values: Any) -> None:  # noqa: ANN401 - as the command line gives them
        options = RunOptions(**{name: values.pop(name) for name in common})
        command(**values, options=options)

    run.__annotations__ = {name: option.annotation for name, option in parameters.items()}
    run.__signature__ = introspection.Signature([*parameters.values()])  # type: ignore[attr-defined]
    return run


def with_arrow_alone(resolved: Resolved) -> Resolved:
    """The run, after Arrow was told that there is no pandas; a Connect session needs it."""
    from jobs.pipeline.config.protection import REMOTE_VARIABLE, is_remote

    if not is_remote(resolved.config.runtime.master or os.environ.get(REMOTE_VARIABLE, "")):
        from jobs.pipeline.tasks.arrow_alone import leave_pandas_out

        leave_pandas_out()
    return resolved


def refuse_cluster(
    options: RunOptions, why: str = "is for censuses; a survey is worked on by one process"
) -> None:
    """A survey, and what is made of a release, is worked on by one process."""
    for name, value in (("--master", options.master), ("--cluster", options.cluster)):
        if value is not None:
            raise ConfigError(name, why)


def name_files(files: Sequence[Place], roots: Roots) -> None:
    """Name what was written, and which of it is in the confidential half of a run."""
    width = max(len(str(path)) for path in files)
    confidential = roots.confidential.resolve()
    for path in files:
        is_closed = lies_in(path.resolve(), confidential)
        kind = "CONFIDENTIAL" if is_closed else "publishable"
        typer.echo(printable(f"{path!s:<{width}}  {kind}"))
