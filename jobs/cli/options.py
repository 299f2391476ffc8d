"""Arguments and options of commands, and their parsers.

Options of several commands are annotations here. Groups of options are dataclasses: each field is
an option, and its text in the docstring of the class is the help of the option.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from das.errors import ConfigError
from das.rational import parse_fraction
from jobs.pipeline.printable import printable
from jobs.pipeline.storage.place import Place, lies_in

if TYPE_CHECKING:
    from jobs.pipeline.config.product import Resolved
    from jobs.pipeline.storage.layout import Roots
    from jobs.pipeline.tasks.progress import Reporter

    AnyPlace = Place
else:
    AnyPlace = type("Place", (), {})  # typer supports no union; the parser returns either kind


@contextmanager
def _refused_at(where: str) -> Iterator[None]:
    """Turn a ValueError of a block into a ConfigError that names the place."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(where, str(error)) from None


def read_local(value: str | Path) -> Path:
    """Parse a local path of the command line.

    Raises:
      ConfigError: The path is not on this machine, such as a URL, or is an endless device.
    """
    from jobs.pipeline.config.local_path import is_endless, local_path

    with _refused_at(f"path {value}"):
        path = local_path(value)
    if is_endless(path):
        raise ConfigError(f"path {value}", "is an endless device", want="a file or folder")
    return path


def read_run(value: str | Path) -> Path:
    """Parse the path of a run file; refuse a folder, and name the run file of a run folder."""
    from jobs.pipeline.storage.files import read_json

    path = read_local(value)
    if path.is_dir():
        folders = [one for one in (path, path.absolute().parent) if (one / "run.json").is_file()]
        source = read_json(folders[0] / "run.json", "").get("run_file") if folders else None
        want = f"its run file {source}" if source else "a run file; a release alone has none"
        raise ConfigError(str(path), "is a folder", want=want)
    return path


def read_master(value: str) -> str:
    """Parse a Spark master of the command line.

    Raises:
      ConfigError: The text is the URL of a Spark Connect server.
    """
    from jobs.pipeline.config.protection import refuse_remote

    with _refused_at("--master"):
        refuse_remote(value)
    return value


def read_address(value: str | Place) -> Place:
    """Parse a path or an address of data and runs.

    Raises:
      ConfigError: The text is neither, or names an unknown kind of store.
    """
    from jobs.pipeline.config.local_path import read_place, without_secrets

    with _refused_at(f"path {without_secrets(str(value))}"):
        path = read_place(value)
    return read_local(path) if isinstance(path, Path) else path


def read_queries(value: str) -> tuple[str, ...]:
    """Split queries that are separated by commas."""
    from das.queries.query import split_queries

    return tuple(split_queries(value))


