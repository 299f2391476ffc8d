"""Choices of the solve stage on the toy state, all from the same noisy answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from das.mechanisms.gaussian import Gaussian
from das.mechanisms.laplace import Laplace
from das.queries.query import parse_query
from das.tree.prior import learn_prior, merge, tally
from jobs.pipeline.config.load import load_run
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.level import LevelReader
from jobs.pipeline.release.solve import node_settings
from jobs.pipeline.release.verify import verify_release
from jobs.pipeline.storage.columns import with_lists
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.geography import read_geography
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.tasks.batches import Sizing, TaskSize, all_geounits
from jobs.pipeline.tasks.executor import LocalTasks
from solvers.choices import LeastSquaresSolver
from solvers.least_squares.passes import solve_in_passes
from solvers.least_squares.solve import solve_quadratic
from solvers.node import NodeSolution, solve_node
from solvers.objectives.in_node import fit_largest_in_node, in_sequence, reweight
from solvers.problem import NodeProblem
from tests.builders import in_process, toy
from tests.builders.places import release_of
from tests.release_checks import sparse, totals_are_exact, tree_is_consistent
from tests.unit.solvers.least_squares.quadratic import optimality_gap

TOTAL_FIRST = {"county": [["total"]]}
CHOICES: dict[str, dict[str, Any]] = {
    "full": {},
    "own": {"fit_to": "level"},
    "prior": {"empirical_bayes": ["block"]},
    "order": {"l2_passes": TOTAL_FIRST},
    "rounded": {"l2_passes": TOTAL_FIRST, "round_l2_passes": True},
    "sequential": {"method": "sequential"},
    "reweighted": {"method": "reweighted"},
    "maxfit": {"method": "maxfit", "fit_to": "level"},
    "piqp": {"least_squares": "piqp"},
}
Node = tuple[NodeProblem, NodeSolution]


@dataclass(frozen=True, eq=False)
class Released:
    """A run of one choice.

    Attributes:
      plan: Its plan.
      out: Its folder.
      nodes: What was solved, by geolevel of the children and geocode of the parent.
    """

    plan: Plan
    out: Path
    nodes: dict[str, dict[str, Node]]

    @property
    def release(self) -> ReleaseLayout:
        return release_of(self.out)

    def counts(self, level: str) -> dict[str, dict[int, int]]:
        return sparse(self.release.counts(level))

    def total(self, level: str, code: str) -> int:
        return sum(self.counts(level).get(code, {}).values())


def configure(folder: Path, name: str, **changes: Any) -> Path:
    fixed = {"privacy__rho": "1/10", "output__directory": str(folder / name)}
    return toy.configuration(folder, solve=CHOICES[name], **{**fixed, **changes})


@pytest.fixture(scope="module", autouse=True)
def few_are_enough() -> Iterator[None]:
    """A prior is learned from the few blocks of the toy state, by the driver."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("das.tree.prior._LEAST_OBSERVATIONS", 1)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("choices")
    toy.write_records(folder)
    return folder


@pytest.fixture(scope="module")
def released(folder: Path) -> dict[str, Released]:
    """Every choice, in this process."""
    found = {}
    for name in CHOICES:
        nodes: dict[str, dict[str, Node]] = {level: {} for level in toy.LEVELS}
        below = dict(zip((0, 2, 5, 7), toy.LEVELS, strict=True))

        def solve(problem, settings, nodes=nodes, below=below):
            solution = solve_node(problem, settings)
            code = problem.geocode
            nodes[below[0 if code == "root" else len(code)]][code] = problem, solution
            return solution

        config = configure(folder, name)
        with pytest.MonkeyPatch.context() as patch:
            in_process.patch_spark(patch)
            patch.setattr("jobs.pipeline.release.solve.solve_node", solve)
            patch.setattr("jobs.pipeline.release.solve.questions_of", lambda plan, level: None)
            out = in_process.execute(config)
        found[name] = Released(load_run(config).plan, out, nodes)
    return found


