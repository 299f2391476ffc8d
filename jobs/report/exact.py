"""What is published without noise: invariants, and the list of geounits. Public."""

from __future__ import annotations

from invariants.quarters import NAME
from jobs.documents.manifest import Manifest
from jobs.neighborhoods import FROM_DATA
from jobs.report.page import Block, Row, Section, TableBlock
from jobs.report.table import Cell, Column, Table, label, name, number
from jobs.report.text import words

_FACILITIES = "Facility counts are public; counts of persons must be possible with them."
_QUARTERS = "Counts of living quarters are public; nobody lives where there are none."
_NOTES = {
    (False, False): "",
    (True, False): _FACILITIES,
    (False, True): _QUARTERS,
    (True, True): f"{_FACILITIES} {_QUARTERS}",
}


def exact_section(manifest: Manifest) -> Section:
    """Invariants and geography: what is published without noise."""
    invariants = Table(
        "invariants",
        "Queries published exactly",
        [Column("Query", numeric=False), Column("Exact at", numeric=False)],
        [
            [label(row.query), name(", ".join(map(words, row.geolevels)))]
            for row in manifest.invariants
        ]
        or [[name("none"), name("")]],
    )
    geography = _geography_table(manifest)
    from_data = manifest.geounits_source == FROM_DATA
    lead = "Invariants carry no noise and lie outside the privacy guarantee. So does the list of "
    lead += "geounits, " + ("taken from the data." if from_data else "which was public before.")
    blocks: list[Block] = [Row([TableBlock(invariants), TableBlock(geography)])]
    if manifest.limits:
        blocks.append(TableBlock(_limits_table(manifest)))
    return Section("exact", "Published exactly", lead, blocks)


def _limits_table(manifest: Manifest) -> Table:
    kinds = {limit.kind for limit in manifest.limits}
    has_facilities, has_quarters = "facilities" in kinds, NAME in kinds
    return Table(
        "limits",
        "Limits that counts keep",
        [
            Column("Kind", numeric=False),
            Column("Of", numeric=False),
            Column("Types", numeric=False),
            Column("Holds at", numeric=False),
        ],
        [
            [
                label(limit.kind),
                label(limit.name),
                Cell(", ".join(map(words, limit.types or ()))),
                Cell(", ".join(map(words, limit.geolevels)) or "every geolevel"),
            ]
            for limit in manifest.limits
        ],
        _NOTES[has_facilities, has_quarters],
    )


def _geography_table(manifest: Manifest) -> Table:
    return Table(
        "geography",
        "Geounits of each geolevel",
        [
            Column("Geolevel", numeric=False),
            Column("Digits", hint="of geocode"),
            Column("Geounits"),
            Column("Measured"),
            Column("Only children"),
        ],
        [
            [
                label(row.geolevel),
                number(row.digits),
                number(row.geounits),
                number(row.measured),
                number(row.only_children),
            ]
            for row in manifest.geography
        ],
    )
