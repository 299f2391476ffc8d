"""Results of tasks as text: all that tasks give comes back equal, and nothing else is built."""

from __future__ import annotations

import json
import pickle
from enum import Enum
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from das.errors import InfeasibleError, RuntimeSetupError
from jobs.pipeline.documents.statistics import SlowNode
from jobs.pipeline.tasks.connect import decode, encode
from jobs.pipeline.tasks.resources import Reading
from jobs.pipeline.tasks.step import Failure

_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.fractions()
    | st.builds(SlowNode, geocode=st.text(), residual=st.floats(0, 1), seconds=st.floats(0, 1))
)
_VALUES = st.recursive(
    _LEAVES,
    lambda own: (
        st.lists(own)
        | st.lists(own).map(tuple)
        | st.dictionaries(st.text() | st.tuples(st.integers(), st.text()), own)
        | st.frozensets(st.integers() | st.text(), max_size=1)
    ),
)


@given(_VALUES)
def test_values_come_back_equal(value: object) -> None:
    again = decode(encode(value))
    assert again == value
    assert repr(again) == repr(value)  # -0.0 and kinds too


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3).T,
        np.array([], np.float64),
        np.array([True, False]),
        np.array(["a", "bcd"]),
        np.array([np.nan, -0.0, np.inf]),
        np.array(5, np.uint8),
    ],
)
def test_arrays_come_back_equal(array: np.ndarray) -> None:
    again = decode(encode(array))
    assert again.dtype == array.dtype
    np.testing.assert_array_equal(again, array)
    assert again.flags.writeable
    assert isinstance(decode(encode(np.float32(0.1))), np.float32)


def test_failures_keep_their_facts() -> None:
    error = InfeasibleError("node 1", "has no solution", got=3, remedy="add a cell")
    again = decode(encode(Failure(error))).error
    assert type(again) is InfeasibleError
    assert str(again) == str(error)
    assert type(decode(encode(Reading(1.0, 2.0)))) is Reading


class _Stranger(Enum):
    A = 1


@pytest.mark.parametrize(
    "value", [object(), print, _Stranger.A, np.array([object()]), lambda: 1, 1j, Path]
)
def test_other_values_are_given_by_no_task(value: object) -> None:
    with pytest.raises(TypeError, match="tasks give no"):
        encode([value])


ran: list[str] = []


class _Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return (ran.append, ("code of the server",))


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(_Evil()),
        b"{}[",
        b'["unknown", 1]',
        b'["data", "os", "system", "id"]',
        b'["data", "subprocess", "Popen", ["list", "id"]]',
        b'["data", "jobs.pipeline.tasks.step", "outcome_of"]',
        b'["data", "jobs.pipeline.tasks.step", "Failure", 1, 2]',
        b'["data", "jobs.pipeline.tasks.connect", "Fraction", 1, 2]',
        b'["error", "jobs.pipeline.tasks.step", "Failure", "a", "b", {}]',
        b'["error", "das.errors", "DasError.__init__", "a", "b", {}]',
        b'["member", "jobs.pipeline.tasks.step", "Failure", "A"]',
        b'["named", "builtins", "tuple", 1]',
        b'["array", "|O", [1], "AAAAAAAAAAA="]',
        b'["array", "<i8", [-1, -1], "AAAAAAAAAAA="]',
        b'["scalar"]',
        b"[]",
        json.dumps(["list"]).encode()[:-1] + b", " + b"[" * 100_000,
        "\ud800".encode("utf-8", "surrogatepass"),
    ],
)
def test_what_a_server_makes_up_is_refused_and_nothing_runs(content: bytes) -> None:
    with pytest.raises(RuntimeSetupError, match="cannot be decoded as the result of a task"):
        decode(content)
    assert ran == []


def test_fractions_are_exact() -> None:
    assert decode(encode({(1, "a"): Fraction(1, 3)})) == {(1, "a"): Fraction(1, 3)}
