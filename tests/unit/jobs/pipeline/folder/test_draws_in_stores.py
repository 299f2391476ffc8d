"""Drivers of one folder in a store that know nothing of each other: one draw is ever readable.

What is left of a driver that was asleep for so long that another one took over: both work on, step
by step in any order, and die, or lose answers, at any step.
"""

from __future__ import annotations

import uuid
from fractions import Fraction

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from das.privacy.budget import Budget
from das.queries.sensitivity import Neighbors
from jobs.pipeline.folder.draws import Draws, measure_once
from jobs.pipeline.storage.account import Reservation, make_reservations
from jobs.pipeline.storage.dataset import (
    Dataset,
    PartWriter,
    dataset_digest,
    is_published,
    propose,
    sweep,
    verify_files,
)
from jobs.pipeline.storage.place import StoredPlace
from tests.builders.places import release_of
from tests.builders.turns import GO, TURNS, in_turns, take_turns

BUDGET = Budget(Fraction(1), Fraction(1, 10**10), Neighbors.BOUNDED)
SCHEMA = pa.schema([("geocode", pa.string())])
# Runs of turns of one driver, which a list of single turns would hardly ever hold.
RUNS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 25), st.sampled_from(TURNS)), max_size=12
)


class Folder:
    """A run folder in a store, an account, and what anybody could read."""

    def __init__(self) -> None:
        self.root = StoredPlace(f"memory://{uuid.uuid4().hex}", "run")
        self.account = self.root.parent / "account.jsonl"
        self.reservation = Reservation("persons", "1", BUDGET, "r", str(self.root), BUDGET.total)
        self.readable: set[str] = set()
        make_reservations(self.account, self.reservation)

    @property
    def dataset(self) -> StoredPlace:
        return release_of(self.root).measurements("state")

    @property
    def draws(self) -> Draws:
        return Draws(self.account, self.reservation, self.root)

    def measure(self) -> None:
        """What each driver does."""
        measure_once(self.dataset, self.draws, "state", self.draw, is_recorded=lambda: False)
        self.look()

    def draw(self, attempt: str | None) -> None:
        assert attempt is not None
        parts = []
        for _ in range(2):
            writer = PartWriter(self.dataset, SCHEMA)
            writer.write(pa.table({"geocode": [uuid.uuid4().hex]}))
            parts.append(writer.close())
        propose(self.dataset, attempt, parts, {})

    def look(self) -> None:
        if is_published(self.dataset):
            self.readable.add(dataset_digest(self.dataset))
            assert Dataset.open(self.dataset).read().num_rows == 2


def spread(runs: list[tuple[int, int, str]]) -> list[tuple[int, str]]:
    """Turns: of each run all go on but the last."""
    return [
        (who, turn if step == length - 1 else GO)
        for who, length, turn in runs
        for step in range(length)
    ]


@settings(max_examples=60)
@given(RUNS)
def test_one_draw_is_ever_readable_and_nothing_recorded_is_lost(runs):
    folder = Folder()
    with in_turns():
        drivers = take_turns([folder.measure] * 3, spread(runs))
    folder.look()
    for driver in drivers:
        assert driver.error is None or not isinstance(driver.error, (KeyError, ValueError))
    assert len(folder.readable) <= 1
    recorded = folder.draws.measured("state")
    folder.measure()  # whoever goes on, alone
    assert len(folder.readable) == 1
    known = folder.draws.measured("state")
    assert known is not None
    assert recorded in (None, known)
    assert folder.readable == {known.sha256}
    sweep(folder.root / "release")
    verify_files(folder.dataset)
