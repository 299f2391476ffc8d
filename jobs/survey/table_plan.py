"""Tables of a survey run that keep exact marginals: what they promise and cost; opens no data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from das.arrays import IntArray
from das.definition import Definition
from das.mechanisms.conditional import margin_rows, most_steps, refuse_large
from das.privacy.conditioning import calibrated, conditioned, gamma_of
from das.privacy.cost import Pure
from das.queries.sensitivity import Neighbors
from jobs.survey.checks import check_each, require
from jobs.survey.models import SurveyConfig, TableConfig, attributes_of

CHANGED = 2  # counts that a changed record changes, by 1 each
_MOST_CELLS = 1 << 8
_MOST_EXACT = 3


@dataclass(frozen=True)
class Conditioning:
    """What fixes the noise of a table, and what it is proved to cost.

    Attributes:
      scale: Of two-sided geometric noise on every count, exact.
      records: k, in how many records two data sets differ that are compared.
    """

    scale: Fraction
    records: int

    @property
    def gamma(self) -> Fraction:
        """Of the theorem: counts are not negative, so the largest."""
        return gamma_of(has_limits=True)

    @property
    def noise(self) -> Pure:
        """What the noise costs that is conditioned, for one changed record."""
        return Pure(CHANGED / self.scale)

    @property
    def cost(self) -> Pure:
        """(1 + gamma) k epsilon."""
        return conditioned(self.noise, self.records, self.gamma)

    @classmethod
    def of(cls, cost: Fraction, records: int) -> Conditioning:
        """Return the one that is proved to cost so much, exact."""
        return cls(CHANGED / calibrated(Pure(cost), records).epsilon, records)


TOTAL = "total"
"""What the marginal of no attributes is called: the number of records."""


@dataclass(frozen=True, eq=False)
class TablePlan:
    """A table.

    Attributes:
      config: What the run file says.
      shape: Number of levels of each attribute.
      exact: The marginals that are kept, as positions of attributes; () is the number of records.
      cost: Its part of the budget.
    """

    config: TableConfig
    shape: tuple[int, ...]
    exact: tuple[tuple[int, ...], ...]
    cost: Fraction

    @property
    def name(self) -> str:
        """What it is called."""
        return self.config.label

    @property
    def exact_names(self) -> tuple[str, ...]:
        """Names of the exact marginals."""
        attributes = self.config.attributes
        return tuple(" * ".join(attributes[axis] for axis in axes) or TOTAL for axes in self.exact)

    @property
    def conditioning(self) -> Conditioning:
        """Its noise."""
        return Conditioning.of(self.cost, compared_records(self.exact, len(self.shape)))

    def margins(self) -> tuple[IntArray, ...]:
        """Of each exact marginal, int64[n]: in which of its values each cell counts."""
        return tuple(margin_of(self.shape, axes) for axes in self.exact)

    @cached_property
    def rows(self) -> IntArray:
        """int64[m, n]: the sums that are kept, in the order in which they are drawn fastest."""
        return margin_rows(self.margins())

    def exact_counts(self, counts: IntArray) -> tuple[IntArray, ...]:
        """The exact marginals of a table with cells int64[n], each int64[values]."""
        return tuple(
            np.bincount(label, counts, minlength=label.max() + 1).astype(np.int64)
            for label in self.margins()
        )


def margin_of(shape: Sequence[int], axes: Sequence[int]) -> IntArray:
    """int64[n]: the value of a marginal in which each cell of a table counts."""
    cells = np.indices(tuple(shape)).reshape(len(shape), -1)
    out = np.zeros(cells.shape[1], np.int64)
    for axis in axes:
        out = out * shape[axis] + cells[axis]
    return out


def compared_records(exact: Sequence[Sequence[int]], n_attributes: int) -> int:
    """Return k: how many records two data sets may differ in, of which something is promised.

    Without exact marginals it is 1, a changed record. With them a record cannot change everything
    alone: 2 are a record that changes what no exact marginal counts, and two that exchange what one
    does count.
    If all marginals of s - 1 among s attributes are exact and that of all s is not, tables that
    agree on them differ in 2^s counts at least (the move (+1, -1) in each of s attributes), which
    are 2^(s - 1) records.
    """
    if not any(exact):
        return 1
    kept = [set(axes) for axes in exact]
    free = [
        set(axes)
        for order in range(1, n_attributes + 1)
        for axes in itertools.combinations(range(n_attributes), order)
        if not any(set(axes) <= one for one in kept)
    ]
    least = [len(one) for one in free if not any(other < one for other in free)]
    return max(2, 1 << (max(least) - 1))


def table_plan(config: TableConfig, run: SurveyConfig, budget: Fraction) -> TablePlan:
    """Check a table against public numbers, so that nothing fails once its grant is claimed.

    Args:
      config: What the run file says.
      run: The run file.
      budget: What all parts cost together.

    Raises:
      ConfigError: It names what is not there, or its promise would be empty.
      BudgetError: It is too large to be drawn exactly.
    """
    _check_promise(run)
    check_each(config.attributes, run.data.columns, "table")
    shape = tuple(len(run.data.columns[name].levels) for name in config.attributes)
    n_cells, most = math.prod(shape), f"at most {_MOST_CELLS}"
    require(n_cells <= _MOST_CELLS, "table", "has too many cells", n_cells, most)
    exact = _exact(config)
    cost, records = budget * config.share, run.data.records
    plans = [TablePlan(config, shape, order, cost) for order in itertools.permutations(exact)]
    plan = min(plans, key=lambda one: most_steps(one.margins(), records))
    refuse_large(plan.margins(), records, plan.conditioning.scale)
    return plan


def _check_promise(run: SurveyConfig) -> None:
    definition, neighbors = run.privacy.definition, run.privacy.neighbors
    what = (
        "conditioned keeps no promise of zCDP: the chance that noise keeps the exact marginals may "
        "depend on the data without limit"
    )
    got = f"definition {definition}"
    require(definition is Definition.PURE, "method", what, got, "definition pure")
    what = "conditioned keeps the number of records, which unbounded neighbors are to protect"
    got = f"neighbors {neighbors}"
    require(neighbors is Neighbors.BOUNDED, "method", what, got, "neighbors bounded")


def _exact(config: TableConfig) -> tuple[tuple[int, ...], ...]:
    """The exact marginals as positions of attributes of the table, in its order."""
    position = {name: index for index, name in enumerate(config.attributes)}
    found: list[tuple[int, ...]] = []
    for text in config.exact:
        names = attributes_of(text)
        what = f"names what is not in the table {config.table}"
        require({*names} <= {*position}, "exact", what, text)
        what = "is the whole table: nothing of it would be protected"
        require({*names} != {*position}, "exact", what, text)
        found.append(tuple(sorted({position[name] for name in names})))
    for one, other in itertools.permutations(found, 2):
        is_new, what = not {*one} <= {*other}, "says a marginal that another one implies"
        require(is_new, "exact", what, config.exact)
    n_exact = len(found)
    require(n_exact <= _MOST_EXACT, "exact", "has too many marginals", n_exact, _MOST_EXACT)
    return tuple(found) or ((),)
