"""What docs/where.md says things are called here is there: commands, files, keys, parts of a release."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import topdown_das
from tests.builders.command_line import SHOWN, command_of
from tests.checkout import ROOT

PAGE = ROOT / "docs" / "where.md"


def rows(text: str) -> list[list[str]]:
    """Cells of all rows of tables below their headings."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if not row[0].startswith("---|") and row[2] != "Read"]


def keys() -> set[str]:
    """Keys of all files that a user writes: the first cells of the reference's tables."""
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


def parts() -> set[str]:
    """Names of what a release holds, from the headings of its page."""
    text = (ROOT / "docs" / "data-model.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### (.*)$", text, re.MULTILINE)
    codes = {code for line in headings for code in re.findall(r"`([^`]+)`", line)}
    return {code.rstrip("/").partition("/")[0] for code in codes}


def command_options(words: list[str]) -> bool:
    """Whether a command has the options that are named after it."""
    try:
        command, rest = command_of(words)
    except (KeyError, IndexError):
        return words == ["nmf"]
    return {*rest} <= {option for one in command.params for option in one.opts}


def found(code: str) -> bool:
    """Whether a name is that of a command, a file, a key, a part of a release, or a query."""
    if code.startswith("das "):
        return command_options(code.split()[1:])
    if "/" in code:
        return (ROOT / code).exists()
    if " * " in code:
        return True  # a query, as an example
    return code in parts() or code in topdown_das.__all__ or {*code.split(".")} <= keys()


def unknown(text: str) -> list[str]:
    """Names in the second column that are nothing here."""
    codes = [code for row in rows(text) for code in re.findall(r"`([^`]+)`", row[1])]
    return [code for code in codes if not found(code)]


def test_all_that_is_named_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(rows(text)) > 35
    assert unknown(text) == []


def test_every_row_says_where_to_read() -> None:
    assert [row for row in rows(PAGE.read_text(encoding="utf-8")) if "](" not in row[2]] == []


def test_every_method_of_a_paper_has_a_test_or_is_not_offered() -> None:
    papers = (
        PAGE.read_text(encoding="utf-8").partition("## From the papers")[2].partition("\n## ")[0]
    )
    assert len(rows(papers)) > 30
    assert [
        row for row in rows(papers) if ("../tests/" in row[3]) == (row[1] == "not offered")
    ] == []


@pytest.mark.parametrize(
    "code", ["das no-such", "das plan --no-such", "conf/no/such.yaml", "no_such", "solve.no_such"]
)
def test_a_name_of_nothing_would_be_found(code: str) -> None:
    assert unknown(f"| old | `{code}` | [page](page.md) |") == [code]


def test_words_of_the_field_are_sorted_as_they_are_looked_up() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Words of the field")[2]
    words = [row[0] for row in rows(text)]
    assert words == sorted(words, key=str.lower)


def test_commands_are_all_found_from_here_or_from_the_readme() -> None:
    named = Path(ROOT / "README.md").read_text(encoding="utf-8") + PAGE.read_text(encoding="utf-8")
    assert [name for name in SHOWN if f"`das {name}" not in named] == []
