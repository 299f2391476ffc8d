"""An account: one run per grant, and grants of the same people add up."""

from __future__ import annotations

import uuid
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from das.definition import Definition
from das.errors import BudgetError, ConfigError, InputError, LedgerError, OutputError
from das.privacy.accounting import epsilon_from_rho
from das.privacy.budget import Budget
from das.queries.sensitivity import Neighbors
from jobs.pipeline.documents.account import account_of_grants
from jobs.pipeline.documents.document import json_of
from jobs.pipeline.report.budget import account_table
from jobs.pipeline.storage.account import (
    BudgetLimit,
    Reservation,
    check_account,
    check_reservations,
    composed,
    default_account,
    keyed,
    make_reservations,
    noted_failures,
    read_account,
    read_failed_checks,
    read_limits,
    refuse_second_account,
    set_limit,
)
from jobs.pipeline.storage.journal import append_to_journal, read_journal
from jobs.pipeline.storage.place import place_of

DELTA = Fraction(1, 10**10)
RHO = Fraction(64, 25)
PERSONS = Reservation("persons", "2030", Budget(RHO, DELTA, Neighbors.BOUNDED), "run a", "/a", RHO)
UNITS = replace(
    PERSONS,
    product="units",
    run="run b",
    budget=replace(PERSONS.budget, total=Fraction(7, 100)),
    changed_record=Fraction(7, 100),
)


@pytest.fixture
def path(folder):
    make_reservations(folder / "account", PERSONS)
    return folder / "account"


def test_a_run_may_go_on_under_its_own_grant(path):
    before = read_journal(path)
    check_reservations(path, PERSONS)
    (spent,) = make_reservations(path, PERSONS)
    assert (spent.product, spent.grant, spent.budget) == ("persons", "2030", PERSONS.budget)
    assert read_journal(path) == before


def test_another_run_needs_another_grant(path):
    other = replace(PERSONS, run="run c", folder="/c")
    for ask in (check_reservations, make_reservations):
        with pytest.raises(
            LedgerError, match=r"'2030' of 'persons' was spent.*got /a, .*privacy.budget_id"
        ):
            ask(path, other)
    assert len(read_account(path)) == 1
    again = replace(other, grant="2031")
    check_reservations(path, again)
    assert len(read_account(path)) == 1
    assert [s.grant for s in make_reservations(path, again)] == ["2030", "2031"]


def test_a_limit_of_epsilon_counts_no_rho(path):
    """Whichever grant comes first: rho says nothing of epsilon at delta 0."""
    set_limit(path, BudgetLimit(Fraction(9), Definition.PURE, "why", "2030"))
    other = replace(UNITS, budget=replace(UNITS.budget, definition=Definition.PURE))
    with pytest.raises(BudgetError, match=r"a grant counts rho; set a limit .* zcdp"):
        make_reservations(path, other)
    set_limit(path, BudgetLimit(Fraction(9), Definition.ZCDP, "why", "2030"))
    make_reservations(path, other)
    assert [limit.definition for limit in read_limits(path)] == [Definition.PURE, Definition.ZCDP]


def test_products_of_a_run_fit_together_or_not_at_all(folder):
    """Each alone is below the limit."""
    account = folder / "account"
    set_limit(account, BudgetLimit(Fraction(13, 5), Definition.ZCDP, "why", "2030"))
    with pytest.raises(BudgetError, match="would exceed the limit"):
        make_reservations(account, PERSONS, UNITS)
    assert read_account(account) == ()
    make_reservations(account, PERSONS)


def test_the_same_run_may_not_change_its_budget(path):
    for budget in (
        replace(PERSONS.budget, total=Fraction(3)),
        replace(PERSONS.budget, neighbors=Neighbors.UNBOUNDED),
        replace(PERSONS.budget, definition=Definition.PURE),
    ):
        with pytest.raises(LedgerError, match="holds another budget for this run"):
            make_reservations(path, replace(PERSONS, budget=budget))


