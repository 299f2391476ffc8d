"""Exact answers are those of the truth, of every geounit, at the geolevels where they hold."""

from __future__ import annotations

import numpy as np

from invariants.constraints import Constraints
from invariants.linear import LinearRow
from jobs.pipeline.confidential.exact import publish_invariants
from jobs.pipeline.storage.answers import read_answers
from jobs.pipeline.storage.dataset import Dataset, is_published
from jobs.pipeline.tasks.batches import Sizing, TaskSize
from jobs.pipeline.tasks.executor import LocalTasks
from tests.builders import two_families as two

WEIGHTED = LinearRow("weighted", np.array([1, -2, 0, 5]), ("state", "county"), None, None)
BOUNDED = LinearRow("bounded", np.array([1, 0, 0, 0]), two.SPINE.levels, 0, 9)
PLAN = two.plan(
    invariants=(two.exact("age", "county"), two.exact("total", "block")),
    limits=Constraints((WEIGHTED, BOUNDED)),
)


def publish(folder, tasks=two.TASKS):
    release, confidential = two.release(folder), two.confidential(folder)
    for level in range(3):
        publish_invariants(PLAN, level, release=release, confidential=confidential, tasks=tasks)
    return release


def read(release, geolevel):
    codes = np.array(sorted(two.at(geolevel)), object)
    dataset = Dataset.open(release.invariants(geolevel))
    queries = PLAN.level(geolevel).published
    assert dataset.facts["queries"] == [query.name for query in queries]
    answers = read_answers(dataset, queries, codes)
    return dict(zip((query.name for query in queries), answers, strict=True))


def test_every_geolevel_has_the_answers_that_hold_there(tmp_path):
    release = publish(tmp_path)
    for geolevel, names in (
        ("state", ["total", "age", "weighted"]),
        ("county", ["total", "age", "weighted"]),
        ("block", ["total"]),
    ):
        counts = np.array(list(two.at(geolevel).values()))
        answers = read(release, geolevel)
        assert list(answers) == names
        assert answers["total"].ravel().tolist() == counts.sum(1).tolist()
        if geolevel != "block":
            expected = np.column_stack([counts[:, [0, 2]].sum(1), counts[:, [1, 3]].sum(1)])
            assert answers["age"].tolist() == expected.tolist()
            assert answers["weighted"].ravel().tolist() == (counts @ WEIGHTED.coefficients).tolist()


def test_tasks_of_one_family_each_publish_the_same(tmp_path):
    many = LocalTasks(Sizing(batches_per_slot=9, invariants_geounits=TaskSize(1, 1)))
    whole, cut = publish(tmp_path / "whole"), publish(tmp_path / "cut", many)
    assert len(Dataset.open(cut.invariants("block")).parts) == 2
    assert read(cut, "block")["total"].tolist() == read(whole, "block")["total"].tolist()


def test_without_invariants_nothing_is_published(tmp_path):
    release, confidential = two.release(tmp_path), two.confidential(tmp_path)
    plan = two.plan(limits=Constraints((BOUNDED,)))
    publish_invariants(plan, 2, release=release, confidential=confidential, tasks=two.TASKS)
    assert not is_published(release.invariants("block"))


def test_published_answers_stay(tmp_path):
    release = publish(tmp_path)
    before = (release.invariants("block") / "_manifest.json").read_bytes()
    confidential = two.confidential(tmp_path / "other", {**two.BLOCKS, "111": (9, 9, 9, 9)})
    publish_invariants(PLAN, 2, release=release, confidential=confidential, tasks=two.TASKS)
    assert (release.invariants("block") / "_manifest.json").read_bytes() == before
