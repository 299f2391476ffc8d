"""Account: which budgets were granted for the people of one population, and which run spent them.

One file per population, shared by all products made of it. A run must claim its grant before its
first draw. The claim counts as spent from then on, whatever becomes of the run: only the same run
folder may go on under it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from das.errors import LedgerError
from das.privacy.budget import Budget, Definition
from das.privacy.cost import Pure, compose
from das.queries.sensitivity import Neighbors
from jobs.journal import append_to_journal, read_journal


@dataclass(frozen=True)
class Claim:
    """What a run asks of the account.

    Attributes:
      product: What is made, such as "persons" or "units".
      grant: Name of the budget that pays for it.
      budget: The budget.
      run: Identity of the run folder.
      folder: Where that folder is, for people.
    """

    product: str
    grant: str
    budget: Budget
    run: str
    folder: str


@dataclass(frozen=True)
class Spent:
    """One claimed grant.

    Attributes:
      product: What was made.
      grant: Name of the budget.
      budget: What it granted, spent as a whole.
      run: Identity of the run folder.
      folder: Where it was.
      claimed: When, UTC.
    """

    product: str
    grant: str
    budget: Budget
    run: str
    folder: str
    claimed: str


def read_account(path: Path) -> tuple[Spent, ...]:
    """Read all claimed grants, oldest first.

    Raises:
      LedgerError: The file was tampered with.
    """
    return tuple(_spent(path, line) for line in read_journal(path))


def check_claim(path: Path, claim: Claim) -> None:
    """Refuse a claim that `make_claim` would refuse, without making it.

    Raises:
      LedgerError: The grant was spent by another run.
    """
    _is_new(path, claim, read_account(path))


def make_claim(path: Path, claim: Claim) -> tuple[Spent, ...]:
    """Claim a grant for a run; a claim the same run made before is kept.

    Returns:
      All claimed grants, this one included.

    Raises:
      LedgerError: The grant was spent by another run, or for another budget.
      OutputError: The account cannot be written; nothing may be measured then.
    """

    def decide(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        spent = tuple(_spent(path, line) for line in lines)
        return [_line(claim)] if _is_new(path, claim, spent) else []

    return tuple(_spent(path, line) for line in append_to_journal(path, decide))


def composed(spent: Sequence[Spent | Claim]) -> tuple[Budget, ...]:
    """What the people of an account have lost in all, one budget per neighbor relation.

    Costs of one definition add up; grants of both definitions are added as rho, since a pure
    epsilon costs at most epsilon^2 / 2. The statement is made at the smallest delta of the grants.
    """
    totals = []
    for neighbors in dict.fromkeys(one.budget.neighbors for one in spent):
        budgets = [one.budget for one in spent if one.budget.neighbors is neighbors]
        delta = min(budget.delta for budget in budgets)
        if all(budget.definition is Definition.PURE for budget in budgets):
            epsilon = compose([Pure(budget.total) for budget in budgets]).epsilon
            totals.append(Budget(epsilon, delta, neighbors, Definition.PURE))
        else:
            rho = compose([budget.zero_concentrated for budget in budgets]).rho
            totals.append(Budget(rho, delta, neighbors))
    return tuple(totals)


def account_document(spent: Sequence[Spent | Claim]) -> dict[str, Any]:
    """What may be published of grants: the grants and what they compose to, without folders."""
    return {
        "grants": [
            {"product": one.product, "grant": one.grant, **one.budget.document()} for one in spent
        ],
        "composed": [budget.document() for budget in composed(spent)],
    }


def _is_new(path: Path, claim: Claim, spent: Sequence[Spent]) -> bool:
    for one in spent:
        if (one.product, one.grant) != (claim.product, claim.grant):
            continue
        if one.run != claim.run:
            raise LedgerError(
                str(path),
                f"grant {claim.grant!r} of {claim.product!r} was spent by another run",
                got=f"{one.folder}, {one.claimed}",
                remedy="go on in that folder; or grant a new budget for the same people by another "
                "privacy.grant, and its cost is added to what they have lost",
            )
        if one.budget != claim.budget:
            raise LedgerError(
                str(path), "holds another budget for this run", got=one.budget, want=claim.budget
            )
        return False
    return True


def _line(claim: Claim) -> dict[str, Any]:
    return {
        "product": claim.product,
        "grant": claim.grant,
        **claim.budget.exact(),
        "run": claim.run,
        "folder": claim.folder,
        "claimed": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _spent(path: Path, line: Mapping[str, Any]) -> Spent:
    try:
        budget = Budget(
            Fraction(line["total"]),
            Fraction(line["delta"]),
            Neighbors(line["neighbors"]),
            Definition(line["definition"]),
        )
        return Spent(
            line["product"], line["grant"], budget, line["run"], line["folder"], line["claimed"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerError(str(path), "holds a line that is not of an account", got=error) from None
