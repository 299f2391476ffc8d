"""Read a run file and everything it names into checked values; errors name file and key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic import BaseModel

from das.errors import ConfigError, SchemaError
from das.queries.query import parse_query
from jobs.pipeline.config.between import tied_products
from jobs.pipeline.config.digest import run_digest
from jobs.pipeline.config.files import RunFile, absolute, absolute_path, named, read_run_file
from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.config.places import refuse_tangled
from jobs.pipeline.config.product import Product, Resolved
from jobs.pipeline.config.resolve import Places, resolve_product
from jobs.pipeline.config.schema import load_schema
from jobs.pipeline.storage.layout import product_confidential, product_release
from jobs.pipeline.storage.place import Place

# Folders and files beside those of other products, and keys beside their names in documents.
_TAKEN = {
    *("geography", "measurements", "lazy_measurements", "invariants", "given", "implied", "tied"),
    "support",
    *(
        "estimates",
        "counts",
        "microdata",
        "joined",
        "tables",
        "h1",
        "histograms",
        "keys",
        "solutions",
    ),
    *("configuration", "schemas", "intervals", "about"),
    *("schema", "data", "privacy", "solve", "output", "products", "name", "budget", "limits"),
    *("statements", "leaf", "formulas", "predicted", "optimized", "absent", "closed"),
    *("without_estimates", "together"),
}


def load_run(
    path: Path,
    *,
    output: Place | None = None,
    confidential: Place | None = None,
    master: str | None = None,
    solution: str | None = None,
    groups: Sequence[str] | None = None,
) -> Resolved:
    """Read a run file and everything it names.

    Args:
      path: The run file; relative paths in it are relative to its folder.
      output: Replaces `output.directory`.
      confidential: Replaces `output.confidential`.
      master: Replaces `runtime.master`.
      solution: Name of a solution beside the release.
      groups: Replace `evaluate.groups` of each product, those that its schema knows.

    Raises:
      ConfigError, SchemaError, GeographyError, BudgetError: Something in it cannot be used; the
        message names the file and the key.
    """
    check_solution_name(solution)
    folder = absolute_path(path).parent
    file = read_run_file(path)
    config = absolute(file.config, folder)
    if output is not None:
        config = _with(config, "output", directory=absolute_path(output))
    if confidential is not None:
        config = _with(config, "output", confidential=absolute_path(confidential))
    if master is not None:
        config = _with(config, "runtime", master=master)
    if groups is not None:
        config = _with_groups(config, groups)
    return _resolve(config, file, solution)


def load_plan(
    path: Path,
    wanted: Sequence[str] | None = None,
    allocation: Path | None = None,
    master: str | None = None,
    product: str | None = None,
) -> Resolved:
    """Read a run file to plan with it.

    Args:
      path: The run file.
      wanted: Tables that an allocation is to be made for, beside those of the run: the product that
        is planned, where it names no allocation, then has even shares of geolevels and of all these
        tables, and any other of its own. None where every product must name one.
      allocation: Allocation file of the product, in the place of that of the run file.
      master: Replaces `runtime.master`.
      product: Which product is planned; None for the last.

    Raises:
      ConfigError, SchemaError, GeographyError, BudgetError: As `load_run`.
    """
    folder = absolute_path(path).parent
    file = read_run_file(path)
    file = replace(file, wanted=None if wanted is None else tuple(wanted))
    config = absolute(file.config, folder)
    if master is not None:
        config = _with(config, "runtime", master=master)
    if product is not None and product not in config.products:
        raise ConfigError("--product", "is unknown", got=product, want=[*config.products])
    planned = [*config.products][-1] if product is None else product
    if allocation is not None:
        privacy = config.products[planned].privacy
        privacy = privacy.model_copy(update={"allocation": absolute_path(allocation)})
        own = config.products[planned].model_copy(update={"privacy": privacy})
        config = config.model_copy(update={"products": {**config.products, planned: own}})
    return _resolve(config, file, None, planned)


def _resolve(
    config: RunConfig, file: RunFile, solution: str | None, planned: str | None = None
) -> Resolved:
    path = file.path
    unplanned = file if file.wanted is None else replace(file, wanted=())
    for own in config.products.values():
        named(str(path), partial(getattr, own, "input"))
    _refuse_taken_names(config, path)
    refuse_tangled(path, config, config.output.roots)
    digest = run_digest(file.config, config)
    products: dict[str, Product] = {}
    *others, _ = config.products
    for name in config.products:
        product_folder = name if name in others else None  # the last has that of the release itself
        places = Places(
            product_release(config.output.directory, solution, product_folder),
            product_confidential(config.output.roots, solution, product_folder),
            product_release(config.output.directory, None, product_folder).planned,
        )
        own_file = file if name == planned else unplanned
        product = resolve_product(config, name, own_file, digest, products, places)
        for other in products.values():
            if other.account_name == product.account_name:
                raise ConfigError(
                    f"{path}: {other.keys}privacy.product",
                    f"is also that of the {name}",
                    got=other.account_name,
                )
        products[name] = product
    return Resolved(config, path, tied_products(config, path, products), solution)


def check_solution_name(name: str | None) -> None:
    """Check that a solution may have this name; it becomes a folder.

    Raises:
      ConfigError: It may not.
    """
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        raise ConfigError("--solution", "is no name", got=name, want="letters, digits, _ and -")


def _refuse_taken_names(config: RunConfig, path: Place) -> None:
    """Refuse names that what is made of the last product has for something else.

    Raises:
      ConfigError: A product before the last has such a name.
    """
    *others, last = config.products
    for name in others:
        if name in _TAKEN:
            raise ConfigError(
                f"{path}: products.{name}",
                f"is the name of a part of what is made of the {last}",
                want=f"none of {sorted(_TAKEN)}",
            )


def _with_groups(config: RunConfig, texts: Sequence[str]) -> RunConfig:
    """The run with other groups; a product that knows none of them keeps its own.

    Raises:
      SchemaError: One is known to no product.
    """
    products, unknown = {}, dict[str, SchemaError]()
    known: set[str] = set()
    for name, product in config.products.items():
        schema, own = load_schema(product.schema_), []
        for text in texts:
            try:
                parse_query(schema, text)
                own.append(text)
            except SchemaError as error:
                unknown[text] = error
        known |= set(own)
        changed = product.evaluate.model_copy(update={"groups": own})
        products[name] = product.model_copy(update={"evaluate": changed}) if own else product
    for text, reason in unknown.items():
        if text not in known:
            raise SchemaError(
                f"--groups: {reason.where}", reason.what, got=reason.got, want=reason.want
            )
    return config.model_copy(update={"products": products})


def _with(config: RunConfig, section: str, **changes: object) -> RunConfig:
    part: BaseModel = getattr(config, section)
    return config.model_copy(update={section: part.model_copy(update=changes)})
