"""One grant, one draw: what the account of a population knows of measured parts.

A part is what is measured at once: queries of a geolevel of a census; a statistic, table or model
of a survey. Lines of the account have its name under the key `geolevel`.

A run folder can be copied, or restored from a backup, with its identity. So what was drawn is
recorded outside of it, part by part, in the account:

1. Before the noise of a part is drawn, a line `drawing` names the attempt by a random number.
   The folder keeps the numbers of its own attempts (`OUT/draws.jsonl`, written first). A folder
   that does not know the last attempt in the account is a copy that was overtaken, and is refused.
2. Before the noisy answers can be read, a line `measured` holds their digest. It is refused if
   another attempt was begun or measured meanwhile; these answers are then removed, unread.

If measuring code fails after it drew noise, a line `failed_draw` says so, and the part is never
drawn again: an error may tell something of the noise. Whatever kills a driver, a worker or a disk
tells nothing, and the part is drawn anew.

So of every part and grant one draw can ever be read, whatever is copied and whatever dies.

The folder also keeps the number and digest of the last line that it saw in the account. An account
that does not go on from there was restored from a backup that is older, and grants that were spent
since are missing: it is refused at every start.
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
    """One attempt to draw the noise of a part, or what was measured by it.

    Attributes:
      attempt: A random number; empty for measurements of which only the digest is known.
      folder: Where the run folder was.
      at: When, UTC.
      sha256: Digest of the measurements; none of an attempt.
    """

    attempt: str
    folder: str
    at: str
    sha256: str | None


@dataclass(frozen=True)
class Draws:
    """The draws of one product of a run, in the account and in its folder.

    Attributes:
      account: The account; the grant must be reserved there.
      reservation: The reserved grant of the run.
      folder: Folder of the run as it is now.
    """

    account: Place
    reservation: Reservation
    folder: Place

    @property
    def journal(self) -> Place:
        """The attempts that this folder made."""
        return draws_journal(self.folder)

    def begin(self, part: str, *, moved: bool = False) -> str:
        """Record an attempt to draw a part, before its key is drawn.

        Args:
          part: Name of the part.
          moved: Whether the caller knows that this folder is the one that goes on.

        Returns:
          The number of the attempt.

        Raises:
          LedgerError: The part was measured under this grant; another folder began to draw it
            later than this one; or the run lies in another folder too.
          OutputError: The account or the folder cannot be written.
        """
        attempt = uuid.uuid4().hex
        known = [
            str(line.get("attempt"))
            for line in read_journal(self.journal)
            if (line.get("product"), line.get("geolevel")) == (self.reservation.product, part)
        ]
        own = {"product": self.reservation.product, "geolevel": part, "attempt": attempt}
        line = {**self._line(DRAWING, part, attempt), **({"moved": True} if moved else {})}

        def decide(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
            self._refuse(lines, part, known, moved=moved)
            return [line]

        append_to_journal(self.journal, lambda _: [own])
        append_to_journal(self.account, decide)
        note_account_line(self.folder, self.account)
        return attempt

    def record(self, part: str, attempt: str, sha256: str) -> Draw | None:
        """Record what an attempt measured, before anybody can read it.

        Returns:
          None if the measurements are recorded; what was begun or measured instead, if they must
          not be used.

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
        """What was measured of a part under the grant, wherever."""
        return _measured(self._of(read_journal(self.account), part))

    def attempt(self, part: str) -> str | None:
        """The last attempt in the account."""
        draws = self._of(read_journal(self.account), part)
        return draws[-1].attempt if draws else None

    def confirm(self, part: str, sha256: str, attempt: str, *, write: bool) -> None:
        """Check that measurements that can be read are those that the account knows.

        An account that was restored from an older backup, or is of an older version, does not know
        them; then it is told, so that no copy of the folder draws again.

        Args:
          part: Name of the part.
          sha256: Their digest.
          attempt: The attempt that they name.
          write: Whether to tell the account.

        Raises:
          LedgerError: Others were measured under the grant.
        """

        def decide(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
            measured = _measured(self._of(lines, part))
            if measured is None:
                return [{**self._line(MEASURED, part, attempt), "sha256": sha256}]
            if measured.sha256 != sha256:
                raise LedgerError(
                    f"{self.folder}, {self.reservation.product}, part {part}",
                    "holds other measurements than those recorded under this grant; both together "
                    "tell more than it allows",
                    got=f"recorded for {measured.folder}, {measured.at}",
                    remedy="use those and remove this folder; never publish what is in it",
                )
            return []

        if write:
            append_to_journal(self.account, decide)
        else:
            decide(read_journal(self.account))

    def _refuse(
        self,
        lines: Sequence[Mapping[str, Any]],
        part: str,
        known: Sequence[str],
        *,
        moved: bool,
    ) -> None:
        reservation, draws = self.reservation, self._of(lines, part)
        where = f"{self.folder}, {reservation.product}, part {part}"
        reservations = [
            one for one in reservations_among(self.account, lines) if one.run == reservation.run
        ]
        if not any(
            (one.product, one.grant) == (reservation.product, reservation.grant)
            for one in reservations
        ):
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
        places = [
            line["folder"]
            for line in lines
            if line.get("run") == reservation.run and line.get("event") != FAILED_CHECK
        ]
        if places and _is_other_run(place_of(places[-1]), self.folder, reservation.run):
            raise LedgerError(
                where,
                "is to be drawn in a copy of the folder that the run was begun in",
                got=places[-1],
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
        """Attempts and measurements of a part, oldest first."""
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
    """Keep the number and digest of the last line of an account in a run folder.

    Raises:
      LedgerError, OutputError: One of the two journals was tampered with, or cannot be written.
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
      account: The account that its run file names.
      is_complete: Whether all that the run measures is measured in this folder.
      moved: Whether the caller knows that this folder goes on; a complete one may, since it draws
        nothing.

    Raises:
      LedgerError: Lines are missing that were there.
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
    """The journal of a run folder: attempts to draw, and the account's last line that it saw."""
    return folder / "draws.jsonl"


def _account_line(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The last line of the account that a folder saw; none of folders of earlier versions."""
    seen = [line for line in lines if "account_lines" in line]
    keys = ("account_lines", "account_sha256")
    return {key: seen[-1][key] for key in keys} if seen else None


def measure_once(
    dataset: Place,
    draws: Draws | None,
    name: str,
    draw: Callable[[str | None], None],
    *,
    is_recorded: Callable[[], bool],
    moved: bool = False,
) -> None:
    """Have noisy answers published and known to the account: drawn now, or confirmed.

    Args:
      dataset: Where they are, or go.
      draws: What the account knows; none if noise is seeded, which spends nothing.
      name: What is measured, such as a part.
      draw: Draws the noise; gets the number of the attempt to propose the dataset under, or None,
        to publish it.
      is_recorded: Whether the ledger says that it was measured; asked if nothing is published.
      moved: As for `Draws.begin`.

    Raises:
      LedgerError: They were measured and are gone, or a copy of the folder drew them.
      OutputError: Something cannot be written.
    """
    if is_published(dataset):
        if draws is not None:
            attempt = str(Dataset.open(dataset).facts.get("attempt", ""))
            draws.confirm(name, dataset_digest(dataset), attempt, write=True)
        return
    if is_recorded():
        raise LedgerError(
            str(dataset),
            "was measured and its measurements are gone; drawing again would spend twice",
            remedy="restore them from a backup, or grant a new budget in a new run folder",
        )
    if draws is None:
        draw(None)
    else:
        draw_once(dataset, draws, name, draw, moved=moved)


def draw_once(
    dataset: Place,
    draws: Draws,
    part: str,
    draw: Callable[[str], None],
    *,
    moved: bool = False,
) -> None:
    """Draw a part and make it readable, or go on with a draw that was stopped before it was.

    Args:
      dataset: Where the noisy answers go; not published.
      draws: What the account knows.
      part: Name of the part.
      draw: Draws the noise and proposes the dataset; gets the number of the attempt, which the
        facts of the dataset must name.
      moved: As for `Draws.begin`.

    Raises:
      LedgerError: The part was drawn by another copy of the folder, or noisy answers that
        count were lost.
      OutputError: Something cannot be written.
    """
    attempt = _waiting(dataset, draws, part)
    if attempt is None:
        left = leftovers(dataset)
        attempt = draws.begin(part, moved=moved)  # from now on no earlier one can be recorded
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
            "was drawn by a copy of this folder at the same time; what was drawn here was removed, "
            "and nobody could read it",
            got=f"{other.folder}, {other.at}",
            remedy="go on there",
        )
    accept(dataset, attempt)


def lost_answers(error: OutputError) -> LedgerError:
    """What damaged noisy answers are: lost, since nothing may be drawn again."""
    return LedgerError(
        error.where,
        f"{error.what}, and noisy answers are drawn once: the budget was spent on them, and "
        "nothing may be measured again under this grant",
        got=error.got,
        remedy="restore the file from a backup; " + _NEW_GRANT,
    )


def _waiting(dataset: Place, draws: Draws, part: str) -> str | None:
    """The attempt that was stopped before it could be read and is the one that counts, if any."""
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


def _is_other_run(place: Place, here: Place, run: str) -> bool:
    """Whether another folder than this one holds the same run."""
    document = place / "run.json"
    try:
        if not document.exists() or is_same(document, here / "run.json"):
            return False
        return bool(json.loads(document.read_text(encoding="utf-8")).get("run") == run)
    except (OSError, ValueError, AttributeError):
        return False  # not a folder that could go on
