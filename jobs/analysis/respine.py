"""Another spine for a run: read public entities, optimize, write the new geocodes of the leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from das.arrays import Geocodes
from das.errors import ConfigError, InputError, OutputError
from geography.lattice import Lattice, Spine
from geography.offspine import NO_ENTITY, Entities, offspine_distances
from geography.respine import Insertion, Respined, SpineDesign, optimize_spine
from jobs.config.product import Resolved
from jobs.input.files import Table, read_table
from jobs.input.geounits import list_geounits

_FACTS = b"das_spine"
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class EntityTable:
    """A CSV or Parquet file with the places and districts of every leaf.

    Attributes:
      path: Of the file.
      kinds: Columns, one per kind of entity.
      geocode: Column with the geocode of the leaf.
    """

    path: Path
    kinds: list[str]
    geocode: str


def write_spine(
    resolved: Resolved, table: EntityTable, codes: Path, design: SpineDesign, mark: str | None
) -> dict[str, Any]:
    """Design another spine for a run, and write its geocodes.

    Args:
      resolved: The run; its list of geounits is public.
      table: Entities of every leaf; public.
      codes: Parquet file to write; must not exist.
      design: What may change.
      mark: The kind whose entities are one side of a split; None if nothing is split.

    Returns:
      As `spine_summary`.

    Raises:
      ConfigError: The run has no public list; or a split lacks its mark, or a mark its split.
      OutputError: `codes` exists.
      InputError: As `read_entities`.
    """
    spine, public = resolved.plan.spine, resolved.config.geography.geounits
    if public is None:
        raise ConfigError(
            f"{resolved.source}: geography.geounits", "is needed: the spine is public"
        )
    if (design.split is None) != (mark is None) or (mark is not None and mark not in table.kinds):
        raise ConfigError("--split", "goes with --mark, one of --kinds", got=mark, want=table.kinds)
    if codes.exists():
        raise OutputError(str(codes), "exists", remedy="name another file or remove it")
    leaves = list_geounits(public, spine)
    entities = read_entities(table.path, leaves, table.kinds, geocode=table.geocode)
    is_marked = entities.members[:, table.kinds.index(mark)] != NO_ENTITY if mark else None
    respined = optimize_spine(spine, leaves, entities, design, is_marked)
    write_codes(respined, leaves, codes)
    return spine_summary(spine, leaves, entities, respined)


def read_entities(
    path: Path, leaves: Geocodes, kinds: Sequence[str], *, geocode: str = "geocode"
) -> Entities:
    """Read which entities each leaf lies in.

    Args:
      path: CSV or Parquet file with one row per leaf; public.
      leaves: bytes[n] geocodes.
      kinds: Columns, one per kind of entity; a null or an empty text is no entity.
      geocode: Column with the geocode of the leaf.

    Returns:
      One row per leaf, in the order of `leaves`; entities of a kind numbered by sorted code.

    Raises:
      InputError: The file cannot be read, lacks a column, has a leaf twice or one that is unknown,
        or lacks a leaf.
    """
    batches = [batch.table for batch in read_table(Table(path, (geocode, *kinds)))]
    try:
        table = pa.concat_tables(batches)
        texts = {name: _texts(table, name) for name in (geocode, *kinds)}
    except pa.ArrowException:  # its text may quote the file
        raise InputError(
            str(path), "holds a column that is not text", want=f"text in {[geocode, *kinds]}"
        ) from None
    rows, leaves = texts[geocode], leaves.astype(np.str_)
    order = np.argsort(rows)
    if len(rows) != len(leaves) or not np.array_equal(rows[order], np.sort(leaves)):
        raise InputError(
            f"{path}, {geocode}",
            "does not name every leaf geounit exactly once",
            got=f"{len(rows)} rows, {np.isin(leaves, rows).sum()} of the leaves",
            want=f"{len(leaves)} leaves",
        )
    place = order[np.searchsorted(rows[order], leaves)]
    members = np.full((len(leaves), len(kinds)), NO_ENTITY, np.int64)
    for column, kind in enumerate(kinds):
        found = texts[kind][place]
        held = found != ""
        members[held, column] = np.unique(found[held], return_inverse=True)[1]
    return Entities(tuple(kinds), members)


def _texts(table: pa.Table, column: str) -> npt.NDArray[np.str_]:
    filled = pc.fill_null(pc.cast(table.column(column), pa.string()), "")
    return np.asarray(filled.to_numpy(), np.str_)


def spine_summary(
    spine: Spine, leaves: Geocodes, entities: Entities, made: Respined
) -> dict[str, Any]:
    """Say what a design changes.

    Returns:
      `levels` for the run file, the number of geounits of every geolevel, and for every kind of
      entity the number of entities and the mean and largest off-spine distance before and after.
    """
    sides = {}
    for name, one in (("before", Respined(spine, leaves)), ("after", made)):
        lattice = Lattice.from_leaves(one.spine, one.codes)
        distances = offspine_distances(lattice, entities.take(np.argsort(one.codes)))
        sides[name] = (lattice.sizes(), distances)
    return {
        "levels": [
            {"name": name, "digits": digits}
            for name, digits in zip(made.spine.levels, made.spine.digits, strict=True)
        ],
        "geounits": {name: sizes for name, (sizes, _) in sides.items()},
        "distances": {
            kind: {
                "entities": len(sides["before"][1][kind]),
                **{name: _spread(distances[kind]) for name, (_, distances) in sides.items()},
            }
            for kind in entities.kinds
        },
    }


def _spread(distances: npt.NDArray[np.int64]) -> dict[str, float]:
    if not len(distances):
        return {"mean": 0.0, "largest": 0}
    return {"mean": float(distances.mean()), "largest": int(distances.max())}


def write_codes(made: Respined, leaves: Geocodes, path: Path) -> None:
    """Write the geocode and the new geocode of every leaf; an existing file is not replaced.

    The Parquet file has the columns geocode and spine_geocode, sorted by the latter, so it can be
    named as `geography.geounits` of a run; its metadata hold the geolevels and the inserted digits.

    Raises:
      OutputError: The file exists or cannot be written.
    """
    order = np.argsort(made.codes)
    facts = {
        "levels": list(made.spine.levels),
        "digits": list(made.spine.digits),
        "insertions": [asdict(insertion) for insertion in made.insertions],
    }
    table = pa.table(
        {
            "geocode": leaves[order].astype(np.str_),
            "spine_geocode": made.codes[order].astype(np.str_),
        }
    ).replace_schema_metadata({_FACTS: json.dumps(facts)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            pq.write_table(table, file)
    except FileExistsError:
        raise OutputError(str(path), "exists", remedy="name another file or remove it") from None
    except OSError as error:
        raise OutputError(str(path), "cannot be written", got=error.strerror) from None


def read_codes(path: Path) -> tuple[Geocodes, Respined]:
    """Read what `write_codes` wrote: the geocodes of the leaves, and their other spine.

    Raises:
      InputError: The file cannot be read or is of another kind.
    """
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(str(path), "cannot be read", got=error) from None
    metadata: Mapping[bytes, bytes] = table.schema.metadata or {}
    if _FACTS not in metadata:
        raise InputError(str(path), "holds no geocodes of another spine")
    facts = json.loads(metadata[_FACTS])
    spine = Spine(tuple(facts["levels"]), tuple(facts["digits"]))
    insertions = tuple(Insertion(**insertion) for insertion in facts["insertions"])
    old, new = (_texts(table, name).astype(np.bytes_) for name in ("geocode", "spine_geocode"))
    return old, Respined(spine, new, insertions)


def recode_parquet(source: Path, column: str, codes: Path, out: Path) -> None:
    """Copy a Parquet file with the geocodes of one column replaced by those of the other spine.

    Whoever calls this on confidential data keeps the copy as confidential as the source.

    Raises:
      InputError: A file cannot be read or lacks the column, or a geocode is unknown.
      OutputError: The file exists or cannot be written.
    """
    old, made = read_codes(codes)
    order = np.argsort(old)
    known, new = old[order], made.codes[order]
    try:
        file = pq.ParquetFile(source)
    except (OSError, pa.ArrowException) as error:
        raise InputError(str(source), "cannot be read", got=error) from None
    place = file.schema_arrow.get_field_index(column)
    if place < 0:
        raise InputError(str(source), "lacks a column", want=column)
    schema = file.schema_arrow.set(place, pa.field(column, pa.string()))
    try:
        with out.open("xb") as sink, pq.ParquetWriter(sink, schema) as writer:
            for batch in file.iter_batches(_BATCH_ROWS):
                table = pa.Table.from_batches([batch])
                rows = _texts(table, column).astype(np.bytes_)
                at = np.minimum(np.searchsorted(known, rows), len(known) - 1)
                unknown = int((known[at] != rows).sum())
                if unknown:
                    raise InputError(
                        f"{source}, {column}",
                        f"geocode is not in the list of leaves ({unknown} such)",
                    )
                writer.write_table(
                    table.set_column(place, schema.field(place), pa.array(new[at].astype(np.str_)))
                )
    except FileExistsError:
        raise OutputError(str(out), "exists", remedy="name another file or remove it") from None
    except InputError:
        out.unlink()
        raise
    except OSError as error:
        raise OutputError(str(out), "cannot be written", got=error.strerror) from None
