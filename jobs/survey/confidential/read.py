"""Read a survey file: codes of all attributes, and numbers of averaged columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, IntArray
from das.confidential import Confidential, redact_errors
from das.errors import InputError
from das.means.measure import StratumValues
from das.queries.sensitivity import Neighbors
from das.synthesis.records import Records
from jobs.pipeline.input import values
from jobs.pipeline.input.files import Batch, Table, read_table
from jobs.survey.checks import MOST_RECORDS
from jobs.survey.plan import MeanPlan, SurveyPlan


@dataclass(frozen=True, eq=False)
class Numbers:
    """Values of a numeric column.

    Attributes:
      values: int64[n]; 0 where missing.
      missing: bool[n], whether the value is missing.
    """

    values: IntArray
    missing: BoolArray


@dataclass(frozen=True, eq=False)
class SurveyTruth:
    """Contents of a survey file.

    Attributes:
      records: Codes of all attributes.
      numbers: Attribute to its numbers, for attributes with bins.
    """

    records: Records
    numbers: Mapping[str, Numbers]

    def values(self, mean: MeanPlan) -> StratumValues:
        """Return the averaged values and their strata; missing values are replaced or excluded."""
        numbers, missing = self.numbers[mean.config.mean], mean.config.missing
        where = self.records.domain.positions(mean.config.stratify_by)
        values = numbers.values
        stratum_of = np.asarray(mean.stratum_of[tuple(self.records.codes[:, i] for i in where)])
        strata = np.broadcast_to(stratum_of, values.shape)
        if isinstance(missing, int):
            values = np.where(numbers.missing, missing, values)
        else:
            values, strata = values[~numbers.missing], strata[~numbers.missing]
        return StratumValues(values, np.ascontiguousarray(strata), len(mean.strata.sizes))


def table_of(plan: SurveyPlan) -> Table:
    """Return the files and columns of the survey."""
    data = plan.config.data
    columns = tuple(column.column for column in data.columns.values())
    return Table(data.path, columns, data.delimiter, "data.delimiter", quoting=data.quoting)


@redact_errors
def read_survey(plan: SurveyPlan) -> Confidential[SurveyTruth]:
    """Read the survey file.

    Raises:
      InputError: The file cannot be read, holds a value that the run file does not name, or has too
        many records; or, with bounded neighbors, another number of records than `data.records`.
    """
    columns = plan.config.data.columns
    parts: list[dict[str, tuple[IntArray, ...]]] = []
    n_records = 0
    for batch in read_table(table_of(plan)):
        n_records += batch.table.num_rows
        if n_records > MOST_RECORDS:
            raise InputError(
                str(plan.config.data.path),
                "has more records than one machine can process",
                want=f"at most {MOST_RECORDS}",
            )
        parts.append({name: _read(plan, name, batch) for name in columns})
    _check_number(plan, n_records)

    def whole(name: str, index: int) -> IntArray:
        return np.concatenate([part[name][index] for part in parts])

    codes = np.stack([whole(name, 0) for name in columns], axis=1)
    numeric = [name for name, column in columns.items() if column.bins is not None]
    numbers = {name: Numbers(whole(name, 1), whole(name, 2) >= 0) for name in numeric}
    return Confidential(SurveyTruth(Records(plan.domain, codes), numbers))


def _read(plan: SurveyPlan, name: str, batch: Batch) -> tuple[IntArray, ...]:
    """Return codes of an attribute; with bins also its numbers and the levels of missing values."""
    column = plan.config.data.columns[name]
    level = {label: index for index, label in enumerate(column.levels)}
    key = f"data.columns.{name}"
    if column.codes is not None:
        legal = {value: level[label] for value, label in column.codes.items()}
        remedy = f"list every value of the file under {key}.codes"
        return (values.codes(batch, column.column, legal, remedy),)
    absent = {value: level[label] for value, label in column.missing.items()}
    remedy = f"list values that are no numbers under {key}.missing"
    numbers, missing = values.numbers(batch, column.column, absent, remedy)
    edges = np.array(column.bins, np.int64)

    def below(part: Batch) -> list[values.Fault]:
        found, which = values.numbers(part, column.column, absent, remedy)
        return [("number is below the first bin", (which < 0) & (found < edges[0]))]

    values.refuse(
        batch,
        f"column {column.column}",
        below,
        want=f"{edges[0]} or more",
        remedy="put a lower edge first in its `bins`, so that these numbers get a label",
    )
    binned = np.maximum(np.searchsorted(edges, numbers, side="right") - 1, 0)
    return np.where(missing >= 0, missing, binned), numbers, missing


def _check_number(plan: SurveyPlan, n_records: int) -> None:
    """Check the number of records, which bounded neighbors make public."""
    stated = plan.config.data.n_records
    if plan.config.privacy.neighbors is Neighbors.BOUNDED and n_records != stated:
        raise InputError(
            str(plan.config.data.path),
            "has another number of records than data.n_records states",
            got=n_records,
            want=stated,
            remedy="with bounded neighbors the number is public: correct it; or use unbounded "
            "neighbors",
        )
