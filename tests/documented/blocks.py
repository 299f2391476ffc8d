"""Blocks of code in the documents, and the marks before them.

A mark is an HTML comment on the line directly before the fence, which readers do not see:

- `not run: REASON` leaves the block out.
- `run by: TEST` names the file of the test that runs it.
- `run instead: COMMANDS | REASON` runs other, mostly smaller, commands.
- `file: NAME` makes a file of the block, relative to the project, before the page goes on.
- `part of: RUN FILE` puts the keys of a YAML block into a run file of the project and loads it (a section
  with an `input_format` takes the place of the old one), and reads the input if the page has written it.
- `output` compares the block with what the block before it has printed. Text after a block that is run has
  this mark, or `not compared: REASON`.
- `these files exist` looks for the first word of each line.

A page with the line `<!-- after: PAGE -->` goes on in the folder that the other page leaves behind.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.checkout import ROOT, project_files

SHELL = frozenset({"sh", "bash", "console", "shell"})
PYTHON = frozenset({"python", "pycon", "py"})
R = frozenset({"r"})  # run by recipes.py alone
DATA = frozenset({"yaml", "json"})
FREE = frozenset({"text", "mermaid"})  # nobody copies them into a shell or a file
_FENCE = re.compile(r"^( *)(`{3,}|~{3,})\s*(.*?)\s*$")
_MARK = re.compile(r"^ *<!-- *(.*?) *-->$")
_AFTER = re.compile(r"^<!-- after: (\S+) -->$", re.MULTILINE)
_WITH_REASON = ("not run", "run by", "run instead", "not compared")
_WITH_NAME = ("file", "part of")
_ALONE = ("output", "these files exist")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
      page: Relative to the project.
      line: Of the fence, from 1.
      language: What the fence says.
      text: Without the indentation of the fence.
      mark: The kind of the mark before it, or nothing.
      value: What the mark says after the colon.
    """

    page: Path
    line: int
    language: str
    text: str
    mark: str = ""
    value: str = ""

    @property
    def where(self) -> str:
        """Page and line, as editors jump to them."""
        return f"{self.page}:{self.line}"

    @property
    def is_run(self) -> bool:
        """Whether something of it is run, written, loaded or compared here."""
        if self.mark in {"not run", "run by", "not compared"}:
            return False
        return bool(self.mark) or self.language not in FREE

    @property
    def must_be_run(self) -> bool:
        """Whether it is code, or input of the program."""
        return self.language not in FREE


def pages() -> list[Path]:
    """All documents of the project, relative to it."""
    return [path for path in project_files() if path.suffix == ".md"]


def blocks_of(page: Path, text: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found, lines = [], text.splitlines()
    at = 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if not fence:
            at += 1
            continue
        indent, ticks, language = fence.groups()
        end = at + 1
        while end < len(lines) and lines[end].strip() != ticks:
            end += 1
        body = "".join(f"{line}\n" for line in lines[at + 1 : end])
        before = _MARK.match(lines[at - 1]) if at else None
        mark, _, value = before.group(1).partition(":") if before else ("", "", "")
        inner = textwrap.dedent(body) if indent else body
        found.append(Block(page, at + 1, language, inner, mark.strip(), value.strip()))
        at = end + 1
    return found


def read(page: Path) -> list[Block]:
    """Blocks of a page of the project."""
    return blocks_of(page, (ROOT / page).read_text(encoding="utf-8"))


def goes_on_from(page: Path, text: str | None = None) -> Path | None:
    """The page whose folder this one goes on in."""
    source = (ROOT / page).read_text(encoding="utf-8") if text is None else text
    found = _AFTER.search(source)
    return Path(found.group(1)) if found else None


def problems(blocks: list[Block]) -> Iterator[str]:
    """What of the marks is wrong, or missing."""
    for before, block in zip([None, *blocks], blocks, strict=False):
        if block.language == "text" and not block.mark and before and before.page == block.page:
            if before.is_run and before.language in SHELL | PYTHON:
                yield f"{block.where}: mark it with `output` or `not compared`"
        kinds = SHELL | PYTHON | R | DATA | FREE
        if block.language not in kinds:
            yield f"{block.where}: language {block.language!r}; expected one of {sorted(kinds)}"
        if block.mark in _WITH_REASON + _WITH_NAME:
            if not block.value:
                yield f"{block.where}: the mark `{block.mark}` says nothing after the colon"
            elif block.mark == "run instead" and not all(_commands_and_reason(block)):
                yield f"{block.where}: expected `run instead: COMMANDS | REASON`"
            elif block.mark == "run by" and not (ROOT / block.value).is_file():
                yield f"{block.where}: there is no test {block.value}"
            elif block.mark in {"not run", "not compared"} and len(block.value.split()) < 3:
                yield f"{block.where}: is no reason for `{block.mark}`: {block.value}"
        elif block.mark and block.mark not in _ALONE:
            yield f"{block.where}: there is no mark `{block.mark}`"
        elif block.language in R and block.mark != "run by":
            yield f"{block.where}: R is run by tests/documented/recipes.py, and the mark says so"
        elif block.language in DATA and not block.mark:
            yield f"{block.where}: mark it with `file`, `part of` or `not run`"


def instead(block: Block) -> str:
    """The commands that are run in place of a block."""
    return _commands_and_reason(block)[0]


def reason(block: Block) -> str:
    """Why a block is not run, or not as written."""
    return _commands_and_reason(block)[1] if block.mark == "run instead" else block.value


def _commands_and_reason(block: Block) -> tuple[str, str]:
    commands, _, why = block.value.partition("|")
    return commands.strip(), why.strip()
