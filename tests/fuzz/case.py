"""A case of the fuzzer: files in a folder, and a command that somebody might run on them."""

from __future__ import annotations

import csv
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.builders.toy import AGE, LEVELS, SEX, blocks, run_file

Rng = random.Random


@dataclass
class Case:
    """What is tried.

    Attributes:
      kind: Which of the makers made it.
      note: What was done to valid files, in a few words.
      arguments: Of the command line, without `das`.
      outputs: Files and folders the command may write when it succeeds; nothing else may appear.
      account: The account that must hold no claim if the command fails.
      out: The run folder, for commands that begin one.
      remakes: A run folder whose datasets the command may make again, as a whole.
      records: How many records of the input an accepted command must have read; None if nobody
        counted them.
      fault: Why no reader should take the input, if so.
    """

    kind: str
    note: str
    arguments: list[str]
    outputs: list[Path] = field(default_factory=list)
    account: Path | None = None
    out: Path | None = None
    remakes: Path | None = None
    records: int | None = None
    fault: str = ""


Maker = Callable[[Rng, Path], Case]


class Plain(str):
    """Text that is written to YAML as it is, without quotes."""


_MARK = "qQzZ{}ZzQq"


def yaml_text(document: Any) -> str:
    """Write YAML, with `Plain` texts as they are and texts that YAML cannot hold as escapes."""
    plain: list[str] = []

    def marked(value: Any) -> Any:
        if isinstance(value, Plain):
            plain.append(str(value))
            return _MARK.format(len(plain) - 1)
        if isinstance(value, dict):
            return {marked(key): marked(one) for key, one in value.items()}
        return [marked(one) for one in value] if isinstance(value, list) else value

    text = yaml.safe_dump(marked(document), sort_keys=False, allow_unicode=True, width=10**6)
    pattern = re.escape(_MARK).replace(r"\{\}", r"(\d+)")
    return re.sub(pattern, lambda found: plain[int(found[1])], text)


def places(document: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Keys to every value of a document."""
    found = [before] if before else []
    if isinstance(document, dict):
        for key, value in document.items():
            found += places(value, (*before, key))
    elif isinstance(document, list):
        for index, value in enumerate(document):
            found += places(value, (*before, index))
    return found


def value_at(document: Any, place: Sequence[Any]) -> Any:
    """The value at a place."""
    for key in place:
        document = document[key]
    return document


def people(rng: Rng, n: int = 120) -> list[tuple[str, str, str]]:
    """Records of the toy state."""
    codes = blocks()
    return [(rng.choice(codes), rng.choice(SEX), rng.choice(AGE)) for _ in range(n)]


def write_csv(path: Path, rows: Sequence[Sequence[Any]]) -> Path:
    """Write a plain CSV file."""
    with path.open("w", newline="") as handle:
        csv.writer(handle).writerows(rows)
    return path


def toy_schema() -> dict[str, Any]:
    """The schema of the toy state."""
    return {
        "name": "toy",
        "attributes": [
            {"name": "sex", "levels": list(SEX)},
            {"name": "age", "levels": list(AGE)},
        ],
        "recodes": [
            {
                "name": "votingage",
                "attribute": "age",
                "groups": {"minor": [AGE[0]], "adult": list(AGE[1:])},
            }
        ],
    }


def toy_allocation() -> dict[str, Any]:
    """An allocation of the toy state."""
    queries = {"total": "1/4", "sex": "1/4", "detailed": "1/2"}
    return {
        "name": "toy",
        "source": "made up",
        "levels": {name: {"share": "1/4", "queries": dict(queries)} for name in LEVELS},
    }


def toy_run(folder: Path) -> dict[str, Any]:
    """A run file of the toy state in short; its schema and allocation lie beside it."""
    run = run_file(folder)
    del run["runtime"]
    run["schema"] = "schema.yaml"
    run["privacy"] = {
        "rho": "1",
        "allocation": "allocation.yaml",
        "account": str(folder / "account.jsonl"),
    }
    return run


def write_toy(folder: Path, rng: Rng) -> dict[str, Any]:
    """Write the data, the list of blocks, schema and allocation; returns the run file."""
    rows = people(rng)
    write_csv(folder / "records.csv", [("block", "sex", "age"), *rows])
    write_csv(folder / "blocks.csv", [("geocode",), *((code,) for code in blocks())])
    (folder / "schema.yaml").write_text(yaml_text(toy_schema()))
    (folder / "allocation.yaml").write_text(yaml_text(toy_allocation()))
    return toy_run(folder)
