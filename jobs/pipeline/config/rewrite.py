"""Rewrite a file of the older format as format 3, in place, and change nothing but renamed keys.

Only the characters of renamed keys and values are replaced, at the places where the YAML parser
found them: comments, order, quotation marks and anchors stay. The new file takes the place of the
old one only if both mean the same.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from das.errors import ConfigError
from jobs.pipeline.config.models.values import SURVEY
from jobs.pipeline.config.upgrade import FORMAT, Kind, is_former, renamed_key
from jobs.pipeline.config.yaml_file import read_map, read_nodes
from jobs.pipeline.storage.files import writing

# A text as a node has it: perhaps an anchor before it, perhaps quotation marks around it.
_PLAIN = re.compile(r"(?:&\S+\s+)?(?P<quote>[\"']?)(?P<text>.*?)(?P=quote)", re.DOTALL)


@dataclass(frozen=True)
class Change:
    """A key or value with another name in format 3.

    Attributes:
      keys: The key, with the keys above it, as the older format names them.
      old: Text of the key or value in the file.
      new: Text in format 3.
      line: Line of the file, from 1.
      start: Position in the file of the first replaced character.
      stop: Position after the last replaced character.
    """

    keys: str
    old: str
    new: str
    line: int
    start: int
    stop: int


def kind_of(path: Path) -> Kind:
    """Determine the kind of a file that may be upgraded.

    Raises:
      ConfigError: The file cannot be read, or is of no kind that can be upgraded.
    """
    document = read_map(path)
    if document.get("kind") == SURVEY:
        return Kind.SURVEY
    if "products" in document or "format" in document:
        return Kind.CENSUS
    if "levels" in document:
        return Kind.ALLOCATION
    raise ConfigError(
        str(path),
        "is not a file that format 3 changes",
        want="a run file of a census or survey, or an allocation file",
    )


def upgrade_file(path: Path, kind: Kind, meaning: Callable[[Path], object]) -> tuple[Change, ...]:
    """Rewrite a file in format 3, unless it has this format already.

    Args:
      path: The file, which keeps its permissions. If it is a link, its target is rewritten.
      kind: Kind of the file.
      meaning: Loads a file of this kind, and returns values and digest. These must be equal before
        and after the change.

    Returns:
      The changes, in the order of the file; empty for a file of format 3.

    Raises:
      ConfigError: The file cannot be used, or its keys cannot be replaced one by one. The file
        stays unchanged.
      OutputError: The file cannot be written.
    """
    path = path.resolve()
    document, before = read_map(path), meaning(path)
    if not is_former(kind, document):
        return ()
    text, root = read_nodes(path)
    changes = tuple(_changes(path, kind, text, root))
    if changes:
        pieces, end = list[str](), 0
        for change in changes:
            pieces += [text[end : change.start], change.new]
            end = change.stop
        _replace(path, "".join([*pieces, text[end:]]), before, meaning)
    return changes


def _replace(path: Path, text: str, before: object, meaning: Callable[[Path], object]) -> None:
    """Replace a file by a text atomically, if `meaning` returns `before` for the text too."""
    draft: Path | None = None
    try:
        with writing(path):
            descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
            draft = Path(name)
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            shutil.copymode(path, draft)
        if meaning(draft) != before:
            raise ConfigError(
                str(path),
                f"would mean something else in format {FORMAT}; it is left as it is",
                remedy="rename its keys by hand, and report this defect",
            )
        with writing(path):
            os.replace(draft, path)
    finally:
        if draft is not None:
            draft.unlink(missing_ok=True)


def _changes(path: Path, kind: Kind, text: str, root: yaml.Node | None) -> Iterator[Change]:
    """Yield the changes to the text of a file, in the order of the file.

    Args:
      path: The file, for errors.
      kind: Kind of the file.
      text: Text of the file.
      root: The document in the text; None for an empty file, which has no changes.

    Raises:
      ConfigError: An alias makes one text stand for two keys with different new names, or a key is
        written with escapes.
    """
    wanted: dict[int, tuple[yaml.ScalarNode, str | None, str]] = {}
    for node, place, is_key in _scalars(root):
        change, new, keys = renamed_key(kind, place), None, ".".join(place)
        if change is not None:
            new = change.to if is_key else change.values.get(node.value)
        elif place == ("format",) and not is_key and kind.former_format is not None:
            new = str(FORMAT)
        _, other, where = wanted.setdefault(node.start_mark.index, (node, new, keys))
        if other != new:
            raise ConfigError(
                f"{path}, line {node.start_mark.line + 1}",
                f"is used by an alias, and format {FORMAT} has different names for its places",
                got=f"{where} and {keys}",
                remedy="write it out in both places, without an alias",
            )
    for _, (node, new, keys) in sorted(wanted.items()):
        if new is None:
            continue
        start, stop = node.start_mark.index, node.end_mark.index
        plain = _PLAIN.fullmatch(text[start:stop])
        if plain is None or plain["text"] != node.value:
            raise ConfigError(
                f"{path}, line {node.start_mark.line + 1}",
                f"cannot be replaced by `{new}`: it is not written literally",
                got=text[start:stop],
                want=node.value,
            )
        begin, end = (start + one for one in plain.span("text"))
        yield Change(keys, node.value, new, node.start_mark.line + 1, begin, end)


def _scalars(
    node: yaml.Node | None, above: tuple[str, ...] = ()
) -> Iterator[tuple[yaml.ScalarNode, tuple[str, ...], bool]]:
    """Yield all keys and plain values in a node: node, its keys, and whether it is a key itself."""
    if isinstance(node, yaml.ScalarNode):
        yield node, above, False
    elif isinstance(node, yaml.SequenceNode):
        for number, part in enumerate(node.value):
            yield from _scalars(part, (*above, str(number)))
    elif isinstance(node, yaml.MappingNode):
        for name, part in node.value:
            keys = (*above, name.value)
            yield name, keys, True
            yield from _scalars(part, keys)
