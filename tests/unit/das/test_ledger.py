"""The ledger: every path spends what was granted, not a record more or less."""

from __future__ import annotations

from fractions import Fraction

import pytest

from das.errors import LedgerError
from das.mechanisms.mechanism import DiscreteGaussian
from das.privacy.ledger import Ledger, LedgerEntry

SPINE = ("state", "county", "block")
ONE = Fraction(1)


def entry(first, last, rho, query="q") -> LedgerEntry:
    return LedgerEntry(first, last, query, ("a",), DiscreteGaussian(Fraction(1)), Fraction(rho), 1)


ORDINARY = (
    entry("state", "state", "1/2"),
    entry("county", "county", "1/4"),
    entry("block", "block", "1/8", "q"),
    entry("block", "block", "1/8", "r"),
)
CHAINS = (
    entry("county", "block", "1/2"),
    entry("state", "county", "3/4"),
    entry("state", "block", 1),
)


def sealed(entries) -> tuple[Fraction, Fraction]:
    ledger = Ledger(SPINE, ONE, tuple(entries))
    ledger.seal()
    return ledger.path_costs()


def test_ordinary_paths_and_chains_cost_the_same():
    assert sealed(ORDINARY) == (1, 1)
    for chain in CHAINS:
        assert sealed((*ORDINARY, chain)) == (1, 1)
    assert sealed((*ORDINARY, *CHAINS)) == (1, 1)
    assert sealed(CHAINS[-1:]) == (1, 1)


def test_appending_leaves_the_old_ledger_alone():
    old = Ledger(SPINE, ONE, ORDINARY[:1])
    assert old.append(ORDINARY[1:]).entries == ORDINARY
    assert old.entries == ORDINARY[:1]


@pytest.mark.parametrize("dropped", range(4))
def test_a_dropped_entry_is_noticed(dropped):
    with pytest.raises(LedgerError):
        sealed(ORDINARY[:dropped] + ORDINARY[dropped + 1 :])


def test_a_geolevel_that_was_never_measured_is_named_so():
    with pytest.raises(LedgerError, match="ledger: does not cover every geolevel"):
        sealed(ORDINARY[:2])
    with pytest.raises(LedgerError, match="does not cover"):
        sealed(())


@pytest.mark.parametrize("extra", [*ORDINARY, *CHAINS[:2]])
def test_an_entry_too_many_is_noticed_with_both_numbers(extra):
    entries = (*ORDINARY, *CHAINS, extra)
    with pytest.raises(LedgerError) as caught:
        sealed(entries)
    assert caught.value.want == "1"
    assert caught.value.got == f"1..{1 + extra.cost}"


def test_a_path_that_spends_too_little_is_noticed_beside_good_ones():
    with pytest.raises(LedgerError) as caught:
        sealed((*ORDINARY, entry("state", "county", "1/2")))
    assert str(caught.value) == "ledger: spent differs from granted; got 3/4..1; expected 1"


def test_a_difference_too_small_for_floats_is_noticed():
    with pytest.raises(LedgerError):
        sealed((*ORDINARY, entry("block", "block", Fraction(1, 10**40), "s")))
