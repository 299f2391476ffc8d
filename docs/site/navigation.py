"""The order of the site's pages, read from the lists in which the pages name each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

INDEX = "docs/README"  # the index in four parts, and the root of the site
_PAGE = re.compile(r"\]\(([^)\s#:]+\.md)\)")


def contents(root: Path) -> dict[str, list[tuple[str, list[str]]]]:
    """Pages below each page, in groups with captions.

    The index has a group for each of its sections: the heading is the caption, the links are the
    pages. Pages of a folder below `docs` stand below the README of that folder.

    Args:
      root: The project.

    Returns:
      Names of pages as Sphinx has them: relative to the project, without `.md`.
    """
    sections = (root / f"{INDEX}.md").read_text(encoding="utf-8").split("\n## ")[1:]
    parts = (section.partition("\n") for section in sections)
    below = {INDEX: [(caption, [*_pages(root, INDEX, text)]) for caption, _, text in parts]}
    for folder in sorted(path.parent for path in (root / "docs").glob("*/README.md")):
        name = f"{folder.relative_to(root).as_posix()}/README"
        text = (root / f"{name}.md").read_text(encoding="utf-8")
        below[name] = [("", [*_pages(root, name, text)])]
    return below


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
