"""Names and texts of others on a terminal: all of them shown, none of them obeyed."""

from __future__ import annotations

import sys
from typing import TypeVar, cast

from rich.console import Console

T = TypeVar("T")


def printable(value: T) -> T:
    r"""A value in whose texts every character that a terminal would obey is written as an escape.

    Args:
      value: A text, or texts and other values in lists, tuples and dictionaries.

    >>> printable({"a\x1b[31mb": ["[/x]\n", 1]})
    {'a\\x1b[31mb': ['[/x]\\n', 1]}
    """
    found: object = value
    if isinstance(value, str) and not value.isprintable():
        escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)
        found = "".join(escaped)
    elif isinstance(value, dict):
        found = {printable(key): printable(one) for key, one in value.items()}
    elif isinstance(value, list):
        found = [printable(one) for one in value]
    elif isinstance(value, tuple):
        found = tuple(printable(one) for one in value)
    return cast("T", found)


def result_console() -> Console:
    """Console for results on standard output; wide where no terminal sets a width.

    Brackets and colons in names are no markup.
    """
    width = None if sys.stdout.isatty() else 140
    return Console(highlight=False, markup=False, emoji=False, width=width)