@pytest.mark.parametrize("name", CHOICES)
def test_every_choice_keeps_every_promise(released, name):
    one = released[name]
    assert tree_is_consistent(one.out, toy.LEVELS)
    assert totals_are_exact(one.out, "state")
    checked = verify_release(one.plan, one.release)
    assert (checked["families"], checked["exact_answers"]) == (1 + 3 + 6, 1)
    assert {level for level, nodes in one.nodes.items() if nodes} == set(toy.LEVELS)
    for problem, solution in (node for nodes in one.nodes.values() for node in nodes.values()):
        assert solution.estimate.certificate.residual <= 1e-7, problem.geocode


@pytest.mark.parametrize("name", [name for name in CHOICES if name not in ("full", "piqp")])
def test_every_choice_changes_the_counts(released, name):
    leaves = released[name].counts("block"), released["full"].counts("block")
    assert leaves[0] != leaves[1]


def test_the_measurements_are_the_same(released):
    for level in toy.LEVELS:
        files = {
            tuple(sorted(p.read_bytes() for p in one.release.measurements(level).glob("part-*")))
            for one in released.values()
        }
        assert len(files) == 1


# --- targets -------------------------------------------------------------------------------------


def measured_children(one: Released, level: str) -> tuple[list[str], list[str]]:
    """Geocodes and parents of all that are no only children."""
    table = read_geography(one.release, level)
    rows = [row for row in table.to_pylist() if not row["only_child"]]
    return [row["geocode"] for row in rows], [row["parent"] or "root" for row in rows]


def live_cells(one: Released, level: str, parent: str) -> np.ndarray:
    if parent == "root":
        return np.arange(6)
    above = one.counts(toy.LEVELS[toy.LEVELS.index(level) - 1])
    return np.array(sorted(above[parent]))


def families_without_persons(one: Released, level: str) -> set[str]:
    if level == "state":
        return set()
    above = toy.LEVELS[toy.LEVELS.index(level) - 1]
    return set(measured_children(one, level)[1]) - set(one.counts(above))


def same_terms(
    one: Released, level: str, queries: list, answers: list[np.ndarray], weights: list[np.ndarray]
) -> None:
    """Every node of a geolevel holds these answers and weights, on its live cells."""
    parents = np.array(measured_children(one, level)[1])
    assert set(one.nodes[level]) == set(parents) - families_without_persons(one, level)
    for parent, (problem, _) in one.nodes[level].items():
        rows, cells = parents == parent, live_cells(one, level, parent)
        assert len(problem.terms) == len(queries)
        for term, query, every, weight in zip(
            problem.terms, queries, answers, weights, strict=True
        ):
            of_cell = query.rows_of(np.arange(6))[cells]
            np.testing.assert_array_equal(term.answers[:, term.groups], every[rows][:, of_cell])
            np.testing.assert_allclose(term.weights, weight[rows], rtol=1e-9)


def test_full_targets_are_those_of_the_subtree_above_the_leaves(released):
    one = released["full"]
    for position, level in enumerate(toy.LEVELS[:-1]):
        reader = LevelReader(one.plan, one.release, position)
        targets = reader.targets(reader.rows(all_geounits(position)))
        same_terms(
            one, level, list(targets.queries), list(targets.answers), list(targets.weights.T)
        )


@pytest.mark.parametrize(("name", "levels"), [("own", toy.LEVELS), ("full", ["block"])])
def test_own_targets_are_the_noisy_answers(released, name, levels):
    one = released[name]
    for level in levels:
        queries = [q.query for q in one.plan.strategy.levels[toy.LEVELS.index(level)].queries]
        codes, _ = measured_children(one, level)
        answers, weights = [], []
        for query in queries:
            found = {r["geocode"]: r for r in measurements(one, level) if r["query"] == query.name}
            answers.append(np.array([found[code]["answers"] for code in codes], float))
            weights.append(np.array([1 / found[code]["variance"] for code in codes]))
        same_terms(one, level, queries, answers, weights)


