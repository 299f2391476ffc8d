"""Rooms, floors and arrows of the packages: `python -m tests.architecture.rooms [--root FOLDER]`.

A room is a module or folder directly in a package. An arrow is a pair of rooms of which one imports
the other, wherever the import stands. Floors are counted along the longest chain of arrows; rooms
on a circle share a floor. FOLDER is the checkout to count, this one if none is given.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import networkx as nx

from tests.checkout import ROOT

PACKAGES = ("das", "geography", "invariants", "solvers", "jobs", "jobs/pipeline")


@dataclass(frozen=True)
class Drawing:
    """The rooms of a package.

    Attributes:
      lines: Of the source, by room.
      arrows: (importer, imported).
    """

    lines: Mapping[str, int]
    arrows: frozenset[tuple[str, str]]

    @property
    def circles(self) -> list[list[str]]:
        """Sets of rooms that import each other, by whatever way."""
        components = nx.strongly_connected_components(nx.DiGraph(self.arrows))
        return sorted(sorted(rooms) for rooms in components if len(rooms) > 1)

    @property
    def floors(self) -> int:
        """Rooms on the longest way down, a circle counted once."""
        graph = nx.DiGraph(self.arrows)
        graph.add_nodes_from(self.lines)
        return int(nx.dag_longest_path_length(nx.condensation(graph))) + 1


def draw(root: Path, package: str) -> Drawing:
    """Draw a package of a checkout."""
    lines: dict[str, int] = {}
    modules: dict[Path, str] = {}
    for path in sorted((root / package).rglob("*.py")):
        room = path.relative_to(root / package).parts[0].removesuffix(".py")
        if room != "__init__":
            modules[path] = room
            lines[room] = lines.get(room, 0) + len(path.read_text("utf-8").splitlines())
    arrows = {
        (room, imported)
        for path, room in modules.items()
        for imported in _imports(path, package)
        if imported in lines and imported != room
    }
    return Drawing(lines, frozenset(arrows))


def _imports(path: Path, package: str) -> Iterator[str]:
    """Rooms of a package that a module names in an import."""
    for name in _imported(path.read_text("utf-8")):
        inside = name.removeprefix(package.replace("/", ".") + ".")
        if inside != name:
            yield inside.partition(".")[0]


@cache
def _imported(source: str) -> tuple[str, ...]:
    """Names that a module imports."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(names)


def main() -> None:
    """Print a row per package, and its circles."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="a checkout")
    root = parser.parse_args().root
    print(f"{'package':15}{'modules':>8}{'rooms':>7}{'floors':>8}{'arrows':>8}{'lines':>8}")
    for package in PACKAGES:
        drawing = draw(root, package)
        modules = sum(path.name != "__init__.py" for path in (root / package).rglob("*.py"))
        print(
            f"{package:15}{modules:8}{len(drawing.lines):7}{drawing.floors:8}"
            f"{len(drawing.arrows):8}{sum(drawing.lines.values()):8}"
        )
        for rooms in drawing.circles:
            print(f"  circle: {', '.join(rooms)}")


if __name__ == "__main__":
    main()
