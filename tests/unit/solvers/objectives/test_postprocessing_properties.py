"""What holds for every noisy table: nonnegativity, kept sums, symmetry, units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.studies.postprocessing_methods import TableMethod, post_process
from bench.studies.postprocessing_table import NoisyQuery, NoisyTable
from das.mechanisms.gaussian import Gaussian
from das.mechanisms.laplace import Laplace


@st.composite
def tables(draw):
    """1 to 3 draws over up to 8 cells, with the sum and up to two partitions."""
    n, R = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    truth = rng.integers(0, 60, n) * (rng.random(n) < draw(st.sampled_from([0.2, 0.8])))
    partitions = [np.zeros(n, int)]
    for _ in range(draw(st.integers(0, 2))):
        partitions.append(np.unique(rng.integers(0, 4, n), return_inverse=True)[1])
    partitions.append(np.arange(n))
    queries = []
    for groups in partitions:
        variance = float(rng.uniform(1, 200))
        noise = rng.laplace(0, (variance / 2) ** 0.5, (R, groups.max() + 1))
        queries.append(NoisyQuery(groups, np.bincount(groups, weights=truth) + noise, variance))
    law = draw(st.sampled_from([Laplace, Gaussian]))
    return NoisyTable(tuple(queries[:-1]), queries[-1], law)


NONNEGATIVE = [method for method in TableMethod if method is not TableMethod.OLS]


@given(tables(), st.sampled_from(NONNEGATIVE))
def test_results_are_nonnegative_and_finite(table, method):
    x = post_process(table, method)
    assert x.shape == table.cells.answers.shape
    assert np.isfinite(x).all()
    assert (x >= 0).all()


@given(tables())
def test_sequential_keeps_the_first_query(table):
    x = post_process(table, TableMethod.SEQUENTIAL)
    assert x.sum(1) == pytest.approx(np.maximum(table.coarse[0].answers[:, 0], 0), abs=1e-5)


@given(tables(), st.sampled_from(list(TableMethod)), st.randoms(use_true_random=False))
def test_the_order_of_cells_does_not_matter(table, method, random):
    order = np.array(random.sample(range(table.n_cells), table.n_cells))
    turned = NoisyTable(
        tuple(replace(q, groups=q.groups[order]) for q in table.coarse),
        replace(table.cells, answers=table.cells.answers[:, order]),
        table.noise,
    )
    assert post_process(turned, method) == pytest.approx(
        post_process(table, method)[:, order], abs=1e-4
    )


@given(tables(), st.sampled_from(list(TableMethod)))
def test_draws_do_not_mix(table, method):
    alone = NoisyTable(
        tuple(replace(q, answers=q.answers[-1:]) for q in table.coarse),
        replace(table.cells, answers=table.cells.answers[-1:]),
        table.noise,
    )
    # Draws of a batch stop together, so a posterior mean may go on a little.
    close = 0.1 * table.cells.variance**0.5 if method is TableMethod.POSTERIOR else 1e-4
    assert post_process(alone, method)[0] == pytest.approx(
        post_process(table, method)[-1], abs=close
    )


@given(tables())
def test_no_method_fits_better_than_nnls(table):
    def squares(x):
        parts = (*table.coarse, table.cells)
        return sum(((x @ q.rows().T - q.answers) ** 2).sum(1) / q.variance for q in parts)

    best = squares(post_process(table, TableMethod.NNLS))
    for method in NONNEGATIVE:
        assert (squares(post_process(table, method)) >= best * (1 - 1e-9) - 1e-9).all()
    assert (squares(post_process(table, TableMethod.OLS)) <= best * (1 + 1e-9) + 1e-9).all()
