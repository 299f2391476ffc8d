"""Data that break an invariant, and invariants that contradict each other, stop the run by name."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from das.errors import DasError, InfeasibleError, InputError
from invariants.constraints import Constraints
from invariants.facilities import Facilities
from invariants.linear import LinearRow
from jobs.pipeline.confidential.check import check_input
from jobs.pipeline.config.models.kinds.facilities import FacilitiesConfig
from jobs.pipeline.config.models.kinds.query import InvariantConfig
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.implied import publish_given_counts
from tests.builders import two_families as two

AGES = Facilities(
    two.query("age"), two.SPINE.levels, np.array([1, 1]), np.array([9, 9]), np.array([True] * 2)
)
FITTING = ("111,1,0", "112,0,1", "122,1,1")


def facilities(folder: Path, rows=FITTING) -> FacilitiesConfig:
    (folder / "f.csv").write_text("\n".join(["geocode,minor,adult", *rows]) + "\n")
    columns = {"minor": "minor", "adult": "adult"}
    table = {"path": str(folder / "f.csv"), "columns": columns}
    return FacilitiesConfig(facilities="age", geolevel="block", table=table)


def sexes(folder: Path, *rows: str) -> InvariantConfig:
    (folder / "sex.csv").write_text("\n".join(["geocode,f,m", *rows]) + "\n")
    table = {"path": str(folder / "sex.csv"), "columns": {"f": "f", "m": "m"}}
    return InvariantConfig(query="sex", geolevel="county", table=table)


def check(folder: Path, plan: Plan, *stated, blocks=two.BLOCKS) -> None:
    release, confidential = two.release(folder), two.confidential(folder, blocks)
    publish_given_counts(plan, stated, release, {})
    check_input(plan, stated, release, confidential, two.TASKS)


def refused(folder: Path, plan: Plan, *stated, blocks=two.BLOCKS) -> DasError:
    with pytest.raises(DasError) as caught:
        check(folder, plan, *stated, blocks=blocks)
    geocode = r"\b(block|county|state) \d+"
    assert not re.search(r"\d", re.sub(geocode, "", str(caught.value)))
    return caught.value


def test_data_that_keep_everything_pass(tmp_path):
    row = LinearRow("men", np.array([0, 0, 1, 1]), two.SPINE.levels, 0, 4)
    plan = two.plan(limits=Constraints((AGES, row)), invariants=(two.exact("sex", "county"),))
    check(tmp_path, plan, facilities(tmp_path), sexes(tmp_path, "11,4,2", "12,3,4"))


def test_a_person_in_a_structural_zero(tmp_path):
    error = refused(tmp_path, two.plan(limits=Constraints((two.zeros(1, 2),))))
    assert isinstance(error, InputError)
    assert (error.where, error.got) == ("block 111", "structural zeros")


def test_the_first_geounit_that_breaks_an_invariant_is_named(tmp_path):
    """In the second family; a block of the first one has facilities to spare."""
    plan = two.plan(limits=Constraints((AGES,)))
    error = refused(tmp_path, plan, facilities(tmp_path, ("111,1,0", "112,0,1", "122,1,0")))
    assert isinstance(error, InputError)
    assert (error.where, error.got) == ("block 122", "facilities age")


@pytest.mark.parametrize(("least", "most"), [(None, 3), (1, None)])
def test_a_row_beyond_its_bounds(tmp_path, least, most):
    row = LinearRow("men", np.array([0, 0, 1, 1]), two.SPINE.levels, least, most)
    error = refused(tmp_path, two.plan(limits=Constraints((row,))))
    wrong = "block 122" if least is None else "block 112"
    assert (error.where, error.got) == (wrong, "row men")


def test_a_table_that_the_data_do_not_answer(tmp_path):
    plan = two.plan(invariants=(two.exact("sex", "county"),))
    error = refused(tmp_path, plan, sexes(tmp_path, "11,4,2", "12,4,3"))
    assert isinstance(error, InputError)
    assert (error.where, error.got) == ("county 12", "table of sex")


def test_invariants_that_contradict_each_other_are_told_from_wrong_data(tmp_path):
    """A block with exactly one person cannot hold two facilities of one person at least."""
    plan = two.plan(limits=Constraints((AGES,)), invariants=(two.exact("total", "block"),))
    blocks = {**two.BLOCKS, "111": (1, 0, 0, 0)}
    stated = facilities(tmp_path, ("111,1,1", "112,0,1", "122,1,1"))
    error = refused(tmp_path, plan, stated, blocks=blocks)
    assert isinstance(error, InfeasibleError)
    assert error.where == "block 111"
    assert error.got == "total and facilities age: minor and facilities age: adult"


def test_the_check_comes_before_anything_is_measured_or_published(tmp_path):
    plan = two.plan(limits=Constraints((two.zeros(1),)), invariants=(two.exact("total", "block"),))
    refused(tmp_path, plan)
    assert {path.name for path in (tmp_path / "release").iterdir()} == {"geography"}
