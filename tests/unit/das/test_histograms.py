"""Histograms: a compressed form of a dense table, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import SchemaError
from das.histograms import Histograms
from tests.builders.histograms import from_dense


def make(offsets=(0, 2, 2, 3), cells=(0, 3, 1), counts=(5, 1, 2), n_cells=4):
    return Histograms(n_cells, np.array(offsets), np.array(cells), np.array(counts))


def test_a_small_example_by_hand():
    histograms = make()
    assert histograms.n_geounits == 3
    assert histograms.owners().tolist() == [0, 0, 2]
    assert histograms.totals().tolist() == [6, 0, 2]
    assert histograms.dense().tolist() == [[5, 0, 0, 1], [0, 0, 0, 0], [0, 2, 0, 0]]
    assert histograms.slice(1, 3).dense().tolist() == [[0, 0, 0, 0], [0, 2, 0, 0]]
    assert histograms.slice(1, 1).n_geounits == 0
    for start, stop in ((0, 3), (1, 3), (2, 2)):
        part = histograms.slice(start, stop)
        arrays = part.offsets, part.cells, part.counts
        assert not any(array.flags.writeable for array in arrays)
        Histograms(part.n_cells, *arrays)  # keeps the rules, which are not checked again


def test_a_cell_may_fall_where_a_geounit_begins():
    assert make((0, 1, 2), (3, 0), (1, 1)).dense().tolist() == [[0, 0, 0, 1], [1, 0, 0, 0]]
    assert make((0, 1, 1, 2), (3, 3), (1, 1)).totals().tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offsets": ()}, "offsets do not span the entries"),
        ({"offsets": (1, 2, 3)}, "offsets do not span the entries"),
        ({"offsets": (0, 2, 4)}, "offsets do not span the entries"),
        ({"counts": (5, 1)}, "cells and counts differ in length"),
        ({"cells": (-1, 3, 1)}, "a cell is outside 0..3"),
        ({"cells": (0, 4, 1)}, "a cell is outside 0..3"),
        ({"counts": (5, 0, 2)}, "a stored count is not positive"),
        ({"counts": (5, -1, 2)}, "a stored count is not positive"),
        ({"cells": (3, 0, 1)}, "cells do not increase within a geounit"),
        ({"cells": (3, 3, 1)}, "cells do not increase within a geounit"),
    ],
)
def test_arrays_that_break_a_rule_are_refused(changes, message):
    with pytest.raises(SchemaError) as caught:
        make(**changes)
    assert str(caught.value) == f"histograms: {message}"


def test_arrays_cannot_be_written_through_the_value():
    histograms = make()
    for array in (histograms.offsets, histograms.cells, histograms.counts):
        assert array.dtype == np.int64
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9


def test_no_geounits_and_no_entries():
    empty = Histograms.from_entries(4, 0, *[np.zeros(0, np.int64)] * 3)
    assert (empty.n_geounits, empty.dense().shape) == (0, (0, 4))
    assert from_dense(np.zeros((2, 3), np.int64)).totals().tolist() == [0, 0]


def test_entries_that_cancel_are_dropped():
    one = np.zeros(2, np.int64)
    histograms = Histograms.from_entries(1, 1, one, one, np.array([3, -3]))
    assert len(histograms.cells) == 0


def test_offsets_that_fall_are_refused():
    with pytest.raises(SchemaError):
        make((0, 3, 1, 3), (0, 1, 2), (1, 1, 1))


@pytest.mark.parametrize("name", ["offsets", "cells", "counts"])
def test_fractions_are_refused(name):
    values = {"offsets": (0, 2.5, 2.5, 3), "cells": (0, 3.5, 1), "counts": (5, 1.5, 2)}
    with pytest.raises(SchemaError):
        make(**{name: values[name]})
