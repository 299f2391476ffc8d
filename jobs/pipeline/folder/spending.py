"""What a run spends: the parts that it measures once under a grant, their account and ledger.

The lifecycle of every noisy answer, of censuses and surveys alike:

1. `refuse_spent_grants` before anything is written, `reserve_budgets` before the first draw;
2. `jobs.pipeline.confidential.draw.draw_part` draws a part, once, between two lines of the account;
3. `refuse_lost` and `refuse_other_draws` at every later start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from das.errors import LedgerError, OutputError
from das.mechanisms.entropy import Position
from jobs.pipeline.config.product import Product, Resolved, account_of, reservation_of
from jobs.pipeline.documents.account import account_of_grants
from jobs.pipeline.documents.document import write_document
from jobs.pipeline.folder.draws import Draws, lost_answers, note_account_line, refuse_rolled_back
from jobs.pipeline.folder.identity import (
    input_digest,
    is_renamed,
    note_account,
    refuse_other_account,
    remembered_run,
)
from jobs.pipeline.storage.account import (
    Reservation,
    check_account,
    check_reservation,
    keyed,
    make_reservations,
    read_account,
    refuse_second_account,
)
from jobs.pipeline.storage.dataset import MANIFEST, dataset_digest, find_damage, is_published
from jobs.pipeline.storage.journal import is_begun
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.ledger import recorded_draws
from jobs.pipeline.storage.place import Place, at_once


@dataclass(frozen=True)
class Part:
    """What is measured at once: queries of a geolevel; a statistic, table or model of a survey.

    Attributes:
      name: Name of the geolevel, statistic, table or model; what the ledger calls the part.
      dataset: Where its noisy answers go.
      position: Indices of the part in the plan; they select the key of seeded noise.
      is_on_demand: Whether it is the on-demand queries of a geolevel, and not the others.
    """

    name: str
    dataset: Place
    position: Position
    is_on_demand: bool = False

    @property
    def account_name(self) -> str:
        """What the account calls the part."""
        return f"{self.name}, on-demand queries" if self.is_on_demand else self.name


@dataclass(frozen=True)
class Spending:
    """What a run spends on one product.

    Attributes:
      reservation: The reservation to make in the account.
      account: The account; None if nothing is spent: noise is seeded, or was drawn elsewhere.
      data: The input.
      folder: The run folder.
      release: The publishable half, where measurements and ledger lie.
      parts: All that is measured, in order.
      seed: Of noise that is for no release.
    """

    reservation: Reservation
    account: Place | None
    data: Place
    folder: Place
    release: ReleaseLayout
    parts: tuple[Part, ...]
    seed: int | None = None

    @property
    def draws(self) -> Draws | None:
        """What the account knows of the draws; None if nothing is spent."""
        return None if self.account is None else Draws(self.account, self.reservation, self.folder)

    @property
    def measured(self) -> list[Part]:
        """The parts whose noisy answers are published."""
        return [part for part in self.parts if is_published(part.dataset)]


def refuse_spent_grants(spendings: Sequence[Spending], *, is_new: bool = False) -> None:
    """Refuse a run that could not reserve its grants.

    Args:
      spendings: Of all products.
      is_new: Whether the run folder is yet to be made.

    Raises:
      LedgerError: A grant was spent by another run.
      OutputError: The account cannot be written.
    """
    for spending in spendings:
        if spending.account is not None:
            if is_new:
                check_account(spending.account)
            check_reservation(spending.account, spending.reservation)


def refuse_older_account(spendings: Sequence[Spending], *, moved: bool = False) -> None:
    """Refuse an account that was rolled back since this run folder last saw it.

    Args:
      spendings: Of all products.
      moved: As for `Draws.begin`.

    Raises:
      LedgerError: It was.
    """
    last = spendings[-1]
    if last.account is None or is_renamed(last.folder, last.account):
        return  # another account is refused when grants are claimed
    is_complete = all(len(spending.measured) == len(spending.parts) for spending in spendings)
    refuse_rolled_back(last.folder, last.account, is_complete=is_complete, moved=moved)


def reserve_budgets(spendings: Sequence[Spending]) -> None:
    """Reserve the grants of all products, once; they stay spent whatever happens after.

    The release keeps the account as it was then: later grants are not of its manifest. The account
    and the run folder keep a keyed digest of each input, by which a second account for the same
    data is noticed. No digest of an input is in the release.

    Raises:
      LedgerError: A grant was spent by another run, or another account has grants for the data.
    """
    last = spendings[-1]
    if last.account is None:
        return
    refuse_other_account(last.folder, last.account)
    known = {(one.product, one.grant) for one in read_account(last.account)}
    reservations = []
    for spending in spendings:
        reservation = spending.reservation
        if (reservation.product, reservation.grant) not in known:
            digest = input_digest(spending.data, last.account)
            refuse_second_account(last.account, spending.data, digest)
            reservation = replace(reservation, input=keyed(digest))
        reservations.append(reservation)
    inputs = {one.product: one.input for one in reservations if one.input is not None}
    note_account(last.folder, last.account, inputs)
    spent = make_reservations(last.account, *reservations)
    note_account_line(last.folder, last.account)
    if not last.release.account.exists():
        write_document(last.release.account, account_of_grants(spent))


def refuse_other_draws(spendings: Sequence[Spending]) -> None:
    """Refuse a folder whose measurements are not those that the account knows.

    Raises:
      LedgerError: Others were measured under the grant, in a copy of the folder.
    """
    for spending in spendings:
        draws = spending.draws
        if draws is None:
            continue
        for part in spending.measured:
            draws.confirm(part.account_name, dataset_digest(part.dataset), "", write=False)


def refuse_lost_ledger(spending: Spending) -> None:
    """Refuse to go on without the ledger: nobody knows what was measured.

    Raises:
      LedgerError: It is gone though the grant was claimed or answers were measured; or it was
        tampered with.
    """
    ledger = spending.release.ledger
    if is_begun(ledger):
        recorded_draws(spending.release)
        return
    run, account = spending.reservation.run, spending.account
    is_claimed = account is not None and any(g.run == run for g in read_account(account))
    if is_claimed or spending.measured:
        raise LedgerError(
            str(ledger),
            "is gone, and with it the record of what was measured; the budget counts as spent",
            remedy="restore it from a backup; or give another privacy.budget_id and "
            "output.directory, and its cost is added to what the same people have lost",
        )


def lost_measurements(spending: Spending) -> list[tuple[Place, OutputError]]:
    """List the datasets of noisy answers that the ledger names and that are gone or changed."""
    if not is_begun(spending.release.ledger):
        return []
    recorded = recorded_draws(spending.release)

    def look(dataset: Place) -> str | None:
        return dataset_digest(dataset) if is_published(dataset) else None

    lost = []
    found = at_once(spending.release.root, look, [*recorded])
    for (dataset, digest), is_now in zip(recorded.items(), found, strict=True):
        if is_now is None:
            lost.append((dataset, OutputError(str(dataset), "is missing")))
        elif is_now != digest:
            what = "is not the one that the ledger names"
            lost.append((dataset, OutputError(str(dataset / MANIFEST), what)))
    return lost


def refuse_lost(spendings: Sequence[Spending]) -> None:
    """Stop where noisy answers that were paid for are gone or changed, or the ledger is.

    Raises:
      LedgerError: They are lost; nothing may be measured again under this grant.
    """
    for spending in spendings:
        refuse_lost_ledger(spending)
        for _, error in lost_measurements(spending):
            raise lost_answers(error)
        for part in spending.measured:
            for damage in find_damage(part.dataset):
                raise lost_answers(damage)


def spending_of(resolved: Resolved, product: Product, identity: str | None = None) -> Spending:
    """Describe what a run spends on a product.

    Args:
      resolved: The run.
      product: One of its products.
      identity: That of the run folder; default: that which the folder remembers.

    Raises:
      ConfigError: No account is named, and several may be meant.
    """
    folder, plan, release = resolved.config.output.directory, product.plan, product.release
    if identity is None:
        identity = remembered_run(folder)
    parts = []
    for level in plan.levels:
        name = level.name
        parts.append(Part(name, release.measurements(name), (level.index, 0)))
        if level.on_demand:
            lazily = release.lazy_measurements(name)
            parts.append(Part(name, lazily, (level.index, 1), is_on_demand=True))
    return Spending(
        reservation=reservation_of(resolved, product, identity),
        account=account_of(resolved.config) if plan.spends else None,
        data=product.config.input.path,
        folder=folder,
        release=release,
        parts=tuple(parts),
        seed=product.seed if plan.not_for_release else None,
    )


def spendings_of(resolved: Resolved, identity: str) -> list[Spending]:
    """Describe what a run folder with this identity spends, product by product."""
    return [spending_of(resolved, product, identity) for product in resolved.products.values()]
