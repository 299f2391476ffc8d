"""The order of the site's pages, read from the lists in which the pages name each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

INDEX = "docs/README"  # the index by task, and the root of the site
_PAGE = re.compile(r"\]\(([^)\s#:]+\.md)\)")


def contents(root: Path) -> dict[str, list[tuple[str, list[str]]]]:
    """Pages below each page, in groups with captions.

    The index has a group for each row of its table: the first cell is the caption, the links in the
    others are the pages. Pages of a folder below `docs` stand below the README of that folder.

    Args:
      root: The project.

    Returns:
      Names of pages as Sphinx has them: relative to the project, without `.md`.
    """
    groups = [
        (f"To {to[0]}", linked)
        for to in _rows(root / f"{INDEX}.md")
        if (linked := [*_pages(root, INDEX, to[1])])
    ]
    below = {INDEX: groups}
    for folder in sorted(path.parent for path in (root / "docs").glob("*/README.md")):
        name = f"{folder.relative_to(root).as_posix()}/README"
        text = (root / f"{name}.md").read_text(encoding="utf-8")
        below[name] = [("", [*_pages(root, name, text)])]
    return below


def _rows(page: Path) -> Iterator[tuple[str, str]]:
    """Both cells of the rows of the first table of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|---"))
    for line in lines[start + 1 :]:
        if not line.startswith("|"):
            return
        first, second = line.strip("| ").split(" | ", 1)
        yield first, second


def _pages(root: Path, page: str, text: str) -> Iterator[str]:
    """Pages of the project that a text on this page links to, each once."""
    folder = (root / page).parent
    found = dict.fromkeys((folder / link).resolve() for link in _PAGE.findall(text))
    for path in found:
        yield path.relative_to(root.resolve()).with_suffix("").as_posix()


def trees(groups: list[tuple[str, list[str]]]) -> str:
    """Tables of contents as MyST writes them, which readers do not see on the page itself."""
    blocks = []
    for caption, pages in groups:
        options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
        blocks.append("\n".join(["```{toctree}", *options, *(f"/{p}" for p in pages), "```"]))
    return "\n\n".join(blocks)
