"""Rooms of the packages stand on floors, and what is counted of them is counted right."""

from __future__ import annotations

import re
from pathlib import Path

from tests.architecture.rooms import PACKAGES, draw
from tests.checkout import ROOT


def test_no_rooms_import_each_other():
    """The contracts look at siblings one by one; this looks at what the folders of a package do."""
    assert [circle for package in PACKAGES for circle in draw(ROOT, package).circles] == []


def misnamed(package: Path, page: str) -> list[str]:
    """Rooms of a package that a page does not name, and files it names that are not there."""
    rooms = draw(package.parent, package.name).lines
    unnamed = [room for room in rooms if not re.search(rf"`{room}(?:\.py|/)", page)]
    named = re.findall(r"`([\w/]+(?:\.py|/))`", page)
    gone = [name for name in named if not any(package.rglob(name)) and not (ROOT / name).exists()]
    return [*unnamed, *gone]


def test_the_readmes_of_packages_name_their_rooms():
    wrong = {
        package: misnamed(ROOT / package, (ROOT / package / "README.md").read_text("utf-8"))
        for package in PACKAGES
    }
    assert {package: names for package, names in wrong.items() if names} == {}


def test_a_room_without_a_name_and_a_name_without_a_room_are_found(tmp_path):
    write(tmp_path, hall__door="", cellar="")
    assert misnamed(tmp_path / "p", "`hall/`, `cellar.py` and `hall/door.py`") == []
    assert misnamed(tmp_path / "p", "`hall/door.py` and `attic.py`") == ["cellar", "attic.py"]


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
