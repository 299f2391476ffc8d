"""Invented persons of any schema, for a rehearsal: independent attributes, uneven geounits.

Frequencies of levels and sizes of geounits are drawn from a seed and depend on no data.
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

# Defaults, not measured: a rehearsal needs plausible sizes only.
PERSONS = 40  # mean persons of a leaf
_LEAVES = 200  # leaves per batch
_EMPTY = 0.1  # share of empty leaves
_SPREAD = 0.9  # standard deviation of the logarithm of sizes
_LOCAL = 0.3  # standard deviation of the logarithm of frequencies between batches
_RARE = 0.03  # least weight of a level, before normalization
_ATTEMPTS = 50  # attempts to replace impossible persons


@dataclass(frozen=True, eq=False)
class Choice:
    """Column whose values are drawn.

    Attributes:
      name: Name of the column.
      values: The V texts to choose from.
      levels: Attribute to int64[V], index of its level for each value.
    """

    name: str
    values: tuple[str, ...]
    levels: Mapping[str, IntArray]


def choices_of(schema: Schema) -> list[Choice]:
    """Return one column per attribute, whose values are the labels."""
    return [Choice(a.name, a.levels, {a.name: np.arange(a.size)}) for a in schema.attributes]


@dataclass(frozen=True, eq=False)
class Persons:
    """Persons of some leaves.

    Attributes:
      geocodes: Geocodes of the leaves.
      rows: int64[n], leaf of every person, not decreasing.
      picks: Column to int64[n], index of the value.
      cells: int64[n], cell of every person.
    """

    geocodes: Sequence[str]
    rows: IntArray
    picks: Mapping[str, IntArray]
    cells: IntArray

    def blocks(self) -> Blocks:
        """Return the persons as entries of blocks without units."""
        entries = (self.rows, self.cells, np.ones(len(self.rows), np.int64))
        none = np.zeros((len(self.geocodes), 2), np.int64)
        summed_up = summed(entries, int(self.cells.max(initial=0)) + 1)
        return Blocks([*self.geocodes], none, none, *summed_up)


@dataclass(frozen=True, eq=False)
class Inventor:
    """Generator of persons; equal generators draw equal persons.

    Attributes:
      schema: Schema of the persons.
      choices: Columns; every attribute is read from one of them.
      seed: Any nonnegative integers.
      mean: Mean persons of a leaf.
      impossible: Structural zeros; None for none.
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
          geocodes: Geocodes of the leaves.
          number: Number of the batch; persons depend on it, the seed and the number of leaves.

        Law: sizes are log-normal, some 0. Given the batch, all values are independent; impossible
          persons are drawn again.
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
        """Draw float64[values], frequencies of the values of a column; equal within a level."""
        choice = self.choices[index]
        rng = seeded(*self.seed, 0, index)
        levels = next(iter(choice.levels.values()))
        weights = rng.gamma(1.5, size=int(levels.max()) + 1) + _RARE
        n_values = np.bincount(levels)[levels]
        return np.asarray(weights[levels] / n_values, np.float64)

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
