"""Page: banners, headline numbers and sections made of blocks; each block names its template."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, ClassVar

from markupsafe import Markup, escape

from jobs.pipeline import language
from jobs.pipeline.report import text
from jobs.pipeline.report.plots import Figure
from jobs.pipeline.report.table import Table
from jobs.pipeline.storage.files import replace_file
from jobs.pipeline.storage.place import Place
from jobs.pipeline.storage.stores.store import OWNER_ONLY

if TYPE_CHECKING:
    import jinja2


@dataclass(frozen=True)
class Banner:
    """A warning across the page.

    Attributes:
      kind: "danger" or "secret".
      title: The warning.
      text: What follows from the warning.
    """

    kind: str
    title: str
    text: str


@dataclass(frozen=True)
class Tile:
    """A headline number.

    Attributes:
      label: Name of the number.
      value: The number, formatted.
      detail: A line under the number.
    """

    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Prose:
    """Text of a template of this package, filled with values."""

    template: str
    values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """Tables side by side where the page is wide enough."""

    template: ClassVar[str] = "row.html.j2"
    blocks: Sequence[Table]


Block = Table | Figure | Prose | Row
START = b"<!DOCTYPE html>"
"""How pages begin."""


@dataclass(frozen=True)
class Section:
    """A numbered section.

    Attributes:
      key: Identifier of the HTML element.
      title: Heading.
      lead: One or two sentences on what the section shows.
      blocks: Content of the section, in order.
    """

    key: str
    title: str
    lead: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """A whole report.

    Attributes:
      kind: Line above the title.
      title: Name of the run.
      summary: One paragraph under the title.
      facts: Pairs of label and text, such as the date.
      banners: Warnings, shown at the top.
      tiles: Headline numbers.
      sections: Sections, in the order of the page.
      records: Name of the records, such as persons or units.
    """

    kind: str
    title: str
    summary: str
    facts: Sequence[tuple[str, str]]
    banners: Sequence[Banner]
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    records: str = "persons"


_FOLDER = files("jobs.pipeline.report")
_SUPERSCRIPTS = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
_PLAIN = str.maketrans(_SUPERSCRIPTS, "\N{MINUS SIGN}0123456789")


def render(
    template: str,
    context: Mapping[str, object],
    *,
    styles: Sequence[str] = ("style.css",),
    scripts: Sequence[str] = ("table.js",),
) -> str:
    """Fill a template of this package. In HTML every value but Markup is escaped.

    Args:
      template: File name, such as "public.html.j2".
      context: Variables of the template; a missing variable is an error.
      styles: Files that are joined to the variable `style`.
      scripts: Files that are joined to the variable `script`. The variable `policy` has their
        digest, so that browsers run no other script.
    """
    style, script = (
        Markup("\n".join((_FOLDER / name).read_text("utf-8") for name in names))
        for names in (styles, scripts)
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # The page loads nothing and runs at most this script. Styles need no digest: figures have style
    # attributes, and a style cannot send anything where nothing may be loaded.
    source = f"'sha256-{digest}'" if script else "'none'"
    policy = f"default-src 'none'; script-src {source}; style-src 'unsafe-inline'; "
    policy += "base-uri 'none'; form-action 'none'"
    page = _environment().get_template(template)
    return page.render(style=style, script=script, policy=policy, **context)


@cache
def _environment() -> jinja2.Environment:
    """Return the template environment of this package, compiled once per process."""
    import jinja2  # what prints tables alone does not wait for it

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("jobs.pipeline.report", ""),
        extensions=["jinja2.ext.i18n"],
        autoescape=lambda name: str(name).endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"raised": raised, "code": code, "cell": cell}
    environment.filters |= {"small": text.small, "upward": text.upward, "words": text.words}
    environment.filters |= {"integer": text.integer, "translated": language.translated}
    environment.globals["language"] = language.current
    environment.policies["ext.i18n.trimmed"] = True  # the lines of a sentence are one message
    install = vars(environment)["install_gettext_callables"]  # brought by the extension
    install(language.translated, None, newstyle=True)  # no message has a plural of its own
    return environment


def raised(value: str) -> Markup:
    """Escape text, with superscript characters as markup, since fonts draw them differently."""

    def lowered(match: re.Match[str]) -> str:
        return f"<sup>{match.group().translate(_PLAIN)}</sup>"

    return Markup(re.sub(f"[{_SUPERSCRIPTS}]+", lowered, str(escape(value))))


def code(value: str) -> str:
    r"""Format text as code in Markdown, also within a table.

    >>> print(code("a`b|c"))
    ``a`b\|c``
    >>> print(code("``<b>"))
    ``` ``<b> ```
    """
    ticks = "`" * (1 + max(map(len, re.findall("`+", value)), default=0))
    space = " " if value.startswith("`") or value.endswith("`") else ""
    return f"{ticks}{space}{value}{space}{ticks}".replace("|", "\\|")


def cell(value: str) -> str:
    """Format text for a cell of a Markdown table, with HTML escaped."""
    return value.replace("|", "\\|").replace("<", "&lt;")


def write_report(
    page: Page, out: Place, *, mode: int = OWNER_ONLY, remedy: str | None = None
) -> None:
    """Write a report as one self-contained HTML file.

    Args:
      page: The report.
      out: The file; replaced at once.
      mode: Permissions, as for `replace_file`.
      remedy: Remedy in the error if the file cannot be written; default: it depends on the cause.

    Raises:
      OutputError: The file cannot be written.
    """
    replace_file(out, render("page.html.j2", {"page": page}), mode=mode, remedy=remedy)
