"""The reports of a survey run, written from its documents and evaluation; no data."""

from __future__ import annotations

from jobs.pipeline.documents.document import read_document
from jobs.pipeline.storage.files import refuse_foreign
from jobs.pipeline.storage.layout import (
    ConfidentialLayout,
    ReleaseLayout,
    Roots,
    confidential_layout,
    release_folder,
)
from jobs.pipeline.storage.place import Place
from jobs.survey.documents import SurveyEvaluation, read_survey_manifest
from jobs.survey.report.internal import write_survey_evaluation
from jobs.survey.report.public import SurveyRelease, write_survey_report
from jobs.survey.results import read_results


def write_public_page(made: ReleaseLayout, to: Place | None = None) -> Place:
    """Write the public report of a release, or of a solution beside it.

    Args:
      made: The release.
      to: Folder for it; default: the release itself.

    Returns:
      The file.

    Raises:
      OutputError: The release is not finalized, or it cannot be written.
    """
    file = made.report if to is None else to / made.report.name
    if to is not None:
        refuse_foreign(file, b"<!DOCTYPE html>", "a report, which is replaced")
    write_survey_report(_released(made), file)
    return file


def write_internal_page(made: ReleaseLayout, confidential: ConfidentialLayout) -> Place:
    """Write the internal report of what was evaluated; confidential.

    Returns:
      The file.

    Raises:
      OutputError: The release is not finalized or not evaluated, or it cannot be written.
    """
    evaluation = read_document(
        SurveyEvaluation, confidential.evaluation, remedy="run `das evaluate`"
    )
    write_survey_evaluation(_released(made), evaluation, confidential.report)
    return confidential.report


def write_pages(roots: Roots, solution: str | None, to: Place | None = None) -> list[Place]:
    """Write the reports of a run, or of a solution of it, again.

    Args:
      roots: Of the run.
      solution: Name of the solution, if it is one.
      to: Folder for the public report, which is then all that is written; default: the release.

    Returns:
      The files, the confidential one first, if it was evaluated.

    Raises:
      OutputError: As above.
    """
    made = ReleaseLayout(release_folder(roots.out, solution))
    confidential = confidential_layout(roots, solution)
    is_evaluated = to is None and confidential.evaluation.exists()
    internal = [write_internal_page(made, confidential)] if is_evaluated else []
    return [*internal, write_public_page(made, to)]


def _released(made: ReleaseLayout) -> SurveyRelease:
    return SurveyRelease(read_survey_manifest(made.manifest), *read_results(made))
