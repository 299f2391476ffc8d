"""Record the draws of noise in the account, so that each part is drawn once per grant.

A part is measured as a whole: queries of a geolevel of a census; a statistic, table or model of a
survey. Lines of the account have the name of the part under the key `geolevel`.

A run folder can be copied, or restored from a backup, with its identity. So draws are recorded
outside of the folder, part by part, in the account:

1. Before the noise of a part is drawn, a line `drawing` names the attempt by a random number.
   The folder keeps the numbers of its attempts (`OUT/draws.jsonl`, written first). A folder
   without the last attempt of the account is an outdated copy, and is refused.
2. Before the noisy answers become readable, a line `measured` records their digest. The line is
   refused if another attempt began or was measured meanwhile; the answers are then removed unread.

If measuring code fails after it drew noise, a line `failed_draw` records this, and the part is
never drawn again: the error may reveal information about the noise. If a driver, a worker or a disk
dies, nothing is revealed, and the part is drawn again.

So only one draw of each part and grant is ever readable, even after copies and crashes.

The folder also keeps the number and digest of the last line that it saw in the account. An account
without this line was restored from an older backup and lacks grants that were spent since; every
start refuses it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from das.errors import LedgerError, OutputError, SpentError
from jobs.pipeline.storage.account import (
    DRAWING,
    FAILED_CHECK,
    FAILED_DRAW,
    MEASURED,
    Reservation,
    now,
    reservations_among,
)
from jobs.pipeline.storage.dataset import (
    Dataset,
    accept,
    dataset_digest,
    find_damage,
    is_proposed,
    is_published,
    leftovers,
    read_proposal,
    remove_files,
    withdraw,
)
from jobs.pipeline.storage.journal import append_to_journal, line_digests, read_journal
from jobs.pipeline.storage.place import Place, is_same, place_of

_NEW_GRANT = (
    "or give another privacy.budget_id and output.directory, and its cost is added to what the "
    "same people have lost"
)


@dataclass(frozen=True)
class Draw:
    """One attempt to draw the noise of a part, or the measurements from it.

    Attributes:
      attempt: Random number of the attempt; empty if only the digest is known.
      folder: Path of the run folder at that time.
      at: Time in UTC.
      sha256: Digest of the measurements; None for an attempt.
    """

    attempt: str
    folder: str
    at: str
    sha256: str | None


@dataclass(frozen=True)
class Draws:
    """The log of draws of one product, in the account and in the run folder.

    Attributes:
      account: The account, in which the grant must be claimed.
      reservation: The reservation on the grant.
      folder: Current path of the run folder.
    """

    account: Place
    reservation: Reservation
    folder: Place

    def begin(self, part: str, *, moved: bool = False) -> str:
        """Record an attempt to draw a part, before its key is drawn.

        Args:
          part: Name of the part.
          moved: Whether the user confirmed that this moved or copied folder continues the run.

        Returns:
          The random number of the attempt.

        Raises:
          LedgerError: The part was measured under this grant; another folder began to draw it
            later; or the run exists in another folder too.
          OutputError: The account or the folder cannot be written.
        """
        attempt, journal = uuid.uuid4().hex, draws_journal(self.folder)
        known = [
            str(line.get("attempt"))
            for line in read_journal(journal)
            if (line.get("product"), line.get("geolevel")) == (self.reservation.product, part)
        ]
        noted = {"product": self.reservation.product, "geolevel": part, "attempt": attempt}
        line = {**self._line(DRAWING, part, attempt), **({"moved": True} if moved else {})}

        def decide(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
            self._refuse(lines, part, known, moved=moved)
            return [line]

        append_to_journal(journal, lambda _: [noted])
        append_to_journal(self.account, decide)
        note_account_line(self.folder, self.account)
        return attempt

    def record(self, part: str, attempt: str, sha256: str) -> Draw | None:
        """Record the digest of measurements, before they become readable.

        Returns:
          None if they are recorded; else the other attempt or measurements, in favor of which
          these must be discarded.

        Raises:
          OutputError: The account cannot be written.
        """
        earlier: list[Draw] = []

        def decide(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
            draws = self._of(lines, part)
            if not draws:
                self._unknown()
            measured = _measured(draws)
            if measured is None and draws[-1].attempt == attempt:
                return [{**self._line(MEASURED, part, attempt), "sha256": sha256}]
            if measured is None or measured.sha256 != sha256:
                earlier.append(measured or draws[-1])
            return []

        append_to_journal(self.account, decide)
        note_account_line(self.folder, self.account)
        return earlier[0] if earlier else None

    def fail(self, part: str, attempt: str) -> None:
        """Record that measuring code failed after it drew noise: the part is spent.

        Raises:
          OutputError: The account cannot be written.
        """
        line = self._line(FAILED_DRAW, part, attempt)
        append_to_journal(self.account, lambda _: [line])

    def measured(self, part: str) -> Draw | None:
        """Return the measurements of a part recorded under the grant, from any folder."""
        return _measured(self._of(read_journal(self.account), part))

    def attempt(self, part: str) -> str | None:
        """Return the last attempt at a part in the account."""
        draws = self._of(read_journal(self.account), part)
        return draws[-1].attempt if draws else None

    def confirm(self, part: str, sha256: str, attempt: str, *, write: bool) -> None:
        """Check that published measurements have the digest recorded in the account.

        An account from an older backup or version may lack the record. It is then added, so that no
        copy of the folder draws again.

        Args:
          part: Name of the part.
          sha256: Digest of the published measurements.
          attempt: Attempt named in their facts.
          write: Whether to add a missing record to the account.

        Raises:
          LedgerError: Other measurements are recorded under the grant.
        """

        def decide(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
            measured = _measured(self._of(lines, part))
            if measured is None:
                return [{**self._line(MEASURED, part, attempt), "sha256": sha256}]
            if measured.sha256 != sha256:
                raise LedgerError(
                    f"{self.folder}, {self.reservation.product}, part {part}",
                    "holds other measurements than those recorded under this grant; both together "
                    "reveal more than the grant allows",
                    got=f"recorded for {measured.folder}, {measured.at}",
                    remedy="use those and remove this folder; never publish what is in it",
                )
            return []

        if write:
            append_to_journal(self.account, decide)
        else:
            decide(read_journal(self.account))

    def _refuse(
        self, lines: Sequence[Mapping[str, Any]], part: str, known: Sequence[str], *, moved: bool
    ) -> None:
        reservation, draws = self.reservation, self._of(lines, part)
        where = f"{self.folder}, {reservation.product}, part {part}"
        claimed = {(c.run, c.product, c.grant) for c in reservations_among(self.account, lines)}
        if (reservation.run, reservation.product, reservation.grant) not in claimed:
            self._unknown()
        measured = _measured(draws)
        if measured is not None:
            raise LedgerError(
                where,
                f"was measured under grant {reservation.grant!r} before, and the measurements are "
                "not in this folder: it is a copy, or was restored from a backup that is older",
                got=f"measured in {measured.folder}, {measured.at}",
                remedy="go on there, or restore the measurements from a later backup; "
                + _NEW_GRANT,
            )
        failed = [line for line in lines if line.get("event") == FAILED_DRAW]
        names = (reservation.product, reservation.grant, part)
        if any((line["product"], line["grant"], line["geolevel"]) == names for line in failed):
            raise LedgerError(
                where,
                "was drawn before, and measuring failed after noise was drawn: its budget is spent",
                remedy=_NEW_GRANT.removeprefix("or "),
            )
        if moved:
            return
        if draws and draws[-1].attempt not in known:
            raise LedgerError(
                where,
                "another copy of this folder began to draw it later; this one is older",
                got=f"{draws[-1].folder}, {draws[-1].at}",
                remedy=f"go on there; if that copy is lost, `das run {self.folder} --moved`",
            )
        folders = [
            line["folder"]
            for line in lines
            if line.get("run") == reservation.run and line.get("event") != FAILED_CHECK
        ]
        if folders and _is_other_run(place_of(folders[-1]), self.folder, reservation.run):
            raise LedgerError(
                where,
                "would be drawn in a copy of the folder in which the run began",
                got=folders[-1],
                remedy=f"go on there; if it shall be given up, `das run {self.folder} --moved`",
            )

    def _unknown(self) -> NoReturn:
        raise LedgerError(
            str(self.account),
            f"does not hold the reservation of this run on grant {self.reservation.grant!r} of "
            f"{self.reservation.product!r}, or its draws",
            remedy="restore it from a backup, or name the account that the run was begun with",
        )

    def _of(self, lines: Sequence[Mapping[str, Any]], part: str) -> list[Draw]:
        """Return attempts and measurements of a part, oldest first."""
        wanted = (self.reservation.product, self.reservation.grant, part)
        about = [line for line in lines if line.get("event") in (DRAWING, MEASURED)]
        try:
            return [
                Draw(line["attempt"], line["folder"], line["at"], line.get("sha256"))
                for line in about
                if (line["product"], line["grant"], line["geolevel"]) == wanted
            ]
        except KeyError as error:
            what = "holds a line that is not of an account"
            raise LedgerError(str(self.account), what, got=error) from None

    def _line(self, event: str, part: str, attempt: str) -> dict[str, Any]:
        return {
            "event": event,
            "product": self.reservation.product,
            "grant": self.reservation.grant,
            "geolevel": part,
            "run": self.reservation.run,
            "folder": str(self.folder),
            "attempt": attempt,
            "at": now(),
        }


def note_account_line(folder: Place, account: Place) -> None:
    """Record the number and digest of the last line of an account in a run folder.

    Raises:
      LedgerError, OutputError: The account or the journal of the folder is altered, or cannot be
        written.
    """
    digests = line_digests(account)
    last = {"account_lines": len(digests), "account_sha256": digests[-1]}

    def decide(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [] if _account_line(lines) == last else [last]

    append_to_journal(draws_journal(folder), decide)


def refuse_rolled_back(folder: Place, account: Place, *, is_complete: bool, moved: bool) -> None:
    """Refuse an account that does not hold the last line that a run folder saw in it.

    Args:
      folder: The run folder.
      account: The account named in the run file.
      is_complete: Whether all parts of the run are measured in this folder.
      moved: Whether the user confirmed that this folder continues the run; accepted only for a
        complete folder, which draws nothing more.

    Raises:
      LedgerError: Lines of the account are missing.
    """
    seen = _account_line(read_journal(draws_journal(folder)))
    if seen is None:
        return
    digests = line_digests(account)
    number = seen["account_lines"]
    if digests[number - 1 : number] != [seen["account_sha256"]] and not (moved and is_complete):
        raise LedgerError(
            str(account),
            "was rolled back: it does not hold the last line that this run folder saw, and what "
            "was spent since is missing",
            got=f"{len(digests)} lines",
            want=f"line {number}, as {folder} saw it",
            remedy="restore the account from a later backup; if there is none, and all was "
            f"measured in this folder, `das run {folder} --moved`",
        )


def draws_journal(folder: Place) -> Place:
    """Return the path of the journal of a run folder: attempts, and the last account line seen."""
    return folder / "draws.jsonl"


def _account_line(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the last account line that a folder saw; None in folders of earlier versions."""
    seen = [line for line in lines if "account_lines" in line]
    keys = ("account_lines", "account_sha256")
    return {key: seen[-1][key] for key in keys} if seen else None


