"""Expected errors of groups: standard errors of estimates over released sizes, and no truth."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from das.queries.query import parse_query
from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.manifest import expected_groups
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.histograms import read_histograms
from jobs.pipeline.storage.layout import EstimateLayout
from tests.builders import toy
from tests.builders.in_process import execute


@pytest.fixture(scope="module", name="product")
def _product(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("expected")
    toy.write_records(folder)
    groups = ["sex", "votingage", "age"]
    tables = ["total", "sex", "age"]
    config = toy.configuration(folder, evaluate={"groups": groups}, output__tables=tables)
    execute(config)
    return load_run(config).last


def standard_errors(product, geolevel: str, query: str) -> np.ndarray:
    table = Dataset.open(EstimateLayout.of(product.release).tables(geolevel)).read()
    rows = [row for row in table.to_pylist() if row["query"] == query]
    return np.array([row["standard_error"] for row in rows])


def test_errors_are_those_of_the_published_estimates(product):
    found = expected_groups(product.plan, product.release, product.grouping)
    assert [one.groups for one in found] == ["sex", "age"]  # votingage is no table
    counts = read_histograms(Dataset.open(product.release.counts("state")), ["99"], 6)
    for one in found:
        released = parse_query(product.plan.schema, one.groups).answer(counts)[0]
        assert one.released == tuple(released.tolist())
        assert [level.geolevel for level in one.levels] == toy.LEVELS
        for level in one.levels:
            sums = standard_errors(product, level.geolevel, one.groups).sum(0)
            l1 = np.minimum(math.sqrt(2 / math.pi) * sums, 2 * released)
            assert level.l1 == pytest.approx(l1, rel=1e-4)
            of_total = standard_errors(product, level.geolevel, "total").sum()
            everybody = min(math.sqrt(2 / math.pi) * of_total / released.sum(), 2)
            assert level.everybody == pytest.approx(everybody, rel=1e-4, abs=1e-6)
            k = len(released)
            assert level.k == k
            parity = (l1 / released).sum() + everybody / k
            assert level.parity == pytest.approx(parity, rel=1e-4)
            assert level.worst == one.labels[int(np.argmax(l1 / released))]


def test_no_group_is_expected_to_be_further_off_than_it_can_be(tmp_path: Path):
    toy.write_records(tmp_path)
    config = toy.configuration(tmp_path, privacy__rho="1/1000")
    execute(config)
    product = load_run(config).last
    for one in expected_groups(product.plan, product.release, product.grouping):
        block = one.levels[-1]
        sums = standard_errors(product, "block", one.groups).sum(0)
        assert (math.sqrt(2 / math.pi) * sums > 2 * np.array(one.released)).all()
        assert block.l1 == tuple(2.0 * size for size in one.released)
        assert block.everybody == 2


def test_what_is_published_exactly_has_no_expected_error(product):
    state = expected_groups(product.plan, product.release, product.grouping)[0].levels[0]
    assert state.everybody == 0  # the total of the state is an invariant
    assert min(state.l1) > 0


def test_groups_below_the_floor_have_no_relative_error(product):
    counts = read_histograms(Dataset.open(product.release.counts("state")), ["99"], 6)
    women, men = parse_query(product.plan.schema, "sex").answer(counts)[0].tolist()
    assert women != men
    grouping = replace(product.grouping, floor=max(women, men))
    sex = expected_groups(product.plan, product.release, grouping)[0]
    assert {level.k for level in sex.levels} == {1}
    assert {level.worst for level in sex.levels} == {sex.labels[int(men > women)]}


def test_no_estimates_no_expectation(tmp_path: Path):
    toy.write_records(tmp_path)
    lazy = {"privacy__on_demand_queries": ["detailed", "sex"], "solve": {"fit_to": "level"}}
    config = toy.configuration(tmp_path, **lazy)
    execute(config)
    product = load_run(config).last
    assert expected_groups(product.plan, product.release, product.grouping) == ()
    assert "For whom errors are larger" not in product.release.report.read_text()
