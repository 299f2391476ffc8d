"""The command `das generate --like RUN`: invented data for a run, and their run file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from das.errors import ConfigError
from geography.lattice import Spine
from jobs.design.folders import refuse_full
from jobs.design.requests import GenerateSpec
from jobs.design.synthetic.files import GrowingTable
from jobs.design.synthetic.invented import PERSONS, Choice, Inventor
from jobs.pipeline.confidential.read.formats import writer_of
from jobs.pipeline.confidential.read.reader import Invented, Legal, TableReader
from jobs.pipeline.config.data import FILE_KINDS
from jobs.pipeline.config.files import with_places
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import Product
from jobs.pipeline.config.released import document_of
from jobs.pipeline.config.runnable import require_runnable
from jobs.pipeline.input.geounits import list_geounits
from jobs.pipeline.storage.files import writing
from jobs.pipeline.storage.place import Place, StoredPlace

_HEAD = """\
# A rehearsal of {name} with invented persons, made by `das generate --like`. Nothing here describes
# real persons: delete the folder when you are done.
"""
INVENTED = ", invented data"
_FORMAT = "data.input_format"  # key of the format of the input


def rehearse(run: Path, spec: GenerateSpec, out: Path) -> dict[str, Any]:
    """Write invented data for every product of a run file, and a run file that reads them.

    Args:
      run: The run file to rehearse; its data need not exist.
      spec: Seed, persons per product, and number of leaf geounits if there is no public list.
      out: New or empty folder.

    Returns:
      Facts: the new run file, numbers of persons and leaves, and keys of the run file left out.

    Raises:
      ConfigError: The run file is invalid, or reads a format that cannot be invented.
      OutputError: The folder is not empty or cannot be written.
    """
    refuse_full(out)
    if spec.seed < 0 or spec.blocks < 1 or (spec.persons is not None and spec.persons < 1):
        got = f"seed {spec.seed}, {spec.blocks} leaves, {spec.persons} persons"
        raise ConfigError("generate", "cannot invent these data", got=got)
    resolved = load_run(run)
    require_runnable(resolved)
    writers = {
        name: writer_of(product.config.input, product.plan.schema, f"{product.keys}{_FORMAT}")
        for name, product in resolved.products.items()
    }
    public, spine = resolved.config.geography.geounits, resolved.plan.census_spine
    if public is None:
        leaves = invented_leaves(spine, spec.blocks)
    else:
        leaves = list_geounits(public, spine).astype(np.str_).tolist()
    mean = PERSONS if spec.persons is None else spec.persons / len(leaves)
    left_out: list[str] = []
    persons, products = dict[str, int](), dict[str, Any]()
    made = out / "run.yaml"
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        for index, (name, product) in enumerate(resolved.products.items()):
            file = product.config.input.path.name
            if Path(file).suffix.lower() not in FILE_KINDS:  # a folder
                file = f"{file or 'data'}.parquet"
            path = out / "data" / name / file
            path.parent.mkdir(parents=True)
            choices, plan = _choices(writers[name].legal()), product.plan
            inventor = Inventor(plan.schema, choices, (spec.seed, index), mean, plan.limits.zeros)
            persons[name] = _invent(writers[name], inventor, leaves, path)
            products[name] = _product(product, path, out, left_out)
        document = document_of(with_places(resolved.config, partial(_seen_from, out)))
        document |= {
            "name": f"{document['name']}{INVENTED}",
            "products": products,
            "output": {"directory": "out"},
        }
        privacy = document.get("privacy", {})
        if privacy.pop("account", None) is not None and not privacy:
            del document["privacy"]
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
        made.write_text(_HEAD.format(name=resolved.source.name) + text, encoding="utf-8")
    facts = {"invented": True, "run": str(made), "leaves": len(leaves)}
    return {**facts, "persons": persons, "left_out": left_out}


def invented_leaves(spine: Spine, about: int) -> list[str]:
    """Return geocodes of a regular tree with about this many leaves.

    >>> invented_leaves(Spine(("country", "village"), (0, 2)), 3)
    ['01', '02', '03']
    """
    codes = ["1".zfill(spine.digits[0]) if spine.digits[0] else ""]
    steps = [*pairwise(spine.digits)]
    for index, (above, digits) in enumerate(steps):
        most = 10 ** (digits - above) - 1
        wanted = (about / len(codes)) ** (1 / (len(steps) - index))
        children = max(1, min(most, round(wanted)))
        last = [f"{child:0{digits - above}d}" for child in range(1, children + 1)]
        codes = [code + child for code in codes for child in last]
    return codes


def _invent(writer: TableReader[Any], inventor: Inventor, leaves: Sequence[str], path: Path) -> int:
    """Write the data of a product; return the number of records."""
    records = 0
    with GrowingTable(path, getattr(writer.data, "delimiter", ",")) as file:
        for drawn in inventor.draw_all(leaves):
            records += len(drawn.rows)
            texts = {
                choice.name: pa.array(choice.values, pa.string()).take(drawn.picks[choice.name])
                for choice in inventor.choices
            }
            file.write(writer.write(Invented(drawn.geocodes, drawn.rows, drawn.cells, texts)))
    return records


def _choices(legal: Legal) -> list[Choice]:
    """Return the columns of an input, with values legal for all attributes read from them."""
    choices = []
    for column, attributes in legal.items():
        first, *others = attributes
        shared = set[str].intersection(*map(set, attributes.values()))
        values = [value for value in attributes[first] if value in shared]
        if not values:
            raise ConfigError(
                f"data.columns.{first}",
                f"has no code in common with {others}, which read the same column",
            )
        levels = {
            name: np.array([codes[value] for value in values], np.int64)
            for name, codes in attributes.items()
        }
        choices.append(Choice(column, tuple(values), levels))
    return choices


def _product(product: Product, path: Path, out: Path, left_out: list[str]) -> dict[str, Any]:
    """Return the section of a product, without invariants that invented persons would violate."""
    document = document_of(with_places(product.config, partial(_seen_from, out)))
    document["data"]["path"] = path.relative_to(out).as_posix()
    if document["data"].pop("unique", None):
        left_out.append(f"{product.keys}data.unique")
    kept, stated = [], product.config.invariants
    for index, entry in enumerate(document.get("invariants", [])):
        if not stated[index].is_rehearsed:
            left_out.append(f"{product.keys}invariants.{index}")
            continue
        if entry.pop("table", None) is not None:
            left_out.append(f"{product.keys}invariants.{index}.table")
        kept.append(entry)
    document["invariants"] = kept
    if document.get("solve", {}).pop("housing_units", None) is not None:
        left_out.append(f"{product.keys}solve.housing_units")
    return document


def _seen_from(out: Path, _: tuple[str, ...], path: Place) -> Place:
    """Return a path relative to the folder of the run file; addresses stay unchanged."""
    if isinstance(path, StoredPlace):
        return path
    return Path(os.path.relpath(path, out.resolve()))
