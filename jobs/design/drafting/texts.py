"""Drafted files as commented YAML; `# check:` marks decisions of the office."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.resources import files
from itertools import combinations, permutations
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined

from jobs.design.drafting.attributes import Proposed, attribute_name
from jobs.design.drafting.geolevels import Geolevel, propose_names
from jobs.design.requests import DraftRequest
from jobs.pipeline.confidential.look import Column, Geography, Look
from jobs.pipeline.config.models.values import FORMAT, GeocodeColumns, GeocodeTable
from jobs.pipeline.storage.place import Place

_WIDTH = 100
# Of the budget of all geolevels but the last, for pairs of attributes without a table. The standard
# deviations of other noise there grow by 2.6 %. Slopes of income on schooling in the records of
# 20,000 invented persons at rho 1 are then 3 to 10 % too flat, without it they vanish; of 6,000
# persons, 10 to 20 %.
SHARE_OF_PAIRS = Fraction(1, 20)


@dataclass(frozen=True)
class Geocoded:
    """File whose rows have geocodes: the data, or the public list of geounits.

    Attributes:
      path: Path of the file.
      look: Summary of its columns.
      geocode: Column of the geocodes, or the columns of its parts.
      column: The geocodes as one column, joined if they have several parts.
      geography: Summary of its geocodes.
    """

    path: Place
    look: Look
    geocode: GeocodeColumns
    column: Column
    geography: Geography

    def lost(self, digits: int) -> bool:
        """Return whether leading zeros may be missing, if geocodes have this many digits."""
        return self.column.shortest < digits or not self.column.is_text


@dataclass(frozen=True)
class DraftText:
    """Contents of a drafted run file, of a census or a survey.

    Attributes:
      request: Options of `das init`.
      proposed: Attributes, and columns left out.
      tables: Tables to release.
      rho: The budget.
      account: Account of the people of the data.
      may_be_other: Whether the account may be one of other people.
      notes: Further points to check.
    """

    request: DraftRequest
    proposed: Proposed
    tables: Sequence[str]
    rho: Fraction
    account: Place
    may_be_other: bool
    notes: Sequence[str]

    @property
    def name(self) -> str:
        """Return the name of the run; the product, if there are others."""
        request = self.request
        return attribute_name(request.data.stem if request.into is None else request.product)

    def written(self, path: Place) -> str:
        """Return a path as written in the run file: local paths relative to its folder."""
        if not isinstance(path, Path):
            return str(path)
        named = path.parent.resolve() / path.name  # a link at the end may point elsewhere later
        return Path(os.path.relpath(named, self.request.folder.resolve())).as_posix()


@dataclass(frozen=True)
class RunText(DraftText):
    """Contents of the drafted run file of a census.

    Attributes:
      data: The person records.
      listed: The public list of geounits; None if the user gave no list.
      guessed: Whether the column of the geocodes was guessed.
      levels: Geolevels, root first.
      names: Geolevel to the column of the list with names; None to find them.
      pair_error: Standard error of the answers to pairs without a table; None if not measured.
    """

    data: Geocoded
    listed: Geocoded | None
    guessed: bool
    levels: Sequence[Geolevel]
    names: Mapping[str, str] | None = None
    pair_error: float | None = None

    @property
    def above(self) -> list[str]:
        """Return the geolevels above the last; the only one of a run without places."""
        return [level.name for level in self.levels[:-1] or self.levels]

    @property
    def digits(self) -> int:
        """Return the length of the geocodes."""
        return self.levels[-1].digits

    def columns(self, geocode: GeocodeColumns) -> str:
        """Return the value of the key `geocode`: the column, its parts, or a table of codes."""
        if isinstance(geocode, str):
            return quoted(geocode)
        if isinstance(geocode, GeocodeTable):
            columns = ", ".join(map(quoted, geocode.columns))
            return f"{{table: {quoted(self.written(geocode.table))}, columns: [{columns}]}}"
        parts = [f"{{column: {quoted(part.column)}, digits: {part.digits}}}" for part in geocode]
        return f"[{', '.join(parts)}]"

    @property
    def names_of_places(self) -> Mapping[str, str]:
        """Map geolevels to the columns of the list with names of geounits."""
        if self.names is not None or self.listed is None:
            return self.names or {}
        of_geocodes = self.listed.geography.of_geocodes
        columns = {
            column: {code.zfill(self.digits): text for code, text in of_code.items()}
            for column, of_code in of_geocodes.items()
        }
        return propose_names(columns, self.levels)

    @property
    def pairs(self) -> list[str]:
        """List the pairs of attributes that no table joins, as queries on their groups, if any."""
        attributes = self.proposed.attributes
        of_name = {name: one.name for one in attributes for name in (one.name, *one.recodes)}
        joined = {
            pair
            for table in self.tables
            for pair in permutations([of_name.get(term.strip()) for term in table.split("*")], 2)
        }
        terms = {one.name: next(iter(one.recodes), one.name) for one in attributes}
        named = combinations(terms, 2)
        return [f"{terms[a]} * {terms[b]}" for a, b in named if (a, b) not in joined]


def quoted(text: str) -> str:
    r"""Return text as YAML in double quotes.

    >>> quoted('0-4 "x"')
    '"0-4 \\"x\\""'
    """
    return json.dumps(text, ensure_ascii=False)


@cache
def _environment() -> Environment:
    """Return the environment of the templates of this package."""
    package = files("jobs.design.drafting")
    environment = Environment(
        loader=FunctionLoader(lambda name: (package / name).read_text("utf-8")),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quoted"] = quoted
    environment.globals |= {"comment": comment, "check": check, "list": listed, "map": mapped}
    environment.globals |= {"format": FORMAT, "share_of_pairs": SHARE_OF_PAIRS}
    return environment


def drafted_text(template: str, run: DraftText, **values: object) -> str:
    """Return a drafted file, or the entry of a product, from a template of this package."""
    return _environment().get_template(f"{template}.yaml.j2").render(run=run, **values)


def schema_text(run: RunText) -> str:
    """Return the schema file."""
    attributes = run.proposed.attributes
    recodes = [
        (one.name, name, groups) for one in attributes for name, groups in one.recodes.items()
    ]
    return drafted_text("schema", run, recodes=recodes)


def checks_of(text: str) -> list[str]:
    """List the points marked `# check:` in a drafted file."""
    checks: list[str] = []
    is_open = False
    for line in text.splitlines():
        bare = line.strip()
        if "# check: " in line:
            checks.append(line.partition("# check: ")[2])
            is_open = bare.startswith("#")
        elif is_open and bare.startswith("#   "):
            checks[-1] += f" {bare[1:].strip()}"
        else:
            is_open = False
    return checks


def listed(head: str, texts: Iterable[str]) -> str:
    """Return a list of texts, broken into lines."""
    return _wrapped(f"{head}[", [*map(quoted, texts)], "]")


def mapped(head: str, texts: Mapping[str, str], quotes: bool = False) -> str:
    """Return a map of texts, broken into lines."""
    pairs = texts.items()
    return _wrapped(
        head, [f"{quoted(key) if quotes else key}: {quoted(text)}" for key, text in pairs], "}"
    )


def _wrapped(head: str, items: Sequence[str], end: str) -> str:
    """Break a list or map into lines of bounded length."""
    lines, indent = [head], " " * len(head)
    for index, item in enumerate(items):
        text = item if index == len(items) - 1 else f"{item},"
        if len(lines[-1]) + len(text) + 1 > _WIDTH and lines[-1].strip() != head.strip():
            lines.append(indent)
        elif index:
            lines[-1] += " "
        lines[-1] += text
    return "\n".join(lines) + end


def comment(text: str, indent: int = 0, more: str = "") -> str:
    """Break a text into comment lines."""
    start = f"{' ' * indent}# "
    return textwrap.fill(
        " ".join(text.split()),
        _WIDTH,
        initial_indent=start,
        subsequent_indent=start + more,
        break_long_words=False,
        break_on_hyphens=False,
    )


def check(text: str, indent: int) -> str:
    """Break a point for the office to check into comment lines."""
    return comment(f"check: {text}", indent, more="  ")


def allocation_head(tables: Sequence[str], levels: Sequence[str]) -> str:
    """Return the comment at the top of an allocation file."""
    head = comment(
        "Shares of the budget by geolevel and query: exact fractions that add up to 1. "
        f"Planned for {', '.join(tables)}, equally weighted, at {', '.join(levels)}. "
        "Queries that no table needs get almost no budget. das plan run.yaml shows expected "
        "errors; das plan run.yaml --optimize NEW.yaml plans again with your weights or targets: "
        "docs/planning.md"
    )
    return f"{head}\n"
