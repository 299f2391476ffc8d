"""Account: the budgets granted for one population, and the runs that reserved them.

There is one file per population, shared by all its products. A run must reserve its grant before
its first draw. From then on the grant counts as spent, whatever becomes of the run, and only the
same run folder can use it. Lines with a key `event` record draws under a reserved grant
(`jobs.pipeline.folder.draws`), failed checks of the input, or limits of the budget.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from das.definition import Definition
from das.errors import (
    BudgetError,
    ConfigError,
    InfeasibleError,
    InputError,
    LedgerError,
    OutputError,
)
from das.privacy.budget import (
    Budget,
    Composition,
    changed_record_bound,
    compose_budgets,
)
from das.queries.sensitivity import Neighbors
from das.rational import stated_fraction
from jobs.pipeline.storage.files import naming_file
from jobs.pipeline.storage.journal import LINES, append_to_journal, is_begun, read_journal
from jobs.pipeline.storage.place import Place, StoredPlace, is_same
from jobs.pipeline.storage.stores.store import probe

DRAWING, MEASURED, FAILED_DRAW = "drawing", "measured", "failed_draw"
FAILED_CHECK = "failed_check"
LIMIT = "limit"
_EVENTS = (DRAWING, MEASURED, FAILED_DRAW, FAILED_CHECK, LIMIT)
_ENDING = ".das-account.jsonl"
_REMEDY = "make it writable for those who measure, or name another file under privacy.account"


@dataclass(frozen=True)
class Reservation:
    """Reservation of a grant by a run. Earlier versions stated less.

    Attributes:
      product: Name of the product, such as "persons" or "units".
      grant: Name of the budget that pays for it.
      budget: The budget.
      run: Identity of the run folder.
      folder: Path of the run folder, for people.
      changed_record: Cost of any change of one record, in units of the budget; exact, or an upper
        bound for earlier versions.
      exact: Queries published without noise, and their geolevels, for people; None for earlier
        versions.
      input: Digest of the input by `keyed`; None before the reservation and for earlier versions.
    """

    product: str
    grant: str
    budget: Budget
    run: str
    folder: str
    changed_record: Fraction
    exact: tuple[str, ...] | None = ()
    input: str | None = None


@dataclass(frozen=True)
class Spent(Reservation):
    """One reserved grant, which counts as spent in full.

    Attributes:
      claimed: Time of the reservation, UTC.
    """

    claimed: str = field(kw_only=True)


@dataclass(frozen=True)
class FailedCheck:
    """A failed check of the input, whose error revealed a fact that no budget paid for.

    Attributes:
      product: Name of the product.
      grant: Name of its budget, which was not reserved.
      run: Identity of the run folder.
      folder: Path of the run folder.
      geounit: Place in the error: a geolevel and geocode, or a file, row and column.
      at: Time, UTC.
    """

    product: str
    grant: str
    run: str
    folder: str
    geounit: str
    at: str


@dataclass(frozen=True)
class BudgetLimit:
    """The most that may be granted for the people of an account, in all.

    Attributes:
      total: The limit: rho, or epsilon if the definition is pure. It bounds the composition for an
        added or removed record if all grants state that, else for a changed record.
      definition: Privacy definition, which determines the unit.
      reason: Who decided it, and why.
      at: Time of the decision, UTC.
    """

    total: Fraction
    definition: Definition
    reason: str
    at: str

    def spent(self, grants: Sequence[Reservation]) -> Fraction:
        """Return what grants cost together, in the unit of the limit.

        Raises:
          BudgetError: The limit is an epsilon of pure differential privacy, and a grant counts rho.
        """
        if not grants:
            return Fraction(0)
        budget = composed(grants)[0].budget
        if not self.definition.is_pure:
            return budget.rho
        if not budget.definition.is_pure:
            raise BudgetError(
                "the limit of the account",
                "counts epsilon of pure differential privacy, and a grant counts rho",
                remedy="set a limit by `das account --limit` for a run file with definition zcdp",
            )
        return budget.total


def default_account(*inputs: Place) -> Place:
    """Find the account of the inputs of a run that names none, however paths are spelled.

    An account is a sibling of its input. A file and its folder may hold the same people, so the
    account of a folder covers everything in it. All products of a run are about the same people,
    and another run may have begun an account next to any input. So every input must lead to the
    same account, and no other account may be near an input.

    Args:
      inputs: The inputs of all products, the last product's last; absolute paths without links.

    Raises:
      ConfigError: Several accounts may be meant, or the inputs lie in several folders and do not
        share an account; or an input is the root of all files.
    """
    around, near = dict[Place, None](), list[dict[Place, None]]()
    for data in inputs:
        if data == data.parent:
            raise ConfigError(
                "data.path", "is the root of all files", got=data, want="a file or folder"
            )
        above = dict.fromkeys(_around(data))
        around |= above
        near.append(above | dict.fromkeys([*_within(data), *_accounts_in(data.parent)]))
    accounts = {path: None for paths in near for path in paths}
    if not accounts and len({data.parent for data in inputs}) == 1:
        return _beside(inputs[-1])
    if len(accounts) == 1 and accounts == around and all(paths == accounts for paths in near):
        return next(iter(accounts))
    what = "more than one account may be that of these people"
    want = "the account that all runs on them share"
    if not accounts:
        what = "the inputs of the products lie in several folders, and share no account"
    elif len(accounts) == 1:
        what = "the account near the data is not that of every input, but may be of the same people"
        want = f"this account if they are the same, else a new one such as {_beside(inputs[-1])}"
    raise ConfigError(
        "privacy.account",
        f"is needed: {what}",
        got=[str(path) for path in accounts or inputs],
        want=want,
    )


def keyed(digest: bytes, key: bytes | None = None) -> str:
    """Return a keyed digest (HMAC-SHA-256) of confidential data; only the data can reproduce it.

    Args:
      digest: Digest of the data, which is never written itself.
      key: The key; None draws 16 random bytes.

    >>> text = keyed(b"digest")
    >>> is_keyed(text, b"digest"), is_keyed(text, b"other"), text == keyed(b"digest")
    (True, False, False)
    """
    key = uuid.uuid4().bytes if key is None else key
    return f"{key.hex()}:{hmac.digest(key, digest, 'sha256').hex()}"


def is_keyed(text: str, digest: bytes) -> bool:
    """Return whether a text is a result of `keyed` for this digest."""
    return hmac.compare_digest(text, keyed(digest, bytes.fromhex(text.partition(":")[0])))


def refuse_second_account(path: Place, data: Place, digest: bytes) -> None:
    """Refuse an account if another account near the data has grants for the same data.

    Args:
      path: The account of the run.
      data: The input.
      digest: Digest of the bytes of the input.

    Raises:
      LedgerError: Another account has a grant for the data, and its cost would never be added to
        this one.
    """
    moved = "" if is_there(path) else f", or move it to {path}"
    for other in other_accounts(path, data):
        for spent in read_account(other):
            if spent.input is not None and is_keyed(spent.input, digest):
                raise LedgerError(
                    str(path),
                    "is a second account: another one holds grants for the same data",
                    got=f"{other}: grant {spent.grant!r} of {spent.product!r}",
                    remedy=f"name that account under privacy.account{moved}",
                )


def other_accounts(path: Place, data: Place) -> list[Place]:
    """List the accounts in the folder of an input, around or within it, except one."""
    near = dict.fromkeys([*_around(data), *_within(data)])
    with contextlib.suppress(ConfigError):  # a folder that cannot be listed; the account was named
        near |= dict.fromkeys(_accounts_in(data.parent))
    return [one for one in near if one != path and not (is_there(path) and is_same(path, one))]


def proposed_account(data: Place) -> tuple[Place, bool]:
    """Propose the account of an input whose run file names none yet.

    Returns:
      The account, and whether it may be one of other people: it exists for other data near the
      input. Adding budgets of other people overstates the loss; a second account would hide it.
    """
    try:
        return default_account(data), False
    except ConfigError:
        near = other_accounts(_beside(data), data)
        return (near[0], True) if near else (_beside(data), False)


def is_there(account: Place) -> bool:
    """Return whether an account exists: a file, a journal in a store, or a copy of one."""
    return is_begun(account) or (isinstance(account, Path) and account.exists())


def _around(data: Place) -> list[Place]:
    """List the accounts of an input and of the folders that contain it."""
    return [path for path in (_beside(data), *map(_beside, data.parents)) if is_there(path)]


def _accounts_in(folder: Place) -> list[Place]:
    """List the accounts that lie directly in a folder.

    Raises:
      ConfigError: The folder cannot be listed, so it may contain an account.
    """
    try:
        names = [place.name.removesuffix(LINES) for place in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ConfigError(
            "privacy.account",
            "is needed: the folder of the data cannot be listed, and may have one",
            got=f"{folder}: {error.strerror}",
            want="the account that all runs on these people share",
        ) from None
    return [folder / name for name in sorted({*names}) if name.endswith(_ENDING)]


def _within(data: Place) -> list[Place]:
    """List the accounts of files within the input."""
    if isinstance(data, StoredPlace):
        names = {
            name.rpartition(f"{LINES}/")[0] if f"{_ENDING}{LINES}/" in name else name
            for name in data.store.files(data.key)
        }
        return [StoredPlace(data.root, name) for name in sorted(names) if name.endswith(_ENDING)]
    return sorted(  # folders that cannot be listed, or go meanwhile, are passed by
        Path(folder) / name
        for folder, _, names in os.walk(data)
        for name in names
        if name.endswith(_ENDING)
    )


def _beside(data: Place) -> Place:
    return data.with_name(f"{data.name}{_ENDING}") if data.name else data / _ENDING


def check_account(path: Place) -> None:
    """Refuse an account that cannot be written, as far as permissions show it.

    Raises:
      OutputError: The account cannot be written.
    """
    if isinstance(path, StoredPlace):
        with naming_file(path, "the account cannot be kept there", _REMEDY):
            probe(path.store, path.parent.key)
        return
    if path.exists():
        usable = path.is_file() and os.access(path, os.R_OK | os.W_OK)
    else:
        usable = not path.parent.exists() or os.access(path.parent, os.W_OK | os.X_OK)
    if not usable:
        got = os.strerror(errno.EISDIR) if path.is_dir() else "no permission, or a read-only disk"
        raise OutputError(str(path), "the account cannot be written", got=got, remedy=_REMEDY)


def read_account(path: Place) -> tuple[Spent, ...]:
    """Read all reserved grants, oldest first.

    Raises:
      LedgerError: The file was tampered with.
    """
    return reservations_among(path, read_journal(path))


def read_failed_checks(path: Place) -> tuple[FailedCheck, ...]:
    """Read the failed checks of the input, oldest first.

    Raises:
      LedgerError: The file was tampered with.
    """
    keys = FailedCheck.__dataclass_fields__
    return tuple(
        FailedCheck(**{key: str(line.get(key)) for key in keys})
        for line in read_journal(path)
        if line.get("event") == FAILED_CHECK
    )


def read_limits(path: Place) -> tuple[BudgetLimit, ...]:
    """Read the limits of an account, oldest first; the last one holds.

    Raises:
      LedgerError: The file was tampered with.
    """
    return _limits_among(path, read_journal(path))


def set_limit(path: Place, limit: BudgetLimit) -> None:
    """Record a limit, which replaces the one before; earlier ones stay in the account.

    Raises:
      BudgetError: The limit is not positive, or has no reason.
      OutputError: The account cannot be written.
    """
    if limit.total <= 0 or not limit.reason.strip():
        got = f"{limit.total}, {limit.reason!r}"
        want = "a positive number, and a reason by --reason"
        raise BudgetError("--limit", "cannot be recorded", got=got, want=want)
    line = {
        "event": LIMIT,
        "total": str(limit.total),
        "definition": str(limit.definition),
        "reason": limit.reason,
        "at": limit.at,
    }
    append_to_journal(path, lambda _: [line])


def _limits_among(path: Place, lines: Sequence[Mapping[str, Any]]) -> tuple[BudgetLimit, ...]:
    limits = []
    for line in lines:
        if line.get("event") == LIMIT:
            try:
                total, definition = stated_fraction(line["total"]), Definition(line["definition"])
                limits.append(BudgetLimit(total, definition, str(line["reason"]), str(line["at"])))
            except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
                what = "holds a line that is not of an account"
                raise LedgerError(str(path), what, got=error) from None
    return tuple(limits)


def refuse_above_limit(
    path: Place, limits: Sequence[BudgetLimit], grants: Sequence[Reservation]
) -> None:
    """Refuse grants that cost more than the last limit of an account.

    Raises:
      BudgetError: The limit is exceeded.
    """
    if limits and (cost := limits[-1].spent(grants)) > limits[-1].total:
        raise BudgetError(
            str(path),
            "the budget of these people would exceed the limit of the account",
            got=cost,
            want=f"at most {limits[-1].total}, by the decision of {limits[-1].at}: "
            f"{limits[-1].reason}",
            remedy="grant less; or let those who set the limit raise it by `das account --limit`, "
            "which is recorded",
        )


def note_failed_check(path: Place, reservation: Reservation, geounit: str) -> None:
    """Record a failed check of the input, before its error is shown.

    Raises:
      OutputError: The account cannot be written; then the error must not be shown.
    """
    failed = FailedCheck(
        reservation.product, reservation.grant, reservation.run, reservation.folder, geounit, now()
    )
    append_to_journal(path, lambda _: [{"event": FAILED_CHECK, **asdict(failed)}])


@contextmanager
def noted_failures(path: Place, reservation: Reservation) -> Iterator[None]:
    """Record in the account that the input failed a check, before the error names the place.

    The error is an exact answer about the data that no budget pays for, even with seeded noise.
    """
    try:
        yield
    except (InfeasibleError, InputError) as error:
        note_failed_check(path, reservation, error.where)
        raise


def check_reservations(path: Place, *reservations: Reservation) -> None:
    """Check reservations as `make_reservations` would, without making them.

    Raises:
      LedgerError: A grant was spent by another run.
      BudgetError: Together with all grants they exceed the limit.
    """
    _new_among(path, reservations, read_journal(path))


def make_reservations(path: Place, *reservations: Reservation) -> tuple[Spent, ...]:
    """Reserve grants for a run, all or none; earlier reservations of the same run are kept.

    Returns:
      All reserved grants of the account.

    Raises:
      LedgerError: The grant was spent by another run, or for another budget.
      BudgetError: Together with all grants they exceed the limit.
      OutputError: The account cannot be written; then nothing may be measured.
    """

    def decide(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [_line(reservation) for reservation in _new_among(path, reservations, lines)]

    return reservations_among(path, append_to_journal(path, decide))


def reservations_among(path: Place, lines: Sequence[Mapping[str, Any]]) -> tuple[Spent, ...]:
    """Return the reserved grants among the lines of an account.

    Raises:
      LedgerError: A line is not of an account, or of a later version of this program.
    """
    for line in lines:
        if "event" in line and line["event"] not in _EVENTS:
            what = "holds a line that is not of an account"
            raise LedgerError(str(path), what, got=f"event {line['event']}")
    return tuple(_spent(path, line) for line in lines if "event" not in line)


def now() -> str:
    """Return the time in UTC as ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def composed(spent: Sequence[Reservation]) -> tuple[Composition, ...]:
    """Compose all grants of an account: the total privacy loss of its people.

    Every grant states the cost of a changed record. A grant for bounded neighbors states nothing
    about an added record, so that sum exists only if all grants are for unbounded neighbors.

    Returns:
      The sum for added and removed records, if all grants state it; then the sum for changed
      records. Empty without grants.
    """
    added = [grant.budget for grant in spent]
    changed = [
        Budget(grant.changed_record, grant.budget.delta, Neighbors.BOUNDED, grant.budget.definition)
        for grant in spent
    ]
    is_stated = all(budget.neighbors is Neighbors.UNBOUNDED for budget in added)
    sums = [added, changed] if is_stated else [changed]
    return tuple(compose_budgets(budgets) for budgets in sums if budgets)


