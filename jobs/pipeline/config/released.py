"""The configuration that a release carries: all of a run file that does not point at the office.

With it whatever needs the release alone works on its folder, wherever that was copied. Left out are
the input, the account, the grant, the seed of a test, where and how it ran, and the folders of
public files; the list of geounits is that of the release itself.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from das.errors import ConfigError, OutputError
from jobs.pipeline.config.between import tied_products
from jobs.pipeline.config.files import (
    absolute,
    absolute_path,
    read_model,
    read_run_file,
    refuse_other_folders,
    without_inputs,
)
from jobs.pipeline.config.models.allocation import AllocationFile
from jobs.pipeline.config.models.data import NmfData
from jobs.pipeline.config.models.values import SURVEY
from jobs.pipeline.config.product import Product, Resolved
from jobs.pipeline.config.resolve import Places, resolve_product
from jobs.pipeline.config.schema import read_schema
from jobs.pipeline.documents.manifest import read_manifest
from jobs.pipeline.storage.layout import ReleaseLayout, product_confidential, received_release
from jobs.pipeline.storage.place import Place, StoredPlace

RUN_FILE = "run.yaml"
_HEAD = """\
# The public part of the configuration of this release, with which `das estimate`, `das verify`
# and `das inspect` need its folder alone. It runs nothing: the data are not here.
"""


def released_configuration(resolved: Resolved) -> dict[str, str]:
    """Files of the public part of a configuration, YAML text by name."""
    config, files = resolved.config, dict[str, str]()
    products = {}
    for name, product in config.products.items():
        schema, allocation = f"{name}-schema.yaml", f"{name}-allocation.yaml"
        files[schema] = yaml_text(public_document(read_schema(product.schema_)))
        if product.privacy.allocation is None:
            raise ValueError("a run without an allocation was measured")
        files[allocation] = yaml_text(
            public_document(read_model(product.privacy.allocation, AllocationFile))
        )
        document = public_document(product)
        document |= {"schema": schema, "data": {"format": "withheld"}}
        document["privacy"]["allocation"] = allocation
        document.pop("evaluate", None)
        if isinstance(product.data, NmfData):  # public itself
            document["data"] = public_document(product.data)
        products[name] = document
    geography = public_document(config.geography)
    if config.geography.geounits is not None:
        leaf = ReleaseLayout(Path("..")).geography(config.geography.levels[-1].name)
        geography["geounits"] = {"path": str(leaf)}
    privacy = public_document(config.privacy)
    for key in ("account", "grant", "randomness"):
        privacy.pop(key, None)
    run = {
        "format": config.format,
        "name": config.name,
        "geography": geography,
        "privacy": privacy,
        "products": products,
        **(
            {"between": [public_document(entry) for entry in config.between]}
            if config.between
            else {}
        ),
        "output": {"directory": "../.."},
        "about": public_document(config.about),
    }
    return {RUN_FILE: _HEAD + yaml_text(run), **files}


def load_release(root: Place) -> Resolved:
    """The run of a finished release, from its folder alone.

    Args:
      root: The folder of the release, under any name and in any place, a store too.

    Raises:
      OutputError: It is no finished release, or not whole.
      ConfigError, SchemaError, GeographyError, BudgetError: Its configuration was changed.
    """
    layout = received_release(absolute_path(root))
    if not layout.manifest.is_file():
        raise OutputError(
            str(root), "is no folder of a finished release", want="OUT/release, or a copy of it"
        )
    if _is_of_survey(layout):
        raise ConfigError(
            str(root),
            "is the release of a survey, which has no geounits",
            want="das verify, certificate, report or inspect; means.csv, tables/ and microdata/ "
            "are read as they are",
        )
    manifest = read_manifest(layout)
    path = layout.configuration / RUN_FILE
    if not path.is_file():
        raise OutputError(
            str(path), "is missing", remedy="releases of older versions need their run file"
        )
    file = read_run_file(path)
    written = without_inputs(file.config)
    refuse_other_folders(path, written)
    config = absolute(written, path.parent)
    products: dict[str, Product] = {}
    *others, _ = config.products
    for name in config.products:
        own = layout.product(name) if name in others else layout
        # Nothing is read or written there.
        confidential = product_confidential(config.output.roots, None, name)
        places = Places(own, confidential, own.planned)
        digest = manifest.configuration_digest
        made = resolve_product(config, name, file, digest, products, places)
        plan = dataclasses.replace(made.plan, not_for_release=manifest.not_for_release)
        products[name] = dataclasses.replace(made, plan=plan)
    return Resolved(config, path, tied_products(config, path, products))


def is_survey_release(root: Place) -> bool:
    """Whether a folder is the release of a survey, or of a solution beside one.

    Raises:
      OutputError: Something else than plain files lies in it.
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
    """What a model says beyond defaults; of paths their names."""
    document = _plain(model.model_dump(by_alias=True, exclude_defaults=True))
    return dict(document)


def _plain(value: object) -> Any:  # noqa: ANN401 - whatever a model holds
    if isinstance(value, Path | StoredPlace):
        return value.name
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, bool | int | float) or value is None:
        return value
    return str(value)


def yaml_text(document: Mapping[str, Any]) -> str:
    """A document as YAML, keys in their order."""
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100))
