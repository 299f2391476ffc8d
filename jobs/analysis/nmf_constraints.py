"""Constraints of noisy measurement files as invariants of a run, with their public tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from das.arrays import IntArray
from das.errors import InputError
from das.queries.query import parse_query
from das.schema import Schema
from geography.lattice import Lattice
from jobs.analysis.nmf_files import CONSTRAINTS, LevelFiles, matrix_of, read_values

TOTAL, LEAST, MOST, NURSING = "total", "hhgq_total_lb", "hhgq_total_ub", "nurse_nva_0"
"""Constraints of the redistricting data, without their suffix."""
NURSING_MINORS = {"hhgq": ["nursing"], "votingage": ["under_18"]}
"""Structural zeros that the constraint NURSING stands for."""
NURSING_TERMS = {"hhgq": "gqNursingTotal", "votingage": "nonvoting"}
"""The same levels in the words of the layout."""
PERSONS_PER_FACILITY = 99_999
"""Upper bound on the persons of one facility in the constraint MOST."""
FACILITIES = "facilities.parquet"


@dataclass(frozen=True, eq=False)
class Exact:
    """Constraints of the files, as a run states them.

    Attributes:
      invariants: Section `invariants` of the run file; paths are relative to its folder.
      totals: int64[G], exact totals of the geounits, for each geolevel from the root to the last
      geolevel with totals.
      facilities: Facilities by type for each leaf geocode; None without bounds.
    """

    invariants: list[dict[str, Any]] = field(default_factory=list)
    totals: tuple[IntArray, ...] = ()
    facilities: pa.Table | None = None


def read_exact(
    schema: Schema, lattice: Lattice, levels: Sequence[LevelFiles], left_out: Sequence[str]
) -> Exact:
    """Read the constraints of all geolevels, root first.

    Args:
      schema: Attributes and cells.
      lattice: The geounits.
      levels: The files, in the order of the spine.
      left_out: Names of constraints to ignore, without the suffix `_con`.

    Raises:
      InputError: A constraint is unknown, lacks a geounit, or contradicts another.
    """
    known = {TOTAL, LEAST, MOST, NURSING}
    rows = []
    for index, level in enumerate(levels):
        table = read_values(level.constraints, kind=CONSTRAINTS)
        names = set(table.column("query").unique().to_pylist()) - set(left_out)
        if names - known:
            raise InputError(
                f"constraints of {level.geolevel}",
                "have a kind that no invariant can express",
                got=sorted(names - known),
                want=sorted(known),
                remedy="--leave-out NAME ignores the constraint; the release will not satisfy it",
            )
        rows.append(_by_geounit(table, names, lattice, index, level))
    invariants: list[dict[str, Any]] = []
    totals = _totals(rows, lattice, levels)
    if totals:
        name = levels[len(totals) - 1].geolevel
        invariants.append({"query": "total", "geolevel": name})
    facilities = None
    if LEAST in rows[-1] and MOST in rows[-1]:
        stated, facilities = _facilities(schema, lattice, rows[-1], levels[-1])
        invariants.append(stated)
    if any(NURSING in row for row in rows):
        invariants.append({"zero": NURSING_MINORS})
    return Exact(invariants, totals, facilities)


def _by_geounit(
    table: pa.Table, names: set[str], lattice: Lattice, index: int, level: LevelFiles
) -> Mapping[str, IntArray]:
    """Return the values of each constraint, int64[geounits, values], by geocode.

    Args:
      table: Rows of the constraints of a geolevel.
      names: Names of the constraints.
      lattice: Geounits of all geolevels.
      index: Index of the geolevel.
      level: Files of the geolevel.
    """
    out = {}
    where, known = f"constraints of {level.geolevel}", lattice.codes[index]
    for name in sorted(names):
        rows = table.filter(pc.equal(table.column("query"), name))
        codes = np.asarray(rows.column("geocode").to_pylist(), np.bytes_)
        if lattice.spine.digits[index] == 0 and len(codes) == 1:
            codes = known
        order = np.argsort(codes)
        if not np.array_equal(codes[order], known):
            raise InputError(
                where,
                f"{name} does not occur once for every geounit",
                got=f"{len(codes)} rows, {np.isin(known, codes).sum()} of the geounits",
                want=len(known),
            )
        what = f"{name} has lists of several lengths"
        out[name] = matrix_of(rows.column("value"), where, what)[order]
    return out


def _totals(
    rows: Sequence[Mapping[str, IntArray]], lattice: Lattice, levels: Sequence[LevelFiles]
) -> tuple[IntArray, ...]:
    """Return exact totals from the root to the deepest geolevel with totals."""
    deepest = max((index for index, row in enumerate(rows) if TOTAL in row), default=-1)
    totals: list[IntArray] = []
    for index in range(deepest, -1, -1):
        stated = rows[index].get(TOTAL)
        if totals:
            sums = np.add.reduceat(totals[0], lattice.first_child[index][:-1])
        else:
            sums = rows[index][TOTAL][:, 0]
        if stated is not None and not np.array_equal(stated[:, 0], sums):
            raise InputError(
                f"constraints of {levels[index].geolevel}",
                "total is not the sum of the totals one geolevel down "
                f"({int((stated[:, 0] != sums).sum())} such)",
            )
        totals.insert(0, sums)
    return tuple(totals)


def _facilities(
    schema: Schema, lattice: Lattice, rows: Mapping[str, IntArray], level: LevelFiles
) -> tuple[dict[str, Any], pa.Table]:
    """Return the invariant of facilities, and facility counts that give these bounds."""
    where = f"constraints of {level.geolevel}"
    types = parse_query(schema, "hhgq").labels()
    least, most = rows[LEAST], rows[MOST]
    if least.shape[1] != len(types) or most.shape != least.shape:
        raise InputError(
            where, "have bounds for other types", got=[least.shape[1], most.shape[1]], want=types
        )
    counts = most // PERSONS_PER_FACILITY
    if (counts * PERSONS_PER_FACILITY != most).any() or (counts < 0).any():
        raise InputError(
            where, f"{MOST} is no number of facilities times {PERSONS_PER_FACILITY} everywhere"
        )
    fewest = {}
    for index, name in enumerate(types):
        if np.array_equal(least[:, index], counts[:, index]):
            continue
        if least[:, index].any():
            what = f"{LEAST} is neither 0 nor the number of facilities"
            raise InputError(where, what, got=f"persons of type {name}")
        fewest[name] = 0
    stated: dict[str, Any] = {
        "facilities": "hhgq",
        "geolevel": level.geolevel,
        "table": {"path": FACILITIES, "columns": {name: name for name in types}},
    }
    if fewest:
        stated["at_least"] = fewest
    rows_kept = np.flatnonzero(counts.any(1) | (np.arange(len(counts)) == 0))  # a table has rows
    codes: npt.NDArray[np.str_] = lattice.codes[-1][rows_kept].astype(np.str_)
    columns = {name: counts[rows_kept, index] for index, name in enumerate(types)}
    return stated, pa.table({"geocode": codes, **columns})
