"""The command `das generate`: write a synthetic nation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from das.errors import ConfigError
from jobs.design.folders import refuse_full
from jobs.design.requests import GenerateSpec
from jobs.design.synthetic.files import TOGETHER, NationFiles, check_spec
from jobs.design.synthetic.listed import list_tracts
from jobs.design.synthetic.nation import HOUSEHOLDS, ListedBlocks, Tract, draw_tract, plan_tracts
from jobs.design.synthetic.own_schema import invent_persons
from jobs.design.synthetic.rehearsal import rehearse
from jobs.design.synthetic.schemas import NAMES, schema_named
from jobs.pipeline.config.mistakes import refuse_unknown
from jobs.pipeline.storage.files import writing
from jobs.pipeline.tasks.progress import Reporter

_WITHOUT_BLOCKS = ("census1940",)  # its leaves are enumeration districts
Progress = Callable[[int, int], None]


def generate_any(spec: GenerateSpec, out: Path, reporter: Reporter) -> dict[str, Any]:
    """Generate a rehearsal, invented persons of a schema, or a synthetic nation.

    Returns:
      Facts: numbers of records, and the written paths.

    Raises:
      ConfigError, SchemaError, InputError: The specification is invalid.
      OutputError: The folder is not empty or cannot be written.
    """
    if spec.like is not None:
        return rehearse(spec.like, spec, out)
    if spec.schema.endswith((".yaml", ".yml")):
        return invent_persons(spec, out)
    what = f"{spec.blocks} blocks" if spec.listed is None else str(spec.listed)
    with reporter.line("generate", what) as tick:
        return {**generate(spec, out, progress=tick)}


def _check(spec: GenerateSpec) -> None:
    """Check the options of a nation.

    Raises:
      ConfigError: A value is out of range.
    """
    where = "generate, schema"
    if spec.schema == "survey":
        raise ConfigError(where, "is no census", got="survey", want="`das generate-survey`")
    refuse_unknown(where, "is unknown", [spec.schema], NAMES)
    check_spec(spec)
    if spec.listed is not None and spec.schema in _WITHOUT_BLOCKS:
        raise ConfigError(where, "has no blocks, so --list does not apply", got=spec.schema)
    if spec.with_prims and (spec.listed is not None or spec.schema in _WITHOUT_BLOCKS):
        raise ConfigError(
            "generate, prims", "need generated blocks: remove --list from the command"
        )
    if spec.tracts is not None and not spec.tracts >= 1:
        raise ConfigError("generate, tracts", "is too small", got=spec.tracts, want="1 or more")


def generate(
    spec: GenerateSpec, out: Path, *, progress: Progress | None = None
) -> dict[str, int | str]:
    """Write a synthetic nation.

    Written below `out`:

    - `geounits.parquet`: all blocks with housing units and group-quarters facilities.
    - `<format>/`: the persons or households.
    - `units/`: block table of occupied and vacant units, and of facilities by type. Persons live in
      occupied units or in facilities of their type in the same block.
    - `redistricting/` (with prims): the same persons in the cells of pl94, as histograms.
    - `dhc_units/`, `h1_units/` (households): the same units in the cells of these schemas; every
      occupied unit has a household.
    - `dwellings/`, `households/` (residents): units by size and facilities; and all persons in
      households with the number of their household, from 1 in each block, householders first.

    Args:
      spec: What to generate.
      out: New or empty folder.
      progress: Called with (finished, total) tracts.

    Returns:
      Facts: numbers of blocks, empty blocks, persons and units, and the written paths.

    Raises:
      ConfigError: A value of the specification is out of range.
      OutputError: The folder is not empty or cannot be written.
    """
    _check(spec)
    refuse_full(out)
    schema = schema_named(spec.schema)
    records = "households" if spec.schema == HOUSEHOLDS else "persons"
    facts = {"blocks": 0, "empty_blocks": 0, records: 0, "units": 0}
    paths = {"data": str(out / spec.format), "geounits": str(out / "geounits.parquet")}
    tracts: list[tuple[Tract, ListedBlocks | None]]
    if spec.listed is None:
        tracts = [(tract, None) for tract in plan_tracts(spec)]
    else:
        tracts = [*list_tracts(spec.listed, spec)]
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        with NationFiles(out, spec, schema) as files:
            for done, (tract, listed) in enumerate(tracts, 1):
                blocks = draw_tract(spec, tract, listed)
                files.write(blocks)
                facts["blocks"] += len(blocks.geocodes)
                facts["empty_blocks"] += len(blocks.geocodes) - len(np.unique(blocks.rows))
                facts[records] += int(blocks.counts.sum())
                facts["units"] += int(blocks.housing_units.sum() + blocks.facilities.sum())
                paths |= {name: str(out / name) for name in blocks.further}
                if blocks.together is not None:
                    paths[TOGETHER] = str(out / TOGETHER)
                if progress and (done % 20 == 0 or done == len(tracts)):
                    progress(done, len(tracts))
    return {**facts, "tracts": len(tracts), **paths}
