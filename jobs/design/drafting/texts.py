"""Drafted files as commented YAML; `# check:` marks decisions of the office."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, permutations
from pathlib import Path

from jobs.design.drafting.attributes import AGES, CODEBOOK, Proposal, Proposed, attribute_name
from jobs.design.drafting.geolevels import Geolevel, propose_names
from jobs.design.requests import DraftRequest
from jobs.pipeline.confidential.look import Column, Geography, Look
from jobs.pipeline.config.models.values import GeocodeColumns, GeocodeTable
from jobs.pipeline.config.upgrade import FORMAT
from jobs.pipeline.storage.place import Place

_WIDTH = 100
_MOST_PAIRS = 6  # shown


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
    """

    data: Geocoded
    listed: Geocoded | None
    guessed: bool
    levels: Sequence[Geolevel]
    names: Mapping[str, str] | None = None

    @property
    def digits(self) -> int:
        """Return the length of the geocodes."""
        return self.levels[-1].digits


def quoted(text: str) -> str:
    r"""Return text as YAML in double quotes.

    >>> quoted('0-4 "x"')
    '"0-4 \\"x\\""'
    """
    return json.dumps(text, ensure_ascii=False)


def schema_text(run: RunText) -> str:
    """Return the schema file."""
    proposed = run.proposed
    lines = [
        *comment_lines(
            f"Schema proposed by `das init` for {run.request.data.name}. It is published with "
            "every release, so it must come from public sources, such as the questionnaire or the "
            "code list, and not from the data: a level that is listed only because it occurs in "
            "the data reveals that such a person exists. Compare every list with your "
            "questionnaire: add missing levels, merge rare ones, and write meaningful labels. "
            "Labels are repeated in run.yaml."
        ),
        f"name: {quoted(run.name)}",
        "attributes:",
    ]
    recodes = []
    for attribute in proposed.attributes:
        lines.append(f"  - name: {quoted(attribute.name)}")
        if attribute.source == AGES:
            lines += comment_lines("All possible ages, independent of the data.", 4)
        elif attribute.source == CODEBOOK:
            lines += comment_lines("From the code list.", 4)
        else:
            lines += check_lines(
                "levels were read from the file; compare with your questionnaire", 4
            )
        lines += list_lines("    levels: ", attribute.levels)
        for recode, groups in attribute.recodes.items():
            recodes += [f"  - name: {quoted(recode)}", f"    attribute: {quoted(attribute.name)}"]
            recodes.append("    groups:")
            for label, levels in groups.items():
                recodes += list_lines(f"      {quoted(label)}: ", levels)
    if recodes:
        lines += ["recodes:                        # groups of levels, for queries", *recodes]
    else:
        lines += comment_lines(
            "Define groups of levels for queries, such as children and adults, here under "
            "`recodes`: docs/configuration.md"
        )
    return "\n".join([*lines, ""])


def run_text(run: RunText) -> str:
    """Return the run file, without `privacy.allocation`, which is planned afterwards.

    The line `ALLOCATION` marks its position.
    """
    lines = [
        *comment_lines(
            f"Run file proposed by `das init` for {run.request.data.name}. Check the points marked "
            "`# check:`. Next: das validate, das generate --like (a rehearsal with invented "
            "persons), das run. All keys: docs/configuration.md"
        ),
        f"format: {FORMAT}",
        f"name: {quoted(run.name)}",
        *_geography(run),
        "products:",
        *product_lines(run),
        "output:",
        "  directory: out                # OUT/release can be published; all else is confidential",
        "privacy:",
        *account_lines(run),
    ]
    return "\n".join([*lines, ""])


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


ALLOCATION = "      allocation: allocation.yaml   # planned for the tables below"


