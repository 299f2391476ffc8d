"""Write a synthetic nation: `das generate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from das.errors import ConfigError, OutputError
from jobs.design.synthetic.files import FORMATS, TOGETHER, NationFiles
from jobs.design.synthetic.listed import BlockList, list_tracts
from jobs.design.synthetic.nation import (
    HOUSEHOLDS,
    Blocks,
    Nation,
    draw_tract,
    places_of,
    plan_tracts,
)
from jobs.design.synthetic.schemas import NAMES, schema_named
from jobs.design.synthetic.survey import SURVEY

_WITHOUT_BLOCKS = ("census1940",)  # its leaves are enumeration districts
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class GenerateSpec:
    """What to generate; equal specifications give equal data.

    Attributes:
      seed: Any nonnegative integer.
      blocks: Number of blocks, exact; give this, `persons` or `listed`.
      persons: Approximate number of persons.
      listed: Public list of the blocks; their number and `states` follow from it.
      states: Number of states, 1 to 99.
      schema: One of `jobs.design.synthetic.schemas.NAMES`.
      format: How persons are written.
      with_prims: Whether blocks are on the spine of eight geolevels
        (`jobs.design.synthetic.prims`); then the redistricting cells of the same persons are
        written too.
      tracts: Mean number of tracts of a county, at least 1; None for one that grows with a state
        of over 150 counties. Not with a list.

    Raises:
      ConfigError: A value is out of range.
    """

    seed: int = 2020
    blocks: int | None = None
    persons: int | None = None
    listed: BlockList | None = None
    states: int = 1
    schema: str = "pl94"
    format: str = "records"
    with_prims: bool = False
    tracts: float | None = None

    def __post_init__(self) -> None:
        if (self.blocks, self.persons, self.listed).count(None) != 2:
            raise ConfigError("generate", "needs exactly one of blocks, persons and a list")
        if self.schema not in NAMES:
            raise ConfigError(
                "generate, schema", "is unknown", got=self.schema, want=f"one of {[*NAMES, SURVEY]}"
            )
        if self.format not in FORMATS:
            raise ConfigError(
                "generate, format",
                "is unknown",
                got=self.format,
                want=f"one of {list(FORMATS)}",
            )
        if not 1 <= self.states <= 99:
            raise ConfigError("generate, states", "is out of range", got=self.states, want="1..99")
        if self.listed is not None and self.schema in _WITHOUT_BLOCKS:
            raise ConfigError("generate, schema", "has no blocks to be listed", got=self.schema)
        if self.listed is None and self.n_blocks < self.states:
            raise ConfigError("generate, blocks", "is too small", got=self.n_blocks,
                              want=f"at least one per state, {self.states}")  # fmt: skip
        if self.with_prims and (self.listed is not None or self.schema in _WITHOUT_BLOCKS):
            raise ConfigError("generate, prims", "are of generated blocks alone")
        if self.tracts is not None and not self.tracts >= 1:
            raise ConfigError("generate, tracts", "is too small", got=self.tracts, want="1 or more")
        if self.seed < 0:
            raise ConfigError("generate, seed", "is negative", got=self.seed)

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return (
            self.blocks
            if self.blocks is not None
            else (self.persons or 0) // places_of(self.schema).persons
        )

    @property
    def nation(self) -> Nation:
        """What is drawn, however it is written."""
        return Nation(
            self.seed, self.states, self.n_blocks, self.schema, self.with_prims, self.tracts
        )


def generate(
    spec: GenerateSpec, out: Path, *, progress: Progress | None = None
) -> dict[str, int | str]:
    """Write a synthetic nation.

    `out/geounits.parquet` lists all blocks with their housing units and group-quarters
    facilities; `out/<format>/` holds the persons; `out/units/` is a block table of occupied and
    vacant housing units and of facilities by type. Who lives in a household lives in an occupied
    unit, and who lives in group quarters lives in a facility of that type, of the same block. With
    prims, `out/redistricting/` holds the same persons in the cells of pl94, as histograms. Of
    households, `out/dhc_units/` and `out/h1_units/` hold the same units in the cells of these
    schemas: a household is in every occupied unit. Of residents, `out/dwellings/` holds units by
    size and facilities, and `out/households/` everybody in a household with its number, from 1 on
    in each block, the householder first.

    Args:
      spec: What to generate.
      out: A folder that does not exist or is empty.
      progress: Called with (finished, all) tracts.

    Returns:
      Facts: numbers of blocks, empty blocks, persons, units, and the paths written.

    Raises:
      OutputError: The folder holds something or cannot be written.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OutputError(str(out), "is not an empty folder", remedy="choose another or remove it")
    schema = schema_named(spec.schema)
    records = "households" if spec.schema == HOUSEHOLDS else "persons"
    facts = {"blocks": 0, "empty_blocks": 0, records: 0, "units": 0}
    paths = {"data": str(out / spec.format), "geounits": str(out / "geounits.parquet")}
    drawn: Iterator[Blocks]
    if spec.listed is None:
        tracts = plan_tracts(spec.nation)
        n_tracts, drawn = len(tracts), (draw_tract(spec.nation, tract) for tract in tracts)
    else:
        listed = list_tracts(spec.listed)
        n_tracts, drawn = len(listed), listed.draw(spec.seed, spec.schema)
    try:
        (out / spec.format).mkdir(parents=True, exist_ok=True)
        with NationFiles(out, spec.format, schema, with_prims=spec.with_prims) as files:
            for done, blocks in enumerate(drawn, 1):
                files.write(blocks)
                facts["blocks"] += len(blocks.geocodes)
                facts["empty_blocks"] += len(blocks.geocodes) - len(np.unique(blocks.rows))
                facts[records] += int(blocks.counts.sum())
                facts["units"] += int(blocks.housing_units.sum() + blocks.facilities.sum())
                paths |= {name: str(out / name) for name in blocks.beside}
                if blocks.together is not None:
                    paths[TOGETHER] = str(out / TOGETHER)
                if progress and (done % 20 == 0 or done == n_tracts):
                    progress(done, n_tracts)
    except OSError as error:
        raise OutputError(str(out), "cannot be written", got=error.strerror) from None
    return {**facts, "tracts": n_tracts, **paths}
