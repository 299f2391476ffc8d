"""Where a product of a census lies in a run folder; most tests have one, the persons."""

from __future__ import annotations

from jobs.pipeline.storage.layout import (
    ConfidentialLayout,
    ReleaseLayout,
    Roots,
    census_release,
    confidential_layout,
    products_folder,
    release_folder,
)
from jobs.pipeline.storage.place import Place


def release_of(out: Place, product: str = "persons", solution: str | None = None) -> ReleaseLayout:
    """The publishable half of a product, or of a solution of it."""
    return product_in(release_folder(out, solution), product)


def product_in(release: Place, product: str = "persons") -> ReleaseLayout:
    """A product of a release, wherever that was copied; it knows the others that lie there."""
    others = {path.name for path in products_folder(release).glob("*")} - {product}
    return census_release(release, [*sorted(others), product]).product(product)


def truth_of(
    out: Place | Roots, product: str = "persons", solution: str | None = None
) -> ConfidentialLayout:
    """The confidential half of a product, by the run folder or both roots."""
    roots = out if isinstance(out, Roots) else Roots.of(out)
    folder = census_release(release_folder(roots.out), [product]).folders[product]
    return confidential_layout(roots, solution, folder)
