"""Ties: what the counts of one product must keep of those of others, in the same geounits.

A tie says that the records in some cells of a product are as many, at least or at most as a
weighted sum of the cells of products before it: householders are the occupied units; persons in
households are at least the sum of size x households. Products are solved one after the other, so
when a product is solved the others are integers, and its ties are bounds on sums of its own cells.

The cells of the ties of a product must be nested or apart, and what lies within others must be an
equality. Then the parts that no tie divides, the types, have bounds of their own: of a set G with
sets E_1.. within it that are equalities to e_1.., the rest of G has those of G less the sum of the
e_i. Bounds by type are a box, boxes of leaves add up to a box, and counts by type in the sum of
boxes can be assigned to them in integers (`invariants.implied`), so no node below can fail. What
may empty a box is refused. What would contradict answers of the later product that are published
exactly is put on the products before it as a row (`caps_of`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from das.arrays import BoolArray, IntArray
from das.errors import ConfigError
from das.histograms import Histograms
from das.queries.query import Query
from invariants.exact import Invariant
from invariants.facilities import Types
from invariants.leaves import MANY, Leaves

Counts = Mapping[str, Histograms]


@dataclass(frozen=True, eq=False)
class Form:
    """A weighted sum of cells of some products.

    Attributes:
      parts: Product to int64[n], the coefficient of each of its cells.
    """

    parts: Mapping[str, IntArray]

    @classmethod
    def sum_of(cls, forms: Sequence[Form]) -> Form:
        """The sum; of none it is 0."""
        parts: dict[str, IntArray] = {}
        for form in forms:
            for product, own in form.parts.items():
                parts[product] = parts[product] + own if product in parts else own
        return cls(parts)

    def __neg__(self) -> Form:
        return Form({product: -own for product, own in self.parts.items()})

    def __sub__(self, other: Form) -> Form:
        return Form.sum_of([self, -other])

    @property
    def is_nonnegative(self) -> bool:
        """Whether it is so for all counts."""
        return all(bool((own >= 0).all()) for own in self.parts.values())

    @property
    def products(self) -> tuple[str, ...]:
        """Products of which some cell counts."""
        return tuple(product for product, own in self.parts.items() if own.any())

    def of(self, products: Sequence[str]) -> Form:
        """What some products count in it."""
        return Form({name: own for name, own in self.parts.items() if name in products})

    def answer(self, counts: Counts, n_geounits: int) -> IntArray:
        """int64[G], exact."""
        out = np.zeros(n_geounits, np.int64)
        for product, own in self.parts.items():
            out += weighted_sums(own, counts[product])
        return out


def weighted_sums(coefficients: IntArray, histograms: Histograms) -> IntArray:
    """int64[G]: the weighted sum of the cells of every geounit, by int64[n] coefficients."""
    out = np.zeros(histograms.n_geounits, np.int64)
    np.add.at(out, histograms.owners(), coefficients[histograms.cells] * histograms.counts)
    return out


@dataclass(frozen=True, eq=False)
class Tie:
    """least(others) <= records in some cells <= most(others), in every geounit.

    Attributes:
      name: Its name in the configuration.
      cells: bool[n], cells of the later product.
      least: Of the products before it; None without limit.
      most: Likewise; the same as `least` for an equality.
    """

    name: str
    cells: BoolArray
    least: Form | None
    most: Form | None

    @property
    def equality(self) -> Form | None:
        """What its records are as many as; None if it is an inequality."""
        return self.least if self.least is self.most else None

    def broken(self, own: Histograms, others: Counts) -> BoolArray:
        """bool[G]: geounits that do not keep it, in integers."""
        n_geounits = own.n_geounits
        records = weighted_sums(self.cells.astype(np.int64), own)
        out = np.zeros(n_geounits, np.bool_)
        if self.least is not None:
            out |= records < self.least.answer(others, n_geounits)
        if self.most is not None:
            out |= records > self.most.answer(others, n_geounits)
        return out


@dataclass(frozen=True, eq=False)
class Ties:
    """All ties of a product to those before it.

    Attributes:
      entries: As stated.
      geolevels: Geolevels at which they hold, root first; stated at the last.
      query: Records by type: parts that no tie divides, and last the rest if there is one.
      least: By type, the sums its records are no fewer than.
      most: By type, the sums its records are no more than.
    """

    entries: tuple[Tie, ...]
    geolevels: tuple[str, ...]
    query: Types
    least: tuple[tuple[Form, ...], ...]
    most: tuple[tuple[Form, ...], ...]

    @property
    def geolevel(self) -> str:
        """Where they are stated."""
        return self.geolevels[-1]

    @property
    def sizes(self) -> dict[str, int]:
        """Products before this one that they name, with the number of cells of each."""
        found = [form for tie in self.entries for form in (tie.least, tie.most) if form is not None]
        return {name: len(own) for form in found for name, own in form.parts.items()}

    def named(self, one: int) -> str:
        """What a type is called in errors: the ties that bound it."""
        cells = self.query.codes == one
        return _named([tie for tie in self.entries if (tie.cells & cells).any()])

    def boxes(self, counts: Counts, n_geounits: int) -> Leaves:
        """One row per geounit of their geolevel, totals free.

        Args:
          counts: Of the products before this one.
          n_geounits: G.
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
    """What exact answers of a later product demand of one before it.

    Attributes:
      product: Name of the later product.
      query: Its query, whose answers are published.
      answers: Those that are added up.
      is_most: Whether they bound from above.
      others: What other products before it count, which they leave no room for.
    """

    product: str
    query: Query
    answers: tuple[int, ...]
    is_most: bool
    others: Form


# --- reading what was stated ---------------------------------------------------------------------


