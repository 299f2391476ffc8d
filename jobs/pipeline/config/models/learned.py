"""Model of the files of regressions that correct released answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import StringConstraints, model_validator

from jobs.pipeline.config.models.values import Model, Text, Whole


class PublicTable(Model):
    """A public table on which the regressions were trained."""

    name: Text
    """Name of the file."""

    bytes: Whole
    """Size of the file."""

    sha256: Text
    """Digest of the file."""


class ForestConfig(Model):
    """The regression trees of one query; all numbers are integers."""

    constant: Whole
    """Prediction before all trees, in steps of 1/4096."""

    trees: list[Annotated[str, StringConstraints(pattern=r"^-?[0-9]+( -?[0-9]+){21}$")]]
    """For each tree 22 numbers: the feature of each of its 7 nodes, their thresholds in steps of
    1/64, and what each of the 8 leaves adds, in steps of 1/4096."""


class LearnedFile(Model):
    """conf/learned/*.yaml: regressions that `das plan --learn` trained on public counts."""

    format: Literal[1]
    """Format of the file."""

    source: Text
    """Command that made the file."""

    tables: list[PublicTable]
    """The public tables on which the regressions were trained; none: the release of the run."""

    schema_digest: Text
    """Digest of the schema."""

    allocation_digest: Text
    """Digest of the shares of the budget."""

    budget: dict[Text, Text]
    """Privacy definition, neighbors and total of the budget."""

    living_quarters: bool
    """Whether housing units and facilities of every block are known."""

    geolevel: Text
    """Geolevel whose answers are corrected."""

    sketch: list[Text]
    """For each public table, digests of some of its histograms, by which the input of a run is
    recognised if it was trained on."""

    forests: dict[Text, ForestConfig]
    """Regression of each measured query."""

    digest: Text
    """Digest of all other keys, without which the file is not whole."""

    @model_validator(mode="after")
    def _is_whole(self) -> LearnedFile:
        if self.digest != content_digest(self.model_dump(mode="json")):
            raise ValueError("is not the `digest` of the file: it was cut off or changed")
        return self


def content_digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all keys of a file but the digest itself."""
    content = {key: value for key, value in document.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
