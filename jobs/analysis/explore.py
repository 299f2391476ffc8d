"""The command `das explore`: a release as one page to find geounits, compare them, and see a map.

Everything on it is public, unless errors are given: then it is confidential.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from das.arrays import IntArray, ObjectArray
from das.errors import ConfigError, InputError
from das.queries.query import Query, parse_query
from das.tree.intervals import normal_factor
from jobs.analysis.outlines import outlines
from jobs.analysis.polygons import Rings, read_polygons
from jobs.analysis.requests import ExploreRequest, refuse_unknown
from jobs.pipeline.config.product import Product
from jobs.pipeline.documents.intervals import digest_of
from jobs.pipeline.documents.manifest import read_manifest
from jobs.pipeline.plan import Plan
from jobs.pipeline.report.explore import (
    Embedding,
    pack_arrays,
    pack_text,
    write_explore_page,
)
from jobs.pipeline.storage.columns import flattened, texts
from jobs.pipeline.storage.dataset import Dataset, is_published
from jobs.pipeline.storage.estimates import read_tables
from jobs.pipeline.storage.files import READABLE, understanding
from jobs.pipeline.storage.geography import read_both_geocodes, read_geography
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import EstimateLayout, IntervalLayout, ReleaseLayout
from jobs.pipeline.storage.stores.store import OWNER_ONLY

Errors = Callable[[str, Query], IntArray]
"""Released minus true answers of a query in all geounits of a geolevel, int64[G, m]."""

_TENTHS, _HUNDREDTHS = 10, 100
_MOST_ANSWERS = 4_000_000  # of one table and geolevel; a phone holds five numbers of each
_MAP_SHARE = 0.4  # of the page at most
_CORNER_CHARACTERS = 3.2  # of a corner in the page, about
_MEGABYTE = 1_000_000
_FRAME = 80_000  # characters of the page that are no data, about


def explore(
    product: Product, request: ExploreRequest, out: Path, errors: Errors | None = None
) -> tuple[int, Sequence[str]]:
    """Write the page of a finished release.

    Args:
      product: Whose release.
      request: What is wanted.
      out: The file; replaced at once.
      errors: Errors of the release; with them the page is confidential, and its owner's alone.

    Returns:
      The bytes of the page, and what was left out.

    Raises:
      ConfigError: A table or geolevel is unknown, or the page too small for any.
      InputError: The boundaries cannot be read, or fit no geounit.
      OutputError: The release is not complete, or the page cannot be written.
    """
    manifest = read_manifest(product.release)
    queries = _queries(product, request.tables)
    wanted = _geolevels(product.plan, request.geolevels)
    geounits = {v: _Geounits.read(product.plan, product.release, v) for v in wanted}
    found = _Joined()
    if request.boundaries is not None:
        found = _joined(request.boundaries, request, geounits)
    room = Embedding(int(request.megabytes * _MEGABYTE) - _FRAME)
    page = _Page(product, geounits, room, errors)
    levels = page.places(found.names)
    drawn = page.map(found, [one["name"] for one in levels])
    tables = page.tables(levels, queries)
    notes = (*page.notes, *found.notes)
    header = {
        "title": manifest.name,
        "records": manifest.records,
        "confidence": page.confidence,
        "factor": normal_factor(page.confidence),
        "levels": levels,
        "tables": [{"name": query.name, "labels": query.labels()} for query in queries],
        "blocks": tables,
        "map": drawn,
        "notes": notes,
    }
    mode = READABLE if errors is None else OWNER_ONLY
    size = write_explore_page(manifest, header, page.room.text, out, mode)
    return size, notes


def _queries(product: Product, asked: Sequence[str]) -> list[Query]:
    """The tables that are asked for, of those whose estimates are stored; small ones first."""
    by_name = {query.name: query for query in product.tabulated.values()}
    chosen = []
    for name in asked or product.tabulated:
        query = by_name.get(parse_query(product.plan.schema, name.strip()).name)
        if query is None:
            raise ConfigError(
                "explore --table", "names no table of the release", got=name, want=[*by_name]
            )
        chosen.append(query)
    return sorted(dict.fromkeys(chosen), key=lambda query: query.size)


def _geolevels(plan: Plan, asked: Sequence[str]) -> list[str]:
    """Those of the census, root first, and then those that the spine alone has."""
    census = plan.census_spine.levels
    known = [*census, *(name for name in plan.spine.levels if name not in census)]
    refuse_unknown("explore --geolevel", "geolevel", asked, known)
    return [name for name in known if not asked or name in asked]


def _above(plan: Plan, level: str, levels: Sequence[str]) -> int | None:
    """The last of some geolevels whose geocodes are what those of a geolevel begin with."""
    census, spine = plan.census_spine.levels, plan.spine.levels
    if level in census:
        above = {*census[: census.index(level)]}
    else:
        above = {
            name
            for name in spine[: spine.index(level)]
            if name not in census or plan.level(name).digits <= plan.shared_digits
        }
    return max((i for i, name in enumerate(levels) if name in above), default=None)


@dataclass(frozen=True, eq=False)
class _Geounits:
    """The geounits of a geolevel.

    Attributes:
      own: object[G], geocodes in the order of the files of the release.
      named: object[G], ascending, those of the census where it has these geounits.
      order: int64[G], where in `own` each of `named` is.
      digits: Length of `named`; 0 where the root has the whole prefix to itself.
    """

    own: ObjectArray
    named: ObjectArray
    order: IntArray
    digits: int

    @classmethod
    def read(cls, plan: Plan, release: ReleaseLayout, level: str) -> _Geounits:
        own, named = read_both_geocodes(release, level)
        order = np.argsort(named, kind="stable")
        digits = plan.census_digits.get(level)
        return cls(own, named[order], order, plan.level(level).digits if digits is None else digits)


class _Page:
    """What is put into a page, while there is room.

    Args:
      product: Whose release.
      geounits: By geolevel, those that are wanted.
      room: The blocks.
      errors: As for `explore`.

    Attributes:
      notes: What was left out.
      confidence: Of the intervals of estimates.
    """

    def __init__(
        self,
        product: Product,
        geounits: Mapping[str, _Geounits],
        room: Embedding,
        errors: Errors | None,
    ) -> None:
        self.plan, self.release, self.geounits = product.plan, product.release, geounits
        self.room, self.errors = room, errors
        self.notes: list[str] = []
        self.confidence = 0.9
        digest = digest_of(self.release.manifest)
        self._has_intervals = {
            path.parent.name.removeprefix("level=")
            for path in IntervalLayout.of(self.release).root.glob("level=*/_manifest.json")
            if Dataset.open(path.parent).facts.get("manifest") == digest
        }

    def places(self, names: Mapping[str, str]) -> list[dict[str, Any]]:
        """Geolevels with the codes and names of their geounits."""
        found: list[dict[str, Any]] = []
        for level, one in self.geounits.items():
            own = self._names(level, one)
            named = [names.get(code, name) for code, name in zip(one.named, own, strict=True)]
            text = "\n".join(one.named)
            if any(named):
                text += "\x00" + "\n".join(name.replace("\n", " ") for name in named)
            place = self.room.add(pack_text(text))
            if place is None:
                self._leave_out(f"{level}, which has {len(one.named):,} geounits")
                continue
            found.append(
                {
                    "name": level,
                    "size": len(one.named),
                    "digits": one.digits,
                    "above": _above(self.plan, level, [above["name"] for above in found]),
                    "places": place,
                }
            )
        if not found:
            raise ConfigError(
                "explore --megabytes",
                "leaves no room for any geolevel",
                got=next(iter(self.geounits)),
            )
        return found

    def _names(self, level: str, geounits: _Geounits) -> list[str]:
        """Names that the release has of the geounits of a geolevel; "" where it has none."""
        table = read_geography(self.release, level)
        if "name" not in table.column_names:
            return [""] * len(geounits.own)
        return [*texts(table, "name")[geounits.order]]

    def tables(
        self, levels: Sequence[Mapping[str, Any]], queries: Sequence[Query]
    ) -> dict[str, Any]:
        """Answers by geolevel and table, those of few numbers first."""
        n_levels = {one["name"]: index for index, one in enumerate(levels)}
        each = [(name, query) for name in n_levels for query in queries]
        each.sort(key=lambda pair: len(self.geounits[pair[0]].own) * pair[1].size)
        found: dict[str, Any] = {}
        for level, query in each:
            packed = None
            if len(self.geounits[level].own) * query.size <= _MOST_ANSWERS:
                packed = pack_arrays(self._answers(level, query))
            place = None if packed is None else self.room.add(packed)
            if packed is None or place is None:
                self._leave_out(f"{query.name} of every {level}")
                continue
            key = f"{n_levels[level]}/{queries.index(query)}"
            found[key] = {"place": place, "arrays": packed.arrays}
        return found

    def _answers(self, level: str, query: Query) -> dict[str, IntArray]:
        """Numbers of one table at one geolevel, int64[m, G] each.

        Estimates are tenths beyond ten times the count, standard errors hundredths.
        """
        own, n_cells = self.geounits[level].own, self.plan.schema.size
        counts = query.answer(read_counts(self.release, level, own, n_cells))
        arrays = {"count": counts}
        dataset = EstimateLayout.of(self.release).tables(level)
        if is_published(dataset):
            with understanding(dataset):  # a release of others may have estimates of other queries
                self.confidence = Dataset.open(dataset).facts["confidence"]
                estimates, errors = (
                    _listed(read_tables(Dataset.open(dataset)), query, counts.shape, name)
                    for name in ("estimate", "standard_error")
                )
                tenths = np.rint(estimates * _TENTHS).astype(np.int64)
                arrays["estimate"] = tenths - _TENTHS * counts
                arrays["error"] = np.rint(errors * _HUNDREDTHS).astype(np.int64)
        if level in self._has_intervals:
            table = Dataset.open(IntervalLayout.of(self.release).tables(level)).read()
            if query.name in set(table.column("query").to_pylist()):
                for name, sign in (("lower", -1), ("upper", 1)):
                    ends = _listed(table, query, counts.shape, name)
                    arrays[name] = sign * (ends.astype(np.int64) - counts)
        if self.errors is not None:
            arrays["off"] = self.errors(level, query)
        order = self.geounits[level].order
        return {name: np.ascontiguousarray(values[order].T) for name, values in arrays.items()}

    def map(self, found: _Joined, levels: Sequence[str]) -> dict[str, Any] | None:
        """Outlines of the geounits of geolevels that are in the page."""
        own = [i for i, (level, _) in enumerate(found.units) if level in levels]
        if not own:
            return None
        chosen = [found.units[i] for i in own]
        units = np.array([(levels.index(level), unit) for level, unit in chosen], np.int64)
        most = int(self.room.most * _MAP_SHARE / _CORNER_CHARACTERS)
        while True:
            drawn = outlines([found.rings[i] for i in own], most)
            arrays = drawn.arrays() | {"level": units[:, 0], "unit": units[:, 1]}
            packed = pack_arrays(arrays)
            if len(packed.text) <= self.room.most * _MAP_SHARE or most < 100:
                break
            most = int(most * 0.7)
        place = self.room.add(packed)
        if place is None:
            self._leave_out("the map")
            return None
        size = {"width": drawn.width, "height": drawn.height}
        return {"place": place, "arrays": packed.arrays, **size}

    def _leave_out(self, what: str) -> None:
        self.notes.append(f"left out, for the size of the page: {what}")


def _listed(
    table: pa.Table, query: Query, shape: tuple[int, ...], column: str
) -> np.ndarray[Any, Any]:
    """[G, m] values of one query of a dataset whose rows are geounits and queries."""
    rows = np.flatnonzero(texts(table, "query") == query.name)
    return flattened(table.column(column).take(rows)).reshape(shape)


# --- boundaries ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Joined:
    """Areas of a file that are geounits.

    Attributes:
      rings: Outline of each.
      units: Geolevel of each, and its position among the geounits there.
      names: Names by geocode, if a property has them.
      notes: What does not fit.
    """

    rings: Sequence[Rings] = ()
    units: Sequence[tuple[str, int]] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def _joined(
    boundaries: Path, request: ExploreRequest, geounits: Mapping[str, _Geounits]
) -> _Joined:
    """Find the geounits of areas by a property that is their geocode."""
    read = read_polygons(boundaries)
    codes = {level: one.named for level, one in geounits.items()}
    units = {  # of two geounits of one geocode that of the census, which comes first
        code: (level, place)
        for level, own in reversed(codes.items())
        for place, code in enumerate(own.tolist())
    }
    field = request.join or max(
        read.fields, key=lambda name: sum(code in units for code in set(read.column(name)))
    )
    stated = read.column(field)
    area = [i for i, code in enumerate(stated) if code in units and read.rings[i]]
    if not area:
        first = next((code for code in stated if code), "nothing")
        raise InputError(
            f"{read.path}, property {field}",
            "has no geocode of the release",
            got=first,
            want=f"such as {', '.join(str(own[0]) for own in codes.values())}",
            remedy="add a property with geocodes of the release, and name it with --join",
        )
    unknown = [code for code in stated if code not in units]
    notes = []
    if unknown:
        notes.append(
            f"{len(unknown):,} of {len(stated):,} outlines are no geounit of this page, "
            f"the first is {field} {unknown[0] or 'without a value'}"
        )
    drawn = Counter(level for level, _ in {units[stated[i]] for i in area})
    for level, number in drawn.items():
        bare = len(codes[level]) - number
        if bare:
            notes.append(f"{bare:,} of {len(codes[level]):,} geounits of {level} have no outline")
    named = read.column(request.names) if request.names else []
    names = {stated[i]: named[i] for i in area if named and named[i]}
    rings = [read.rings[i] for i in area]
    return _Joined(rings, [units[stated[i]] for i in area], names, tuple(notes))
