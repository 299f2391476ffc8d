"""Answers as they are written and read: whole, drawn in part, or of some geounits only."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from das.errors import OutputError
from das.mechanisms.gaussian import DiscreteGaussian
from das.mechanisms.laplace import DiscreteLaplace
from das.queries.query import parse_query
from das.schema import Attribute, Schema
from jobs.pipeline.storage.answers import (
    ANSWERS,
    LAZY_MEASUREMENTS,
    MEASUREMENTS,
    DrawnAnswers,
    answer_table,
    measurement_table,
    read_answers,
    read_available,
    read_drawn,
    read_listed,
    read_measured,
    rows_about,
)
from jobs.pipeline.storage.dataset import Dataset, PartWriter, RangeReader, publish

SCHEMA = Schema("toy", (Attribute("sex", ("f", "m")), Attribute("age", ("0", "1", "2"))))
SEX, AGE = (parse_query(SCHEMA, name) for name in ("sex", "age"))
CODES = np.array(["11", "12", "13"], object)
OF_SEX = np.array([[1, 2], [3, -4], [5, 6]])
OF_AGE = np.array([[7, 0, 1], [8, 0, 2], [9, 0, 3]])
WIDE, NARROW = DiscreteGaussian(Fraction(16)), DiscreteLaplace(Fraction(3, 2))


def written(
    path: Path, schema: pa.Schema, *tables: pa.Table, queries: tuple[str, ...] = ()
) -> Dataset:
    writer = PartWriter(path, schema)
    writer.write_apart(tables)
    publish(path, [writer.close()], {"queries": list(queries)})
    return Dataset.open(path)


@pytest.fixture
def exact(tmp_path):
    tables = answer_table(CODES, "sex", OF_SEX), answer_table(CODES[::2], "age", OF_AGE[::2])
    return written(tmp_path / "exact", ANSWERS, *tables, queries=("sex", "age"))


@pytest.fixture
def lazy(tmp_path):
    """Of sex all answers, as older versions had them there; of age the second and third."""
    drawn = DrawnAnswers(np.arange(4) * 2, np.tile([1, 2], 3), OF_AGE[:, 1:].ravel())
    mechanisms = (WIDE, NARROW, WIDE)
    tables = (
        measurement_table(CODES, "sex", mechanisms, OF_SEX, LAZY_MEASUREMENTS),
        measurement_table(CODES, "age", mechanisms, drawn, LAZY_MEASUREMENTS),
    )
    return written(tmp_path / "lazy", LAZY_MEASUREMENTS, *tables)


def test_answers_are_read_of_exactly_the_geounits_asked_for(exact):
    for rows in (slice(0, 3), slice(1, 2), slice(0, 0)):
        (sex,) = read_answers(exact, [SEX], CODES[rows])
        assert sex.dtype == np.int64
        assert np.array_equal(sex, OF_SEX[rows])


@pytest.mark.parametrize(
    ("query", "codes"),
    [(AGE, CODES), (SEX, np.array(["11", "13"], object)), (SEX, np.array(["12", "14"], object))],
)
def test_a_missing_geounit_is_an_error_that_counts_the_rows(exact, query, codes):
    with pytest.raises(OutputError) as caught:
        read_answers(exact, [query], codes)
    what = f"{exact.path}: does not hold query {query.name} of every geounit; got "
    assert str(caught.value).startswith(what)
    assert str(caught.value).endswith(f" rows; expected {len(codes)}")


def test_a_row_with_too_few_answers_is_an_error(tmp_path):
    short = written(tmp_path / "d", ANSWERS, answer_table(CODES, "age", OF_SEX))
    for read in (
        lambda: read_answers(short, [AGE], CODES),
        lambda: read_answers(short, [AGE], CODES, narrow=True),
    ):
        with pytest.raises(OutputError, match="does not hold query age of every geounit"):
            read()


def test_available_answers_are_of_whichever_geounits_have_them(exact):
    codes, answers = read_available(exact, "age", 3)
    assert (codes.tolist(), answers.tolist()) == (["11", "13"], OF_AGE[::2].tolist())
    codes, answers = read_available(exact, "age", 3, "12", "12")
    assert (codes.tolist(), answers.shape) == ([], (0, 3))
    with pytest.raises(OutputError, match=r"does not hold hhgq; got \['sex', 'age'\]"):
        read_available(exact, "hhgq", 3)


def test_lazy_answers_are_those_that_were_drawn(lazy):
    (whole,) = read_answers(lazy, [SEX], CODES, narrow=True)
    (drawn,) = read_drawn(lazy, [AGE], CODES)
    assert whole.dtype == np.int16
    assert np.array_equal(whole, OF_SEX)
    assert np.array_equal(drawn.of(slice(0, 3), np.array([1, 2])), OF_AGE[:, 1:])
    assert np.array_equal(drawn.of(slice(1, 3), np.array([2])), OF_AGE[1:, 2:])
    with pytest.raises(OutputError, match="lack answers about cells that are positive now"):
        drawn.of(slice(0, 1), np.array([0]))
    assert [len(one.answers) for one in read_drawn(lazy, [AGE], CODES[:0])] == [0]


def test_a_measurement_names_its_mechanism_and_variance(lazy):
    rows = rows_about(lazy.read(), "sex").to_pylist()
    assert [(r["mechanism"], r["parameter"]) for r in rows] == [
        ("discrete_gaussian", "16"), ("discrete_laplace", "3/2"), ("discrete_gaussian", "16"),
    ]  # fmt: skip
    assert [r["variance"] for r in rows] == [m.variance() for m in (WIDE, NARROW, WIDE)]
    assert [r["positions"] for r in rows] == [None] * 3
    codes, answers, mechanisms = read_measured(lazy, "sex", 2)
    assert codes.tolist() == CODES.tolist()
    assert np.array_equal(answers, OF_SEX)
    assert mechanisms == (WIDE, NARROW, WIDE)


@pytest.mark.parametrize(
    "read",
    [
        lambda dataset: read_answers(dataset, [SEX], CODES),
        lambda dataset: read_answers(dataset, [SEX], CODES, narrow=True),
        lambda dataset: read_answers(RangeReader(dataset), [SEX], CODES, narrow=True),
        lambda dataset: read_measured(dataset, "sex", 2),
        read_listed,
    ],
)
@pytest.mark.parametrize("number", [0, 3])
def test_noisy_answers_of_an_unknown_format_are_refused(tmp_path, read, number):
    table = measurement_table(CODES, "sex", (WIDE,) * 3, OF_SEX)
    written(tmp_path / "known", MEASUREMENTS, table)
    read(Dataset.open(tmp_path / "known"))
    path = tmp_path / "unknown"
    writer = PartWriter(path, MEASUREMENTS)
    writer.write(table)
    publish(path, [writer.close()], {"format": number})
    with pytest.raises(OutputError) as caught:
        read(Dataset.open(path))
    what = "is in a format that this version does not read"
    assert str(caught.value) == f"{path}: {what}; got {number}; expected 2"


def test_equal_mechanisms_of_other_geounits_are_one_entry():
    """Two that say the same are stored once, though they are two objects."""
    twin = DiscreteGaussian(Fraction(16))
    table = measurement_table(["11", "12"], "sex", [WIDE, twin], OF_SEX[:2])
    assert table.schema == MEASUREMENTS
    assert table.column("mechanism").chunk(0).dictionary.to_pylist() == ["discrete_gaussian"]


@pytest.mark.parametrize("names", ["aabbab", "aaa", "bbb", "ba", "b", ""])
def test_rows_about_a_query_are_those_of_its_name(names):
    """In order, over the chunks of a table with dictionaries of their own."""
    chunks = [
        pa.table(
            {"query": pa.array(list(part)).dictionary_encode(), "row": range(at, at + len(part))}
        )
        for at, part in ((0, names[:4]), (4, names[4:]))
        if part
    ]
    empty = {
        "query": pa.array([], pa.string()).dictionary_encode(),
        "row": pa.array([], pa.int64()),
    }
    table = pa.concat_tables(chunks or [pa.table(empty)])
    wanted = [index for index, name in enumerate(names) if name == "a"]
    assert rows_about(table, "a").column("row").to_pylist() == wanted
