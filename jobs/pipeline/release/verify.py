"""Verify a finished release from its files: digests, sums of children, and invariants.

Counts are compared as integers. The checks share no code with the solver or with the joining of
microdata, and trust only the digests in the manifests.

For imported measurements, the noise is tested against its stated variances. The true answers of
children sum to the true answer of their parent. So the difference between a parent's noisy answer
and the sum of its children's noisy answers is noise alone. The sum of these squared differences,
each divided by its variance, has approximately a chi-square distribution; only approximately,
because the noise is discrete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from scipy.stats import chi2

from das.arrays import BoolArray, FloatArray, IntArray, ObjectArray
from das.errors import OutputError, VerificationError
from das.histograms import Histograms, first_difference
from das.schema import Schema
from jobs.pipeline.config.between import Joining, joining_of
from jobs.pipeline.config.models.data import WithheldData
from jobs.pipeline.config.product import Product, Resolved
from jobs.pipeline.documents.manifest import (
    Manifest,
    read_manifest,
    read_release,
)
from jobs.pipeline.documents.statistics import HOLDS
from jobs.pipeline.folder.solutions import settings_digest, solution_of
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.census import CensusCodes, census_codes
from jobs.pipeline.release.finalizing import SEEDED, verify_contents, verify_manifest
from jobs.pipeline.release.implied import given_counts, other_counts
from jobs.pipeline.release.level import read_support
from jobs.pipeline.release.manifest import (
    answers_of,
    census_manifest_of,
    manifest_of,
    product_facts,
)
from jobs.pipeline.storage.answers import read_answers, read_measured
from jobs.pipeline.storage.columns import texts
from jobs.pipeline.storage.csv import without_formula
from jobs.pipeline.storage.dataset import MANIFEST, Dataset, dataset_digest, verify_files
from jobs.pipeline.storage.geography import families, read_geography, read_public_geocodes
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.ledger import read_ledger, recorded_draws
from jobs.pipeline.storage.place import Place, open_input
from jobs.pipeline.tasks.batches import Batch, geounit_batches

Progress = Callable[[int, int], None]

_GEOUNITS = 20_000  # geounits compared at a time; default, not measured


def verify_run(resolved: Resolved, progress: Progress | None = None) -> dict[str, int | float]:
    """Check every product of a finished run, and all statements of their manifests.

    Args:
      resolved: The run, or a solution of it.
      progress: Called with (finished, all) geolevels of a product.

    Returns:
      Numbers as from `verify_release`, summed over products; number of records of joined microdata;
      for imported measurements, the chi-square of the residuals and its degrees of freedom.

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
        finalized[product.name] = _verify_manifest(resolved, product)
        if product.plan.is_elsewhere:
            test = residual_test(product.plan, product.release)
            checked["noise_differences"] = test.differences
            checked["noise_chi_square"] = test.chi_square
    stated = read_release(resolved.release.root)
    checked["datasets"] += verify_contents(resolved.release, stated)
    verify_manifest(resolved.release, stated, census_manifest_of(resolved, finalized))
    return checked


