"""Read a run file and everything it names into checked values; errors name file and key."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from das.errors import ConfigError, SchemaError
from das.queries.query import parse_query
from jobs.pipeline.config.files import (
    ModelT,
    absolute,
    absolute_path,
    read_model,
    read_run_file,
)
from jobs.pipeline.config.mistakes import at, refuse_unknown
from jobs.pipeline.config.models.run import Randomness, RunConfig, RuntimeConfig
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.config.resolve import NamedFiles, RunFile, read_named, resolve_products
from jobs.pipeline.config.schema import load_schema
from jobs.pipeline.storage.layout import census_release, release_folder
from jobs.pipeline.storage.place import Place


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
      solution: Name of a further solution; None for the release itself.
      groups: Queries that replace `evaluate.groups` of each product whose schema knows any of them.

    Raises:
      ConfigError, SchemaError, GeographyError, BudgetError: A part of the run file, or a file that
        it names, cannot be used; the message names the file and the key.
    """
    check_solution_name(solution)
    written, config = _read(path, master)
    if output is not None:
        config = _with(config, "output", directory=absolute_path(output))
    if confidential is not None:
        config = _with(config, "output", confidential=absolute_path(confidential))
    if groups is not None:
        config = _with_groups(config, groups)
    return _resolve(path, written, config, solution)


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
      wanted: Tables to plan for, in addition to the tables of the run. A product without an
        allocation then gets equal shares of geolevels and tables: the planned product of all these
        tables, another product of its own tables. None if every product must name an allocation.
      allocation: Allocation file that replaces the one in the run file; None keeps the latter.
      master: Replaces `runtime.master`.
      product: Name of the planned product; None for the last product.

    Raises:
      ConfigError, SchemaError, GeographyError, BudgetError: As `load_run`.
    """
    written, config = _read(path, master)
    planned = [*config.products][-1] if product is None else product
    refuse_unknown("--product", "is unknown", [planned], config.products)
    own = _with(config.products[planned], "solve", learned=None)  # planning solves nothing
    if allocation is not None:
        own = _with(own, "privacy", allocation=absolute_path(allocation))
    config = config.model_copy(update={"products": {**config.products, planned: own}})
    tables = None if wanted is None else {planned: tuple(wanted)}
    return _resolve(path, written, config, wanted=tables)


def load_training(
    path: Path, table: Path, out: Path, seed: int, allocation: Path | None = None
) -> Resolved:
    """Read a run file as that of a simulation on a public table, with its own folder and no budget.

    Args:
      path: The run file, of one product.
      table: The public table, in the input format of the run.
      out: Folder of the simulation.
      seed: Public seed of the noise.
      allocation: Allocation file that replaces the one of the run file; None keeps the latter.

    Raises:
      ConfigError: The run has several products, or invariants by public tables beside its input.
      ConfigError, SchemaError, GeographyError, BudgetError: As `load_run`.
    """
    written, config = _read(path)
    config = _with(config, "output", directory=out, confidential=None)
    config = _with(config, "geography", geounits=None)
    noise = Randomness(source="seeded_not_for_release", seed=seed)
    config = _with(config, "privacy", randomness=noise, account=None)
    (name, product), *others = config.products.items()
    tables = {
        None if entry.released_before else entry.public_table.path
        for entry in product.invariants
        if entry.public_table
    }
    if others or tables - {product.input.path}:
        raise ConfigError(
            str(path),
            "has several products, or invariants by public tables beside its input",
            want="a run file of one product, all of whose public counts are in the input",
        )
    invariants = [
        _with(entry, "table", path=table) if entry.public_table else entry
        for entry in product.invariants
    ]
    product = _with(_with(product, "data", path=table), "solve", learned=None, housing_units=None)
    product = product.model_copy(update={"invariants": invariants})
    if allocation is not None:
        product = _with(product, "privacy", allocation=absolute_path(allocation))
    config = config.model_copy(update={"products": {name: product}})
    return _resolve(path, written, config)


def _read(path: Path, master: str | None = None) -> tuple[RunConfig, RunConfig]:
    """Read a run file as it is written, and with absolute paths and another Spark master."""
    folder = absolute_path(path).parent
    written = read_run_file(path)
    config = absolute(written, folder)
    return written, config if master is None else _with(config, "runtime", master=master)


def _resolve(
    path: Place,
    written: RunConfig,
    config: RunConfig,
    solution: str | None = None,
    wanted: Mapping[str, Sequence[str]] | None = None,
) -> Resolved:
    for product in config.products.values():
        with at(str(path)):
            _ = product.input
    named, out, names = read_named(config), config.output.directory, [*config.products]
    measured = release = census_release(release_folder(out), names)
    if solution is not None:
        release = census_release(release_folder(out, solution), names)
    file = RunFile(
        path,
        config,
        named,
        run_digest(written, named),
        config.privacy.randomness.source != "operating_system",
        measured,
        release,
        solution,
        wanted,
    )
    return Resolved(config, path, resolve_products(file), solution)


class ClusterFile(BaseModel, frozen=True, extra="forbid"):
    """A cluster file: a `runtime` section and nothing else."""

    runtime: RuntimeConfig


def read_cluster(path: Path) -> RuntimeConfig:
    """Read a cluster file.

    Raises:
      ConfigError: The file cannot be read, or is not a valid `runtime` section alone.
    """
    return read_model(path, ClusterFile).runtime


def on_cluster(resolved: Resolved, path: Path | None, master: str | None = None) -> Resolved:
    """Return a run with the runtime of a cluster file; no released value depends on it.

    Args:
      resolved: The run.
      path: The cluster file; None leaves the run as it is.
      master: Replaces the file's master.

    Raises:
      ConfigError: The file cannot be used.
    """
    if path is None:
        return resolved
    config = resolved.config.model_copy(update={"runtime": read_cluster(path)})
    if master is not None:
        config = _with(config, "runtime", master=master)
    return replace(resolved, config=config)


def check_solution_name(name: str | None) -> None:
    """Check that the name of a solution can be the name of its folder.

    Raises:
      ConfigError: The name cannot be used as the name of a folder.
    """
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        raise ConfigError("--solution", "is no name", got=name, want="letters, digits, _ and -")


def _with_groups(config: RunConfig, texts: Sequence[str]) -> RunConfig:
    """Return a run with other `evaluate.groups`; unchanged in products that know none of them.

    Raises:
      SchemaError: No product knows one of the groups.
    """
    products, known = dict(config.products), set[str]()
    unknown = dict[str, SchemaError]()
    for name, product in config.products.items():
        schema, groups = load_schema(product.schema_), list[str]()
        for text in texts:
            try:
                parse_query(schema, text)
                groups.append(text)
            except SchemaError as error:
                unknown[text] = error
        known |= {*groups}
        if groups:
            products[name] = _with(product, "evaluate", groups=groups)
    with at("--groups"):
        for text in texts:
            if text not in known:
                raise unknown[text]
    return config.model_copy(update={"products": products})


def _with(config: ModelT, section: str, **changes: object) -> ModelT:
    part: BaseModel = getattr(config, section)
    return config.model_copy(update={section: part.model_copy(update=changes)})


def run_digest(written: RunConfig, named: NamedFiles) -> str:
    """Compute the SHA-256 of what a run measures.

    It covers the run file and the files that it names, except for name, speed, account,
    post-processing (`solve`, `output`: `jobs.pipeline.folder.solutions`) and `evaluate`. Data paths
    are covered as written, so that a project can move to another folder.

    Args:
      written: The run file, paths as written.
      named: Schema and allocation of each product.
    """
    document = written.model_dump(
        mode="json",
        include={"geography", "privacy", "cross_product_constraints"},
        exclude={"privacy": {"account"}},
    )
    document["products"] = dict[str, Any]()
    later = {"solve", "output", "evaluate"}
    for name, product in written.products.items():
        stated = product.model_dump(mode="json", by_alias=True, exclude=later)
        schema, allocation = named[name]
        stated["schema"] = schema.model_dump(mode="json")
        if allocation is not None:
            stated["privacy"]["allocation"] = allocation.model_dump(mode="json")
        document["products"][name] = stated
    text = json.dumps(document)  # in order: the order of groups numbers the answers
    return hashlib.sha256(text.encode()).hexdigest()
