"""What is published without noise: invariants, and the list of geounits. Public."""

from __future__ import annotations

from jobs.pipeline.config.models.kinds.registry import KINDS
from jobs.pipeline.documents.manifest import Manifest
from jobs.pipeline.neighborhoods import FROM_DATA
from jobs.pipeline.report.page import Block, Row, Section
from jobs.pipeline.report.table import Table, labels, names, numbers
from jobs.pipeline.report.text import words


def exact_section(manifest: Manifest) -> Section:
    """Invariants and geography: what is published without noise."""
    stated = [(row.query, ", ".join(map(words, row.geolevels))) for row in manifest.invariants]
    stated = stated or [("none", "")]
    columns = [
        labels("Query", (query for query, _ in stated)),
        names("Exact at", (levels for _, levels in stated)),
    ]
    invariants = Table.of("invariants", "Queries published exactly", columns)
    geography = _geography_table(manifest)
    from_data = manifest.geounits_source == FROM_DATA
    lead = "Invariants carry no noise and lie outside the privacy guarantee. So does the list of "
    lead += "geounits, " + ("taken from the data." if from_data else "which was public before.")
    blocks: list[Block] = [Row([invariants, geography])]
    if manifest.limits:
        blocks.append(_limits_table(manifest))
    return Section("exact", "Published exactly", lead, blocks)


def _limits_table(manifest: Manifest) -> Table:
    limits = manifest.limits
    stated = {limit.kind for limit in limits}
    notes = (kind.limit.note for kind in KINDS if kind.limit.kind in stated)
    held = (", ".join(map(words, limit.geolevels)) for limit in limits)
    columns = [
        labels("Kind", (limit.kind for limit in limits)),
        labels("Of", (limit.name for limit in limits)),
        names("Types", (", ".join(map(words, limit.types or ())) for limit in limits)),
        names("Holds at", (levels or "every geolevel" for levels in held)),
    ]
    return Table.of("limits", "Limits that counts keep", columns, " ".join(filter(None, notes)))


def _geography_table(manifest: Manifest) -> Table:
    rows = manifest.geography
    columns = [
        labels("Geolevel", (row.geolevel for row in rows)),
        numbers("Digits", (row.digits for row in rows), hint="of geocode"),
        numbers("Geounits", (row.geounits for row in rows)),
        numbers("Measured", (row.measured for row in rows)),
        numbers("Only children", (row.only_children for row in rows)),
    ]
    return Table.of("geography", "Geounits of each geolevel", columns)