def _verify_manifest(resolved: Resolved, product: Product) -> Manifest:
    """Compare the manifest of a product with one that is made again from the release.

    Facts that only the run knew are not compared: time, machine, software, language and names of
    grants. If the configuration is that of a release, the expected errors of groups are not
    compared either. The manifest has them, but their queries come from the section `evaluate` of
    the run file, which is not released.

    Args:
      resolved: The run, or a solution of it.
      product: The product.

    Returns:
      The manifest as it is in the release.

    Raises:
      VerificationError: The manifests differ, or answers have other noise than the ledger says.
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
    account = product.release.account
    if stated.account is not None and not account.exists():
        raise OutputError(str(account), "is missing", want="the file that the manifest names")
    if stated.solution.digest not in recorded:
        where = f"{release.manifest}, solution.digest"
        raise VerificationError(where, "states settings with which no counts were made")
    settings = recorded[stated.solution.digest]
    digest = settings_digest(settings)
    solution = replace(solution, name=stated.solution.name, settings=settings, digest=digest)
    facts = product_facts(resolved, product, environment=stated.environment, solution=solution)
    again = manifest_of(plan, ledger.spent(), release, facts)
    again = replace(again, language=stated.language)
    if isinstance(product.config.data, WithheldData):
        again = replace(again, expected_groups=stated.expected_groups)
    if again.together is not None and stated.together is not None:
        names = {grant.product: grant.grant for grant in stated.together.grants}
        grants = (
            replace(grant, grant=names.get(grant.product, grant.grant))
            for grant in again.together.grants
        )
        again = replace(again, together=replace(again.together, grants=tuple(grants)))
    verify_manifest(release, stated, again)
    return stated


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
    """Check by digest that datasets of a finalized release are the ones its manifest names.

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
    datasets += [release.lazy_measurements(v.name) for v in plan.levels if v.on_demand]
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
        raise VerificationError(
            f"{above} {names[wrong]}", f"its geounits of {geolevel} do not sum to it"
        )
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
                    f"{geolevel} {codes[wrong]}",
                    f"its geounits of {plan.leaf.name} do not sum to it",
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
        raise VerificationError(where, "has positive counts in cells outside its support")
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


# Answers of one query at two geolevels that are held in memory: 320 MB of int64. Not measured.
_MOST_ANSWERS = 40_000_000
# False positive rate: one of a billion releases with the stated noise is refused. Not measured.
_LEAST_PROBABILITY = 1e-9


@dataclass(frozen=True)
class ResidualTest:
    """Chi-square test of differences between geounits and the sums of their children.

    Attributes:
      chi_square: Sum of squared differences over their variances.
      differences: Number of differences, the degrees of freedom.
      probability: Two-sided p-value under the stated noise, at most 1; an upper bound.
    """

    chi_square: float
    differences: int
    probability: float


def residual_test(plan: Plan, release: ReleaseLayout) -> ResidualTest:
    """Test the spread of imported noisy answers against their stated variances.

    Pairs of geolevels are disjoint, so differences are independent given the truth. A geounit
    counts if it and all its children are measured. Queries with more answers than fit in memory
    are left out. For integer noise, 1/2 is added to each difference for the lower tail, and
    subtracted for the upper tail, so that discrete noise of small variance passes.

    Args:
      plan: The plan.
      release: The release.

    Raises:
      OutputError: Measurements cannot be read.
      VerificationError: The spread has a p-value below 1e-9.
    """
    found = [*_differences(plan, release)]
    off = np.concatenate([np.zeros(0), *(np.abs(one) for one, _ in found)])
    variances = np.concatenate([np.zeros(0), *(variance for _, variance in found)])
    if not len(off):
        return ResidualTest(0.0, 0, 1.0)
    lower, upper = (((np.maximum(off + half, 0) ** 2) / variances).sum() for half in (0.5, -0.5))
    least = min(float(chi2.cdf(lower, len(off))), float(chi2.sf(upper, len(off))))
    test = ResidualTest(float((off**2 / variances).sum()), len(off), min(1.0, 2 * least))
    if test.probability < _LEAST_PROBABILITY:
        raise VerificationError(
            str(release.measurements(plan.levels[0].name).parent),
            "does not hold the stated noise: answers of geounits and of their children differ by "
            "too little or too much",
            got=f"a chi-square of {test.chi_square:.6g}",
            want=f"about {test.differences}, the number of differences",
        )
    return test


