"""The configuration that a release carries: all of a run file that does not point at the office.

With it whatever needs the release alone works on its folder, wherever that was copied. Left out are
the input, the account, the grant, the seed of a test, where and how it ran, and the folders of
public files; the list of geounits is that of the release itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from das.errors import ConfigError, OutputError
from jobs.pipeline.config.files import (
    absolute,
    absolute_path,
    read_model,
    read_run_file,
    refuse_other_folders,
    with_places,
)
from jobs.pipeline.config.models.allocation import AllocationFile
from jobs.pipeline.config.models.data import NmfData
from jobs.pipeline.config.models.learned import LearnedFile
from jobs.pipeline.config.models.values import SURVEY
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.config.resolve import RunFile, read_named, resolve_products
from jobs.pipeline.config.schema import read_schema
from jobs.pipeline.documents.manifest import read_release
from jobs.pipeline.storage.layout import (
    ReleaseLayout,
    census_release,
    received_release,
)
from jobs.pipeline.storage.place import Place

RUN_FILE = "run.yaml"
_HEAD = """\
# The public part of the configuration of this release, with which `das estimate`, `das verify`
# and `das inspect` need its folder alone. It runs nothing: the data are not here.
"""


def released_configuration(resolved: Resolved) -> dict[str, str]:
    """Return the public part of a configuration: file name -> YAML text."""
    config, files = resolved.config, dict[str, str]()
    run = public_document(config) | {"output": {"directory": "../.."}}
    for key in ("account", "budget_id", "randomness"):
        run.get("privacy", {}).pop(key, None)
    run.pop("runtime", None)
    if config.geography.geounits is not None:
        leaf = ReleaseLayout(Path("..")).geography(config.geography.levels[-1].name)
        run["geography"]["geounits"] = {"path": str(leaf)}
    for name, product in config.products.items():
        schema, allocation = f"{name}-schema.yaml", f"{name}-allocation.yaml"
        if product.privacy.allocation is None:
            raise ValueError("a run without an allocation was measured")
        files[schema] = yaml_text(public_document(read_schema(product.schema_)))
        stated = read_model(product.privacy.allocation, AllocationFile)
        files[allocation] = yaml_text(public_document(stated))
        document = run["products"][name]
        document["schema"], document["privacy"]["allocation"] = schema, allocation
        document.pop("evaluate", None)
        if product.solve.learned is not None and product.solve.learned.file != "self":
            learned = read_model(product.solve.learned.file, LearnedFile)
            files[f"{name}-learned.yaml"] = yaml_text(learned.model_dump(mode="json"))
            document["solve"]["learned"]["file"] = f"{name}-learned.yaml"
        if not isinstance(product.data, NmfData):  # which is public itself
            document["data"] = {"input_format": "withheld"}
    return {RUN_FILE: _HEAD + yaml_text(run), **files}


def load_release(root: Place) -> Resolved:
    """Load the run of a finished release, from its folder alone.

    Args:
      root: The folder of the release, on a disk or in a store.

    Raises:
      OutputError: The folder is not a finished release, or files of the release are missing.
      ConfigError, SchemaError, GeographyError, BudgetError: The configuration in the release was
        changed.
    """
    layout = received_release(absolute_path(root))
    if not layout.manifest.is_file():
        raise OutputError(
            str(root),
            "is not the folder of a finished release",
            want="OUT/release, or a copy of it",
        )
    if _is_of_survey(layout):
        raise ConfigError(
            str(root),
            "is the release of a survey, which has no geounits",
            want="das verify or inspect; means.csv, tables/ and microdata/ are read as they are",
        )
    manifest = read_release(layout.root)
    path = layout.configuration / RUN_FILE
    if not path.is_file():
        raise OutputError(
            str(path),
            "is missing",
            want="the folder of a whole release, not that of a product of it",
        )
    written = read_run_file(path)
    refuse_other_folders(path, written)
    config = absolute(written, path.parent)

    # Nothing is read or written in the confidential folder.
    release = census_release(layout.root, [*config.products])
    digest, is_seeded = manifest.configuration_digest, manifest.not_for_release
    file = RunFile(path, config, read_named(config), digest, is_seeded, release, release)
    return Resolved(config, path, resolve_products(file))


def is_survey_release(root: Place) -> bool:
    """Return whether a folder is the release, or a solution, of a survey.

    Raises:
      OutputError: The folder contains a link, pipe, socket or device.
    """
    return _is_of_survey(received_release(root))


def _is_of_survey(release: ReleaseLayout) -> bool:
    if not release.manifest.is_file():
        return False
    try:
        document = json.loads(release.manifest.read_bytes())
    except (ValueError, RecursionError):  # `read_manifest` says so
        return False
    return isinstance(document, dict) and document.get("kind") == SURVEY


def public_document(model: BaseModel) -> dict[str, Any]:
    """Return the keys of a model that differ from defaults; paths are reduced to file names."""
    return document_of(with_places(model, lambda _, place: Path(place.name)))


def document_of(model: BaseModel) -> dict[str, Any]:
    """Return the keys of a model that differ from defaults, as YAML values."""
    return model.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def yaml_text(document: Mapping[str, Any]) -> str:
    """Return a document as YAML; the keys keep the order of the mapping."""
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100))
