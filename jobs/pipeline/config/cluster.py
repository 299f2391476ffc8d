"""Where a run works: a cluster file replaces the `runtime` of the run file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from das.errors import ConfigError
from jobs.pipeline.config.models.run import RuntimeConfig
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.config.yaml_file import read_map


class ClusterFile(BaseModel):
    """A cluster file: a `runtime` section and nothing else."""

    model_config = ConfigDict(extra="forbid")

    runtime: RuntimeConfig


def read_cluster(path: Path) -> RuntimeConfig:
    """Read a cluster file.

    Raises:
      ConfigError: It cannot be read, or holds something else than a valid `runtime`.
    """
    try:
        return ClusterFile.model_validate(read_map(path)).runtime
    except ValidationError as error:
        wrong = error.errors()[0]
        key = ".".join(str(part) for part in wrong["loc"])
        said = wrong["msg"].removeprefix("Value error, ")
        want = "a key of `runtime`" if wrong["type"] == "extra_forbidden" else None
        raise ConfigError(f"{path}: {key}", said, want=want) from None


def on_cluster(resolved: Resolved, path: Path | None, master: str | None = None) -> Resolved:
    """The run with the runtime of a cluster file; nothing that is released depends on it.

    Args:
      resolved: The run.
      path: The cluster file; None leaves the run as it is.
      master: Replaces the file's master.

    Raises:
      ConfigError: The file cannot be used.
    """
    if path is None:
        return resolved
    runtime = read_cluster(path)
    if master is not None:
        runtime = runtime.model_copy(update={"master": master})
    return replace(resolved, config=resolved.config.model_copy(update={"runtime": runtime}))
