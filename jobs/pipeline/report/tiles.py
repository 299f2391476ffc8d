"""The top of a report: banners, headline numbers and the facts under the title."""

from __future__ import annotations

from jobs.pipeline.documents.account import Account, Guarantee, covering
from jobs.pipeline.documents.manifest import (
    NORMAL_90,
    Manifest,
    ReleaseManifest,
    Software,
    expected_rmse,
)
from jobs.pipeline.documents.summary import Summary
from jobs.pipeline.language import prose, tr
from jobs.pipeline.report import text
from jobs.pipeline.report.accuracy import Accuracy, accuracy_tile
from jobs.pipeline.report.budget import query_order
from jobs.pipeline.report.page import Banner, Tile
from jobs.pipeline.report.text import words

SEEDED = Banner(
    "danger",
    "NOT FOR RELEASE: noise was seeded",
    "Whoever knows the seed can take the noise away again. No privacy guarantee holds for this "
    "run. Use it for tests only.",
)
NOT_VERIFIED = Banner(
    "danger",
    "NOISE NOT VERIFIED: it was added elsewhere",
    "What is said of protection is what the files claim that noise came from. Nobody here drew it; "
    "its size was tested, its secrecy cannot be.",
)
_LONGEST_TOTAL = 22  # characters of an exact fraction that fit under a tile


def banners(manifest: ReleaseManifest) -> list[Banner]:
    """Return warnings: noise was seeded, or noise was imported and cannot be verified."""
    is_imported = manifest.privacy.randomness == "elsewhere"
    stated = [SEEDED] * manifest.not_for_release + [NOT_VERIFIED] * is_imported
    return [Banner(one.kind, tr(one.title), tr(one.text)) for one in stated]


def tiles(manifest: Manifest, accuracy: Accuracy | None = None) -> list[Tile]:
    """Return tiles on records, privacy loss and expected errors; no errors without estimates."""
    levels, exact = manifest.levels, len(manifest.invariants)
    tile = accuracy_tile(manifest, accuracy) if accuracy else None
    return [
        Tile(
            manifest.records.capitalize(),
            tr("none") if manifest.counted is None else text.integer(manifest.counted),
            tr("in the microdata"),
        ),
        Tile(
            tr("Leaf geounits"),
            text.integer(manifest.totals["leaf_geounits"] or 0),
            prose("tiles.leaves", geolevel=words(levels[-1]), geolevels=len(levels)),
        ),
        *privacy_tiles(manifest.privacy, manifest.account, manifest.together),
        Tile(tr("Invariants"), str(exact), tr("published exactly" if exact else "none")),
        *([tile] if tile else noise_tiles(manifest)),
    ]


def privacy_tiles(of_product: Guarantee, *accounts: Account | None) -> list[Tile]:
    """Show the privacy loss of all releases about the same people: exact, and epsilon at delta.

    Args:
      of_product: Guarantee of the product that the page describes.
      accounts: Accounts of the same people, as for `covering`.
    """
    privacy = covering(of_product, *accounts)
    is_pure = privacy.definition.is_pure
    exact = name = tr("pure DP" if is_pure else "zero-concentrated DP")
    if len(privacy.total) <= _LONGEST_TOTAL:
        exact = tr("exactly {total}, {name}", total=privacy.total, name=name)
    if privacy is not of_product:
        exact = tr("{loss}, all releases of the same people", loss=exact)
    loss = Tile(
        tr("Privacy loss {unit}", unit=text.unit(privacy.definition)),
        text.decimal(text.ratio(privacy.total)),
        exact,
    )
    if is_pure:
        return [loss]
    at = tr("at δ = {delta}", delta=text.small(privacy.delta))
    title = tr("Privacy loss {unit}", unit=text.EPSILON)
    return [loss, Tile(title, text.upward(privacy.epsilon), at)]


def noise_tiles(manifest: Manifest) -> list[Tile]:
    """Show the 90 % error bound of noisy answers to the coarsest query of the finest geolevel.

    This bound is public. Errors of the released counts depend on the truth, and solving makes most
    of them smaller than the bound. Empty if no query is measured there.
    """
    leaf = manifest.levels[-1]
    expected = expected_rmse(manifest.budget, manifest.levels)
    coarsest = next((q for q in query_order(manifest.budget) if (leaf, q) in expected), None)
    if coarsest is None:
        return []
    width = NORMAL_90 * expected[leaf, coarsest]
    meaning = tr("9 in 10 noisy answers at {geolevel}", geolevel=words(leaf))
    if manifest.counted is not None:
        mean = manifest.counted / (manifest.totals["leaf_geounits"] or 1)
        counted = f"{text.decimal(mean)} {manifest.records}"
        meaning += tr("; on average it has {counted}", counted=counted)
    title = tr("Noise of {query}", query=words(coarsest))
    return [Tile(title, f"±{text.decimal(width)}", meaning)]


def run_time_tile(manifest: Manifest, summary: Summary) -> Tile:
    """Show the elapsed time of all stages, and the number of cores."""
    cores = manifest.environment.cores
    on = "" if cores is None else f"on {cores} core{'s' if cores != 1 else ''}"
    return Tile("Run time", text.duration(summary.total.seconds), on)


def facts(manifest: Manifest) -> list[tuple[str, str]]:
    """Return date, software, configuration and schema, and the name of a solution."""
    schema = manifest.schema
    return [
        *origin(manifest, manifest.solution.name),
        (tr("Schema"), f"{schema.name}, {tr('{cells} cells', cells=text.integer(schema.cells))}"),
    ]


def origin(manifest: ReleaseManifest, solution: str | None) -> list[tuple[str, str]]:
    """Return solution, date, software and configuration of a release; no solution if None."""
    software = manifest.software
    return [
        *([(tr("Solution"), solution)] if solution else []),
        (tr("Created"), text.moment(manifest.created)),
        (tr("Software"), f"{software.name} {software.version}{_commit(software)}"),
        (tr("Configuration"), f"{manifest.configuration_digest[:16]}…"),
    ]


def _commit(software: Software) -> str:
    """Return the shortened commit of the source, and whether it was changed."""
    if software.revision is None:
        return ""
    commit, comma, changes = software.revision.partition(",")
    return f", {commit[:10]}{comma}{changes}"
