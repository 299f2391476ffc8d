"""The codebook of a release, from its plan and its manifest."""

from __future__ import annotations

from collections.abc import Sequence

from das.queries.query import Query, parse_query
from das.schema import Recode, Schema
from jobs.pipeline.documents.codebook import (
    Codebook,
    CodedGeolevel,
    CodedGroup,
    CodedQuery,
    CodedRecode,
)
from jobs.pipeline.documents.manifest import Manifest
from jobs.pipeline.plan import Plan
from jobs.pipeline.report.datasets import described

_MOST_LABELS = 1000  # of a query; the detailed one may have millions, told by the attributes


def codebook_of(plan: Plan, manifest: Manifest, tables: Sequence[str]) -> Codebook:
    """What codes and names in the files of a release stand for.

    Args:
      plan: The plan.
      manifest: Of the release.
      tables: Queries that are tabulated.
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
    (attribute,) = (one for one in schema.attributes if one.name == recode.attribute)
    levels: list[list[str]] = [[] for _ in recode.groups]
    for level, group in zip(attribute.levels, recode.codes, strict=True):
        levels[group].append(level)
    groups = zip(recode.groups, levels, strict=True)
    return CodedRecode(
        name=recode.name,
        attribute=recode.attribute,
        groups=tuple(CodedGroup(label=label, levels=tuple(own)) for label, own in groups),
    )


def _queries(plan: Plan, tables: Sequence[str]) -> tuple[CodedQuery, ...]:
    """Tabulated queries first, then those that are only measured or only exact."""
    tabulated = {query.name: query for query in (parse_query(plan.schema, t) for t in tables)}
    found: dict[str, Query] = dict(tabulated)
    for level in plan.levels:
        for query in (*level.exact, *level.queries):
            found.setdefault(query.name, query)
    return tuple(
        CodedQuery(
            query=name,
            answers=query.size,
            labels=tuple(query.labels()) if query.size <= _MOST_LABELS else (),
            measured=tuple(v.name for v in plan.levels if name in {q.name for q in v.queries}),
            exact=tuple(v.name for v in plan.levels if name in {q.name for q in v.exact}),
            tabulated=name in tabulated,
        )
        for name, query in found.items()
    )
