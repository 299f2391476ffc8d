"""The spending of a run: parts measured once under a grant, their account and ledger.

The lifecycle of every noisy answer, of censuses and surveys:

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
    check_reservations,
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
    """A part measured as a whole: queries of a geolevel; a statistic, table or model of a survey.

    Attributes:
      name: Name of the geolevel, statistic, table or model, as in the ledger.
      dataset: Folder of its noisy answers.
      position: Indices of the part in the plan; they select the key of seeded noise.
      is_on_demand: Whether the part has the on-demand queries of a geolevel, or all others.
    """

    name: str
    dataset: Place
    position: Position
    is_on_demand: bool = False

    @property
    def account_name(self) -> str:
        """Return the name of the part in the account."""
        return f"{self.name}, on-demand queries" if self.is_on_demand else self.name


@dataclass(frozen=True)
class Spending:
    """The spending of a run on one product.

    Attributes:
      reservation: The reservation on a grant.
      account: The account; None if nothing is spent, because noise is seeded or imported.
      data: The input.
      folder: The run folder.
      release: Paths of the release, with measurements and ledger.
      parts: All measured parts, in order.
      seed: Public seed of noise that is not for release; None for secret noise.
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
        """Return the log of draws; None if nothing is spent."""
        return None if self.account is None else Draws(self.account, self.reservation, self.folder)

    @property
    def measured(self) -> list[Part]:
        """Return the parts whose noisy answers are published."""
        return [part for part in self.parts if is_published(part.dataset)]


def refuse_spent_grants(spendings: Sequence[Spending], *, is_new: bool = False) -> None:
    """Refuse a run whose grants were spent by another run.

    Args:
      spendings: Spending of all products.
      is_new: Whether the run folder does not exist yet.

    Raises:
      LedgerError: A grant was spent by another run.
      BudgetError: The grants exceed the limit of the account.
      OutputError: The account cannot be written.
    """
    account = spendings[-1].account  # all products share it
    if account is not None:
        if is_new:
            check_account(account)
        check_reservations(account, *(spending.reservation for spending in spendings))


def refuse_older_account(spendings: Sequence[Spending], *, moved: bool = False) -> None:
    """Refuse an account that was rolled back since this run folder last saw it.

    Args:
      spendings: Spending of all products.
      moved: As for `Draws.begin`.

    Raises:
      LedgerError: Lines that the folder saw are missing.
    """
    last = spendings[-1]
    if last.account is None or is_renamed(last.folder, last.account):
        return  # another account is refused when grants are claimed
    is_complete = all(len(spending.measured) == len(spending.parts) for spending in spendings)
    refuse_rolled_back(last.folder, last.account, is_complete=is_complete, moved=moved)


def reserve_budgets(spendings: Sequence[Spending]) -> None:
    """Reserve the grants of all products, once; they stay spent even if the run fails.

    The release keeps a copy of the account at this time, without later grants. The account and the
    run folder keep a keyed digest of each input, to detect a second account for the same data. No
    digest of an input is in the release.

    Raises:
      LedgerError: A grant was spent by another run, or another account has grants for the data.
    """
    last = spendings[-1]
    if last.account is None:
        return
    refuse_other_account(last.folder, last.account)
    known = {(grant.product, grant.grant) for grant in read_account(last.account)}
    reservations = []
    for spending in spendings:
        reservation = spending.reservation
        if (reservation.product, reservation.grant) not in known:
            digest = input_digest(spending.data, last.account)
            refuse_second_account(last.account, spending.data, digest)
            reservation = replace(reservation, input=keyed(digest))
        reservations.append(reservation)
    inputs = {c.product: c.input for c in reservations if c.input is not None}
    note_account(last.folder, last.account, inputs)
    spent = make_reservations(last.account, *reservations)
    note_account_line(last.folder, last.account)
    if not last.release.account.exists():
        write_document(last.release.account, account_of_grants(spent))


def refuse_other_draws(spendings: Sequence[Spending]) -> None:
    """Refuse a folder whose measurements differ from those recorded in the account.

    Raises:
      LedgerError: A copy of the folder measured other answers under the grant.
    """
    for spending in spendings:
        draws = spending.draws
        if draws is None:
            continue
        for part in spending.measured:
            draws.confirm(part.account_name, dataset_digest(part.dataset), "", write=False)


def refuse_lost_ledger(spending: Spending) -> None:
    """Refuse to continue without the ledger, which records the measurements.

    Raises:
      LedgerError: The ledger is gone though the grant was claimed or answers were measured; or it
        was altered.
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
    """List the noisy answers of the ledger that are missing or changed, each with an error."""
    if not is_begun(spending.release.ledger):
        return []

    def loss_of(recorded: tuple[Place, str]) -> OutputError | None:
        dataset, digest = recorded
        if not is_published(dataset):
            return OutputError(str(dataset), "is missing")
        if dataset_digest(dataset) == digest:
            return None
        return OutputError(str(dataset / MANIFEST), "is not the one that the ledger names")

    recorded = recorded_draws(spending.release)
    losses = at_once(spending.release.root, loss_of, recorded.items())
    return [(path, loss) for path, loss in zip(recorded, losses, strict=True) if loss is not None]


def refuse_lost(spendings: Sequence[Spending]) -> None:
    """Refuse to continue if paid noisy answers or the ledger are missing or changed.

    Raises:
      LedgerError: Noisy answers or the ledger are lost, and nothing may be measured again under
        this grant.
    """
    for spending in spendings:
        refuse_lost_ledger(spending)
        for _, error in lost_measurements(spending):
            raise lost_answers(error)
        for part in spending.measured:
            for damage in find_damage(part.dataset):
                raise lost_answers(damage)


def spending_of(resolved: Resolved, product: Product, identity: str | None = None) -> Spending:
    """Return the spending of a run on a product.

    Args:
      resolved: The run.
      product: A product of the run.
      identity: Identity of the run folder; default: the one in run.json.

    Raises:
      ConfigError: The run file names no account, and several are possible.
    """
    folder, plan, release = resolved.config.output.directory, product.plan, product.release
    if identity is None:
        identity = remembered_run(folder)
    parts = []
    for level in plan.levels:
        parts.append(Part(level.name, release.measurements(level.name), (level.index, 0)))
        if level.on_demand:
            dataset = release.lazy_measurements(level.name)
            parts.append(Part(level.name, dataset, (level.index, 1), is_on_demand=True))
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
    """Return the spending on each product of a run, whose folder has the given identity."""
    return [spending_of(resolved, product, identity) for product in resolved.products.values()]
