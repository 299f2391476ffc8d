"""The command line: `das COMMAND CONFIG`.

Results go to standard output, progress to standard error. Exit codes: 0 done, 2 configuration or
input, 3 budget, 4 infeasible, 5 solver, 6 a promise is broken, 7 this machine lacks something.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

import typer
from rich.console import Console

from das.errors import DasError
from jobs.cli import design, releases, runs, surveys  # noqa: F401 - they add commands
from jobs.cli.application import app
from jobs.pipeline.tasks.failures import hide_bridge_logs, machine_failure

_OBJECTS_BETWEEN_COLLECTIONS = 500_000


def main() -> int:
    """Run the command line; errors raised on purpose become one line and an exit code."""
    # Imports make some 90,000 objects and no garbage. Looking for it among them, here and when the
    # process ends, is a quarter of what `das validate` takes. Nor are installed packages asked
    # whether they are plugins of pydantic.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    atexit.register(gc.freeze)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    hide_bridge_logs()
    try:
        app()
    except DasError as error:
        return _say(error)
    except SystemExit as stop:
        return int(stop.code or 0)
    except Exception as error:
        failure = machine_failure(error)
        if failure is None:
            raise
        return _say(failure)
    return 0


def _say(error: DasError) -> int:
    """Print an error as one line; returns its exit code."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        f"[bold red]das: {type(error).__name__}[/] ", end=""
    )
    typer.echo(str(error), err=True)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
