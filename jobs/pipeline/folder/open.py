"""Open a run folder: claim it, be its only driver, and refuse what could not be paid for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from das.errors import DasError, OutputError
from jobs.pipeline.documents.summary import SUMMARY
from jobs.pipeline.folder.draws import draws_journal
from jobs.pipeline.folder.identity import Owner, claim_as
from jobs.pipeline.folder.lock import LOCK, only_driver
from jobs.pipeline.folder.roots import make_roots
from jobs.pipeline.folder.spending import Spending, refuse_older_account, refuse_spent_grants
from jobs.pipeline.storage.layout import is_publishable
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.progress import Reporter

_ANOTHER_LOG = "choose another place for the log"


@dataclass(frozen=True)
class OpenFolder:
    """A run folder that this process alone works on.

    Attributes:
      identity: That of the run.
      refuse_overtaken: Raises OutputError once another driver took over.
    """

    identity: str
    refuse_overtaken: Callable[[], None]


@contextmanager
def open_folder(
    owner: Owner,
    spendings: Callable[[str], Sequence[Spending]],
    reporter: Reporter,
    *,
    moved: bool = False,
) -> Iterator[OpenFolder]:
    """Claim the folder of a run for the block; what fails in it is logged.

    Args:
      owner: Whose it is to be.
      spendings: What a folder with some identity spends.
      reporter: Who watches.
      moved: Whether the folder is known to be the one that goes on.

    Raises:
      OutputError: The folder cannot be written, or belongs to another configuration or driver; or
        the log would lie in the release or on a file of the run.
      LedgerError: A grant was spent by another run, or the account was rolled back.
    """
    out = owner.roots.out
    asked = spendings("")
    accounts = [spending.account for spending in asked if spending.account is not None]
    refuse_misplaced_log(reporter, out, accounts)
    if not (out / "run.json").exists():  # then nothing is left of a run that is refused
        refuse_spent_grants(asked, is_new=True)
    make_roots(owner.roots)
    with _failure_logged(reporter), only_driver(out) as hold:
        identity = claim_as(owner)
        spent = spendings(identity)
        refuse_older_account(spent, moved=moved)
        refuse_spent_grants(spent)
        yield OpenFolder(identity, hold.refuse_overtaken)


def refuse_misplaced_log(reporter: Reporter, out: Place, accounts: Iterable[Place] = ()) -> None:
    """Keep the log out of what may be published, and out of files that the run writes itself.

    Raises:
      OutputError: The log would lie in the release, or take the name of such a file.
    """
    log = reporter.log
    if log is None:
        return
    if is_publishable(log, out):
        raise OutputError(
            str(log),
            "lies in the release; its times depend on the confidential data",
            remedy=_ANOTHER_LOG,
        )
    own = [out / "run.json", out / LOCK, out / SUMMARY, draws_journal(out), *accounts]
    if log.resolve() in [place.resolve() for place in own]:
        raise OutputError(str(log), "is a file of the run, not its log", remedy=_ANOTHER_LOG)


@contextmanager
def _failure_logged(reporter: Reporter) -> Iterator[None]:
    """Log how the block failed; of an unforeseen error only the type."""
    try:
        yield
    except BaseException as error:
        text = str(error) if isinstance(error, DasError) else None
        reporter.event("run_failed", error=type(error).__name__, message=text)
        raise