def granted(total: Fraction, changed: Fraction, neighbors: Neighbors, **other) -> Reservation:
    """A grant for a product of its own, with what a changed record costs."""
    budget = Budget(total, DELTA, neighbors, **other)
    product = f"{neighbors} {budget.definition} {total}"
    return replace(PERSONS, product=product, budget=budget, changed_record=changed)


def test_products_of_the_same_people_add_up(path):
    (total,) = composed(make_reservations(path, UNITS))
    assert total.budget.total == Fraction(263, 100)
    assert round(total.epsilon, 2) == 17.43


def test_grants_of_several_deltas_are_stated_at_the_smallest():
    """An epsilon at a larger delta says nothing of a smaller one."""
    (total,) = composed(
        (replace(UNITS, budget=replace(UNITS.budget, delta=Fraction(1, 10**5))), PERSONS)
    )
    assert total.budget.delta == DELTA
    assert total.epsilon == epsilon_from_rho(Fraction(263, 100), DELTA)


def test_grants_of_both_relations_add_up_to_what_a_changed_record_costs(folder):
    """Of an added record nothing is stated, since one grant protects changed records alone."""
    grants = [
        granted(Fraction(1), Fraction(1), Neighbors.BOUNDED),
        granted(Fraction(1), Fraction(5, 2), Neighbors.UNBOUNDED),
    ]
    (total,) = composed(make_reservations(folder / "account", *grants))
    assert total.budget == Budget(Fraction(7, 2), DELTA, Neighbors.BOUNDED)
    assert total.epsilon == total.budget.epsilon


def test_grants_for_added_records_have_both_sums(folder):
    grants = [granted(Fraction(n), Fraction(3 * n), Neighbors.UNBOUNDED) for n in (1, 2)]
    added, changed = composed(make_reservations(folder / "account", *grants))
    assert added.budget == Budget(Fraction(3), DELTA, Neighbors.UNBOUNDED)
    assert changed.budget == Budget(Fraction(9), DELTA, Neighbors.BOUNDED)


@pytest.mark.parametrize(("definition", "bound"), [("zcdp", 8), ("pure", 4)])
def test_a_claim_without_the_cost_of_a_changed_record_counts_at_the_bound(
    folder, definition, bound
):
    """Earlier versions did not write it: a change is at most two neighbors apart."""
    make_reservations(
        folder / "new",
        granted(Fraction(2), Fraction(4), Neighbors.UNBOUNDED, definition=Definition(definition)),
    )
    (line,) = read_journal(folder / "new")
    del line["changed_record"]
    append_to_journal(folder / "account", lambda _: [line])
    (spent,) = read_account(folder / "account")
    assert spent.changed_record == bound


def test_both_definitions_compose_to_the_smallest_that_holds(folder):
    """Large pure epsilons are added to the epsilon of rho, small ones as rho."""
    pure = {"definition": Definition.PURE}
    rho = granted(Fraction(7, 125), Fraction(7, 125), Neighbors.BOUNDED)
    two_in_pure = granted(Fraction(2), Fraction(2), Neighbors.BOUNDED, **pure)
    large = granted(Fraction(8), Fraction(8), Neighbors.BOUNDED, **pure)
    small = granted(Fraction(1, 10), Fraction(1, 10), Neighbors.BOUNDED, **pure)
    (two,) = composed((rho, two_in_pure))
    assert two.budget.total == Fraction(257, 125)
    assert 4.12 < two.epsilon < 4.13
    assert round(two.budget.epsilon, 2) == 15.11
    most = granted(Fraction(1), Fraction(1), Neighbors.BOUNDED)
    (three,) = composed((large, most, small))
    as_rho = epsilon_from_rho(Fraction(1) + Fraction(1, 200), DELTA)
    assert three.epsilon == pytest.approx(as_rho + 8, rel=1e-12)
    assert three.epsilon < composed((large, most))[0].epsilon + 0.1
    assert three.epsilon <= three.epsilon_simple


def test_the_published_document_names_no_folder(path):
    account = account_of_grants(make_reservations(path, UNITS))
    assert [grant.product for grant in account.grants] == ["persons", "units"]
    assert account.composed[0].total == "263/100"
    document = json_of(account)
    assert "/a" not in str(document)
    assert "run a" not in str(document)


