"""What one person costs: rows of the documents against brute force, and the line on the pages."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from das.histograms import Histograms
from jobs.pipeline.config.load import load_run
from jobs.pipeline.plan import Plan
from jobs.pipeline.report.budget import person_remark
from tests.checkout import ROOT
from tests.unit.jobs.pipeline.report.report_samples import manifest

Moved = tuple[int, int, int]  # block 0 or 1, cell, and how many records more there


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    """Persons and dwellings of the ready run file."""
    products = load_run(ROOT / "conf" / "run" / "residents.yaml").products
    return {name: product.plan for name, product in products.items()}


def cost(plan: Plan, moved: list[Moved]) -> Fraction:
    """zCDP cost of a change, by the shifts of all answers and the variance of their noise.

    The blocks lie in different geounits of every geolevel below the root, and none is an only child.
    """
    total, size = Fraction(0), plan.schema.size
    for level in range(len(plan.levels)):
        for noisy in plan.noise(level, level):
            for block in (0, 1) if level else (None,):
                shift = np.zeros(size, np.int64)
                for where, cell, number in moved:
                    if block in (None, where):
                        shift[cell] += number
                cells = np.flatnonzero(shift)
                sides = [np.maximum(sign * shift[cells], 0) for sign in (1, -1)]
                geounits = np.zeros(len(cells), np.int64)
                more, fewer = (
                    np.asarray(
                        noisy.query.answer(Histograms.from_entries(size, 1, geounits, cells, side))
                    ).astype(int)
                    for side in sides
                )
                total += Fraction(int(((more - fewer) ** 2).sum())) / (
                    2 * noisy.mechanism.parameter
                )
    return total


def cell(plan: Plan, **levels: str) -> int:
    """Number of the cell of some levels; the first level of every other attribute."""
    attributes = plan.schema.attributes
    digits = [list(a.levels).index(levels.get(a.name, a.levels[0])) for a in attributes]
    return int(np.ravel_multi_index(digits, [len(a.levels) for a in attributes]))


class Row(NamedTuple):
    """A row of the documents: records of persons and units that change, and factors of rho."""

    records: tuple[int, int]
    factors: tuple[int, int]


def documented() -> dict[str, Row]:
    """Return the rows of "What a change costs" by the change."""
    text = (ROOT / "docs" / "between.md").read_text(encoding="utf-8")
    rows = {}
    for line in text.partition("## What a change costs")[2].partition("\n\nThis is")[0].split("\n"):
        found = re.fullmatch(r"\| (.+) \| (\d), (\d)\b.* \| (.+) \|", line)
        if found:
            change, *records, cost = found.groups()
            factors = {name: int(n or 1) for n, name in re.findall(r"(\d*) ?(rho_[pd])", cost)}
            both = (factors.get("rho_p", 0), factors.get("rho_d", 0))
            rows[change] = Row((int(records[0]), int(records[1])), both)
    return rows


def test_a_householder_who_moves_changes_two_persons_and_two_dwellings(plans):
    """Somebody who stays becomes householder: more than rho_p, at most 4 rho_p + 4 rho_d."""
    persons, dwellings = plans["persons"], plans["dwellings"]
    rho_p, rho_d = persons.budget.total, dwellings.budget.total
    by = {a.name: a.levels for a in persons.schema.attributes}
    race, age = by["ethnicity_race"], by["votingage"]

    def person(residence: str, *, is_heir: bool) -> int:
        says = {"ethnicity_race": race[is_heir], "votingage": age[-1 - is_heir]}
        return cell(persons, residence=residence, **says)

    householder, other = "householder", "other_in_household"
    member = [(0, person(other, is_heir=False), -1), (1, person(other, is_heir=False), 1)]
    mover = [(0, person(householder, is_heir=False), -1), (1, person(other, is_heir=False), 1)]
    heir = [(0, person(other, is_heir=True), -1), (0, person(householder, is_heir=True), 1)]
    name = dwellings.schema.attributes[0].name
    sizes = [cell(dwellings, **{name: f"{n}"}) for n in ("1_person", "2_persons", "3_persons")]
    both = [(0, sizes[1], -1), (0, sizes[0], 1), (1, sizes[1], -1), (1, sizes[2], 1)]

    rows = documented()
    of_member = rows["a member, not the householder, moves from one household to another"]
    of_mover = rows[
        "a householder moves to another household, and somebody who stays becomes householder"
    ]
    for stated in rows.values():
        assert stated.factors == tuple(records**2 for records in stated.records)
    assert cost(persons, member) <= of_member.factors[0] * rho_p
    assert rho_p < cost(persons, [*mover, *heir]) <= of_mover.factors[0] * rho_p
    assert rho_d < cost(dwellings, both) <= of_mover.factors[1] * rho_d
    assert of_member.factors[1] == of_mover.factors[1]
    assert cost(dwellings, both[:2]) <= rho_d


def test_pages_of_other_records_than_persons_say_what_a_person_costs():
    sample = manifest()
    assert person_remark(replace(sample, records="persons")) == ""
    two = 4 * Fraction(sample.statements[0].total)
    line = person_remark(replace(sample, records="households"))
    assert f"changes two: \N{GREEK SMALL LETTER RHO} = {two} of this product" in line
    assert "nothing is promised beyond" in line
