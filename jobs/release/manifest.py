"""Manifest: what was released, under which budget, by which software, with which digests."""

from __future__ import annotations

import csv
import hashlib
import importlib.metadata
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pyarrow.parquet as pq

from das.privacy.ledger import Ledger
from jobs.config.models.run import AboutConfig
from jobs.documents.account import Account
from jobs.documents.document import write_document
from jobs.documents.manifest import (
    Attribute,
    CountedSchema,
    Environment,
    ExpectedGroups,
    GeounitsSource,
    LevelGeography,
    Manifest,
    OffSpineLevel,
    Origin,
    Output,
    OutputColumn,
    ReleasedFile,
    Software,
    Solution,
    SolvedLevel,
)
from jobs.documents.statistics import expected_totals_of, statistics_of
from jobs.plan import Level, Plan
from jobs.release.codebook import codebook_of
from jobs.release.statements import (
    budget_rows,
    exact_queries,
    limits_of,
    privacy_statement,
    privacy_statements,
    stratum_statements,
)
from jobs.report.readme import codebook_page, readme
from jobs.revision import revision
from jobs.storage.answers import ORIGIN
from jobs.storage.columns import TEXT, type_words
from jobs.storage.dataset import MANIFEST, Dataset, is_published
from jobs.storage.files import replace_file
from jobs.storage.layout import ReleaseLayout, is_of_replicates
from jobs.storage.modes import READABLE
from jobs.storage.place import Place, at_once, found_under, lies_in, names_below, open_input

_LIBRARIES = ("numpy", "scipy", "pyarrow", "pyspark", "ortools", "cryptography", "pydantic")
NOT_FOR_RELEASE = "NOT_FOR_RELEASE.txt"


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


def write_manifest(plan: Plan, ledger: Ledger, release: ReleaseLayout, facts: RunFacts) -> Manifest:
    """Write README and codebook of a finished release, and the manifest that names them and all.

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
    geography = tuple(at_once(release.root, lambda level: _geography(release, level), plan.levels))
    manifest = Manifest(
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
        outputs=tuple(
            at_once(release.root, lambda path: output_of(release, path), _datasets(release.root))
        ),
        files=_files(release),
        totals={facts.records: _records(release), "leaf_geounits": geography[-1].geounits},
        environment=facts.environment,
        records=facts.records,
        products=None if facts.products is None else dict(facts.products),
        together=facts.composition,
        expected_groups=facts.expected,
        origin=_origin(plan, release),
        off_spine=_off_spine(plan, release),
    )
    codebook = codebook_of(plan, manifest, facts.tables)
    write_document(release.codebook, codebook, mode=READABLE)
    replace_file(release.codebook_page, codebook_page(codebook), mode=READABLE)
    replace_file(release.readme, readme(manifest, facts.about), mode=READABLE)
    manifest = replace(manifest, files=_files(release))
    write_document(release.manifest, manifest, mode=READABLE)
    if plan.not_for_release:
        replace_file(
            release.root / NOT_FOR_RELEASE,
            "The noise of this release was seeded for a test. It protects nobody.\n",
            mode=READABLE,
        )
    return manifest


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
    for answers in _answers(release, level):
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
        if any(answers.facts.get("open_session") for answers in _answers(release, level))
    )


def _answers(release: ReleaseLayout, level: Level) -> list[Dataset]:
    """Datasets of the noisy answers of a geolevel; older versions have one."""
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
    formats = _datasets(release.microdata)
    return Dataset.open(formats[0]).rows if formats else None


def software() -> Software:
    """What makes a release: this program, and the libraries that numbers depend on."""
    try:
        version = importlib.metadata.version("topdown-das")
    except importlib.metadata.PackageNotFoundError:
        version = "not installed"
    return Software(
        name="topdown-das",
        version=version,
        python=platform.python_version(),
        libraries=dict(_installed()),
        revision=revision(),
    )


def _installed() -> Iterator[tuple[str, str]]:
    """Versions of the libraries that are there; a survey does without some."""
    for name in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            yield name, importlib.metadata.version(name)


def _datasets(root: Place) -> list[Place]:
    """All but what replicates of the release made of it."""
    found = sorted(path.parent for path in found_under(root, MANIFEST))
    return [dataset for dataset in found if not is_of_replicates(dataset, root)]


def _files(release: ReleaseLayout) -> tuple[ReleasedFile, ...]:
    """Files beside the datasets, with their digests; manifest and report cannot hold their own."""
    files: tuple[Place, ...] = (
        *(release.ledger, release.planned, release.solves, release.account),
        *found_under(release.configuration, "*.yaml"),
        *found_under(release.schemas, "*.json"),
        *(release.readme, release.codebook, release.codebook_page),
    )
    return tuple(
        ReleasedFile(
            path=str(names_below(path, release.root)),
            bytes=path.stat().st_size,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in files
        if path.exists() and lies_in(path, release.root)
    )


def output_of(release: ReleaseLayout, path: Place) -> Output:
    """A dataset of a release, as a manifest has it."""
    dataset = Dataset.open(path)
    queries = dataset.facts.get("queries", [])
    of_tables = {part.file.rpartition(".")[0]: part.rows for part in dataset.parts}
    return Output(
        path=str(names_below(path, release.root)),
        files=len(dataset.parts),
        rows=sum(of_tables.values()),  # a table has the same rows in every format
        bytes=dataset.bytes,
        sha256=dataset.sha256,
        columns=dataset_columns(dataset),
        labelled=tuple(
            q["query"] for q in queries if isinstance(q, dict) and {"labels", "file"} & {*q}
        ),
    )


def dataset_columns(dataset: Dataset) -> tuple[OutputColumn, ...]:
    """Name and type of every column of a dataset, as it says, or from its first file."""
    if "columns" in dataset.facts:
        return tuple(OutputColumn(**column) for column in dataset.facts["columns"])
    if not dataset.parts:
        return ()
    path = dataset.path / dataset.parts[0].file
    if path.suffix == ".parquet":
        schema = pq.read_schema(open_input(path, dataset.parts[0].bytes))
        return tuple(OutputColumn(name=f.name, type=type_words(f.type)) for f in schema)
    with path.open(newline="", encoding="utf-8") as handle:
        header = next(csv.reader(handle), [])
    return tuple(OutputColumn(name=name, type=TEXT) for name in header)
