"""Page: banners, headline numbers and sections made of blocks; each block names its template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from jobs.pipeline.report.plots import Figure
from jobs.pipeline.report.table import Table


@dataclass(frozen=True)
class Banner:
    """A warning across the page.

    Attributes:
      kind: "danger" or "secret".
      title: The warning.
      text: What follows from it.
    """

    kind: str
    title: str
    text: str


@dataclass(frozen=True)
class Tile:
    """A headline number.

    Attributes:
      label: What it is.
      value: The number.
      detail: A line under it.
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
      key: Its id.
      title: Heading.
      lead: One or two sentences that say what is to be seen.
      blocks: Its content, in order.
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
      banners: Warnings, first of all.
      tiles: Headline numbers.
      sections: In order.
      records: What is counted: persons or units.
    """

    kind: str
    title: str
    summary: str
    facts: Sequence[tuple[str, str]]
    banners: Sequence[Banner]
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    records: str = "persons"
