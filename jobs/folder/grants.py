"""The grants of a run: claimed in the account before the first draw, and spent by it alone."""

from __future__ import annotations

from jobs.config.claims import account_of, claim_of
from jobs.config.product import Product, Resolved
from jobs.documents.account import account_of_grants
from jobs.documents.document import write_document
from jobs.folder.draws import Draws, lazy_draw
from jobs.folder.identity import note_account
from jobs.job import Job
from jobs.storage.account import check_account, check_claim, make_claim
from jobs.storage.dataset import dataset_digest, is_published


def refuse_spent_grants(resolved: Resolved, identity: str) -> None:
    """Refuse a run that could not claim its grants.

    Args:
      resolved: The run.
      identity: That of its folder; empty if there is none yet.

    Raises:
      LedgerError: A grant was spent by another run.
      OutputError: The account cannot be written.
    """
    if not resolved.plan.spends:
        return
    account = account_of(resolved.config)
    if not identity:
        check_account(account)
    for product in resolved.products.values():
        check_claim(account, claim_of(resolved, product, identity))


def draws_of(job: Job, product: Product) -> Draws | None:
    """What the account knows of a product; none if it pays nothing: seeded, or drawn elsewhere."""
    if not product.plan.spends:
        return None
    claim = claim_of(job.resolved, product, job.identity)
    return Draws(account_of(job.resolved.config), claim, job.out)


def refuse_other_draws(job: Job) -> None:
    """Refuse a folder whose measurements are not those that the account knows.

    Raises:
      LedgerError: Others were measured under the grant, in a copy of the folder.
    """
    for product in job.products:
        draws, release = draws_of(job, product), product.release
        for geolevel in product.plan.spine.levels:
            for name, dataset in (
                (geolevel, release.measurements(geolevel)),
                (lazy_draw(geolevel), release.lazy_measurements(geolevel)),
            ):
                if draws is not None and is_published(dataset):
                    draws.confirm(name, dataset_digest(dataset), "", write=False)


def claim_grants(job: Job) -> None:
    """Claim the grants of all products, once; they stay spent whatever happens after.

    The release keeps the account as it was then: later grants are not of its manifest.

    Raises:
      LedgerError: A grant was spent by another run.
    """
    if not job.resolved.plan.spends:
        return
    account = account_of(job.resolved.config)
    note_account(job.out, account)
    claims = [claim_of(job.resolved, product, job.identity) for product in job.products]
    spent = make_claim(account, *claims)
    if not job.release.account.exists():
        write_document(job.release.account, account_of_grants(spent))
