"""Words that were given up (docs/terms.md) stay out of code and pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.checkout import ROOT

PACKAGES = ("das", "geography", "invariants", "solvers", "jobs")
# What may not be written, and where it is meant otherwise.
GIVEN_UP = {
    "fitted to": re.compile(r"\bdrawn to\b"),
    "full column rank": re.compile(r"\btells? (?:\w+ ){0,3}cells apart\b"),
    "adjoint": re.compile(r"\bpulled\b|\b_?pull\("),
    "assigned": re.compile(r"\bdealt\b|\bdeals?\b(?! with)"),
    "nest": re.compile(r"\b_hang\b"),
    "weight or target": re.compile(r"\b[Ww]ish(?:es|ed)?\b"),
    "mechanism or distribution": re.compile(r"\blaws? of (?:the )?noise\b"),
}
ELSEWHERE = {}
FILES = sorted(
    path
    for path in (
        *(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("*/README.md"),
        ROOT / "README.md",
    )
    if path != ROOT / "docs" / "terms.md"
)


def given_up(text: str, name: str = "") -> list[str]:
    found = []
    for instead, pattern in GIVEN_UP.items():
        if (name, instead) not in ELSEWHERE:
            found += [f"{match.group()}: say {instead}" for match in pattern.finditer(text)]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_words_that_were_given_up_stay_out(path: Path) -> None:
    assert given_up(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))) == []


@pytest.mark.parametrize(
    "line",
    [
        "counts are drawn to the estimate",
        "the queries tell all live cells apart",
        "the pulled answers",
        "persons are dealt to the leaves",
        "the law of the noise",
        "a wish of the user",
    ],
)
def test_a_word_that_was_given_up_is_found(line: str) -> None:
    assert given_up(line)


def test_every_exception_is_still_needed() -> None:
    for name, instead in ELSEWHERE:
        assert GIVEN_UP[instead].search((ROOT / name).read_text(encoding="utf-8"))
