"""Design the spine of a run from public facts about leaves, if it is not the census hierarchy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import BoolArray, Geocodes
from das.errors import InputError
from geography.lattice import Lattice, Spine
from geography.offspine import NO_ENTITY, Entities
from geography.respine import Respined, optimize_spine
from jobs.pipeline.config.models.run import EntitiesFile, GeographyConfig, GeounitsFile, SplitConfig
from jobs.pipeline.config.models.values import names_of
from jobs.pipeline.input import values
from jobs.pipeline.input.files import read_table
from jobs.pipeline.input.geounits import (
    GeocodedFile,
    list_geounits,
    refuse_twice,
    rows_of,
    table_of,
)
from jobs.pipeline.storage.geography import Census


def run_leaves(
    geography: GeographyConfig, census: Spine, leaves: Geocodes
) -> tuple[Lattice, Census | None]:
    """Return the geounits at which a run is measured and solved.

    Args:
      geography: The section `geography` of the run file.
      census: The census geolevels.
      leaves: bytes[G] census geocodes, sorted, unique.

    Returns:
      The geounits of the spine, and the census geounits if they differ.

    Raises:
      InputError: The file of entities cannot be read, or does not have every leaf once.
      GeographyError: The geocodes make no tree, or the design does not fit them.
    """
    lattice = Lattice.from_leaves(census, leaves)
    if geography.spine is None:
        return lattice, None
    made, _ = respined(geography, census, leaves)
    order = np.argsort(made.codes)
    return Lattice.from_leaves(made.spine, made.codes), Census(lattice, leaves[order])


def public_lattice(geography: GeographyConfig, census: Spine) -> tuple[Lattice, Census | None]:
    """Return the geounits of `run_leaves` for the public list of leaves.

    Raises:
      InputError, GeographyError: As `run_leaves`; or the list does not fit the geolevels.
      ValueError: The run file names no list.
    """
    if geography.geounits is None:
        raise ValueError("there is no public list of geounits")
    return run_leaves(geography, census, list_geounits(geography.geounits, census))


def respined(
    geography: GeographyConfig, census: Spine, leaves: Geocodes
) -> tuple[Respined, Entities]:
    """Design a spine from a run file, and return its leaves with their entities.

    Args:
      geography: The section `geography` of the run file, with a design.
      census: The census geolevels.
      leaves: bytes[G] census geocodes, sorted, unique.

    Returns:
      The leaves in the given order, and the entities with which the spine is aligned.

    Raises:
      InputError: As `run_leaves`; or a split divides nothing, or a column names no entity.
      GeographyError: The design does not fit the leaves.
    """
    wanted, file = geography.spine, geography.geounits
    if wanted is None or file is None:
        raise ValueError("there is no design of another spine")
    listed = wanted.entities or file
    texts = read_columns(listed, leaves, census.digits[-1], wanted.columns)
    for kind in wanted.align_with:
        if not (texts[kind] != "").any():
            raise InputError(
                f"{listed.path}, column {kind}",
                "names no entity, so that geography.spine.align_with brings nothing nearer",
                want="a text for some leaves",
            )
    entities = _entities(texts, wanted.align_with)
    marked = None
    if wanted.split is not None:
        marked = _marked(texts[wanted.split.by], wanted.split.codes)
        _refuse_undivided(listed, wanted.split, texts[wanted.split.by], marked)
    return optimize_spine(census, leaves, entities, wanted.design, marked), entities


def read_columns(
    file: GeocodedFile, leaves: Geocodes, digits: int, columns: Sequence[str]
) -> dict[str, npt.NDArray[np.str_]]:
    """Read columns of a table with one row per leaf.

    Args:
      file: The public table.
      leaves: bytes[G] geocodes, sorted, unique.
      digits: Length of a geocode.
      columns: Names of the columns.

    Returns:
      Per column, str[G] in the order of `leaves`, stripped; "" for null.

    Raises:
      InputError: The file cannot be read, lacks a column or a leaf, or has a leaf twice or an
        unknown leaf.
    """
    names, table = names_of(file.geocode), table_of(file, columns)
    codes, texts = [], dict[str, list[npt.NDArray[np.str_]]]((name, []) for name in columns)
    for batch in read_table(table):
        of_batch = values.geocode_bytes(values.geocodes(batch, file.geocode, digits), digits)
        at = np.minimum(np.searchsorted(leaves, of_batch), len(leaves) - 1)
        unknown = np.flatnonzero(leaves[at] != of_batch)
        if len(unknown):
            raise InputError(
                f"{batch.where(int(unknown[0]))}, {', '.join(names)}",
                f"geocode is not in the list of geounits ({len(unknown)} such in these rows)",
                got=of_batch[unknown[0]].decode(),
            )
        codes.append(of_batch)
        for name in columns:
            texts[name].append(_texts(batch.table, name, str(file.path)))
    rows = np.concatenate(codes) if codes else np.zeros(0, leaves.dtype)
    order = np.argsort(rows, kind="stable")
    refuse_twice(rows[order], lambda code: rows_of(table, file.geocode, code, digits))
    absent = leaves[~np.isin(leaves, rows)]
    if len(absent):
        raise InputError(
            f"{file.path}, {', '.join(names)}",
            f"lacks a geounit ({len(absent)} such)",
            want=f"a row for {absent[0].decode()}",
        )
    return {name: np.concatenate(parts)[order] for name, parts in texts.items()}


def _texts(table: pa.Table, column: str, where: str) -> npt.NDArray[np.str_]:
    try:
        texts = pc.cast(table.column(column), pa.string())
    except pa.ArrowException:
        raise InputError(f"{where}, column {column}", "holds what is not text") from None
    filled = pc.fill_null(pc.utf8_trim_whitespace(texts), "")
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.str_)


def _entities(texts: dict[str, npt.NDArray[np.str_]], kinds: Sequence[str]) -> Entities:
    """Number the entities of each kind by sorted text."""
    size = len(next(iter(texts.values())))
    members = np.full((size, len(kinds)), NO_ENTITY, np.int64)
    for column, kind in enumerate(kinds):
        held = texts[kind] != ""
        members[held, column] = np.unique(texts[kind][held], return_inverse=True)[1]
    return Entities(tuple(kinds), members)


def _refuse_undivided(
    file: EntitiesFile | GeounitsFile,
    split: SplitConfig,
    texts: npt.NDArray[np.str_],
    marked: BoolArray,
) -> None:
    """Refuse a split whose codes mark no leaf or every leaf; column or codes are wrong then."""
    if marked.any() and not marked.all():
        return
    there = np.unique(texts[texts != ""])
    some = f"such as {', '.join(there[:3])}" if len(there) else "no text at all"
    by_codes = f" by codes {split.codes}" if split.codes else ""
    raise InputError(
        f"{file.path}, column {split.by}",
        f"marks {'every' if marked.any() else 'no'} leaf{by_codes}, so that geography.spine.split "
        "divides nothing",
        got=some,
        want="marks on some leaves; without any there is nothing to split",
    )


def _marked(texts: npt.NDArray[np.str_], codes: Sequence[str]) -> BoolArray:
    """Return bool[G], whether the text of each of G leaves is among the codes of a split."""
    if not codes:
        return np.asarray(texts != "", np.bool_)
    marked = np.zeros(len(texts), np.bool_)
    for code in codes:
        low, _, high = code.partition("..")
        of_length = np.char.str_len(texts) == len(low)
        marked |= of_length & (texts >= low) & (texts <= (high or low))
    return marked
