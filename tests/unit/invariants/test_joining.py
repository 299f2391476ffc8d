"""Records in their units: every split of what ties allow, counted here, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from das.errors import ConfigError, VerificationError
from das.histograms import Histograms
from das.schema import Attribute, Schema
from invariants.between import (
    CrossProductConstraint,
    CrossProductConstraints,
    Form,
    build_constraints,
)
from invariants.joining import NO_CODE, Joined, JoinOrder, join, unit_bounds
from tests.builders.histograms import from_dense

# Units: vacant, of one, of two, of three to six, facilities; records: role x adult x group.
VACANT, ONE, TWO, OPEN, FACILITY = range(5)
RECORDS = Schema(
    "persons",
    (
        Attribute("role", ("head", "member", "resident", "homeless")),
        Attribute("age", ("minor", "adult")),
        Attribute("group", ("a", "b", "c")),
    ),
)
CODES = RECORDS.codes_of(np.arange(RECORDS.size))
OCCUPIED = np.array([0, 1, 1, 1, 0])
LEAST, MOST = np.array([0, 1, 2, 3, 0]), np.array([0, 1, 2, 6, 0])
IN_FACILITY = np.array([0, 0, 0, 0, 1])


def tie(name: str, roles: tuple[int, ...], least=None, most=None) -> CrossProductConstraint:
    forms = [None if row is None else Form({"units": row}) for row in (least, most)]
    if least is most:
        forms = [forms[0], forms[0]]
    return CrossProductConstraint(name, np.isin(CODES["role"], roles), *forms)


ENTRIES = (
    tie("heads", (0,), OCCUPIED, OCCUPIED),
    tie("at least", (0, 1), LEAST, None),
    tie("at most", (0, 1), None, MOST),
    tie("some in facilities", (2,), IN_FACILITY, None),
    tie("not too many", (2,), None, 40 * IN_FACILITY),
)


def ties_of(*entries: CrossProductConstraint) -> CrossProductConstraints:
    return build_constraints(entries, ("state", "block"), np.ones(RECORDS.size, np.bool_))


TIES = ties_of(*ENTRIES)
ORDER = JoinOrder(CODES["age"] == 1, CODES["group"], np.full(5, NO_CODE), 0)


def drawn(rng: np.random.Generator, n_leaves: int) -> tuple[Histograms, Histograms]:
    """Counts of both products that keep the ties, by sums alone: nobody was put anywhere."""
    units = rng.integers(0, 4, (n_leaves, 5)) * (rng.random((n_leaves, 5)) < 0.6)
    heads = units @ OCCUPIED
    members = rng.integers(units @ LEAST, units @ MOST + 1) - heads
    residents = rng.integers(units @ IN_FACILITY, 40 * units[:, FACILITY] + 1)
    homeless = rng.integers(0, 3, n_leaves)
    records = np.zeros((n_leaves, RECORDS.size), np.int64)
    for role, totals in enumerate((heads, members, residents, homeless)):
        shares = rng.dirichlet(np.full(6, 0.7), n_leaves)
        records[:, 6 * role : 6 * role + 6] = [
            rng.multinomial(n, share) for n, share in zip(totals, shares, strict=True)
        ]
    return from_dense(units), from_dense(records)


def names(n_leaves: int) -> list[str]:
    return [f"{leaf:04d}" for leaf in range(n_leaves)]


def by_unit(joined: Joined) -> dict[tuple[int, int], list[int]]:
    found: dict[tuple[int, int], list[int]] = {}
    for leaf, number, cell in zip(joined.leaves, joined.numbers, joined.cells, strict=True):
        found.setdefault((int(leaf), int(number)), []).append(int(cell))
    return found


def test_everybody_has_a_place_and_every_unit_holds_what_it_must() -> None:
    for seed in range(20):
        units, records = drawn(np.random.default_rng(seed), 30)
        joined = join(unit_bounds(TIES, "persons"), ORDER, names(30), units, records)
        again = Histograms.from_entries(
            RECORDS.size, 30, joined.leaves, joined.cells, np.ones(len(joined.cells), np.int64)
        )
        assert np.array_equal(again.dense(), records.dense())
        found = by_unit(joined)
        for leaf, row in enumerate(units.dense()):
            for number, cell in enumerate(np.repeat(np.arange(5), row), 1):
                roles = CODES["role"][found.pop((leaf, number), [])]
                assert (roles == 0).sum() == OCCUPIED[cell]
                assert LEAST[cell] <= (roles <= 1).sum() <= MOST[cell]
                assert IN_FACILITY[cell] <= (roles == 2).sum() <= 40 * IN_FACILITY[cell]
                assert not (roles == 3).any()
        assert all(number == 0 for _, number in found)  # the homeless, who live in no unit
        assert all((CODES["role"][cells] == 3).all() for cells in found.values())


def test_the_same_seed_gives_the_same_file_however_leaves_are_cut() -> None:
    units, records = drawn(np.random.default_rng(1), 12)
    places, codes = unit_bounds(TIES, "persons"), names(12)
    whole = join(places, ORDER, codes, units, records)
    parts = [
        join(places, ORDER, codes[a:b], units.slice(a, b), records.slice(a, b))
        for a, b in ((0, 5), (5, 12))
    ]
    assert np.array_equal(whole.cells, np.concatenate([part.cells for part in parts]))
    assert np.array_equal(whole.numbers, np.concatenate([part.numbers for part in parts]))
    other = JoinOrder(ORDER.first, ORDER.match_codes, ORDER.units, 1)
    assert not np.array_equal(whole.cells, join(places, other, codes, units, records).cells)


def test_minors_are_alone_only_where_there_are_too_few_adults() -> None:
    """Two minors are householders: they get the larger units, and an adult each."""
    units = np.array([[0, 2, 2, 0, 0]])
    records = np.zeros((1, RECORDS.size), np.int64)
    minor_head, adult_head, minor, adult = 0, 3, 6, 9
    records[0, [minor_head, adult_head, minor, adult]] = [2, 2, 0, 2]
    both = (from_dense(units), from_dense(records))
    found = by_unit(join(unit_bounds(TIES, "persons"), ORDER, ["x"], *both))
    assert found == {(0, 1): [3], (0, 2): [3], (0, 3): [0, 9], (0, 4): [0, 9]}


def test_units_are_of_one_group_as_far_as_may_be() -> None:
    """Four couples of two groups: heads and members of each group are as many."""
    units = np.array([[0, 0, 8, 0, 0]] * 5)
    records = np.zeros((5, RECORDS.size), np.int64)
    records[:, [3, 4, 9, 10]] = [3, 5, 3, 5]
    both = (from_dense(units), from_dense(records))
    joined = join(unit_bounds(TIES, "persons"), ORDER, names(5), *both)
    pairs = CODES["group"][joined.cells].reshape(-1, 2)
    assert (pairs[:, 0] == pairs[:, 1]).all()
    alone = JoinOrder(ORDER.first, np.zeros(RECORDS.size, np.int64), ORDER.units, 0)
    mixed = join(unit_bounds(TIES, "persons"), alone, names(5), *both)
    pairs = CODES["group"][mixed.cells].reshape(-1, 2)
    assert (pairs[:, 0] != pairs[:, 1]).any()
    assert pairs.sum(1)[:8].tolist() == [1, 0, 1, 1, 1, 2, 2, 2]  # on every machine


def test_heads_come_to_units_that_name_their_group() -> None:
    units = np.array([[0, 4, 4, 0, 0]])
    records = np.zeros((1, RECORDS.size), np.int64)
    records[0, [3, 4, 9]] = [4, 4, 4]
    named = JoinOrder(ORDER.first, CODES["group"], np.array([NO_CODE, 0, 1, NO_CODE, NO_CODE]), 0)
    both = (from_dense(units), from_dense(records))
    joined = join(unit_bounds(TIES, "persons"), named, ["x"], *both)
    heads = joined.cells[CODES["role"][joined.cells] == 0]
    assert CODES["group"][heads].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_an_open_size_takes_the_rest_evenly() -> None:
    units = np.array([[0, 0, 0, 3, 0]])
    records = np.zeros((1, RECORDS.size), np.int64)
    records[0, [3, 9]] = [3, 11]  # 9 to 18 persons may live there
    both = (from_dense(units), from_dense(records))
    found = by_unit(join(unit_bounds(TIES, "persons"), ORDER, ["x"], *both))
    assert sorted(map(len, found.values())) == [4, 5, 5]


def test_counts_that_break_a_tie_are_no_file() -> None:
    units, records = np.array([[0, 1, 0, 0, 0]]), np.zeros((1, RECORDS.size), np.int64)
    records[0, [3, 9]] = 1
    both = (from_dense(units), from_dense(records))
    with pytest.raises(VerificationError, match="than its units can contain"):
        join(unit_bounds(TIES, "persons"), ORDER, ["x"], *both)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (ENTRIES[:2], "one upper and at most one lower bound"),
        ((ENTRIES[0], tie("not of one", (0, 1), LEAST * (LEAST > 1), None), ENTRIES[2]),
         "negative or cross"),
    ],
)  # fmt: skip
def test_what_leaves_open_how_many_a_unit_holds_is_refused(
    entries: tuple[CrossProductConstraint, ...], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        unit_bounds(ties_of(*entries), "persons")


def test_of_two_bounds_of_which_one_implies_the_other_the_narrower_is_taken() -> None:
    wider = tie("wider", (0, 1), None, 3 * MOST - 2 * LEAST)
    assert np.array_equal(
        unit_bounds(ties_of(*ENTRIES[:3], wider), "persons").most,
        unit_bounds(ties_of(*ENTRIES[:3]), "persons").most,
    )
