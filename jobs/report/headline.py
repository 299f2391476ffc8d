"""The top of a report: banners, headline numbers and the facts under the title."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from das.definition import Definition
from das.mechanisms.mechanism import Mechanism
from das.mechanisms.registry import find_mechanism
from jobs.documents.summary import Summary
from jobs.report import text
from jobs.report.page import Banner, Tile

Manifest = Mapping[str, Any]

SEEDED = Banner(
    "danger",
    "NOT FOR RELEASE: noise was seeded",
    "Whoever knows the seed can take the noise away again. No privacy guarantee holds for this "
    "run. Use it for tests only.",
)


def words(name: object) -> str:
    """A query or geolevel as a reader writes it."""
    return str(name).replace(" * ", " \N{MULTIPLICATION SIGN} ").replace("_", " ")


def part(manifest: Manifest, name: str) -> Manifest:
    """A nested map of a manifest; empty if absent."""
    found = manifest.get(name)
    return found if isinstance(found, Mapping) else {}


def rows(manifest: Manifest, name: str) -> Sequence[Manifest]:
    """A list of maps of a manifest; empty if absent."""
    found = manifest.get(name)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def records(manifest: Manifest) -> str:
    """What is counted: persons or units."""
    return str(manifest.get("records") or "persons")


def unit(manifest: Manifest) -> str:
    """The letter that costs are counted in."""
    return text.EPSILON if is_pure(part(manifest, "privacy")) else text.RHO


def is_pure(privacy: Manifest) -> bool:
    """Whether a budget is counted in epsilon of differential privacy."""
    return privacy.get("definition") == Definition.PURE


def noise_kinds(manifest: Manifest) -> list[type[Mechanism]]:
    """The mechanisms whose noise is in a release, as far as they are known here."""
    kinds = dict.fromkeys(row.get("mechanism") for row in rows(manifest, "budget"))
    known = (find_mechanism(str(kind)) for kind in kinds)
    return [mechanism for mechanism in known if mechanism is not None]


def banners(manifest: Manifest) -> list[Banner]:
    """Warnings that follow from the manifest."""
    return [SEEDED] if manifest.get("not_for_release") else []


def tiles(manifest: Manifest) -> list[Tile]:
    """Records, leaf geounits, privacy loss, invariants, worst residual."""
    privacy, totals = part(manifest, "privacy"), part(manifest, "totals")
    levels, kind = rows(manifest, "geography"), records(manifest)
    leaf = words(levels[-1].get("geolevel")) if levels else "leaf"
    total, delta = privacy.get("total"), privacy.get("delta")
    pure = is_pure(privacy)
    definition = "pure DP" if pure else "zero-concentrated DP"
    long = total is None or len(str(total)) > 22
    exact = definition if long else f"exactly {total}, {definition}"
    return [
        Tile(kind.capitalize(), text.integer(totals.get(kind)), "in the microdata"),
        Tile(
            "Leaf geounits",
            text.integer(totals.get("leaf_geounits")),
            f"{leaf}, the finest of {len(levels)} geolevels" if levels else "",
        ),
        Tile(f"Privacy loss {unit(manifest)}", text.decimal(text.ratio(total)), exact),
        *(
            []
            if pure
            else [
                Tile(
                    f"Privacy loss {text.EPSILON}",
                    text.upward(privacy.get("epsilon")),
                    "" if delta is None else f"at δ = {text.small(delta)}",
                )
            ]
        ),
        invariants_tile(manifest),
        residual_tile(manifest),
    ]


def invariants_tile(manifest: Manifest) -> Tile:
    """How many queries are published exactly."""
    if manifest.get("invariants") is None:
        return Tile("Invariants", text.NOT_RECORDED)
    stated = rows(manifest, "invariants")
    return Tile("Invariants", str(len(stated)), "published exactly" if stated else "none")


def residual_tile(manifest: Manifest) -> Tile:
    """The least well solved node of all."""
    held = [row["max_residual"] for row in rows(manifest, "solve") if _is(row, "max_residual")]
    worst = max(held, default=None)
    return Tile("Worst residual", text.scientific(worst), "optimality, all nodes" if held else "")


def run_time_tile(manifest: Manifest, summary: Summary) -> Tile:
    """Elapsed time of all stages."""
    cores = part(manifest, "environment").get("cores")
    detail = "" if cores is None else f"on {cores} core{'s' if cores != 1 else ''}"
    return Tile("Run time", text.duration(summary.total.seconds), detail)


def facts(manifest: Manifest) -> list[tuple[str, str]]:
    """Date, software, configuration and schema; the name of a solution beside the release."""
    software, schema = part(manifest, "software"), part(manifest, "schema")
    digest = manifest.get("configuration_digest")
    name, version = software.get("name"), software.get("version")
    cells = schema.get("cells")
    solution = part(manifest, "solution").get("name")
    return [
        *([("Solution", str(solution))] if solution else []),
        ("Created", text.moment(manifest.get("created"))),
        ("Software", f"{name} {version or ''}".strip() if name else text.NOT_RECORDED),
        ("Configuration", str(digest)[:16] + "…" if digest else text.NOT_RECORDED),
        (
            "Schema",
            f"{schema.get('name') or 'unnamed'}, {text.integer(cells)} cells"
            if schema
            else text.NOT_RECORDED,
        ),
    ]


def _is(row: Manifest, key: str) -> bool:
    return row.get(key) is not None
