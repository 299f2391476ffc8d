"""What the geounits of a range say themselves: answers read by range, as evidence for estimates.

All of it is made from noisy answers and invariants alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from das.arrays import BoolArray, IntArray, ObjectArray
from das.tree.coordinates import Coordinates
from das.tree.model import GeolevelTerms, precision
from das.tree.passes import Evidence, Moments, gather_evidence
from jobs.pipeline.plan import Plan
from jobs.pipeline.storage.answers import answers_reader, read_answers
from jobs.pipeline.storage.dataset import Dataset, RangeReader
from jobs.pipeline.storage.geography import read_geography
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.tasks.batches import Batch
from solvers.answers.sums import group_sums


@dataclass(frozen=True, eq=False)
class LevelRange:
    """Geounits of one range of a geolevel, families one after the other.

    Attributes:
      level: Position of the geolevel.
      codes: str[G] geocodes, ascending.
      parents: str[G] geocodes of their parents.
      n_children: int64[G].
      is_only: bool[G].
      chain_end: str[G], names of geolevels.
    """

    level: int
    codes: ObjectArray
    parents: ObjectArray
    n_children: IntArray
    is_only: BoolArray
    chain_end: ObjectArray

    @classmethod
    def read(cls, release: ReleaseLayout, geolevel: str, batch: Batch) -> LevelRange:
        """Read the geography of a range."""
        table = read_geography(release, geolevel, batch.low, batch.high)
        columns = {
            name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names
        }
        return cls(batch.level, *(columns[name] for name in cls._columns()))

    @staticmethod
    def _columns() -> tuple[str, ...]:
        return ("geocode", "parent", "n_children", "only_child", "chain_end")

    @property
    def starts(self) -> IntArray:
        """int64[U]: the first row of every family."""
        first = np.ones(len(self.codes), np.bool_)
        first[1:] = self.parents[1:] != self.parents[:-1]
        return np.flatnonzero(first)

    def slice(self, start: int, stop: int) -> LevelRange:
        """The rows start..stop-1."""
        return LevelRange(
            self.level,
            self.codes[start:stop],
            self.parents[start:stop],
            self.n_children[start:stop],
            self.is_only[start:stop],
            self.chain_end[start:stop],
        )

    def pieces(self, most: int) -> list[tuple[int, int]]:
        """Ranges of rows of at most so many geounits, or one family if that is larger."""
        bounds = [*self.starts.tolist(), len(self.codes)]
        out, first = [], 0
        for index in range(1, len(bounds)):
            last = index == len(bounds) - 1
            if last or bounds[index + 1] - bounds[first] > most:
                out.append((bounds[first], bounds[index]))
                first = index
        return out


@dataclass(frozen=True, eq=False)
class RangeAnswers:
    """Answers of a range.

    Attributes:
      noisy: Per measured query, integers[G', m], of the geounits that are not only children; of as
        few bytes as hold them, so sums need wider ones.
      exact: Per invariant, int64[G, m].
    """

    noisy: list[IntArray]
    exact: list[IntArray]


@dataclass(frozen=True, eq=False)
class AnswersReader:
    """Reads the answers of ranges of a geolevel that ascend, each row group once.

    Attributes:
      terms: What was asked.
      noisy: The measurements.
      exact: The invariants, if there are some.
    """

    terms: GeolevelTerms
    noisy: RangeReader
    exact: RangeReader | None

    @classmethod
    def of(cls, release: ReleaseLayout, geolevel: str, terms: GeolevelTerms) -> AnswersReader:
        """Open a geolevel.

        Raises:
          OutputError: It is not measured, or its invariants are not complete.
        """
        exact = None
        if terms.exact:
            exact = answers_reader(Dataset.open(release.invariants(geolevel)))
        return cls(terms, answers_reader(Dataset.open(release.measurements(geolevel))), exact)

    def read(self, rows: LevelRange) -> RangeAnswers:
        """Read the answers of exactly these geounits.

        Raises:
          OutputError: The measurements are not complete.
        """
        measured = rows.codes[~rows.is_only]
        noisy = read_answers(self.noisy, self.terms.measured, measured, narrow=True)
        exact: list[IntArray] = []
        if self.exact is not None:
            exact = read_answers(self.exact, self.terms.exact, rows.codes)
        return RangeAnswers(noisy, exact)


def range_evidence(
    plan: Plan, terms: GeolevelTerms, rows: LevelRange, answers: RangeAnswers
) -> Evidence:
    """What the geounits of a range that are not only children say themselves."""
    measured = ~rows.is_only
    ends = rows.chain_end[measured]
    names = sorted(set(ends), key=plan.spine.levels.index)
    position = {name: index for index, name in enumerate(names)}
    asked = {query.name for query in terms.measured}
    precisions = [
        [
            precision(noisy.mechanism)
            for noisy in plan.noise(rows.level, plan.level(name).index)
            if noisy.query.name in asked
        ]
        for name in names
    ]
    return gather_evidence(
        terms,
        noisy=answers.noisy,
        exact=[part[measured] for part in answers.exact],
        precisions=np.array(precisions).reshape(len(names), len(terms.measured)),
        kind=np.array([position[end] for end in ends], np.int64),
        add_up=group_sums,
    )


def select_moments(part: Coordinates, whole: Coordinates, moments: Moments) -> Moments:
    """Moments on fewer components."""
    return Moments(
        part.select(whole, moments.values), part.select(whole, moments.matrices), moments.kind
    )
