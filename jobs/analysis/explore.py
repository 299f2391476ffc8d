"""The command `das explore`: one HTML page to find and compare geounits of a release on a map.

The page is public, unless true errors are added: then it is confidential.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
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
from jobs.analysis.requests import ExploreRequest
from jobs.pipeline.config.mistakes import refuse_unknown
from jobs.pipeline.config.product import Product
from jobs.pipeline.documents.intervals import read_intervals
from jobs.pipeline.documents.manifest import read_manifest
from jobs.pipeline.language import prose, tr
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.intervals import ClassTable, class_tables
from jobs.pipeline.release.public_bounds import PublicBounds
from jobs.pipeline.report.explore import Embedding, pack_arrays, pack_text, write_explore_page
from jobs.pipeline.report.text import integer
from jobs.pipeline.storage.columns import flattened, texts
from jobs.pipeline.storage.dataset import Dataset, is_published
from jobs.pipeline.storage.estimates import read_tables
from jobs.pipeline.storage.files import READABLE, understanding
from jobs.pipeline.storage.geography import read_both_geocodes, read_geography
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import EstimateLayout, ReleaseLayout
from jobs.pipeline.storage.stores.store import OWNER_ONLY

Errors = Callable[[str, Query], IntArray]
"""Function (geolevel, query) -> int64[G, m], released minus true answers in all geounits."""

_TENTHS, _HUNDREDTHS = 10, 100
_MOST_ANSWERS = 4_000_000  # of one table and geolevel, five numbers each; default for phones
_MAP_SHARE = 0.4  # largest share of the page; default, not measured
_CORNER_CHARACTERS = 3.2  # packed size of a corner, first guess; the loop in `map` corrects it
_MEGABYTE = 1_000_000
_FRAME = 80_000  # characters of the page other than data; about the size of an empty page


def explore(
    product: Product, request: ExploreRequest, out: Path, errors: Errors | None = None
) -> tuple[int, Sequence[str]]:
    """Write the explore page of a finished release.

    Args:
      product: The product to show.
      request: Options of the command.
      out: The file; replaced atomically.
      errors: True errors; with them the page is confidential and only its owner can read it.

    Returns:
      Size of the page in bytes, and notes on everything left out.

    Raises:
      ConfigError: A table or geolevel is unknown, or no geolevel fits into the page.
      InputError: The boundaries cannot be read, or match no geounit.
      OutputError: The release is incomplete, or the page cannot be written.
    """
    manifest = read_manifest(product.release)
    queries = _queries(product, request.tables)
    wanted = _geolevels(product.plan, request.geolevels)
    geounits = {v: _Geounits.read(product.plan, product.release, v) for v in wanted}
    joined = _Joined()
    if request.boundaries is not None:
        joined = _joined(request.boundaries, request, geounits)
    room = Embedding(int(request.megabytes * _MEGABYTE) - _FRAME)
    page = _Page(product.plan, product.release, geounits, room, errors)
    levels = page.add_geolevels(joined.names)
    drawn = page.map(joined, [level["name"] for level in levels])
    tables = page.tables(levels, queries)
    notes = (*page.notes, *joined.notes)
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


def _queries(product: Product, requested: Sequence[str]) -> list[Query]:
    """Return the requested tables, or all tables of the product if none is requested.

    Returns:
      Queries without repeats, by number of answers, fewest first.

    Raises:
      ConfigError: A requested table is not among the tables of the product.
    """
    by_name = {query.name: query for query in product.tabulated.values()}
    chosen = []
    for name in requested or product.tabulated:
        query = by_name.get(parse_query(product.plan.schema, name.strip()).name)
        if query is None:
            raise ConfigError(
                "explore --table", "names no table of the release", got=name, want=[*by_name]
            )
        chosen.append(query)
    return sorted(dict.fromkeys(chosen), key=lambda query: query.size)


def _geolevels(plan: Plan, requested: Sequence[str]) -> list[str]:
    """Return the requested geolevels: first the census, root first, then the spine alone."""
    census = plan.census_spine.levels
    known = [*census, *(name for name in plan.spine.levels if name not in census)]
    refuse_unknown("explore --geolevel", "names an unknown geolevel", requested, known)
    return [name for name in known if not requested or name in requested]


def _above(plan: Plan, level: str, levels: Sequence[str]) -> int | None:
    """Return the index in `levels` of the last geolevel whose geocodes begin those of `level`."""
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
    """Geounits of a geolevel.

    Attributes:
      stored: object[G], geocodes in the order of the release files.
      named: object[G], census geocodes where the census has these geounits, ascending.
      order: int64[G], index into `stored` of each entry of `named`.
      digits: Length of `named`; 0 where the root has the whole prefix to itself.
    """

    stored: ObjectArray
    named: ObjectArray
    order: IntArray
    digits: int

    @classmethod
    def read(cls, plan: Plan, release: ReleaseLayout, level: str) -> _Geounits:
        stored, named = read_both_geocodes(release, level)
        order = np.argsort(named, kind="stable")
        digits = plan.census_digits.get(level)
        digits = plan.level(level).digits if digits is None else digits
        return cls(stored, named[order], order, digits)


@dataclass(eq=False)
class _Page:
    """Contents of the page, added while there is room.

    Attributes:
      plan: Plan of the product to show.
      release: Release of this product.
      geounits: Requested geolevels with their geounits.
      room: Packed blocks of the page.
      errors: True errors, as in `explore`.
      notes: Notes on everything left out.
      confidence: Confidence level of the intervals of estimates.
    """

    plan: Plan
    release: ReleaseLayout
    geounits: Mapping[str, _Geounits]
    room: Embedding
    errors: Errors | None
    notes: list[str] = field(default_factory=list)
    confidence: float = 0.9

    @cached_property
    def _intervals(self) -> Mapping[tuple[str, str], ClassTable]:
        """Return intervals of counts by geolevel and query."""
        return class_tables(read_intervals(self.release, self.plan.leaf.name))

    def add_geolevels(self, names: Mapping[str, str]) -> list[dict[str, Any]]:
        """Add the geolevels with codes and names of their geounits."""
        geolevels: list[dict[str, Any]] = []
        for level, geounits in self.geounits.items():
            table, codes = read_geography(self.release, level), geounits.named
            named = [names.get(code, "") for code in codes]
            if "name" in table.column_names:
                released = texts(table, "name")[geounits.order]
                named = [names.get(code, n) for code, n in zip(codes, released, strict=True)]
            text = "\n".join(codes)
            if any(named):
                text += "\x00" + "\n".join(name.replace("\n", " ") for name in named)
            block = self.room.add(pack_text(text))
            if block is None:
                size = integer(len(geounits.named))
                self._leave_out(tr("{level}, which has {size} geounits", level=level, size=size))
                continue
            above = _above(self.plan, level, [above["name"] for above in geolevels])
            sizes = {"size": len(codes), "digits": geounits.digits}
            geolevels.append({"name": level, **sizes, "above": above, "places": block})
        if not geolevels:
            what, first = "leaves no room for any geolevel", next(iter(self.geounits))
            raise ConfigError("explore --megabytes", what, got=first)
        return geolevels

    def tables(
        self, levels: Sequence[Mapping[str, Any]], queries: Sequence[Query]
    ) -> dict[str, Any]:
        """Add the answers of every query at every geolevel to the page, small tables first.

        Tables for which the page has no room, and tables of more than `_MOST_ANSWERS` answers, are
        left out, with a note.

        Returns:
          Place and arrays of each added table. The key is the index of the geolevel in `levels`, a
          slash, and the index of the query in `queries`, such as "0/2".
        """
        n_levels = {level["name"]: index for index, level in enumerate(levels)}
        pairs = [(name, query) for name in n_levels for query in queries]
        pairs.sort(key=lambda pair: len(self.geounits[pair[0]].stored) * pair[1].size)
        blocks: dict[str, Any] = {}
        for level, query in pairs:
            if len(self.geounits[level].stored) * query.size <= _MOST_ANSWERS:
                packed = pack_arrays(self._answers(level, query))
                block = self.room.add(packed)
                if block is not None:
                    key = f"{n_levels[level]}/{queries.index(query)}"
                    blocks[key] = {"place": block, "arrays": packed.arrays}
                    continue
            self._leave_out(tr("{query} of every {level}", query=query.name, level=level))
        return blocks

    def _answers(self, level: str, query: Query) -> dict[str, IntArray]:
        """Return the numbers of one table at one geolevel, int64[m, G] each.

        Estimates are stored as tenths minus ten times the count, standard errors as hundredths.
        """
        codes, n_cells = self.geounits[level].stored, self.plan.schema.size
        histograms = read_counts(self.release, level, codes, n_cells)
        counts = query.answer(histograms)
        arrays = {"count": counts}
        dataset = EstimateLayout.of(self.release).tables(level)
        if is_published(dataset):
            with understanding(dataset):  # a received release may have other queries
                self.confidence = Dataset.open(dataset).facts["confidence"]
                estimates, errors = (
                    _listed(read_tables(Dataset.open(dataset)), query, counts.shape, name)
                    for name in ("estimate", "standard_error")
                )
                tenths = np.rint(estimates * _TENTHS).astype(np.int64)
                arrays["estimate"] = tenths - _TENTHS * counts
                arrays["error"] = np.rint(errors * _HUNDREDTHS).astype(np.int64)
        intervals = self._intervals.get((level, query.name))
        if intervals is not None:
            bounds = PublicBounds(self.plan, self.release, level).of(query, codes)
            _, lower, upper, _ = intervals.at(query, histograms, bounds)
            arrays |= {"lower": counts - lower, "upper": upper - counts}
        if self.errors is not None:
            arrays["off"] = self.errors(level, query)
        order = self.geounits[level].order
        return {name: np.ascontiguousarray(values[order].T) for name, values in arrays.items()}

    def map(self, joined: _Joined, levels: Sequence[str]) -> dict[str, Any] | None:
        """Add outlines of the geounits of the geolevels in the page."""
        shown = [i for i, (level, _) in enumerate(joined.units) if level in levels]
        if not shown:
            return None
        chosen = [joined.units[i] for i in shown]
        units = np.array([(levels.index(level), unit) for level, unit in chosen], np.int64)
        most = int(self.room.most * _MAP_SHARE / _CORNER_CHARACTERS)
        while True:
            drawn = outlines([joined.rings[i] for i in shown], most)
            arrays = drawn.arrays() | {"level": units[:, 0], "unit": units[:, 1]}
            packed = pack_arrays(arrays)
            if len(packed.text) <= self.room.most * _MAP_SHARE or most < 100:
                break
            most = int(most * 0.7)
        block = self.room.add(packed)
        if block is None:
            self._leave_out(tr("the map"))
            return None
        size = {"width": drawn.width, "height": drawn.height}
        return {"place": block, "arrays": packed.arrays, **size}

    def _leave_out(self, what: str) -> None:
        self.notes.append(tr("left out to keep the page small: {what}", what=what))


def _listed(
    table: pa.Table, query: Query, shape: tuple[int, ...], column: str
) -> np.ndarray[Any, Any]:
    """Return [geounits, answers], the values of one query.

    Args:
      table: Dataset with a row per geounit and query.
      query: The query.
      shape: Number of geounits and number of answers.
      column: Column of the dataset with the values.
    """
    rows = np.flatnonzero(texts(table, "query") == query.name)
    return flattened(table.column(column).take(rows)).reshape(shape)


# --- boundaries ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Joined:
    """Boundaries matched to geounits.

    Attributes:
      rings: Outlines.
      units: Geolevel of each outline, and the index of its geounit there.
      names: Names by geocode, if a property holds names.
      notes: Warnings about unmatched outlines and geounits.
    """

    rings: Sequence[Rings] = ()
    units: Sequence[tuple[str, int]] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def _joined(
    boundaries: Path, request: ExploreRequest, geounits: Mapping[str, _Geounits]
) -> _Joined:
    """Match boundaries to geounits by the property that holds geocodes."""
    read = read_polygons(boundaries)
    codes = {level: units.named for level, units in geounits.items()}
    units = {  # geolevels of the census come first and win over equal geocodes of the spine
        code: (level, index)
        for level, named in reversed(codes.items())
        for index, code in enumerate(named.tolist())
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
            want=f"such as {', '.join(str(named[0]) for named in codes.values())}",
            remedy="add a property with geocodes of the release, and name it with --join",
        )
    unknown = [code for code in stated if code not in units]
    notes = []
    if unknown:
        first = f"{field} {unknown[0] or tr('without a value')}"
        counts = {"unknown": integer(len(unknown)), "outlines": integer(len(stated))}
        notes.append(prose("explore.unknown", **counts, first=first))
    drawn = Counter(level for level, _ in {units[stated[i]] for i in area})
    for level, number in drawn.items():
        bare = len(codes[level]) - number
        if bare:
            size = integer(len(codes[level]))
            notes.append(prose("explore.bare", bare=integer(bare), size=size, level=level))
    named = read.column(request.names) if request.names else []
    names = {stated[i]: named[i] for i in area if named and named[i]}
    rings = [read.rings[i] for i in area]
    return _Joined(rings, [units[stated[i]] for i in area], names, tuple(notes))
