"""The sentences of the reports: each is used, and no section asks for one that is not there."""

from __future__ import annotations

import re

from jobs.pipeline.language import _texts, prose
from tests.checkout import ROOT


def test_every_sentence_has_its_place() -> None:
    code = "".join(path.read_text() for path in (ROOT / "jobs").rglob("*.py"))
    used = re.findall(r'\bprose\(\s*"([\w.]+)"', code)
    assert sorted(used) == sorted(_texts())


def test_values_are_filled_in() -> None:
    assert "add up to exactly 1/4." in prose("budget.lead", unit="1/4")
