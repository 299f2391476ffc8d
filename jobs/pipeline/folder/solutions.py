"""Solutions: the settings with which noisy answers become counts, and named solutions.

Post-processing may be repeated with other settings without spending budget. Until a release is
finalized, datasets of other settings are removed and made again. A finalized release never changes.
A further solution gets a name and the folder OUT/solutions/NAME, which is a whole release. Files
from before solving are hard links in it, or copies in a store.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from das.errors import ConfigError, OutputError
from jobs.pipeline.config.between import joined_settings
from jobs.pipeline.config.learned import solve_document
from jobs.pipeline.config.models.products import JoinedConfig, ProductConfig
from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.config.product import Product, Resolved, TablesWanted, key_beside
from jobs.pipeline.documents.manifest import Settings, Solution, read_manifest
from jobs.pipeline.plan import without_estimates
from jobs.pipeline.storage.dataset import MANIFEST, Dataset, is_published, remove_dataset
from jobs.pipeline.storage.files import create_file, make_closed_folder, writing
from jobs.pipeline.storage.journal import append_to_journal, is_begun, read_journal, write_whole
from jobs.pipeline.storage.layout import (
    MICRODATA,
    EstimateLayout,
    ReleaseLayout,
    census_release,
    release_folder,
)
from jobs.pipeline.storage.ledger import read_ledger
from jobs.pipeline.storage.place import Place, StoredPlace, found_under, names_below

_BEFORE_SOLVING = ("measurements", "invariants", "given", "implied", "estimates")


def settings_of(config: RunConfig) -> dict[str, Any]:
    """Return the settings of a run file that may change after measuring, as JSON values."""
    *others, last = config.products
    settings = _settings(config.products[last])
    return settings | {
        key_beside(name, settings): _settings(config.products[name]) for name in others
    }


def _settings(product: ProductConfig) -> dict[str, Any]:
    return {
        "solve": solve_document(product.solve),
        "output": product.output.model_dump(mode="json"),
    }


def settings_digest(settings: Mapping[str, Any]) -> str:
    """Return the SHA-256 of settings, in the order of their keys."""
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()


# --- what was finalized ---------------------------------------------------------------------------


def other_settings(resolved: Resolved) -> str:
    """Describe how the settings of a run differ from the settings of its finalized release.

    Returns:
      The differences; empty without differences or without a finalized release.
    """
    release = resolved.last.release
    if not release.manifest.exists():
        return ""
    manifest = read_manifest(release)
    if manifest.configuration_digest != resolved.plan.digest:
        return ""  # of other measurements, refused when the folder is opened
    finalized, wanted = manifest.solution, settings_of(resolved.config)
    if finalized.digest == settings_digest(wanted):
        return ""
    return ", ".join(differences(finalized.settings, wanted)) or "others"


def refuse_finalized(resolved: Resolved) -> None:
    """Refuse to make a finalized release again with other settings.

    Raises:
      OutputError: The release is finalized, with other settings.
    """
    if changed := other_settings(resolved):
        name = "another name" if resolved.solution else "NAME"
        raise OutputError(
            str(resolved.release.root),
            "is finalized, and was made with other settings",
            got=changed,
            want="the settings it was made with",
            remedy=f"`das run {resolved.source} --only solve --solution {name}` keeps another "
            "solution beside it",
        )


def differences(old: Mapping[str, Any], new: Mapping[str, Any], under: str = "") -> list[str]:
    """List old and new values of changed settings, key by key."""
    changes = []
    for key in dict.fromkeys((*old, *new)):
        before, after, where = old.get(key), new.get(key), f"{under}{key}"
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            changes += differences(before, after, f"{where}.")
        elif before != after:
            changes.append(f"{where} {json.dumps(before)}, now {json.dumps(after)}")
    return changes


# --- what is not finalized yet --------------------------------------------------------------------


def remove_outdated(products: Sequence[Product]) -> list[Place]:
    """Remove post-processed datasets of other settings, so that they are made again.

    With on-demand queries, counts stay, since noise of finer geolevels was drawn for them. So do
    counts of the products with which they must agree. Unsolved geolevels use the new settings.

    Returns:
      The datasets removed.
    """
    stay = {product.name for product in products if product.plan.on_demand}
    for product in products:
        ties = product.plan.limits.ties
        if ties is not None and product.plan.on_demand:
            stay |= {*ties.sizes}
    outdated = [path for p in products for path in _outdated(p, stays=p.name in stay)]
    for path in outdated:
        remove_dataset(path)
    return outdated


def _outdated(product: Product, *, stays: bool) -> list[Place]:
    """List the datasets of other settings, dependent ones first, without counts that stay."""
    release, plan, output = product.release, product.plan, product.config.output
    levels = plan.geolevels
    counts = [release.counts(level) for level in reversed(levels)]
    microdata = {release.microdata / name: name for name in MICRODATA}
    joined = {release.joined / name: name for name in MICRODATA}
    wanted = TablesWanted.of(product)
    tied = [*map(release.tied, plan.spine.levels)]
    solved = {facts["solve_digest"] for path in (*counts, *tied) for facts in _facts(path)}
    if solved - {plan.solve_digest} and not stays:
        outdated = [*microdata, *map(release.tables, levels), *joined, *counts, *tied]
    else:
        outdated = [path for path, name in microdata.items() if name not in output.microdata]
        outdated += _other_joined(output.joined, joined)
        outdated += [
            release.tables(level)
            for level in levels
            for facts in _facts(release.tables(level))
            if not wanted.facts(level).items() <= facts.items()
        ]
    queries = product.tabulated.values()
    unknown = without_estimates(plan, queries)
    for level in levels:
        path = EstimateLayout.of(release).tables(level)
        estimable = [query.name for query in queries if level not in unknown.get(query.name, ())]
        outdated += [
            path for facts in _facts(path) if [q["query"] for q in facts["queries"]] != estimable
        ]
    return [path for path in outdated if is_published(path)]


def _other_joined(wanted: JoinedConfig | None, joined: Mapping[Place, str]) -> list[Place]:
    """List joined microdata that are not requested, or have other settings.

    Args:
      wanted: Settings of the requested joined microdata; None if none are requested.
      joined: Folder of each joined dataset -> its file format.
    """
    if wanted is None:
        return [*joined]
    settings = joined_settings(wanted)
    return [
        path
        for path, name in joined.items()
        if name not in wanted.file_formats
        or any(facts["settings"] != settings for facts in _facts(path))
    ]


def _facts(dataset: Place) -> list[dict[str, Any]]:
    """Return the facts of a dataset as a list; empty if it is not published."""
    return [Dataset.open(dataset).facts] if is_published(dataset) else []


# --- records of settings -------------------------------------------------------------------------


def note_solve(release: ReleaseLayout, settings: Mapping[str, Any]) -> None:
    """Record the settings with which a release is solved, unless they were recorded last."""
    line = {"digest": settings_digest(settings), "settings": dict(settings)}
    append_to_journal(release.solves, lambda lines: [] if [*lines[-1:]] == [line] else [line])


def solution_of(resolved: Resolved, release: ReleaseLayout) -> Solution:
    """Return the settings for a manifest: settings of the release, and all earlier settings."""
    settings = settings_of(resolved.config)
    return Solution(
        name=resolved.solution,
        digest=settings_digest(settings),
        settings=settings,
        history=tuple(
            Settings(digest=line["digest"], settings=line["settings"])
            for line in read_journal(release.solves)
        ),
    )


# --- named solutions -----------------------------------------------------------------------------


def begin_solution(resolved: Resolved) -> None:
    """Create the folder of a named solution, with all datasets from before solving, once.

    Raises:
      OutputError: The run is not measured completely, or the folder cannot be written.
      ConfigError: The noise of on-demand queries was drawn for the counts of the release.
      LedgerError: The ledger was altered.
    """
    out = resolved.config.output.directory
    products = resolved.products.values()
    if any(product.plan.on_demand for product in products):
        raise ConfigError(
            "--solution",
            "needs complete measurements; those of on-demand queries were drawn for the counts of "
            "the release",
            want="a run without privacy.on_demand_queries",
        )
    first = census_release(release_folder(out), [*resolved.products])
    pairs = [(first.product(product.name), product.release) for product in products]
    for release, _ in pairs:
        if not (is_begun(release.ledger) and read_ledger(release.ledger).is_finalized):
            raise OutputError(
                str(release.root), "is not measured", remedy="use `das run RUN --only measure`"
            )
    folders = [(first.folder("geography"), resolved.release.root)]
    for release, solution in pairs:
        folders += [(release.root / name, solution.root) for name in _BEFORE_SOLVING]
    for folder, other in folders:
        for manifest in found_under(folder, MANIFEST):
            dataset = manifest.parent
            made = other / str(names_below(dataset, folder.parent))
            # The manifest comes last, so that an interrupted copy stays invisible.
            for name in (*(part.file for part in Dataset.open(dataset).parts), MANIFEST):
                _link(dataset / name, made / name)
    files = [(first.account, resolved.release.account)]
    for release, solution in pairs:
        write_whole(release.ledger)
        files += [(release.ledger, solution.ledger), (release.planned, solution.planned)]
    for file, other in files:
        if file.exists():
            _link(file, other)


def _link(file: Place, other: Place) -> None:
    with writing(other):
        if isinstance(file, StoredPlace) or isinstance(other, StoredPlace):
            create_file(other, file.read_bytes())
            return
        make_closed_folder(other.parent)
        if not other.exists():
            os.link(file, other)
