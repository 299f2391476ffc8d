"""Groups of levels in the text of a query: `age[0-17, 65+]`, without a recode in the schema.

The brackets contain groups separated by commas. A group is one of

- a level, by its label;
- `A..B`, the levels from A to B in the order of the schema;
- a number, `N-M` or `N+`, if labels state a range of integers, such as `under_18`, `18_to_64`,
  `65 years and over` or `5-17`;
- several of these joined by ` + `.

Each group has one answer, labelled by its text. Groups may overlap and leave levels out.
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
    """Return the factor that counts every group of levels in a text.

    Args:
      levels: Labels of the levels, or of the groups of a recode.
      text: The text between the brackets.

    Raises:
      SchemaError: A group cannot be read, or a number lies inside the range of a level.

    >>> ages = ("under_18", "18_to_64", "65_and_over")
    >>> grouped(ages, "0-17, 18+").matrix.tolist(), grouped(ages, "0-17, 18+").labels
    ([[1, 0, 0], [0, 1, 1]], ('0-17', '18+'))
    """
    pieces = [piece.strip() for piece in text.split(",")]
    rows: list[BoolArray] = []
    labels: list[str] = []
    start = 0
    while start < len(pieces):  # a label may contain a comma, so take the longest readable text
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
    """Return which of n levels `text` names, bool[n]; None if it is not a valid group."""
    if text in levels:
        return np.array([level == text for level in levels])
    if " + " in text:
        parts = [_group(levels, part.strip()) for part in text.split(" + ")]
        known = [part for part in parts if part is not None]
        return np.logical_or.reduce(known) if len(known) == len(parts) else None
    first, dots, last = (part.strip() for part in text.partition(".."))
    if dots and first in levels and last in levels:
        ends = levels.index(first), levels.index(last)
        numbers = np.arange(len(levels))
        return (numbers >= ends[0]) & (numbers <= ends[1]) if ends[0] <= ends[1] else None
    return _numbers(levels, text)


def _numbers(levels: Sequence[str], text: str) -> BoolArray | None:
    """Return which levels lie in a range of numbers; None if `text` is no range or cuts a level."""
    match = _SPAN.fullmatch(text)
    if match is None:
        return None
    low = int(match[1])
    high = _OPEN if match[3] else int(match[2] or match[1])
    spans = [_span(level) for level in levels]
    inside = np.array([span is not None and low <= span[0] and span[1] <= high for span in spans])
    cut = [
        span
        for span, whole in zip(spans, inside, strict=True)
        if span is not None and not whole and span[0] <= high and low <= span[1]
    ]
    return None if cut or not inside.any() else inside


def _span(label: str) -> tuple[int, int] | None:
    """Return the range of integers in a label, such as "18 to 64"; None for other labels.

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
        "is neither a level nor a range of levels",
        got=text or "nothing",
        want=want,
    )
