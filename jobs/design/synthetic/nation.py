"""Seeded synthetic nation: blocks and persons that look like a census, of any size.

Every tract is drawn from a separate seed, so the data depend only on the specification, and memory
is constant. The constants give roughly the shape of the 2010 and 2020 redistricting data: 40 % of
blocks empty, skewed block sizes with mean 40 persons, 2.5 % of persons in group quarters in few
blocks, and segregated race mixes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, groupby

import numpy as np

from das.arrays import FloatArray, Geocodes, IntArray
from jobs.design.requests import GenerateSpec
from jobs.design.synthetic.households import add_household_details, tenure_of
from jobs.design.synthetic.persons import Entries, add_persons_details, facility_shares, summed
from jobs.design.synthetic.prims import block_codes, tract_subsets
from jobs.design.synthetic.residents import (
    DWELLINGS,
    RESIDENTS,
    by_size,
    drawn_households,
    householders,
    members,
)
from jobs.design.synthetic.schemas import schema_named

COMBINATIONS = [c for size in range(1, 7) for c in combinations(range(6), size)]  # of races
HOUSEHOLDS = "dhc_households"
"""The schema whose records are households; its householders are drawn like persons."""
REDISTRICTING = "redistricting"
"""Folder of the same persons in redistricting cells."""
_BLOCKS_PER_GROUP = 34
_TRACT_PERSONS = 96 * 40
# Eight groups as in block16: weight in the nation, share of minors.
_GROUP_WEIGHTS = np.array([0.185, 0.58, 0.12, 0.008, 0.058, 0.002, 0.006, 0.041])
_GROUP_MINORS = np.array([0.30, 0.18, 0.24, 0.28, 0.20, 0.28, 0.25, 0.42])
# Group quarters after household: facilities per tract, mean persons, share of minors.
_FACILITIES = np.array([0.02, 0.03, 0.22, 0.03, 0.06, 0.004, 0.4])
_FACILITY_SIZES = np.array([1000.0, 40.0, 85.0, 60.0, 550.0, 900.0, 35.0])
_FACILITY_MINORS = np.array([0.0, 0.95, 0.0, 0.15, 0.02, 0.01, 0.10])
# Frequency of each group in each type of facility, relative to households.
_FACILITY_TILT = np.array(
    [
        [1.3, 0.7, 3.0, 2.0, 0.2, 1.0, 1.0, 0.8],
        [1.3, 0.8, 2.5, 2.0, 0.3, 1.0, 1.0, 1.2],
        [0.4, 1.3, 1.0, 0.8, 0.6, 0.6, 0.5, 0.5],
        [1.0, 1.0, 1.3, 1.2, 0.5, 1.0, 1.0, 1.0],
        [0.7, 1.0, 1.1, 0.6, 2.0, 1.0, 1.0, 1.3],
        [0.9, 1.0, 1.3, 1.0, 0.7, 2.0, 1.0, 1.5],
        [1.0, 0.8, 2.0, 1.8, 0.6, 1.2, 1.0, 1.1],
    ]
)


# Shares of vacant units, in the order of the levels of dhc_units.
_VACANCIES = np.array([0.22, 0.04, 0.08, 0.04, 0.32, 0.005, 0.295])
# For listed blocks: beta distribution of the occupied share of housing units, persons per occupied
# unit, and persons per address of group quarters relative to a facility above. With the 142 million
# units and 193,000 addresses of 2021 that is 334 million persons, 8.1 million of them in group
# quarters.
_OCCUPIED = (18.0, 2.0)
_PERSONS_PER_UNIT = 2.52
_PERSONS_PER_ADDRESS = 0.35


@dataclass(frozen=True)
class LeafSizes:
    """Distribution of the sizes of leaves, tracts and counties.

    Attributes:
      persons: Mean persons of a leaf.
      log_persons: Mean and standard deviation of the logarithm of persons of nonempty leaves.
      empty: Parameters of the beta distribution of the share of empty leaves in a tract.
      largest: Largest number of persons of a leaf.
      leaves: Mean number of leaves of a tract.
      tracts: Smallest mean number of tracts of a county.
      most_counties: Number of counties of a state beyond which counties become larger.
    """

    persons: int = 40
    log_persons: tuple[float, float] = (3.57, 1.05)
    empty: tuple[float, float] = (8, 12)
    largest: int = 4000
    leaves: int = 96
    tracts: float = 8.0
    most_counties: int = 150


_BLOCKS = LeafSizes()
_MOST_COUNTIES = 499  # odd numbers of three digits
# 152,000 enumeration districts of 132 million persons in 3,200 districts of 3,100 counties.
_ENUMERATION_DISTRICTS = LeafSizes(870, (6.62, 0.55), (1, 49), 10_000, 48, 1.03, 400)


def leaf_sizes_of(schema: str) -> LeafSizes:
    """Return the distribution of leaf sizes for a schema."""
    return _ENUMERATION_DISTRICTS if schema == "census1940" else _BLOCKS


@dataclass(frozen=True)
class Tract:
    """Tract to draw.

    Attributes:
      state: Number of the state, from 0.
      county: Number of the county in the state, from 0.
      tract: Number of the tract in the county, from 0.
      n_blocks: Number of blocks.
      subsets: 12-character geocodes of its one or two tract subsets; none without prims.
    """

    state: int
    county: int
    tract: int
    n_blocks: int
    subsets: tuple[str, ...] = ()

    @property
    def geocode(self) -> str:
        """Return the 11-digit geocode: state 2, county 3, tract 6."""
        return f"{self.state + 1:02d}{2 * self.county + 1:03d}{100 * (self.tract + 1):06d}"


@dataclass(frozen=True, eq=False)
class Blocks:
    """Drawn blocks of a tract.

    Attributes:
      geocodes: B sorted geocodes of 15 digits, or of 16 characters with prims.
      housing_units: int64[B, 2], occupied and vacant units.
      facilities: int64[B, 7], group-quarters facilities by type.
      rows: int64[m], block of every entry, increasing.
      cells: int64[m], cell of the schema, increasing within a block.
      counts: int64[m], persons, positive.
      census_geocodes: With prims, the 15-digit geocodes; else none.
      further: Further datasets of these blocks: folder name to rows, cells and counts.
      together: Block, number of the household, and cell of all household members; None if members
        of households are not drawn.
    """

    geocodes: list[str]
    housing_units: IntArray
    facilities: IntArray
    rows: IntArray
    cells: IntArray
    counts: IntArray
    census_geocodes: Sequence[str] = ()
    further: Mapping[str, Entries] = field(default_factory=dict)
    together: Entries | None = None


def plan_tracts(nation: GenerateSpec) -> list[Tract]:
    """Split the blocks into states, counties and tracts; sizes add up to `nation.blocks`."""
    rng = seeded(nation.seed, 0)
    of_states = _split(nation.blocks, rng.lognormal(0, 0.9, nation.states))
    out, places = [], leaf_sizes_of(nation.schema)
    for state, n_blocks in enumerate(of_states):
        sizes = _sizes(seeded(nation.seed, 1, state), int(n_blocks), places.leaves, 0.8, 1500)
        fitting = max(places.tracts, len(sizes) / places.most_counties)
        mean_tracts = max(nation.tracts or fitting, len(sizes) / _MOST_COUNTIES)
        per_county = _sizes(seeded(nation.seed, 2, state), len(sizes), mean_tracts, 0.9, 9000)
        numbers = [(county, t) for county, n in enumerate(per_county) for t in range(n)]
        for (county, number), size in zip(numbers, sizes, strict=True):
            out.append(Tract(state, county, number, int(size)))
    return _with_subsets(nation.seed, out) if nation.with_prims else out


def _with_subsets(seed: int, tracts: Sequence[Tract]) -> list[Tract]:
    """Add tract subsets to the tracts of a nation, county by county."""
    out: list[Tract] = []
    for _, group in groupby(tracts, key=lambda tract: (tract.state, tract.county)):
        county = [*group]
        first = county[0]
        rng = seeded(seed, 8, first.state, first.county)

        def choose(n: int, k: int, rng: np.random.Generator = rng) -> IntArray:
            return np.asarray(rng.choice(n, k, replace=False), np.int64)

        subsets = tract_subsets(choose, first.geocode[:5], len(county))
        out += [replace(tract, subsets=codes) for tract, codes in zip(county, subsets, strict=True)]
    return out


def block_geocodes(nation: GenerateSpec) -> Iterator[str]:
    """Yield the sorted geocodes of all blocks of a nation, without drawing persons."""
    for tract in plan_tracts(nation):
        yield from _geocodes(seeded(nation.seed, 7, tract.state, tract.county, tract.tract), tract)


@dataclass(frozen=True, eq=False)
class ListedBlocks:
    """Blocks of a tract from a public list.

    Attributes:
      geocodes: bytes[B], sorted geocodes of 15 digits.
      housing_units: int64[B]; a tenth becomes vacant, 2.5 persons live in each of the others.
      group_quarters: int64[B], addresses of facilities of any type.
    """

    geocodes: Geocodes
    housing_units: IntArray
    group_quarters: IntArray


def draw_tract(nation: GenerateSpec, tract: Tract, listed: ListedBlocks | None = None) -> Blocks:
    """Draw the persons of one tract; depends only on the arguments.

    Args:
      nation: The specification.
      tract: The tract, with the numbers of its geocode.
      listed: The blocks of the tract; None: draw them too.
    """
    key, size = (tract.state, tract.county, tract.tract), tract.n_blocks
    rng = seeded(nation.seed, 3 if listed is None else 6, *key)
    mix, places = _tract_mix(nation.seed, tract, rng), leaf_sizes_of(nation.schema)
    if listed is None:
        persons, units = _households(rng, size, places)
        facilities, residents = _group_quarters(rng, size, places)
    else:
        occupied = rng.binomial(listed.housing_units, rng.beta(*_OCCUPIED))
        others = rng.lognormal(np.log(_PERSONS_PER_UNIT - 1), 0.15, size)
        persons = occupied + rng.poisson(occupied * others)
        units = np.column_stack([occupied, listed.housing_units - occupied])
        facilities = rng.multinomial(listed.group_quarters, _FACILITIES / _FACILITIES.sum())
        sizes = _FACILITY_SIZES * _PERSONS_PER_ADDRESS * rng.lognormal(-0.3, 0.8, facilities.shape)
        residents = np.ceil(facilities * sizes).astype(np.int64)
    if nation.schema == HOUSEHOLDS:
        persons, residents = units[:, 0], 0 * residents
    drawn = _draw_persons(rng, mix, persons, residents)
    further: dict[str, Entries] = {}
    together = None
    if nation.schema == RESIDENTS:
        household_rng = seeded(nation.seed, 8, *key)
        records = householders(household_rng, units[:, 0], drawn)
        households = drawn_households(household_rng, persons, units[:, 0])
        by_members = by_size(*households, size)
        further[DWELLINGS] = _sparse(np.hstack([units[:, 1:], by_members, facilities]))
        together = members(household_rng, households, records)
    else:
        records = _to_schema(rng, nation.schema, *drawn)
    # Geocodes are drawn between persons and units, to keep the order of random numbers.
    codes = _geocodes(rng, tract) if listed is None else listed.geocodes.astype(np.str_).tolist()
    if nation.schema == HOUSEHOLDS:
        further = _units_of(rng, records, units, facilities)
    elif nation.with_prims:
        further[REDISTRICTING] = _to_schema(rng, "pl94", *drawn)
    of_prims = block_codes(tract.subsets, codes) if nation.with_prims else codes
    census = codes if nation.with_prims else ()
    return Blocks(of_prims, units, facilities, *records, census, further, together)


def _units_of(
    rng: np.random.Generator, households: Entries, units: IntArray, facilities: IntArray
) -> dict[str, Entries]:
    """Return housing units and facilities by block, in the schemas dhc_units and h1_units.

    Args:
      rng: Random generator.
      households: Block, cell and number of households.
      units: int64[B, 2], occupied and vacant units.
      facilities: int64[B, 7], facilities by type of group quarters.
    """
    tenure = tenure_of(rng.random, schema_named(HOUSEHOLDS), households, len(units))
    vacant = rng.multinomial(units[:, 1], _VACANCIES)
    pairs = zip(facilities.T, facility_shares(), strict=True)
    by_type = [rng.multinomial(numbers, shares) for numbers, shares in pairs]
    return {
        "dhc_units": _sparse(np.hstack([tenure, vacant, *by_type])),
        "h1_units": _sparse(np.hstack([units, *by_type])),
    }


def _sparse(counts: IntArray) -> Entries:
    """Return rows, cells and counts of nonzero entries."""
    rows, cells = np.nonzero(counts)
    return rows, cells, counts[rows, cells]


def _draw_persons(
    rng: np.random.Generator, mix: FloatArray, persons: IntArray, residents: IntArray
) -> Entries:
    """Draw block, pl94 cell and number of persons.

    Args:
      rng: Random generator.
      mix: float64[8], shares of the population groups in the tract.
      persons: int64[B], persons in households by block.
      residents: int64[B, 7], residents of facilities by type of group quarters.
    """
    size = len(persons)
    minors = np.clip(_GROUP_MINORS * rng.lognormal(0, 0.2), 0, 0.6)
    block_mix = rng.gamma(np.broadcast_to(mix * 10 + 0.01, (size, 8))) + 1e-12
    parts = [(persons, block_mix, minors)]
    for kind in range(7):
        tilted = np.broadcast_to(mix * _FACILITY_TILT[kind], (size, 8))
        parts.append((residents[:, kind], tilted, np.full(8, _FACILITY_MINORS[kind])))
    none = np.zeros(0, np.int64)
    batches = [(none, none, none)]
    for hhgq, (number, weights, minor) in enumerate(parts):
        live = np.flatnonzero(number)
        if len(live) == 0:
            continue
        of_group = np.hstack([_GROUP_CELLS * minor[:, None], _GROUP_CELLS * (1 - minor)[:, None]])
        chance = weights[live] / weights[live].sum(1, keepdims=True) @ of_group
        drawn = rng.multinomial(number[live], chance / chance.sum(1, keepdims=True))
        rows, cells, counts = _sparse(drawn)
        batches.append((live[rows], cells + 252 * hhgq, counts))
    rows, cells, counts = (np.concatenate(column) for column in zip(*batches, strict=True))
    return rows, cells, counts


def seeded(*key: int) -> np.random.Generator:
    """Return a random generator seeded with nonnegative integers."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(list(key))))


