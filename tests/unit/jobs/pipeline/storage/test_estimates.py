"""Estimates are read in every format they were ever written in, or refused by name."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from das.errors import OutputError
from das.queries.query import parse_query
from das.schema import Attribute, Schema
from das.tree.coordinates import Coordinates
from das.tree.passes import Moments
from jobs.pipeline.storage.dataset import Dataset, PartWriter, publish
from jobs.pipeline.storage.estimates import (
    FORMAT,
    read_moments,
    read_tables,
    tables_schema,
    write_moments,
)
from jobs.pipeline.storage.place import Place

VALUES = {"estimate": [[1.5, -2.0], [7.25]], "standard_error": [[0.5, 1.0], [0.0]]}
COLUMNS = ["geocode", "query", "estimate", "standard_error", "lower", "upper"]


def written(folder: Place, schema: pa.Schema, facts: dict[str, object], **more: object) -> Dataset:
    rows = {"geocode": ["a", "b"], "query": ["sex", "total"], **VALUES, **more}
    writer = PartWriter(folder, schema)
    writer.write(pa.table(rows, schema=schema))
    publish(folder, [writer.close()], {"confidence": 0.9, **facts})
    return Dataset.open(folder)


@pytest.mark.parametrize(("largest", "number"), [(65_535, "float"), (65_536, "double")])
def test_intervals_are_computed_of_what_is_stored(tmp_path, largest, number):
    schema = tables_schema(largest)
    assert str(schema.field("estimate").type.value_type) == number
    table = read_tables(written(tmp_path / "tables", schema, {"format": FORMAT}))
    assert table.column_names == COLUMNS
    assert {str(table.schema.field(name).type) for name in COLUMNS[2:]} == {"list<item: double>"}
    half = 1.6448536269514722
    (first, second) = table.to_pylist()
    assert first["lower"] == pytest.approx([1.5 - half / 2, -2 - half], abs=1e-12)
    assert first["upper"] == pytest.approx([1.5 + half / 2, -2 + half], abs=1e-12)
    assert (second["lower"], second["upper"]) == ([7.25], [7.25])


def test_a_range_is_read_alone(tmp_path):
    dataset = written(tmp_path / "tables", tables_schema(1), {"format": FORMAT})
    assert read_tables(dataset, "b", "b").column("geocode").to_pylist() == ["b"]
    assert read_tables(dataset, "c", "d").num_rows == 0


def test_tables_of_a_later_version_are_refused(tmp_path):
    dataset = written(tmp_path / "tables", tables_schema(1), {"format": 4})
    with pytest.raises(OutputError) as caught:
        read_tables(dataset)
    assert str(caught.value) == (
        f"{tmp_path}/tables: is in a format that this version does not read; got 4; expected 3"
    )


def test_rounding_is_far_below_any_noise():
    values = np.array([65_535.99, 0.1, 999.0])
    number = tables_schema(65_535.99).field("estimate").type.value_type.to_pandas_dtype()
    assert np.abs(values.astype(number) - values).max() <= 2**-9


TWO = Schema("s", (Attribute("a", ("x", "y", "z")),))


@pytest.fixture
def coordinates() -> Coordinates:
    return Coordinates.of_queries([parse_query(TWO, text) for text in ("total", "detailed")])


def moments_of(coordinates: Coordinates, rows: np.ndarray) -> Moments:
    kinds = tuple(
        np.stack([np.eye(size), 2.5 * np.eye(size)]) * (1 + i)
        for i, size in enumerate(coordinates.sizes)
    )
    return Moments(coordinates.unflatten(rows), kinds, np.arange(len(rows)) % 2)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("large", [(), (1,), (0, 1, 2, 3)])
@pytest.mark.parametrize("rows", [1, 3, 9])
def test_moments_come_back_and_large_ones_to_the_last_digit(
    tmp_path, coordinates, monkeypatch, single, large, rows
):
    codes = np.array(["a", "b", "c", "d"], object)
    values = np.random.default_rng(5).normal(scale=1e3, size=(4, 3))
    values[list(large)] *= 1e3
    written = moments_of(coordinates, values)
    monkeypatch.setattr("jobs.pipeline.storage.estimates._GROUP_NUMBERS", 3 * rows)
    part = write_moments(tmp_path / "whole", coordinates, codes, written, single=single)
    publish(tmp_path / "whole", [part], {"format": FORMAT})
    dataset = Dataset.open(tmp_path / "whole")
    assert pq.ParquetFile(tmp_path / "whole" / part.file).num_row_groups == -(-4 // rows)
    for some in ([0, 1, 2, 3], [1, 2], [3]):
        found = read_moments(dataset, coordinates, codes[some])
        back = coordinates.flatten(found.values)
        exact = [one in large or not single for one in some]
        np.testing.assert_array_equal(back[exact], values[some][exact])
        np.testing.assert_allclose(back, values[some], rtol=2**-24)
        if single and not large:
            assert (back != values[some]).any()
        for part, other in zip(found.matrices, written.matrices, strict=True):
            np.testing.assert_array_equal(part[found.kind], other[written.kind[some]])


def test_moments_of_a_later_version_are_refused(tmp_path, coordinates):
    publish(tmp_path / "whole", [], {"format": 4})
    with pytest.raises(OutputError, match="is in a format that this version does not read; got 4"):
        read_moments(Dataset.open(tmp_path / "whole"), coordinates, np.array(["a"], object))
