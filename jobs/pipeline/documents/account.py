"""What may be published of budgets: what each grants, and what they add up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from das.definition import Definition
from das.privacy.budget import Budget
from das.queries.sensitivity import Neighbors
from jobs.pipeline.documents.document import ExactText, document
from jobs.pipeline.storage.account import Reservation, Spent, composed


@document
class Guarantee:
    """A budget and what it implies.

    Attributes:
      definition: What `total` is counted in.
      total: Cost of every path from the root to a leaf, rho or epsilon; a fraction.
      delta: Where epsilon is stated; a fraction.
      neighbors: The relation under which the total is claimed.
      rho: The cost in zCDP, which a pure cost implies; a fraction.
      epsilon: At delta, rounded up; the total if pure.
      epsilon_simple: By the textbook formula, rounded up.
    """

    definition: Definition
    total: ExactText
    delta: ExactText
    neighbors: Neighbors
    rho: ExactText
    epsilon: float
    epsilon_simple: float


@document
class _Granted:
    """Whose budget it is.

    Attributes:
      product: Name of the product.
      grant: Name of the grant; one run spends it.
      changed_record: Cost of any change of one record, in the unit of `total`; a fraction. It is
        above `total` where neighbors are unbounded. Absent in documents of earlier versions.
      exact: What was published without noise beside it: the guarantee, and every sum with it, holds
        between data sets that agree on all of it. Absent where nobody stated it.
    """

    product: str
    grant: str
    changed_record: ExactText | None = None
    exact: tuple[str, ...] | None = None


@document
class Grant(Guarantee, _Granted):
    """A budget granted for a product."""


@document
class Account:
    """Several budgets and their sum.

    Attributes:
      grants: Every budget.
      composed: What they cost together: of an added or removed record, where all grants are for
        unbounded neighbors, then of a changed record. `total` is the exact sum; `epsilon` the
        smallest valid one, also where grants count both rho and epsilon.
    """

    grants: tuple[Grant, ...]
    composed: tuple[Guarantee, ...]


def covering(own: Guarantee, *accounts: Account | None) -> Guarantee:
    """Return the guarantee for everything that was released about the same people.

    Args:
      own: Of one product, which covers all if no account has another grant.
      accounts: Where grants for the same people are added up; the first with several counts.

    Returns:
      For added records where every grant states it, for changed records otherwise.
    """
    for account in accounts:
        if account is not None and len(account.grants) > 1:
            return account.composed[0]
    return own


def guarantee_of(budget: Budget) -> Guarantee:
    """A budget with what it implies."""
    return Guarantee(
        definition=budget.definition,
        total=str(budget.total),
        delta=str(budget.delta),
        neighbors=budget.neighbors,
        rho=str(budget.rho),
        epsilon=budget.epsilon,
        epsilon_simple=budget.epsilon_simple,
    )


def account_of_grants(spent: Sequence[Spent | Reservation]) -> Account:
    """What may be published of grants: the grants and what they compose to, without folders."""
    return Account(
        grants=tuple(
            Grant(
                product=one.product,
                grant=one.grant,
                changed_record=str(one.changed_record),
                exact=one.exact,
                **vars(guarantee_of(one.budget)),
            )
            for one in spent
        ),
        composed=tuple(
            replace(
                guarantee_of(total.budget),
                epsilon=total.epsilon,
                epsilon_simple=total.epsilon_simple,
            )
            for total in composed(spent)
        ),
    )
