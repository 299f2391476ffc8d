"""`das generate --like RUN`: invented data in the form that a run file reads, and a run of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml
from pydantic import BaseModel

from das.errors import ConfigError
from das.schema import Schema
from geography.lattice import Spine
from jobs.design.folders import refuse_full
from jobs.design.requests import GenerateSpec
from jobs.design.synthetic.files import FORMATS, GrowingTable, dense_counts
from jobs.design.synthetic.invented import PERSONS, Choice, Inventor, Persons, choices_of
from jobs.pipeline.config.data import FILE_KINDS, layout_of, legal_codes
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.models.data import BlockTableData, DataConfig, HistogramsData, RecordsData
from jobs.pipeline.config.product import Product, Resolved
from jobs.pipeline.input.geounits import list_geounits
from jobs.pipeline.storage.files import writing
from jobs.pipeline.storage.place import StoredPlace

_HEAD = """\
# A rehearsal of {name}, on invented persons, made by `das generate --like`. Nothing here is of
# anybody: delete the folder when you are done.
"""
INVENTED = ", invented data"


def rehearse(run: Path, spec: GenerateSpec, out: Path) -> dict[str, Any]:
    """Write the data of every product of a run file, and the run file that reads them.

    Args:
      run: The run file that is rehearsed; its data need not be there.
      spec: Seed, persons of a product, and leaf geounits if there is no public list.
      out: A new or empty folder.

    Returns:
      Facts: the run file, persons and leaves, and what of the run file is left out.

    Raises:
      ConfigError: The run file cannot be used, or reads a format that is not invented.
      OutputError: The folder holds something or cannot be written.
    """
    refuse_full(out)
    if spec.seed < 0 or spec.blocks < 1 or (spec.persons is not None and spec.persons < 1):
        got = f"seed {spec.seed}, {spec.blocks} leaves, {spec.persons} persons"
        raise ConfigError("generate", "cannot invent these data", got=got)
    resolved = load_run(run)
    for product in resolved.products.values():
        _refuse_other_formats(product)
    leaves = _leaves(resolved, spec.blocks)
    mean = PERSONS if spec.persons is None else spec.persons / len(leaves)
    left_out: list[str] = []
    persons, products = dict[str, int](), dict[str, Any]()
    made = out / "run.yaml"
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        for index, (name, product) in enumerate(resolved.products.items()):
            path = out / "data" / name / _file_name(product.config.input)
            path.parent.mkdir(parents=True)
            persons[name] = _invent(product, leaves, (spec.seed, index), mean, path)
            products[name] = _product(product, path, out, left_out)
        document = _document(resolved, products, out)
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
        made.write_text(_HEAD.format(name=resolved.source.name) + text, encoding="utf-8")
    facts = {"invented": True, "run": str(made), "leaves": len(leaves)}
    return {**facts, "persons": persons, "left_out": left_out}


def _refuse_other_formats(product: Product) -> None:
    data = product.config.data
    if not isinstance(data, RecordsData | BlockTableData | HistogramsData):
        raise ConfigError(
            f"{product.keys}data.format",
            "is not invented",
            got=data.format,
            want="records, block_table or histograms",
        )


def _leaves(resolved: Resolved, about: int) -> list[str]:
    """Geocodes of the public list; without one, invented ones."""
    public, spine = resolved.config.geography.geounits, resolved.plan.census_spine
    if public is None:
        return invented_leaves(spine, about)
    return [code.decode() for code in list_geounits(public, spine).tolist()]


def invented_leaves(spine: Spine, about: int) -> list[str]:
    """Geocodes of a tree with about so many leaves, alike in every geounit.

    >>> invented_leaves(Spine(("country", "village"), (0, 2)), 3)
    ['01', '02', '03']
    """
    codes = ["1".zfill(spine.digits[0]) if spine.digits[0] else ""]
    steps = [*pairwise(spine.digits)]
    for index, (above, digits) in enumerate(steps):
        most = 10 ** (digits - above) - 1
        wanted = (about / len(codes)) ** (1 / (len(steps) - index))
        children = max(1, min(most, round(wanted)))
        codes = [
            f"{code}{child:0{digits - above}d}"
            for code in codes
            for child in range(1, children + 1)
        ]
    return codes


def _invent(
    product: Product, leaves: Sequence[str], seed: tuple[int, ...], mean: float, path: Path
) -> int:
    """Write the data of a product; returns how many records."""
    data, schema = product.config.input, product.plan.schema
    choices = _choices(data, schema) if isinstance(data, RecordsData) else choices_of(schema)
    inventor = Inventor(schema, choices, seed, mean, product.plan.limits.zeros)
    records = 0
    with GrowingTable(path, getattr(data, "delimiter", ",")) as file:
        for drawn in inventor.draw_all(leaves):
            records += len(drawn.rows)
            file.write(_table(data, schema, choices, drawn))
    return records


def _choices(data: RecordsData, schema: Schema) -> list[Choice]:
    """The columns of records, with the values that all attributes read from them have."""
    legal = legal_codes(data, schema)
    of_column: dict[str, list[str]] = {}
    for attribute, entry in data.columns.items():
        of_column.setdefault(entry if isinstance(entry, str) else entry.column, []).append(
            attribute
        )
    choices = []
    for column, attributes in of_column.items():
        first = legal[attributes[0]]
        values = [value for value in first if all(value in legal[one] for one in attributes)]
        if not values:
            raise ConfigError(
                f"data.columns.{attributes[0]}",
                f"has no code that {attributes[1:]} have too, which read the same column",
            )
        levels = {
            one: np.array([legal[one][value] for value in values], np.int64) for one in attributes
        }
        choices.append(Choice(column, tuple(values), levels))
    return choices


def _table(data: DataConfig, schema: Schema, choices: Sequence[Choice], drawn: Persons) -> pa.Table:
    """What is written of some leaves."""
    if isinstance(data, RecordsData):
        rows = pa.array(drawn.rows)
        written = _written(drawn.geocodes, data)
        columns = {name: array.take(rows) for name, array in written.items()}
        for choice in choices:
            values = pa.array(choice.values, pa.string())
            columns[choice.name] = values.take(pa.array(drawn.picks[choice.name]))
        return pa.table(columns)
    if isinstance(data, BlockTableData):
        return _block_table(data, schema, drawn)
    return FORMATS["histograms"](drawn.blocks(), schema)


def _block_table(data: BlockTableData, schema: Schema, drawn: Persons) -> pa.Table:
    layout, blocks = layout_of(data, schema), drawn.blocks()
    dense = dense_counts(blocks, schema)
    columns = _written(blocks.geocodes, data)
    done: set[int] = set()
    for name, cell in layout.columns.items():  # several columns may add to one cell
        columns[name] = pa.array(dense[cell] if cell not in done else 0 * dense[cell])
        done.add(cell)
    for name, mask in layout.checks.items():
        columns[name] = pa.array(dense[mask].sum(axis=0))
    return pa.table(columns)


def _written(geocodes: Sequence[str], data: RecordsData | BlockTableData) -> dict[str, pa.Array]:
    """Geocodes as the file has them: its columns."""
    parts = {data.geocode: [*geocodes]} if isinstance(data.geocode, str) else {}
    start = 0
    for part in () if isinstance(data.geocode, str) else data.geocode:
        parts[part.column] = [code[start : start + part.digits] for code in geocodes]
        start += part.digits
    if data.leading_zeros == "lost":
        for name, codes in parts.items():
            parts[name] = [code.lstrip("0") or "0" if code.isdigit() else code for code in codes]
    return {name: pa.array(codes, pa.string()) for name, codes in parts.items()}


def _file_name(data: DataConfig) -> str:
    """The name of the input, if it is a file's; else of a Parquet file."""
    name = data.path.name
    return name if Path(name).suffix.lower() in FILE_KINDS else f"{name or 'data'}.parquet"


