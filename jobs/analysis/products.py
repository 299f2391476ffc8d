"""The products of one run together: their check, and what is printed of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import typer

from das.errors import VerificationError
from jobs.config.product import Resolved
from jobs.planning.terminal import print_summary
from jobs.release.verify import verify_release
from jobs.storage.files import read_json, understanding
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
    manifest = read_json(last.release.manifest, "run `das solve`")
    for product in others:
        found = verify_release(product.plan, product.release, progress)
        own = product.release.manifest
        if manifest.get(product.name) != read_json(own, "run `das solve`"):
            raise VerificationError(
                str(own), f"is not the one the manifest of the {last.name} holds"
            )
        # Datasets of the others lie within those of the last and were counted with them.
        checked = {key: n if key == "datasets" else n + found[key] for key, n in checked.items()}
    ledgers = [product.release.ledger for product in resolved.products.values()]
    spent = sum((read_ledger(path).spent().granted for path in ledgers), Fraction())
    with understanding(last.release.manifest, "restore it from a copy of the release"):
        stated = [Fraction(row["total"]) for row in manifest["together"]["composed"]]
    if stated != [spent]:
        raise VerificationError(
            str(last.release.manifest),
            "does not state what its products cost together",
            got=[str(total) for total in stated],
            want=str(spent),
        )
    return checked


def print_products(summaries: Mapping[str, dict[str, Any]], *, as_json: bool) -> None:
    """Print the summaries of the products of a run, in the order of work, as JSON or as tables."""
    *others, last = summaries
    if as_json:
        document = {**summaries[last], **{name: summaries[name] for name in others}}
        typer.echo(json.dumps(document, indent=1))
        return
    for name in (last, *others):
        print_summary(summaries[name], as_json=False)
