"""What a run of a census spends: its products as the lifecycle sees them."""

from __future__ import annotations

from jobs.pipeline.config.product import Product, Resolved, account_of, claim_of
from jobs.pipeline.folder.identity import remembered_run
from jobs.pipeline.folder.spending import Part, Spending


def spending_of(resolved: Resolved, product: Product, identity: str | None = None) -> Spending:
    """Describe what a run spends on a product.

    Args:
      resolved: The run.
      product: One of its products.
      identity: That of the run folder; default: that which the folder remembers.

    Raises:
      ConfigError: No account is named, and several may be meant.
    """
    folder, plan, release = resolved.config.output.directory, product.plan, product.release
    if identity is None:
        identity = remembered_run(folder)
    parts = []
    for level in plan.levels:
        name = level.name
        parts.append(Part(name, release.measurements(name), (level.index, 0)))
        if level.lazy:
            lazily = release.lazy_measurements(name)
            parts.append(Part(name, lazily, (level.index, 1), is_lazy=True))
    return Spending(
        claim=claim_of(resolved, product, identity),
        account=account_of(resolved.config) if plan.spends else None,
        data=product.config.input.path,
        folder=folder,
        release=release,
        parts=tuple(parts),
        seed=product.seed if plan.not_for_release else None,
    )


def spendings_of(resolved: Resolved, identity: str) -> list[Spending]:
    """Describe what a run folder with this identity spends, product by product."""
    return [spending_of(resolved, product, identity) for product in resolved.products.values()]
