"""Rooms of the packages stand on floors, and what is counted of them is counted right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.rooms import PACKAGES, draw
from tests.checkout import ROOT


@pytest.mark.parametrize("package", PACKAGES)
def test_no_rooms_import_each_other(package):
    """The contracts look at siblings one by one; this looks at what the folders of a package do."""
    assert draw(ROOT, package).circles == []


def write(root: Path, **modules: str) -> None:
    for name, text in modules.items():
        path = root / "p" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_rooms_floors_and_arrows(tmp_path):
    write(
        tmp_path,
        top="import p.hall.door\nfrom p import cellar\nimport os\n",
        hall__door="from p.hall.wall import x\ndef f():\n    from p.cellar import y\n",
        hall__wall="",
        cellar="",
    )
    drawing = draw(tmp_path, "p")
    assert dict(drawing.lines) == {"cellar": 0, "hall": 3, "top": 3}
    assert drawing.arrows == {("top", "hall"), ("top", "cellar"), ("hall", "cellar")}
    assert drawing.floors == 3
    assert drawing.circles == []


def test_a_circle_is_found(tmp_path):
    write(
        tmp_path, a="import p.b.x\n", b__x="import p.c\n", c="from p.a import z\n", d="import p.a"
    )
    drawing = draw(tmp_path, "p")
    assert drawing.circles == [["a", "b", "c"]]
    assert drawing.floors == 2
