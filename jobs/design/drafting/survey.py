"""Draft the run file of a survey from a file of person records, without geography."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from jobs.design.drafting.attributes import AGES, Proposal, Proposed, propose
from jobs.design.drafting.draft import (
    ALL_ROWS,
    RUN_FILE,
    Draft,
    hide,
    refuse_unknown_tables,
    requested_look,
    unlisted_codes,
)
from jobs.design.drafting.texts import DraftText, drafted_text
from jobs.design.requests import DraftRequest
from jobs.pipeline.confidential.look import Look
from jobs.pipeline.config.files import absolute_path
from jobs.pipeline.storage.account import proposed_account
from jobs.pipeline.storage.files import drafted, writing

_AGES = [*range(0, 101, 5)]  # lower edges of the bins
_SHARE_OF_MEAN, _SHARE_OF_TABLES = Fraction(1, 20), Fraction(1, 2)  # defaults, not measured


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
    text = DraftText(request, proposed, wanted.tables, rho, *account, notes)
    refuse_unknown_tables(text.tables, text.name, proposed)
    with drafted(request.folder) as made:
        with writing(made):
            (made / RUN_FILE).write_text(survey_text(text, look), encoding="utf-8")
        load(made / RUN_FILE)
        hide(made)
    return Draft.of(request.folder / RUN_FILE, [request.folder / RUN_FILE], look)


def _of_survey(attribute: Proposal) -> Proposal:
    """Return an attribute without recodes, with a label for every code; labels have no `*`."""
    codes = attribute.codes or {level: level for level in attribute.levels}
    labels = {code: label.replace("*", "(star)") for code, label in codes.items()}
    levels = tuple(dict.fromkeys(labels.values()))
    return replace(attribute, levels=levels, codes=labels, recodes={})


def survey_text(run: DraftText, look: Look) -> str:
    """Return the run file; the shares of its parts sum to 1."""
    ages = [
        one.name for one in run.proposed.attributes if one.source == AGES and "" not in one.codes
    ]
    rest = 1 - (_SHARE_OF_MEAN if ages else 0) - (_SHARE_OF_TABLES if run.tables else 0)
    shares = {"share_of_mean": _SHARE_OF_MEAN, "share_of_tables": _SHARE_OF_TABLES, "rest": rest}
    mean = ages[0] if ages else ""
    return drafted_text("survey", run, look=look, ages=_AGES, mean=mean, **shares)
