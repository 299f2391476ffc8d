"""What a design changes, told from public files alone."""

from __future__ import annotations

import json

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from das.errors import ConfigError, DasError
from geography.lattice import Spine
from jobs.analysis.respine import summarize_spine
from jobs.cli.main import app
from jobs.pipeline.config.load import load_run
from tests.builders.run_files import to_products

SPINE = Spine(("state", "tract", "group", "block"), (1, 2, 3, 4))
LEAVES = np.array([b"7111", b"7112", b"7121", b"7122", b"7211", b"7212"])
ROWS = """geocode,place,town
7212,,1
7111,Dover,1
7121,Dover,2
7122,,2
7112,,1
7211,Easton,1
"""
SHARES = {"share": "1/4", "queries": {"total": "1/2", "detailed": "1/2"}}
NEW = ["state", "tract", "group_regrouped", "block"]


@pytest.fixture
def run_file(tmp_path):
    (tmp_path / "leaves.csv").write_text(ROWS)
    (tmp_path / "schema.yaml").write_text(
        "name: s\nattributes: [{name: sex, levels: [f, m]}]\n", encoding="utf-8"
    )
    allocation = {"name": "even", "levels": dict.fromkeys(NEW, SHARES)}
    (tmp_path / "even.yaml").write_text(yaml.safe_dump(allocation))
    run = {
        "name": "toy",
        "schema": "schema.yaml",
        "data": {"input_format": "histograms", "path": "absent"},
        "geography": {
            "levels": [
                {"name": name, "digits": digits}
                for name, digits in zip(SPINE.levels, SPINE.digits, strict=True)
            ],
            "geounits": {"path": "leaves.csv"},
            "spine": {"regroup": "group", "align_with": ["place", "town"]},
        },
        "privacy": {"rho": "1", "allocation": "even.yaml"},
        "output": {"directory": "out"},
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(to_products(run)))
    return tmp_path / "run.yaml"


def test_summary(run_file):
    summary = summarize_spine(load_run(run_file))
    assert [level["name"] for level in summary["levels"]] == NEW
    assert summary["geounits"]["before"] == {"state": 1, "tract": 2, "group": 3, "block": 6}
    assert summary["distances"]["place"]["before"] == {"mean": 1.5, "largest": 2}
    said = CliRunner().invoke(app, ["plan", "--spine", str(run_file)])
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout) == summary


def test_one_kind_alone_comes_as_near_as_it_can(run_file):
    run = yaml.safe_load(run_file.read_text())
    run["geography"]["spine"]["align_with"] = ["place"]
    run_file.write_text(yaml.safe_dump(run))
    assert summarize_spine(load_run(run_file))["distances"]["place"] == {
        "entities": 2,
        "before": {"mean": 1.5, "largest": 2},
        "after": {"mean": 1.0, "largest": 1},
    }


def test_a_spine_is_made_of_public_geounits_alone(run_file):
    run = yaml.safe_load(run_file.read_text())
    del run["geography"]["geounits"]
    run_file.write_text(yaml.safe_dump(run))
    with pytest.raises(ConfigError, match="`spine` needs `geounits`"):
        load_run(run_file)


@pytest.mark.parametrize(
    ("spine", "message"),
    [
        ({}, "changes nothing; it may `split`, `regroup` or `split_children`"),
        ({"regroup": "group"}, "`align_with` goes with `regroup` or `split_children`"),
        (
            {"split": {"geolevel": "state", "by": "a"}, "align_with": ["place"]},
            "`align_with` goes with",
        ),
        (
            {"regroup": "group", "align_with": ["place", "place"]},
            "`align_with` names a column twice",
        ),
        ({"regroup": "ward", "align_with": ["place"]}, "names an unknown geolevel; got ward"),
        ({"split": {"geolevel": "block", "by": "place"}}, "cannot split leaves; got block"),
    ],
)
def test_designs_are_refused(run_file, spine, message):
    run = yaml.safe_load(run_file.read_text())
    run["geography"]["spine"] = spine
    run_file.write_text(yaml.safe_dump(run))
    with pytest.raises(DasError) as caught:
        load_run(run_file)
    assert message in str(caught.value)
    assert "geography.spine" in str(caught.value)
