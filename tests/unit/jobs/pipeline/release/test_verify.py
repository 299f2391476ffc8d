"""The verification names the geounit that breaks a promise, wherever in a range it stands."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from das.errors import OutputError, VerificationError
from geography.lattice import Lattice
from invariants.exact import Invariant
from jobs.pipeline.config.load import load_run
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.verify import _verify_families, _verify_invariants
from jobs.pipeline.storage.answers import ANSWERS
from jobs.pipeline.storage.geography import write_geography
from jobs.pipeline.storage.histograms import SPARSE_SCHEMA
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.tasks.batches import geounit_batches
from tests.builders import toy
from tests.builders.datasets import publish_tables
from tests.builders.places import release_of

CELLS = {code: {i % 6: 1 + i % 3} for i, code in enumerate(toy.blocks()) if i % 4}


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return load_run(toy.configuration(tmp_path)).plan


@pytest.fixture
def release(tmp_path: Path, plan: Plan) -> ReleaseLayout:
    layout = release_of(tmp_path)
    write_geography(Lattice.from_leaves(plan.spine, toy.blocks()), layout)
    return layout


def write_counts(release: ReleaseLayout, plan: Plan, geolevel: str, wrong: str = "") -> None:
    """The sums of the blocks, one person more in a cell of the geounit that is wrong."""
    digits = dict(zip(plan.spine.levels, plan.spine.digits, strict=True))[geolevel]
    sums: dict[str, Counter[int]] = {}
    for code, cells in CELLS.items():
        sums.setdefault(code[:digits], Counter()).update(cells)
    if wrong:
        sums[wrong][min(sums[wrong])] += 1
    rows = [
        {"geocode": code, "cells": sorted(cells), "counts": [cells[i] for i in sorted(cells)]}
        for code, cells in sorted(sums.items())
    ]
    publish_tables(release.counts(geolevel), [pa.Table.from_pylist(rows, schema=SPARSE_SCHEMA)])


def batch(release: ReleaseLayout, plan: Plan, geolevel: str):
    (whole,) = geounit_batches(release, plan.level(geolevel), 1, 10**6)
    return whole


@pytest.mark.parametrize("place", [0, 1, -1])
def test_the_parent_that_is_not_the_sum_is_named(release, plan, place):
    above, below = plan.spine.levels[-2:]
    digits = plan.spine.digits[-2]
    parents = sorted({code[:digits] for code in CELLS})
    write_counts(release, plan, below)
    write_counts(release, plan, above, wrong=parents[place])
    with pytest.raises(VerificationError, match=rf"{above} {parents[place]}\b.*do not sum"):
        _verify_families(plan, release, batch(release, plan, below))


def test_sums_are_accepted_and_counted(release, plan):
    above, below = plan.spine.levels[-2:]
    for geolevel in (above, below):
        write_counts(release, plan, geolevel)
    families = len({code[: plan.spine.digits[-2]] for code in toy.blocks()})
    assert _verify_families(plan, release, batch(release, plan, below)) == families


def exact_totals(release: ReleaseLayout, change: int, drop: int) -> None:
    totals = [sum(CELLS.get(code, {}).values()) for code in sorted(toy.blocks())]
    totals[5] += change
    rows = [
        {"geocode": code, "query": "total", "answers": [total]}
        for code, total in zip(sorted(toy.blocks()), totals, strict=True)
    ]
    publish_tables(release.invariants("block"), [pa.Table.from_pylist(rows[drop:], schema=ANSWERS)])


@pytest.fixture
def exact_plan(plan: Plan) -> Plan:
    total = next(i.query for i in plan.invariants if i.query.name == "total")
    return replace(plan, invariants=(Invariant(total, ("block",)),))


def test_answers_of_the_counts_are_accepted(release, exact_plan):
    write_counts(release, exact_plan, "block")
    exact_totals(release, change=0, drop=0)
    whole = batch(release, exact_plan, "block")
    assert _verify_invariants(exact_plan, release, whole) == len(np.unique(toy.blocks()))


@pytest.mark.parametrize("change", [-1, 1])
def test_the_geounit_that_breaks_an_invariant_is_named(release, exact_plan, change):
    write_counts(release, exact_plan, "block")
    exact_totals(release, change, drop=0)
    wrong = sorted(toy.blocks())[5]
    with pytest.raises(VerificationError, match=rf"block {wrong}\b.*breaks the invariant total"):
        _verify_invariants(exact_plan, release, batch(release, exact_plan, "block"))


def test_an_exact_answer_that_is_missing_is_found(release, exact_plan):
    write_counts(release, exact_plan, "block")
    exact_totals(release, change=0, drop=1)
    with pytest.raises(OutputError, match="does not hold query total of every geounit"):
        _verify_invariants(exact_plan, release, batch(release, exact_plan, "block"))
