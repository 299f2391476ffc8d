"""Manifest: what was released, under which budget, by which software, with which digests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from das.privacy.ledger import Ledger
from jobs.pipeline.config.claims import claim_of
from jobs.pipeline.config.models.run import AboutConfig
from jobs.pipeline.config.product import Product, Resolved
from jobs.pipeline.documents.account import Account, account_of_grants
from jobs.pipeline.documents.document import read_document, write_document
from jobs.pipeline.documents.manifest import (
    Attribute,
    CountedSchema,
    Environment,
    ExpectedGroups,
    GeounitsSource,
    LevelGeography,
    Manifest,
    OffSpineLevel,
    Origin,
    Solution,
    SolvedLevel,
)
from jobs.pipeline.documents.statistics import expected_totals_of, statistics_of
from jobs.pipeline.plan import Level, Plan
from jobs.pipeline.release.codebook import codebook_of
from jobs.pipeline.release.expected import expected_groups
from jobs.pipeline.release.sealing import released_files, released_outputs, software, write_manifest
from jobs.pipeline.release.statements import (
    budget_rows,
    exact_queries,
    limits_of,
    privacy_statement,
    privacy_statements,
    stratum_statements,
)
from jobs.pipeline.report.datasets import codebook_page, readme
from jobs.pipeline.storage.answers import ORIGIN
from jobs.pipeline.storage.dataset import MANIFEST, Dataset, is_published
from jobs.pipeline.storage.files import replace_file
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.modes import READABLE
from jobs.pipeline.storage.place import at_once, found_under

_ACCOUNT = "run `das measure`"


@dataclass(frozen=True)
class RunFacts:
    """What a manifest says beyond the plan and the files; public.

    Attributes:
      name: Name of the run.
      account: All grants for the same people; none if the noise was seeded.
      geounits_source: "public list" or "data".
      environment: Cores, Spark, Java; nothing that depends on the truth, such as the time or
        memory that reading took.
      solution: The settings that the counts were made with, and those tried before.
      records: What the records are called: the name of the product.
      products: Manifests of the other products of the run by name, for that of the last.
      composition: What all products cost together, likewise.
      expected: For whom the release is expected to be worse.
      tables: Queries that are tabulated.
      about: What the README says of the office and the licence.
    """

    name: str
    account: Account | None
    geounits_source: GeounitsSource
    environment: Environment
    solution: Solution
    records: str = "persons"
    products: Mapping[str, Manifest] | None = None
    composition: Account | None = None
    expected: tuple[ExpectedGroups, ...] = ()
    tables: tuple[str, ...] = ()
    about: AboutConfig = field(default_factory=AboutConfig)


def product_facts(
    resolved: Resolved,
    product: Product,
    sealed: Mapping[str, Manifest],
    *,
    environment: Environment,
    solution: Solution,
) -> RunFacts:
    """Return what the manifest of a product says beyond its plan and its files.

    Args:
      resolved: The run.
      product: The product.
      sealed: The manifests of the products before it, by name.
      environment: What the run ran on.
      solution: The settings that the counts were made with.

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
        tables=tuple(product.tables),
        about=resolved.config.about,
    )
    if not sealed or product is not resolved.last:
        return facts
    claims = [claim_of(resolved, each, "") for each in resolved.products.values()]
    return replace(facts, products=dict(sealed), composition=account_of_grants(claims))


