"""Words that were given up (docs/terms.md) stay out of code and pages."""

from __future__ import annotations

import re

from tests.checkout import ROOT

PACKAGES = ("das", "geography", "invariants", "solvers", "jobs")
# What may not be written, by what is said instead.
GIVEN_UP = {
    "fitted to": re.compile(r"\bdrawn to\b"),
    "full column rank": re.compile(r"\btells? (?:\w+ ){0,3}cells apart\b"),
    "adjoint": re.compile(r"\bpulled\b|\b_?pull\("),
    "assigned": re.compile(r"\bdealt\b|\bdeals?\b(?! with)"),
    "nest": re.compile(r"\b_hang\b"),
    "weight or target": re.compile(r"\b[Ww]ish(?:es|ed)?\b"),
    "mechanism or distribution": re.compile(r"\blaws? of (?:the )?noise\b"),
}
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


def given_up(text: str) -> list[str]:
    return [
        f"{match.group()}: say {instead}"
        for instead, pattern in GIVEN_UP.items()
        for match in pattern.finditer(text)
    ]


def test_words_that_were_given_up_stay_out() -> None:
    found = {path: given_up(path.read_text(encoding="utf-8")) for path in FILES}
    assert {str(path): words for path, words in found.items() if words} == {}


def test_a_word_that_was_given_up_is_found() -> None:
    lines = (
        "counts are drawn to the estimate",
        "the queries tell all live cells apart",
        "the pulled answers",
        "persons are dealt to the leaves",
        "the law of the noise",
        "a wish of the user",
    )
    assert [line for line in lines if not given_up(line)] == []
