"""Covariances between answers of a plan equal those of one dense least-squares problem."""

from __future__ import annotations

import json

import numpy as np
import pytest

from das.errors import ConfigError, DasError
from das.queries.query import parse_query
from geography.lattice import Lattice
from jobs.design.planning.covariances import predict_covariances
from jobs.pipeline.documents.covariance import MOST_PAIRS, parse_pair
from tests.builders.strategies import dense_matrix
from tests.unit.das.tree.dense import null_space
from tests.unit.jobs.design.planning.test_allocation import (  # noqa: F401 - fixtures
    LEAVES,
    LEVELS,
    invoke,
    plan,
    run_file,
    tree,
)


def members(lattice: Lattice) -> list[np.ndarray]:
    """Per geolevel, float64[geounits, leaves]: which leaves lie in each."""
    out = [np.eye(len(LEAVES))]
    for parents in lattice.parents[:0:-1]:
        above = np.zeros((parents.max() + 1, len(LEAVES)))
        np.add.at(above, parents, out[0])
        out.insert(0, above)
    return out


def dense(plan, *, root_alone: bool = False) -> np.ndarray:  # noqa: F811
    """Covariance of the cells of all leaves; or of those of the root from its own answers."""
    lattice = Lattice.from_leaves(plan.spine, LEAVES)
    rows, weights, known = [], [], []
    for level, inside in enumerate(members(lattice)[: 1 if root_alone else None]):
        for spot, leaves in enumerate(inside):
            held = np.ones((1, 1)) if root_alone else leaves[None]
            known += [np.kron(held, dense_matrix(query)) for query in plan.levels[level].exact]
            if lattice.is_only_child[level][spot]:
                continue
            for noisy in plan.noise(level, int(lattice.chain_end[level][spot])):
                rows.append(np.kron(held, dense_matrix(noisy.query)))
                weights += [1 / float(noisy.mechanism.variance())] * noisy.query.size
    matrix, w, exact = np.concatenate(rows), np.array(weights), np.concatenate(known)
    free = null_space(exact, matrix.shape[1])
    return free @ np.linalg.inv(free.T @ (matrix.T * w) @ matrix @ free) @ free.T


@pytest.mark.parametrize("text", ["sex * adult; total", "prefix(age); sex", "sex * age"])
def test_covariances_are_those_of_the_dense_problem(plan, tree, text):  # noqa: F811
    pair = parse_pair(plan.schema, text)
    found = predict_covariances(plan, tree, pair)
    whole = dense(plan)
    first, second = (dense_matrix(query) for query in pair)
    lattice = Lattice.from_leaves(plan.spine, LEAVES)
    for level, name in enumerate(LEVELS):
        inside = members(lattice)[level]
        expected = sum(
            np.kron(held[None], first) @ whole @ np.kron(held[None], second).T for held in inside
        ) / len(inside)
        here = [row for row in found if row.geolevel == name]
        for row in here:
            i, j = pair[0].labels().index(row.answer), pair[1].labels().index(row.other_answer)
            assert row.full.covariance == pytest.approx(expected[i, j], abs=1e-8)
            if row.answer == row.other_answer and len(text.split(";")) == 1:
                assert row.full.correlation == pytest.approx(1.0)
            assert row.full.correlation is None or abs(row.full.correlation) <= 1 + 1e-9
        m, n = len(first), len(second)
        assert len(here) == (m * (m + 1) // 2 if ";" not in text else m * n)


def test_own_covariances_of_the_root_use_its_answers_alone(plan, tree):  # noqa: F811
    pair = parse_pair(plan.schema, "sex; age")
    found = {
        (row.answer, row.other_answer): row.own.covariance
        for row in predict_covariances(plan, tree, pair)
        if row.geolevel == "nation"
    }
    own = dense(plan, root_alone=True)
    sex, age = (dense_matrix(query) for query in pair)
    expected = sex @ own @ age.T
    for i, answer in enumerate(pair[0].labels()):
        for j, other in enumerate(pair[1].labels()):
            assert found[answer, other] == pytest.approx(expected[i, j], abs=1e-9)


def test_what_is_exact_has_no_correlation(plan, tree):  # noqa: F811
    rows = predict_covariances(plan, tree, parse_pair(plan.schema, "total; sex"))
    for row in rows:
        is_exact = row.geolevel == "nation"
        assert (row.full.correlation is None) == is_exact
        assert (row.full.covariance == 0) == is_exact


def test_by_command_as_table_json_and_page(run_file, tmp_path):  # noqa: F811
    words = ("--covariance", "sex; total", "--report", str(tmp_path / "plan.html"))
    result = invoke(run_file, *words)
    assert result.exit_code == 0, result.output
    assert "Predicted covariances" in result.output
    rows = json.loads(invoke(run_file, "--json", "--covariance", "sex; total").stdout)
    assert [row["answer"] for row in rows["covariances"]] == ["f", "m"] * len(LEVELS)
    assert "Predicted covariances" in (tmp_path / "plan.html").read_text()
    assert "covariances" not in json.loads(invoke(run_file, "--json").stdout)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("sex; age; total", "takes one query or two; got 3"),
        ("sex; sox", "no such attribute"),
        ("", "no such attribute"),
    ],
)
def test_pairs_that_cannot_be_read(plan, text, match):  # noqa: F811
    with pytest.raises(DasError, match=match):
        parse_pair(plan.schema, text)


def test_too_many_pairs_are_refused(plan, monkeypatch):  # noqa: F811
    assert parse_query(plan.schema, "detailed").size ** 2 <= MOST_PAIRS
    monkeypatch.setattr("jobs.pipeline.documents.covariance.MOST_PAIRS", 35)
    with pytest.raises(ConfigError, match="too many pairs of answers; got 6 x 6"):
        parse_pair(plan.schema, "detailed")
