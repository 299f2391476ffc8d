"""Read the whole input before a run, without Spark, to find the mistakes of all columns.

The result quotes codes of the data. It is shown to users who may read the data, and is never
written to a log, a run folder or an account.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from das.arrays import Geocodes
from das.confidential import redact_errors
from das.errors import InputError
from jobs.pipeline.confidential.inputs import check_inputs
from jobs.pipeline.confidential.read.formats import reader_of
from jobs.pipeline.confidential.read.reader import GEOCODE, Reader, Wrong
from jobs.pipeline.config.product import Resolved, account_of, reservation_of
from jobs.pipeline.input.geounits import list_geounits
from jobs.pipeline.input.values import geocode_bytes
from jobs.pipeline.storage.account import note_failed_check

_MOST_CODES = 10  # shown of a column


@dataclass(frozen=True)
class Checked:
    """Result of reading the whole input.

    Attributes:
      mistakes: Mistakes of all attributes, each with the name of its product.
      leaf_sizes: Product to the mean number of rows of a leaf geounit, where the list of geounits
        comes from the data.
    """

    mistakes: Sequence[tuple[str, Wrong]]
    leaf_sizes: Mapping[str, float] = field(default_factory=dict)

    def lines(self, leaf: str) -> list[str]:
        """Describe the result for a terminal; `leaf` is the name of the last geolevel."""
        lines = [
            f"{name} of a geounit of {leaf}, on average: {size:.2g}"
            for name, size in self.leaf_sizes.items()
        ]
        for name, wrong in self.mistakes:
            lines.append(f"{name}: {wrong.first}")
            codes = [repr(code) if code else "missing" for code in sorted(wrong.codes)]
            if codes:
                more = f" and {len(codes) - _MOST_CODES} more" if len(codes) > _MOST_CODES else ""
                lines.append(f"    not a code: {', '.join(codes[:_MOST_CODES])}{more}")
        return lines if self.mistakes else [*lines, "data: every geocode and code is legal"]

    def refuse(self) -> None:
        """Refuse data with mistakes; the error quotes none, because errors go to logs.

        Raises:
          InputError: There are mistakes.
        """
        if self.mistakes:
            raise InputError(
                "data",
                "do not fit the run file; the account notes that a check failed",
                remedy="correct them, or map each code to a level under data.columns",
            )


@redact_errors
def check_whole_input(resolved: Resolved) -> Checked:
    """Read every row of the inputs; note failed checks in the account, once for each product.

    Raises:
      DasError: A file is missing, unreadable or lacks a column.
      OutputError: The account cannot be written; then no mistake may be shown.
    """
    check_inputs(resolved)
    spine, listed = resolved.plan.census_spine, resolved.config.geography.geounits
    public = None if listed is None else list_geounits(listed, spine)
    mistakes: list[tuple[str, Wrong]] = []
    leaf_sizes: dict[str, float] = {}
    for name, product in resolved.products.items():
        reader = reader_of(product.config.input, product.plan.schema, spine.digits[-1])
        wrong = _wrong_attributes(reader)
        if GEOCODE not in wrong:
            codes, size = _geocodes(reader)
            strange = [] if public is None else np.setdiff1d(codes, public).astype(np.str_).tolist()
            if strange:
                places = ", ".join(reader.places(strange[0]))
                wrong[GEOCODE] = Wrong(GEOCODE, f"{places}: is not in the list", {*strange})
            elif public is None and reader.has_repeats:
                leaf_sizes[name] = size
        if (again := reader.repeated()) is not None:
            wrong[again.attribute] = again
        mistakes += [(name, one) for one in wrong.values()]
        if wrong:
            reservation = reservation_of(resolved, product, "")
            note_failed_check(account_of(resolved.config), reservation, "das validate --data")
    return Checked(mistakes, leaf_sizes)


def _wrong_attributes(reader: Reader[Any, Any]) -> dict[str, Wrong]:
    """Return the mistakes of each attribute, with the first row and all codes."""
    wrong: dict[str, Wrong] = {}
    for piece in reader.pieces():
        for one in reader.wrong(piece):
            wrong.setdefault(one.attribute, one).codes.update(one.codes)
    return wrong


def _geocodes(reader: Reader[Any, Any]) -> tuple[Geocodes, float]:
    """Return the distinct geocodes of an input, sorted, and the mean number of rows of each."""
    rows, seen = 0, [np.zeros(0, f"S{reader.digits}")]
    for piece in reader.pieces():
        for array in reader.geocodes(piece):
            rows += len(array)
            seen.append(np.unique(geocode_bytes(array, reader.digits)))
    codes = np.unique(np.concatenate(seen))
    return codes, rows / max(len(codes), 1)