def test_the_account_names_what_was_exact(path):
    """Sums hold between data sets that agree on it; an earlier version did not say."""
    exact = ("total at state",)
    granted = account_of_grants(make_reservations(path, replace(UNITS, exact=exact)))
    assert [grant.exact for grant in granted.grants] == [(), exact]
    note = account_table(granted).note
    assert "agree on the exact values. units: total at state." in note
    assert "not recorded" not in note
    (line, *_) = read_journal(path)
    del line["exact"]
    append_to_journal(path.with_name("old"), lambda _: [line])
    old = account_of_grants(read_account(path.with_name("old")))
    assert "was not recorded" in account_table(old).note


def test_a_foreign_journal_is_refused(folder):
    append_to_journal(folder / "other", lambda _: [{"event": "sealed"}])
    with pytest.raises(LedgerError, match="not of an account"):
        read_account(folder / "other")


def test_two_grants_are_claimed_together_or_not_at_all(path):
    other = replace(UNITS, run="run c")
    with pytest.raises(LedgerError, match="'2030' of 'persons' was spent by another run"):
        make_reservations(path, other, replace(PERSONS, run="run c"))
    assert len(read_account(path)) == 1
    assert len(make_reservations(path, other, replace(PERSONS, grant="2031", run="run c"))) == 3


def test_a_second_account_for_the_same_data_is_refused(tmp_path):
    """Told by a digest under a key of its own, which nobody without the data can compare."""
    assert keyed(b"digest") != keyed(b"digest")
    data, second = tmp_path / "persons.csv", tmp_path / "second"
    make_reservations(default_account(data), replace(PERSONS, input=keyed(b"digest")))
    refuse_second_account(default_account(data), data, b"digest")
    refuse_second_account(second, data, b"digest of other data")
    with pytest.raises(LedgerError, match=r"second account: .*grant '2030' of 'persons'"):
        refuse_second_account(second, data, b"digest")


def test_failed_checks_are_kept_beside_the_claims(path):
    with pytest.raises(InputError), noted_failures(path, UNITS):
        raise InputError("block 99001", "has a negative count")
    (failed,) = read_failed_checks(path)
    assert (failed.product, failed.folder, failed.geounit) == ("units", "/a", "block 99001")
    assert [one.product for one in read_account(path)] == ["persons"]
    assert "99001" not in str(account_of_grants(read_account(path)))


def test_an_account_of_an_earlier_version_is_read(folder):
    """Claims alone, as they have always been written."""
    line = {
        "product": "persons",
        "grant": "1",
        "definition": "zcdp",
        "neighbors": "bounded",
        "total": "1/2",
        "delta": "1/10000000000",
        "run": "r",
        "folder": "/a",
        "claimed": "2026-01-01T00:00:00+00:00",
    }
    append_to_journal(folder / "account", lambda _: [line])
    (spent,) = read_account(folder / "account")
    assert (spent.budget.total, spent.run) == (Fraction(1, 2), "r")
    make_reservations(folder / "account", replace(PERSONS, grant="2"))
    assert read_journal(folder / "account")[0] == line
    assert read_journal(folder / "account")[1].keys() == {*line, "changed_record", "exact"}


