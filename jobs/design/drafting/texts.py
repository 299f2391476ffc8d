"""The proposed files as commented YAML; `# check:` marks what nobody but the office can know."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from jobs.design.drafting.attributes import AGES, CODEBOOK, Proposal, Proposed, attribute_name
from jobs.design.drafting.geolevels import Geolevel, propose_names
from jobs.design.requests import DraftRequest
from jobs.pipeline.confidential.look import Column, Geography, Look
from jobs.pipeline.config.models.values import GeocodeColumns
from jobs.pipeline.config.upgrade import FORMAT
from jobs.pipeline.storage.place import Place

_WIDTH = 100


@dataclass(frozen=True)
class Geocoded:
    """A file whose rows have geocodes: the data, or the public list of geounits.

    Attributes:
      path: Where it lies.
      look: What was seen of its columns.
      geocode: Column of the geocodes, or several that make them.
      column: That column, or those as one.
      geography: What was seen of its geocodes.
    """

    path: Place
    look: Look
    geocode: GeocodeColumns
    column: Column
    geography: Geography

    def lost(self, digits: int) -> bool:
        """Say whether geocodes of so many digits lost leading zeros."""
        return self.column.shortest < digits or not self.column.is_text


@dataclass(frozen=True)
class RunText:
    """What the run file says.

    Attributes:
      request: What was asked.
      data: The person records.
      listed: The public list of geounits; None if there is none.
      guessed: Whether the column of the geocodes was guessed.
      levels: Geolevels, root first.
      proposed: Attributes, and columns that are none.
      tables: To be released.
      rho: The budget.
      notes: Further things to check about the geography.
    """

    request: DraftRequest
    data: Geocoded
    listed: Geocoded | None
    guessed: bool
    levels: Sequence[Geolevel]
    proposed: Proposed
    tables: Sequence[str]
    rho: Fraction
    notes: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Name of the run."""
        return attribute_name(self.request.data.stem)

    @property
    def digits(self) -> int:
        """Length of the geocodes."""
        return self.levels[-1].digits

    def written(self, place: Place) -> str:
        """A place as the run file has it: relative to its folder, if it is of this machine."""
        if not isinstance(place, Path):
            return str(place)
        named = place.parent.resolve() / place.name  # a link at the end may point elsewhere later
        return Path(os.path.relpath(named, self.request.folder.resolve())).as_posix()


def quoted(text: str) -> str:
    r"""Text as YAML, in double quotes.

    >>> quoted('0-4 "x"')
    '"0-4 \\"x\\""'
    """
    return json.dumps(text, ensure_ascii=False)


def schema_text(run: RunText) -> str:
    """A schema file."""
    proposed = run.proposed
    lines = [
        *_comment(
            f"Schema proposed by `das init` for {run.request.data.name}. It is published with "
            "every release, so it must come from what is public, such as the questionnaire or the "
            "code list, and not from the data: a level that stands here only because the data have "
            "it tells that there is such a person. Compare every list with your questionnaire: add "
            "the levels that the data lack, put rare ones together, and give labels that say what "
            "the codes mean. Labels are named in run.yaml too."
        ),
        f"name: {quoted(run.name)}",
        "attributes:",
    ]
    recodes = []
    for one in proposed.attributes:
        lines.append(f"  - name: {quoted(one.name)}")
        if one.source == AGES:
            lines += _comment("Ages that can be, whatever ages the data have.", 4)
        elif one.source == CODEBOOK:
            lines += _comment("From the code list.", 4)
        else:
            lines += _check("levels were read from the file; compare with your questionnaire", 4)
        lines += _flow("    levels: ", one.levels)
        for recode, groups in one.recodes.items():
            recodes += [f"  - name: {quoted(recode)}", f"    attribute: {quoted(one.name)}"]
            recodes.append("    groups:")
            for label, levels in groups.items():
                recodes += _flow(f"      {quoted(label)}: ", levels)
    if recodes:
        lines += ["recodes:                        # groups of levels, for queries", *recodes]
    else:
        lines += _comment(
            "Groups of levels for queries, such as children and adults, may be named here under "
            "`recodes`: docs/configuration.md"
        )
    return "\n".join([*lines, ""])


