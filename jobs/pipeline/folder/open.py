"""Open a run folder: lock it, check its owner, and refuse grants that are already spent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from das.errors import DasError, OutputError
from jobs.pipeline.documents.summary import SUMMARY
from jobs.pipeline.folder.draws import draws_journal
from jobs.pipeline.folder.identity import Owner, claim_as
from jobs.pipeline.folder.lock import LOCK, Hold, only_driver
from jobs.pipeline.folder.roots import make_roots
from jobs.pipeline.folder.spending import Spending, refuse_older_account, refuse_spent_grants
from jobs.pipeline.storage.layout import is_publishable
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.failures import machine_failure
from jobs.pipeline.tasks.progress import Reporter

_ANOTHER_LOG = "choose another place for the log"


@contextmanager
def open_folder(
    owner: Owner,
    spendings: Callable[[str], Sequence[Spending]],
    reporter: Reporter,
    *,
    moved: bool = False,
) -> Iterator[tuple[str, Hold]]:
    """Lock the folder of a run during the block, and log failures of the block.

    Args:
      owner: The run that is to own the folder.
      spendings: Returns what a run folder with a given identity spends.
      reporter: Receives progress messages.
      moved: Whether the user confirmed that this moved or copied folder continues the run.

    Yields:
      The identity of the run, and the lock.

    Raises:
      OutputError: The folder cannot be written, or belongs to another configuration or driver; or
        the log would lie in the release or on a file of the run.
      LedgerError: A grant was spent by another run, or the account was rolled back.
    """
    out = owner.roots.out
    planned = spendings("")
    accounts = [spending.account for spending in planned if spending.account is not None]
    refuse_misplaced_log(reporter, out, accounts)
    if not (out / "run.json").exists():  # refuse before the folder is created
        refuse_spent_grants(planned, is_new=True)
    make_roots(owner.roots)
    with failure_logged(reporter), only_driver(out) as hold:
        identity = claim_as(owner)
        spent = spendings(identity)
        refuse_older_account(spent, moved=moved)
        refuse_spent_grants(spent)
        yield identity, hold


def refuse_misplaced_log(reporter: Reporter, out: Place, accounts: Iterable[Place] = ()) -> None:
    """Refuse a log inside the release, or with the name of a file of the run.

    Raises:
      OutputError: The log would lie in the release, or overwrite a file of the run.
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
    written = [out / "run.json", out / LOCK, out / SUMMARY, draws_journal(out), *accounts]
    if log.resolve() in [path.resolve() for path in written]:
        raise OutputError(str(log), "is a file of the run, not its log", remedy=_ANOTHER_LOG)


@contextmanager
def failure_logged(reporter: Reporter) -> Iterator[None]:
    """Log an error of the block; of unexpected errors only the type, which reveals no data."""
    try:
        yield
    except BaseException as error:
        known = error if isinstance(error, DasError) else machine_failure(error)
        text = None if known is None else str(known)
        reporter.event("run_failed", error=type(known or error).__name__, message=text)
        raise
