"""The support of a root: found from coarse queries to fine ones, and kept by what is drawn below."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from das.errors import OutputError, VerificationError
from invariants.constraints import Constraints
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.level import LevelReader, read_support
from jobs.pipeline.release.pieces import read_pieces
from jobs.pipeline.release.solve import solve_level, solve_support
from jobs.pipeline.release.verify import _verify_support
from jobs.pipeline.storage.answers import LAZY_MEASUREMENTS, DrawnAnswers, measurement_table
from jobs.pipeline.storage.histograms import SPARSE_SCHEMA, read_counts, sparse_table
from jobs.pipeline.storage.layout import ReleaseLayout
from tests.builders import two_families as two

MEN = {"111": (0, 0, 2, 0), "112": (0, 0, 3, 0), "121": (0, 0, 0, 0), "122": (0, 0, 1, 4)}


def supported(**changes: object) -> Plan:
    """Sex is found first, and detailed is drawn below."""
    plan = two.plan(("total", "sex", "detailed"), on_demand=frozenset({"detailed"}), **changes)
    return two.replace(plan, support=(two.query("total"), two.query("sex")))


def measured(
    folder: Path, plan: Plan, blocks: two.Counts, noise: Mapping[str, int] | None = None
) -> ReleaseLayout:
    release = two.release(folder, blocks)
    two.write_noisy(release, plan, "state", blocks, noise)
    return release


def draw(release: ReleaseLayout, plan: Plan, blocks: two.Counts) -> None:
    """Draw detailed where the support says, without noise."""
    cells = read_support(plan, release).cells
    codes, truth = two.histograms("state", blocks)
    answers = two.query("detailed").answer(truth)[0, cells]
    drawn = DrawnAnswers(np.array([0, len(cells)]), cells, answers)
    mechanisms = [plan.noise(0, 0)[2].mechanism]
    table = measurement_table(codes, "detailed", mechanisms, drawn, LAZY_MEASUREMENTS)
    two.write(release.lazy_measurements("state"), [table], LAZY_MEASUREMENTS, {"queries": []})


def test_the_root_has_lazy_queries_only_with_a_support():
    plan = supported()
    assert [query.name for query in plan.levels[0].on_demand] == ["detailed"]
    assert [query.name for query in plan.levels[0].whole] == ["total", "sex"]
    assert two.replace(plan, support=()).levels[0].on_demand == ()
    finer = two.replace(plan, on_demand=frozenset({"sex", "detailed"}))
    assert [query.name for query in finer.levels[0].whole] == ["total", "sex"]
    assert [query.name for query in finer.levels[1].whole] == ["total"]


def test_cells_below_positive_counts_are_live_and_no_others(tmp_path):
    plan = supported(limits=Constraints((two.zeros(3),)))
    men = {code: (*counts[:3], 0) for code, counts in MEN.items()}
    release = measured(tmp_path, plan, men)
    solve_support(plan=plan, release=release, tasks=two.TASKS)
    support = read_support(plan, release)
    assert support.cells.tolist() == [2]  # men, but for those who cannot be
    assert support.known is not None
    query, counts = support.known
    assert (query.name, counts.tolist()) == ("sex", [[6]])
    draw(release, plan, men)
    solve_level(plan.levels[0], plan=plan, release=release, tasks=two.TASKS)
    assert read_counts(release, "state", ["1"], 4).dense().tolist() == [[0, 0, 6, 0]]


def test_it_is_found_once_and_asked_for_before_anything_is_drawn(tmp_path):
    plan = supported()
    release = measured(tmp_path, plan, MEN)
    with pytest.raises(OutputError):
        read_support(plan, release)
    solve_support(plan=plan, release=release, tasks=two.TASKS)
    before = (release.support("state") / "_manifest.json").read_bytes()
    solve_support(plan=plan, release=release, tasks=two.TASKS)
    assert (release.support("state") / "_manifest.json").read_bytes() == before
    with pytest.raises(OutputError):  # the on-demand answers
        list(read_pieces(LevelReader(plan, release, 0), two.whole("state")))


def test_an_exact_total_is_kept_whatever_the_noise(tmp_path):
    plan = supported(invariants=(two.exact("total", "state"),))
    release = measured(tmp_path, plan, two.BLOCKS, noise={"sex": 40})
    two.write_exact(release, "state", ["total"])
    solve_support(plan=plan, release=release, tasks=two.TASKS)
    known = read_support(plan, release).known
    assert known is not None
    assert known[1].sum() == sum(map(sum, two.BLOCKS.values()))


def test_a_root_without_anybody_has_no_live_cell(tmp_path):
    plan, nobody = supported(), {code: (0, 0, 0, 0) for code in two.BLOCKS}
    release = measured(tmp_path, plan, nobody, noise={"total": -9, "sex": -9})
    solve_support(plan=plan, release=release, tasks=two.TASKS)
    assert read_support(plan, release).cells.tolist() == []
    draw(release, plan, nobody)
    solve_level(plan.levels[0], plan=plan, release=release, tasks=two.TASKS)
    assert read_counts(release, "state", ["1"], 4).totals().tolist() == [0]
    _verify_support(plan, release, two.whole("state"))


@pytest.mark.parametrize(
    ("cells", "counts", "message"),
    [
        ([1], [13], "has positive counts in cells outside its support"),
        ([0, 1], [4, 9], "does not add up to its support by sex"),
        ([0], [13], "has positive counts in cells outside its support"),
    ],
)
def test_counts_that_another_support_would_give_are_refused(tmp_path, cells, counts, message):
    plan = supported()
    release = two.release(tmp_path)
    two.write_counts(release, "state")
    found = two.Histograms(2, np.array([0, len(cells)]), np.array(cells), np.array(counts))
    facts = {"query": "sex"}
    two.write(release.support("state"), [sparse_table(["1"], found)], SPARSE_SCHEMA, facts)
    with pytest.raises(VerificationError, match=message):
        _verify_support(plan, release, two.whole("state"))


def test_counts_that_add_up_to_it_pass(tmp_path):
    release = two.release(tmp_path)
    two.write_counts(release, "state")
    found = two.Histograms(2, np.array([0, 2]), np.arange(2), np.array([7, 6]))
    table = sparse_table(["1"], found)
    two.write(release.support("state"), [table], SPARSE_SCHEMA, {"query": "sex"})
    _verify_support(supported(), release, two.whole("state"))
