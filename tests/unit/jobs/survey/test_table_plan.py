"""What tables with exact marginals are proved to cost, against all tables and all moves listed."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from jobs.survey.models import TableConfig
from jobs.survey.plan import Conditioning, TablePlan, compared_records, margin_of


def plan_of(shape, exact, cost):
    config = TableConfig(query=" * ".join("abc"[: len(shape)]), share="1")
    return TablePlan(config, shape, exact, cost)


def compared(plan, records):
    """(L1 distances, log ratios of the exact laws) of all pairs of tables with the same sums."""
    n = int(np.prod(plan.shape))
    tables = [t for t in itertools.product(range(records + 1), repeat=n) if sum(t) == records]
    kept = {t: tuple((plan.rows @ np.array(t)).tolist()) for t in tables}
    for sums in set(kept.values()):
        same = np.array([t for t in tables if kept[t] == sums])
        apart = np.abs(same[:, None] - same[None]).sum(axis=2)
        weights = np.exp(-apart / float(plan.conditioning.scale))
        laws = np.log(weights / weights.sum(axis=1, keepdims=True))
        yield apart, np.abs(laws[:, None] - laws[None]).max(axis=2)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_the_cost_that_is_proved_is_the_share(k):
    found = Conditioning.of(Fraction(3, 7), k)
    assert found.cost.epsilon == Fraction(3, 7)
    assert 2 * k * found.noise.epsilon == Fraction(3, 7)
    assert found.noise.epsilon == 2 / found.scale


@pytest.mark.parametrize(
    ("shape", "exact", "least"),
    [
        ((2, 2), ((0,),), 1),
        ((2, 2), ((0,), (1,)), 1),
        ((3,), ((),), 1),
        ((2, 3), ((0,), (1,)), 1),
        ((2, 2, 2), ((0, 1),), 1),
        ((2, 2, 2), ((0, 1), (1, 2)), 1),
        ((2, 2, 2), ((0, 1), (0, 2), (1, 2)), 0.9),
        ((2, 2, 2), ((0,), (1,), (2,)), 1),
    ],
)
def test_no_two_data_sets_are_told_apart_by_more_than_is_charged(shape, exact, least):
    """All tables of four records: ratios of the exact laws, in proportion to how far apart."""
    plan = plan_of(shape, exact, Fraction(2))
    k, largest = plan.conditioning.records, 0.0
    for apart, ratios in compared(plan, 4):
        assert (ratios <= apart / k + 1e-9).all()  # floats of some tens of terms
        largest = max(largest, ratios[apart <= 2 * k].max())
    assert largest > least  # without the factor of two it would be 1 at most


@pytest.mark.parametrize(
    ("shape", "exact"),
    [((2,), ((),)), ((3,), ((),)), ((2, 2), ((0,),)), ((3, 2), ((1,),)), ((2, 2, 2), ((0, 1),))],
)
@pytest.mark.parametrize("cost", [Fraction(1, 3), Fraction(6)])
def test_the_smallest_gamma_is_the_worst_of_all_pairs_of_tables(shape, exact, cost):
    plan, worst = plan_of(shape, exact, cost), 0.0
    for apart, ratios in compared(plan, 5):
        loss = apart / 2 * float(plan.conditioning.noise.epsilon)
        worst = max(worst, (ratios / np.where(apart, loss, np.inf)).max() - 1)
    # Logarithms of sums of some tens of terms.
    assert plan.effective_gamma(5) == pytest.approx(worst, abs=1e-11)


def test_the_smallest_gamma_grows_to_its_limit_and_is_unknown_for_marginals_that_overlap():
    plan = plan_of((16, 16), ((),), Fraction(1))
    found = [plan.effective_gamma(records) for records in (1, 2, 500, 5_000_000)]
    limit = np.log(2 - np.exp(-0.5)) / 0.5
    assert found == sorted(found)
    assert found[0] == 0
    assert found[-1] == pytest.approx(limit, abs=1e-12)
    assert plan_of((2, 2), ((0,), (1,)), Fraction(1)).effective_gamma(9) is None


@pytest.mark.parametrize(
    ("shape", "exact", "nearest", "k"),
    [
        ((2, 2), ((),), 1, 1),
        ((2, 2), ((0,),), 1, 2),
        ((2, 3), ((0,), (1,)), 2, 2),
        ((2, 2, 2), ((0, 1), (0, 2), (1, 2)), 4, 4),
        ((2, 2, 2), ((0, 1), (2,)), 2, 2),
    ],
)
def test_there_are_data_sets_within_k_records(shape, exact, nearest, k):
    """A promise about no two data sets would be empty: all moves of up to one per count."""
    plan = plan_of(shape, exact, Fraction(1))
    moves = np.array([*itertools.product((-1, 0, 1), repeat=int(np.prod(shape)))])
    kept = moves[~(moves @ plan.rows.T).any(axis=1)]
    least = min(np.abs(kept).sum(axis=1)[kept.any(axis=1)]) // 2
    assert least == nearest <= k == compared_records(exact, len(shape))


def test_a_marginal_counts_cells_in_the_order_of_its_attributes():
    assert margin_of((2, 3), (1,)).tolist() == [0, 1, 2, 0, 1, 2]
    assert margin_of((2, 3), (0, 1)).tolist() == [*range(6)]
    assert margin_of((2, 3), ()).tolist() == [0] * 6


def test_tables_come_back_from_their_files(tmp_path):
    from jobs.pipeline.storage.dataset import publish
    from jobs.survey.measurements import ConditionedTable, read_table, table_rows, write_part

    plan = plan_of((2, 2), ((0,),), Fraction(1, 3))
    counts = np.array([3, 0, 1, 2])
    own = ConditionedTable(counts, plan.exact_counts(counts), plan.conditioning)
    table, facts = table_rows(own)
    publish(tmp_path / "part=a", [write_part(tmp_path / "part=a", table)], facts)
    found = read_table(tmp_path / "part=a")
    assert found.counts.tolist() == [3, 0, 1, 2]
    assert [margin.tolist() for margin in found.exact] == [[3, 3]]
    assert found.conditioning == plan.conditioning
