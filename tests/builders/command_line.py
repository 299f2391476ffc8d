"""The commands of the command line, those of groups included, and what is typed for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer.main

from jobs.cli.main import app

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
SHOWN = {name: command for name, command in COMMANDS.items() if not command.hidden}


def command_of(words: Sequence[str]) -> tuple[Any, list[str]]:
    """Return the command that words name, and the words that it is given.

    Raises:
      KeyError: There is none, or it is a former name.
    """
    name, *rest = words
    command = SHOWN[name]
    if hasattr(command, "commands"):
        return command.commands[rest[0]], rest[1:]
    return command, rest


def leaves() -> list[tuple[list[str], Any]]:
    """Return every command that is shown, with the words that name it."""
    found: list[tuple[list[str], Any]] = []
    for name, command in SHOWN.items():
        below = getattr(command, "commands", None)
        found += (
            [([name], command)] if below is None else [([name, k], c) for k, c in below.items()]
        )
    return found
