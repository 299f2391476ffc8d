"""Hostile surveys: random run files, mutated, and their files with something wrong."""

from __future__ import annotations

import csv
from pathlib import Path

import yaml

from tests.fuzz.case import Case, Rng, yaml_text
from tests.fuzz.configurations import RAW, mutate
from tests.fuzz.inputs import hostile_csv
from tests.fuzz.random_runs import random_survey


def make_survey(rng: Rng, folder: Path) -> Case:
    """A random survey after something was done to its run file, data or weights, or nothing."""
    config, account, out = random_survey(rng, folder), folder / "account.jsonl", folder / "out"
    document = yaml.safe_load(config.read_text())
    arguments = [
        *rng.choice((["validate"], ["run"], ["run"], ["run", "--only", "measure"])),
        str(config),
    ]
    how, note = rng.choice(("mutated", "mutated", "mutated", "raw", "file", "nothing")), ""
    if how == "mutated":
        note = "; ".join(mutate(rng, document) for _ in range(rng.choice((1, 1, 2))))
    elif how == "file":
        path = rng.choice(sorted(folder.glob("*.csv")))
        with path.open(newline="") as handle:
            rows = list(csv.reader(handle))
        note, data = hostile_csv(rng, rows)
        path.write_bytes(data)
        note = f"{path.name} {note}"
    if arguments[0] != "validate":  # who mutates may not say where to write
        document["output"] = {"directory": str(out)}
        if isinstance(document.get("privacy"), dict):
            document["privacy"]["account"] = str(account)
        arguments.append("--quiet")
    text = yaml_text(document)
    if how == "raw":
        arguments, note = ["validate", str(config)], rng.choice(list(RAW))
        text = RAW[note](rng, text)
    config.write_bytes(text.encode("utf-8", "surrogatepass"))
    if arguments[0] == "validate":
        return Case("survey", f"{how} {note}", arguments)
    return Case("survey", f"{how} {note}", arguments, account=account, out=out)
