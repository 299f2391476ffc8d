"""The ledger of a survey: parts, what they cost, and what may not be recorded."""

from __future__ import annotations

from fractions import Fraction

import pytest

from das.errors import LedgerError
from jobs.survey.ledger import Spending, read_ledger, record_measured, start_ledger

GRANTED = {"definition": "zcdp", "total": "1/2", "delta": "1/10", "neighbors": "bounded"}
PARTS = {"income": Fraction(1, 6), "synthesis": Fraction(1, 3)}


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "ledger.jsonl"
    start_ledger(path, GRANTED, PARTS)
    return path


def test_it_is_sealed_once_all_parts_were_measured(ledger):
    record_measured(ledger, "income", Spending("a", Fraction(1, 6)))
    found = read_ledger(ledger)
    assert (found.spent, found.is_sealed) == (Fraction(1, 6), False)
    for _ in range(2):
        record_measured(ledger, "synthesis", Spending("b", Fraction(1, 4)))
    found = read_ledger(ledger)
    assert (found.spent, found.is_sealed) == (Fraction(5, 12), True)
    assert len(ledger.read_text().splitlines()) == 5


def test_a_part_may_not_cost_more_than_was_planned(ledger):
    with pytest.raises(LedgerError, match="more than was planned"):
        record_measured(ledger, "income", Spending("a", Fraction(1, 6) + Fraction(1, 10**30)))
    with pytest.raises(LedgerError, match="more than was planned"):
        record_measured(ledger, "age", Spending("a", Fraction(1, 100)))
    assert read_ledger(ledger).measured == {}


def test_other_measurements_than_the_ledger_names_are_refused(ledger):
    record_measured(ledger, "income", Spending("a", Fraction(1, 6)))
    with pytest.raises(LedgerError, match="restore them from a backup"):
        record_measured(ledger, "income", Spending("b", Fraction(1, 6)))
    record_measured(ledger, "income", Spending("a", Fraction(1, 6)))


def test_a_ledger_of_another_plan_is_refused(ledger):
    with pytest.raises(LedgerError, match="remove the run folder"):
        start_ledger(ledger, GRANTED, {"income": Fraction(1, 2)})
    ledger.unlink()
    start_ledger(ledger, GRANTED, {"income": Fraction(1, 2)})


def test_parts_that_do_not_cost_what_is_granted_are_refused(tmp_path):
    with pytest.raises(LedgerError, match="do not cost what is granted"):
        start_ledger(tmp_path / "new.jsonl", GRANTED, {"income": Fraction(1, 3)})
    assert not (tmp_path / "new.jsonl").exists()


def test_a_damaged_ledger_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_text("")
    with pytest.raises(LedgerError, match="restore it from a backup"):
        read_ledger(path)
