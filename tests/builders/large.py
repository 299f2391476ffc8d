"""Schemas of millions of cells in the shape of summary files, with records, and runs of them.

Attributes are those of persons and households of a census, levels have numbers for names, and the
axis of race is that of the summary files by detailed race and tribe. Records are drawn from a seed:
uneven, since what common people are like depends on the tract, and sparse, as all such data are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from das.arrays import IntArray

_BLOCKS_OF_TRACT, _TRACTS_OF_COUNTY = 40, 20
_RARITY = 1.1  # exponent of Zipf's distribution of the levels of long attributes
_SPREAD = 0.9  # of the logarithms of the records of blocks


@dataclass(frozen=True)
class Large:
    """A schema, what is measured of it, and how many records a block has.

    Attributes:
      name: Of the schema.
      sizes: Levels of each attribute.
      groups: Of recodes, named after the attribute and the number of groups of consecutive levels.
      asked: Measured in every geounit, all answers of them.
      on_demand: Measured where the parent has records; the last of them is detailed.
      support: Queries of the root that say where the on-demand ones finer than the last are drawn.
      zero: Levels that do not go together.
      records: Of a block, on average.
    """

    name: str
    sizes: Mapping[str, int]
    groups: Mapping[str, Sequence[int]]
    asked: Sequence[str]
    on_demand: Sequence[str]
    support: Sequence[str]
    zero: Mapping[str, Sequence[int]]
    records: int

    @property
    def cells(self) -> int:
        """n."""
        return int(np.prod([*self.sizes.values()], dtype=np.int64))

    def schema(self) -> dict[str, Any]:
        """A schema file."""
        attributes = [
            {"name": name, "levels": [str(level) for level in range(size)]}
            for name, size in self.sizes.items()
        ]
        recodes = []
        for name, numbers in self.groups.items():
            for number in numbers:
                parts = np.array_split(np.arange(self.sizes[name]), number)
                labels = {f"{part[0]} to {part[-1]}": [*map(str, part)] for part in parts}
                recodes.append({"name": f"{name}{number}", "attribute": name, "groups": labels})
        return {"name": self.name, "attributes": attributes, "recodes": recodes}

    def allocation(self, levels: Sequence[str]) -> dict[str, Any]:
        """An allocation file: every geolevel and every query alike."""
        queries = [*self.asked, *self.on_demand]
        queries += [query for query in self.support if query not in queries]
        even = {query: f"1/{len(queries)}" for query in queries}
        entries = {name: {"share": f"1/{len(levels)}", "queries": even} for name in levels}
        return {"name": self.name, "source": "Even shares.", "levels": entries}


SF2_PERSONS = Large(
    "sf2_persons",
    {"relgq": 42, "sex": 2, "age": 116, "hispanic": 2, "race": 511},
    {"relgq": (6,), "age": (4, 23), "race": (7,)},
    ("relgq6 * sex", "sex * age4 * hispanic", "hispanic * race"),
    (
        "sex * age23 * hispanic * race",
        "relgq6 * sex * age23 * hispanic * race",
        "detailed",
    ),
    (
        "hispanic * race",
        "sex * age23 * hispanic * race",
        "relgq6 * sex * age23 * hispanic * race",
    ),
    {"relgq": (0, 1, 2), "age": tuple(range(15))},
    40,
)

AIANSF_HOUSEHOLDS = Large(
    "aiansf_households",
    {
        "sex": 2,
        "hhage": 9,
        "hispanic": 2,
        "elderly": 4,
        "tenure": 3,
        "hhtype": 522,
        "tribe": 377,
    },
    {"hhtype": (29, 58), "tribe": (13,)},
    ("sex * hhage", "elderly * tenure * hhtype29", "hispanic * tenure * tribe"),
    (
        "sex * hispanic * tenure * hhtype29 * tribe",
        "sex * hhage * hispanic * tenure * hhtype58 * tribe",
        "detailed",
    ),
    (
        "hispanic * tenure * tribe",
        "sex * hispanic * tenure * hhtype29 * tribe",
        "sex * hhage * hispanic * tenure * hhtype58 * tribe",
    ),
    {"hhage": (7, 8), "elderly": (0,)},
    16,
)

SF2_HOUSEHOLDS = Large(
    "sf2_households",
    {
        "sex": 2,
        "hhage": 9,
        "hispanic": 2,
        "race": 133,
        "elderly": 4,
        "tenure": 3,
        "hhtype": 522,
    },
    {"hhtype": (29, 58), "race": (7,)},
    ("sex * hhage", "elderly * tenure * hhtype29", "hispanic * race * tenure"),
    (
        "sex * hispanic * race * tenure * hhtype29",
        "sex * hhage * hispanic * race * tenure * hhtype58",
        "detailed",
    ),
    (
        "hispanic * race * tenure",
        "sex * hispanic * race * tenure * hhtype29",
        "sex * hhage * hispanic * race * tenure * hhtype58",
    ),
    {"hhage": (7, 8), "elderly": (0,)},
    16,
)

AIANSF_PERSONS = Large(
    "aiansf_persons",
    {"relgq": 42, "sex": 2, "age": 116, "hispanic": 2, "tribe": 1539},
    {"relgq": (6,), "age": (4, 23), "tribe": (13,)},
    ("relgq6 * sex", "sex * age4 * hispanic", "hispanic * tribe"),
    (
        "sex * age23 * hispanic * tribe",
        "relgq6 * sex * age23 * hispanic * tribe",
        "detailed",
    ),
    (
        "hispanic * tribe",
        "sex * age23 * hispanic * tribe",
        "relgq6 * sex * age23 * hispanic * tribe",
    ),
    {"relgq": (0, 1, 2), "age": tuple(range(15))},
    40,
)

SCHEMAS = {
    one.name: one for one in (SF2_PERSONS, SF2_HOUSEHOLDS, AIANSF_PERSONS, AIANSF_HOUSEHOLDS)
}
"""Those of 10, 30, 30 and 85 million cells."""

_GEOLEVELS = {"state": 2, "county": 5, "tract": 11, "block": 15}


def geocodes_of(blocks: int) -> list[str]:
    """Blocks of one state, in order."""
    codes = []
    for block in range(blocks):
        tract = block // _BLOCKS_OF_TRACT
        county, own = divmod(tract, _TRACTS_OF_COUNTY)
        codes.append(f"01{2 * county + 1:03d}{own + 1:06d}{block % _BLOCKS_OF_TRACT + 1000:04d}")
    return codes


def drawn(large: Large, blocks: int, seed: int) -> tuple[IntArray, IntArray]:
    """Draw the records of some blocks.

    Returns:
      int64[r] block, rising, and int64[r] cell of each record.

    Law: sizes of blocks are log-normal, rounded. Levels of a record are independent, given the
    tract; those of attributes of 20 levels and more have Zipf's distribution, in an order of half
    the tract's own. Records of structural zeros are left out.
    """
    rng = np.random.default_rng([seed, large.cells])
    sizes = np.rint(rng.lognormal(np.log(large.records) - _SPREAD**2 / 2, _SPREAD, blocks))
    owner = np.repeat(np.arange(blocks), sizes.astype(np.int64))
    tract = owner // _BLOCKS_OF_TRACT
    codes: dict[str, IntArray] = {}
    for name, size in large.sizes.items():
        weights = 1.0 / np.arange(1, size + 1) ** _RARITY if size >= 20 else rng.uniform(1, 3, size)
        level = rng.choice(size, len(owner), p=weights / weights.sum())
        order = rng.permutation(size)
        shift = rng.integers(0, size, int(tract.max(initial=0)) + 1)
        own = rng.random(len(owner)) < 0.5 if size >= 20 else np.zeros(len(owner), np.bool_)
        codes[name] = order[np.where(own, (level + shift[tract]) % size, level)]
    can_be = ~np.logical_and.reduce(
        [np.isin(codes[name], levels) for name, levels in large.zero.items()]
    )
    cells = np.ravel_multi_index([*codes.values()], [*large.sizes.values()])
    return owner[can_be], cells[can_be].astype(np.int64)


def write_run(large: Large, folder: Path, blocks: int, seed: int = 0) -> Path:
    """Write data, schema, allocation and a run file of them; returns the run file."""
    folder.mkdir(parents=True, exist_ok=True)
    codes = geocodes_of(blocks)
    owner, cells = drawn(large, blocks, seed)
    keys, counts = np.unique(np.column_stack([owner, cells]), axis=0, return_counts=True)
    offsets = np.searchsorted(keys[:, 0], np.arange(blocks + 1))
    lists = (
        pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), one) for one in (keys[:, 1], counts)
    )
    (folder / "histograms").mkdir()
    table = dict(zip(("geocode", "cells", "counts"), (pa.array(codes), *lists), strict=True))
    pq.write_table(pa.table(table), folder / "histograms" / "part-0.parquet")
    pq.write_table(pa.table({"geocode": codes}), folder / "geounits.parquet")
    for name, document in (
        ("schema", large.schema()),
        ("allocation", large.allocation([*_GEOLEVELS])),
        ("run", _run(large)),
    ):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return folder / "run.yaml"


def _run(large: Large) -> dict[str, Any]:
    zero = {name: [str(level) for level in levels] for name, levels in large.zero.items()}
    return {
        "format": 3,
        "name": large.name,
        "geography": {
            "levels": [{"name": name, "digits": digits} for name, digits in _GEOLEVELS.items()],
            "geounits": {"path": "geounits.parquet"},
        },
        "privacy": {"account": "account.jsonl"},
        "products": {
            "persons": {
                "schema": "schema.yaml",
                "data": {"input_format": "histograms", "path": "histograms"},
                "privacy": {
                    "rho": "5",
                    "allocation": "allocation.yaml",
                    "on_demand_queries": [*large.on_demand],
                    "root_support_passes": [*large.support],
                },
                "invariants": [{"query": "total", "geolevel": "state"}, {"zero": zero}],
                "solve": {"fit_to": "level"},
                "output": {"microdata": ["parquet"], "tables": ["total", *large.asked[:2]]},
            }
        },
        "output": {"directory": "out"},
    }