def measurements(one: Released, level: str) -> list[dict[str, Any]]:
    dataset = one.release.measurements(level)
    tables = [pq.read_table(p, partitioning=None) for p in dataset.glob("part-*")]
    return with_lists(pa.concat_tables(tables)).to_pylist()


def test_full_targets_move_every_geolevel_above_the_leaves(released):
    full, own = released["full"], released["own"]
    for level in ("state", "county", "tract"):
        assert full.counts(level) != own.counts(level), level


# --- order ---------------------------------------------------------------------------------------


def nearest_totals(answers: np.ndarray, weights: np.ndarray, total: float) -> np.ndarray:
    """The t >= 0 with this sum and the least sum of weights * (t - answers)^2."""
    inside = np.ones(len(answers), bool)
    while True:
        t = np.zeros(len(answers))
        missing = total - answers[inside].sum()
        shares = 1 / weights[inside]
        t[inside] = answers[inside] + missing * shares / shares.sum()
        if t.min() >= 0:
            return t
        inside &= t > 0


def rounded(values: np.ndarray) -> np.ndarray:
    """The nearest integers of the same sum."""
    whole = np.floor(values + 1e-6)
    first = np.argsort(whole - values)[: round(values.sum() - whole.sum())]
    whole[first] += 1
    return whole


@pytest.mark.parametrize("name", ["order", "sequential"])
def test_totals_that_come_first_are_those_solved_alone(released, name):
    one = released[name]
    problem, solution = one.nodes["county"]["99"]
    total = next(t for t in problem.terms if t.answers.shape[1] == 1)
    alone = nearest_totals(total.answers[:, 0], total.weights, float(problem.parent.sum()))
    np.testing.assert_allclose(solution.estimate.values.sum(1), alone, atol=1e-4)
    codes = ["99001", "99003", "99005"]
    assert [one.total("county", code) for code in codes] == rounded(alone).tolist()
    together = released["full"].nodes["county"]["99"][1].estimate.values.sum(1)
    assert np.abs(together - alone).max() > 0.01


def test_rounded_totals_are_kept_by_the_real_counts_after_them(released):
    one = released["rounded"]
    problem, solution = one.nodes["county"]["99"]
    total = next(t for t in problem.terms if t.answers.shape[1] == 1)
    alone = nearest_totals(total.answers[:, 0], total.weights, float(problem.parent.sum()))
    np.testing.assert_allclose(solution.estimate.values.sum(1), rounded(alone), atol=1e-5)
    codes = ["99001", "99003", "99005"]
    assert [one.total("county", code) for code in codes] == rounded(alone).tolist()
    assert np.abs(alone - rounded(alone)).max() > 0.01


def test_order_holds_at_the_geolevels_it_names(released):
    one = released["order"]
    for level in toy.LEVELS:
        for problem, _ in one.nodes[level].values():
            names = len(problem.terms)
            assert problem.order == (((0,), tuple(range(1, names))) if level == "county" else ())


# --- methods and solvers -------------------------------------------------------------------------


def test_reweighted_solves_the_reweighted_node(released):
    for level in toy.LEVELS:
        for problem, solution in released["reweighted"].nodes[level].values():
            other = reweight(problem, Gaussian)
            assert optimality_gap(other, solution.estimate.values) < 1e-6


def test_sequential_solves_query_after_query(released):
    for level in toy.LEVELS:
        for problem, solution in released["sequential"].nodes[level].values():
            again = solve_in_passes(in_sequence(problem), 1e-9, solve_quadratic)
            np.testing.assert_allclose(solution.estimate.values, again.values, atol=1e-4)


def test_maxfit_has_the_least_largest_deviation(released):
    for level in toy.LEVELS:
        for problem, solution in released["maxfit"].nodes[level].values():
            wanted = fit_largest_in_node(problem)
            np.testing.assert_allclose(solution.estimate.values, wanted, atol=1e-4)


