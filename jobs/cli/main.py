"""The command line: `das COMMAND CONFIG`.

Results go to standard output, progress to standard error. Exit codes: 0 done, 2 configuration or
input, 3 budget, 4 infeasible, 5 solver, 6 a check failed, 7 this machine lacks something.
"""

from __future__ import annotations

import atexit
import gc
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import typer
from rich.console import Console

from das.errors import DasError
from jobs.cli import design, releases, runs
from jobs.pipeline.tasks.failures import hide_bridge_logs, machine_failure

_OBJECTS_BETWEEN_COLLECTIONS = 500_000
_GROUPS: Mapping[str, Sequence[Callable[..., None]]] = {
    "Run a census": [runs.validate, runs.run, runs.evaluate, runs.account, runs.prepare, runs.demo],
    "Design": (design.init, design.generate, design.plan),
    "Use a release": (
        *(releases.verify, releases.inspect, releases.tables, releases.estimate),
        *(releases.areas, releases.explore, releases.export, releases.compare),
        releases.replicate,
    ),
    "Surveys": (design.generate_survey,),
}

app = typer.Typer(
    name="das",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Protect census and survey microdata: measure with exact noise, solve, write microdata.",
)
_NMF = "Import or export Census Bureau noisy measurement files."
_nmf = typer.Typer(name="nmf", no_args_is_help=True, help=_NMF)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        from jobs.pipeline.revision import revision

        source = f" ({revision()})" if revision() else ""
        try:
            typer.echo(f"das {version('topdown-das')}{source}")
        except PackageNotFoundError:
            typer.echo(f"das, not installed as a package{source}")
        raise typer.Exit


@app.callback()
def _every_command(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Read options before the name of a command."""


def _help(command: Callable[..., None]) -> str:
    """Return the docstring of a command, each paragraph as one line for terminals to break."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


for _panel, _commands in _GROUPS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel, help=_help(_command))(_command)
_nmf.command("import", help=_help(releases.import_nmf))(releases.import_nmf)
_nmf.command("export", help=_help(releases.export_nmf))(releases.export_nmf)
app.add_typer(_nmf, rich_help_panel="Use a release")


def main() -> int:
    """Run the command line; intended errors become one line and an exit code."""
    # Imports create some 90,000 objects and no garbage. Collecting among them, here and at the end
    # of the process, takes a quarter of the time of `das validate`. Searching installed packages
    # for plugins of pydantic is skipped for the same reason.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    atexit.register(gc.freeze)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    hide_bridge_logs()
    try:
        app()
    except DasError as error:
        return _print_error(error)
    except SystemExit as stop:
        return int(stop.code or 0)
    except Exception as error:
        failure = machine_failure(error)
        if failure is None:
            raise
        return _print_error(failure)
    return 0


def _print_error(error: DasError) -> int:
    """Print an error as one line; return its exit code."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        f"[bold red]das: {type(error).__name__}[/] ", end=""
    )
    typer.echo(str(error), err=True)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
