"""Frozen strategies: what was planned for a run folder, kept as integers.

Planning computes in floats, and another machine or library may round otherwise. So the integer
queries and shares of a folder are written when it is first planned, and read back by all that
works on it later: the run that goes on, solving, verifying, estimating.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from das.errors import DasError, OutputError
from das.queries.factor import Factor
from das.queries.query import Query
from das.rational import stated_fraction
from das.strategy import QueryShare
from jobs.pipeline.config.workload import name_with_matrices
from jobs.pipeline.storage.files import create_file, json_text, read_json, understanding
from jobs.pipeline.storage.place import Place

_SHARES = [field.name for field in fields(QueryShare) if field.name != "query"]
_AGAIN = "restore it from a backup; the measurements name the same matrices"


def freeze(path: Place, digest: str, levels: Mapping[str, Sequence[QueryShare]]) -> None:
    """Write what was planned, unless it is there.

    Args:
      path: The file.
      digest: Digest of the configuration that was planned.
      levels: Queries and shares of every planned geolevel, by its name; with " where " and the
        name of a stratum, of those of its records.

    Raises:
      OutputError: It cannot be written, or another start planned otherwise meanwhile.
    """
    factors: dict[str, int] = {}
    described = {
        name: [_described(share, factors) for share in shares] for name, shares in levels.items()
    }
    document = {
        "configuration_digest": digest,
        "factors": [json.loads(text) for text in factors],
        "levels": described,
    }
    text = json_text(document)
    if not create_file(path, text) and path.read_text(encoding="utf-8") != text:
        what = "holds another plan than the one just made"
        raise OutputError(str(path), what, remedy="start again: it is read then")


def read_frozen(path: Place, digest: str) -> dict[str, tuple[QueryShare, ...]]:
    """Read what was planned for a configuration; nothing if that was another one or none.

    Returns:
      Queries and shares, as `freeze` was given them.

    Raises:
      OutputError: The file is damaged, or the store it lies in does not answer.
    """
    with understanding(path):
        if not path.is_file():
            return {}
    document = read_json(path, _AGAIN)
    if document.get("configuration_digest") != digest:
        return {}
    try:
        factors = [
            Factor(np.array(one["matrix"], np.int64), tuple(one["labels"]))
            for one in document["factors"]
        ]
        return {
            name: tuple(_share(entry, factors) for entry in entries)
            for name, entries in document["levels"].items()
        }
    except (DasError, ArithmeticError, KeyError, IndexError, TypeError, ValueError) as error:
        raise OutputError(str(path), "is damaged", got=error, remedy=_AGAIN) from None


def _described(share: QueryShare, factors: dict[str, int]) -> dict[str, Any]:
    """One query; equal factors are written once, and numbered in `factors`."""
    numbers = []
    for factor in share.query.factors:
        text = json.dumps({"labels": list(factor.labels), "matrix": factor.matrix.tolist()})
        numbers.append(factors.setdefault(text, len(factors)))
    values = {name: getattr(share, name) for name in _SHARES}
    exact = {name: None if value is None else str(value) for name, value in values.items()}
    return {"query": share.query.name, "factors": numbers, **exact}


def _share(entry: Mapping[str, Any], factors: Sequence[Factor]) -> QueryShare:
    parts = tuple(factors[number] for number in entry["factors"])
    name = str(entry["query"])
    if name != name_with_matrices(name.partition(" #")[0], parts):
        raise ValueError(f"the matrices of {name}")
    exact = {key: None if entry[key] is None else stated_fraction(entry[key]) for key in _SHARES}
    return QueryShare(Query(name, parts), **exact)  # type: ignore[arg-type]