def _new_among(
    path: Place, reservations: Sequence[Reservation], lines: Sequence[Mapping[str, Any]]
) -> list[Reservation]:
    """Return the reservations that the account lacks, if they fit in its limit."""
    spent = reservations_among(path, lines)
    new = [reservation for reservation in reservations if _is_new(path, reservation, spent)]
    if new:
        refuse_above_limit(path, _limits_among(path, lines), [*spent, *new])
    return new


def _is_new(path: Place, reservation: Reservation, spent: Sequence[Spent]) -> bool:
    for grant in spent:
        if (grant.product, grant.grant) != (reservation.product, reservation.grant):
            continue
        if grant.run != reservation.run:
            raise LedgerError(
                str(path),
                f"grant {reservation.grant!r} of {reservation.product!r} was spent by another run",
                got=f"{grant.folder}, {grant.claimed}",
                remedy="go on in that folder; or grant a new budget for the same people by another "
                "privacy.budget_id, and its cost is added to what they have lost",
            )
        if grant.budget != reservation.budget:
            raise LedgerError(
                str(path),
                "holds another budget for this run",
                got=grant.budget,
                want=reservation.budget,
            )
        return False
    return True


def _line(reservation: Reservation) -> dict[str, Any]:
    return {
        "product": reservation.product,
        "grant": reservation.grant,
        **reservation.budget.exact(),
        "run": reservation.run,
        "folder": reservation.folder,
        "claimed": now(),
        "changed_record": str(reservation.changed_record),
        "exact": [*(reservation.exact or ())],
        **({} if reservation.input is None else {"input": reservation.input}),
    }


def _spent(path: Place, line: Mapping[str, Any]) -> Spent:
    try:
        budget = Budget(
            stated_fraction(line["total"]),
            stated_fraction(line["delta"]),
            Neighbors(line["neighbors"]),
            Definition(line["definition"]),
        )
        return Spent(
            product=line["product"],
            grant=line["grant"],
            budget=budget,
            run=line["run"],
            folder=line["folder"],
            claimed=line["claimed"],
            changed_record=stated_fraction(line["changed_record"])
            if line.get("changed_record")
            else changed_record_bound(budget),
            exact=tuple(map(str, line["exact"])) if "exact" in line else None,
            input=line.get("input"),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise LedgerError(str(path), "holds a line that is not of an account", got=error) from None
