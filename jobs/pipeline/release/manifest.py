"""Gather and write manifests: released files, budget, software and digests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from das.arrays import IntArray
from das.metrics.parity import expected_absolute, parity_of
from das.privacy.ledger import Ledger
from das.queries.query import Query, parse_query
from das.schema import Recode, Schema
from jobs.pipeline.config.models.run import AboutConfig
from jobs.pipeline.config.product import Grouping, Product, Resolved, reservation_of
from jobs.pipeline.documents.account import Account, account_of_grants
from jobs.pipeline.documents.codebook import (
    Codebook,
    CodedGeolevel,
    CodedGroup,
    CodedQuery,
    CodedRecode,
)
from jobs.pipeline.documents.document import read_document, write_document
from jobs.pipeline.documents.intervals import digest_of
from jobs.pipeline.documents.manifest import (
    Attribute,
    CensusManifest,
    CountedSchema,
    Environment,
    ExpectedAtLevel,
    ExpectedGroups,
    GeounitsSource,
    LevelGeography,
    Manifest,
    OffSpineLevel,
    Origin,
    Solution,
    SolvedLevel,
)
from jobs.pipeline.documents.statistics import ExpectedTotals, LearnedAnswers, statistics_of, use_of
from jobs.pipeline.language import spoken
from jobs.pipeline.plan import Level, Plan
from jobs.pipeline.release.finalizing import (
    released_files,
    released_outputs,
    software,
    write_manifest,
)
from jobs.pipeline.release.statements import (
    budget_rows,
    exact_queries,
    limits_of,
    privacy_statement,
    privacy_statements,
    stratum_statements,
)
from jobs.pipeline.report.datasets import (
    codebook_page,
    described,
    readme,
    release_readme,
    with_shared,
)
from jobs.pipeline.storage.answers import ORIGIN
from jobs.pipeline.storage.dataset import MANIFEST, Dataset, is_published
from jobs.pipeline.storage.files import READABLE, replace_file
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.histograms import read_histograms
from jobs.pipeline.storage.layout import EstimateLayout, ReleaseLayout
from jobs.pipeline.storage.place import at_once, found_under

_ACCOUNT = "use `das run RUN --only measure`"
# Labels of a query listed in the codebook. `detailed` may have millions, which the attributes name.
_MOST_LABELS = 1000
Sums = Mapping[str, Sequence[float]]  # table to the sum over geounits of each standard error


@dataclass(frozen=True)
class RunFacts:
    """Facts of a run that a manifest states beyond plan and files; public.

    Attributes:
      name: Name of the run.
      account: All grants for the same people; None if the noise was seeded.
      geounits_source: "public list" or "data".
      environment: Cores, Spark, Java. It states nothing that depends on the truth, such as time or
        memory of reading.
      solution: The settings of the counts, and earlier settings.
      records: Name of the records, which is the name of the product.
      composition: The account of all products of the run, if there are several.
      expected: Expected errors of population groups.
      tables: Tabulated queries.
      about: Office and licence, for the README.
    """

    name: str
    account: Account | None
    geounits_source: GeounitsSource
    environment: Environment
    solution: Solution
    records: str = "persons"
    composition: Account | None = None
    expected: tuple[ExpectedGroups, ...] = ()
    tables: tuple[Query, ...] = ()
    about: AboutConfig = field(default_factory=AboutConfig)


def product_facts(
    resolved: Resolved,
    product: Product,
    *,
    environment: Environment,
    solution: Solution,
) -> RunFacts:
    """Return the facts that the manifest of a product states beyond plan and files.

    Args:
      resolved: The run.
      product: The product.
      environment: Machine and software of the run.
      solution: The settings of the counts.

    Raises:
      OutputError: The account of the release, or its counts, cannot be read.
    """
    account = product.release.account
    facts = RunFacts(
        name=product.title,
        account=read_document(Account, account, remedy=_ACCOUNT) if account.exists() else None,
        geounits_source=resolved.config.geography.source,
        environment=environment,
        solution=solution,
        records=product.name,
        expected=expected_groups(product.plan, product.release, product.grouping),
        tables=tuple(product.tabulated.values()),
        about=resolved.config.about,
    )
    if len(resolved.products) == 1:
        return facts
    reservations = [reservation_of(resolved, each, "") for each in resolved.products.values()]
    return replace(facts, composition=account_of_grants(reservations))


def manifest_of(plan: Plan, ledger: Ledger, release: ReleaseLayout, facts: RunFacts) -> Manifest:
    """Gather the manifest of a release from plan, ledger and the files of the folder.

    Args:
      plan: The plan.
      ledger: The measured queries and their costs.
      release: The release; all its datasets must be published.
      facts: Facts that only the run knows.

    Raises:
      OutputError: A dataset is incomplete.
    """
    geography = tuple(at_once(release.root, lambda level: _geography(release, level), plan.levels))
    # None for measurements of this run.
    origin = Dataset.open(release.measurements(plan.levels[0].name)).facts.get(ORIGIN)
    return Manifest(
        format=3,
        name=facts.name,
        not_for_release=plan.not_for_release,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        software=software(),
        configuration_digest=plan.digest,
        schema=CountedSchema(
            name=plan.schema.name,
            cells=plan.schema.size,
            attributes=tuple(
                Attribute(name=a.name, levels=tuple(a.levels)) for a in plan.schema.attributes
            ),
        ),
        privacy=privacy_statement(plan, facts.geounits_source),
        statements=privacy_statements(plan, ledger, facts.geounits_source),
        account=facts.account,
        budget=budget_rows(plan, ledger),
        strata=stratum_statements(plan, ledger, facts.geounits_source),
        invariants=exact_queries(plan),
        limits=limits_of(plan),
        geography=geography,
        geounits_source=facts.geounits_source,
        open_sessions=tuple(
            level.name
            for level in plan.levels
            if any(answers.facts.get("open_session") for answers in answers_of(release, level))
        ),
        solve=tuple(_solved(release, level.name) for level in plan.levels),
        solution=facts.solution,
        outputs=released_outputs(release),
        files=released_files(release),
        totals={facts.records: _records(release), "leaf_geounits": geography[-1].geounits},
        environment=facts.environment,
        records=facts.records,
        together=facts.composition,
        expected_groups=facts.expected,
        origin=None if origin is None else Origin(**origin),
        off_spine=_off_spine(plan, release),
        language=facts.about.language,
    )


def finalize_product(
    plan: Plan, ledger: Ledger, release: ReleaseLayout, facts: RunFacts
) -> Manifest:
    """Write README, codebook and manifest of a finished product.

    Args:
      plan: The plan.
      ledger: The finalized ledger of the run.
      release: The release; all its datasets must be published.
      facts: Facts that only the run knows.

    Returns:
      The manifest written.

    Raises:
      OutputError: A dataset is incomplete.
    """
    manifest = manifest_of(plan, ledger, release, facts)
    whole = release.whole
    shown = with_shared(manifest, released_outputs(whole), released_files(whole))
    with spoken(facts.about.language):
        codebook = codebook_of(plan, shown, facts.tables)
        write_document(release.codebook, codebook, mode=READABLE)
        replace_file(release.codebook_page, codebook_page(codebook), mode=READABLE)
        replace_file(release.readme, readme(shown, facts.about), mode=READABLE)
    return write_manifest(release, replace(manifest, files=released_files(release)), Manifest)


def finalize_census(resolved: Resolved, finalized: Mapping[str, Manifest]) -> None:
    """Write README and manifest of a whole release, whose products are finalized.

    Args:
      resolved: The run.
      finalized: The manifests of its products by name.
    """
    release = resolved.release
    about = resolved.config.about
    with spoken(about.language):
        page = release_readme([*finalized.values()], resolved.config.name, about)
    replace_file(release.readme, page, mode=READABLE)
    write_manifest(release, census_manifest_of(resolved, finalized), CensusManifest)


def census_manifest_of(resolved: Resolved, finalized: Mapping[str, Manifest]) -> CensusManifest:
    """Gather the manifest of a whole release from the files of its folder.

    Args:
      resolved: The run.
      finalized: The manifests of its products by name, as they were written.
    """
    release = resolved.release
    return CensusManifest(
        format=1,
        kind="census",
        name=resolved.config.name,
        not_for_release=any(manifest.not_for_release for manifest in finalized.values()),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        software=software(),
        configuration_digest=resolved.plan.digest,
        products={
            name: digest_of(product.release.manifest) for name, product in resolved.products.items()
        },
        outputs=released_outputs(release),
        files=released_files(release),
    )


def _geography(release: ReleaseLayout, level: Level) -> LevelGeography:
    """Count geounits, measured geounits and only children, which are not measured."""
    geounits = Dataset.open(release.geography(level.name)).rows
    measured = 0
    for answers in answers_of(release, level):
        measured = max(measured, answers.rows // max(1, len(answers.facts["queries"])))
    return LevelGeography(
        geolevel=level.name,
        digits=level.digits,
        geounits=geounits,
        measured=measured,
        only_children=geounits - measured,
    )


def _off_spine(plan: Plan, release: ReleaseLayout) -> tuple[OffSpineLevel, ...]:
    spine = plan.census_spine
    digits = dict(zip(spine.levels, spine.digits, strict=True))
    return tuple(
        OffSpineLevel(
            geolevel=name,
            digits=digits[name],
            geounits=Dataset.open(release.geography(name)).rows,
        )
        for name in plan.off_spine
    )


def answers_of(release: ReleaseLayout, level: Level) -> list[Dataset]:
    """Open the datasets of noisy answers of a geolevel: measured first, and on demand."""
    lazily = release.lazy_measurements(level.name)
    datasets = [Dataset.open(release.measurements(level.name))]
    return [*datasets, *([Dataset.open(lazily)] if is_published(lazily) else [])]


def _solved(release: ReleaseLayout, geolevel: str) -> SolvedLevel:
    """Return how a geolevel was solved, from the facts of its counts."""
    counts = Dataset.open(release.counts(geolevel))
    return SolvedLevel(
        geolevel=geolevel,
        wall_seconds=counts.facts["seconds"],
        solve_digest=counts.facts["solve_digest"],
        **vars(statistics_of(counts)),
        expected_totals=use_of(counts, "expected_totals", ExpectedTotals),
        learned=use_of(counts, "learned", LearnedAnswers),
    )


def _records(release: ReleaseLayout) -> int | None:
    """Count the rows of the microdata; None if none were written."""
    formats = sorted(path.parent for path in found_under(release.microdata, MANIFEST))
    return Dataset.open(formats[0]).rows if formats else None


# --- the codebook ---------------------------------------------------------------------------------


def codebook_of(plan: Plan, manifest: Manifest, tables: Sequence[Query]) -> Codebook:
    """Make the codebook: the meaning of codes and names in the files of a release.

    Args:
      plan: The plan.
      manifest: The manifest of the release.
      tables: Tabulated queries.
    """
    return Codebook(
        format=1,
        name=manifest.name,
        records=manifest.records,
        cells=plan.schema.size,
        attributes=manifest.schema.attributes,
        recodes=tuple(_recode(plan.schema, recode) for recode in plan.schema.recodes),
        geolevels=tuple(
            CodedGeolevel(
                name=name,
                digits=digits,
                geounits=geounits,
                on_spine=name in plan.spine.levels,
                census_digits=None if plan.census is None else plan.census_digits.get(name),
            )
            for name, digits, geounits in (
                *((row.geolevel, row.digits, row.geounits) for row in manifest.geography),
                *((row.geolevel, row.digits, row.geounits) for row in manifest.off_spine),
            )
        ),
        queries=_queries(plan, tables),
        datasets=tuple(described(manifest)),
    )


def _recode(schema: Schema, recode: Recode) -> CodedRecode:
    (attribute,) = (a for a in schema.attributes if a.name == recode.attribute)
    levels: list[list[str]] = [[] for _ in recode.groups]
    for level, group in zip(attribute.levels, recode.codes, strict=True):
        levels[group].append(level)
    groups = zip(recode.groups, levels, strict=True)
    return CodedRecode(
        name=recode.name,
        attribute=recode.attribute,
        groups=tuple(CodedGroup(label=label, levels=tuple(names)) for label, names in groups),
    )


def _queries(plan: Plan, tables: Sequence[Query]) -> tuple[CodedQuery, ...]:
    """List tabulated queries first, then queries that are only measured or only exact."""
    tabulated = {query.name: query for query in tables}
    coded = dict(tabulated)
    for level in plan.levels:
        for query in (*level.exact, *level.queries):
            coded.setdefault(query.name, query)
    return tuple(
        CodedQuery(
            query=name,
            answers=query.size,
            labels=tuple(query.labels()) if query.size <= _MOST_LABELS else (),
            measured=tuple(v.name for v in plan.levels if name in {q.name for q in v.queries}),
            exact=tuple(v.name for v in plan.levels if name in {q.name for q in v.exact}),
            tabulated=name in tabulated,
        )
        for name, query in coded.items()
    )


# --- expected errors of groups --------------------------------------------------------------------


def expected_groups(
    plan: Plan, release: ReleaseLayout, grouping: Grouping
) -> tuple[ExpectedGroups, ...]:
    """Compute expected errors of population groups from the standard errors of estimates.

    An unbiased estimate with standard error s has mean absolute error s sqrt(2 / pi) if errors are
    normal. Group sizes are released counts. Counts are not negative, so absolute errors sum to at
    most the true plus the released records; expected errors are cut off at twice the released
    records.

    Args:
      plan: The plan.
      release: The release; its counts must be published.
      grouping: The queries of groups; queries without a table of estimates are left out.

    Returns:
      One entry for each query with estimates.

    Raises:
      OutputError: A dataset cannot be read.
    """
    sums = {level: _sums(release, level) for level in plan.spine.levels}
    listed = [q for q in grouping.groups if all(q.name in of_level for of_level in sums.values())]
    if not listed:
        return ()
    root = plan.spine.levels[0]
    codes = read_public_geocodes(release, root)
    counts = read_histograms(Dataset.open(release.counts(root)), codes, plan.schema.size)
    total = parse_query(plan.schema, "total").name
    out = []
    for query in listed:
        released = query.answer(counts).sum(0)
        levels = tuple(
            _at(name, query, released, of_level, of_level.get(total), grouping)
            for name, of_level in sums.items()
        )
        out.append(
            ExpectedGroups(
                groups=query.name,
                labels=tuple(query.labels()),
                released=tuple(released.tolist()),
                floor=grouping.floor,
                levels=levels,
            )
        )
    return tuple(out)


def _sums(release: ReleaseLayout, geolevel: str) -> Sums:
    """Read, for each table of a geolevel, the sum over geounits of each standard error.

    The result is empty if the release has no estimates of this geolevel.
    """
    path = EstimateLayout.of(release).tables(geolevel)
    if not is_published(path):
        return {}
    sums: Sums = Dataset.open(path).facts.get("standard_error_sums", {})
    return sums


def _at(
    geolevel: str,
    query: Query,
    released: IntArray,
    sums: Sums,
    of_total: Sequence[float] | None,
    grouping: Grouping,
) -> ExpectedAtLevel:
    absolute = np.minimum(expected_absolute(sums[query.name]), 2.0 * released)
    of_all = math.nan
    if of_total is not None:
        of_all = min(float(expected_absolute(of_total)[0]), 2.0 * float(released.sum()))
    parity = parity_of(absolute, released, of_all, floor=grouping.floor)
    return ExpectedAtLevel(
        geolevel=geolevel,
        l1=tuple(float(f"{value:.6g}") for value in absolute.tolist()),
        everybody=_number(parity.population),
        k=parity.n_groups,
        parity=_number(parity.error),
        parity_mean=_number(parity.mean),
        worst=None if parity.worst is None else query.labels()[parity.worst],
    )


def _number(value: float) -> float | None:
    """Round to six significant digits; None for NaN."""
    return None if np.isnan(value) else float(f"{value:.6g}")
