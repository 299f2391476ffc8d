"""What a reader finds in the release of a survey, and how to read it. Public."""

from __future__ import annotations

from jobs.documents.manifest import Output
from jobs.documents.survey import SurveyManifest
from jobs.report import text
from jobs.report.datasets import FILES, Described, files_table, reading
from jobs.report.page import Block, Prose, Section, TableBlock
from jobs.report.table import Table, codes, numbers

_MEASUREMENTS = "measurements"
_MICRODATA = "microdata"
_TABLES = "tables/"
_CODES = f"{_MEASUREMENTS}/part=synthesis"

_ROWS = {
    "sums": "One stratum and step, with the noisy sum of the values, clipped to where the mean "
    "was known to be. Use these for inference: the noise is unbiased and its distribution known.",
    "marginals": "One measured table, or what it adds to smaller ones, with its noisy answers. "
    "Use these for inference: the noise is unbiased and its distribution known. The microdata are "
    "fitted to them.",
    "table": "One cell of a table: its count, drawn with noise given the exact marginals.",
    "microdata": "One artificial record. It is nobody's: only tables of many records mean "
    "something.",
}
_COLUMNS = {
    "stratum": "The stratum, by the labels of its levels.",
    "step": "Which step of clipping it is, from 0.",
    "lower": "What smaller values were raised to before they were added up.",
    "upper": "What larger values were lowered to.",
    "mechanism": "The distribution of the noise, by name.",
    "parameter": "The parameter of that distribution, an exact fraction: σ² or the scale.",
    "cost": "What it costs, an exact fraction.",
    "answer": "The noisy sum, a whole number.",
    "cell": "Number of the cell; the last attribute runs fastest, the first cell is 0.",
    "count": "Its count.",
    "query": "The attributes of the table.",
    "phase": "The phase of measuring: 1 to 3 of everybody; from 4 on, one for each stratum.",
    "factors": "Numbers of the matrices, named in _manifest.json, that the table was multiplied "
    "with.",
    "answers": "One whole number per answer; the last attribute runs fastest.",
}
_FILES = {
    "means.csv": "Means with weights, standard errors and intervals, a row per stratum.",
    "means.json": "The same as a document, with methods, pooled strata and warnings.",
    "tables.json": "Tables that keep exact marginals, with what is proved of each.",
    "configuration/run.yaml": "The public part of the run file: columns, bounds, shares and "
    "settings. `das verify` and `das certificate` read it.",
    "ledger.jsonl": "What was granted, planned and measured, by part; each line carries the digest "
    "of the line before.",
}


def files_section(manifest: SurveyManifest) -> Section:
    """Every file and how to read it, with digests."""
    lead = "All tables are Parquet or CSV; every dataset names its files and their digests."
    files = [file.path for file in manifest.files]
    seeded = ["NOT_FOR_RELEASE.txt"] if manifest.not_for_release else []
    names = dict.fromkeys(["manifest.json", "report.html", *files, *seeded])
    values = {
        "datasets": [_described(output, manifest) for output in manifest.outputs],
        "files": [(path, _meaning(path)) for path in names],
        "example": _example(manifest),
        "remark": "Labels are text, also where they look like numbers.",
    }
    blocks: list[Block] = [
        Prose("files.html.j2", values),
        TableBlock(files_table(manifest.outputs)),
        TableBlock(_single_files(manifest)),
    ]
    return Section("files", "Files and how to read them", lead, blocks)


def _meaning(path: str) -> str:
    if path.startswith("configuration/weights-"):
        return "The public strata that it names, with their weights, and sizes if any were given."
    if path.startswith(_TABLES):
        return "The counts of a table, a row per combination of levels."
    return _FILES.get(path) or FILES[path]


def _single_files(manifest: SurveyManifest) -> Table:
    columns = [
        codes("Place", (file.path for file in manifest.files)),
        numbers("Size", (file.bytes for file in manifest.files), text.size),
        codes("SHA-256", (file.sha256 for file in manifest.files)),
    ]
    return Table.of("single-files", "Files beside the datasets", columns)


def _described(output: Output, manifest: SurveyManifest) -> Described:
    kind = "microdata"
    if output.path.startswith(_MEASUREMENTS):
        kind = "marginals" if output.path == _CODES else "sums"
        if output.path in _conditioned(manifest):
            kind = "table"
    attributes = {attribute.name for attribute in manifest.attributes}
    return Described(
        output.path,
        (),
        _ROWS[kind],
        tuple(
            (
                column.name,
                column.type,
                f"The level of {column.name}, by its label."
                if kind == "microdata" and column.name in attributes
                else _COLUMNS.get(column.name, ""),
            )
            for column in output.columns
        ),
    )


def _conditioned(manifest: SurveyManifest) -> set[str]:
    """Paths of the measurements that are tables."""
    return {
        f"{_MEASUREMENTS}/part={part.name}"
        for part in manifest.parts
        if part.conditioned is not None
    }


def _example(manifest: SurveyManifest) -> str:
    """Python that reads what there is of this release, to be run in its folder."""
    there = [output.path for output in manifest.outputs]
    lines = [reading("str", "Labels are text."), ""]
    if any(file.path == "means.csv" for file in manifest.files):
        lines.append('means = pd.read_csv("means.csv", keep_default_na=False)')
    tables = [file.path for file in manifest.files if file.path.startswith(_TABLES)]
    if tables:
        lines.append(f"counts = pd.read_csv({tables[0]!r}, keep_default_na=False)")
    others = {_CODES, *_conditioned(manifest)}
    sums = next((p for p in there if p.startswith(_MEASUREMENTS) and p not in others), None)
    if sums is not None:
        lines.append(f"noisy = read({sums!r})")
    if f"{_MICRODATA}/parquet" in there:
        lines.append(f'people = read("{_MICRODATA}/parquet")')
        lines.append(
            f"shares = people[{manifest.attributes[0].name!r}].value_counts(normalize=True)"
        )
    return "\n".join(lines)