def test_another_solver_gives_the_same_counts(released):
    piqp, structured = released["piqp"], released["full"]
    for level in toy.LEVELS:
        for code, (problem, solution) in structured.nodes[level].items():
            other, its = piqp.nodes[level][code]
            np.testing.assert_array_equal(problem.parent, other.parent)
            np.testing.assert_allclose(its.estimate.values, solution.estimate.values, atol=1e-4)
        assert piqp.counts(level) == structured.counts(level)
    assert node_settings(piqp.plan).least_squares is LeastSquaresSolver.PIQP


# --- learned prior -------------------------------------------------------------------------------


def test_learned_priors_draw_answers_to_posterior_means(released):
    """The parents are those of the plain run, so its estimates say how many are expected."""
    plain, one = released["full"], released["prior"]
    for level in ("state", "county", "tract"):
        assert one.counts(level) == plain.counts(level)
    reader = LevelReader(one.plan, one.release, 3)
    estimates = reader.partitions(reader.rows(all_geounits(3)))
    assert [*estimates] == ["total", "sex", "detailed"]
    parents = np.array(measured_children(one, "block")[1])
    for number, (name, estimated) in enumerate(estimates.items()):
        query = parse_query(one.plan.schema, name)
        noisy, variances = estimated.values, estimated.variances
        seen = {}
        for parent, (problem, solution) in plain.nodes["block"].items():
            totals = solution.estimate.values.sum(1) + 0.3
            shares = np.ones(len(totals)) if name == "total" else totals
            live = live_cells(plain, "block", parent)
            answers = np.unique(query.rows_of(live))
            whole = np.bincount(query.rows_of(live), problem.parent, query.size)[answers]
            expected = np.outer(shares / shares.sum(), whole)
            own = noisy[parents == parent][:, answers]
            seen[parent] = own, expected
        assert len(set(variances.round(6))) == 1
        variance = float(f"{variances[0]:.3g}")
        prior = learn_prior(merge(tally(*pair, variance) for pair in seen.values()), variance)
        assert set(one.nodes["block"]) == set(seen)
        for parent, (problem, _) in one.nodes["block"].items():
            term, plain_term = problem.terms[number], plain.nodes["block"][parent][0].terms[number]
            np.testing.assert_allclose(term.answers, prior.posterior_mean(*seen[parent]), atol=1e-6)
            np.testing.assert_array_equal(term.weights, plain_term.weights)
            assert term.answers.min() >= 0
    assert min(own.min() for own, _ in seen.values()) < 0


@pytest.mark.parametrize(("definition", "law"), [("zcdp", Gaussian), ("pure", Laplace)])
def test_reweighting_knows_the_law_of_the_noise(folder, definition, law):
    privacy = {
        "definition": definition,
        "epsilon": "1",
        "allocation": str(toy.ROOT / "conf" / "allocation" / "toy.yaml"),
    }
    plan = load_run(toy.configuration(folder, privacy=privacy)).plan
    assert node_settings(plan).noise is law


def test_tasks_are_cut_by_what_they_are_expected_to_solve(released, folder):
    """Where next to nothing is allowed, a family each; the counts know nothing of it."""
    whole = released["full"]
    out = folder / "cut"
    changes = {"output__directory": str(out), "runtime__batches_per_slot": 1}
    sizing = replace(Sizing(1), solve_variables=TaskSize(1, 1))
    config = configure(folder, "full", **changes)
    in_process.execute(config, LocalTasks(sizing, slots=2))
    for level in toy.LEVELS:
        counts = Dataset.open(release_of(out).counts(level))
        assert sparse(release_of(out).counts(level)) == whole.counts(level)
        assert counts.facts["statistics"]["live"] == sum(map(len, whole.counts(level).values()))
    assert len(counts.parts) == 6  # tracts, not the 2 that one a slot would be
