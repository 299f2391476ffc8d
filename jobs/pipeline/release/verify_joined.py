"""Check joined microdata against the counts of both products, in integers.

The checks are independent of the code that joins: they read the written rows, the released counts,
and the stated constraints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from das.arrays import IntArray, ObjectArray
from das.errors import OutputError, VerificationError
from das.histograms import Histograms, first_difference
from das.schema import Schema
from invariants.between import CrossProductConstraint, Form
from jobs.pipeline.config.between import Joining
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.census import census_codes
from jobs.pipeline.storage.columns import texts
from jobs.pipeline.storage.csv import without_formula
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.geography import read_geography, read_public_geocodes
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import open_input
from jobs.pipeline.tasks.batches import geounit_batches

_GEOUNITS = 20_000  # leaves compared at a time; default, not measured


def verify_joined(plan: Plan, release: ReleaseLayout, joining: Joining) -> int:
    """Check that every record is in at most one unit, and every unit holds the records it must.

    In every leaf, rows match the counts of records, cell by cell. A row names an existing unit,
    with its attributes. Every unit, also without rows, keeps each constraint of `between`: a
    household of size k has k persons, one of them a householder. The Parquet file is checked, or
    the CSV file if there is no other.

    Returns:
      The number of checked records.

    Raises:
      OutputError: A file is missing or unreadable.
      VerificationError: A check fails; names the geounit.
    """
    formats = sorted(joining.config.file_formats, reverse=True)  # Parquet, if it is there
    dataset = Dataset.open(release.joined / formats[0])
    checked = 0
    for low, high in _ranges(plan, release):
        checked += _verify_range(plan, release, joining, dataset, low, high)
    if checked != dataset.rows:
        raise VerificationError(
            str(dataset.path), "has rows of no leaf", got=dataset.rows, want=checked
        )
    return checked


def _ranges(plan: Plan, release: ReleaseLayout) -> Iterator[tuple[str, str]]:
    census = census_codes(plan, release)
    if census is not None:
        yield from census.ranges(_GEOUNITS)
        return
    for batch in geounit_batches(release, plan.leaf, 1, _GEOUNITS):
        yield batch.low, batch.high


def _verify_range(
    plan: Plan, release: ReleaseLayout, joining: Joining, dataset: Dataset, low: str, high: str
) -> int:
    leaf, product = plan.leaf.name, joining.places.product
    codes = read_public_geocodes(release, leaf, low, high)
    units = read_counts(release.product(product), leaf, codes, joining.units.size)
    records = read_counts(release, leaf, codes, plan.schema.size)
    names = codes
    if plan.census is not None:
        names = texts(
            read_geography(release, leaf, low, high, ("census_geocode",)), "census_geocode"
        )
    table = _rows(dataset, low, high)
    owners = _positions(names, texts(table), str(dataset.path))

    def refuse(rows: np.typing.NDArray[np.bool_], what: str, got: object = None) -> None:
        if rows.any():
            where = names[int(owners[np.flatnonzero(rows)[0]])]
            raise VerificationError(f"joined {leaf} {where}", what, got=got)

    cells = _cells(plan.schema, table, [attribute.name for attribute in plan.schema.attributes])
    refuse(cells < 0, "has a record with an attribute that the schema does not know")
    found = Histograms.from_entries(
        plan.schema.size, len(names), owners, cells, np.ones(len(cells), np.int64)
    )
    wrong = first_difference(found, records)
    if wrong is not None:
        raise VerificationError(
            f"joined {leaf} {names[wrong]}", "has other records than its counts"
        )
    numbers = pc.fill_null(table.column(joining.number).cast(pa.int64()), 0).to_numpy()
    u_leaf = np.repeat(units.owners(), units.counts)
    u_cell = np.repeat(units.cells, units.counts)
    first = np.searchsorted(u_leaf, np.arange(len(names) + 1))
    refuse((numbers < 0) | (numbers > np.diff(first)[owners]), "has a record in a unit it lacks")
    housed = numbers > 0
    unit = np.where(housed, first[owners] + numbers - 1, 0)
    stated = _cells(joining.units, table, joining.columns)
    numbered = np.where(housed, u_cell[unit] if len(u_cell) else -1, -1)
    refuse(stated != numbered, "has a record whose unit attributes are not those of its unit")
    if plan.limits.ties is None:
        raise ValueError("joined microdata are of a product with ties")
    for tie in plan.limits.ties.entries:
        inside = tie.cells[cells]
        refuse(inside & ~housed, "has a record in no unit", got=tie.name)
        held = np.bincount(unit[inside & housed], minlength=len(u_cell))
        broken = _broken(tie, product, u_cell, held)
        if broken.any():
            where = names[int(u_leaf[np.flatnonzero(broken)[0]])]
            raise VerificationError(
                f"joined {leaf} {where}", "has a unit that does not keep", got=f"between {tie.name}"
            )
    return len(cells)


def _broken(
    tie: CrossProductConstraint, product: str, cells: IntArray, held: IntArray
) -> np.typing.NDArray[np.bool_]:
    """Return bool[u], units with fewer or more records than the constraint allows their cell."""

    def of(form: Form) -> IntArray:
        return form.parts[product][cells]

    wrong = np.zeros(len(cells), np.bool_)
    if tie.least is not None:
        wrong |= held < of(tie.least)
    if tie.most is not None:
        wrong |= held > of(tie.most)
    return wrong


def _positions(names: ObjectArray, geocodes: ObjectArray, where: str) -> IntArray:
    """Return int64[r], the position of the leaf of each row."""
    order = np.argsort(names.astype(np.str_), kind="stable")
    known = names[order].astype(np.str_)
    wanted = geocodes.astype(np.str_)
    index = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    strange = known[index] != wanted
    if strange.any():
        raise VerificationError(
            where, "has a row of no leaf", got=str(geocodes[int(np.argmax(strange))])
        )
    return np.asarray(order[index], np.int64)


def _cells(schema: Schema, table: pa.Table, columns: Sequence[str]) -> IntArray:
    """Return int64[r], the cell of every row; -1 if a label is missing or unknown."""
    codes, unknown = {}, np.zeros(table.num_rows, np.bool_)
    for attribute, name in zip(schema.attributes, columns, strict=True):
        labels = pa.array([*attribute.levels, *map(without_formula, attribute.levels)])
        found = pc.index_in(table.column(name).cast(pa.string()), labels)
        code = pc.fill_null(found, -1).to_numpy()
        unknown |= code < 0
        codes[attribute.name] = np.maximum(code, 0) % attribute.size
    return np.where(unknown, -1, schema.cells_of(codes))


def _rows(dataset: Dataset, low: str, high: str) -> pa.Table:
    """Read the rows of a range; columns of a CSV file keep their labels as text."""
    if dataset.path.name != "csv":
        return dataset.read(low, high)
    tables = []
    for part in dataset.within(low, high).parts:
        try:
            table = pa_csv.read_csv(
                open_input(dataset.path / part.file, part.bytes),
                convert_options=pa_csv.ConvertOptions(
                    column_types={"geocode": pa.string()},
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except (OSError, pa.ArrowException) as error:
            raise OutputError(str(dataset.path / part.file), "cannot be read") from error
        codes = table.column("geocode")
        tables.append(
            table.filter(pc.and_(pc.greater_equal(codes, low), pc.less_equal(codes, high)))
        )
    return pa.concat_tables(tables)
