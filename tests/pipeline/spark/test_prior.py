"""A prior that tasks learn, and tasks use, is the same on workers as in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.pipeline.tasks.executor import SparkTasks
from tests.builders import in_process, toy
from tests.builders.places import release_of
from tests.release_checks import sparse

pytestmark = pytest.mark.spark


def test_a_learned_prior_is_the_same_in_spark_tasks(
    spark_tasks: SparkTasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("das.tree.prior._LEAST_OBSERVATIONS", 1)  # the driver learns it
    toy.write_records(tmp_path)
    found = []
    for name, tasks in (("here", None), ("workers", spark_tasks)):
        config = toy.configuration(
            tmp_path,
            privacy__rho="1/10",
            solve={"empirical_bayes": ["block"]},
            output__directory=str(tmp_path / name),
        )
        release = release_of(in_process.execute(config, tasks))
        found.append({level: sparse(release.counts(level)) for level in toy.LEVELS})
    assert found[0] == found[1]
