"""The groups for which a release is compared with the truth, checked against a schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from das.errors import ConfigError, SchemaError
from das.metrics.parity import Restriction
from das.queries.query import Query, parse_query
from das.schema import Schema
from jobs.pipeline.config.mistakes import at, refuse_unknown
from jobs.pipeline.config.models.products import AreasFile, EvaluateConfig

# Each is some 200 bytes of the evaluation: 20 MB.
MOST_ROWS = 100_000


@dataclass(frozen=True, eq=False)
class Grouping:
    """Who is compared, and by what.

    Attributes:
      groups: Queries whose answers are groups.
      tables: Partition queries, the total first.
      areas: Geolevel to the file with the types of its geounits.
      floor: Relative errors are stated of groups of at least so many records.
    """

    groups: tuple[Query, ...]
    tables: tuple[Query, ...]
    areas: Mapping[str, AreasFile]
    floor: int

    @property
    def everybody(self) -> tuple[Restriction, ...]:
        """Each table of all records, one group."""
        return tuple(Restriction(self.tables[0], table) for table in self.tables)

    @property
    def restrictions(self) -> tuple[Restriction, ...]:
        """Each table in the groups of each query, where it says more than their totals."""
        pairs = (Restriction(groups, table) for groups in self.groups for table in self.tables)
        return tuple(pair for pair in pairs if pair.table is self.tables[0] or pair.is_finer)


def grouping(
    config: EvaluateConfig, schema: Schema, levels: Sequence[str], tabulated: Sequence[str]
) -> Grouping:
    """Check the section `evaluate` of a product.

    Args:
      config: The section.
      schema: Of the product.
      levels: Geolevels, the root first.
      tabulated: Queries of output.tables.

    Raises:
      SchemaError: A query is unknown, or does not count every record once.
      ConfigError: A geolevel is unknown, or there are too many groups.
    """
    wanted = config.groups
    if wanted is None:
        wanted = [attribute.name for attribute in schema.attributes]
    groups = _distinct(_partitions(schema, wanted, "groups"))
    if config.tables is None:
        parsed = [parse_query(schema, text) for text in tabulated]
        tables = [query for query in parsed if query.is_partition]
    else:
        tables = _partitions(schema, config.tables, "tables")
    asked = Grouping(
        groups,
        _distinct([parse_query(schema, "total"), *tables]),
        config.areas,
        config.floor,
    )
    refuse_unknown("areas", "names no geolevel with types of geounits", config.areas, levels[1:])
    rows = len(levels) * sum(pair.groups.size for pair in asked.restrictions)
    if rows > MOST_ROWS:
        raise ConfigError(
            "groups",
            "are too many for the tables and geolevels",
            got=f"{rows} rows: groups x tables x geolevels",
            want=f"at most {MOST_ROWS}",
            remedy="ask fewer groups or fewer tables",
        )
    return asked


def _partitions(schema: Schema, texts: Sequence[str], key: str) -> list[Query]:
    """Queries that count every record once.

    Raises:
      SchemaError: One is unknown, or does not.
    """
    parsed = []
    for text in texts:
        with at(key):
            query = parse_query(schema, text)
        if not query.is_partition:
            raise SchemaError(
                f"{key}: query {query.name}",
                "does not count every record once, so its answers are no groups of records",
                want="attributes or recodes joined by *, without functions",
            )
        parsed.append(query)
    return parsed


def _distinct(queries: Sequence[Query]) -> tuple[Query, ...]:
    return tuple({query.name: query for query in queries}.values())
