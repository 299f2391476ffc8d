"""The products of one run together: their check, and what is printed of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import typer

from das.errors import VerificationError
from jobs.config.load import Resolved
from jobs.planning.terminal import print_summary
from jobs.release.verify import verify_release
from jobs.storage.files import read_json, understanding
from jobs.storage.layout import ReleaseLayout
from jobs.storage.ledger import read_ledger

Progress = Callable[[int, int], None]


def verify_run(
    resolved: Resolved, release: ReleaseLayout, progress: Progress | None = None
) -> dict[str, int]:
    """Check every product of a finished run, and that their costs add up to what is stated.

    Args:
      resolved: The run.
      release: The finished release of the persons.
      progress: Called with (finished, all) geolevels of a product.

    Returns:
      As `verify_release`, all products together.

    Raises:
      OutputError, LedgerError, VerificationError: As `verify_release`; or the manifest of the units
        is not the one the manifest of the persons holds, or their sum is not the stated one.
    """
    checked = verify_release(resolved.plan, release, progress)
    if resolved.units is None:
        return checked
    units = verify_release(resolved.units.plan, release.units, progress)
    manifest, own = (read_json(r.manifest, "run `das solve`") for r in (release, release.units))
    if manifest.get("units") != own:
        raise VerificationError(
            str(release.units.manifest), "is not the one the manifest of the persons holds"
        )
    spent = sum(
        (read_ledger(r.ledger).spent().granted for r in (release, release.units)), Fraction()
    )
    with understanding(release.manifest, "restore it from a copy of the release"):
        stated = [Fraction(row["total"]) for row in manifest["together"]["composed"]]
    if stated != [spent]:
        raise VerificationError(
            str(release.manifest),
            "does not state what its products cost together",
            got=[str(total) for total in stated],
            want=str(spent),
        )
    # The datasets of the units lie within those of the release and were counted with them.
    return {key: n if key == "datasets" else n + units[key] for key, n in checked.items()}


def print_products(persons: dict[str, Any], units: dict[str, Any] | None, *, as_json: bool) -> None:
    """Print the summaries of the products of a run, as JSON or as tables."""
    if as_json:
        typer.echo(json.dumps({**persons, "units": units} if units else persons, indent=1))
        return
    for summary in (persons, units):
        if summary is not None:
            print_summary(summary, as_json=False)