def _geography(run: RunText) -> list[str]:
    lines = ["geography:", "  levels:                       # root first"]
    for level in run.levels:
        if level.why.startswith("guessed"):
            lines += check_lines(level.why, 4)
        lines.append(f"    - {{name: {level.name}, digits: {level.digits}}}")
    if run.listed is None:
        leaf = run.levels[-1].name
        lines += check_lines(
            f"there is no list of geounits, so the geocodes of the level {leaf} come from the data "
            "and are published exactly, which reveals that all others are empty. Under geounits, "
            "give a public list of all of them, empty ones included, made without the data",
            2,
        )
        lines.append(
            f"  # geounits: {{path: geounits.csv, geocode: {_columns(run, run.data.geocode)}}}"
        )
        return lines
    lines.append("  geounits:                     # public, empty geounits included")
    lines += _source(run, run.listed, 4)
    columns = {
        column: {code.zfill(run.digits): text for code, text in of_code.items()}
        for column, of_code in run.listed.geography.of_geocodes.items()
    }
    names = propose_names(columns, run.levels) if run.names is None else run.names
    if names:
        pairs = [f"{level}: {quoted(column)}" for level, column in names.items()]
        lines += _wrapped("    names: {", pairs, "}")
    return lines


def _source(run: RunText, file: Geocoded, indent: int, guessed: bool = False) -> list[str]:
    """Return the keys of a file with geocodes."""
    lines = [f"path: {quoted(run.written(file.path))}", f"geocode: {_columns(run, file.geocode)}"]
    if file.look.delimiter not in (None, ","):
        lines.append(f"delimiter: {quoted(str(file.look.delimiter))}")
    lines = [" " * indent + line for line in lines]
    if guessed:
        lines[1:1] = check_lines(
            f"the column of geocodes was guessed: {_columns(run, file.geocode)}", indent
        )
    if file.lost(run.digits):
        why = "geocodes are numbers that lost their leading zeros, as in spreadsheets"
        lines += [
            *check_lines(f"{why}; restored here", indent),
            f"{' ' * indent}leading_zeros: lost",
        ]
    return lines


def product_lines(run: RunText) -> list[str]:
    """Return the entry of the product under `products`."""
    lines = [
        f"  {run.request.product}:",
        "    schema: schema.yaml",
        "    data:                       # confidential; stays where it is",
        "      input_format: records",
        *_source(run, run.data, 6, run.guessed),
        *(line for note in run.notes for line in check_lines(note, 6)),
        "      columns:                  # attribute: column, and value in it: level",
    ]
    for attribute in run.proposed.attributes:
        lines += column_lines(attribute, 8)
    if run.proposed.left_out:
        lines += comment_lines("Columns that are not used:", 6)
        for name, why in run.proposed.left_out.items():
            lines += check_lines(f"{quoted(name)} is not used: it {why}", 6)
    lines += [
        "    privacy:",
        *budget_lines(run, 6),
        ALLOCATION,
        *comment_lines(
            "Only counts listed here are published exactly, such as the total of the country:", 4
        ),
        f"    # invariants: [{{query: total, geolevel: {run.levels[0].name}}}]",
        "    output:",
        *comment_lines(
            "Tables to release besides the microdata: a query for all geolevels, or {query: ..., "
            "geolevels: [...]}. Detailed tables of the last geolevel are mostly noise. "
            "docs/tables.md",
            6,
        ),
        *_unrelated(run),
        "      tables:",
    ]
    above = ", ".join(level.name for level in run.levels[:-1])
    for table in run.tables:
        if run.request.tables or table == "total" or not above:
            lines.append(f"        - {quoted(table)}")
        else:
            lines.append(f"        - {{query: {quoted(table)}, geolevels: [{above}]}}")
    return lines


def _unrelated(run: RunText) -> list[str]:
    """Name the pairs of attributes that no table joins, which microdata show close to chance."""
    attributes = run.proposed.attributes
    of_name = {name: one.name for one in attributes for name in (one.name, *one.recodes)}
    joined = {
        pair
        for table in run.tables
        for pair in permutations([of_name.get(term.strip()) for term in table.split("*")], 2)
    }
    pairs = [
        pair for pair in combinations([one.name for one in attributes], 2) if pair not in joined
    ]
    if not pairs:
        return []
    named = ", ".join(" * ".join(pair) for pair in pairs[:_MOST_PAIRS])
    more = f" and {len(pairs) - _MOST_PAIRS} more" if len(pairs) > _MOST_PAIRS else ""
    why = "no table joins these attributes, so microdata show their relation close to chance"
    return check_lines(f"{why}; add a table for each one that you need: {named}{more}", 6)