def measure_once(
    dataset: Place,
    draws: Draws | None,
    part: str,
    draw: Callable[[str | None], None],
    *,
    is_recorded: Callable[[], bool],
    moved: bool = False,
) -> None:
    """Draw and publish noisy answers once, publish an interrupted draw, or verify published ones.

    Args:
      dataset: Folder of the noisy answers.
      draws: The log of draws; None for seeded noise, which spends no budget.
      part: Name of the measured part.
      draw: Draws the noise. It gets the number of the attempt, under which to propose the dataset
        and which its facts must name, or None to publish it.
      is_recorded: Returns whether the ledger records the part; called if nothing is published.
      moved: As for `Draws.begin`.

    Raises:
      LedgerError: Measured answers are gone, or a copy of the folder drew them.
      OutputError: A file cannot be written.
    """
    if is_published(dataset):
        if draws is not None:
            drawn_by = str(Dataset.open(dataset).facts.get("attempt", ""))
            draws.confirm(part, dataset_digest(dataset), drawn_by, write=True)
        return
    if is_recorded():
        raise LedgerError(
            str(dataset),
            "was measured and its measurements are gone; drawing again would spend twice",
            remedy="restore them from a backup, or grant a new budget in a new run folder",
        )
    if draws is None:
        draw(None)
        return
    attempt = _waiting(dataset, draws, part)
    if attempt is None:
        left = leftovers(dataset)
        attempt = draws.begin(part, moved=moved)  # from now on no earlier attempt can be recorded
        remove_files(dataset, left)  # not more: a later attempt may already be under way
        try:
            draw(attempt)
        except SpentError:
            draws.fail(part, attempt)
            raise
    other = draws.record(part, attempt, read_proposal(dataset, attempt).sha256)
    if other is not None:
        withdraw(dataset, attempt)
        raise LedgerError(
            f"{draws.folder}, {draws.reservation.product}, part {part}",
            "was drawn by a copy of this folder at the same time; the answers drawn here were "
            "removed unread",
            got=f"{other.folder}, {other.at}",
            remedy="go on there",
        )
    accept(dataset, attempt)


