"""What error messages tell a user to do: every remedy in the packages, and how each is tried.

A remedy is tried by a scenario: it makes the error through the command line, does what the message
says, and gets through. One that cannot be tried so names the test that does, or the reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.checkout import ROOT

PACKAGES = ("das", "geography", "invariants", "solvers", "jobs")

Key = tuple[str, str]  # module as a path, and the text with {} for what is filled in


@dataclass(frozen=True)
class TriedIn:
    """The remedy is followed by another test: "tests/....py::test_name"."""

    test: str


@dataclass(frozen=True)
class NotTried:
    """Why the remedy cannot be tried by a test."""

    reason: str


def collected() -> dict[Key, int]:
    """Every remedy of the packages with the line of one error that names it."""
    found: dict[Key, int] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = path.relative_to(ROOT).as_posix()
            for text, line in _Remedies(ast.parse(path.read_text("utf-8"))).all():
                found.setdefault((module, text), line)
    return found


class _Remedies:
    """The remedies of a module, also those that go by a name or come from a function."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree

    def all(self) -> Iterator[tuple[str, int]]:
        """(text, line) of each."""
        for node in ast.walk(self._tree):
            values: list[ast.expr] = []
            if isinstance(node, ast.Call):
                values = [word.value for word in node.keywords if word.arg == "remedy"]
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name in ("read_json", "read_identity") and len(node.args) == 2:
                    values.append(node.args[1])
            elif isinstance(node, ast.FunctionDef) and "remedy" in node.name:
                values = [
                    part.value
                    for part in ast.walk(node)
                    if isinstance(part, ast.Return) and part.value is not None
                ]
            for value in values:
                for text in self._texts(value):
                    if text:
                        yield text, value.lineno

    def _texts(self, node: ast.expr) -> list[str]:
        if isinstance(node, ast.Constant):
            return [node.value] if isinstance(node.value, str) else []
        if isinstance(node, ast.JoinedStr):
            parts = (p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
            return ["".join(map(str, parts))]
        if isinstance(node, ast.BinOp):
            left, right = self._texts(node.left), self._texts(node.right)
            return [a + b for a in left for b in right]
        if isinstance(node, ast.IfExp):
            return [*self._texts(node.body), *self._texts(node.orelse)]
        if isinstance(node, ast.Name):
            return [text for value in self._assigned(node.id) for text in self._texts(value)]
        return []  # what another function or error hands on

    def _assigned(self, name: str) -> Iterator[ast.expr]:
        for node in ast.walk(self._tree):
            if not isinstance(node, ast.Assign):
                continue
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id == name:
                    yield node.value
                elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    for one, value in zip(target.elts, node.value.elts, strict=True):
                        if isinstance(one, ast.Name) and one.id == name:
                            yield value


def says(message: str, remedy: str) -> bool:
    """Whether a message ends in a remedy, whatever is filled in."""
    pattern = ".*?".join(re.escape(part) for part in remedy.split("{}"))
    return re.search(pattern, message, re.DOTALL) is not None


def exists(test: str) -> bool:
    """Whether a test is there."""
    path, _, name = test.partition("::")
    file = ROOT / path
    return file.exists() and re.search(rf"def {name}\(", file.read_text("utf-8")) is not None


Scenario = Callable[..., str]  # given a `Desk`, returns the message of the error
Entry = Scenario | TriedIn | NotTried
