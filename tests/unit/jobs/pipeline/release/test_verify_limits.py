"""Counts that break a limit, or a ledger that is not the plan's, do not pass verification."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from das.errors import LedgerError, VerificationError
from geography.lattice import Lattice
from invariants.constraints import Constraints
from invariants.facilities import Facilities
from invariants.linear import LinearRow
from jobs.pipeline.plan import planned_ledger
from jobs.pipeline.release.verify import _verify_invariants, _verify_ledger, _verify_limits
from jobs.pipeline.storage.answers import ANSWERS, answer_table
from jobs.pipeline.storage.dataset import dataset_digest
from jobs.pipeline.storage.journal import append_to_journal
from jobs.pipeline.storage.ledger import finalize_ledger, record_measured, start_ledger
from tests.builders import two_families as two

# Blocks with so many facilities for minors and for adults, of one to four persons each.
FACILITIES = [[1, 0], [0, 1], [0, 0], [1, 2]]
AGES = Facilities(
    two.query("age"), two.SPINE.levels, np.array([1, 1]), np.array([4, 4]), np.array([True] * 2)
)
MEN = LinearRow("men", np.array([0, 0, 1, 1]), ("state", "county"), 1, 5)
PLAN = two.plan(limits=Constraints((AGES, two.zeros(2), MEN)))
# No male minors; counties have 2 and 4 men.
KEPT = {"111": (3, 0, 0, 0), "112": (0, 1, 0, 2), "121": (0, 0, 0, 0), "122": (2, 1, 0, 4)}


def verified(folder, blocks=KEPT) -> int:
    """Geounits with limits, of all geolevels."""
    release = two.release(folder)
    table = answer_table(sorted(two.BLOCKS), "facilities age", np.array(FACILITIES))
    two.write(release.given("block"), [table], ANSWERS, {"queries": ["facilities age"]})
    for geolevel in two.SPINE.levels:
        two.write_counts(release, geolevel, blocks)
    return sum(_verify_limits(PLAN, release, two.whole(level)) for level in two.SPINE.levels)


def test_counts_that_keep_all_limits_are_counted(tmp_path):
    assert verified(tmp_path) == 1 + 2 + 4


@pytest.mark.parametrize(
    ("changed", "counts", "where", "name"),
    [
        ("112", (0, 3, 1, 0), "state 1", "structural zeros"),
        ("111", (5, 0, 0, 0), "block 111", "facilities age"),  # one facility holds four
        ("122", (2, 0, 0, 1), "block 122", "facilities age"),  # two facilities have two at least
        ("112", (0, 3, 0, 0), "county 11", "row men"),
        ("122", (2, 2, 0, 6), "county 12", "row men"),
    ],
)
def test_the_geounit_that_breaks_a_limit_is_named(tmp_path, changed, counts, where, name):
    with pytest.raises(VerificationError, match=f"{where}.* breaks the invariant {name}"):
        verified(tmp_path, {**KEPT, changed: counts})


def test_one_broken_answer_of_an_invariant_is_found_beside_good_ones(tmp_path):
    plan, release = two.plan(invariants=(two.exact("sex", "block"),)), two.release(tmp_path)
    two.write_exact(release, "block", ["sex"])
    two.write_counts(release, "block", {**two.BLOCKS, "122": (3, 1, 0, 4)})
    with pytest.raises(VerificationError, match="block 122: breaks the invariant sex"):
        _verify_invariants(plan, release, two.whole("block"))


@pytest.fixture
def finalized(tmp_path):
    """A release measured without noise, and its finalized ledger."""
    plan, release = two.plan(), two.release(tmp_path)
    ledger = planned_ledger(plan, Lattice.from_leaves(two.SPINE, sorted(two.BLOCKS)))
    start_ledger(release.ledger, plan.budget.exact(), ledger)
    for geolevel in two.SPINE.levels:
        two.write_noisy(release, plan, geolevel)
        digest = dataset_digest(release.measurements(geolevel))
        record_measured(release.ledger, geolevel, digest)
    return release


def test_a_finalized_ledger_of_the_plan_passes(finalized):
    with pytest.raises(VerificationError, match="is not finalized"):
        _verify_ledger(two.plan(), finalized)
    finalize_ledger(finalized.ledger)
    _verify_ledger(two.plan(), finalized)


def test_a_ledger_of_other_noise_is_refused(finalized):
    finalize_ledger(finalized.ledger)
    other = replace(two.plan().budget, total=two.plan().budget.total / 2)
    with pytest.raises(VerificationError, match=r"geolevel state.* has other noise or costs"):
        _verify_ledger(two.plan(budget=other), finalized)


def test_a_ledger_that_leaves_out_a_geolevel_is_refused(tmp_path):
    plan, release = two.plan(), two.release(tmp_path)
    ledger = planned_ledger(plan, Lattice.from_leaves(two.SPINE, sorted(two.BLOCKS)))
    fewer = tuple(entry for entry in ledger.entries if entry.geolevel != "county")
    start_ledger(release.ledger, plan.budget.exact(), replace(ledger, entries=fewer))
    append_to_journal(release.ledger, lambda _: [{"event": "sealed"}])
    with pytest.raises(LedgerError, match="does not cover every geolevel"):
        _verify_ledger(plan, release)


def test_measurements_that_the_ledger_does_not_name_are_refused(finalized):
    finalize_ledger(finalized.ledger)
    manifest = finalized.measurements("county") / "_manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    with pytest.raises(VerificationError, match=r"county.* is not the one the ledger names"):
        _verify_ledger(two.plan(), finalized)
