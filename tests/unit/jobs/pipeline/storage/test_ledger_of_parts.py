"""The ledger of a run of parts: what they cost, and what may not be recorded."""

from __future__ import annotations

from fractions import Fraction

import pytest

from das.errors import LedgerError
from jobs.pipeline.storage.ledger import (
    PlannedParts,
    finalize_ledger,
    read_ledger,
    read_ledger_of_parts,
    record_measured,
    start_ledger,
)

GRANTED = {"definition": "zcdp", "total": "1/2", "delta": "1/10", "neighbors": "bounded"}
PARTS = PlannedParts(Fraction(1, 2), {"income": Fraction(1, 6), "synthesis": Fraction(1, 3)})


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "ledger.jsonl"
    start_ledger(path, GRANTED, PARTS)
    return path


def test_it_is_finalized_once_all_parts_were_measured(ledger):
    record_measured(ledger, "income", "a", cost=Fraction(1, 6))
    with pytest.raises(LedgerError, match="parts that were not measured"):
        finalize_ledger(ledger)
    for _ in range(2):
        record_measured(ledger, "synthesis", "b", cost=Fraction(1, 4))
    finalize_ledger(ledger)
    finalize_ledger(ledger)
    found = read_ledger_of_parts(ledger)
    assert found.measured == {"income": "a", "synthesis": "b"}
    assert (sum(found.costs.values()), found.is_finalized) == (Fraction(5, 12), True)
    assert len(ledger.read_text().splitlines()) == 5


def test_a_ledger_of_the_other_kind_of_run_is_refused(ledger):
    with pytest.raises(LedgerError, match="is the ledger of a run of a survey"):
        read_ledger(ledger)


def test_a_part_may_not_cost_more_than_was_planned(ledger):
    with pytest.raises(LedgerError, match="more than was planned"):
        record_measured(ledger, "income", "a", cost=Fraction(1, 6) + Fraction(1, 10**30))
    with pytest.raises(LedgerError, match="more than was planned"):
        record_measured(ledger, "age", "a", cost=Fraction(1, 100))
    assert read_ledger_of_parts(ledger).measured == {}


def test_other_measurements_than_the_ledger_names_are_refused(ledger):
    record_measured(ledger, "income", "a", cost=Fraction(1, 6))
    with pytest.raises(LedgerError, match="restore them from a backup"):
        record_measured(ledger, "income", "b", cost=Fraction(1, 6))
    record_measured(ledger, "income", "a", cost=Fraction(1, 6))


def test_a_ledger_of_another_plan_is_refused(ledger):
    with pytest.raises(LedgerError, match="remove the run folder"):
        start_ledger(ledger, GRANTED, PlannedParts(Fraction(1, 2), {"income": Fraction(1, 2)}))
    ledger.unlink()
    start_ledger(ledger, GRANTED, PlannedParts(Fraction(1, 2), {"income": Fraction(1, 2)}))


def test_parts_that_do_not_cost_what_is_granted_are_refused(tmp_path):
    parts = PlannedParts(Fraction(1, 2), {"income": Fraction(1, 3)})
    with pytest.raises(LedgerError, match="do not cost what is granted"):
        start_ledger(tmp_path / "new.jsonl", GRANTED, parts)
    assert not (tmp_path / "new.jsonl").exists()


def test_a_damaged_ledger_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_text("")
    with pytest.raises(LedgerError, match="restore it from a backup"):
        read_ledger_of_parts(path)
