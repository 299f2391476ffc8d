"""Folders are copied, restored, moved and die at any step: one draw of a geolevel is ever readable."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jobs.pipeline.folder.draws
from das.errors import LedgerError
from das.privacy.budget import Budget
from das.queries.sensitivity import Neighbors
from jobs.pipeline.folder.draws import Draws, measure_once
from jobs.pipeline.storage.account import Reservation, make_reservations
from jobs.pipeline.storage.dataset import (
    MANIFEST,
    PartWriter,
    dataset_digest,
    is_published,
    propose,
)

BUDGET = Budget(Fraction(1), Fraction(1, 10**10), Neighbors.BOUNDED)
SCHEMA = pa.schema([("geocode", pa.string())])
PLACES = ("a", "b")
STEPS = ("begin", "propose", "record", "accept", "end")


class DiedError(Exception):
    """A driver was killed."""


class World:
    """Places for copies of one run folder, a backup of it, and one account."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root, self.account = root, root / "account"
        self.dies_before: str = ""
        self.readable: set[str] = set()
        (root / "a").mkdir()
        (root / "a" / "run.json").write_text(json.dumps({"run": "r"}))
        make_reservations(self.account, self.reservation("a"))
        for name in ("begin", "record"):
            patch.setattr(Draws, name, self.mortal(name, getattr(Draws, name)))
        patch.setattr(
            jobs.pipeline.folder.draws,
            "accept",
            self.mortal("accept", jobs.pipeline.folder.draws.accept),
        )

    def reservation(self, place: str) -> Reservation:
        return Reservation("persons", "1", BUDGET, "r", str(self.root / place), BUDGET.total)

    def dataset(self, place: str) -> Path:
        return self.root / place / "measurements"

    def mortal(self, name: str, call: Callable) -> Callable:
        def step(*arguments: object, **options: object) -> object:
            self.die(name)
            return call(*arguments, **options)

        return step

    def die(self, step: str) -> None:
        if self.dies_before == step:
            self.dies_before = ""
            raise DiedError

    def measure(self, place: str, meanwhile: Callable[[], None], *, moved: bool = False) -> None:
        """What a driver does that is started in a place, if there is a folder."""
        folder, dataset = self.root / place, self.dataset(place)
        if not folder.exists() or is_published(dataset):
            self.dies_before = ""
            return

        def draw(attempt: str) -> None:
            meanwhile()
            self.die("propose")
            writer = PartWriter(dataset, SCHEMA)
            writer.write(pa.table({"geocode": [uuid.uuid4().hex]}))
            propose(dataset, attempt, [writer.close()], {})

        draws = Draws(self.account, self.reservation(place), folder)
        try:
            measure_once(dataset, draws, "state", draw, is_recorded=lambda: False, moved=moved)
            self.die("end")
        except (DiedError, LedgerError):
            self.dies_before = ""
        finally:
            self.look()

    def look(self) -> None:
        for place in (*PLACES, "backup"):
            if (self.dataset(place) / MANIFEST).exists():
                self.readable.add(dataset_digest(self.dataset(place)))

    def put(self, source: str, target: str) -> None:
        """Copy a folder over another one."""
        if (self.root / source).exists() and source != target:
            shutil.rmtree(self.root / target, ignore_errors=True)
            shutil.copytree(self.root / source, self.root / target)

    def remove(self, place: str) -> None:
        if any((self.root / other).exists() for other in PLACES if other != place):
            shutil.rmtree(self.root / place, ignore_errors=True)


DEATHS = st.sampled_from(("", "", "", *STEPS))
MEASURE = st.tuples(st.just("measure"), st.sampled_from(PLACES), DEATHS, st.booleans())
FORK = st.tuples(
    st.just("fork"), st.sampled_from(PLACES), st.sampled_from(PLACES), DEATHS, st.booleans()
)
PUT = st.tuples(
    st.just("put"), st.sampled_from((*PLACES, "backup")), st.sampled_from((*PLACES, "backup"))
)
ACTIONS = st.one_of(
    MEASURE, MEASURE, FORK, FORK, PUT, st.tuples(st.just("remove"), st.sampled_from(PLACES))
)


def act(world: World, action: tuple, during: list[tuple]) -> None:
    match action:
        case ("measure", place, step, moved):
            world.dies_before = step

            def meanwhile() -> None:
                step = world.dies_before
                while during:
                    act(world, during.pop(), [])
                world.dies_before = step

            world.measure(place, meanwhile, moved=moved)
        case ("fork", source, target, step, moved):
            world.put(source, target)
            act(world, ("measure", target, step, moved), during)
        case ("put", source, target):
            world.put(source, target)
        case ("remove", place):
            world.remove(place)


@settings(max_examples=60)
@given(st.lists(st.tuples(ACTIONS, st.lists(ACTIONS, max_size=2)), min_size=2, max_size=6))
def test_one_draw_is_ever_readable_and_some_folder_goes_on(tmp_path_factory, actions):
    """Some actions happen while another driver is drawing."""
    with pytest.MonkeyPatch.context() as patch:
        world = World(tmp_path_factory.mktemp("world"), patch)
        for action, during in actions:
            act(world, action, list(during))
            world.look()
            assert len(world.readable) <= 1
        recorded = Draws(world.account, world.reservation("a"), world.root / "a").measured("state")
        if world.readable:
            assert recorded is not None
            assert world.readable == {recorded.sha256}
        elif recorded is None:  # nothing counts yet: who is said to go on does
            place = next(place for place in PLACES if (world.root / place).exists())
            world.measure(place, lambda: None, moved=True)
            assert len(world.readable) == 1