def manifest_of(plan: Plan, ledger: Ledger, release: ReleaseLayout, facts: RunFacts) -> Manifest:
    """Gather the manifest of a release from its plan, its ledger and what lies in its folder.

    Args:
      plan: The plan.
      ledger: What was measured.
      release: The release; all its datasets must be published.
      facts: What only the run knows.

    Raises:
      OutputError: A dataset is incomplete.
    """
    geography = tuple(at_once(release.root, lambda level: _geography(release, level), plan.levels))
    return Manifest(
        format=3,
        name=facts.name,
        not_for_release=plan.not_for_release,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        software=software(),
        configuration_digest=plan.digest,
        schema=_schema(plan),
        privacy=privacy_statement(plan, facts.geounits_source),
        statements=privacy_statements(plan, ledger, facts.geounits_source),
        account=facts.account,
        budget=budget_rows(plan, ledger),
        strata=stratum_statements(plan, ledger, facts.geounits_source),
        invariants=exact_queries(plan),
        limits=limits_of(plan),
        geography=geography,
        geounits_source=facts.geounits_source,
        open_sessions=_open_sessions(plan, release),
        solve=tuple(_solved(release, level.name) for level in plan.levels),
        solution=facts.solution,
        outputs=released_outputs(release),
        files=released_files(release, facts.products or ()),
        totals={facts.records: _records(release), "leaf_geounits": geography[-1].geounits},
        environment=facts.environment,
        records=facts.records,
        products=None if facts.products is None else dict(facts.products),
        together=facts.composition,
        expected_groups=facts.expected,
        origin=_origin(plan, release),
        off_spine=_off_spine(plan, release),
    )


def seal_product(plan: Plan, ledger: Ledger, release: ReleaseLayout, facts: RunFacts) -> Manifest:
    """Write README and codebook of a finished product, and the manifest that names them and all.

    Args:
      plan: The plan.
      ledger: The sealed ledger of the run.
      release: The release; all its datasets must be published.
      facts: What only the run knows.

    Returns:
      The manifest written.

    Raises:
      OutputError: A dataset is incomplete.
    """
    manifest = manifest_of(plan, ledger, release, facts)
    codebook = codebook_of(plan, manifest, facts.tables)
    write_document(release.codebook, codebook, mode=READABLE)
    replace_file(release.codebook_page, codebook_page(codebook), mode=READABLE)
    replace_file(release.readme, readme(manifest, facts.about), mode=READABLE)
    files = released_files(release, facts.products or ())
    return write_manifest(release, replace(manifest, files=files), Manifest)


def _schema(plan: Plan) -> CountedSchema:
    return CountedSchema(
        name=plan.schema.name,
        cells=plan.schema.size,
        attributes=tuple(
            Attribute(name=a.name, levels=tuple(a.levels)) for a in plan.schema.attributes
        ),
    )


def _geography(release: ReleaseLayout, level: Level) -> LevelGeography:
    """Geounits of a geolevel; only children are those that have no noisy answers of their own."""
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


def _open_sessions(plan: Plan, release: ReleaseLayout) -> tuple[str, ...]:
    """Geolevels measured in a session that lacked protection."""
    return tuple(
        level.name
        for level in plan.levels
        if any(answers.facts.get("open_session") for answers in answers_of(release, level))
    )


def answers_of(release: ReleaseLayout, level: Level) -> list[Dataset]:
    """Open the datasets of the noisy answers of a geolevel; older versions have one."""
    lazily = release.lazy_measurements(level.name)
    datasets = [Dataset.open(release.measurements(level.name))]
    return [*datasets, *([Dataset.open(lazily)] if is_published(lazily) else [])]


def _origin(plan: Plan, release: ReleaseLayout) -> Origin | None:
    """Where noisy answers come from that were made elsewhere, as they say."""
    said = Dataset.open(release.measurements(plan.levels[0].name)).facts.get(ORIGIN)
    return None if said is None else Origin(**said)


def _solved(release: ReleaseLayout, geolevel: str) -> SolvedLevel:
    """How a geolevel was solved, as its counts say."""
    counts = Dataset.open(release.counts(geolevel))
    return SolvedLevel(
        geolevel=geolevel,
        wall_seconds=counts.facts["seconds"],
        solve_digest=counts.facts["solve_digest"],
        **vars(statistics_of(counts)),
        expected_totals=expected_totals_of(counts),
    )


def _records(release: ReleaseLayout) -> int | None:
    """Rows of the microdata; None if none were written."""
    formats = sorted(path.parent for path in found_under(release.microdata, MANIFEST))
    return Dataset.open(formats[0]).rows if formats else None
