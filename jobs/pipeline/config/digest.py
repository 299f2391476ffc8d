"""Digest of what fixes the distribution of the measurements, and the exact answers beside them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from jobs.pipeline.config.files import read_model
from jobs.pipeline.config.models.allocation import AllocationFile
from jobs.pipeline.config.models.products import ProductConfig
from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.config.schema import read_schema

# Run files of format 1, as which the digest still writes what it hashes, had these two products.
_UNITS_OF_FORMAT_1, _PERSONS_OF_FORMAT_1 = "units", "persons"
_PRIVACY = ("definition", "rho", "epsilon", "delta", "neighbors", "allocation", "lazy_queries",
            "root_support", "randomness", "product", "grant", "epsilon_from")  # fmt: skip


def run_digest(written: RunConfig, config: RunConfig) -> str:
    """SHA-256 of what a run measures.

    That is the run file without its name, speed, account, what follows from measurements (`solve`,
    `output`: `jobs.pipeline.folder.solutions`) and how it is judged (`evaluate`), with the files it
    names. Data paths count as written, so that a project can move to another folder. The document
    that is hashed has the last product at its top and the others beside it, as run files of format
    1 had
    them: so a folder that was begun with such a file is also that of the same run in format 2.

    Args:
      written: The run file.
      config: The same with absolute paths.
    """
    products = {
        name: _contents(product, config.products[name])
        for name, product in written.products.items()
    }
    *others, last = products
    for name in others:
        privacy = products[name]["privacy"]
        privacy["product"] = privacy["product"] or products[name]["schema"]["name"]
    run = written.model_dump(mode="json", include={"geography", "privacy"})
    own, privacy = products[last], {**run["privacy"], **products[last]["privacy"]}
    document: dict[str, Any] = {
        "schema": own["schema"],
        "data": own["data"],
        "geography": run["geography"],
        "privacy": {key: privacy[key] for key in _PRIVACY if key in privacy},
        "invariants": own["invariants"],
        **{name: products[name] for name in others},
    }
    if [*products] not in (
        [_PERSONS_OF_FORMAT_1],
        [_UNITS_OF_FORMAT_1, _PERSONS_OF_FORMAT_1],
    ):
        document["products"] = [*products]
    if written.between:
        document["between"] = [entry.model_dump(mode="json") for entry in written.between]
    text = json.dumps(document)  # in order: the order of groups numbers the answers
    return hashlib.sha256(text.encode()).hexdigest()


def _contents(written: ProductConfig, config: ProductConfig) -> dict[str, Any]:
    """A product, with what schema and allocation say in the place of their paths."""
    later = {"solve", "output", "evaluate"}
    document = written.model_dump(mode="json", by_alias=True, exclude=later)
    for key, value in (("leading_zeros", "kept"), ("quoting", "double")):
        if document["data"].get(key) == value:  # files could not say more
            del document["data"][key]
    document["schema"] = read_schema(config.schema_).model_dump(mode="json")
    if document["privacy"]["epsilon_from"] == "rho":  # as files said before they could say more
        del document["privacy"]["epsilon_from"]
    if not document["privacy"]["root_support"]:
        del document["privacy"]["root_support"]
    if config.privacy.allocation is not None:
        allocation = read_model(config.privacy.allocation, AllocationFile)
        # What is not named is left out, as allocations were before they could name it.
        unnamed = {key for key in ("mechanism", "strata") if getattr(allocation, key) is None}
        document["privacy"]["allocation"] = allocation.model_dump(mode="json", exclude=unnamed)
    document["invariants"] = [_as_in_format_1(entry) for entry in document["invariants"]]
    return document


def _as_in_format_1(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An invariant; facilities that the units count as format 1 wrote them."""
    if "released" in entry and entry["released"] is None:  # as files were before they could
        entry = {key: value for key, value in entry.items() if key != "released"}
    exact = entry.get("exact")
    if "facilities" not in entry or (exact is not None and exact["product"] != _UNITS_OF_FORMAT_1):
        return dict(entry)
    written = {**entry, "exact": exact and exact["query"]}
    return {_UNITS_OF_FORMAT_1 if key == "exact" else key: value for key, value in written.items()}
