"""A slice of the fuzzer: the same cases in every run, and more of them in the long tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.fuzz import FUZZER, MAKERS, try_case


def test_a_slice_has_no_traceback_and_no_hang_and_loses_nothing(tmp_path: Path) -> None:
    tried = [try_case(2030, index, tmp_path) for index in range(90)]
    assert [one for one in tried if one.outcome in FUZZER.failures] == []
    outcomes = {(one.case, one.outcome) for one in tried}
    for case in MAKERS:
        assert (case, "named_error") in outcomes  # the cases are hostile
    assert sum(one.outcome == "accepted" for one in tried) > 10  # and near to what is legal
    assert {("survey", "accepted"), ("dirty", "accepted")} <= outcomes


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [101, 102, 103])
def test_many_cases(seed: int) -> None:
    tried = FUZZER.supervise(seed, range(600))
    assert [one for one in tried if one.outcome in FUZZER.failures] == []


def test_a_case_is_a_function_of_seed_and_number(tmp_path: Path) -> None:
    first, again = (try_case(7, 3, tmp_path / name) for name in "ab")
    assert (first.note, first.outcome) == (again.note, again.outcome)
