"""Shares of marginals: transforms against dense projectors, certificates, closed form."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from das.errors import SchemaError, SolverError
from das.workload.bounds import svd_bound
from das.workload.hdmm import marginals as marginals_strategy
from das.workload.hdmm.marginals import _MarginalsDescent, optimize_marginals
from das.workload.workload import AttributeWorkload, Workload
from tests.unit.das.workload.dense import MIXED, kron, workload_gram

PLAIN = [
    AttributeWorkload.identity(name, size) for name, size in zip("abc", (2, 3, 5), strict=True)
]


def error_of(workload: Workload, shares: dict[tuple[bool, ...], float]) -> float:
    """tr(G V^-1) with the dense Gram matrix of the measured marginals."""
    sizes = [each.size for each in workload.attributes]
    v = sum(
        share
        * kron(
            [
                np.eye(n) if inside else np.ones((n, n))
                for n, inside in zip(sizes, chosen, strict=True)
            ]
        )
        for chosen, share in shares.items()
    )
    gram = workload_gram(workload)
    return float(np.trace(gram @ np.linalg.pinv(v, rcond=1e-12, hermitian=True)))


@pytest.mark.parametrize("attributes", [PLAIN, MIXED[:3]])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_shares_are_optimal(attributes, order):
    workload = Workload.k_way(attributes, range(order + 1))
    found = optimize_marginals(workload)
    shares = dict(zip(map(tuple, found.sets.tolist()), found.shares.tolist(), strict=True))
    assert found.error == pytest.approx(error_of(workload, shares))
    assert found.bound <= found.error <= found.bound * (1 + 1e-5)
    rng = np.random.default_rng(order)
    every = list(itertools.product((False, True), repeat=len(attributes)))
    for _ in range(30):
        other = rng.dirichlet(np.full(len(every), 0.3))
        mixed = {s: 0.9 * shares.get(s, 0.0) + 0.1 * c for s, c in zip(every, other, strict=True)}
        assert error_of(workload, mixed) >= found.bound * (1 - 1e-9)


def test_closed_form_and_descent_agree(monkeypatch):
    """Plain counts of up to all attributes need no negative share; a worse start must descend."""
    workload = Workload.k_way(PLAIN, range(4))
    direct = optimize_marginals(workload)
    assert direct.error == pytest.approx(direct.bound, rel=1e-12)
    assert direct.error == pytest.approx(svd_bound(workload), rel=1e-9)
    build = _MarginalsDescent.build

    def misjudge_costs(attributes, asked):
        problem = build(attributes, asked)
        return replace(problem, cell_costs=np.ones_like(problem.cell_costs))

    monkeypatch.setattr(_MarginalsDescent, "build", misjudge_costs)
    descended = optimize_marginals(workload)
    assert descended.error == pytest.approx(direct.error, rel=1e-5)
    assert descended.error > direct.error * (1 + 1e-12)


def test_one_detailed_marginal_needs_only_itself():
    found = optimize_marginals(Workload.k_way(PLAIN, [3]))
    assert found.sets.tolist() == [[True, True, True]]
    assert found.error == pytest.approx(30)


def test_an_undetermined_marginal_is_refused():
    found = optimize_marginals(Workload.of_marginals(PLAIN, [("a",)]))
    noisy = [np.zeros(product.shape[0]) for product in found.products]
    with pytest.raises(SchemaError, match="do not contain a set"):
        found.answer(noisy, ["b"])


def test_an_unreachable_gap_is_an_error(monkeypatch):
    monkeypatch.setattr(marginals_strategy, "_MOST_RESTARTS", 0)
    attributes = [AttributeWorkload.identity(f"a{i}", 3 + 5 * i) for i in range(5)]
    with pytest.raises(SolverError, match=r"not proven optimal; got .* expected a relative gap"):
        optimize_marginals(Workload.k_way(attributes, [2]))
