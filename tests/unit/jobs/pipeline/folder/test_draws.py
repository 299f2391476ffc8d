"""One grant, one draw: of all copies of a folder, one measures a geolevel."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from fractions import Fraction

import pytest

from das.errors import LedgerError
from das.privacy.budget import Budget
from das.queries.sensitivity import Neighbors
from jobs.pipeline.folder.draws import Draws
from jobs.pipeline.storage.account import Reservation, make_reservations, read_account
from jobs.pipeline.storage.journal import read_journal

BUDGET = Budget(Fraction(1), Fraction(1, 10**10), Neighbors.BOUNDED)


@pytest.fixture
def first(tmp_path) -> Draws:
    """The draws of a folder that claimed its grant."""
    folder = tmp_path / "first"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"run": "r"}))
    reservation = Reservation("persons", "1", BUDGET, "r", str(folder), BUDGET.total)
    make_reservations(tmp_path / "account", reservation)
    return Draws(tmp_path / "account", reservation, folder)


def copied(draws: Draws, name: str) -> Draws:
    """The same run in a copy of its folder."""
    folder = draws.folder.parent / name
    shutil.copytree(draws.folder, folder)
    return replace(draws, folder=folder, reservation=replace(draws.reservation, folder=str(folder)))


def gone(draws: Draws) -> None:
    shutil.rmtree(draws.folder)


def test_a_geolevel_is_begun_recorded_and_never_begun_again(first):
    attempt = first.begin("state")
    assert first.measured("state") is None
    assert first.record("state", attempt, "digest") is None
    assert first.record("state", attempt, "digest") is None
    found = first.measured("state")
    assert found is not None
    assert (found.sha256, found.attempt, found.folder) == ("digest", attempt, str(first.folder))
    with pytest.raises(LedgerError, match=r"state: was measured under grant '1' before, and"):
        first.begin("state")
    with pytest.raises(LedgerError, match="was measured"):
        first.begin("state", moved=True)
    first.begin("county")


def test_a_folder_whose_driver_died_draws_again(first):
    """Before the account knew of the attempt, or after."""
    first.begin("state")
    account = first.account.read_bytes()
    attempt = first.begin("state")
    first.account.write_bytes(account)
    last = first.begin("state")
    assert attempt != last
    assert first.record("state", last, "digest") is None


def test_a_copy_is_refused_as_long_as_the_folder_is_there(first):
    first.begin("state")
    copy = copied(first, "copy")
    with pytest.raises(
        LedgerError, match=r"in a copy of the folder .*first; go on there; .*--moved"
    ):
        copy.begin("state")
    gone(first)
    copy.begin("state")


def test_of_two_copies_the_first_to_draw_goes_on(first):
    first.begin("state")
    one, other = copied(first, "one"), copied(first, "other")
    gone(first)
    attempt = one.begin("state")
    gone(one)  # no longer there to be seen, and still the one that counts
    with pytest.raises(LedgerError, match=r"another copy .* began to draw it later.*got .*one, "):
        other.begin("state")
    taken = other.begin("state", moved=True)
    earlier = one.record("state", attempt, "digest of one")
    assert earlier is not None
    assert earlier.attempt == taken
    assert other.record("state", taken, "digest of other") is None
    assert one.record("state", attempt, "digest of one") == other.measured("state")


def test_a_folder_that_moved_goes_on(first):
    first.begin("state")
    first.folder.rename(first.folder.with_name("elsewhere"))
    moved = replace(first, folder=first.folder.with_name("elsewhere"))
    assert moved.record("state", moved.begin("state"), "digest") is None


def test_a_folder_seen_under_two_paths_is_one(first):
    first.begin("state")
    link = first.folder.with_name("link")
    link.symlink_to(first.folder)
    replace(first, folder=link).begin("state")


def test_another_folder_in_the_old_place_hinders_nobody(first):
    copy = copied(first, "copy")
    (first.folder / "run.json").write_text(json.dumps({"run": "another"}))
    copy.begin("state")


def test_an_older_backup_is_refused_with_the_reason(first):
    copied(first, "backup")
    first.record("state", first.begin("state"), "digest")
    gone(first)
    shutil.move(first.folder.with_name("backup"), first.folder)
    with pytest.raises(LedgerError, match="restored from a backup that is older"):
        first.begin("state")
    copied(first, "backup")
    first.begin("county")
    gone(first)
    shutil.move(first.folder.with_name("backup"), first.folder)
    with pytest.raises(LedgerError, match="this one is older"):
        first.begin("county")


def test_products_and_grants_are_apart(first):
    for reservation in (
        replace(first.reservation, product="units"),
        replace(first.reservation, grant="2"),
    ):
        other = replace(first, reservation=reservation)
        with pytest.raises(LedgerError, match="does not hold the reservation of this run"):
            other.begin("state")
        make_reservations(first.account, reservation)
        assert other.record("state", other.begin("state"), reservation.product) is None
    assert first.measured("state") is None
    first.begin("state")


def test_measurements_the_account_does_not_know_are_told_to_it(first):
    """An account of an older version holds reservations only, and one from a backup fewer lines."""
    first.confirm("state", "digest", "", write=False)
    assert first.measured("state") is None
    first.confirm("state", "digest", "attempt", write=True)
    first.confirm("state", "digest", "attempt", write=True)
    assert len(read_journal(first.account)) == 2
    for write in (True, False):
        with pytest.raises(LedgerError, match="holds other measurements than those recorded"):
            first.confirm("state", "another", "x", write=write)
    with pytest.raises(LedgerError, match="was measured"):
        copied(first, "copy").begin("state")


def test_an_account_that_vanished_while_it_was_drawn_stops_the_run(first):
    attempt = first.begin("state")
    first.account.unlink()
    with pytest.raises(LedgerError, match="does not hold the reservation"):
        first.record("state", attempt, "digest")
    with pytest.raises(LedgerError, match="does not hold the reservation"):
        first.begin("state")
    assert first.measured("state") is None


def test_draws_are_no_claims(first):
    first.record("state", first.begin("state"), "digest")
    assert len(read_account(first.account)) == 1
    assert first.account.stat().st_mode & 0o077 == 0


def test_a_line_that_lacks_something_is_refused(first):
    from jobs.pipeline.storage.journal import append_to_journal

    append_to_journal(first.account, lambda _: [{"event": "drawing", "product": "persons"}])
    with pytest.raises(LedgerError, match="not of an account; got 'grant'"):
        first.begin("state")
