"""The guarantee of a release, of censuses and surveys alike: what a page says of it. Public."""

from __future__ import annotations

from jobs.documents.account import Account
from jobs.documents.manifest import Privacy
from jobs.documents.survey import SurveyPrivacy
from jobs.report import text
from jobs.report.budget import account_table, attacks_table
from jobs.report.page import TableBlock

GUARANTEE_LEAD = (
    "The guarantee limits what anyone can learn about one record from this release, whatever "
    "else they know and however much they compute."
)


def guarantee_values(privacy: Privacy | SurveyPrivacy, *, is_void: bool) -> dict[str, object]:
    """What `guarantee.html.j2` says of a guarantee.

    Args:
      privacy: The guarantee.
      is_void: Whether the noise was seeded.
    """
    return {
        "void": is_void,
        "definition": privacy.definition,
        "total": privacy.total,
        "total_value": text.decimal(text.ratio(privacy.total)),
        "epsilon": text.upward(privacy.epsilon),
        "epsilon_simple": text.upward(privacy.epsilon_simple),
        "delta": text.small(privacy.delta),
        "neighbors": privacy.neighbors,
        "randomness": privacy.randomness,
    }


def loss_tables(privacy: Privacy | SurveyPrivacy, account: Account | None) -> list[TableBlock]:
    """What an attacker gains at most, and what was granted for the same people."""
    blocks = []
    if privacy.attacks is not None:
        blocks.append(TableBlock(attacks_table([privacy.attacks], privacy.mu_gdp)))
    if account is not None:
        blocks.append(TableBlock(account_table(account)))
    return blocks
