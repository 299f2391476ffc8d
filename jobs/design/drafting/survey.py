"""Draft the run file of a survey from a file of person records, without geography."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from jobs.design.drafting.attributes import AGES, Proposal, Proposed, propose
from jobs.design.drafting.draft import (
    ALL_ROWS,
    Draft,
    hide,
    refuse_unknown_tables,
    requested_look,
    unlisted_codes,
)
from jobs.design.drafting.texts import (
    DraftText,
    account_lines,
    budget_lines,
    check_lines,
    column_lines,
    comment_lines,
    list_lines,
    quoted,
)
from jobs.design.requests import DraftRequest
from jobs.pipeline.confidential.look import Look
from jobs.pipeline.config.files import absolute_path
from jobs.pipeline.config.upgrade import FORMAT
from jobs.pipeline.storage.account import proposed_account
from jobs.pipeline.storage.files import drafted, writing

_AGES = range(0, 101, 5)  # lower edges of the bins
_SD_OF_AGES = 25  # ages spread evenly from 0 to 85 have 24.5 (computed)
_SHARE_OF_MEAN, _SHARE_OF_TABLES = Fraction(1, 20), Fraction(1, 2)  # defaults, not measured
_FILE = "run.yaml"


@dataclass(frozen=True)
class SurveyText(DraftText):
    """Contents of the drafted run file.

    Attributes:
      look: Columns and number of records of the file.
    """

    look: Look


def draft_survey(request: DraftRequest, load: Callable[[Path], object]) -> Draft:
    """Read a file of person records and draft the run file of a survey.

    All rows are read, because the number of records is public in a survey.

    Args:
      request: Options of `das init`.
      load: Validates a run file.

    Raises:
      InputError: The file cannot be read.
      ConfigError, SchemaError: The request does not match the file.
      OutputError: The folder is not empty or cannot be written.
    """
    rho, look, wanted = requested_look(request, ALL_ROWS)
    found = propose(look.columns, (), replace(wanted, most_cells=math.inf))
    proposed = Proposed(tuple(map(_of_survey, found.attributes)), found.left_out)
    account = proposed_account(absolute_path(request.data))
    notes = unlisted_codes(look, proposed)
    text = SurveyText(request, proposed, wanted.tables, rho, *account, notes, look)
    refuse_unknown_tables(text.tables, text.name, proposed)
    with drafted(request.folder) as made:
        with writing(made):
            (made / _FILE).write_text(survey_text(text), encoding="utf-8")
        load(made / _FILE)
        hide(made)
    return Draft.of([request.folder / _FILE], look)


def _of_survey(attribute: Proposal) -> Proposal:
    """Return an attribute without recodes, with a label for every code; labels have no `*`."""
    codes = attribute.codes or {level: level for level in attribute.levels}
    labels = {code: label.replace("*", "(star)") for code, label in codes.items()}
    levels = tuple(dict.fromkeys(labels.values()))
    return replace(attribute, levels=levels, codes=labels, recodes={})


def survey_text(run: SurveyText) -> str:
    """Return the run file."""
    lines = [
        *comment_lines(
            f"Run file of a survey proposed by `das init` for {run.request.data.name}. Check the "
            "points marked `# check:`. Next: das validate, das run. docs/survey.md"
        ),
        *("kind: survey", f"format: {FORMAT}", f"name: {quoted(run.name)}", "privacy:"),
        *budget_lines(run, 2),
        *account_lines(run),
        "data:                           # confidential; stays where it is",
        f"  path: {quoted(run.written(run.request.data))}",
    ]
    if run.look.delimiter not in (None, ","):
        lines.append(f"  delimiter: {quoted(str(run.look.delimiter))}")
    lines += [
        *check_lines("the number of records was counted, and is published: is it public?", 2),
        f"  n_records: {run.look.rows}",
        "  columns:                      # attribute: column, and value in it: level",
        *comment_lines("Levels are published, so they must come from public sources.", 4),
    ]
    for note in run.notes:
        lines += check_lines(note, 4)
    for attribute in run.proposed.attributes:
        lines += _column(attribute)
    for name, why in run.proposed.left_out.items():
        lines += check_lines(f"{quoted(name)} is not used: it {why}{_as_number(run, name)}", 4)
    return "\n".join([*lines, *_parts(run), "output:", "  directory: out", ""])


def _column(attribute: Proposal) -> list[str]:
    if attribute.source != AGES:
        found = check_lines("levels were read from the file; compare with your questionnaire", 4)
        return [*(found if attribute.source == "file" else ()), *column_lines(attribute, 4)]
    missing = ', missing: {"": missing}' if "" in attribute.codes else ""
    bins = f"bins: {[*_AGES]}{missing}"
    return [f"    {quoted(attribute.name)}: {{column: {quoted(attribute.column)}, {bins}}}"]


def _as_number(run: SurveyText, name: str) -> str:
    """Return how to use a column of numbers; empty for other columns."""
    column = run.look.column(name)
    if column is None or column.fault or column.is_unique or not column.is_number:
        return ""
    empty = ', missing: {"": missing}' if column.has_missing else ""
    entry = f"{quoted(name)}: {{column: {quoted(name)}, bins: [0, 100, 1000]{empty}}}"
    return f". To use its numbers, add a line with public lower edges of bins, such as {entry}"


def _parts(run: SurveyText) -> list[str]:
    """Return the parts of the release and their shares of the budget, which sum to 1."""
    lines, rest = [], Fraction(1)
    ages = [one.name for one in run.proposed.attributes if one.source == AGES]
    known = [one.name for one in run.proposed.attributes if "" not in one.codes]
    for name in [name for name in ages if name in known][:1]:
        lines += ["statistics:", f"  - mean: {quoted(name)}", f"    low: {_AGES[0]}"]
        lines += [f"    high: {_AGES[-1]}", f"    sd_bound: {_SD_OF_AGES}"]
        lines.append(f'    share: "{_SHARE_OF_MEAN}"')
        rest -= _SHARE_OF_MEAN
    if run.tables:
        lines += ["marginals:                      # unbiased tables with known errors"]
        lines += [*list_lines("  tables: ", run.tables), f'  share: "{_SHARE_OF_TABLES}"']
        rest -= _SHARE_OF_TABLES
    return [*lines, "synthesis:                      # microdata", f'  share: "{rest}"']