def _differences(plan: Plan, release: ReleaseLayout) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield differences and variances, float64[n] each, per query and pair of geolevels."""
    for last in range(len(plan.levels) - 1, 0, -2):
        upper, lower = plan.levels[last - 1], plan.levels[last]
        above, below = (Dataset.open(release.measurements(one.name)) for one in (upper, lower))
        geography = read_geography(release, lower.name, columns=("geocode", "parent"))
        codes, parents = texts(geography), texts(geography, "parent")
        names = {query.name for query in upper.queries} - plan.on_demand
        for query in lower.queries:
            if query.name not in names or query.size * len(codes) > _MOST_ANSWERS:
                continue
            upper_codes, answers, noise = read_measured(above, query.name, query.size)
            measured, children, of_children = read_measured(below, query.name, query.size)
            parent_of = parents[np.searchsorted(codes, measured)]
            listed = np.isin(parent_of, upper_codes)
            row = np.searchsorted(upper_codes, parent_of[listed])
            sums = np.zeros(answers.shape, np.int64)
            np.add.at(sums, row, children[listed])
            variances = np.array([one.variance() for one in noise])
            np.add.at(variances, row, np.array([one.variance() for one in of_children])[listed])
            families = parents[np.isin(parents, upper_codes)]
            n_upper = len(upper_codes)
            of_all = np.bincount(np.searchsorted(upper_codes, families), minlength=n_upper)
            of_measured = np.bincount(row, minlength=n_upper)
            whole = (of_measured == of_all) & (of_measured > 0)
            yield (
                (answers - sums)[whole].ravel().astype(float),
                np.repeat(variances[whole], query.size),
            )


def verify_joined(plan: Plan, release: ReleaseLayout, joining: Joining) -> int:
    """Check that every record is in at most one unit, and every unit holds the records it must.

    In every leaf, rows match the counts of records, cell by cell. A row names an existing unit,
    with its attributes. Every unit, also without rows, keeps each constraint of `between`: a
    household of size k has k persons, one of them a householder. The Parquet file is checked, or
    the CSV file if there is no other.

    Returns:
      The number of checked records.

    Raises:
      OutputError: A file is missing or unreadable.
      VerificationError: A check fails; names the geounit.
    """
    formats = sorted(joining.config.file_formats, reverse=True)  # Parquet, if it is there
    dataset = Dataset.open(release.joined / formats[0])
    checked = 0
    for low, high in _ranges(plan, release):
        checked += _verify_range(plan, release, joining, dataset, low, high)
    if checked != dataset.rows:
        raise VerificationError(
            str(dataset.path),
            "has rows in geounits that the release lacks",
            got=dataset.rows,
            want=checked,
        )
    return checked


def _ranges(plan: Plan, release: ReleaseLayout) -> Iterator[tuple[str, str]]:
    census = census_codes(plan, release)
    if census is not None:
        yield from census.ranges(_GEOUNITS)
        return
    for batch in geounit_batches(release, plan.leaf, 1, _GEOUNITS):
        yield batch.low, batch.high


def _verify_range(
    plan: Plan, release: ReleaseLayout, joining: Joining, dataset: Dataset, low: str, high: str
) -> int:
    leaf, product = plan.leaf.name, joining.places.product
    codes = read_public_geocodes(release, leaf, low, high)
    units = read_counts(release.product(product), leaf, codes, joining.units.size)
    records = read_counts(release, leaf, codes, plan.schema.size)
    names = codes
    if plan.census is not None:
        names = texts(
            read_geography(release, leaf, low, high, ("census_geocode",)), "census_geocode"
        )
    table = _rows(dataset, low, high)
    owners = _positions(names, texts(table), str(dataset.path))

    def refuse(rows: np.typing.NDArray[np.bool_], what: str, got: object = None) -> None:
        if rows.any():
            where = names[int(owners[np.flatnonzero(rows)[0]])]
            raise VerificationError(f"joined {leaf} {where}", what, got=got)

    cells = _cells(plan.schema, table, [attribute.name for attribute in plan.schema.attributes])
    refuse(cells < 0, "has a record with an attribute that the schema does not know")
    found = Histograms.from_entries(
        plan.schema.size, len(names), owners, cells, np.ones(len(cells), np.int64)
    )
    wrong = first_difference(found, records)
    if wrong is not None:
        raise VerificationError(
            f"joined {leaf} {names[wrong]}",
            "has joined microdata that differ from the protected counts of persons",
        )
    numbers = pc.fill_null(table.column(joining.number).cast(pa.int64()), 0).to_numpy()
    u_leaf = np.repeat(units.owners(), units.counts)
    u_cell = np.repeat(units.cells, units.counts)
    first = np.searchsorted(u_leaf, np.arange(len(names) + 1))
    refuse((numbers < 0) | (numbers > np.diff(first)[owners]), "has a record in a unit it lacks")
    housed = numbers > 0
    unit = np.where(housed, first[owners] + numbers - 1, 0)
    stated = _cells(joining.units, table, joining.columns)
    numbered = np.where(housed, u_cell[unit] if len(u_cell) else -1, -1)
    refuse(stated != numbered, "has a record whose unit attributes are not those of its unit")
    if plan.limits.ties is None:
        raise ValueError("joined microdata are of a product with ties")
    for tie in plan.limits.ties.entries:
        inside = tie.cells[cells]
        refuse(inside & ~housed, "has a record in no unit", got=tie.name)
        records_of = np.bincount(unit[inside & housed], minlength=len(u_cell))
        broken = np.zeros(len(u_cell), np.bool_)
        for form, breaks in ((tie.least, np.less), (tie.most, np.greater)):
            if form is not None:
                broken |= breaks(records_of, form.parts[product][u_cell])
        if broken.any():
            where = names[int(u_leaf[np.flatnonzero(broken)[0]])]
            raise VerificationError(
                f"joined {leaf} {where}", "has a unit that does not keep", got=f"between {tie.name}"
            )
    return len(cells)


def _positions(names: ObjectArray, geocodes: ObjectArray, where: str) -> IntArray:
    """Return int64[r], for each of r rows of microdata the index of its leaf in `names`.

    Args:
      names: Geocodes of the leaves.
      geocodes: Geocode of each row.
      where: Subject of the error.

    Raises:
      VerificationError: A row has a geocode of no leaf.
    """
    order = np.argsort(names.astype(np.str_), kind="stable")
    known = names[order].astype(np.str_)
    wanted = geocodes.astype(np.str_)
    index = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    strange = known[index] != wanted
    if strange.any():
        raise VerificationError(
            where, "has a row of no leaf", got=str(geocodes[int(np.argmax(strange))])
        )
    return np.asarray(order[index], np.int64)


def _cells(schema: Schema, table: pa.Table, columns: Sequence[str]) -> IntArray:
    """Return int64[r], the cell of each of r rows; -1 if a label is missing or unknown.

    Args:
      schema: Schema of the cells.
      table: The rows.
      columns: Names of the columns with the attributes, in the order of the schema.
    """
    codes, unknown = {}, np.zeros(table.num_rows, np.bool_)
    for attribute, name in zip(schema.attributes, columns, strict=True):
        labels = pa.array([*attribute.levels, *map(without_formula, attribute.levels)])
        found = pc.index_in(table.column(name).cast(pa.string()), labels)
        code = pc.fill_null(found, -1).to_numpy()
        unknown |= code < 0
        codes[attribute.name] = np.maximum(code, 0) % attribute.size
    return np.where(unknown, -1, schema.cells_of(codes))


def _rows(dataset: Dataset, low: str, high: str) -> pa.Table:
    """Read the rows of a range; columns of a CSV file keep their labels as text."""
    if dataset.path.name != "csv":
        return dataset.read(low, high)
    tables = []
    for part in dataset.within(low, high).parts:
        try:
            table = pa_csv.read_csv(
                open_input(dataset.path / part.file, part.bytes),
                convert_options=pa_csv.ConvertOptions(
                    column_types={"geocode": pa.string()},
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except (OSError, pa.ArrowException) as error:
            raise OutputError(str(dataset.path / part.file), "cannot be read") from error
        codes = table.column("geocode")
        tables.append(
            table.filter(pc.and_(pc.greater_equal(codes, low), pc.less_equal(codes, high)))
        )
    return pa.concat_tables(tables)
