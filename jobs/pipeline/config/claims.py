"""What a run claims of the account of its people."""

from __future__ import annotations

from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.config.product import Product, Resolved
from jobs.pipeline.storage.account import Claim, default_account
from jobs.pipeline.storage.place import Place


def account_of(config: RunConfig) -> Place:
    """Find the account in which the grant of a run is claimed, from the inputs of all products.

    Raises:
      ConfigError: None is named, and several may be meant.
    """
    inputs = [product.input.path for product in config.products.values()]
    return config.privacy.account or default_account(*inputs)


def claim_of(resolved: Resolved, product: Product, run: str) -> Claim:
    """What a run folder with this identity asks of the account for a product."""
    grant, folder = resolved.config.privacy.grant, str(resolved.config.output.directory)
    plan = product.plan
    exact = tuple(f"{one.query.name} at {', '.join(one.geolevels)}" for one in plan.invariants)
    return Claim(product.account_name, grant, plan.budget, run, folder, plan.changed_record, exact)