def _product(product: Product, path: Path, out: Path, left_out: list[str]) -> dict[str, Any]:
    """The section of a product, without what invented persons cannot promise."""
    document = dict(_plain(product.config, out))
    document["data"]["path"] = path.relative_to(out).as_posix()
    kept = []
    for index, entry in enumerate(document.get("invariants", [])):
        has_limit = entry.get("at_least") is not None or entry.get("at_most") is not None
        if "facilities" in entry or "living_quarters" in entry or ("row" in entry and has_limit):
            left_out.append(f"{product.keys}invariants.{index}")
            continue
        if entry.pop("table", None) is not None:
            left_out.append(f"{product.keys}invariants.{index}.table")
        kept.append(entry)
    document["invariants"] = kept
    if document.get("solve", {}).pop("housing_units", None) is not None:
        left_out.append(f"{product.keys}solve.housing_units")
    return document


def _document(resolved: Resolved, products: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """The run file; its account, beside the invented data, is nobody's."""
    document = dict(_plain(resolved.config, out))
    document["name"] = f"{document['name']}{INVENTED}"
    geounits = resolved.config.geography.geounits
    if geounits is not None:  # a place of any kind is text by now
        document["geography"]["geounits"]["path"] = _plain(geounits.path, out)
    document["products"] = dict(products)
    document["output"] = {"directory": "out"}
    privacy = document.get("privacy", {})
    if privacy.pop("account", None) is not None and not privacy:
        del document["privacy"]
    return document


def _plain(value: object, out: Path) -> Any:  # noqa: ANN401 - whatever a model holds
    """A model as a run file says it, paths relative to the folder."""
    if isinstance(value, BaseModel):
        value = value.model_dump(by_alias=True, exclude_defaults=True)
    if isinstance(value, Path):
        return Path(os.path.relpath(value, out.resolve())).as_posix()
    if isinstance(value, StoredPlace):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(one, out) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, out) for one in value]
    if isinstance(value, bool | int | float) or value is None:
        return value
    return str(value)
