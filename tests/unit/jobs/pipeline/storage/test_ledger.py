"""The ledger of a run on disk: granted, planned, measured, finalized, and nothing twice."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from das.errors import LedgerError
from das.mechanisms.gaussian import DiscreteGaussian
from das.mechanisms.laplace import DiscreteLaplace
from das.privacy.ledger import Ledger, LedgerEntry
from jobs.pipeline.storage.journal import read_journal
from jobs.pipeline.storage.ledger import finalize_ledger, read_ledger, record_measured, start_ledger

GRANTED = {"definition": "zcdp", "total": "3/4"}
ENTRIES = (
    LedgerEntry(
        "state", "state", "sex", ("sex",), DiscreteGaussian(Fraction(4)), Fraction(1, 2), 1
    ),
    LedgerEntry("block", "block", "total", (), DiscreteLaplace(Fraction(4, 3)), Fraction(1, 4), 9),
)
PLANNED = Ledger(("state", "block"), Fraction(3, 4), ENTRIES)


@pytest.fixture
def path(folder):
    start_ledger(folder / "ledger.jsonl", GRANTED, PLANNED)
    return folder / "ledger.jsonl"


def test_the_plan_comes_back_and_starting_again_changes_nothing(path):
    before = read_journal(path)
    start_ledger(path, GRANTED, PLANNED)
    assert read_journal(path) == before
    ledger = read_ledger(path)
    assert (ledger.planned, dict(ledger.measured), ledger.is_finalized) == (PLANNED, {}, False)


def test_another_plan_or_grant_is_refused(path):
    other = replace(PLANNED, entries=(ENTRIES[0], replace(ENTRIES[1], geounits=8)))
    for granted, planned in ((GRANTED, other), ({**GRANTED, "total": "1"}, PLANNED)):
        with pytest.raises(LedgerError, match="is of another plan"):
            start_ledger(path, granted, planned)


def test_a_ledger_is_finalized_when_all_is_measured_and_only_then(path):
    with pytest.raises(LedgerError, match="does not cover every geolevel"):
        finalize_ledger(path)
    record_measured(path, "state", "aa")
    with pytest.raises(LedgerError, match="does not cover every geolevel"):
        finalize_ledger(path)
    assert read_ledger(path).spent().entries == ENTRIES[:1]
    record_measured(path, "block", "bb")
    finalize_ledger(path)
    assert read_ledger(path).spent() == PLANNED
    finalized = read_journal(path)
    finalize_ledger(path)
    record_measured(path, "block", "bb")
    assert read_journal(path) == finalized
    assert read_ledger(path).is_finalized


def test_other_measurements_of_a_geolevel_are_refused(path):
    record_measured(path, "state", "aa")
    with pytest.raises(
        LedgerError, match="geolevel state: other measurements were recorded before"
    ):
        record_measured(path, "state", "ab")
    assert read_ledger(path).measured == {"state": "aa"}


def test_less_or_more_than_granted_cannot_be_finalized(folder):
    for granted, match in (
        (Fraction(1), "does not spend exactly"),
        (Fraction(3, 5), "more would be spent"),
    ):
        path = folder / str(granted.denominator)
        start_ledger(path, GRANTED, replace(PLANNED, granted=granted))

        def spend_all(path=path):
            for geolevel in PLANNED.spine:
                record_measured(path, geolevel, "aa")
            finalize_ledger(path)

        with pytest.raises(LedgerError, match=match):
            spend_all()
        assert not read_ledger(path).is_finalized


def test_overspending_is_refused_before_it_is_recorded(folder):
    path = folder / "ledger"
    start_ledger(path, GRANTED, replace(PLANNED, granted=Fraction(3, 5)))
    record_measured(path, "state", "aa")
    with pytest.raises(
        LedgerError, match="more would be spent than was granted; got 3/4; expected 3/5"
    ):
        record_measured(path, "block", "bb")
    assert read_ledger(path).measured == {"state": "aa"}


def test_a_missing_ledger_says_what_to_do(folder):
    with pytest.raises(LedgerError, match=r"is missing or empty.*das run RUN --only measure"):
        read_ledger(folder / "none")
