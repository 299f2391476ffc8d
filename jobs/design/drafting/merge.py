"""Draft a further product for the places of an existing run file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from das.errors import ConfigError, DasError, OutputError
from jobs.design.drafting.geolevels import Geolevel
from jobs.design.drafting.recode import Recoded, read_list
from jobs.design.drafting.texts import RunText, drafted_text
from jobs.design.requests import DraftRequest
from jobs.pipeline.confidential.look import look_at
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.mistakes import refuse_unknown
from jobs.pipeline.config.models.values import GeocodeTable
from jobs.pipeline.config.runnable import require_runnable
from jobs.pipeline.config.yaml_file import root_node
from jobs.pipeline.storage.files import writing
from jobs.pipeline.storage.place import Place
from jobs.pipeline.storage.stores.store import OWNER_ONLY


def places_of(
    request: DraftRequest, run_file: Path, rows: int
) -> tuple[DraftRequest, Recoded | None, Place]:
    """Read the places of an existing run file.

    Args:
      request: Options of `das init`.
      run_file: The run file.
      rows: Most rows to read of a table of geocodes.

    Returns:
      The options with geolevels and list of the run file; the table of geocodes, if the codes of
      the office are no geocodes; and the path of this table.

    Raises:
      ConfigError: The run file cannot be used, or has a product of the name.
      OutputError: The run file of both exists.
    """
    config = load_run(run_file).config
    if request.product in config.products:
        what = f"is a product of {run_file} already"
        raise ConfigError("--product", what, got=request.product, want="another name")
    if (copy := _copy_of(run_file, request)).exists():
        raise OutputError(str(copy), "exists", remedy="name another product, or remove it")
    _place_of(run_file)
    geography = config.geography
    levels = [Geolevel(level.name, level.digits) for level in geography.levels]
    stated = tuple(f"{level.name} {level.digits}" for level in levels)
    path = None if geography.geounits is None else geography.geounits.path
    request = replace(request, geolevels=stated, geounits=path)
    code = getattr(next(iter(config.products.values())).input, "geocode", None)
    if geography.geounits is None or not isinstance(code, GeocodeTable):
        return request, None, request.folder
    look = look_at(code.table, rows)
    names = {**geography.geounits.names}
    listed = read_list(code.table, look)
    known = [column.name for column in look_at(request.data, 1, request.delimiter).columns]
    refuse_unknown(str(request.data), "lacks a column of geocodes", code.columns, known)
    return request, Recoded(tuple(code.columns), tuple(levels), names, listed), code.table


def merge(text: RunText, run_file: Path) -> Path:
    """Write a copy of a run file that has the drafted product as its first.

    The copy lies beside the run file, so that relative paths stay right.

    Returns:
      The path of the copy. The drafted run file of the product alone is removed.

    Raises:
      OutputError: The copy cannot be written.
      ConfigError: The products do not fit together.
    """
    request = text.request
    copy = _copy_of(run_file, request)
    lines = run_file.read_text(encoding="utf-8").splitlines()
    head, indent = _place_of(run_file)
    moved = replace(text, request=replace(request, folder=run_file.parent))
    folder = Path(os.path.relpath(request.folder.resolve(), run_file.parent.resolve()))
    named = {"folder": f"{folder.as_posix()}/", "is_planned": True}
    entry = drafted_text("product", moved, **named).rstrip("\n")
    block = "\n".join(" " * indent + line[2:] for line in entry.split("\n"))
    with writing(copy):
        copy.touch(OWNER_ONLY)  # levels come from the confidential file
        copy.write_text("\n".join([*lines[:head], block, *lines[head:], ""]), "utf-8")
    try:
        require_runnable(load_run(copy))
    except DasError:
        copy.unlink()
        raise
    (request.folder / "run.yaml").unlink()
    return copy


def _place_of(run_file: Path) -> tuple[int, int]:
    """Return the line, from 0, and the indent in characters of a first product of a run file.

    Raises:
      ConfigError: The products are not indented lines.
    """
    document: Any = root_node(run_file)
    for key, value in document.value:
        if key.value == "products" and not (document.flow_style or value.flow_style):
            return key.end_mark.line + 1, value.value[0][0].start_mark.column
    raise ConfigError(
        f"{run_file}, products",
        "are not written as a block",
        want="a line `products:`, and below it an indented line for each product",
        remedy="write them so, without braces around products",
    )


def _copy_of(run_file: Path, request: DraftRequest) -> Path:
    return run_file.with_name(f"{run_file.stem}-{request.product}{run_file.suffix}")
