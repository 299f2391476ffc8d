"""Parents that their blocks contradict: moved and reported, or the end of the run.

What the blocks imply for the geolevels above is hidden from the solver, so that tracts get counts
by age that facilities in their blocks cannot take.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import jobs.pipeline.release.solve
from das.errors import InfeasibleError
from jobs.cli.main import main
from jobs.pipeline.config.load import load_run
from jobs.pipeline.documents.manifest import read_manifest
from jobs.pipeline.documents.statistics import HOLDS
from jobs.pipeline.release import problems
from jobs.pipeline.release.verify import verify_release
from jobs.pipeline.storage.dataset import Dataset, is_published
from jobs.pipeline.storage.layout import ReleaseLayout
from solvers.node import solve_node
from tests.builders import in_process, toy
from tests.builders.places import release_of
from tests.pipeline.local.test_facilities import configuration
from tests.release_checks import geography, sparse, totals_are_exact, tree_is_consistent

ABOVE = toy.LEVELS[:-1]


def hide_what_leaves_imply(patch: pytest.MonkeyPatch) -> None:
    in_process.patch_spark(patch)
    of_leaves = problems._leaves_term

    def at_blocks_alone(template, *arguments):
        return of_leaves(template, *arguments) if template.level.name == "block" else None

    patch.setattr(problems, "_leaves_term", at_blocks_alone)


def configure(folder: Path, rho: str = "1/2000", **solve: Any) -> Path:
    """Facilities by age in every block; the empty county is the one of a single block."""
    people = toy.write_records(folder, empty_county="005")
    return configuration(
        folder, people, privacy__rho=rho, solve=solve, runtime={"batches_per_slot": 1}
    )


@dataclass(frozen=True, eq=False)
class Interrupted:
    """A run that died after the counts of blocks were published, and the same run to its end.

    Attributes:
      config: Its run file.
      out: Its folder, complete.
      before: Counts by geolevel and geocode when it died.
    """

    config: Path
    out: Path
    before: dict[str, dict[str, dict[int, int]]]

    @property
    def release(self) -> ReleaseLayout:
        return release_of(self.out)

    @property
    def moved(self) -> list[dict[str, Any]]:
        return Dataset.open(self.release.counts("block")).facts["statistics"]["moved"]

    def counts(self, level: str) -> dict[str, dict[int, int]]:
        return sparse(self.release.counts(level))


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    folder = tmp_path_factory.mktemp("failsafe")
    config = configure(folder)
    release = release_of(folder / "out")
    carry_up = jobs.pipeline.release.solve.carry_up

    def dies(level: int, **rest: Any) -> None:
        if level == 3:
            raise KeyboardInterrupt
        carry_up(level, **rest)

    with pytest.MonkeyPatch.context() as patch:
        hide_what_leaves_imply(patch)
        patch.setattr("jobs.pipeline.release.solve.carry_up", dies)
        with pytest.raises(KeyboardInterrupt):
            in_process.execute(config)
        assert is_published(release.counts("block"))
        before = {level: sparse(release.counts(level)) for level in toy.LEVELS}
        patch.setattr("jobs.pipeline.release.solve.carry_up", carry_up)
        out = in_process.execute(config)
    return Interrupted(config, out, before)


def test_moved_parents_are_listed(mended):
    """Exactly the tracts whose counts changed, by what they changed; their totals did not."""
    assert mended.moved
    tracts = geography(mended.out, "tract")
    after = mended.counts("tract")
    for move in mended.moved:
        assert move["geocode"] in tracts
        assert sum(move["changes"]) == 0
        assert 0 not in move["changes"]
        changed = Counter(mended.before["tract"][move["geocode"]])
        for cell, change in zip(move["cells"], move["changes"], strict=True):
            changed[cell] += change
        assert {cell: n for cell, n in changed.items() if n} == after[move["geocode"]]
    moved = {move["geocode"] for move in mended.moved}
    assert len(moved) == len(mended.moved)
    for code in set(after) - moved:
        assert after[code] == mended.before["tract"][code]


def test_all_geolevels_above_take_the_difference(mended):
    assert tree_is_consistent(mended.out, toy.LEVELS)
    assert mended.counts("block") == mended.before["block"]
    for level in ABOVE:
        assert mended.counts(level) != mended.before[level]
        assert Dataset.open(mended.release.counts(level)).facts[HOLDS] == ["block"]


def test_what_is_exact_stays_exact(mended):
    for level in toy.LEVELS:
        assert totals_are_exact(mended.out, level), level


def test_the_mended_release_is_verified(mended):
    checked = verify_release(load_run(mended.config).plan, mended.release)
    assert checked["limited_geounits"] == len(toy.blocks())


def test_another_run_changes_nothing(mended):
    before = {p: p.read_bytes() for p in mended.release.root.glob("counts/*/*")}
    with pytest.MonkeyPatch.context() as patch:
        in_process.patch_spark(patch)
        in_process.execute(mended.config)
    assert {p: p.read_bytes() for p in mended.release.root.glob("counts/*/*")} == before


def test_an_uninterrupted_run_gives_the_same_counts(mended, tmp_path, monkeypatch):
    hide_what_leaves_imply(monkeypatch)
    out = in_process.execute(configure(tmp_path))
    for level in toy.LEVELS:
        assert sparse(release_of(out).counts(level)) == mended.counts(level)


def test_what_leaves_imply_makes_every_node_feasible(mended, tmp_path, monkeypatch):
    in_process.patch_spark(monkeypatch)
    out = in_process.execute(configure(tmp_path, failsafe="none"))
    assert Dataset.open(release_of(out).counts("block")).facts["statistics"]["moved"] == []


def test_without_the_failsafe_the_run_stops(tmp_path, monkeypatch, capsys):
    hide_what_leaves_imply(monkeypatch)
    config = configure(tmp_path, failsafe="none")
    monkeypatch.setattr(sys, "argv", ["das", "run", str(config), "--quiet"])
    assert main() == InfeasibleError.exit_code == 4
    error = capsys.readouterr().err
    assert "InfeasibleError" in error
    assert "no counts keep its constraints" in error
    release = release_of(tmp_path / "out")
    assert is_published(release.counts("tract"))
    assert not is_published(release.counts("block"))
    assert not release.manifest.exists()


def test_families_beside_a_moved_one_are_solved_once(tmp_path, monkeypatch):
    """All are fitted to posterior means of three queries."""
    hide_what_leaves_imply(monkeypatch)
    attempts: dict[str, list[int]] = defaultdict(list)

    def solve(problem, settings):
        attempts[problem.geocode].append(len(problem.terms))
        return solve_node(problem, settings)

    monkeypatch.setattr("jobs.pipeline.release.solve.solve_node", solve)
    # With as little noise as this, some parents can stay as they are.
    out = in_process.execute(configure(tmp_path, rho="1/20", empirical_bayes=["block"]))
    statistics = Dataset.open(release_of(out).counts("block")).facts["statistics"]
    moved = {move["geocode"] for move in statistics["moved"]}
    families = {code: terms for code, terms in attempts.items() if len(code) == len("9900301")}
    assert moved < set(families)
    for code, terms in families.items():
        assert terms == ([3, 3] if code in moved else [3])
    assert tree_is_consistent(out, toy.LEVELS)


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_either_sign_are_kept_where_hardly_anybody_is(tmp_path, monkeypatch, seed):
    """Parents that came out empty, or too small for the differences of their children, move."""
    in_process.patch_spark(monkeypatch)
    toy.write_records(tmp_path)
    header, *people = (tmp_path / "records.csv").read_text().splitlines()
    (tmp_path / "records.csv").write_text("\n".join([header, *people[::12]]) + "\n")
    sexes = [{"cells": {"sex": ["male"]}}, {"cells": {"sex": ["female"]}, "coefficient": -1}]
    config = toy.configuration(
        tmp_path,
        invariants=[{"name": "men less women", "row": sexes, "geolevel": "block"}],
        privacy__rho="1/2000",
        privacy__randomness={"source": "seeded_not_for_release", "seed": seed},
    )
    out = in_process.execute(config)
    assert tree_is_consistent(out, toy.LEVELS)
    assert verify_release(load_run(config).plan, release_of(out))["exact_answers"] == 31


def test_a_penalty_moves_parents_too(mended, tmp_path, monkeypatch):
    """As many parents, since the same ones are contradicted above all, and what is exact stays."""
    hide_what_leaves_imply(monkeypatch)
    config = configure(tmp_path, failsafe="penalty")
    out = in_process.execute(config)
    release = release_of(out)
    manifest = read_manifest(release)
    assert manifest.solution.settings["solve"]["failsafe"] == "penalty"
    moves = {move.geocode: move for level in manifest.solve for move in level.moved}
    exact = {move["geocode"]: move for move in mended.moved}
    assert moves.keys() == exact.keys()
    assert all(sum(move.changes) == 0 for move in moves.values())
    assert {move.by for move in moves.values()} == {"penalty"}
    for code, move in moves.items():  # no parent is nearer than the nearest
        assert move.records >= sum(max(change, 0) for change in exact[code]["changes"])
    assert tree_is_consistent(out, toy.LEVELS)
    assert all(totals_are_exact(out, level) for level in toy.LEVELS)
    checked = verify_release(load_run(config).plan, release)
    assert checked["limited_geounits"] == len(toy.blocks())
    assert "a penalty on what the parent moves" in release.report.read_text()