def budget_lines(run: DraftText, indent: int) -> list[str]:
    """Return the key `rho`."""
    privacy = check_lines if run.request.rho is None else comment_lines
    why = (
        "rho is the total privacy budget, an exact fraction: a bound on what the release "
        "reveals about one person. das validate prints the equivalent epsilon. The value is a "
        "decision of your office, not a recommendation of this program. docs/privacy.md"
    )
    return [*privacy(why, indent), f'{" " * indent}rho: "{run.rho}"']


def account_lines(run: DraftText) -> list[str]:
    """Return the key `account` of the section `privacy`."""
    lines = comment_lines(
        "The account records every budget spent on these people, and its limit (das account "
        "--limit). Name the same file in every run file about them.",
        2,
    )
    if run.may_be_other:
        doubt = "another file in this folder has this account: are its people the same? If not, "
        lines = check_lines(f"{doubt}name a new file", 2)
    return [*lines, f"  account: {quoted(run.written(run.account))}"]


def column_lines(attribute: Proposal, indent: int) -> list[str]:
    """Return the entry of an attribute under `columns`."""
    start = " " * indent
    if not attribute.codes:
        return [f"{start}{quoted(attribute.name)}: {quoted(attribute.column)}"]
    lines = [f"{start}{quoted(attribute.name)}:", f"{start}  column: {quoted(attribute.column)}"]
    pairs = [f"{quoted(code)}: {quoted(label)}" for code, label in attribute.codes.items()]
    return [*lines, f"{start}  codes:", *_wrapped(f"{start}    {{", pairs, "}")]


def _columns(run: RunText, geocode: GeocodeColumns) -> str:
    """Return the value of the key `geocode`: the column, its parts, or a table of codes."""
    if isinstance(geocode, str):
        return quoted(geocode)
    if isinstance(geocode, GeocodeTable):
        columns = ", ".join(map(quoted, geocode.columns))
        return f"{{table: {quoted(run.written(geocode.table))}, columns: [{columns}]}}"
    parts = [f"{{column: {quoted(part.column)}, digits: {part.digits}}}" for part in geocode]
    return f"[{', '.join(parts)}]"


def list_lines(head: str, texts: Iterable[str]) -> list[str]:
    """Return a list of texts, broken into lines."""
    return _wrapped(f"{head}[", [*map(quoted, texts)], "]")


def _wrapped(head: str, items: Sequence[str], end: str) -> list[str]:
    """Break a list or map into lines of bounded length."""
    lines, indent = [head], " " * len(head)
    for index, item in enumerate(items):
        text = item if index == len(items) - 1 else f"{item},"
        if len(lines[-1]) + len(text) + 1 > _WIDTH and lines[-1].strip() != head.strip():
            lines.append(indent)
        elif index:
            lines[-1] += " "
        lines[-1] += text
    lines[-1] += end
    return lines


def comment_lines(text: str, indent: int = 0, more: str = "") -> list[str]:
    """Break a text into comment lines."""
    start = f"{' ' * indent}# "
    return textwrap.wrap(
        " ".join(text.split()),
        _WIDTH,
        initial_indent=start,
        subsequent_indent=start + more,
        break_long_words=False,
        break_on_hyphens=False,
    )


def check_lines(text: str, indent: int) -> list[str]:
    """Break a point for the office to check into comment lines."""
    return comment_lines(f"check: {text}", indent, more="  ")


def allocation_head(tables: Sequence[str], levels: Sequence[str]) -> str:
    """Return the comment at the top of an allocation file."""
    comment = comment_lines(
        "Shares of the budget by geolevel and query: exact fractions that add up to 1. "
        f"Planned for {', '.join(tables)}, equally weighted, at {', '.join(levels)}. "
        "Queries that no table needs get almost no budget. das plan run.yaml shows expected "
        "errors; das plan run.yaml --optimize NEW.yaml plans again with your weights or targets: "
        "docs/planning.md"
    )
    return "\n".join([*comment, ""])