def tie_types(entries: Sequence[Tie], geolevels: tuple[str, ...], possible: BoolArray) -> Ties:
    """The types of some ties of a product and their bounds, checked.

    Args:
      entries: The ties.
      geolevels: Where they hold.
      possible: bool[n], cells of the product in which somebody may be.

    Raises:
      ConfigError: They cross, leave types without cells, or may contradict one another.
    """
    groups = _groups(entries)
    _refuse_crossing(groups)
    codes = np.full(len(possible), len(groups), np.int64)
    least: list[tuple[Form, ...]] = []
    most: list[tuple[Form, ...]] = []
    for number, group in enumerate(groups):
        within = _directly_within(group, groups)
        equal = Form.sum_of([_equality_within(inner, group) for inner in within])
        own = group[0].cells & ~np.logical_or.reduce([np.zeros_like(possible), *_cells(within)])
        if not (own & possible).any():
            what = "counts nobody who can be" if not within else "follows from those within it"
            raise ConfigError(_named(group), what, remedy="leave it out")
        codes[own] = number
        lows = [tie.least - equal for tie in group if tie.least is not None]
        highs = [tie.most - equal for tie in group if tie.most is not None]
        _refuse_empty(group, lows, highs)
        least.append(_undominated(lows))
        most.append(tuple(-form for form in _undominated([-high for high in highs])))
    if (codes == len(groups)).any():  # the rest, as many as they like
        least.append(())
        most.append(())
    types = Types("types of the ties", codes, len(least))
    return Ties(tuple(entries), geolevels, types, tuple(least), tuple(most))


Group = Sequence[Tie]  # ties of the same cells


def _groups(entries: Sequence[Tie]) -> list[Group]:
    found: dict[bytes, list[Tie]] = {}
    for tie in entries:
        found.setdefault(np.packbits(tie.cells).tobytes(), []).append(tie)
    return sorted(found.values(), key=lambda ties: int(ties[0].cells.sum()))


def _named(group: Group) -> str:
    return f"between {' and '.join(tie.name for tie in group)}"


def _cells(groups: Sequence[Group]) -> list[BoolArray]:
    return [group[0].cells for group in groups]


def _refuse_crossing(groups: Sequence[Group]) -> None:
    for first, second in combinations(groups, 2):  # the smaller first
        shared = first[0].cells & second[0].cells
        if shared.any() and not (shared == first[0].cells).all():
            raise ConfigError(
                _named(second),
                "has cells in common with another, and neither lies within the other",
                got=_named(first),
                want="cells that are nested or apart",
            )


def _directly_within(group: Group, groups: Sequence[Group]) -> list[Group]:
    """The largest groups within one; all are nested or apart."""
    inside = [
        other
        for other in groups
        if other is not group and not (other[0].cells & ~group[0].cells).any()
    ]
    return [
        one
        for one in inside
        if not any(
            other is not one and not (one[0].cells & ~other[0].cells).any() for other in inside
        )
    ]


def _equality_within(inner: Group, outer: Group) -> Form:
    for tie in inner:
        if tie.equality is not None:
            return tie.equality
    raise ConfigError(
        _named(inner),
        f"lies within the cells of {_named(outer)}, and only equalities may",
        want="relation equals, or cells that are apart",
    )


def _refuse_empty(group: Group, lows: Sequence[Form], highs: Sequence[Form]) -> None:
    """Refuse bounds that some counts of the products before would make contradict each other."""
    for high in highs:
        if not high.is_nonnegative:
            raise ConfigError(
                _named(group),
                "may leave fewer than none, whatever is counted within it",
                remedy="state what bounds the others by the same cells",
            )
        for low in lows:
            if not (high - low).is_nonnegative:
                raise ConfigError(
                    _named(group),
                    "may demand more than it allows, for some counts of the products before",
                    remedy="raise what is at most, or leave one of them out",
                )


def _undominated(lows: Sequence[Form]) -> tuple[Form, ...]:
    """Lower bounds without those that others imply for all counts."""
    kept: list[Form] = []
    for low in lows:
        if any((other - low).is_nonnegative for other in kept):
            continue
        kept = [other for other in kept if not (low - other).is_nonnegative]
        kept.append(low)
    return tuple(kept)


# --- what exact answers of the later product demand ----------------------------------------------


def caps_of(
    later: str, ties: Ties, invariants: Sequence[Invariant], order: Sequence[str]
) -> Iterator[tuple[str, IntArray, tuple[str, ...], Cap]]:
    """Rows on the products before, without which exact answers could not be kept.

    The records of the types in an exact answer T are at least the sum of their lower bounds, and at
    most that of the upper ones; boxes and T leave counts iff T lies between.

    Args:
      later: Name of the product that has the ties.
      ties: They.
      invariants: Its exact queries.
      order: The products before it, in the order of work.

    Yields:
      Name of the product before it, coefficients, geolevels, and where the bounds come from.

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


def _refuse_unsummable(ties: Ties, types: Sequence[int], query: Query) -> None:
    """Refuse bounds of types that do not add up over geounits to those of an exact answer."""
    for one in types:
        lows, highs = ties.least[one], ties.most[one]
        if max(len(lows), len(highs)) > 1:
            raise ConfigError(
                ties.named(one),
                "bounds records by sums of which either may bind, beside an answer that is exact",
                got=query.name,
                remedy="state one lower and one upper bound of the same cells",
            )
        if not all(low.is_nonnegative for low in lows):
            raise ConfigError(
                ties.named(one),
                "demands fewer than what lies within it counts, for some counts of the products "
                "before, beside an answer that is exact",
                got=query.name,
                remedy="count what lies within a bound in that bound, too",
            )


def _sums_of(query: Query, types: Types) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Sets of types and of exact answers that count the same cells, the smallest of them."""
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
            "between", "has types that an exact query crosses", got=query.name, want="nested"
        )
