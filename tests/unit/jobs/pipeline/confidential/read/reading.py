"""Read input without Spark: the same streams that tasks run, one after the other."""

from __future__ import annotations

from collections import Counter

from das.schema import Attribute, Recode, Schema
from jobs.pipeline.confidential.read.formats import reader_of
from jobs.pipeline.config.models.data import DataConfig
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
    reader = reader_of(data, schema, digits)
    total: Counter[tuple[str, int]] = Counter()
    for piece in reader.pieces():
        for batch in reader.entries(piece):
            for row in batch.to_pylist():
                assert row["n"] > 0
                total[row["geocode"], row["cell"]] += row["n"]
    return total