def run_text(run: RunText) -> str:
    """A run file, without `privacy.allocation`, which is planned with it.

    The line `ALLOCATION` stands where it belongs.
    """
    lines = [
        *_comment(
            f"Run file proposed by `das init` for {run.request.data.name}. What it could not know "
            "is marked `# check:`. Then: das validate, das generate --like (a rehearsal with "
            "invented persons), das run. Every key: docs/configuration.md"
        ),
        f"format: {FORMAT}",
        f"name: {quoted(run.name)}",
        *_geography(run),
        *_products(run),
        "output:",
        "  directory: out                # OUT/release is made to be published, the rest is not",
    ]
    return "\n".join([*lines, ""])


def checks_of(text: str) -> list[str]:
    """What a proposed file asks to be checked, each thing once."""
    found: list[str] = []
    is_open = False
    for line in text.splitlines():
        bare = line.strip()
        if "# check: " in line:
            found.append(line.partition("# check: ")[2])
            is_open = bare.startswith("#")
        elif is_open and bare.startswith("#   "):
            found[-1] += f" {bare[1:].strip()}"
        else:
            is_open = False
    return [*dict.fromkeys(found)]


ALLOCATION = "      allocation: allocation.yaml   # planned for the tables below"


def _geography(run: RunText) -> list[str]:
    lines = ["geography:", "  levels:                       # root first"]
    for level in run.levels:
        if level.why.startswith("guessed"):
            lines += _check(level.why, 4)
        lines.append(f"    - {{name: {level.name}, digits: {level.digits}}}")
    for note in run.notes:
        lines += _check(note, 2)
    if run.listed is None:
        leaf = run.levels[-1].name
        lines += _check(
            f"there is no list of geounits, so which {leaf} exists comes from the data and is "
            "published exactly: that nobody lives in the others, too. Give a public list of all "
            "of them, empty ones included, made without the data:",
            2,
        )
        lines.append(f"  # geounits: {{path: geounits.csv, geocode: {_columns(run.data.geocode)}}}")
        return lines
    lines.append("  geounits:                     # public, empty geounits included")
    lines += _source(run, run.listed, 4)
    said = {
        column: {code.zfill(run.digits): text for code, text in of_code.items()}
        for column, of_code in run.listed.geography.of_geocodes.items()
    }
    names = propose_names(said, run.levels)
    if names:
        pairs = [f"{level}: {quoted(column)}" for level, column in names.items()]
        lines += _wrapped("    names: {", pairs, "}")
    return lines


def _source(run: RunText, file: Geocoded, indent: int, guessed: bool = False) -> list[str]:
    """Keys of a file with geocodes."""
    lines = [f"path: {quoted(run.written(file.path))}", f"geocode: {_columns(file.geocode)}"]
    if file.look.delimiter not in (None, ","):
        lines.append(f"delimiter: {quoted(str(file.look.delimiter))}")
    lines = [" " * indent + line for line in lines]
    if guessed:
        why = "the column of the geocodes was guessed from names and lengths"
        lines[1:1] = _check(why, indent)
    if file.lost(run.digits):
        why = (
            "geocodes are numbers that lost their leading zeros, as in spreadsheets; put back here"
        )
        lines += [*_check(why, indent), f"{' ' * indent}leading_zeros: lost"]
    return lines


