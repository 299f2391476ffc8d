"""JSON Schemas of the documents, and the page about them: `python -m jobs.cli.schemas`.

Both are made from the types and their docstrings. The schemas are part of the package, so a release
can be checked wherever the program is installed. A test compares the files with the output of this
module.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, get_type_hints

from pydantic import JsonValue, TypeAdapter

from jobs.cli.options import meanings
from jobs.cli.pages import PLAIN, nested, section, words
from jobs.pipeline.documents.account import Account
from jobs.pipeline.documents.codebook import Codebook
from jobs.pipeline.documents.evaluation import Evaluation
from jobs.pipeline.documents.intervals import Intervals
from jobs.pipeline.documents.manifest import CensusManifest, Manifest
from jobs.pipeline.documents.shipped import SHIPPED
from jobs.pipeline.documents.statistics import SolveStatistics
from jobs.pipeline.documents.summary import Summary
from jobs.survey.documents import (
    MeansTable,
    SurveyEvaluation,
    SurveyManifest,
    SurveyMarginals,
    SurveyTables,
)

_DOCUMENTS: Mapping[str, tuple[type, str]] = {
    "release": (CensusManifest, "`OUT/release/manifest.json`"),
    "manifest": (Manifest, "`manifest.json` of a product, in `OUT/release/products/NAME`"),
    "account": (Account, "`OUT/release/account.json`"),
    "codebook": (Codebook, "`codebook.json` of a product"),
    "statistics": (SolveStatistics, "`facts.statistics` of counts"),
    "evaluation": (Evaluation, "`OUT/confidential/products/NAME/evaluation.json`"),
    "intervals": (Intervals, "`intervals/intervals.json` of a product"),
    "summary": (Summary, "`OUT/summary.json`"),
    "survey-manifest": (SurveyManifest, "`OUT/release/manifest.json` of a survey"),
    "survey-means": (MeansTable, "`OUT/release/means.json` of a survey"),
    "survey-tables": (SurveyTables, "`OUT/release/tables.json` of a survey"),
    "survey-marginals": (SurveyMarginals, "`OUT/release/marginals.json` of a survey"),
    "survey-evaluation": (SurveyEvaluation, "`OUT/confidential/evaluation.json` of a survey"),
}
KINDS: Mapping[str, type] = {name: kind for name, (kind, _) in _DOCUMENTS.items()}
_PLAIN: Mapping[Any, str] = {**PLAIN, JsonValue: "any JSON", NoneType: "null"}
_INTRODUCTION = """# Documents

The JSON documents of a run, key by key. Every key is there unless its type says that it may be
absent; other keys are refused when a document is read. `format` is the version of a document: a
reader of another format says so. Exact fractions are text, such as `"16/3"`.

Each kind has a [JSON Schema](https://json-schema.org) in `jobs/pipeline/documents/schemas`, which
is part of the installed package: `python -m jobs.cli.schemas manifest` prints the one of manifests,
for checking a release with any validator.

This page is generated from the types in `jobs/pipeline/documents` by `make docs`.
"""


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document, with the meaning of every key."""
    kind = KINDS[name]
    schema = TypeAdapter(kind).json_schema()
    definitions = schema.get("$defs", {})
    for definition in definitions.values():
        if "enum" in definition:
            definition.pop("description", None)  # it describes the class, not the document
    for each in nested(kind):
        definition = definitions.get(each.__name__, schema)
        definition["description"] = summary_of_type(each)
        for key, meaning in meanings(each).items():
            if key in definition.get("properties", {}):
                definition["properties"][key]["description"] = meaning
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def schema_text(name: str) -> str:
    """Return the text of a schema file."""
    return json.dumps(schema_of(name), indent=1) + "\n"


def reference() -> str:
    """Return the page about all documents, as Markdown."""
    parts, seen = [_INTRODUCTION], set()
    for kind, title in _DOCUMENTS.values():
        parts.append(f"## {title}\n")
        for each in nested(kind):
            if each not in seen:
                seen.add(each)
                parts.append(_section(each))
    return "\n".join(parts)


def summary_of_type(kind: type) -> str:
    """Return the first line of the docstring of a type."""
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def _section(kind: type) -> str:
    meaning, hints, rows = meanings(kind), get_type_hints(kind), []
    for field in dataclasses.fields(kind):
        shown = words(hints[field.name], _PLAIN)
        if field.default is not dataclasses.MISSING:
            shown = shown.removesuffix(" or null") + "; may be absent"
        rows.append((f"`{field.name}`", shown, meaning[field.name]))
    return section(kind.__name__, summary_of_type(kind), ("Key", "Type", "Meaning"), rows)


def main() -> None:
    """Print the schema of a kind; or write all schemas, and the page to the named file."""
    if sys.argv[1:] and sys.argv[1] in KINDS:
        sys.stdout.write(schema_text(sys.argv[1]))
        return
    SHIPPED.mkdir(exist_ok=True)
    for name in KINDS:
        (SHIPPED / f"{name}.schema.json").write_text(schema_text(name), encoding="utf-8")
    for path in sys.argv[1:]:
        Path(path).write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
