"""The page of sizes says what the program does."""

from __future__ import annotations

import re
from dataclasses import fields

from jobs.pipeline.tasks.batches import Sizing, TaskSize
from tests.checkout import ROOT

_ROW = re.compile(r"^\| `(\w+)` \|.*\| ([\d,]+) \| ([\d,]+) \|$", re.MULTILINE)


def documented() -> dict[str, TaskSize]:
    """Rows of the table of tasks, as written."""
    text = (ROOT / "docs" / "sizes.md").read_text(encoding="utf-8")
    return {
        name: TaskSize(int(least.replace(",", "")), int(most.replace(",", "")))
        for name, least, most in _ROW.findall(text)
    }


def test_every_size_is_documented_as_it_is():
    sizing = Sizing(4)
    sizes = {field.name: getattr(sizing, field.name) for field in fields(sizing)}
    assert sizes.pop("batches_per_slot") == 4
    assert documented() == sizes
    assert all(1 <= size.least <= size.most for size in sizes.values())
