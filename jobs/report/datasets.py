"""What a reader finds in a release: one description per dataset, file and column. Public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.report.headline import Manifest, part, records, rows

LEVEL = "level=…"  # stands for all geolevels of a dataset
_LEAST_ANSWERS = 2  # of the query that an example is about


@dataclass(frozen=True)
class Described:
    """A dataset of all geolevels.

    Attributes:
      path: Where it lies, `LEVEL` for the geolevel.
      levels: The geolevels it is there for; none if it is not cut by geolevel.
      row: What a row is, and what it is good for.
      columns: (name, type, meaning) of each column.
    """

    path: str
    levels: tuple[str, ...]
    row: str
    columns: tuple[tuple[str, str, str], ...]


_GEOCODE = "The geounit, as text: leading zeros belong to it."
_QUERY = "The query, by its name."
_SPARSE = "The last attribute of the schema runs fastest; the first cell is 0."

_ROWS = {
    "measurements": "One geounit and query, with its noisy answers. Use these for inference: the "
    "noise is unbiased and its law is known. Answers may be negative and do not add up.",
    "estimates/tables": "One geounit and query, with the best linear unbiased estimates from all "
    "noisy answers of the tree, their standard errors and intervals. They add up; they may be "
    "negative and are no whole numbers.",
    "estimates/whole": "One geounit: the estimates from all noisy answers of the tree that "
    "das estimate combines for areas. For programs.",
    "estimates/subtree": "One geounit: the estimates from the noisy answers in and below it. For "
    "programs.",
    "counts": "One geounit that has {records}, with its protected counts. Nonnegative whole "
    "numbers that add up over geography. Solving makes small counts lean up and large ones down.",
    "microdata/parquet": "One of the {records} of the protected counts. Tabulating them gives the "
    "protected counts again.",
    "microdata/csv": "One of the {records} of the protected counts, as the Parquet files.",
    "tables": "One geounit, with protected counts by query as CSV.",
    "h1": "One geounit, with table H1 of protected counts as CSV.",
    "invariants": "One geounit and query, with its exact answers: no noise, outside the privacy "
    "guarantee.",
    "given": "One geounit and table of public counts that the {records} must fit, as given.",
    "implied": "One geounit: what the given counts imply for it. For programs.",
    "geography": "One geounit, with its place in the tree.",
}

_COLUMNS = {
    "geocode": _GEOCODE,
    "query": _QUERY,
    "mechanism": "The distribution of the noise, by name.",
    "parameter": "The parameter of that distribution, an exact fraction: σ² or the scale, as the "
    "section on noise has it.",
    "variance": "The variance of the noise of one answer.",
    "positions": "Which answers of a lazy query were drawn: their numbers, the first is 0. Empty "
    "for queries that are drawn completely.",
    "answers": "One whole number per answer, in the order of the labels that _manifest.json has.",
    "estimate": "One estimate per answer, in the order of the labels that _manifest.json has.",
    "standard_error": "The standard error of each estimate.",
    "lower": "Lower end of each interval, at the confidence that _manifest.json has.",
    "upper": "Upper end of each interval.",
    "values": "Estimates in the coordinates of the estimator.",
    "matrices": "Their covariance matrices, packed.",
    "cells": f"Numbers of the cells that are not zero. {_SPARSE}",
    "counts": "The count of each of these cells.",
    "parent": "Geocode of the geounit above; empty at the root.",
    "n_children": "Number of geounits right below.",
    "only_child": "Whether it is the only geounit of its parent, and so is not measured again.",
    "chain_end": "The finest geolevel that shares its measurement.",
    "least": "Fewest {records} of each type, by rows of alike leaves.",
    "most": "Most {records} of each type.",
    "low": "Fewest {records} in all.",
    "high": "Most {records} in all.",
    "row_least": "Least value of each bounded row.",
    "row_most": "Largest value of each bounded row.",
    "H0010001": "All housing units.",
    "H0010002": "Occupied housing units.",
    "H0010003": "Vacant housing units.",
}

_UNLABELLED = (
    "One whole number per answer, in the order of the levels in manifest.json; of several "
    "attributes, the last runs fastest."
)

_FILES = {
    "manifest.json": "Every number on this page, and the digest of every dataset.",
    "report.html": "This page.",
    "ledger.jsonl": "What was granted, what every query of every geounit costs, and which "
    "geolevels were measured; each line carries the digest of the line before.",
    "planned.json": "The planned strategies: the matrices of the queries that were measured.",
    "solves.jsonl": "The settings with which the measurements were solved, and when they changed.",
    "account.json": "All budgets granted for the same people until this was measured, and their "
    "sum.",
    "NOT_FOR_RELEASE.txt": "Says that the noise was seeded for a test.",
}


def described(manifest: Manifest) -> list[Described]:
    """The datasets that the manifest names, each once for all geolevels, as readers want them."""
    kinds: dict[str, list[Manifest]] = {}
    for row in rows(manifest, "outputs"):
        kinds.setdefault(_kind(str(row.get("path"))), []).append(row)
    order = list(_ROWS)
    found = sorted(kinds, key=lambda kind: (_place(order, kind), kind))
    return [_described(manifest, kind, kinds[kind]) for kind in found]


def other_files(manifest: Manifest) -> list[tuple[str, str]]:
    """(path, meaning) of the files beside the datasets."""
    seeded = ["NOT_FOR_RELEASE.txt"] if manifest.get("not_for_release") else []
    held = [str(row.get("path")) for row in rows(manifest, "files")]
    names = dict.fromkeys(["manifest.json", "report.html", *held, *seeded])
    return [(name, _FILES.get(name.removeprefix("units/"), "")) for name in names]


def _kind(path: str) -> str:
    """The path with all geolevels as one."""
    folders = path.split("/")
    return "/".join(LEVEL if name.startswith("level=") else name for name in folders)


def _bare(kind: str) -> str:
    """The key under which a dataset is described."""
    return kind.removeprefix("units/").removesuffix(f"/{LEVEL}")


def _place(order: Sequence[str], kind: str) -> tuple[bool, int]:
    bare = _bare(kind)
    return kind.startswith("units/"), order.index(bare) if bare in order else len(order)


def _described(manifest: Manifest, kind: str, held: Sequence[Manifest]) -> Described:
    counted = "units" if kind.startswith("units/") else records(manifest)
    product = part(manifest, "units") if kind.startswith("units/") else manifest
    attributes = {str(one.get("name")) for one in rows(part(product, "schema"), "attributes")}
    spine = [str(one.get("geolevel")) for one in rows(manifest, "geography")]
    levels = {str(one.get("path")).rpartition("level=")[2] for one in held}
    bare = _bare(kind)

    def meaning(column: str) -> str:
        if bare.startswith("microdata") and column in attributes:
            return f"The level of {column}, by its label."
        if bare == "tables" and column != "geocode":
            return f"The protected counts of {column.partition(':')[0]}, by label."
        if bare in ("invariants", "given") and column == "answers":
            return _UNLABELLED
        return _COLUMNS.get(column, "").replace("{records}", counted)

    types: dict[str, str] = {}
    having: dict[str, list[str]] = {}
    for one in held:
        for column in rows(one, "columns"):
            name = str(column.get("name"))
            types.setdefault(name, str(column.get("type")))
            having.setdefault(name, []).append(str(one.get("path")).rpartition("level=")[2])

    def only(column: str) -> str:
        found = [level for level in spine if level in having[column]]
        return f" Only at {', '.join(found)}." if len(having[column]) < len(held) else ""

    return Described(
        kind,
        tuple(level for level in spine if level in levels) if kind.endswith(LEVEL) else (),
        _ROWS.get(bare, "").replace("{records}", counted),
        tuple((name, shown, meaning(name) + only(name)) for name, shown in types.items()),
    )


# --- the example --------------------------------------------------------------------------------

_READ = '''\
import json
from pathlib import Path

import pandas as pd


def read(dataset, text={"geocode": str}):
    """The rows of a dataset, from the files that its manifest names. Geocodes are text."""
    named = json.loads(Path(dataset, "_manifest.json").read_text("utf-8"))["files"]
    paths = [Path(dataset, one["file"]) for one in named if one["rows"]]
    return pd.concat(
        pd.read_csv(path, dtype=text, keep_default_na=False)
        if path.suffix == ".csv"
        else pd.read_parquet(path)
        for path in paths
    )
'''
_TIDY = '''

def tidy(dataset, query, *values):
    """One row per geounit and answer of a query, with the label of the answer."""
    found = read(dataset)
    found = found[found["query"] == query]
    facts = json.loads(Path(dataset, "_manifest.json").read_text("utf-8"))["facts"]
    labels = next(one["labels"] for one in facts["queries"] if one["query"] == query)
    found = found.assign(label=[labels] * len(found))
    return found.explode(["label", *values]).astype(dict.fromkeys(values, float))
'''


def example(manifest: Manifest) -> str:
    """Python that reads what there is of this release, to be run in its folder."""
    lines = []
    spine = [str(one.get("geolevel")) for one in rows(manifest, "geography")]
    there = {str(row.get("path")) for row in rows(manifest, "outputs") if row.get("rows")}
    measured = _measured(manifest, there, spine)
    if measured is not None:
        level, query = measured
        path = f"measurements/level={level}"
        lines.append(f'noisy = tidy("{path}", {query!r}, "answers")')
        path = f"estimates/tables/level={level}"
        if path in there:
            ends = '"estimate", "standard_error", "lower", "upper"'
            tabulated = _labelled(manifest, path)[-1]
            lines.append(f'estimates = tidy("{path}", {tabulated!r}, {ends})')
    has_tidy = bool(lines)
    for name, folder in (("counts", "counts"), ("tables", "tables")):
        level = next((one for one in spine[1:] + spine if f"{folder}/level={one}" in there), "")
        if level:
            cells = '.explode(["cells", "counts"])' if name == "counts" else ""
            lines.append(f'{name} = read("{folder}/level={level}"){cells}')
    people = {"microdata/parquet": "", "microdata/csv": ", str"}
    path = next((path for path in people if path in there), "")
    if path:
        lines.append(f'{records(manifest)} = read("{path}"{people[path]})')
    return "\n".join([_READ + (_TIDY if has_tidy else ""), "", *lines])


def _measured(manifest: Manifest, there: set[str], spine: Sequence[str]) -> tuple[str, str] | None:
    """A geolevel, not the root if there is another, and a labelled query measured there in full."""
    lazy = part(manifest, "privacy").get("lazy_queries") or []
    found = []
    for row in rows(manifest, "budget"):
        level, query = str(row.get("geolevel")), str(row.get("query"))
        path, size = f"measurements/level={level}", int(row.get("answers") or 0)
        is_root = not spine or level == spine[0]
        labelled = path in there and query in _labelled(manifest, path)
        if labelled and (is_root or query not in lazy):
            depth = spine.index(level) if level in spine else len(spine)
            found.append((is_root, depth, size < _LEAST_ANSWERS, size, level, query))
    return min(found)[-2:] if found else None


def _labelled(manifest: Manifest, path: str) -> list[str]:
    """The queries of which a dataset has the labels of all answers."""
    held = next((row for row in rows(manifest, "outputs") if row.get("path") == path), {})
    names = held.get("labelled")
    return [str(name) for name in names] if isinstance(names, list) else []
