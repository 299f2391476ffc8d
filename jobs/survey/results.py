"""What is made of measured means and tables: documents, and their rows as CSV files; no data."""

from __future__ import annotations

from das.errors import VerificationError
from jobs.pipeline.documents.document import write_document
from jobs.pipeline.storage.files import replace_file
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import Place
from jobs.survey.documents import MeansTable, SurveyTables, read_means, read_tables
from jobs.survey.means import means_csv, means_json, means_text
from jobs.survey.plan import SurveyPlan
from jobs.survey.tables import table_text, tables_csv, tables_json


def result_files(plan: SurveyPlan) -> list[Place]:
    """Every file that may be made of means and tables."""
    made = plan.made
    return [means_csv(made), means_json(made), tables_json(made), *tables_csv(plan)]


def write_results(plan: SurveyPlan, found: MeansTable | SurveyTables) -> None:
    """Write means or tables as JSON and CSV; files that are there are replaced.

    Raises:
      OutputError: They cannot be written.
    """
    document, texts = _files(plan, found)
    for path, text in texts.items():
        replace_file(path, text)
    write_document(document, found)


def read_results(made: ReleaseLayout) -> tuple[MeansTable | None, SurveyTables | None]:
    """Read the means and tables of a release, or of a solution beside it, as far as it has any.

    Raises:
      OutputError: A file is damaged.
    """
    means, tables = means_json(made), tables_json(made)
    return (
        read_means(means) if means.exists() else None,
        read_tables(tables) if tables.exists() else None,
    )


def check_rows(plan: SurveyPlan, found: MeansTable | SurveyTables) -> None:
    """Check that CSV files have the rows of their document.

    Raises:
      VerificationError: One does not.
    """
    document, texts = _files(plan, found)
    for path, text in texts.items():
        if path.read_text(encoding="utf-8") != text:
            raise VerificationError(str(path), f"does not hold the rows of {document.name}")


def _files(plan: SurveyPlan, found: MeansTable | SurveyTables) -> tuple[Place, dict[Place, str]]:
    """The document, and CSV files beside it, text by file."""
    if isinstance(found, MeansTable):
        return means_json(plan.made), {means_csv(plan.made): means_text(found)}
    texts = map(table_text, found.tables)
    return tables_json(plan.made), dict(zip(tables_csv(plan), texts, strict=True))