def lost_answers(error: OutputError) -> LedgerError:
    """Return the error for damaged noisy answers, which must not be drawn again."""
    return LedgerError(
        error.where,
        f"{error.what}, and noisy answers are drawn once: the budget was spent on them, and "
        "nothing may be measured again under this grant",
        got=error.got,
        remedy="restore the file from a backup; " + _NEW_GRANT,
    )


def _waiting(dataset: Place, draws: Draws, part: str) -> str | None:
    """Return the attempt whose noisy answers are written but not yet published; None if none.

    If the account has recorded measurements of the part, only an attempt with their digest counts.

    Args:
      dataset: Folder of the noisy answers.
      draws: Log of draws of the product.
      part: Name of the part of the measurements.

    Raises:
      LedgerError: The recorded measurements are damaged.
    """
    measured = draws.measured(part)
    attempt = measured.attempt if measured is not None else draws.attempt(part)
    if not attempt or not is_proposed(dataset, attempt):
        return None
    damage = find_damage(dataset, attempt)
    if damage:
        if measured is not None:
            raise lost_answers(damage[0])
        return None
    digest = read_proposal(dataset, attempt).sha256
    return attempt if measured is None or measured.sha256 == digest else None


def _measured(draws: Sequence[Draw]) -> Draw | None:
    return next((draw for draw in draws if draw.sha256 is not None), None)


def _is_other_run(folder: Place, here: Place, run: str) -> bool:
    """Return whether another folder than `here` holds the same run."""
    document = folder / "run.json"
    try:
        if not document.exists() or is_same(document, here / "run.json"):
            return False
        return bool(json.loads(document.read_text(encoding="utf-8")).get("run") == run)
    except (OSError, ValueError, AttributeError):
        return False  # unreadable, so not a folder that could continue the run
