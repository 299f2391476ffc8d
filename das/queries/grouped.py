"""Groups of levels that a query names itself: `age[0-17, 65+]`, without a recode in the schema.

Between brackets stand groups with commas between them. A group is one of

- a level, by its label;
- `A..B`, the levels from A to B in the order of the schema;
- a number, `N-M` or `N+`, where labels say of which whole numbers a level is, such as `under_18`,
  `18_to_64`, `65 years and over` or `5-17`;
- several of these joined by ` + `.

Each group has one answer, labelled as it is written; groups may overlap and leave levels out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from das.arrays import BoolArray
from das.errors import SchemaError
from das.queries.factor import Factor

_OPEN = 10**9  # above every number of a label
_FROM = re.compile(r"\+|\b(?:and|or)[ _]+(?:over|older|more|above|up)\b")
_TO = re.compile(r"<|\b(?:under|below|less|younger|fewer)\b")
_UP_TO = re.compile(r"\bup[ _]to\b")
_SPAN = re.compile(r"(\d+)(?:\s*[-\u2013]\s*(\d+)|\s*(\+))?")


def grouped(levels: Sequence[str], text: str) -> Factor:
    """The count of every group that a text between brackets names.

    Args:
      levels: Labels of the levels, or of the groups of a recode.
      text: What stands between the brackets.

    Raises:
      SchemaError: A group is not understood, or a number lies within a level.

    >>> ages = ("under_18", "18_to_64", "65_and_over")
    >>> grouped(ages, "0-17, 18+").matrix.tolist(), grouped(ages, "0-17, 18+").labels
    ([[1, 0, 0], [0, 1, 1]], ('0-17', '18+'))
    """
    pieces = [piece.strip() for piece in text.split(",")]
    rows: list[BoolArray] = []
    labels: list[str] = []
    start = 0
    while start < len(pieces):  # a label may hold a comma: the longest that is understood
        for stop in range(len(pieces), start, -1):
            label = ", ".join(pieces[start:stop])
            row = _group(levels, label)
            if row is not None:
                break
        else:
            raise _refusal(levels, pieces[start])
        rows.append(row)
        labels.append(label)
        start = stop
    return Factor(np.stack(rows).astype(np.int64), tuple(labels))


def _group(levels: Sequence[str], text: str) -> BoolArray | None:
    """bool[n]: the levels of a group; None if it is not understood."""
    if text in levels:
        return np.array([level == text for level in levels])
    if " + " in text:
        parts = [_group(levels, part.strip()) for part in text.split(" + ")]
        known = [part for part in parts if part is not None]
        return np.logical_or.reduce(known) if len(known) == len(parts) else None
    first, dots, last = (part.strip() for part in text.partition(".."))
    if dots and first in levels and last in levels:
        ends = levels.index(first), levels.index(last)
        places = np.arange(len(levels))
        return (places >= ends[0]) & (places <= ends[1]) if ends[0] <= ends[1] else None
    return _numbers(levels, text)


def _numbers(levels: Sequence[str], text: str) -> BoolArray | None:
    """The levels within a range of numbers; None if the text is none, or ends within a level."""
    match = _SPAN.fullmatch(text)
    if match is None:
        return None
    low = int(match[1])
    high = _OPEN if match[3] else int(match[2] or match[1])
    held = [_span(level) for level in levels]
    inside = np.array([span is not None and low <= span[0] and span[1] <= high for span in held])
    cut = [
        span
        for span, whole in zip(held, inside, strict=True)
        if span is not None and not whole and span[0] <= high and low <= span[1]
    ]
    return None if cut or not inside.any() else inside


def _span(label: str) -> tuple[int, int] | None:
    """The whole numbers that a label says; None if it says none.

    >>> [_span(label) for label in ("under 18", "18_to_64", "85+", "20 and 21", "7", "white")]
    [(0, 17), (18, 64), (85, 1000000000), (20, 21), (7, 7), None]
    """
    words = label.lower().replace("_", " ")
    numbers = [int(number) for number in re.findall(r"\d+", words)]
    if len(numbers) == 2:
        return (numbers[0], numbers[1]) if numbers[0] <= numbers[1] else None
    if len(numbers) != 1:
        return None
    if _FROM.search(words):
        return numbers[0], _OPEN
    if _UP_TO.search(words):
        return 0, numbers[0]
    return (0, numbers[0] - 1) if _TO.search(words) else (numbers[0], numbers[0])


def _refusal(levels: Sequence[str], text: str) -> SchemaError:
    spans = [_span(level) for level in levels]
    starts = [str(span[0]) for span in spans if span is not None]
    want = f"levels such as {', '.join(levels[:3])}, or A..B"
    if starts and _SPAN.fullmatch(text):
        want = f"levels, A..B, or numbers such as N-M and N+; levels begin at {', '.join(starts)}"
    elif starts:
        want += ", or numbers such as N-M and N+"
    return SchemaError(
        f"group [{text}]",
        "is none of the levels, and no range of them",
        got=text or "nothing",
        want=want,
    )