def _products(run: RunText) -> list[str]:
    lines = [
        "products:",
        "  persons:",
        "    schema: schema.yaml",
        "    data:                       # confidential; stays where it is",
        "      input_format: records",
        *_source(run, run.data, 6, run.guessed),
        "      columns:                  # attribute: column, and value in it: level",
    ]
    for one in run.proposed.attributes:
        lines += _column(one)
    if run.proposed.left_out:
        lines += _comment("Columns that are not used:", 6)
        for name, why in run.proposed.left_out.items():
            lines += _check(f"{quoted(name)} is not used: it {why}", 6)
    privacy = _check if run.request.rho is None else _comment
    lines += [
        "    privacy:",
        *privacy(
            "rho is the whole budget, an exact fraction: how much the release may tell about one "
            "person. das validate prints the epsilon it means. The number is a decision of your "
            "office, and no recommendation of this program. docs/privacy.md",
            6,
        ),
        f'      rho: "{run.rho}"',
        ALLOCATION,
        *_comment(
            "Nothing is published exactly but what stands here, such as the total of the whole:", 4
        ),
        f"    # invariants: [{{query: total, geolevel: {run.levels[0].name}}}]",
        "    output:",
        *_comment(
            "Tables, beside the microdata: a query, for all geolevels, or {query: ..., geolevels: "
            "[...]}, as single levels of the last geolevel are mostly noise. docs/tables.md",
            6,
        ),
        "      tables:",
    ]
    above = ", ".join(level.name for level in run.levels[:-1])
    for table in run.tables:
        if run.request.tables or table == "total" or not above:
            lines.append(f"        - {quoted(table)}")
        else:
            lines.append(f"        - {{query: {quoted(table)}, geolevels: [{above}]}}")
    return lines


def _column(one: Proposal) -> list[str]:
    if not one.codes:
        return [f"        {quoted(one.name)}: {quoted(one.column)}"]
    lines = [f"        {quoted(one.name)}:", f"          column: {quoted(one.column)}"]
    lines.append("          codes:")
    pairs = [f"{quoted(code)}: {quoted(label)}" for code, label in one.codes.items()]
    return lines + _wrapped("            {", pairs, "}")


def _columns(geocode: GeocodeColumns) -> str:
    """The column of the geocodes, or those that make them, as the key `geocode` has them."""
    if isinstance(geocode, str):
        return quoted(geocode)
    parts = [f"{{column: {quoted(part.column)}, digits: {part.digits}}}" for part in geocode]
    return f"[{', '.join(parts)}]"


def _flow(head: str, texts: Iterable[str]) -> list[str]:
    return _wrapped(f"{head}[", [quoted(text) for text in texts], "]")


def _wrapped(head: str, items: Sequence[str], end: str) -> list[str]:
    """Items of a list or map on lines of bounded length."""
    lines, indent = [head], " " * len(head)
    for index, item in enumerate(items):
        last = index == len(items) - 1
        text = item + ("" if last else ",")
        if len(lines[-1]) + len(text) + 1 > _WIDTH and lines[-1].strip() != head.strip():
            lines.append(indent)
        elif index:
            lines[-1] += " "
        lines[-1] += text
    lines[-1] += end
    return lines


def _comment(text: str, indent: int = 0, more: str = "") -> list[str]:
    """A comment of several lines."""
    start = f"{' ' * indent}# "
    return textwrap.wrap(
        " ".join(text.split()),
        _WIDTH,
        initial_indent=start,
        subsequent_indent=start + more,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _check(text: str, indent: int) -> list[str]:
    return _comment(f"check: {text}", indent, more="  ")


def allocation_head(tables: Sequence[str], levels: Sequence[str]) -> str:
    """Comment at the top of an allocation file."""
    return "\n".join(
        [
            *_comment(
                "How the budget is shared, by geolevel and query: exact fractions that add up to "
                f"1. Planned for {', '.join(tables)}, equally weighted, at {', '.join(levels)}. "
                "What no table asks for gets next to nothing; that which is measured at all is "
                "written here. das plan run.yaml shows the errors to expect, das plan run.yaml "
                "--optimize NEW.yaml plans anew, with weights or targets of yours: "
                "docs/planning.md"
            ),
            "",
        ]
    )
