from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from das.errors import SchemaError
from das.metrics.accuracy import pack, summarize, summarize_query, unpack
from das.metrics.statistics import describe, moments, quantile
from das.queries.query import parse_query
from das.schema import Attribute, Schema
from tests.builders.histograms import from_dense

SCHEMA = Schema("toy", (Attribute("sex", ("f", "m")),))


def arrays(*values):
    return tuple(np.array(v, np.int64) for v in values)


def test_a_worked_example():
    truth, released = arrays([[0, 5], [1, 0]], [[2, 4], [0, 0]])
    found = describe(summarize(["a", "b"], truth.sum(1), truth, released))
    assert (found["answers"], found["persons"], found["geounits"]) == (4, 6, 2)
    assert (found["mae"], found["bias"], found["max"], found["exact"]) == (1.0, 0.0, 2, 0.25)
    assert (found["l1"], found["tvd"]) == (4, pytest.approx(4 / 12))
    assert (found["appeared"], found["vanished"], found["live"]) == (1, 1, 3)
    assert found["rmse"] == pytest.approx(np.sqrt(6 / 4))
    assert [c["geocode"] for c in found["most_changed"]] == ["a", "b"]
    assert found["most_changed"][1] == {"geocode": "b", "l1": 1, "persons": 1, "net": -1}


def test_keys_unpack_to_what_was_packed():
    errors, sizes, trues = arrays([-3, 0, 7, -1], [5, 0, 2, 1], [6, 0, 3, 1])
    truth, released = arrays([[0]], [[0]])
    summary = summarize(["a"], truth[0], truth, released)
    keys = np.sort(pack(errors, sizes, trues))
    copy = type(summary)(summary.geounits, 0, keys, np.ones(4, np.int64), 0, 0, ())
    found = np.stack(unpack(copy.keys))
    order = np.argsort(pack(errors, sizes, trues))
    assert np.array_equal(found, np.stack((errors, sizes, trues))[:, order])


def test_huge_errors_do_not_overflow():
    errors, counts = arrays([4 * 10**9, -4 * 10**9], [10**9, 10**9])
    found = moments(errors, counts)
    assert found.squared == 2 * 16 * 10**27
    assert found.means()["rmse"] == 4e9


@pytest.mark.parametrize(
    ("share", "expected"), [(Fraction(1, 4), 0), (Fraction(26, 100), 3), (Fraction(1), 9)]
)
def test_quantile_is_the_least_value_that_covers_the_share(share, expected):
    errors, counts = arrays([-9, 0, 3], [1, 1, 2])
    assert quantile(errors, counts, share) == expected


def test_no_geounits_have_no_statistics():
    none = np.zeros((0, 2), np.int64)
    found = describe(summarize([], none.sum(1), none, none))
    assert found["answers"] == 0
    assert found["mae"] is found["q50"] is found["tvd"] is None
    assert found["distribution"] == []


def test_answers_that_do_not_fit_are_refused():
    truth, released = arrays([[1, 2]], [[1]])
    with pytest.raises(SchemaError, match=r"shapes \(1, 2\) and \(1, 1\)"):
        summarize(["a"], truth.sum(1), truth, released)


def test_histograms_of_different_geounits_are_refused():
    one = from_dense(np.ones((1, 2), np.int64))
    two = from_dense(np.ones((2, 2), np.int64))
    with pytest.raises(SchemaError, match="different geounits"):
        summarize_query(parse_query(SCHEMA, "sex"), ["a"], one, two)


def test_histograms_of_another_schema_are_refused():
    wide = from_dense(np.ones((1, 3), np.int64))
    with pytest.raises(SchemaError, match="another schema"):
        summarize_query(parse_query(SCHEMA, "sex"), ["a"], wide, wide)
