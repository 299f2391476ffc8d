"""Planned strategies are kept as integers and read back alike."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from das.errors import OutputError
from jobs.pipeline.config.allocation import freeze, read_frozen
from jobs.pipeline.config.models.allocation import WorkloadConfig
from jobs.pipeline.config.workload import ZCDP_BOUNDED, plan_shares
from tests.builders.places import release_of
from tests.unit.jobs.pipeline.config.test_workload import SCHEMA

WANTED = WorkloadConfig.model_validate(
    {"tables": {"total": 1, "detailed": 1}, "bases": {"age": ["prefix"]}}
)


@pytest.fixture
def shares():
    return plan_shares(SCHEMA, WANTED, ZCDP_BOUNDED)


@pytest.fixture
def path(tmp_path, shares):
    freeze(release_of(tmp_path).planned, "digest", {"state": shares, "block": shares})
    return release_of(tmp_path).planned


def test_what_was_planned_is_read_back_exactly(path, shares):
    found = read_frozen(path, "digest")
    assert list(found) == ["state", "block"]
    for entry, known in zip(found["block"], shares, strict=True):
        assert entry.query.name == known.query.name
        for name in vars(known):
            if name != "query":
                value = getattr(entry, name)
                assert value == getattr(known, name)
                assert value is None or isinstance(value, Fraction)
        for factor, other in zip(entry.query.factors, known.query.factors, strict=True):
            assert np.array_equal(factor.matrix, other.matrix)
            assert factor.labels == other.labels
            assert factor.kind is other.kind
    before = path.read_bytes()
    freeze(path, "digest", {"state": shares, "block": shares})
    assert path.read_bytes() == before


def test_another_configuration_finds_nothing(path, tmp_path):
    assert read_frozen(path, "other") == {}
    assert read_frozen(tmp_path / "none", "digest") == {}


def test_another_plan_is_not_written_over_the_first(path, shares):
    before = path.read_bytes()
    with pytest.raises(OutputError, match="holds another plan than the one just made; start again"):
        freeze(path, "digest", {"state": shares})
    assert path.read_bytes() == before


def test_damage_is_named(path):
    document = json.loads(path.read_text())
    whole = path.read_text()
    document["factors"][0]["matrix"][0][0] += 1
    for text in (
        json.dumps(document),
        whole.replace('"share": "', '"share": "x', 1),
        whole[: len(whole) // 2],
        whole.replace('"levels"', '"geolevels"'),
    ):
        path.write_text(text)
        with pytest.raises(OutputError, match=r"planned.json: (is damaged|cannot be read)"):
            read_frozen(path, "digest")
