"""The products of a run, in the order of work, each with all that its stages need."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from das.errors import ConfigError, SchemaError
from das.metrics.parity import Restriction
from das.queries.query import Query, parse_query
from das.schema import Schema
from jobs.pipeline.config.mistakes import at, refuse_unknown
from jobs.pipeline.config.models.products import (
    AreasFile,
    EvaluateConfig,
    ProductConfig,
    ProductOutputConfig,
)
from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.plan import Plan
from jobs.pipeline.storage.account import Reservation, default_account
from jobs.pipeline.storage.layout import ConfidentialLayout, ReleaseLayout
from jobs.pipeline.storage.place import Place

MOST_ANSWERS = 4_000_000
"""Of a geounit to the queries that are not on demand: 32 MB an array, of which a task holds some
tens (docs/sizes.md, "Schemas of millions of cells"). They have full column rank, so a root without
support has no more cells."""


@dataclass(frozen=True, eq=False)
class Grouping:
    """Population groups and types of geounits whose errors the evaluation compares.

    Attributes:
      groups: Queries whose answers are population groups.
      tables: Partition queries whose errors are compared, the total first.
      areas: For each geolevel with types, the file with the types of its geounits.
      floor: Relative errors are stated for groups of at least this number of records.
    """

    groups: tuple[Query, ...]
    tables: tuple[Query, ...]
    areas: Mapping[str, AreasFile]
    floor: int

    @property
    def everybody(self) -> tuple[Restriction, ...]:
        """Return each table restricted to the group of all records."""
        return tuple(Restriction(self.tables[0], table) for table in self.tables)

    @property
    def restrictions(self) -> tuple[Restriction, ...]:
        """Return each table restricted to the groups of each query, if it is finer or the total."""
        pairs = (Restriction(groups, table) for groups in self.groups for table in self.tables)
        return tuple(pair for pair in pairs if pair.table is self.tables[0] or pair.is_finer)


@dataclass(frozen=True, eq=False)
class Product:
    """A product of a run: one kind of records, such as persons or housing units and facilities.

    Attributes:
      name: Name of the product in the run file; it is also the name of its records.
      title: Name of the run; for a product other than the last, also the name of the product.
      config: Section of the product in the run file, paths absolute.
      plan: Schema, geolevels, queries and constraints, for all stages after reading.
      release: Paths of the publishable files.
      confidential: Paths of the confidential files.
      tabulated: Queries of `output.tables` by their texts in the run file. They have tables at some
        geolevels, and estimates at all.
      grouping: Groups whose errors the evaluation compares.
      seed: Seed of the noise, different for every product; None for secret noise.
    """

    name: str
    title: str
    config: ProductConfig
    plan: Plan
    release: ReleaseLayout
    confidential: ConfidentialLayout
    tabulated: Mapping[str, Query]
    grouping: Grouping
    seed: int | None = None

    @property
    def keys(self) -> str:
        """Return the prefix of the keys of the product in the run file, for errors."""
        return f"products.{self.name}."

    @property
    def bound_by(self) -> tuple[str, ...]:
        """Products whose exact answers limit its counts."""
        named = [entry.answers_of for entry in self.config.invariants]
        return tuple(dict.fromkeys(answers.product for answers in named if answers))

    @property
    def account_name(self) -> str:
        """Return the name of the product in the account."""
        return self.config.privacy.product or self.plan.schema.name

    def tables_at(self, geolevel: str) -> list[Query]:
        """Return the queries with a table at a geolevel, each once."""
        output, levels = self.config.output, self.plan.spine.levels
        entries = table_entries(output, self.plan.schema)
        if output.tables is None and geolevel == levels[-1] and len(levels) > 1:
            entries = entries[:1]  # the total; of others estimates
        texts = [text for text, where in entries if where is None or geolevel in where]
        found = [self.tabulated[text] for text in texts]
        return [*{query.name: query for query in found}.values()]

    def label(self, text: str) -> str:
        """Return the label of a progress line: product name, except `persons`, and a text."""
        return text if self.name == "persons" else f"{self.name}, {text}"


@dataclass(frozen=True, eq=False)
class Resolved:
    """A checked run configuration with all files that it names; no confidential data is read.

    Attributes:
      config: The run file with absolute paths.
      source: Path of the run file.
      products: Products by name, in the order of work.
      solution: Name of the solution; None for the release itself.
    """

    config: RunConfig
    source: Place
    products: Mapping[str, Product]
    solution: str | None = None

    @property
    def last(self) -> Product:
        """Return the last product, which commands use unless one is named."""
        return [*self.products.values()][-1]

    @property
    def release(self) -> ReleaseLayout:
        """Return the paths of the release that all products share."""
        return self.last.release.whole

    @property
    def plan(self) -> Plan:
        """Return the plan of the last product; all products share geography and digest."""
        return self.last.plan


def key_beside(name: str, keys: Collection[str]) -> str:
    """Return the key of a product in a document whose other keys must not equal it.

    >>> key_beside("units", ["solve"]), key_beside("solve", ["solve"])
    ('units', 'products.solve')
    """
    return f"products.{name}" if name in keys else name


def account_of(config: RunConfig) -> Place:
    """Find the account in which the grant of a run is claimed, from the inputs of all products.

    Raises:
      ConfigError: The run file names no account, and several are possible.
    """
    inputs = [product.input.path for product in config.products.values()]
    return config.privacy.account or default_account(*inputs)


def reservation_of(resolved: Resolved, product: Product, run: str) -> Reservation:
    """Return the reservation of a grant for a product by the run folder of identity `run`."""
    budget_id, folder = resolved.config.privacy.budget_id, str(resolved.config.output.directory)
    plan = product.plan
    exact = tuple(f"{one.query.name} at {', '.join(one.geolevels)}" for one in plan.invariants)
    return Reservation(
        product.account_name, budget_id, plan.budget, run, folder, plan.changed_record, exact
    )


def table_entries(
    output: ProductOutputConfig, schema: Schema
) -> list[tuple[str, list[str] | None]]:
    """List (query, geolevels) of `output.tables`; geolevels are None if the table is for all."""
    if output.tables is None:
        return [(text, None) for text in ("total", *(a.name for a in schema.attributes))]
    return [
        (entry, None) if isinstance(entry, str) else (entry.query, entry.geolevels)
        for entry in output.tables
    ]


def h1_query(schema: Schema, name: str) -> Query:
    """Return the attribute or recode of table H1.

    Raises:
      SchemaError: The name is unknown, or the attribute lacks the levels `occupied` and `vacant`.
    """
    query = parse_query(schema, name)
    if not {"occupied", "vacant"} <= set(query.labels()):
        raise SchemaError(
            f"query {query.name}", "cannot make table H1", want="levels occupied and vacant"
        )
    return query


# --- who is compared with the truth --------------------------------------------------------------


def grouping(
    config: EvaluateConfig, schema: Schema, levels: Sequence[str], tabulated: Iterable[Query]
) -> Grouping:
    """Check the section `evaluate` of a product.

    Args:
      config: The section `evaluate`.
      schema: Schema of the product.
      levels: Geolevels, the root first.
      tabulated: Queries of output.tables.

    Raises:
      SchemaError: A query is unknown, or does not count every record once.
      ConfigError: A geolevel is unknown.
    """
    wanted = config.groups
    if wanted is None:
        wanted = [attribute.name for attribute in schema.attributes]
    groups, tables = _partitions(schema, wanted, "groups"), _partitions(schema, ["total"], "tables")
    if config.tables is None:
        tables |= {query.name: query for query in tabulated if query.is_partition}
    else:
        tables |= _partitions(schema, config.tables, "tables")
    for name in config.areas:
        what = "is not a geolevel that can have types of geounits"
        refuse_unknown(f"areas.{name}", what, [name], levels[1:])
    return Grouping(tuple(groups.values()), tuple(tables.values()), config.areas, config.floor)


def _partitions(schema: Schema, texts: Sequence[str], key: str) -> dict[str, Query]:
    """Parse queries that must count every record once; the result has each query once, by name.

    Raises:
      SchemaError: A query is unknown, or does not count every record exactly once.
    """
    parsed = dict[str, Query]()
    for text in texts:
        with at(key):
            query = parse_query(schema, text)
        if not query.is_partition:
            raise SchemaError(
                f"{key}: query {query.name}",
                "does not count every record once",
                want="attributes or recodes joined by *, without functions",
            )
        parsed[query.name] = query
    return parsed


# --- tables ---------------------------------------------------------------------------------------

FORMAT = 2
"""Format of datasets of tables."""
H1 = "h1"
"""Name of the files of table H1."""
_RESERVED = re.compile(r"con|prn|aux|nul|(com|lpt)\d", re.IGNORECASE)  # by Windows
_LONGEST = 80
_WORDS = ((r" where ", "-where-"), (r" \* ", "-by-"), (r"=", "-is-"), (r"[^\w.+-]+", "-"))


@dataclass(frozen=True, eq=False)
class TablesWanted:
    """The tables to write of a product.

    Attributes:
      queries: Queries to tabulate, by geolevel.
      formats: Formats of their files: `csv`, `parquet`, `xlsx`.
      h1: Attribute or recode from which table H1 is made; None without table H1.
      has_commas: Whether CSV files have decimal commas, and semicolons between fields.
    """

    queries: Mapping[str, Sequence[Query]]
    formats: Sequence[str]
    h1: Query | None = None
    has_commas: bool = False

    @classmethod
    def of(cls, product: Product) -> TablesWanted:
        """Return the tables that the run file requests."""
        plan, output = product.plan, product.config.output
        queries = {name: product.tables_at(name) for name in plan.geolevels}
        h1 = None if output.h1 is None else h1_query(plan.schema, output.h1)
        return cls(queries, output.table_formats, h1, output.table_numbers == "comma")

    def files(self, geolevel: str) -> list[tuple[str, Query]]:
        """Return the tables of a geolevel, each with the name of its files."""
        queries = self.queries[geolevel]
        stems = file_stems([query.name for query in queries])
        h1 = [] if self.h1 is None else [(H1, self.h1)]
        return [*zip(stems, queries, strict=True), *h1]

    def facts(self, geolevel: str) -> dict[str, Any]:
        """Return the facts that the dataset of a geolevel records."""
        tables = [one for one in self.files(geolevel) if one[0] != H1]
        return {
            "format": FORMAT,
            "formats": [*self.formats],
            "queries": [{"query": query.name, "file": stem} for stem, query in tables],
            H1: None if self.h1 is None else self.h1.name,
        }


def table_query(schema: Schema, text: str) -> Query:
    """Return the query of a table, which has a row per answer and geounit.

    Raises:
      SchemaError: The text is not a query on the schema.
      ConfigError: The table has more rows per geounit, with empty cells, than a task can hold.
    """
    query = parse_query(schema, text)
    refuse_long_table(query)
    return query


def refuse_long_table(query: Query) -> None:
    """Refuse a table with more rows per geounit, including empty cells, than a task can hold.

    Raises:
      ConfigError: The table has too many rows per geounit.
    """
    if query.size > MOST_ANSWERS:
        raise ConfigError(
            f"table {query.name}",
            "has too many rows per geounit",
            got=query.size,
            want=f"at most {MOST_ANSWERS}",
            remedy="ask fewer attributes or groups of levels; counts and microdata have a row for "
            "what is there alone",
        )


def file_stems(queries: Sequence[str]) -> list[str]:
    """Return unique names for the files of tables, without the suffix of their format.

    A digest is added to names that Windows or macOS would not distinguish, and to long names.

    >>> file_stems(["total", "sex * prefix(age)", "age where sex=f"])
    ['total', 'sex-by-prefix-age', 'age-where-sex-is-f']
    """
    plain = [_plain(query) for query in queries]
    alike = Counter(stem.casefold() for stem in (*plain, H1))
    return [
        stem
        if stem
        and len(stem) <= _LONGEST
        and alike[stem.casefold()] == 1
        and not _RESERVED.fullmatch(stem)
        else f"{stem[:_LONGEST]}-{hashlib.sha256(query.encode()).hexdigest()[:8]}".lstrip("-")
        for query, stem in zip(queries, plain, strict=True)
    ]


def _plain(query: str) -> str:
    for pattern, word in _WORDS:
        query = re.sub(pattern, word, query, flags=re.ASCII)
    return query.strip("-.")
