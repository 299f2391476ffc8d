"""What a run claims of the account of its people."""

from __future__ import annotations

from jobs.config.models.run import RunConfig
from jobs.config.product import Product, Resolved
from jobs.storage.account import Claim, default_account
from jobs.storage.place import Place


def account_of(config: RunConfig) -> Place:
    """The file in which this run's grant is claimed.

    Raises:
      ConfigError: None is named, and several may be meant.
    """
    last = [*config.products.values()][-1]
    return config.privacy.account or default_account(last.input.path)


def claim_of(resolved: Resolved, product: Product, run: str) -> Claim:
    """What a run folder with this identity asks of the account for a product."""
    grant, folder = resolved.config.privacy.grant, str(resolved.config.output.directory)
    return Claim(product.account_name, grant, product.plan.budget, run, folder)
