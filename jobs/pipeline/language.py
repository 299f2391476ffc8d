"""The language of published pages: English messages, and catalogues of translations.

Messages stand in English in code, templates and YAML files. `languages/CODE.po` translates them, in
the text format of GNU gettext, which translators' programs edit; no step compiles it. The language
holds for a block, as the precision of `decimal` does, so that functions on the way need not pass it
on. Logs and errors are outside of such blocks: they stay English.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.resources import files

import yaml

ENGLISH = "en"
_FOLDER = files("jobs.pipeline.report")
SHOWN_NUMBER = "1,234.5"
"""Message whose translation has the separators of numbers."""
_ENTRY = re.compile(r'^msgid ((?:".*"\s+)+)msgstr ((?:".*"\s+)+)', re.MULTILINE)
_language = ContextVar("_language", default=ENGLISH)


@contextmanager
def spoken(language: str) -> Iterator[None]:
    """Translate the messages of a block.

    Args:
      language: Code of a catalogue, such as "pt", or "en".
    """
    before = _language.set(language)
    try:
        yield
    finally:
        _language.reset(before)


def current() -> str:
    """Return the code of the language of this block."""
    return _language.get()


def translated(message: str) -> str:
    """Return a message in the language of this block; without a translation, in English."""
    return catalogue(current()).get(message, message)


def tr(message: str, **values: object) -> str:
    """Translate a message and fill in its `{names}`.

    >>> with spoken("pt"):
    ...     tr("The level of {column}, by its label.", column="sexo")
    'A categoria de sexo, pelo seu rótulo.'
    """
    return translated(message).format(**values)


@cache
def _texts() -> dict[str, str]:
    """Read the long sentences of the pages by key."""
    texts: dict[str, str] = yaml.safe_load((_FOLDER / "texts.yaml").read_text("utf-8"))
    return texts


def prose(key: str, **values: object) -> str:
    """Translate the sentences of a key of `texts.yaml`, and fill in their `{names}`."""
    return tr(_texts()[key], **values)


def with_separators(number: str) -> str:
    """Write a number such as 1,052,567.3 with the separators of the language of this block."""
    shown = translated(SHOWN_NUMBER)
    return number.translate(str.maketrans(",.", shown[1] + shown[-2]))


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """Read the translations of a language by English message; empty for English."""
    if language == ENGLISH:
        return {}
    entries = _ENTRY.findall((_FOLDER / "languages" / f"{language}.po").read_text("utf-8"))
    # Strings of several lines are joined, as in Python within parentheses.
    texts = {ast.literal_eval(f"({key})"): ast.literal_eval(f"({text})") for key, text in entries}
    return {key: text for key, text in texts.items() if key}  # "" is the header