ConfigArgument = Annotated[Path, typer.Argument(help="Run file.", parser=read_run, metavar="RUN")]
FolderArgument = Annotated[
    AnyPlace, typer.Argument(help="Folder of a run or of a release.", parser=read_address)
]
MasterOption = Annotated[
    str | None,
    typer.Option(help="Spark master; replaces runtime.master.", parser=read_master, metavar="TEXT"),
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Print no progress.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
NewFolderArgument = Annotated[Path, typer.Argument(help="Empty or new folder.", parser=read_local)]
ProductOption = Annotated[
    str | None, typer.Option(help="Name of a product. Default: the last one.")
]


@dataclass(frozen=True)
class SessionOptions:
    """Options of all commands with a Spark session.

    Attributes:
      master: Spark master; replaces runtime.master.
      quiet: Print no progress.
      cluster: YAML file whose `runtime` replaces the one of the run.
    """

    master: MasterOption = None
    quiet: QuietOption = False
    cluster: Path | None = None

    def load(self, config: Path, **settings: Any) -> Resolved:  # noqa: ANN401 - as of `load_run`
        """Load the run of a run file, with the runtime of the cluster file."""
        from jobs.pipeline.config.load import load_run

        resolved = load_run(config, master=self.master, **settings)
        return with_arrow_alone(self._on_cluster(resolved))

    def load_again(
        self,
        out: Place,
        config: Path | None,
        solution: str | None,
        confidential: Place | None = None,
    ) -> Resolved:
        """Load the run of a folder, from the run file whose path the folder stores.

        Args:
          out: The run folder.
          config: Another run file to use; None for the stored one.
          solution: A further solution of the run; None for the release itself.
          confidential: The confidential folder; None for the stored one.
        """
        from jobs.pipeline.folder.identity import load_again

        resolved = load_again(out.resolve(), config, self.master, solution, confidential)
        return self._on_cluster(resolved)

    def _on_cluster(self, resolved: Resolved) -> Resolved:
        from jobs.pipeline.config.load import on_cluster

        return on_cluster(resolved, self.cluster, self.master)

    def reporter(self) -> Reporter:
        """Return a reporter of progress."""
        from jobs.pipeline.tasks.progress import Reporter

        return Reporter(quiet=self.quiet)


@dataclass(frozen=True)
class RunOptions(SessionOptions):
    """Options of all commands that read confidential data.

    Attributes:
      log: Append events to this file, one JSON object per line.
      confidential: Folder of confidential files; replaces output.confidential.
      out: Run folder; replaces output.directory.
      solution: Name of a further solution, in OUT/solutions.
    """

    log: Path | None = field(default=None, metadata={"option": "--log-json"})
    confidential: Place | None = None
    out: Place | None = None
    solution: str | None = None

    def load(self, config: Path, **settings: Any) -> Resolved:  # noqa: ANN401 - as of `load_run`
        """Load the run of a run file, with the folders and the solution of these options."""
        settings |= {"output": self.out, "confidential": self.confidential}
        return super().load(config, **settings, solution=self.solution)

    def reporter(self) -> Reporter:
        """Return a reporter of progress that also writes the log."""
        from jobs.pipeline.tasks.progress import Reporter

        return Reporter(quiet=self.quiet, log=self.log)


@dataclass(frozen=True)
class FolderOptions:
    """Options to resume a run from its folder.

    Attributes:
      config: New path of the run file.
      check: Only print which parts are complete or damaged.
      moved: Continue in this copy of the folder; all other copies are abandoned.
    """

    config: Path | None = None
    check: bool = False
    moved: bool = False


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option to a command for each field of its dataclass parameters."""
    parameters: dict[str, inspect.Parameter] = {}
    kinds: dict[str, Any] = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        kind = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            kinds[name] = kind
            parameters |= {option.name: option for option in _options_of(kind)}
        else:
            parameters[name] = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)

    @wraps(command)
    def run(**values: Any) -> None:  # noqa: ANN401 - as the command line gives them
        for name, kind in kinds.items():
            given = {option.name: values.pop(option.name) for option in fields(kind)}
            lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
            values[name] = kind(**given | lists)
        command(**values)

    run.__annotations__ = {name: option.annotation for name, option in parameters.items()}
    run.__signature__ = inspect.Signature([*parameters.values()])  # type: ignore[attr-defined]
    return run


def _options_of(kind: Any) -> Iterator[inspect.Parameter]:  # noqa: ANN401 - a dataclass
    hints, helps = get_type_hints(kind, include_extras=True), meanings(kind)
    for each in fields(kind):
        default = [*each.default] if isinstance(each.default, tuple) else each.default
        annotation = _option(each, hints[each.name], helps[each.name])
        option = inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
        yield option if default is MISSING else option.replace(default=default)


def _option(each: Field[Any], hint: Any, help_text: str) -> Any:  # noqa: ANN401 - types
    """Annotate a field of a dataclass as an option or argument."""
    if hasattr(hint, "__metadata__"):
        return hint
    flag = each.metadata.get("option", f"--{each.name.replace('_', '-')}")

    def read_fraction(value: str | Fraction) -> Fraction:
        return parse_fraction(value, flag)

    read: dict[Any, tuple[Any, Callable[..., Any] | None]] = {
        Path: (Path, read_local),
        Path | None: (Path | None, read_local),
        Place: (AnyPlace, read_address),
        Place | None: (AnyPlace | None, read_address),
        Fraction | None: (str | None, read_fraction),
        tuple[str, ...]: (list[str], None),
        tuple[str, ...] | None: (str | None, read_queries),
    }
    shown, parser = read.get(hint, (hint, None))
    if each.default is MISSING or each.metadata.get("argument"):
        return Annotated[shown, typer.Argument(help=help_text, parser=parser)]
    return Annotated[shown, typer.Option(flag, help=help_text, parser=parser)]


def meanings(kind: type) -> dict[str, str]:
    """Return the meaning of each field, from `Attributes` in docstrings of a type and its bases."""
    out: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        section = (inspect.getdoc(each) or "").partition("Attributes:\n")[2]
        for key, text in re.findall(r"^  (\w+): (.*(?:\n    .*)*)", section, re.MULTILINE):
            out[key] = " ".join(text.split())
    return out


def with_arrow_alone(resolved: Resolved) -> Resolved:
    """Make Arrow work without pandas, and return the run."""
    from jobs.pipeline.tasks.arrow_alone import leave_pandas_out

    leave_pandas_out()
    return resolved


def refuse_options(why: str, **given: object) -> None:
    """Refuse options that do not apply, named by their parameters.

    Raises:
      ConfigError: An option is neither None nor False; the error names the first.
    """
    for name, value in given.items():
        if value is not None and value is not False:
            raise ConfigError(f"--{name.replace('_', '-')}", why)


def refuse_others(request: Any, mode: str, *allowed: str) -> None:  # noqa: ANN401 - a dataclass
    """Refuse options of a request that a mode of its command does not use.

    Args:
      request: Dataclass of options.
      mode: Field that selects the mode.
      allowed: Fields that the mode uses.

    Raises:
      ConfigError: Another field is not at its default.
    """
    others = [option for option in fields(request) if option.name not in {mode, *allowed}]
    given = {option.name: getattr(request, option.name) != option.default for option in others}
    refuse_options(f"does not go with --{mode.replace('_', '-')}", **given)


def name_files(files: Sequence[Place], roots: Roots) -> None:
    """Print the written files, and mark those in the confidential half of a run."""
    width = max(len(str(path)) for path in files)
    confidential = roots.confidential.resolve()
    for path in files:
        kind = "CONFIDENTIAL" if lies_in(path.resolve(), confidential) else "publishable"
        typer.echo(printable(f"{path!s:<{width}}  {kind}"))
