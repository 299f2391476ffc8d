"""Plan: everything that is public before data is read. Geounits, noise classes, batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from das.change_costs import Chain, change_costs
from das.errors import ConfigError
from das.privacy.budget import Budget
from das.privacy.ledger import Ledger, LedgerEntry
from das.privacy.semantics import ChangeCosts, touched_attributes
from das.queries.query import Query
from das.schema import Schema
from das.strategy import NoisyQuery, Strategy, noisy_queries
from das.tree.model import GeolevelTerms, spine_terms
from geography.lattice import Lattice, Spine
from invariants.constraints import Limits
from invariants.exact import Invariant, invariants_at
from invariants.linear import LinearRow
from jobs.storage.dataset import Dataset, PartWriter, is_published, publish
from jobs.storage.layout import ReleaseLayout

_GEOGRAPHY = pa.schema(
    [
        ("geocode", pa.string()),
        ("parent", pa.string()),
        ("n_children", pa.int64()),
        ("only_child", pa.bool_()),
        ("chain_end", pa.string()),
    ]
)
_ROWS = 200_000  # geounits per Arrow table when writing the geography


@dataclass(frozen=True)
class Solving:
    """How noisy answers become counts.

    Attributes:
      tolerance: Largest accepted residual of a node.
      targets: Whether a geounit is fitted to the estimate from its whole subtree, "full", or from
        its own geolevel, "own".
      learned_prior: Geolevels whose cells are fitted to posterior means.
      order: Least-squares passes of geolevels, as names of measured queries.
      method: What the continuous stage minimises, a `solvers.objectives.methods.Method`.
      least_squares: A `solvers.backends.registry.LeastSquaresSolver`.
      integers: A `solvers.backends.registry.IntegerSolver`.
      failsafe: Whether a parent may be moved where its children cannot keep their promises.
    """

    tolerance: float = 1e-7
    targets: str = "full"
    learned_prior: tuple[str, ...] = ()
    order: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    method: str = "nnls"
    least_squares: str = "structured"
    integers: str = "highs"
    failsafe: bool = True


@dataclass(frozen=True, eq=False)
class Plan:
    """What the stages after reading need; no path to confidential data.

    Attributes:
      schema: Attributes and cells.
      spine: Geolevels.
      strategy: Measured queries.
      budget: What every root-to-leaf path may cost.
      invariants: Exact queries.
      passes: Rounding passes, each a tuple of nested queries.
      solving: How noisy answers become counts.
      not_for_release: Whether noise is seeded.
      digest: Digest of what fixes the measurements.
      limits: Invariants other than exact queries.
      lazy: Names of the queries that are drawn only where the parent has persons.
      solve_digest: Digest of how counts are made, which may change after measuring.
    """

    schema: Schema
    spine: Spine
    strategy: Strategy
    budget: Budget
    invariants: tuple[Invariant, ...]
    passes: tuple[tuple[Query, ...], ...]
    solving: Solving
    not_for_release: bool
    digest: str
    limits: Limits = field(default_factory=Limits)
    lazy: frozenset[str] = frozenset()
    solve_digest: str = ""

    def exact_at(self, geolevel: str) -> list[Query | LinearRow]:
        """All whose answers are published exactly at a geolevel, queries coarse before fine."""
        queries = [invariant.query for invariant in invariants_at(self.invariants, geolevel)]
        return [*queries, *self.limits.exact_rows_at(geolevel)]

    @property
    def randomness(self) -> str:
        """Where noise comes from, as the configuration calls it."""
        return "seeded_not_for_release" if self.not_for_release else "operating_system"

    def lazy_at(self, level: int) -> list[Query]:
        """The queries of a geolevel that are drawn only where the parent has persons."""
        queries = [entry.query for entry in self.strategy.levels[level].queries]
        return [query for query in queries if level and query.name in self.lazy]

    def noise(self, first: int, last: int) -> tuple[NoisyQuery, ...]:
        """Queries and exact noise of geounits whose chain spans geolevels first..last."""
        return noisy_queries(self.strategy, self.budget, first, last)

    def change_costs(self, first: str, last: str) -> ChangeCosts:
        """What changing one record costs by the measurements of a chain, named by its geolevels."""
        levels = self.spine.levels
        chain = Chain(levels.index(first), levels.index(last), (first, last))
        names = [attribute.name for attribute in self.schema.attributes]
        return change_costs(self.strategy, self.budget, names, chain)


def plan_terms(plan: Plan) -> tuple[GeolevelTerms, ...]:
    """Queries of every geolevel as small matrices.

    Raises:
      SchemaError: The measured queries group the levels in too many ways.
    """
    return spine_terms(
        [[entry.query for entry in level.queries] for level in plan.strategy.levels],
        [
            [invariant.query for invariant in invariants_at(plan.invariants, name)]
            for name in plan.spine.levels
        ],
    )


def exact_query(plans: Mapping[str, Plan], product: str, name: str, geolevel: str) -> Query:
    """The query of a product that is published exactly at a geolevel.

    Args:
      plans: The plans of the products that come before the one that asks.
      product: Name of the product whose answers are meant.
      name: Its query as written in a configuration, such as "hhgq".
      geolevel: Where its answers are wanted.

    Raises:
      ConfigError: The product does not come before, or has no such invariant at the geolevel.
    """
    if product not in plans:
        raise ConfigError(
            f"product {product}",
            "does not come before this one",
            got=list(plans),
            remedy="put it into the run file, before this one",
        )
    exact = {i.query.name: i.query for i in invariants_at(plans[product].invariants, geolevel)}
    if name not in exact:
        raise ConfigError(
            f"product {product}, query {name}",
            f"is not exact at geolevel {geolevel}",
            got=sorted(exact),
            remedy="add it to the invariants of that product",
        )
    return exact[name]


def write_geography(lattice: Lattice, layout: ReleaseLayout) -> None:
    """Write the public geounits of every geolevel; complete ones are kept."""
    names = np.array(lattice.spine.levels, dtype=object)
    for level, name in enumerate(lattice.spine.levels):
        dataset = layout.geography(name)
        if is_published(dataset):
            continue
        writer = PartWriter(dataset, _GEOGRAPHY)
        codes = lattice.codes[level]
        for start in range(0, len(codes), _ROWS):
            rows = slice(start, start + _ROWS)
            parents = lattice.parents[level][rows]
            above = lattice.codes[level - 1][parents] if level else np.full(len(parents), b"")
            writer.write(
                pa.table(
                    [
                        pa.array(codes[rows].astype(np.str_)),
                        pa.array(above.astype(np.str_)),
                        pa.array(lattice.n_children(level)[rows]),
                        pa.array(lattice.is_only_child[level][rows]),
                        pa.array(names[lattice.chain_end[level][rows]], pa.string()),
                    ],
                    schema=_GEOGRAPHY,
                )
            )
        publish(dataset, [writer.close()], {"geolevel": name})


def planned_ledger(plan: Plan, lattice: Lattice) -> Ledger:
    """The ledger that measuring this lattice will produce; checked against the budget.

    Raises:
      LedgerError: A path of the tree would not spend exactly the budget.
      BudgetError: A planned strategy costs more than its share.
    """
    geounits: dict[tuple[int, int], int] = {}
    for level in range(len(plan.spine.levels)):
        measured = ~lattice.is_only_child[level]
        ends, sizes = np.unique(lattice.chain_end[level][measured], return_counts=True)
        geounits |= {(level, int(end)): int(size) for end, size in zip(ends, sizes, strict=True)}
    return _ledger(plan, geounits)


def ordinary_ledger(plan: Plan) -> Ledger:
    """The ledger of one path of geounits none of which is an only child.

    Raises:
      LedgerError: The path would not spend exactly the budget.
      BudgetError: A planned strategy costs more than its share.
    """
    return _ledger(plan, {(level, level): 1 for level in range(len(plan.spine.levels))})


def _ledger(plan: Plan, geounits: Mapping[tuple[int, int], int]) -> Ledger:
    """Entries of every chain that occurs, given the number of its geounits."""
    names = plan.spine.levels
    attributes = [attribute.name for attribute in plan.schema.attributes]
    for level in plan.strategy.levels:
        level.check_joint_cost(plan.budget.neighbors)
    entries = [
        LedgerEntry(
            names[first],
            names[last],
            noisy.query.name,
            touched_attributes(noisy.query, attributes),
            noisy.mechanism,
            noisy.cost,
            number,
        )
        for (first, last), number in geounits.items()
        for noisy in plan.noise(first, last)
    ]
    ledger = Ledger(names, plan.budget.total).append(entries)
    ledger.seal()
    return ledger


@dataclass(frozen=True)
class Batch:
    """A contiguous range of geounits of one geolevel; the unit of work of a task.

    Attributes:
      level: Position of the geolevel.
      low: First geocode.
      high: Last geocode.
      cost: Predicted cost, in geounits.
    """

    level: int
    low: str
    high: str
    cost: int


def geounit_batches(
    layout: ReleaseLayout,
    geolevel: str,
    level: int,
    n_batches: int,
    largest: int,
    smallest: int = 1,
) -> list[Batch]:
    """Split a geolevel into contiguous ranges that never divide a family, costliest first.

    Args:
      layout: The release, with its geography written.
      geolevel: Name of the geolevel.
      level: Its position.
      n_batches: Wanted number of ranges.
      largest: Most geounits in a range, unless one family is larger.
      smallest: Geounits that are worth a range of their own; fewer ranges are made for it.
    """
    table = read_geography(layout, geolevel, columns=("geocode", "parent"))
    # In Arrow's memory: as Python strings, the blocks of a nation would take a gigabyte here.
    codes, parents = table.column("geocode"), table.column("parent").combine_chunks()
    is_first = np.asarray(pc.not_equal(parents[1:], parents[:-1]), np.bool_)
    starts = np.flatnonzero(np.concatenate(([True], is_first)))
    ends = np.append(starts[1:], len(codes))
    size = max(1, min(largest, max(smallest, -(-len(codes) // n_batches))))
    batches = []
    first = 0
    for index, end in enumerate(ends):
        last = index == len(ends) - 1
        if last or ends[index + 1] - starts[first] > size:
            low, high = codes[int(starts[first])].as_py(), codes[int(end) - 1].as_py()
            batches.append(Batch(level, low, high, int(end - starts[first])))
            first = index + 1
    return sorted(batches, key=lambda batch: (-batch.cost, batch.low))


def read_geography(
    layout: ReleaseLayout,
    geolevel: str,
    batch: Batch | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Read the public geounits of a geolevel, or of one range of it, sorted by geocode."""
    dataset = Dataset.open(layout.geography(geolevel))
    if batch is None:
        return dataset.read(columns=columns)
    return dataset.read(batch.low, batch.high, columns)


def families(parents: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Ranges [start, stop) of rows that share a parent."""
    if not len(parents):
        return
    starts = np.flatnonzero(np.concatenate(([True], parents[1:] != parents[:-1])))
    yield from zip(starts, np.append(starts[1:], len(parents)), strict=True)
