"""Files of regressions that correct released answers: read for a run, and written by training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import yaml
from pydantic import BaseModel

from das.errors import ConfigError, OutputError
from das.privacy.budget import Budget
from invariants.constraints import Constraints
from jobs.pipeline.config.files import read_model
from jobs.pipeline.config.models.allocation import AllocationFile
from jobs.pipeline.config.models.learned import LearnedFile, PublicTable, content_digest
from jobs.pipeline.config.models.products import LearnedConfig, SolveConfig
from jobs.pipeline.config.models.schema import SchemaFile
from jobs.pipeline.plan import LearnedCounts
from jobs.pipeline.storage.files import create_file
from jobs.pipeline.storage.place import Place
from solvers.learned.forest import LEAVES, SPLITS, Forest


def digests_of(
    schema: SchemaFile, allocation: AllocationFile | None, budget: Budget, limits: Constraints
) -> dict[str, Any]:
    """Return what regressions hang on: keys of their file, and values of a run."""
    exact = budget.exact()
    return {
        "schema_digest": _digest(schema),
        "allocation_digest": "" if allocation is None else _digest(allocation),
        "budget": {key: exact[key] for key in ("definition", "neighbors", "total")},
        "living_quarters": limits.quarters is not None,
    }


def _digest(model: BaseModel) -> str:
    document = model.model_dump(mode="json", exclude={"name", "source"})
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()


def load_learned(config: LearnedConfig, wanted: Mapping[str, Any]) -> LearnedCounts:
    """Read the regressions of a run.

    Args:
      config: The section `solve.learned` of the run file.
      wanted: Digests of the run, as by `digests_of`.

    Raises:
      ConfigError: The file cannot be read, is not whole, or belongs to another schema, allocation,
        budget, geolevel or knowledge of living quarters.
    """
    if config.file == "self":
        return LearnedCounts(config.geolevels[0], {}, "", "", {}, frozenset(), is_own=True)
    stated = read_model(config.file, LearnedFile)
    for key, value in {**wanted, "geolevel": config.geolevels[0]}.items():
        if getattr(stated, key) != value:
            raise ConfigError(
                str(config.file),
                f"was learned for another {key.removesuffix('_digest')}",
                got=getattr(stated, key),
                want=value,
                remedy="train again with `das plan RUN --learn FILE`, or remove `solve.learned`",
            )
    return read_learned(config.file)


def read_learned(file: Place) -> LearnedCounts:
    """Read the regressions of a file.

    Raises:
      ConfigError: The file cannot be read, or is not whole.
    """
    stated = read_model(file, LearnedFile)
    return LearnedCounts(
        stated.geolevel,
        {
            query: _forest(one.constant, [[*map(int, tree.split())] for tree in one.trees])
            for query, one in stated.forests.items()
        },
        f"{_trained_on(stated.tables)}: {stated.source}",
        stated.digest,
        {table.sha256: table.bytes for table in stated.tables},
        frozenset(" ".join(stated.sketch).split()),
    )


def solve_document(solve: SolveConfig) -> dict[str, Any]:
    """Return the section `solve` as JSON values, with the digest of regressions for their path.

    Args:
      solve: The section.

    Raises:
      ConfigError: The file of the regressions cannot be read.
    """
    document = solve.model_dump(mode="json")
    if solve.learned is not None and solve.learned.file != "self":
        document["learned"]["file"] = read_model(solve.learned.file, LearnedFile).digest
    return document


def _trained_on(tables: Sequence[PublicTable]) -> str:
    names = ", ".join(table.name for table in tables)
    return f"public {names}" if tables else "released counts that were measured again"


def _forest(constant: int, trees: Sequence[Sequence[int]]) -> Forest:
    numbers = np.array(trees, np.int64).reshape(-1, 2 * SPLITS + LEAVES)
    return Forest(constant, *np.split(numbers, [SPLITS, 2 * SPLITS], axis=1))


def forest_document(forest: Forest) -> dict[str, Any]:
    """Return a regression as its file names it."""
    trees = np.hstack([forest.features, forest.thresholds, forest.leaves])
    return {
        "constant": forest.constant,
        "trees": [" ".join(map(str, tree)) for tree in trees.tolist()],
    }


def write_learned(path: Place, document: Mapping[str, Any]) -> None:
    """Write regressions as a new file, with their digest.

    Raises:
      OutputError: The file exists or cannot be written.
    """
    whole = {**document, "digest": content_digest(document)}
    text = yaml.safe_dump(whole, sort_keys=False, allow_unicode=True, width=1000)
    if path.exists() or not create_file(path, text, mode=0o666):
        raise OutputError(str(path), "exists", remedy="name another file or remove it")
