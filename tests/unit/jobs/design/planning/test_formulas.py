"""Labels that a spreadsheet would compute are named before anything is published."""

from __future__ import annotations

import json
import sys

import pytest
import yaml

from das.schema import Attribute, Recode, Schema
from jobs.cli.main import main
from jobs.design.planning.summary import formulas
from tests.builders.toy import configuration

AGE = Attribute("age", ("0-4", "-5", "=1+1", "85+", " +1", "a=b"))


def test_names_groups_and_levels_are_looked_at():
    old = Recode.from_groups("@old", AGE, {"-": AGE.levels[:2], "rest": AGE.levels[2:]})
    schema = Schema("s", (AGE, Attribute("+sex", ("f", "m"))), (old,))
    assert formulas(schema) == ("+sex", "@old", "-5", "=1+1", " +1", "-")


@pytest.mark.parametrize("label", ['=HYPERLINK("http://example.org/[/b]","x")', "male"])
def test_validate_warns_of_a_label_that_is_a_formula(tmp_path, monkeypatch, capsys, label):
    run = tmp_path / "run.yaml"
    levels = {"sex": ["female", label], "age": ["under_18", "18_to_64", "65_and_over"]}
    schema = {"name": "s", "attributes": [{"name": n, "levels": x} for n, x in levels.items()]}
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(schema))
    configuration(tmp_path, schema="schema.yaml")
    monkeypatch.setattr(sys, "argv", ["das", "validate", str(run)])
    assert main() == 0
    said = " ".join(capsys.readouterr().out.split())
    is_formula = label.startswith("=")
    assert ("spreadsheets compute text" in said) is is_formula
    assert (label[:30] in said) is is_formula
    monkeypatch.setattr(sys, "argv", ["das", "validate", str(run), "--json"])
    assert main() == 0
    assert json.loads(capsys.readouterr().out)["formulas"] == ([label] if is_formula else [])
