"""Describe the datasets, files and columns of a release, and write its README.

This module uses published facts only, nothing confidential.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from importlib.resources import files
from typing import Any

import yaml

from jobs.pipeline.config.between import NUMBER
from jobs.pipeline.config.models.run import AboutConfig
from jobs.pipeline.config.product import file_stems
from jobs.pipeline.documents.account import covering
from jobs.pipeline.documents.codebook import Codebook, CodedColumn, CodedDataset
from jobs.pipeline.documents.manifest import Manifest, Output, ReleasedFile, ReleaseManifest
from jobs.pipeline.language import prose, tr
from jobs.pipeline.neighborhoods import FROM_DATA
from jobs.pipeline.report import text
from jobs.pipeline.report.budget import Spending, relations, stated_loss
from jobs.pipeline.report.page import Block, Prose, Section, render
from jobs.pipeline.report.table import Table, codes, numbers
from jobs.pipeline.storage.columns import TEXT

LEVEL = "level=…"  # stands for all geolevels of a dataset
_ABOVE = "../../"  # from the folder of a product to that of the release
_LEAST_ANSWERS = 2  # of the query that an example is about


_TEXTS: dict[str, Any] = yaml.safe_load(
    (files("jobs.pipeline.report") / "descriptions.yaml").read_text("utf-8")
)
_ROWS: dict[str, str] = _TEXTS["rows"]
FILES: dict[str, str] = _TEXTS["files"]


def described(manifest: Manifest) -> list[CodedDataset]:
    """Describe the datasets of the manifest, each once for all geolevels."""
    kinds: dict[str, list[Output]] = {}
    for output in manifest.outputs:
        kinds.setdefault(_kind(output.path), []).append(output)
    order = list(_ROWS)

    def place(kind: str) -> tuple[int, str]:
        bare = _bare(kind)
        return order.index(bare) if bare in order else len(order), kind

    return [_described(manifest, kind, kinds[kind]) for kind in sorted(kinds, key=place)]


def census_levels(manifest: Manifest) -> list[str]:
    """Return the geolevels whose geounits have both a spine and a census geocode."""
    having = {
        output.path.removeprefix(_ABOVE)
        for output in manifest.outputs
        if any(column.name == "census_geocode" for column in output.columns)
    }
    return [level for level in manifest.levels if f"geography/level={level}" in having]


def _use_of(dataset: CodedDataset) -> str:
    """Classify a dataset as exact, noisy, an estimate, protected or a working file."""
    path = _bare(dataset.path)
    return next((kind for kind, paths in _TEXTS["uses"].items() if path in paths), "working file")


def other_files(manifest: ReleaseManifest, meaning: Callable[[str], str]) -> list[tuple[str, str]]:
    """List (path, meaning) of the files that are not datasets.

    Args:
      manifest: Manifest of the release.
      meaning: Returns the purpose of the file at a path.
    """
    seeded = ["NOT_FOR_RELEASE.txt"] if manifest.not_for_release else []
    files = [file.path for file in manifest.files]
    names = dict.fromkeys(["manifest.json", "report.html", *files, *seeded])
    return [(name, meaning(name)) for name in names]


def census_files(manifest: Manifest) -> list[tuple[str, str]]:
    """List (path, meaning) of the files of a census release that are not datasets."""
    return other_files(manifest, meaning_of_file)


def with_shared(
    manifest: Manifest, outputs: Iterable[Output], files: Iterable[ReleasedFile]
) -> Manifest:
    """Return the manifest of a product, with the datasets and files that all products share.

    Args:
      manifest: The manifest.
      outputs: Datasets in the folder of the release.
      files: Other files in the folder of the release. Its README, which is written last, is left
        out.
    """
    above = (replace(one, path=f"{_ABOVE}{one.path}") for one in outputs)
    known = (one for one in files if one.path != "README.md")
    files = (replace(one, path=f"{_ABOVE}{one.path}") for one in known)
    return replace(manifest, outputs=(*manifest.outputs, *above), files=(*manifest.files, *files))


def meaning_of_file(path: str) -> str:
    """Return the purpose of a file that is not a dataset; empty if unknown."""
    name = path.removeprefix(_ABOVE)
    by_ending = (text for ending, text in _TEXTS["endings"].items() if name.endswith(ending))
    return tr(FILES.get(name) or next(by_ending, ""))


def files_section(
    outputs: Sequence[Output], values: Mapping[str, object], *tables: Table
) -> Section:
    """List every file and say how to read it.

    Args:
      outputs: The datasets.
      values: Variables of `files.html.j2`: meanings, other files, an example and a remark.
      tables: Further tables, shown below the table of datasets.
    """
    lead = tr("All tables are Parquet or CSV; every dataset names its files and their digests.")
    columns = [
        codes(tr("Path"), (output.path for output in outputs)),
        numbers(tr("Rows"), (output.rows for output in outputs)),
        numbers(tr("Size"), (output.bytes for output in outputs), text.size),
        codes("SHA-256", (output.sha256 for output in outputs)),
    ]
    table = Table.of("files", tr("Files of the release"), columns)
    blocks: list[Block] = [Prose("files.html.j2", values), table, *tables]
    return Section("files", tr("Files and how to read them"), lead, blocks)


def _kind(path: str) -> str:
    """Return the path of a dataset with one placeholder for all geolevels."""
    folders = path.split("/")
    return "/".join(LEVEL if name.startswith("level=") else name for name in folders)


def _bare(kind: str) -> str:
    """Return the key of `_ROWS` for a kind of datasets."""
    return kind.removeprefix(_ABOVE).removesuffix(f"/{LEVEL}")


def _described(manifest: Manifest, kind: str, outputs: Sequence[Output]) -> CodedDataset:
    bare, counted = _bare(kind), manifest.records
    meanings: dict[str, str] = _TEXTS["columns"]
    attributes = {attribute.name for attribute in manifest.schema.attributes}
    census = census_levels(manifest)
    levels = {_level(output) for output in outputs}

    def meaning(column: str) -> str:
        if column == "geocode" and census:
            return f"{tr(meanings[column])} {_whose(manifest, census, bare, levels)}"
        if bare.startswith(("microdata", "joined")) and column in attributes:
            return tr("The level of {column}, by its label.", column=column)
        if bare.startswith("joined") and column != "geocode":
            units = outputs[0].columns[1].name.removesuffix(f"_{NUMBER}")
            what = column.removeprefix(f"{units}_")
            if what == NUMBER:
                return prose("column.unit", units=units)
            return tr("The level of {column} of its unit, by its label.", column=what)
        if bare == "tables":
            known: str | None = {**meanings, **_TEXTS["table_columns"]}.get(column)
            label = column.removesuffix(" (attribute)")
            return tr(known) if known else tr("The label of {column}.", column=label)
        if bare in ("invariants", "given") and column == "answers":
            return prose("column.answers")
        return tr(meanings.get(column, ""), records=counted)

    types: dict[str, str] = {}
    having: dict[str, list[str]] = {}
    for output in outputs:
        for column in output.columns:
            types.setdefault(column.name, column.type)
            having.setdefault(column.name, []).append(_level(output))

    if bare == "tables":  # each has some of the columns, texts first
        types = dict(sorted(types.items(), key=lambda column: column[1] != TEXT))

    def only(column: str) -> str:
        there = [level for level in manifest.geolevels if level in having[column]]
        if len(having[column]) == len(outputs):
            return ""
        return " " + tr("Only at {geolevels}.", geolevels=", ".join(there))

    return CodedDataset(
        path=kind,
        geolevels=tuple(v for v in manifest.geolevels if v in levels)
        if kind.endswith(LEVEL)
        else (),
        row=tr(_ROWS.get(bare, ""), records=counted),
        columns=tuple(
            CodedColumn(name=name, type=shown, meaning=meaning(name) + only(name))
            for name, shown in types.items()
        ),
    )


def _whose(manifest: Manifest, census: Sequence[str], bare: str, levels: set[str]) -> str:
    """Describe whether a dataset has geocodes of the spine or of the census.

    Args:
      manifest: Manifest of the release.
      census: Geolevels with both a spine and a census geocode.
      bare: Kind of the dataset, without geolevel.
      levels: Geolevels of the dataset.
    """
    if bare.startswith(("microdata", "joined")):
        return tr("Of the census.")
    if bare in ("tables", "h1"):
        alone = ", ".join(v for v in manifest.levels if v in levels and v not in census)
        if not alone:
            return tr("Of the census.")
        return tr("Of the census, at {geolevels} of the spine.", geolevels=alone)
    off = ", ".join(row.geolevel for row in manifest.off_spine if row.geolevel in levels)
    if not off:
        return tr("Of the spine.")
    return tr("Of the spine, at {geolevels} of the census.", geolevels=off)


def _level(output: Output) -> str:
    """Return the geolevel of a dataset from its path."""
    return output.path.rpartition("level=")[2]


# --- the example --------------------------------------------------------------------------------


def reading(text: str, sentence: str, *, has_tidy: bool = False) -> str:
    """Return Python code that reads the files that the manifest of a dataset names.

    Args:
      text: Python expression for the columns to read as text.
      sentence: What the docstring says of them.
      has_tidy: Whether code follows that arranges answers in rows.
    """
    values = {"text": text, "sentence": sentence, "has_tidy": has_tidy}
    return render("example.py.j2", values)


_INTERVALS = (
    'half = 1.645 * estimates["standard_error"]  # of intervals that hold 90 of 100 truths',
    'estimates["lower"] = estimates["estimate"] - half',
    'estimates["upper"] = estimates["estimate"] + half',
)


def example(manifest: Manifest) -> str:
    """Return example Python code that reads datasets of the release, run in its folder."""
    lines = []
    spine = manifest.levels
    there = {output.path: output for output in manifest.outputs if output.rows}
    measured = _measured(manifest, there)
    if measured is not None:
        level, query = measured
        path = f"measurements/level={level}"
        lines.append(f'noisy = tidy("{path}", {query!r}, "answers")')
        path = f"estimates/tables/level={level}"
        if path in there:
            values = '"estimate", "standard_error"'
            tabulated = there[path].labelled[-1]
            lines.append(f'estimates = tidy("{path}", {tabulated!r}, {values})')
            lines += _INTERVALS
    has_tidy = bool(lines)
    level = next((v for v in spine[1:] + spine if f"counts/level={v}" in there), "")
    if level:
        lines.append(f'counts = read("counts/level={level}").explode(["cells", "counts"])')
    lines += _table_lines(manifest, there)
    for name, folder in ((manifest.records, "microdata"), ("joined", "joined")):
        kinds = {f"{folder}/parquet": "", f"{folder}/csv": ", str"}
        path = next((path for path in kinds if path in there), "")
        if path:
            lines.append(f'{name} = read("{path}"{kinds[path]})')
    read = reading('{"geocode": str}', "Geocodes are text.", has_tidy=has_tidy)
    return "\n".join([read, "", *lines])


def _table_lines(manifest: Manifest, there: Mapping[str, Output]) -> list[str]:
    """Return lines of example code that read a table; empty if the release has no tables."""
    paths = (f"tables/level={level}" for level in manifest.levels[1:] + manifest.levels)
    path = next((path for path in paths if path in there and there[path].labelled), "")
    if not path:
        return []
    file = f"{path}/{file_stems(there[path].labelled)[-1]}"
    output = manifest.solution.settings["output"]
    chosen = output.get("table_formats") if isinstance(output, dict) else None
    formats = chosen if isinstance(chosen, list) else ["parquet", "csv"]
    if "parquet" in formats:
        return [f'table = pd.read_parquet("{file}.parquet")']
    if "csv" in formats:
        csv = 'dtype={"geocode": str}, keep_default_na=False'
        if isinstance(output, dict) and output.get("table_numbers") == "comma":
            csv += ', sep=";", decimal=","'
        return [f'table = pd.read_csv("{file}.csv", {csv})']
    return [f'table = pd.read_excel("{file}.xlsx", dtype={{"geocode": str}})']


def _measured(manifest: Manifest, there: Mapping[str, Output]) -> tuple[str, str] | None:
    """Choose a geolevel, if possible below the root, and a labelled query measured in full."""
    lazy, spine = manifest.privacy.lazy_queries, manifest.levels
    candidates = []
    for row in manifest.budget:
        dataset = there.get(f"measurements/level={row.geolevel}")
        is_root = row.geolevel == spine[0]
        is_labelled = dataset is not None and row.query in dataset.labelled
        if is_labelled and (is_root or row.query not in lazy):
            few, depth = row.answers < _LEAST_ANSWERS, spine.index(row.geolevel)
            candidates.append((is_root, depth, few, row.answers, row.geolevel, row.query))
    return min(candidates)[-2:] if candidates else None


_WRITTEN = ("README.md", "codebook.json", "codebook.md")  # after the manifest was gathered


def readme(manifest: Manifest, about: AboutConfig) -> str:
    """Return README.md of a product: content, files, how to read them and how to cite it.

    Args:
      manifest: Manifest of the release; its `files` may lack files that are written later.
      about: Office and licence, from the section `about` of the run file.
    """
    whole = covering(manifest.privacy, manifest.account, manifest.together)
    values = {
        "about": about,
        "title": f"{about.title}, {manifest.records}" if about.title else manifest.name,
        "manifest": manifest,
        "not_for_release": manifest.not_for_release,
        "is_drawn_elsewhere": manifest.origin is not None,
        "census": census_levels(manifest),
        "folder": "../.." if any(one.path.startswith(_ABOVE) for one in manifest.outputs) else ".",
        "product": manifest.records if manifest.together else None,
        "guarantee": stated_loss(whole),
        "unit": text.unit(manifest.privacy.definition),
        "own": None if whole is manifest.privacy else stated_loss(manifest.privacy),
        "datasets": [(dataset, _use_of(dataset)) for dataset in described(manifest)],
        "files": {**{name: tr(FILES[name]) for name in _WRITTEN}, **dict(census_files(manifest))},
        "from_data": manifest.geounits_source == FROM_DATA,
        "measured": _drawn(manifest),
        "relations": relations(Spending.of(manifest)),
        "estimated": any(one.path.startswith("estimates/tables") for one in manifest.outputs),
        "year": datetime.fromisoformat(manifest.created).year,
        "day": text.moment(manifest.created).partition(" ")[0],
    }
    return render("readme.md.j2", values)


def release_readme(products: Sequence[Manifest], name: str, about: AboutConfig) -> str:
    """Return README.md of a whole release: its products, and the files that they share.

    Args:
      products: Manifests of the products.
      name: Name of the run.
      about: Office and licence, from the section `about` of the run file.
    """
    there = [*(["account.json"] if any(one.account for one in products) else [])]
    there += ["solves.jsonl", "configuration/run.yaml"]
    values = {
        "about": about,
        "title": about.title or name,
        "products": products,
        "geography": tr(_ROWS["geography"]),
        "files": {file: tr(FILES[file]) for file in there},
        "not_for_release": any(one.not_for_release for one in products),
        "is_drawn_elsewhere": any(one.origin for one in products),
    }
    return render("release.md.j2", values)


def codebook_page(codebook: Codebook) -> str:
    """Return codebook.md of a release: the content of `codebook.json` as a readable page."""
    both = [v.name for v in codebook.geolevels if v.on_spine and v.census_digits is not None]
    return render("codebook.md.j2", {"book": codebook, "both": both})


def _drawn(manifest: Manifest) -> tuple[str, str] | None:
    """Choose a query with an answer for each geounit, and a geolevel, for the example."""
    lazy = manifest.privacy.lazy_queries
    rows = [row for row in manifest.budget if row.query not in lazy and "#" not in row.query]
    finer = [row for row in rows if row.geolevel != manifest.levels[0]] or rows
    return (finer[0].query, finer[0].geolevel) if finer else None
