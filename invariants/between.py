"""Cross-product constraints: bounds on the counts of one product from those of earlier ones.

A constraint states that the records in some cells of a product are as many as, at least or at most
a weighted sum of cells of earlier products, in every geounit. Examples: householders are as many as
occupied units; persons in households are at least the sum of size x households. Products are
solved one after the other, so the earlier counts are integers, and the constraints of a product are
bounds on sums of its cells.

The cells of the constraints of a product must be nested or disjoint, and constraints within others
must be equalities. Then the parts that no constraint divides, the types, have bounds: if a set G
contains sets E_1, ... that equal e_1, ..., the rest of G has the bounds of G less the sum of the
e_i. Bounds by type are a box, boxes of leaves add up to a box, and counts by type in the sum of
boxes can be assigned to the leaves in integers (`invariants.implied`), so no node below is
infeasible. Constraints that may empty a box are refused. If exact answers of the later product
could contradict a constraint, a row on the earlier products prevents it (`caps_of`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from das.arrays import BoolArray, IntArray, sums_at
from das.errors import ConfigError
from das.histograms import Histograms
from das.queries.query import Query
from invariants.exact import Invariant
from invariants.facilities import Types
from invariants.leaves import MANY, Leaves

Counts = Mapping[str, Histograms]


@dataclass(frozen=True, eq=False)
class Form:
    """Weighted sum of cells of some products.

    Attributes:
      parts: Product to int64[n], the coefficient of each of its cells.
    """

    parts: Mapping[str, IntArray]

    @classmethod
    def sum_of(cls, forms: Sequence[Form]) -> Form:
        """Return the sum of several weighted sums; 0 if there are none."""
        parts: dict[str, IntArray] = {}
        for form in forms:
            for product, weights in form.parts.items():
                parts[product] = parts[product] + weights if product in parts else weights
        return cls(parts)

    def __neg__(self) -> Form:
        return Form({product: -weights for product, weights in self.parts.items()})

    def __sub__(self, other: Form) -> Form:
        return Form.sum_of([self, -other])

    @property
    def is_nonnegative(self) -> bool:
        """Return whether the sum is nonnegative for all counts."""
        return all(bool((weights >= 0).all()) for weights in self.parts.values())

    @property
    def products(self) -> tuple[str, ...]:
        """Return the products with a nonzero coefficient."""
        return tuple(product for product, weights in self.parts.items() if weights.any())

    def of(self, products: Sequence[str]) -> Form:
        """Return the part of the sum that counts the given products."""
        return Form({name: self.parts[name] for name in self.parts if name in products})

    def answer(self, counts: Counts, n_geounits: int) -> IntArray:
        """Return the exact sum in each geounit, int64[G].

        Args:
          counts: Per product, the counts of G geounits.
          n_geounits: G.
        """
        out = np.zeros(n_geounits, np.int64)
        for product, weights in self.parts.items():
            out += weighted_sums(weights, counts[product])
        return out


def weighted_sums(coefficients: IntArray, histograms: Histograms) -> IntArray:
    """Return the weighted sum of the cells of each geounit, int64[G].

    Args:
      coefficients: int64[n], the weight of each cell.
      histograms: Counts of G geounits.
    """
    weighted = coefficients[histograms.cells] * histograms.counts
    return sums_at(histograms.owners(), weighted, histograms.n_geounits)


@dataclass(frozen=True, eq=False)
class CrossProductConstraint:
    """Constraint least(others) <= records in some cells <= most(others), in every geounit.

    Attributes:
      name: Name of the constraint in the configuration.
      cells: bool[n], cells of the later product.
      least: Lower bound, a sum over products solved before; None for no bound.
      most: Upper bound, a sum over products solved before; None for no bound. For an equality it
        is the same object as `least`.
    """

    name: str
    cells: BoolArray
    least: Form | None
    most: Form | None

    @property
    def equality(self) -> Form | None:
        """Return the sum that the records must equal; None for an inequality."""
        return self.least if self.least is self.most else None

    def broken(self, counts: Histograms, others: Counts) -> BoolArray:
        """Return bool[G]: geounits whose integer counts break the constraint."""
        n_geounits = counts.n_geounits
        records = weighted_sums(self.cells.astype(np.int64), counts)
        out = np.zeros(n_geounits, np.bool_)
        if self.least is not None:
            out |= records < self.least.answer(others, n_geounits)
        if self.most is not None:
            out |= records > self.most.answer(others, n_geounits)
        return out


@dataclass(frozen=True, eq=False)
class CrossProductConstraints:
    """All cross-product constraints of a product with the products solved before it.

    Attributes:
      entries: The constraints as configured.
      geolevels: Geolevels at which they hold, root first; stated at the last.
      query: Records by type. Types are the parts that no constraint divides, and last the
        unconstrained cells if there are some.
      least: By type, the sums that bound its records from below.
      most: By type, the sums that bound its records from above.
    """

    entries: tuple[CrossProductConstraint, ...]
    geolevels: tuple[str, ...]
    query: Types
    least: tuple[tuple[Form, ...], ...]
    most: tuple[tuple[Form, ...], ...]

    @property
    def geolevel(self) -> str:
        """Return the geolevel at which the constraints are stated."""
        return self.geolevels[-1]

    @property
    def sizes(self) -> dict[str, int]:
        """Return the products in the constraints, with the number of cells of each."""
        bounds = [bound for tie in self.entries for bound in (tie.least, tie.most) if bound]
        return {name: len(cells) for bound in bounds for name, cells in bound.parts.items()}

    def named(self, kind: int) -> str:
        """Return the name of a type in errors: the constraints that count it. Types start at 0."""
        cells = self.query.codes == kind
        return _named([tie for tie in self.entries if (tie.cells & cells).any()])

    def boxes(self, counts: Counts, n_geounits: int) -> Leaves:
        """Return bounds of records by type, one row per geounit, without bounds of the total.

        Args:
          counts: Counts of the products solved before this one.
          n_geounits: G, geounits of the geolevel of the constraints.
        """
        least = np.zeros((n_geounits, self.query.size), np.int64)
        most = np.full((n_geounits, self.query.size), MANY)
        for number, (lows, highs) in enumerate(zip(self.least, self.most, strict=True)):
            for low in lows:
                least[:, number] = np.maximum(least[:, number], low.answer(counts, n_geounits))
            for high in highs:
                most[:, number] = np.minimum(most[:, number], high.answer(counts, n_geounits))
        return Leaves(least, most, least.sum(1), most.sum(1))


@dataclass(frozen=True, eq=False)
class Cap:
    """Bound on an earlier product that the exact answers of a later product require.

    Attributes:
      product: Name of the later product.
      query: Query of the later product, whose answers are published.
      answers: Numbers of the answers whose sum is the bound.
      is_most: Whether the bound is an upper one.
      others: Sum over other earlier products that is subtracted from the bound.
    """

    product: str
    query: Query
    answers: tuple[int, ...]
    is_most: bool
    others: Form


# --- types and bounds of stated constraints ------------------------------------------------------


def build_constraints(
    entries: Sequence[CrossProductConstraint], geolevels: tuple[str, ...], possible: BoolArray
) -> CrossProductConstraints:
    """Build the types and bounds of the cross-product constraints of a product, and check them.

    Args:
      entries: The constraints.
      geolevels: Geolevels at which they hold.
      possible: bool[n], cells of the product that are not structural zeros.

    Raises:
      ConfigError: The constraints cross, leave types without cells, or may contradict one another.
    """
    groups = _groups(entries)
    _refuse_crossing(groups)
    codes = np.full(len(possible), len(groups), np.int64)
    least: list[tuple[Form, ...]] = []
    most: list[tuple[Form, ...]] = []
    for number, group in enumerate(groups):
        within = _directly_within(group, groups)
        equal = Form.sum_of([_equality_within(inner, group) for inner in within])
        rest = group[0].cells & ~np.logical_or.reduce([np.zeros_like(possible), *_cells(within)])
        if not (rest & possible).any():
            what = "follows from those within it" if within else "counts no possible cell"
            raise ConfigError(
                _named(group), what, remedy="remove the named constraints from the run file"
            )
        codes[rest] = number
        lows = [tie.least - equal for tie in group if tie.least is not None]
        highs = [tie.most - equal for tie in group if tie.most is not None]
        _refuse_empty(group, lows, highs)
        least.append(_undominated(lows))
        most.append(tuple(-form for form in _undominated([-high for high in highs])))
    if (codes == len(groups)).any():  # the other cells, without bounds
        least.append(())
        most.append(())
    types = Types("types of the ties", codes, len(least))
    return CrossProductConstraints(tuple(entries), geolevels, types, tuple(least), tuple(most))


Group = Sequence[CrossProductConstraint]  # ties of the same cells


def _groups(entries: Sequence[CrossProductConstraint]) -> list[Group]:
    groups: dict[bytes, list[CrossProductConstraint]] = {}
    for tie in entries:
        groups.setdefault(np.packbits(tie.cells).tobytes(), []).append(tie)
    return sorted(groups.values(), key=lambda ties: int(ties[0].cells.sum()))


def _named(group: Group) -> str:
    return f"between {' and '.join(tie.name for tie in group)}"


def _cells(groups: Sequence[Group]) -> list[BoolArray]:
    return [group[0].cells for group in groups]


def _refuse_crossing(groups: Sequence[Group]) -> None:
    for first, second in combinations(groups, 2):  # the smaller first
        if (first[0].cells & second[0].cells).any() and not _is_within(first, second):
            raise ConfigError(
                _named(second),
                "has cells in common with another, and neither lies within the other",
                got=_named(first),
                want="cells that are nested or disjoint",
            )


def _directly_within(group: Group, groups: Sequence[Group]) -> list[Group]:
    """Return the largest groups within a group; all groups are nested or disjoint."""
    inside = [other for other in groups if _is_within(other, group)]
    return [inner for inner in inside if not any(_is_within(inner, other) for other in inside)]


def _is_within(inner: Group, outer: Group) -> bool:
    return inner is not outer and not (inner[0].cells & ~outer[0].cells).any()


def _equality_within(inner: Group, outer: Group) -> Form:
    for tie in inner:
        if tie.equality is not None:
            return tie.equality
    raise ConfigError(
        _named(inner),
        f"lies within the cells of {_named(outer)}; only equalities may lie within other cells",
        want="relation equals, or disjoint cells",
    )


def _refuse_empty(group: Group, lows: Sequence[Form], highs: Sequence[Form]) -> None:
    """Refuse bounds that contradict each other for some counts of the earlier products."""
    for high in highs:
        if not high.is_nonnegative:
            raise ConfigError(
                _named(group),
                "may leave a negative upper bound, after subtracting the constraints within it",
                remedy="write the upper bound with the same counts as the constraints within it",
            )
        for low in lows:
            if not (high - low).is_nonnegative:
                raise ConfigError(
                    _named(group),
                    "may have a lower bound above the upper one, for some earlier counts",
                    remedy="raise the upper bound, or remove one of the two constraints",
                )


def _undominated(lows: Sequence[Form]) -> tuple[Form, ...]:
    """Return the lower bounds that no other lower bound implies for all counts."""
    kept: list[Form] = []
    for low in lows:
        if any((other - low).is_nonnegative for other in kept):
            continue
        kept = [other for other in kept if not (low - other).is_nonnegative]
        kept.append(low)
    return tuple(kept)


# --- rows that exact answers of the later product require ----------------------------------------


def caps_of(
    later: str, ties: CrossProductConstraints, invariants: Sequence[Invariant], order: Sequence[str]
) -> Iterator[tuple[str, IntArray, tuple[str, ...], Cap]]:
    """Yield rows on earlier products, without which exact answers of this one are infeasible.

    The records of the types in an exact answer T are at least the sum of their lower bounds, and at
    most the sum of their upper bounds. The bounds and T have a solution iff T lies between these
    sums.

    Args:
      later: Name of the product with the constraints.
      ties: The cross-product constraints of the product.
      invariants: The exact queries of the product.
      order: The earlier products, in the order in which they are solved.

    Yields:
      Name of the earlier product, coefficients, geolevels, and source of the bounds.

    Raises:
      ConfigError: An exact query crosses the types, or bounds do not add up over geounits.
    """
    for invariant in invariants:
        geolevels = tuple(level for level in invariant.geolevels if level in ties.geolevels)
        query = invariant.query
        for types, answers in _sums_of(query, ties.query) if geolevels else ():
            _refuse_unsummable(ties, types, query)
            lows, highs = [ties.least[i] for i in types], [ties.most[i] for i in types]
            fewest = Form.sum_of([low for forms in lows for low in forms])
            for number, name in enumerate(order):
                if name in fewest.products:
                    others = fewest.of(order[:number])
                    cap = Cap(later, query, answers, True, others)
                    yield name, fewest.parts[name], geolevels, cap
            if all(highs):
                largest = Form.sum_of([high for forms in highs for high in forms])
                last = [name for name in order if name in largest.products][-1:]
                for name in last:
                    others = largest.of([other for other in order if other != name])
                    cap = Cap(later, query, answers, False, others)
                    yield name, largest.parts[name], geolevels, cap


def _refuse_unsummable(ties: CrossProductConstraints, types: Sequence[int], query: Query) -> None:
    """Refuse bounds whose sums over geounits can differ from the bounds of an exact answer."""
    for kind in types:
        lows, highs = ties.least[kind], ties.most[kind]
        if max(len(lows), len(highs)) > 1:
            raise ConfigError(
                ties.named(kind),
                "has several lower or several upper bounds on records with an exact answer",
                got=query.name,
                remedy="state one lower and one upper bound of the same cells",
            )
        if not all(low.is_nonnegative for low in lows):
            raise ConfigError(
                ties.named(kind),
                "may have a negative lower bound on records with an exact answer, after the "
                "constraints within it are subtracted",
                got=query.name,
                remedy="count what lies within a bound in that bound, too",
            )


def _sums_of(query: Query, types: Types) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield pairs of smallest sets, of types and of exact answers, that count the same cells."""
    rows = query.rows_of(np.arange(len(types.codes)))
    pairs = np.unique(np.stack([types.codes, rows], axis=1), axis=0)
    n_types, n_answers = (len(np.unique(column)) for column in pairs.T)
    if len(pairs) == n_types:  # an answer is a sum of types
        for answer in np.unique(pairs[:, 1]):
            yield tuple(pairs[pairs[:, 1] == answer, 0].tolist()), (int(answer),)
    elif len(pairs) == n_answers:  # a type is a sum of answers
        for kind in np.unique(pairs[:, 0]):
            yield (int(kind),), tuple(pairs[pairs[:, 0] == kind, 1].tolist())
    else:
        raise ConfigError(
            "cross_product_constraints",
            "has types that an exact query crosses",
            got=query.name,
            want="nested",
        )
