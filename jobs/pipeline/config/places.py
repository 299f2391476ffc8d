"""Whether the places that a run file names keep apart what must be apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from das.errors import ConfigError
from jobs.pipeline.storage.layout import Roots
from jobs.pipeline.storage.place import Place, StoredPlace, lies_in


def refuse_tangled(path: Place, config: BaseModel, roots: Roots) -> None:
    """Refuse roots that lie in each other, and files of the run file that lie in one.

    What lies in the folder of a run is published, or removed with what is made again.

    Args:
      path: The run file.
      config: What it says, paths absolute.
      roots: Where everything of the run lies.

    Raises:
      ConfigError: Some do.
    """
    out, confidential = roots.out, roots.confidential
    if roots.are_apart and (lies_in(confidential, out) or lies_in(out, confidential)):
        within = "the run folder" if lies_in(confidential, out) else "what must not be published"
        raise ConfigError(
            f"{path}: output.confidential",
            f"and output.directory are not apart: one lies in {within}",
            got=f"{confidential} and {out}",
            want="two folders, neither in the other",
            remedy="leave output.confidential out for OUT/confidential, or name a folder elsewhere",
        )
    for keys, place in _places(config, []):
        root = next((one for one in (out, confidential) if lies_in(place, one)), None)
        if root is not None and keys[0] != "output":
            raise ConfigError(
                f"{path}: {'.'.join(keys)}",
                "lies in the folder of the run",
                got=f"{place} in {root}",
                remedy="keep it elsewhere: what lies there is published, or removed with the run",
            )


def _places(value: object, keys: list[str]) -> Iterator[tuple[list[str], Place]]:
    """All places that a configuration names, each with its keys."""
    if isinstance(value, Path | StoredPlace):
        yield keys, value
    elif isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            yield from _places(getattr(value, name), [*keys, field.alias or name])
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _places(one, [*keys, str(key)])
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _places(one, [*keys, str(index)])
