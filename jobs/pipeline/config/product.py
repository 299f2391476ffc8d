"""The products of a run, in the order of work, each with all that its stages need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from das.errors import SchemaError
from das.queries.query import Query, parse_query
from das.schema import Schema
from jobs.pipeline.config.groups import Grouping
from jobs.pipeline.config.models.products import GeolevelTableConfig, ProductConfig
from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.plan import Plan
from jobs.pipeline.storage.layout import ConfidentialLayout, ReleaseLayout
from jobs.pipeline.storage.place import Place


@dataclass(frozen=True, eq=False)
class Product:
    """What a run makes of one kind of records: persons, or housing units and facilities.

    Attributes:
      name: Its name in the run file, which is what its records are called.
      title: The name of the run, and of the product where it is not the last.
      config: Its section of the run file, paths absolute.
      plan: All that the stages after reading need.
      release: Its publishable half; the last product has the folder of the release itself.
      confidential: Its other half.
      grouping: For whom it is compared with the truth.
      seed: Of its noise, if that is no noise for a release; every product has another.
    """

    name: str
    title: str
    config: ProductConfig
    plan: Plan
    release: ReleaseLayout
    confidential: ConfidentialLayout
    grouping: Grouping
    seed: int | None = None

    @property
    def keys(self) -> str:
        """What stands before its keys in the run file; for errors."""
        return f"products.{self.name}."

    @property
    def bound_by(self) -> tuple[str, ...]:
        """Products whose exact answers limit its counts."""
        named = [entry.answers_of for entry in self.config.invariants]
        return tuple(dict.fromkeys(answers.product for answers in named if answers))

    @property
    def account_name(self) -> str:
        """What the account calls it."""
        return self.config.privacy.product or self.plan.schema.name

    @property
    def tables(self) -> list[str]:
        """Queries of which there are tables at some geolevels, and estimates at all of them."""
        return tabulated(self.config, self.plan.schema)

    def tables_at(self, geolevel: str) -> list[Query]:
        """Queries of which there are tables at a geolevel, each once."""
        output, levels = self.config.output, self.plan.spine.levels
        texts = self.tables
        if output.tables is None and geolevel == levels[-1] and len(levels) > 1:
            texts = ["total"]
        if output.tables is not None:
            entries = map(entry_of, output.tables)
            texts = [text for text, where in entries if where is None or geolevel in where]
        found = (parse_query(self.plan.schema, text) for text in texts)
        return [*{query.name: query for query in found}.values()]

    def label(self, text: str) -> str:
        """Label of a progress line; the name is left out for persons."""
        return text if self.name == "persons" else f"{self.name}, {text}"


@dataclass(frozen=True, eq=False)
class Resolved:
    """A run configuration with everything it refers to, checked; no data has been touched.

    Attributes:
      config: The run file with absolute paths.
      source: Path of the run file.
      products: What is made, by name, in the order of work.
      solution: Name of the solution that is meant, if it is not the release itself.
    """

    config: RunConfig
    source: Place
    products: Mapping[str, Product]
    solution: str | None = None

    @property
    def last(self) -> Product:
        """The product that all others come before; theirs lie in folders of its release."""
        return [*self.products.values()][-1]

    @property
    def plan(self) -> Plan:
        """The plan of the last product; geography and digest are those of all."""
        return self.last.plan


def tabulated(config: ProductConfig, schema: Schema) -> list[str]:
    """Queries of a product of which there are tables at some geolevels."""
    chosen = config.output.tables
    if chosen is None:
        return ["total", *(a.name for a in schema.attributes)]
    return [*dict.fromkeys(text for text, _ in map(entry_of, chosen))]


def entry_of(entry: str | GeolevelTableConfig) -> tuple[str, list[str] | None]:
    """The query of an entry of `output.tables`, and the geolevels it is for; None for all."""
    return (entry, None) if isinstance(entry, str) else (entry.query, entry.geolevels)


def h1_query(schema: Schema, name: str) -> Query:
    """The attribute or recode that table H1 is made of.

    Raises:
      SchemaError: It is unknown, or has no levels `occupied` and `vacant`.
    """
    query = parse_query(schema, name)
    if not {"occupied", "vacant"} <= set(query.labels()):
        raise SchemaError(
            f"query {query.name}", "makes no table H1", want="levels occupied and vacant"
        )
    return query
