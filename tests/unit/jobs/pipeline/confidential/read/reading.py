"""Read input without Spark: the same streams that tasks run, one after the other."""

from __future__ import annotations

from collections import Counter

from das.schema import Attribute, Recode, Schema
from jobs.pipeline.confidential.read import block_table, histograms, pl94, records
from jobs.pipeline.config.data import check_data
from jobs.pipeline.config.models.data import (
    BlockTableData,
    DataConfig,
    HistogramsData,
    Pl94Data,
    RecordsData,
)
from jobs.pipeline.input.files import plan_chunks
from tests.checkout import ROOT

DATA = ROOT / "tests" / "data"

SEX = Attribute("sex", ("female", "male"))
AGE = Attribute("age", ("under_18", "18_to_64", "65_and_over"))
TOY = Schema(
    "toy",
    (SEX, AGE),
    (
        Recode.from_groups(
            "votingage", AGE, {"minor": ("under_18",), "adult": ("18_to_64", "65_and_over")}
        ),
    ),
)


def read(data: DataConfig, schema: Schema = TOY, digits: int = 4) -> Counter[tuple[str, int]]:
    """Sum all entries of the input."""
    if isinstance(data, Pl94Data):
        check_data(data, schema)
        batches = [
            batch
            for state in pl94.find_files(data.path)
            for batch in pl94.read_entries(state, data, digits=digits)
        ]
    else:
        module, table = {
            RecordsData: lambda: (records, records.table_of(data, schema)),
            BlockTableData: lambda: (block_table, block_table.table_of(data, schema)),
            HistogramsData: lambda: (histograms, histograms.table_of(data)),
        }[type(data)]()
        batches = [
            batch
            for chunk in plan_chunks(table)
            for batch in module.read_entries(chunk, data, schema=schema, digits=digits)
        ]
    total: Counter[tuple[str, int]] = Counter()
    for batch in batches:
        for row in batch.to_pylist():
            assert row["n"] > 0
            total[row["geocode"], row["cell"]] += row["n"]
    return total
