"""The command `das` itself: its name, help and version."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    name="das",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Protect census and survey microdata: measure with exact noise, solve, write microdata.",
)


def _say_version(wanted: bool) -> None:
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
        typer.Option("--version", help="Say the version.", is_eager=True, callback=_say_version),
    ] = False,
) -> None:
    """What comes before the name of a command."""
