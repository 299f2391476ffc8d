"""A geolevel is solved family by family; what needs no solving is copied or stays empty."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from das.definition import Definition
from das.errors import InfeasibleError, OutputError
from das.mechanisms.gaussian import Gaussian
from das.mechanisms.laplace import Laplace
from invariants.constraints import Constraints
from invariants.linear import LinearRow
from jobs.pipeline.documents.statistics import statistics_of
from jobs.pipeline.plan import Solving
from jobs.pipeline.release.implied import publish_implied
from jobs.pipeline.release.solve import batch_sizes, node_settings, solve_level
from jobs.pipeline.storage.dataset import Dataset, is_published
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.tasks.batches import Sizing, TaskSize
from jobs.pipeline.tasks.executor import LocalTasks
from tests.builders import two_families as two

# Families of every kind: 11 and 12 are solved, 13 is copied to its only child, 14 is empty.
BLOCKS = {
    **two.BLOCKS,
    "131": (1, 1, 0, 0),
    "141": (0, 0, 0, 0),
    "142": (0, 0, 0, 0),
}


def measured(folder, plan, blocks=BLOCKS):
    release = two.release(folder, blocks)
    for geolevel in two.SPINE.levels:
        two.write_noisy(release, plan, geolevel, blocks)
    return release


def solve(plan, release, tasks=two.TASKS):
    for level in range(3):
        solve_level(plan.levels[level], plan=plan, release=release, tasks=tasks)


def counts(release, geolevel, blocks=BLOCKS):
    codes = sorted(two.at(geolevel, blocks))
    return read_counts(release, geolevel, codes, 4).dense().tolist()


def test_without_noise_the_counts_are_the_truth(tmp_path):
    plan = two.plan()
    release = measured(tmp_path, plan)
    solve(plan, release)
    for geolevel in two.SPINE.levels:
        assert counts(release, geolevel) == [c.tolist() for c in two.at(geolevel, BLOCKS).values()]


def test_statistics_tell_families_that_were_solved_from_others(tmp_path):
    plan = two.plan()
    release = measured(tmp_path, plan)
    solve(plan, release)
    blocks = statistics_of(Dataset.open(release.counts("block")))
    assert (blocks.nodes, blocks.copied, blocks.trivial) == (2, 1, 1)
    assert blocks.live == sum(np.count_nonzero(c) for c in BLOCKS.values())
    assert blocks.variables == 2 * 3 + 2 * 3  # two children, three live cells each
    assert {node.geocode for node in blocks.worst_nodes} == {"11", "12"}
    assert blocks.moved == ()
    root = statistics_of(Dataset.open(release.counts("state")))
    assert (root.nodes, root.worst_nodes[0].geocode) == (1, "root")


def test_facts_say_by_which_settings(tmp_path):
    plan = two.plan()
    release = measured(tmp_path, plan)
    solve(plan, release)
    facts = Dataset.open(release.counts("county")).facts
    assert (facts["geolevel"], facts["configuration_digest"]) == ("county", "digest")
    assert (facts["solve_digest"], facts["not_for_release"]) == ("solve digest", True)


def test_a_published_geolevel_stays(tmp_path):
    plan = two.plan()
    release = measured(tmp_path, plan)
    solve(plan, release)
    before = (release.counts("block") / "_manifest.json").read_bytes()
    solve(replace(plan, solve_digest="others"), release)
    assert (release.counts("block") / "_manifest.json").read_bytes() == before


def test_counts_do_not_depend_on_the_tasks(tmp_path):
    """Noise of three persons in a query; one task, or one for each family."""
    plan = two.plan()
    small = Sizing(batches_per_slot=9, solve_variables=TaskSize(1, 1))
    found = []
    for index, tasks in enumerate((two.TASKS, LocalTasks(small))):
        release = two.release(tmp_path / str(index), BLOCKS)
        for geolevel in two.SPINE.levels:
            two.write_noisy(release, plan, geolevel, BLOCKS, {"detailed": 3})
        solve(plan, release, tasks)
        parts = Dataset.open(release.counts("block")).parts
        found.append((len(parts), [counts(release, level) for level in two.SPINE.levels]))
    (one, whole), (several, cut) = found
    assert (one, several) == (1, 4)
    assert cut == whole
    assert np.sum(cut[2], 0).tolist() == cut[0][0]


def test_measurements_that_are_not_there(tmp_path):
    plan, release = two.plan(), two.release(tmp_path)
    with pytest.raises(OutputError, match="level=state: is not complete"):
        solve_level(plan.levels[0], plan=plan, release=release, tasks=two.TASKS)


# Every block has a minor; county 12 was solved as if it had none.
MINORS = LinearRow("minors", np.array([1, 0, 1, 0]), two.SPINE.levels, 1, None)
WITH_MINORS = {"111": (1, 0, 2, 0), "112": (1, 3, 0, 0), "121": (0, 2, 1, 0), "122": (2, 1, 0, 4)}
WITHOUT = {**WITH_MINORS, "121": (0, 3, 0, 0), "122": (0, 3, 0, 4)}


def contradicted(tmp_path, failsafe: str):
    """Blocks are measured without noise; each must have a minor, and totals of counties stay."""
    plan = two.plan(
        solving=Solving(fit_to="level", failsafe=failsafe),
        limits=Constraints((MINORS,)),
        invariants=(two.exact("total", "county"),),
    )
    release = two.release(tmp_path)
    two.write_noisy(release, plan, "block", WITH_MINORS)
    two.write_counts(release, "state", WITHOUT)
    two.write_counts(release, "county", WITHOUT)
    publish_implied(plan, release, two.TASKS)
    return plan, release


@pytest.mark.parametrize("failsafe", ["exact", "penalty"])
def test_a_parent_that_its_children_contradict_is_moved_and_carried_up(tmp_path, failsafe):
    plan, release = contradicted(tmp_path, failsafe=failsafe)
    solve_level(plan.levels[2], plan=plan, release=release, tasks=two.TASKS)
    (move,) = statistics_of(Dataset.open(release.counts("block"))).moved
    assert (move.geocode, sum(move.changes), move.records) == ("12", 0, 2)
    blocks = np.array(counts(release, "block", two.BLOCKS))
    assert blocks[:2].tolist() == [list(WITH_MINORS[code]) for code in ("111", "112")]
    assert (blocks[2:, [0, 2]].sum(1)).tolist() == [1, 1]
    county = counts(release, "county", two.BLOCKS)
    assert county == [blocks[:2].sum(0).tolist(), blocks[2:].sum(0).tolist()]
    assert counts(release, "state", two.BLOCKS) == [blocks.sum(0).tolist()]
    assert sum(county[1]) == sum(two.at("county", WITHOUT)["12"])


def test_without_the_failsafe_a_contradiction_ends_the_stage(tmp_path):
    plan, release = contradicted(tmp_path, failsafe="none")
    with pytest.raises(InfeasibleError, match="node 12"):
        solve_level(plan.levels[2], plan=plan, release=release, tasks=two.TASKS)
    assert not is_published(release.counts("block"))


def test_an_empty_parent_whose_children_need_persons_is_moved(tmp_path):
    row = LinearRow("men", np.array([0, 0, 1, 1]), two.SPINE.levels, 1, None)
    plan = two.plan(limits=Constraints((row,)))
    blocks = {**dict.fromkeys(two.BLOCKS, (0, 0, 1, 0)), "121": (0,) * 4, "122": (0,) * 4}
    release = two.release(tmp_path)
    two.write_noisy(release, plan, "block", blocks)
    two.write_counts(release, "county", blocks)
    two.write_counts(release, "state", blocks)
    publish_implied(plan, release, two.TASKS)
    solve_level(plan.levels[2], plan=plan, release=release, tasks=two.TASKS)
    solved = np.array(counts(release, "block", two.BLOCKS))
    assert (solved[:, 2:].sum(1) >= 1).all()
    statistics = statistics_of(Dataset.open(release.counts("block")))
    assert (statistics.trivial, [move.geocode for move in statistics.moved]) == (0, ["12"])


def test_batches_shrink_with_the_live_cells_of_parents(tmp_path):
    plan = two.plan()
    release = two.release(tmp_path)
    two.write_counts(release, "county")  # two counties of three live cells
    sizing = Sizing(1, solve_numbers=TaskSize(1, 50), solve_variables=TaskSize(6, 24))
    assert batch_sizes(plan, release, plan.levels[2], sizing) == (24 // 3, 6 // 3)
    roomy = replace(sizing, solve_variables=TaskSize(6, 3_000))
    assert batch_sizes(plan, release, plan.levels[2], roomy) == (50 // 5, 2)
    assert batch_sizes(plan, release, plan.levels[0], sizing) == (50 // 5, 1)


@pytest.mark.parametrize("definition", list(Definition))
def test_nodes_know_the_mechanism_of_their_budget(definition):
    plan = two.plan(budget=replace(two.plan().budget, definition=definition))
    expected = Laplace if definition is Definition.PURE else Gaussian
    assert node_settings(plan).noise is expected
