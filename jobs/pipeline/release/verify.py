"""Verify a finished release from its files: digests, sums of the tree, invariants. In integers.

The checks are independent of the solver, and trust only the digests of the manifests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from das.arrays import BoolArray, ObjectArray
from das.errors import VerificationError
from das.histograms import Histograms, first_difference
from jobs.pipeline.config.between import joining_of
from jobs.pipeline.config.models.data import WithheldData
from jobs.pipeline.config.product import Product, Resolved
from jobs.pipeline.documents.account import Account
from jobs.pipeline.documents.manifest import (
    CensusManifest,
    Manifest,
    Output,
    read_manifest,
    read_release,
)
from jobs.pipeline.documents.statistics import HOLDS
from jobs.pipeline.folder.solutions import settings_digest, solution_of
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.census import CensusCodes, census_codes
from jobs.pipeline.release.finalizing import SEEDED, verify_contents, verify_manifest
from jobs.pipeline.release.given import given_counts
from jobs.pipeline.release.implied import other_counts
from jobs.pipeline.release.manifest import (
    answers_of,
    census_manifest_of,
    manifest_of,
    product_facts,
)
from jobs.pipeline.release.residuals import residual_test
from jobs.pipeline.release.support import read_support
from jobs.pipeline.release.verify_joined import verify_joined
from jobs.pipeline.storage.answers import read_answers
from jobs.pipeline.storage.columns import texts
from jobs.pipeline.storage.dataset import MANIFEST, Dataset, dataset_digest, verify_files
from jobs.pipeline.storage.geography import families, read_geography, read_public_geocodes
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.ledger import read_ledger, recorded_draws
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.batches import Batch, geounit_batches

Progress = Callable[[int, int], None]

_GEOUNITS = 20_000  # children compared at a time; default, not measured


def verify_run(resolved: Resolved, progress: Progress | None = None) -> dict[str, int | float]:
    """Check every product of a finished run, and all statements of their manifests.

    Args:
      resolved: The run, or a solution of it.
      progress: Called with (finished, all) geolevels of a product.

    Returns:
      Numbers as of `verify_release`, summed over products; records of joined microdata; for
      imported measurements, the chi-square of their residuals and its degrees of freedom.

    Raises:
      OutputError, LedgerError, VerificationError: As `verify_release`; or a manifest contradicts
        plan, ledger, measurements or the other products; names the field.
    """
    checked: dict[str, int | float] = {"datasets": 0}
    finalized: dict[str, Manifest] = {}
    for product in resolved.products.values():
        found = verify_release(product.plan, product.release, progress)
        checked |= {key: checked.get(key, 0) + n for key, n in found.items()}
        joining = joining_of(product, resolved.products)
        if joining is not None:
            joined = verify_joined(product.plan, product.release, joining)
            checked["joined_records"] = checked.get("joined_records", 0) + joined
        finalized[product.name] = _verify_manifest(resolved, product, finalized)
        checked |= _noise_tested(product.plan, product.release)
    stated = read_release(resolved.release.root)
    if isinstance(stated, CensusManifest):
        checked["datasets"] += verify_contents(resolved.release, stated)
        verify_manifest(resolved.release, stated, census_manifest_of(resolved, finalized))
    return checked


def _verify_manifest(
    resolved: Resolved, product: Product, before: Mapping[str, Manifest]
) -> Manifest:
    """Check the manifest of a product, except for facts that only the run knew.

    Those are time, machine, software and names of grants. Without a run file they include the
    groups with expected errors, which are not released.
    """
    release = product.release
    stated, ledger = read_manifest(release), read_ledger(release.ledger)
    plan = replace(product.plan, not_for_release=ledger.randomness == SEEDED)
    for level in plan.levels:
        for answers in answers_of(release, level):
            if bool(answers.facts.get("not_for_release")) != plan.not_for_release:
                raise VerificationError(str(answers.path), "has other noise than the ledger says")
    solution = solution_of(resolved, release)
    recorded = {entry.digest: entry.settings for entry in solution.history}
    settings = stated.solution.settings  # older versions recorded no history
    if recorded:
        if stated.solution.digest not in recorded:
            where = f"{release.manifest}, solution.digest"
            raise VerificationError(where, "is not of settings that counts were made with")
        settings = recorded[stated.solution.digest]
    digest = settings_digest(settings)
    solution = replace(solution, name=stated.solution.name, settings=settings, digest=digest)
    facts = product_facts(
        resolved, product, before, environment=stated.environment, solution=solution
    )
    again = manifest_of(plan, ledger.spent(), release, facts)
    again = replace(again, outputs=_with_columns(release, again.outputs, stated.outputs))
    if isinstance(product.config.data, WithheldData):
        again = replace(again, expected_groups=stated.expected_groups)
    if again.together is not None and stated.together is not None:
        again = replace(again, together=_with_grants(again.together, stated.together))
    verify_manifest(release, stated, again)
    return stated


def _noise_tested(plan: Plan, release: ReleaseLayout) -> dict[str, int | float]:
    """Test the noise of imported measurements; empty for measurements of this run."""
    if not plan.is_elsewhere:
        return {}
    test = residual_test(plan, release)
    return {"noise_differences": test.differences, "noise_chi_square": test.chi_square}


def _with_columns(
    release: ReleaseLayout, outputs: Sequence[Output], stated: Sequence[Output]
) -> tuple[Output, ...]:
    """Take the stated columns of tables whose datasets, of an older version, do not name them."""
    tables = {one.path: one.columns for one in stated if one.path.startswith("tables/")}
    return tuple(
        one
        if "columns" in Dataset.open(release.root / one.path).facts
        else replace(one, columns=tables.get(one.path, one.columns))
        for one in outputs
    )


def _with_grants(account: Account, names: Account) -> Account:
    """Rename the grants of an account as in the account `names`, product by product."""
    grants = {one.product: one.grant for one in names.grants}
    named = (replace(one, grant=grants.get(one.product, one.grant)) for one in account.grants)
    return replace(account, grants=tuple(named))


def verify_release(
    plan: Plan, release: ReleaseLayout, progress: Progress | None = None
) -> dict[str, int]:
    """Check a release without the truth.

    The folder holds exactly the datasets and files of the manifest, with their digests. Children
    sum to their parent, cell by cell. Counts have the published answers of every invariant, and
    keep all constraints. Microdata and tables are checked by digest only; `verify_joined` checks
    joined microdata.

    Args:
      plan: The plan of the run.
      release: The finished release.
      progress: Called with (finished, all) geolevels.

    Returns:
      Numbers of checked datasets, families, exact answers, geounits with constraints, and geounits
      with constraints between products; with a spine other than the census hierarchy, also of
      census geounits.

    Raises:
      OutputError: A dataset is incomplete, or a file is missing or changed.
      LedgerError: The ledger was changed, or does not cost the granted budget.
      BudgetError: A planned strategy costs more than its share.
      VerificationError: A check fails; names the geounit.
    """
    manifest = read_manifest(release)
    if manifest.configuration_digest != plan.digest:
        raise VerificationError(str(release.root), "belongs to a different configuration")
    _verify_ledger(plan, release)
    checked = {"datasets": verify_contents(release, manifest)}
    checked |= dict.fromkeys(("families", "exact_answers", "limited_geounits", "tied_geounits"), 0)
    for level in plan.levels:
        for batch in geounit_batches(release, level, 1, _GEOUNITS):
            checked["families"] += _verify_families(plan, release, batch)
            checked["exact_answers"] += _verify_invariants(plan, release, batch)
            _verify_support(plan, release, batch)
            checked["limited_geounits"] += _verify_limits(plan, release, batch)
            checked["tied_geounits"] += _verify_ties(plan, release, batch)
        if progress:
            progress(level.index + 1, len(plan.levels))
    census = census_codes(plan, release)
    if census is not None:
        checked["census_geounits"] = _verify_census(plan, release, census)
    return checked


def verify_datasets(release: ReleaseLayout, datasets: Iterable[Place]) -> None:
    """Check by digest that datasets of a finalized release are those of its manifest.

    For commands that read only some datasets. Datasets that are not published are skipped.

    Raises:
      OutputError: A file is missing or was changed.
      VerificationError: A dataset is not the one that the manifest names.
    """
    outputs = {
        root / output.path: output.sha256
        for root, manifest in (
            (release.root, read_manifest(release)),
            (release.shared, read_release(release.shared)),
        )
        for output in manifest.outputs
    }
    for dataset in datasets:
        if not (dataset / MANIFEST).exists():
            continue
        if outputs.get(dataset) != dataset_digest(dataset):
            raise VerificationError(
                str(dataset / MANIFEST), "is not the one the manifest of the release names"
            )
        verify_files(dataset)


def _verify_ledger(plan: Plan, release: ReleaseLayout) -> None:
    """Check that the ledger is finalized, and states the plan and the released measurements.

    The joint cost of the queries of a planned strategy is computed again.
    """
    ledger = read_ledger(release.ledger)
    if not ledger.is_finalized:
        raise VerificationError(str(release.ledger), "is not finalized")
    ledger.spent().finalize()
    for level in plan.levels:
        for _, part in plan.strategy.parts(level.index):
            part.check_joint_cost(plan.budget.neighbors)
    entries = ledger.planned.entries
    for first, last in dict.fromkeys((entry.geolevel, entry.chain_end) for entry in entries):
        stated = [
            (entry.query, entry.stratum, entry.mechanism, entry.cost)
            for entry in entries
            if (entry.geolevel, entry.chain_end) == (first, last)
        ]
        measured = plan.noise(plan.level(first).index, plan.level(last).index)
        if stated != [(n.query.name, n.stratum, n.mechanism, n.cost) for n in measured]:
            raise VerificationError(
                f"{release.ledger}, geolevel {first}", "has other noise or costs than the plan"
            )
    recorded = recorded_draws(release)
    datasets = [release.measurements(level.name) for level in plan.levels]
    for level in plan.levels:
        mixed = Dataset.open(release.measurements(level.name)).facts.get("lazy_queries")
        if level.on_demand and not mixed:
            # In older versions one dataset has all answers.
            datasets.append(release.lazy_measurements(level.name))
    for dataset in datasets:
        if recorded.get(dataset) != dataset_digest(dataset):
            raise VerificationError(str(dataset), "is not the one the ledger names")


def _verify_families(plan: Plan, release: ReleaseLayout, batch: Batch) -> int:
    """Check that the children of one range sum to their parents; returns the number of parents."""
    if batch.level == 0:
        return 0
    geolevel, above = (plan.levels[batch.level - up].name for up in (0, 1))
    table = read_geography(release, geolevel, batch.low, batch.high, ("geocode", "parent"))
    codes = texts(table)
    parents = texts(table, "parent")
    ranges = list(families(parents))
    children = read_counts(release, geolevel, codes, plan.schema.size)
    owners = np.repeat(np.arange(len(ranges)), [stop - start for start, stop in ranges])
    sums = Histograms.from_entries(
        plan.schema.size, len(ranges), owners[children.owners()], children.cells, children.counts
    )
    names = parents[[start for start, _ in ranges]]
    expected = read_counts(release, above, names, plan.schema.size)
    wrong = first_difference(sums, expected)
    if wrong is not None:
        raise VerificationError(f"{above} {names[wrong]}", f"its {geolevel}s do not sum to it")
    return len(ranges)


def _verify_census(plan: Plan, release: ReleaseLayout, census: CensusCodes) -> int:
    """Check that leaves sum to census geolevels off the spine; returns the number of geounits."""
    leaves, checked, n_cells = Dataset.open(release.counts(plan.leaf.name)), 0, plan.schema.size
    for low, high in census.ranges(_GEOUNITS):
        on_spine, in_census = census.read(low, high)
        shared = f"S{census.shared}"
        is_other = census.shared and bool(
            (on_spine.astype(shared) != in_census.astype(shared)).any()
        )
        if is_other or len(np.unique(in_census)) < len(on_spine):
            place = str(release.geography(plan.leaf.name))
            raise VerificationError(place, "does not give every leaf its geocode of the census")
        for geolevel in plan.off_spine:
            codes, sums = census.sums(leaves, geolevel, low, high, n_cells)
            listed = read_public_geocodes(release, geolevel, low, high)
            if not np.array_equal(listed, codes):
                place = str(release.geography(geolevel))
                raise VerificationError(place, "does not hold the geounits that contain the leaves")
            wrong = first_difference(sums, read_counts(release, geolevel, codes, n_cells))
            if wrong is not None:
                raise VerificationError(
                    f"{geolevel} {codes[wrong]}", f"its {plan.leaf.name}s do not sum to it"
                )
            checked += len(codes)
    return checked


def _verify_invariants(plan: Plan, release: ReleaseLayout, batch: Batch) -> int:
    """Check the exact queries of one range; returns the number of answers."""
    level = plan.levels[batch.level]
    exact, bound = level.published, level.bound
    if not (exact or bound):
        return 0
    names, counts = _released(plan, release, batch)
    published = []
    if exact:
        published += read_answers(Dataset.open(release.invariants(level.name)), exact, names)
    if bound:
        published += read_answers(Dataset.open(release.given(level.name)), bound, names)
    for query, answers in zip((*exact, *bound), published, strict=True):
        wrong = (query.answer(counts) != answers).any(1)
        _refuse(level.name, names, wrong, f"breaks the invariant {query.name}")
    return sum(answers.size for answers in published)


def _verify_support(plan: Plan, release: ReleaseLayout, batch: Batch) -> None:
    """Check that the counts of the root lie within its support and sum to its counts."""
    if batch.level or not plan.support:
        return
    root = plan.levels[0].name
    names, counts = _released(plan, release, batch)
    support, where = read_support(plan, release), f"{root} {names[0]}"
    if not np.isin(counts.cells, support.cells, assume_unique=True).all():
        raise VerificationError(where, "has counts in cells that its support leaves empty")
    if support.known is None or Dataset.open(release.counts(root)).facts.get(HOLDS):
        return  # the failsafe moved the root, and all moves stay in live cells
    query, known = support.known
    rows = query.rows_of(counts.cells)
    held = Histograms.from_entries(query.size, 1, np.zeros_like(rows), rows, counts.counts)
    live = np.unique(query.rows_of(support.cells))
    if not (np.array_equal(held.cells, live) and np.array_equal(held.counts, known[0])):
        raise VerificationError(where, f"does not add up to its support by {query.name}")


def _verify_limits(plan: Plan, release: ReleaseLayout, batch: Batch) -> int:
    """Check all constraints that are stated at the geolevel of a range, or at every one.

    Given counts are read as they were given, not from the released implied constraints. Returns
    how many geounits were checked.
    """
    geolevel = plan.levels[batch.level].name
    limits = plan.limits.stated_at(geolevel)
    if not limits:
        return 0
    codes, counts = _released(plan, release, batch)
    for limit in limits:
        broken = limit.broken(counts, given_counts(release, limit, codes, batch))
        _refuse(geolevel, codes, broken, f"breaks the invariant {limit.title}")
    return len(codes)


def _verify_ties(plan: Plan, release: ReleaseLayout, batch: Batch) -> int:
    """Check the constraints between products in one range; returns the number of geounits.

    At coarser geolevels they hold because counts are sums.
    """
    geolevel, ties = plan.levels[batch.level].name, plan.limits.ties
    if ties is None or ties.geolevel != geolevel:
        return 0
    codes, counts = _released(plan, release, batch)
    others = other_counts(release, ties.sizes, geolevel, codes)
    for tie in ties.entries:
        _refuse(geolevel, codes, tie.broken(counts, others), f"breaks between {tie.name}")
    return len(codes)


def _released(plan: Plan, release: ReleaseLayout, batch: Batch) -> tuple[ObjectArray, Histograms]:
    """Read geocodes and released counts of the geounits of a range."""
    geolevel = plan.levels[batch.level].name
    codes = read_public_geocodes(release, geolevel, batch.low, batch.high)
    return codes, read_counts(release, geolevel, codes, plan.schema.size)


def _refuse(geolevel: str, codes: ObjectArray, broken: BoolArray, what: str) -> None:
    """Raise VerificationError for the first geounit marked in `broken`, if any."""
    if broken.any():
        raise VerificationError(f"{geolevel} {codes[int(np.argmax(broken))]}", what)
