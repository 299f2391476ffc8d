"""The products of one run together: their check."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from das.errors import VerificationError
from jobs.config.product import Resolved
from jobs.documents.manifest import read_manifest
from jobs.release.verify import verify_release
from jobs.storage.ledger import read_ledger

Progress = Callable[[int, int], None]


def verify_run(resolved: Resolved, progress: Progress | None = None) -> dict[str, int]:
    """Check every product of a finished run, and that their costs add up to what is stated.

    Args:
      resolved: The run, or the solution of it that is meant.
      progress: Called with (finished, all) geolevels of a product.

    Returns:
      As `verify_release`, all products together.

    Raises:
      OutputError, LedgerError, VerificationError: As `verify_release`; or the manifest of a product
        is not the one the manifest of the last holds, or their sum is not the stated one.
    """
    *others, last = resolved.products.values()
    checked = verify_release(last.plan, last.release, progress)
    if not others:
        return checked
    manifest = read_manifest(last.release)
    for product in others:
        more = verify_release(product.plan, product.release, progress)
        if (manifest.products or {}).get(product.name) != read_manifest(product.release):
            raise VerificationError(
                str(product.release.manifest),
                f"is not the one the manifest of the {last.name} holds",
            )
        # Datasets of the others lie within those of the last and were counted with them.
        checked = {key: n if key == "datasets" else n + more[key] for key, n in checked.items()}
    ledgers = [product.release.ledger for product in resolved.products.values()]
    spent = sum((read_ledger(path).spent().granted for path in ledgers), Fraction())
    composed = manifest.together.composed if manifest.together else ()
    stated = [total.total for total in composed]
    if stated != [str(spent)]:
        raise VerificationError(
            str(last.release.manifest),
            "does not state what its products cost together",
            got=stated,
            want=str(spent),
        )
    return checked
