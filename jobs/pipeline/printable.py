"""Print texts from files and users without letting them control the terminal."""

from __future__ import annotations

import sys
from typing import TypeVar, cast

from rich.console import Console

T = TypeVar("T")


def printable(value: T) -> T:
    r"""Return a value with the control characters of its texts written as escapes.

    Args:
      value: A text, or texts and other values in lists, tuples and dictionaries.

    >>> printable({"a\x1b[31mb": ["[/x]\n", 1]})
    {'a\\x1b[31mb': ['[/x]\\n', 1]}
    """
    escaped: object = value
    if isinstance(value, str) and not value.isprintable():
        escapes = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)
        escaped = "".join(escapes)
    elif isinstance(value, dict):
        escaped = {printable(key): printable(item) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        items = (printable(item) for item in value)
        escaped = [*items] if isinstance(value, list) else tuple(items)
    return cast("T", escaped)


def result_console() -> Console:
    """Return a console for results on standard output; 140 columns wide without a terminal.

    Brackets and colons in names are printed as they are, not as markup.
    """
    width = None if sys.stdout.isatty() else 140
    return Console(highlight=False, markup=False, emoji=False, width=width)
