"""Print texts from files and users without letting them control the terminal."""

from __future__ import annotations

import re
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


def counted(number: int, nouns: str) -> str:
    """Return a number with its noun, which is given in the plural, in "s".

    >>> counted(2000, "blocks twice"), counted(1, "blocks twice"), counted(1, "families")
    ('2,000 blocks twice', '1 block twice', '1 family')
    """
    one = re.sub(r"(ie)?s\b", lambda ending: "y" if ending[1] else "", nouns, count=1)
    return f"{number:,} {one if number == 1 else nouns}"


def result_console() -> Console:
    """Return a console for results on standard output; 140 columns wide without a terminal.

    Brackets and colons in names are printed as they are, not as markup.
    """
    width = None if sys.stdout.isatty() else 140
    return Console(highlight=False, markup=False, emoji=False, width=width)
