"""The JSON Schemas of documents in the package; `jobs.cli.schemas` generates them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

SHIPPED = Path(__file__).with_name("schemas")
CENSUS = ("release", "manifest", "account", "codebook", "intervals")
SURVEY = (
    "account",
    "codebook",
    *(f"survey-{n}" for n in ("manifest", "means", "tables", "marginals")),
)


def released_schemas(names: Sequence[str] = CENSUS) -> dict[str, str]:
    """Read the schemas of the documents of a release: file name -> text."""
    shipped = files("jobs.pipeline.documents") / "schemas"
    files_of = [f"{name}.schema.json" for name in names]
    return {name: (shipped / name).read_text("utf-8") for name in files_of}
