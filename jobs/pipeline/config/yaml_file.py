"""Read a YAML file as plain values, with nothing in it that two readers could take differently.

The one door of all YAML files: runs, schemas, allocations, clusters, weights and targets. YAML 1.1
reads 010 as 8, 1:30 as 90 and 2020-01-01 as a date; here a number is written in plain decimal, all
else of that kind is refused, and the message quotes what was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

from das.errors import ConfigError
from jobs.pipeline.storage.place import Place

# Parsing costs up to 3 microseconds a byte and 60 a value; a file that comes with a release of
# others must not keep its reader waiting. The largest of this project has 118 kB and 2,454 values.
_LARGEST_FILE = 2 << 20  # bytes
_MOST_VALUES = 100_000  # as written, keys too
_DEEPEST = 50  # maps and lists within each other; the files of this project have less than ten
_LARGEST_TREE = 2_000_000  # values once aliases are followed; nine short lines can make billions
_MOST_DIGITS = 100
_TAG = "tag:yaml.org,2002:"
_PLAIN_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_PLAIN_FLOAT = re.compile(
    r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_TRUE, _FALSE = ("yes", "true", "on"), ("no", "false", "off")
_PLAIN: dict[str, Callable[[str], object]] = {
    f"{_TAG}null": ("", "~", "null", "Null", "NULL").__contains__,
    f"{_TAG}bool": lambda text: text.lower() in (*_TRUE, *_FALSE),
    f"{_TAG}int": lambda text: len(text) <= _MOST_DIGITS and _PLAIN_INTEGER.fullmatch(text),
    f"{_TAG}float": lambda text: len(text) <= _MOST_DIGITS and _PLAIN_FLOAT.fullmatch(text),
}
_NOT_PLAIN = {
    f"{_TAG}int": "is an integer that is not written in plain decimal, or has over 100 digits",
    f"{_TAG}float": "is a number that is not written in plain decimal, or has over 100 digits",
    f"{_TAG}timestamp": "reads as a date",
}
_QUOTES = 'put quotes around text; write numbers in plain decimal, such as 10, 0.5 or "1/4"'


def read_map(path: Place) -> dict[Any, Any]:
    """Read a YAML file that holds a map.

    Returns:
      Maps, lists, text, integers, floats, booleans and None, nested at most 50 deep.

    Raises:
      ConfigError: The file cannot be read, is not valid YAML, or is not a map; a key is not a plain
        value, or occurs twice in a map; or people and YAML read a value differently: 010, 1:30,
        0b11, 1_000, a date, a tag, more than 100 digits.
    """
    node = root_node(path)
    document = None if node is None else _Reader(path).value(node, 1)
    if not isinstance(document, dict):
        raise ConfigError(str(path), "must be a map of keys", got=type(document).__name__)
    return document


def root_node(path: Place) -> yaml.Node | None:
    """Read a YAML file as nodes with their positions in the text; None for an empty file.

    Raises:
      ConfigError: The file cannot be read, or is not valid YAML.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise ConfigError(str(path), "cannot be read", got=error.strerror) from None
    except ValueError as error:  # a NUL, or half of a character, in the name
        raise ConfigError(str(path), "is not a valid file name", got=error) from None
    if len(data) > _LARGEST_FILE:
        raise ConfigError(str(path), "is too large", want=f"at most {_LARGEST_FILE >> 20} MiB")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            str(path), "is not UTF-8 text", got=f"{error.reason} at byte {error.start}"
        ) from None
    try:
        loader = _Loader(text)
        try:
            node: yaml.Node | None = loader.get_single_node()
            return node
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError(
            str(path), "is not valid YAML", got=" ".join(str(error).split())
        ) from None


class _Loader(yaml.SafeLoader):
    """Parses YAML to nodes; stops where maps and lists nest too deeply or have too many values."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0
        self.values = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:  # noqa: ANN401
        """Compose one value with its nested values; PyYAML calls this for every value.

        Args:
          parent: Node that contains the value; None for the whole document.
          index: Key or position of the value in the parent.
        """
        self.depth += 1
        self.values += 1
        what = None
        if self.depth > _DEEPEST:
            what = f"maps and lists nest more than {_DEEPEST} deep"
        elif self.values > _MOST_VALUES:
            what = f"there are more than {_MOST_VALUES:,} values"
        if what is not None:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, what, mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Reader:
    """Turns nodes into plain values; errors say line and column."""

    def __init__(self, path: Place) -> None:
        self._path = path
        self._size = 0

    def value(self, node: yaml.Node, depth: int) -> Any:  # noqa: ANN401
        """Return the value of a YAML node at nesting depth `depth`."""
        self._size += 1
        if self._size > _LARGEST_TREE:
            raise self._error(node, "repeats its aliases too often", None)
        if depth > _DEEPEST:  # an alias within what it stands for has no end
            want = f"at most {_DEEPEST} deep"
            raise ConfigError(self._where(node), "nests maps and lists too deeply", want=want)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._map(node, depth)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.value(item, depth + 1) for item in node.value]
        raise self._error(node, "has a tag that is not read here", node.tag, "no tag")

    def _map(self, node: yaml.MappingNode, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        seen: set[str] = set()
        for key_node, value_node in node.value:
            key = self._key(key_node)
            if str(key) in seen:  # 1 and "1" are the same code
                raise self._error(
                    key_node, f"key {str(key)[:100]!r} appears twice", None, "it once"
                )
            seen.add(str(key))
            found[key] = self.value(value_node, depth + 1)
        return found

    def _key(self, node: yaml.Node) -> str | int:
        if node.tag == f"{_TAG}merge":
            raise self._error(node, "merges maps, which is not supported", "<<", "all keys in full")
        key = self._scalar(node) if isinstance(node, yaml.ScalarNode) else None
        if not isinstance(key, str | int) or isinstance(key, bool):
            got = node.value if isinstance(node, yaml.ScalarNode) else "a list or map"
            raise self._error(node, "has a key that is not text", got, "text or an integer")
        return key

    def _scalar(self, node: yaml.ScalarNode) -> str | int | float | None:
        text, tag, is_plain = node.value, node.tag, node.style is None
        if tag == f"{_TAG}str":
            return str(text)
        if not (is_plain and tag in _PLAIN and _PLAIN[tag](text)):
            what = _NOT_PLAIN.get(tag, "has a tag that is not read here")
            raise self._error(node, what, text if is_plain else f"{tag} {text!r}")
        if tag == f"{_TAG}null":
            return None
        if tag == f"{_TAG}bool":
            return text.lower() in _TRUE
        if tag == f"{_TAG}int":
            return int(text)
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))

    def _where(self, node: yaml.Node) -> str:
        mark = node.start_mark
        return f"{self._path}, line {mark.line + 1}, column {mark.column + 1}"

    def _error(
        self, node: yaml.Node, what: str, got: str | None, want: str | None = None
    ) -> ConfigError:
        remedy = _QUOTES if isinstance(node, yaml.ScalarNode) and want is None else None
        return ConfigError(self._where(node), what, got=got, want=want, remedy=remedy)
