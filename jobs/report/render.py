"""Pages: one self-contained HTML file from a template, written at once."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from das.errors import OutputError

_SUPERSCRIPTS = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
_PLAIN = str.maketrans(_SUPERSCRIPTS, "\N{MINUS SIGN}0123456789")


def render(template: str, context: Mapping[str, object]) -> str:
    """Fill a template of this package. Every value but Markup is escaped.

    Args:
      template: File name, such as "public.html.j2".
      context: Its variables; a missing one is an error.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("jobs.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["raised"] = raised
    loader = environment.loader
    if loader is None:
        raise OutputError(template, "has no loader")
    style, _, _ = loader.get_source(environment, "style.css")
    script, _, _ = loader.get_source(environment, "table.js")
    page = environment.get_template(template)
    return page.render(style=Markup(style), script=Markup(script), **context)


def raised(value: str) -> Markup:
    """Escape text and mark up its superscripts; faces differ in how they draw the characters."""
    return Markup(re.sub("[" + _SUPERSCRIPTS + "]+", _lower, str(escape(value))))


def _lower(found: re.Match[str]) -> str:
    return f"<sup>{found.group().translate(_PLAIN)}</sup>"


def write_page(path: Path, page: str, *, mode: int = 0o644) -> None:
    """Replace a file at once.

    Args:
      path: The file.
      page: Its text.
      mode: Permissions of the file.

    Raises:
      OutputError: It cannot be written.
    """
    draft = path.with_name(f".{uuid.uuid4().hex}.html")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(page)
        os.replace(draft, path)
    except OSError as error:
        raise OutputError(str(path), "cannot be written", got=error.strerror) from None
    finally:
        draft.unlink(missing_ok=True)
