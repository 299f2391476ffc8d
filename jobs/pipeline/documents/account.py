"""The public part of the account: grants and their composition."""

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
      definition: Privacy definition, which determines the unit of `total`.
      total: Cost of every path from the root to a leaf, rho or epsilon; a fraction.
      delta: The delta at which epsilon is stated; a fraction.
      neighbors: Neighboring relation under which the total holds.
      rho: Cost in zCDP, implied also by a pure cost; a fraction.
      epsilon: Epsilon at delta, rounded up; equals the total under pure differential privacy.
      epsilon_simple: Epsilon by the textbook formula, rounded up.
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
    """The product and grant of a budget.

    Attributes:
      product: Name of the product.
      grant: Name of the grant; one run spends it.
      changed_record: Cost of any change of one record, in the unit of `total`; a fraction. It
        exceeds `total` if neighbors are unbounded. Absent in documents of earlier versions.
      exact: Names of values published without noise. The guarantee, and sums with it, hold between
        data sets that agree on these values. Absent if not stated.
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
      composed: Composition of the grants: first for an added or removed record, if all grants have
        unbounded neighbors, then for a changed record. `total` is the exact sum; `epsilon` is the
        smallest valid one, also if some grants count rho and others epsilon.
    """

    grants: tuple[Grant, ...]
    composed: tuple[Guarantee, ...]


def covering(of_product: Guarantee, *accounts: Account | None) -> Guarantee:
    """Return the guarantee for all releases about the same population.

    Args:
      of_product: Guarantee of one product, returned if no account has several grants.
      accounts: Accounts of the population; the first one with several grants is used.

    Returns:
      The guarantee for added records if all grants state it, else for changed records.
    """
    for account in accounts:
        if account is not None and len(account.grants) > 1:
            return account.composed[0]
    return of_product


def guarantee_of(budget: Budget) -> Guarantee:
    """Return the guarantee of a budget."""
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
    """Return the public account of some grants: grants and composition, without folders."""
    return Account(
        grants=tuple(
            Grant(
                product=each.product,
                grant=each.grant,
                changed_record=str(each.changed_record),
                exact=each.exact,
                **vars(guarantee_of(each.budget)),
            )
            for each in spent
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