class TestDefault:
    """One account per data, however its path is spelled."""

    def test_lies_beside_the_data(self, tmp_path):
        assert default_account(tmp_path / "d") == tmp_path / "d.das-account.jsonl"

    def test_of_a_file_is_that_of_its_folder_if_it_has_one(self, tmp_path):
        data = tmp_path / "records"
        (data / "deep").mkdir(parents=True)
        (data / "deep" / "part-0.parquet").touch()
        account = default_account(data)
        make_reservations(account, PERSONS)
        for file in (data, data / "deep", data / "deep" / "part-0.parquet", data / "part-1.csv"):
            assert default_account(file) == account

    def test_of_a_folder_with_accounts_of_its_files_must_be_named(self, tmp_path):
        data = tmp_path / "records"
        data.mkdir()
        account = default_account(data / "part-0.parquet")
        make_reservations(account, PERSONS)
        with pytest.raises(ConfigError, match=r"account: is needed: .*part-0.parquet.das-account"):
            default_account(data)
        assert default_account(data / "part-0.parquet") == account

    def test_of_two_that_were_made_apart_must_be_named(self, tmp_path):
        data = tmp_path / "records"
        data.mkdir()
        for account in (f"{data}.das-account.jsonl", f"{data}/a.csv.das-account.jsonl"):
            make_reservations(tmp_path / account, PERSONS)
        for spelled in (data, data / "a.csv"):
            with pytest.raises(ConfigError, match="more than one account"):
                default_account(spelled)

    def test_is_that_of_any_product_whose_input_has_one(self, tmp_path):
        units, records = tmp_path / "units.csv", tmp_path / "records.csv"
        for began, others in ((units, (records,)), (records, (units,))):
            account = default_account(began)
            make_reservations(account, PERSONS)
            assert default_account(*others, began) == default_account(began, *others) == account
            account.unlink()

    def test_beside_another_input_must_be_named(self, tmp_path):
        """A run of the products `units` and `persons`, and then one of the units alone."""
        make_reservations(
            default_account(tmp_path / "units.csv", tmp_path / "records.csv"), PERSONS
        )
        with pytest.raises(ConfigError, match=r"is needed: the account near the data.*units.csv"):
            default_account(tmp_path / "units.csv")

    def test_of_inputs_in_two_folders_must_be_named(self, tmp_path):
        """Whoever reads one of them later looks in its folder alone."""
        here, there = tmp_path / "a" / "units.csv", tmp_path / "b" / "records.csv"
        with pytest.raises(ConfigError, match="is needed: the inputs of the products lie in sev"):
            default_account(here, there)
        make_reservations(default_account(there), PERSONS)
        with pytest.raises(ConfigError, match="is needed: the account near the data"):
            default_account(here, there)

    def test_of_inputs_in_two_folders_is_that_of_a_folder_of_both(self, tmp_path):
        account = default_account(tmp_path / "all")
        make_reservations(account, PERSONS)
        inputs = tmp_path / "all" / "a" / "units.csv", tmp_path / "all" / "b" / "records.csv"
        assert default_account(*inputs) == account

    def test_of_a_folder_that_cannot_be_listed_must_be_named(self, tmp_path, monkeypatch):
        def refuse(_: Path) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("pathlib.Path.iterdir", refuse)
        with pytest.raises(ConfigError, match="is needed: the folder of the data cannot be listed"):
            default_account(tmp_path / "d")

    def test_in_a_store_is_found_beside_another_input(self):
        root = place_of(f"memory://{uuid.uuid4().hex}/data")
        make_reservations(default_account(root / "units", root / "records"), PERSONS)
        with pytest.raises(ConfigError, match=r"is needed: .*records.das-account"):
            default_account(root / "units")

    def test_is_not_looked_for_in_all_files_there_are(self):
        with pytest.raises(ConfigError, match=r"data\.path: is the root of all files"):
            default_account(Path("/"))

    def test_of_folders_that_change_while_they_are_listed(self):
        """Where a folder is gone before it can be listed, the listing goes on."""
        assert default_account(Path("/proc/self")).name == "self.das-account.jsonl"


@pytest.mark.parametrize("exists", [True, False])
def test_an_account_that_cannot_be_written_is_refused_untouched(tmp_path, monkeypatch, exists):
    account = tmp_path / "account"
    if exists:
        account.touch()
    check_account(account)
    monkeypatch.setattr("jobs.pipeline.storage.account.os.access", lambda *_: False)
    with pytest.raises(OutputError, match=r"cannot be written; got .*read-only disk; make it"):
        check_account(account)
    assert account.exists() == exists


def test_an_account_on_a_machine_without_the_data_is_not_judged(tmp_path):
    check_account(tmp_path / "not here" / "account")


def test_an_account_that_is_a_folder_is_refused(tmp_path):
    with pytest.raises(OutputError, match="cannot be written; got Is a directory"):
        check_account(tmp_path)
