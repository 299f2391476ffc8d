"""An account: one run per grant, and grants of the same people add up."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from das.errors import LedgerError
from das.privacy.budget import Budget, Definition
from das.queries.sensitivity import Neighbors
from jobs.account import Claim, account_document, check_claim, composed, make_claim, read_account
from jobs.journal import append_to_journal

DELTA = Fraction(1, 10**10)
PERSONS = Claim(
    "persons", "2030", Budget(Fraction(64, 25), DELTA, Neighbors.BOUNDED), "run a", "/a"
)
UNITS = replace(
    PERSONS, product="units", run="run b", budget=replace(PERSONS.budget, total=Fraction(7, 100))
)


@pytest.fixture
def path(tmp_path):
    make_claim(tmp_path / "account", PERSONS)
    return tmp_path / "account"


def test_a_run_may_go_on_under_its_own_grant(path):
    before = path.read_bytes()
    check_claim(path, PERSONS)
    (spent,) = make_claim(path, PERSONS)
    assert (spent.product, spent.grant, spent.budget) == ("persons", "2030", PERSONS.budget)
    assert path.read_bytes() == before


def test_another_run_needs_another_grant(path):
    other = replace(PERSONS, run="run c", folder="/c")
    for ask in (check_claim, make_claim):
        with pytest.raises(
            LedgerError, match=r"'2030' of 'persons' was spent.*got /a, .*privacy.gr"
        ):
            ask(path, other)
    assert len(read_account(path)) == 1
    again = replace(other, grant="2031")
    check_claim(path, again)
    assert len(read_account(path)) == 1
    assert [s.grant for s in make_claim(path, again)] == ["2030", "2031"]


def test_the_same_run_may_not_change_its_budget(path):
    for budget in (
        replace(PERSONS.budget, total=Fraction(3)),
        replace(PERSONS.budget, neighbors=Neighbors.UNBOUNDED),
        replace(PERSONS.budget, definition=Definition.PURE),
    ):
        with pytest.raises(LedgerError, match="holds another budget for this run"):
            make_claim(path, replace(PERSONS, budget=budget))


def test_products_of_the_same_people_add_up(path):
    (total,) = composed(make_claim(path, UNITS))
    assert total.total == Fraction(263, 100)
    assert round(total.epsilon, 2) == 17.43


def test_different_neighbors_do_not_mix_and_pure_counts_as_rho(path):
    pure = replace(UNITS, budget=Budget(Fraction(1, 5), DELTA, Neighbors.BOUNDED, Definition.PURE))
    unbounded = replace(
        UNITS,
        product="x",
        budget=Budget(Fraction(2), DELTA / 2, Neighbors.UNBOUNDED, Definition.PURE),
    )
    make_claim(path, pure)
    spent = make_claim(path, unbounded)
    assert composed(spent) == (
        Budget(Fraction(64, 25) + Fraction(1, 50), DELTA, Neighbors.BOUNDED),
        unbounded.budget,
    )


def test_the_published_document_names_no_folder(path):
    document = account_document(make_claim(path, UNITS))
    assert [row["product"] for row in document["grants"]] == ["persons", "units"]
    assert document["composed"][0]["total"] == "263/100"
    assert "/a" not in str(document)
    assert "run a" not in str(document)


def test_a_foreign_journal_is_refused(tmp_path):
    append_to_journal(tmp_path / "other", lambda _: [{"event": "sealed"}])
    with pytest.raises(LedgerError, match="not of an account"):
        read_account(tmp_path / "other")
