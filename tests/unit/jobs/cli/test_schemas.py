"""The schemas that are shipped and the page about them say what the types say."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from jobs.cli.schemas import KINDS, meanings, nested, reference, schema_of, schema_text
from jobs.pipeline.documents.document import json_of
from jobs.pipeline.documents.manifest import Manifest
from tests.checkout import ROOT
from tests.unit.jobs.pipeline.report.report_samples import evaluation, manifest, summary

SAMPLES = {"manifest": manifest(), "evaluation": evaluation(), "summary": summary()}


def test_the_schema_in_the_package_is_that_of_the_type() -> None:
    for name in KINDS:
        shipped = files("jobs.pipeline.documents") / "schemas" / f"{name}.schema.json"
        assert shipped.read_text(encoding="utf-8") == schema_text(name), "run make docs"


def test_schemas_are_part_of_the_built_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["*"]
    package = ROOT / "jobs" / "pipeline" / "documents"
    packed = {path.name for pattern in patterns for path in package.glob(pattern)}
    assert {f"{name}.schema.json" for name in KINDS} <= packed


def test_the_page_is_that_of_the_types() -> None:
    page = (Path(ROOT) / "docs" / "documents.md").read_text(encoding="utf-8")
    assert page == reference(), "run make docs"


def test_every_key_says_what_it_means() -> None:
    for name in KINDS:
        for kind in nested(KINDS[name]):
            assert kind.__doc__
            keys = {field.name for field in dataclasses.fields(kind)}
            assert set(meanings(kind)) == keys, kind


@pytest.mark.parametrize("name", SAMPLES)
def test_documents_have_the_keys_of_their_schema_and_no_others(name: str) -> None:
    schema = schema_of(name)

    def check(value: object, wanted: dict) -> None:
        if "$ref" in wanted:
            wanted = schema["$defs"][wanted["$ref"].rpartition("/")[2]]
        for one in wanted.get("anyOf", []):
            if (value is None) == (one.get("type") == "null"):
                check(value, one)
        if isinstance(value, list):
            for item in value:
                check(item, wanted.get("items", {}))
        if isinstance(value, dict) and "properties" in wanted:
            assert wanted["additionalProperties"] is False
            assert set(wanted["required"]) <= set(value) <= set(wanted["properties"])
            for key, own in value.items():
                check(own, wanted["properties"][key])

    check(json.loads(json.dumps(json_of(SAMPLES[name]))), {"$ref": "#"} and schema)


def test_only_keys_that_do_not_apply_or_that_older_manifests_lack_may_be_absent() -> None:
    absent = {
        (kind.__name__, field.name)
        for kind in nested(Manifest)
        for field in dataclasses.fields(kind)
        if field.default is None
    }
    assert absent == {
        ("Manifest", "together"),
        ("Manifest", "origin"),
        ("Software", "revision"),
        ("Limit", "types"),
        ("SolvedLevel", "expected_totals"),
        ("SolvedLevel", "learned"),
        ("Grant", "exact"),
        ("Grant", "changed_record"),
        ("Privacy", "epsilon_by_noise"),
        ("Privacy", "nearest"),
        ("Privacy", "mu_gdp"),
        ("Privacy", "attacks"),
    }
