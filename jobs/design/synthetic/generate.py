"""Write a synthetic nation: `das generate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from das.errors import ConfigError
from jobs.design.folders import refuse_full
from jobs.design.requests import GenerateSpec
from jobs.design.synthetic.files import TOGETHER, NationFiles, check_spec
from jobs.design.synthetic.listed import list_tracts
from jobs.design.synthetic.nation import HOUSEHOLDS, Blocks, draw_tract, plan_tracts
from jobs.design.synthetic.own_schema import invent_persons
from jobs.design.synthetic.rehearsal import rehearse
from jobs.design.synthetic.schemas import NAMES, schema_named
from jobs.pipeline.config.mistakes import refuse_unknown
from jobs.pipeline.storage.files import writing
from jobs.pipeline.tasks.progress import Reporter

_WITHOUT_BLOCKS = ("census1940",)  # its leaves are enumeration districts
Progress = Callable[[int, int], None]


def generate_any(spec: GenerateSpec, out: Path, reporter: Reporter) -> dict[str, Any]:
    """Generate what a specification asks for: a rehearsal, or persons of a nation.

    Returns:
      Facts: numbers, and the paths written.

    Raises:
      ConfigError, SchemaError, InputError: The specification cannot be followed.
      OutputError: The folder holds something or cannot be written.
    """
    if spec.like is not None:
        return rehearse(spec.like, spec, out)
    if spec.schema.endswith((".yaml", ".yml")):
        return invent_persons(spec, out)
    what = f"{spec.blocks} blocks" if spec.listed is None else str(spec.listed)
    with reporter.line("generate", what) as tick:
        return {**generate(spec, out, progress=tick)}


def _check(spec: GenerateSpec) -> None:
    """Check what is asked of a nation.

    Raises:
      ConfigError: A value is out of range.
    """
    if spec.schema == "survey":
        raise ConfigError(
            "generate, schema", "is no census", got="survey", want="`das generate-survey`"
        )
    refuse_unknown("generate, schema", "is unknown", [spec.schema], NAMES)
    check_spec(spec)
    if spec.listed is not None and spec.schema in _WITHOUT_BLOCKS:
        raise ConfigError("generate, schema", "has no blocks to be listed", got=spec.schema)
    if spec.with_prims and (spec.listed is not None or spec.schema in _WITHOUT_BLOCKS):
        raise ConfigError("generate, prims", "are of generated blocks alone")
    if spec.tracts is not None and not spec.tracts >= 1:
        raise ConfigError("generate, tracts", "is too small", got=spec.tracts, want="1 or more")


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
      ConfigError: A value of the specification is out of range.
      OutputError: The folder holds something or cannot be written.
    """
    _check(spec)
    refuse_full(out)
    schema = schema_named(spec.schema)
    records = "households" if spec.schema == HOUSEHOLDS else "persons"
    facts = {"blocks": 0, "empty_blocks": 0, records: 0, "units": 0}
    paths = {"data": str(out / spec.format), "geounits": str(out / "geounits.parquet")}
    drawn: Iterator[Blocks]
    if spec.listed is None:
        tracts = plan_tracts(spec)
        n_tracts, drawn = len(tracts), (draw_tract(spec, tract) for tract in tracts)
    else:
        listed = list_tracts(spec.listed, spec)
        n_tracts, drawn = len(listed), listed.draw(spec)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        with NationFiles(out, spec, schema) as files:
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
    return {**facts, "tracts": n_tracts, **paths}