def _sizes(
    rng: np.random.Generator, total: int, mean: float, sigma: float, largest: int
) -> IntArray:
    """Draw positive log-normal sizes that add up to the total."""
    count = max(1, round(total / mean), -(-total // largest))
    return _split(total, np.minimum(rng.lognormal(0, sigma, count), 8.0))


def _split(total: int, weights: FloatArray) -> IntArray:
    """Split a total into positive sizes, about in proportion to weights."""
    share = (total - len(weights)) * weights / weights.sum()
    edges = np.rint(np.concatenate(([0.0], np.cumsum(share)))).astype(np.int64)
    return np.asarray(np.diff(edges) + 1, np.int64)


def _tract_mix(seed: int, tract: Tract, rng: np.random.Generator) -> FloatArray:
    """Draw float64[8], shares of 8 population groups; they vary most between tracts."""
    state = seeded(seed, 4, tract.state).dirichlet(_GROUP_WEIGHTS * 60)
    county = seeded(seed, 5, tract.state, tract.county).dirichlet(state * 25 + 1e-3)
    return np.asarray(rng.dirichlet(county * 5 + 2e-3), np.float64)


def _households(
    rng: np.random.Generator, size: int, places: LeafSizes
) -> tuple[IntArray, IntArray]:
    """Draw persons in households, and int64[B, 2] occupied and vacant units, of every block."""
    empty = rng.random(size) < rng.beta(*places.empty)
    drawn = rng.lognormal(*places.log_persons, size) * rng.lognormal(0, 0.2)
    persons = np.where(empty, 0, np.minimum(np.ceil(drawn).astype(np.int64), places.largest))
    per_unit = rng.lognormal(np.log(2.5), 0.15, size)
    occupied = np.minimum(persons, np.ceil(persons / per_unit)).astype(np.int64)
    vacant = rng.poisson(np.where(empty, 0.1, 0.1 * occupied))
    return persons, np.column_stack([occupied, vacant])


def _group_quarters(
    rng: np.random.Generator, size: int, places: LeafSizes
) -> tuple[IntArray, IntArray]:
    """Draw facilities and residents, int64[blocks, types] each; few blocks get most of them."""
    facilities = np.zeros((size, 7), np.int64)
    residents = np.zeros((size, 7), np.int64)
    attraction = rng.lognormal(0, 2.0, size)
    numbers = rng.poisson(_FACILITIES * size * places.persons / _TRACT_PERSONS)
    for kind, number in enumerate(numbers):
        for block in rng.choice(size, number, p=attraction / attraction.sum()):
            facilities[block, kind] += 1
            residents[block, kind] += int(np.ceil(_FACILITY_SIZES[kind] * rng.lognormal(-0.3, 0.8)))
    return facilities, residents


def _group_cells() -> FloatArray:
    """Return float64[8, 126], probabilities of (hispanic, cenrace) in 8 population groups."""
    weights = np.array([0.5, 0.2, 0.12, 0.12, 0.02, 0.3])
    many = np.array([np.prod(weights[list(c)]) * 0.15 ** (len(c) - 2) for c in COMBINATIONS[6:]])
    out = np.zeros((8, 2, 63))
    for race in range(6):
        out[race + 1, 0, race] = 1
    out[7, 0, 6:] = many / many.sum()
    out[0, 1, :6] = [0.22, 0.02, 0.025, 0.004, 0.001, 0.42]
    out[0, 1, 6:] = 0.06 * many / many.sum()
    out[0, 1, COMBINATIONS.index((0, 5))] += 0.25
    return np.asarray(out.reshape(8, 126) / out.reshape(8, 126).sum(1, keepdims=True), np.float64)


_GROUP_CELLS = _group_cells()


def _to_schema(
    rng: np.random.Generator, name: str, rows: IntArray, cells: IntArray, counts: IntArray
) -> Entries:
    """Recode cells of pl94 to those of another schema, summed and sorted by (row, cell)."""
    schema = schema_named(name)
    adult, hispanic, race = cells // 126 % 2, cells // 63 % 2, cells % 63
    if name == "pl94_tables":
        cells = cells % 252
    elif name == "group_quarters":
        cells = cells // 252
    elif name == "block16":
        cells = 8 * adult + np.where(hispanic == 1, 0, np.minimum(race, 6) + 1)
    elif name in (HOUSEHOLDS, "dhc_persons", "census1940"):
        races = np.arange(len(COMBINATIONS))
        if name == HOUSEHOLDS:
            races = np.minimum(races, 6)  # two or more races
        elif name == "census1940":
            races = np.array([c[0] for c in COMBINATIONS])
        add = add_household_details if name == HOUSEHOLDS else add_persons_details
        rows, cells, counts = add(rng.random, schema, races, (rows, cells, counts))
    elif name == "toy":
        male = rng.binomial(counts, 0.49)
        old = [rng.binomial(part * adult, 0.21) for part in (counts - male, male)]
        young = [part - some for part, some in zip((counts - male, male), old, strict=True)]
        cells = np.concatenate([adult, 2 + 0 * adult, 3 + adult, 5 + 0 * adult])
        counts = np.concatenate([young[0], old[0], young[1], old[1]])
        rows = np.tile(rows, 4)
    return summed((rows, cells, counts), schema.size)


def _geocodes(rng: np.random.Generator, tract: Tract) -> list[str]:
    n_groups = min(9, tract.n_blocks, 1 + rng.poisson(tract.n_blocks / _BLOCKS_PER_GROUP * 0.65))
    n_groups = max(n_groups, -(-tract.n_blocks // 900))
    sizes = np.full(n_groups, tract.n_blocks // n_groups)
    sizes[: tract.n_blocks % n_groups] += 1
    return [
        f"{tract.geocode}{group + 1}{block:03d}"
        for group, size in enumerate(sizes)
        for block in range(size)
    ]
