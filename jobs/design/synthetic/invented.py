"""Invented persons of any schema, for a rehearsal: independent attributes, uneven geounits.

Nothing is imitated but the form: how common a level is, and how large a geounit, is drawn from a
seed, and comes from no data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from das.arrays import FloatArray, IntArray
from das.schema import Schema
from invariants.zeros import StructuralZeros
from jobs.design.synthetic.nation import Blocks, seeded
from jobs.design.synthetic.persons import summed

PERSONS = 40  # of a leaf, on average
_LEAVES = 200  # drawn at a time
_EMPTY = 0.1  # of the leaves
_SPREAD = 0.9  # of the logarithms of their sizes
_LOCAL = 0.3  # of the logarithms of how common a level is in a batch of leaves
_RARE = 0.03  # least weight of a level before they are divided by their sum
_ATTEMPTS = 50  # to draw persons who can be


@dataclass(frozen=True, eq=False)
class Choice:
    """A column whose values are drawn.

    Attributes:
      name: Of the column.
      values: Texts to choose from, V of them.
      levels: By attribute that is read from the column, int64[V] position of the level.
    """

    name: str
    values: tuple[str, ...]
    levels: Mapping[str, IntArray]


def choices_of(schema: Schema) -> list[Choice]:
    """One column per attribute, whose values are the labels."""
    return [
        Choice(one.name, one.levels, {one.name: np.arange(one.size)}) for one in schema.attributes
    ]


@dataclass(frozen=True, eq=False)
class Persons:
    """Persons of some leaves.

    Attributes:
      geocodes: Of the leaves.
      rows: int64[n] leaf of every person, not decreasing.
      picks: By column, int64[n] position of the value.
      cells: int64[n].
    """

    geocodes: Sequence[str]
    rows: IntArray
    picks: Mapping[str, IntArray]
    cells: IntArray

    def blocks(self) -> Blocks:
        """The same as entries; there are no units."""
        entries = (self.rows, self.cells, np.ones(len(self.rows), np.int64))
        none = np.zeros((len(self.geocodes), 2), np.int64)
        summed_up = summed(entries, int(self.cells.max(initial=0)) + 1)
        return Blocks([*self.geocodes], none, none, *summed_up)


@dataclass(frozen=True, eq=False)
class Inventor:
    """Draws persons; equal ones draw the same.

    Attributes:
      schema: Numbers the cells.
      choices: Columns; every attribute is read from one of them.
      seed: Any nonnegative integers.
      mean: Persons of a leaf, on average.
      impossible: Cells in which nobody can be, or none.
    """

    schema: Schema
    choices: Sequence[Choice]
    seed: tuple[int, ...]
    mean: float = PERSONS
    impossible: StructuralZeros | None = None

    def draw_all(self, geocodes: Sequence[str]) -> Iterator[Persons]:
        """Draw the persons of all leaves, some leaves at a time."""
        for number, start in enumerate(range(0, len(geocodes), _LEAVES)):
            yield self.draw(geocodes[start : start + _LEAVES], number)

    def draw(self, geocodes: Sequence[str], number: int) -> Persons:
        """Draw the persons of a batch of leaves.

        Args:
          geocodes: Of the leaves.
          number: Of the batch; the persons depend on it, the seed and how many leaves there are.

        Law: sizes are log-normal, some 0. Values of a column are independent of each other and of
          those of other columns, given the batch; a person who cannot be is drawn again.
        """
        rng = seeded(*self.seed, 1, number)
        drawn = rng.lognormal(np.log(max(self.mean, 1e-9)) - _SPREAD**2 / 2, _SPREAD, len(geocodes))
        sizes = np.where(rng.random(len(geocodes)) < _EMPTY, 0, np.rint(drawn / (1 - _EMPTY)))
        rows = np.repeat(np.arange(len(geocodes)), sizes.astype(np.int64))
        common = [
            self._common(index) * rng.lognormal(0, _LOCAL, len(choice.values))
            for index, choice in enumerate(self.choices)
        ]
        picks = self._picks(rng, common, len(rows))
        cells = self._cells(picks)
        if self.impossible is None:
            return Persons(geocodes, rows, picks, cells)
        for _ in range(_ATTEMPTS):
            wrong = np.flatnonzero(self.impossible.holds(cells))
            if not len(wrong):
                break
            for name, chosen in self._picks(rng, common, len(wrong)).items():
                picks[name][wrong] = chosen
            cells = self._cells(picks)
        can_be = ~self.impossible.holds(cells)
        kept = {name: chosen[can_be] for name, chosen in picks.items()}
        return Persons(geocodes, rows[can_be], kept, cells[can_be])

    def _common(self, index: int) -> FloatArray:
        """float64[V]: how common the values of a column are everywhere; levels share alike."""
        choice = self.choices[index]
        rng = seeded(*self.seed, 0, index)
        levels = next(iter(choice.levels.values()))
        weights = rng.gamma(1.5, size=int(levels.max()) + 1) + _RARE
        alike = np.bincount(levels)[levels]
        return np.asarray(weights[levels] / alike, np.float64)

    def _picks(
        self, rng: np.random.Generator, common: Sequence[FloatArray], size: int
    ) -> dict[str, IntArray]:
        return {
            choice.name: rng.choice(len(weights), size, p=weights / weights.sum()).astype(np.int64)
            for choice, weights in zip(self.choices, common, strict=True)
        }

    def _cells(self, picks: Mapping[str, IntArray]) -> IntArray:
        codes = {
            attribute: levels[picks[choice.name]]
            for choice in self.choices
            for attribute, levels in choice.levels.items()
        }
        return self.schema.cells_of(codes)
