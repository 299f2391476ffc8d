"""Which tables of a product are written, of which geolevels, and how their files are called."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from das.errors import ConfigError
from das.queries.query import Query, parse_query
from das.schema import Schema
from jobs.pipeline.config.product import Product, h1_query
from jobs.pipeline.config.support import MOST_ANSWERS

FORMAT = 2
"""Of datasets of tables; those of format 1, of older versions, say none."""
H1 = "h1"
"""What files of table H1 are called."""
_RESERVED = re.compile(r"con|prn|aux|nul|(com|lpt)\d", re.IGNORECASE)  # by Windows
_LONGEST = 80
_WORDS = ((r" where ", "-where-"), (r" \* ", "-by-"), (r"=", "-is-"), (r"[^\w.+-]+", "-"))


@dataclass(frozen=True, eq=False)
class TablesWanted:
    """What is written of a product.

    Attributes:
      queries: Tables by geolevel.
      formats: Formats of their files: `csv`, `parquet`, `xlsx`.
      h1: What table H1 is made of, if it is wanted.
    """

    queries: Mapping[str, Sequence[Query]]
    formats: Sequence[str]
    h1: Query | None = None

    @classmethod
    def of(cls, product: Product) -> TablesWanted:
        """What the run file wants."""
        plan, output = product.plan, product.config.output
        queries = {name: product.tables_at(name) for name in plan.geolevels}
        h1 = None if output.h1 is None else h1_query(plan.schema, output.h1)
        return cls(queries, output.table_formats, h1)

    def files(self, geolevel: str) -> list[tuple[str, Query]]:
        """The tables of a geolevel, each with the name of its files."""
        queries = self.queries[geolevel]
        stems = file_stems([query.name for query in queries])
        h1 = [] if self.h1 is None else [(H1, self.h1)]
        return [*zip(stems, queries, strict=True), *h1]

    def facts(self, geolevel: str) -> dict[str, Any]:
        """What the dataset of a geolevel says it holds."""
        tables = [one for one in self.files(geolevel) if one[0] != H1]
        return {
            "format": FORMAT,
            "formats": [*self.formats],
            "queries": [{"query": query.name, "file": stem} for stem, query in tables],
            H1: None if self.h1 is None else self.h1.name,
        }


def table_query(schema: Schema, text: str) -> Query:
    """The query of a table, which has a row for every answer of every geounit.

    Raises:
      SchemaError: It does not parse.
      ConfigError: One geounit has more rows than a task holds, empty cells and all.
    """
    query = parse_query(schema, text)
    if query.size > MOST_ANSWERS:
        raise ConfigError(
            f"table {query.name}",
            "has more rows for every geounit than a task holds",
            got=query.size,
            want=f"at most {MOST_ANSWERS}",
            remedy="ask fewer attributes or groups of levels; counts and microdata have a row for "
            "what is there alone",
        )
    return query


def file_stems(queries: Sequence[str]) -> list[str]:
    """Names of the files of some tables, without what says their format; no two are alike.

    Names that Windows or macOS would take for one get a digest, and so do those that are too long.

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
