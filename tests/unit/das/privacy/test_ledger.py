"""The ledger: every path spends what was granted, not a record more or less."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.errors import LedgerError
from das.mechanisms.gaussian import DiscreteGaussian
from das.privacy.ledger import (
    Ledger,
    LedgerEntry,
    costs_of_paths,
)
from das.privacy.semantics import ChangeCosts, statements
from tests.unit.das.privacy.releases import tilings

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


def finalized(entries) -> tuple[Fraction, Fraction]:
    ledger = Ledger(SPINE, ONE, tuple(entries))
    ledger.finalize()
    return ledger.path_costs()


def test_ordinary_paths_and_chains_cost_the_same():
    assert finalized(ORDINARY) == (1, 1)
    for chain in CHAINS:
        assert finalized((*ORDINARY, chain)) == (1, 1)
    assert finalized((*ORDINARY, *CHAINS)) == (1, 1)
    assert finalized(CHAINS[-1:]) == (1, 1)


def test_appending_leaves_the_old_ledger_alone():
    old = Ledger(SPINE, ONE, ORDINARY[:1])
    assert old.append(ORDINARY[1:]).entries == ORDINARY
    assert old.entries == ORDINARY[:1]


@pytest.mark.parametrize("dropped", range(4))
def test_a_dropped_entry_is_noticed(dropped):
    with pytest.raises(LedgerError):
        finalized(ORDINARY[:dropped] + ORDINARY[dropped + 1 :])


def test_a_geolevel_that_was_never_measured_is_named_so():
    with pytest.raises(LedgerError, match="ledger: does not cover every geolevel"):
        finalized(ORDINARY[:2])
    with pytest.raises(LedgerError, match="does not cover"):
        finalized(())


@pytest.mark.parametrize("extra", [*ORDINARY, *CHAINS[:2]])
def test_an_entry_too_many_is_noticed_with_both_numbers(extra):
    entries = (*ORDINARY, *CHAINS, extra)
    with pytest.raises(LedgerError) as caught:
        finalized(entries)
    assert caught.value.want == "1"
    assert caught.value.got == f"1..{1 + extra.cost}"


def test_a_path_that_spends_too_little_is_noticed_beside_good_ones():
    with pytest.raises(LedgerError) as caught:
        finalized((*ORDINARY, entry("state", "county", "1/2")))
    assert (
        str(caught.value)
        == "ledger: some root-to-leaf path does not spend exactly the budget; got 3/4..1; expected 1"
    )


def test_a_difference_too_small_for_floats_is_noticed():
    with pytest.raises(LedgerError):
        finalized((*ORDINARY, entry("block", "block", Fraction(1, 10**40), "s")))


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.dictionaries(
                st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).map(
                    lambda ends: (min(ends), max(ends))
                ),
                st.fractions(0, 5, max_denominator=7),
            ),
        )
    )
)
def test_costs_of_paths_are_those_of_all_tilings(drawn):
    n_levels, costs = drawn
    found = list(tilings(n_levels, costs))
    sums = [sum((costs[chain] for chain in path), Fraction(0)) for path in found]
    assert costs_of_paths(n_levels, costs) == ((min(sums), max(sums)) if sums else None)


def test_forty_geolevels_with_all_chains_are_finalized_and_stated():
    """2^39 tilings: whoever lists them does not come back."""
    spine = tuple(f"l{index}" for index in range(40))
    entries = [
        LedgerEntry(
            spine[first],
            spine[last],
            "q",
            ("sex",),
            DiscreteGaussian(Fraction(1)),
            Fraction(last - first + 1, 40),
            1,
        )
        for first in range(40)
        for last in range(first, 40)
    ]
    ledger = Ledger(spine, Fraction(1)).append(entries)
    ledger.finalize()
    costs = [
        ChangeCosts(one.geolevel, one.chain_end, one.cost, {"sex": one.cost}, one.cost)
        for one in entries
    ]
    record, sex, *_ = statements(spine, ["sex"], costs)
    assert record.cost == sex.cost == 1


# --- strata --------------------------------------------------------------------------------------


def of_stratum(name, first, last, rho) -> LedgerEntry:
    return replace(entry(first, last, rho, f"q where {name}"), stratum=name)


EVERYBODY = (
    entry("state", "state", "1/4"),
    entry("county", "county", "1/8"),
    entry("block", "block", "1/8"),
    entry("county", "block", "1/4"),
)
WOMEN = (
    of_stratum("f", "state", "state", "1/8"),
    of_stratum("f", "county", "county", "1/8"),
    of_stratum("f", "block", "block", "1/4"),
    of_stratum("f", "county", "block", "3/8"),
)
MEN = (of_stratum("m", "state", "state", "1/2"),)


def test_strata_do_not_add_up_and_every_one_is_finalized():
    ledger = Ledger(SPINE, ONE, strata=("f", "m")).append((*EVERYBODY, *WOMEN, *MEN))
    ledger.finalize()
    assert ledger.path_costs("f") == ledger.path_costs("m") == (1, 1)
    assert ledger.path_costs() == (Fraction(1, 2), Fraction(1, 2))


@pytest.mark.parametrize(
    ("entries", "stratum"),
    [
        ((*EVERYBODY, *WOMEN), "m"),
        ((*EVERYBODY, *WOMEN[1:], *MEN), "f"),
        ((*EVERYBODY, *WOMEN[:3], of_stratum("f", "county", "block", "1/4"), *MEN), "f"),
    ],
    ids=["a stratum without entries", "a geolevel", "a chain of only children"],
)
def test_a_stratum_that_spends_too_little_is_noticed_beside_good_ones(entries, stratum):
    with pytest.raises(
        LedgerError, match=f"ledger, stratum {stratum}: some root-to-leaf path does not"
    ):
        Ledger(SPINE, ONE, entries, ("f", "m")).finalize()


def test_a_stratum_cannot_spend_what_another_leaves():
    ledger = Ledger(SPINE, ONE, strata=("f", "m")).append(EVERYBODY)
    with pytest.raises(LedgerError, match="more would be spent than was granted; got 5/4"):
        ledger.append([of_stratum("m", "state", "state", "3/4")])


def test_entries_of_a_stratum_that_is_not_listed_are_refused():
    with pytest.raises(LedgerError, match=r"has entries of unlisted strata; got \['m'\]"):
        Ledger(SPINE, ONE, (*EVERYBODY, *MEN), ("f",))
