"""Measurements of a release, read back with their mechanisms."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from das.errors import OutputError
from das.mechanisms.gaussian import DiscreteGaussian
from das.mechanisms.laplace import DiscreteLaplace
from jobs.analysis.measurements import read_measurements
from jobs.pipeline.storage.layout import ReleaseLayout
from tests.builders.datasets import MEASUREMENTS_OF_FORMAT_1, publish_tables

ROWS = [
    ("71", "sex", "discrete_gaussian", "16", 16.0, [5, -2]),
    ("72", "sex", "discrete_gaussian", "16", 16.0, [8, 3]),
    ("73", "sex", "discrete_gaussian", "15/2", 7.5, [0, 1]),
    ("71", "total", "discrete_laplace", "3", 17.8, [4]),
]


@pytest.fixture
def release(tmp_path):
    dataset = ReleaseLayout(tmp_path).measurements("tract")
    columns = [pa.array(column, field.type if field.name not in {"query", "mechanism", "parameter"}
                        else pa.string()) for column, field in
               zip(zip(*ROWS, strict=True), MEASUREMENTS_OF_FORMAT_1, strict=True)]  # fmt: skip
    columns = [c.dictionary_encode() if i in {1, 2, 3} else c for i, c in enumerate(columns)]
    queries = [
        {"query": "sex", "answers": 2, "labels": ["female", "male"]},
        {"query": "total", "answers": 1, "labels": ["total"]},
    ]
    publish_tables(
        dataset, [pa.table(columns, schema=MEASUREMENTS_OF_FORMAT_1)], {"queries": queries}
    )
    return tmp_path


def test_answers_come_with_their_mechanisms(release):
    read = read_measurements(release, "tract", "sex")
    wide, narrow = DiscreteGaussian(Fraction(16)), DiscreteGaussian(Fraction(15, 2))
    assert read.labels == ("female", "male")
    assert read.geocodes.tolist() == ["71", "72", "73"]
    assert read.answers.tolist() == [[5, -2], [8, 3], [0, 1]]
    assert read.mechanisms == (wide, wide, narrow)
    some = read.under(narrow)
    assert (some.geocodes.tolist(), some.answers.tolist()) == (["73"], [[0, 1]])
    assert some.mechanisms == (narrow,)


def test_another_query(release):
    read = read_measurements(release, "tract", "total")
    assert np.array_equal(read.answers, [[4]])
    assert read.mechanisms == (DiscreteLaplace(Fraction(3)),)


def test_what_was_not_measured_is_refused(release):
    with pytest.raises(OutputError, match=r"lacks a query; got age; expected \['sex', 'total'\]"):
        read_measurements(release, "tract", "age")
    with pytest.raises(OutputError):
        read_measurements(release, "block", "sex")
