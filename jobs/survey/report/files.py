"""What a reader finds in the release of a survey, and how to read it. Public."""

from __future__ import annotations

from jobs.pipeline.report import text
from jobs.pipeline.report.datasets import FILES, Described, files_section, other_files, reading
from jobs.pipeline.report.page import Section
from jobs.pipeline.report.table import Table, codes, numbers
from jobs.survey.documents import SurveyManifest

_MEASUREMENTS = "measurements"
_MICRODATA = "microdata/parquet"
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


def survey_files_section(manifest: SurveyManifest) -> Section:
    """Every file and how to read it, with digests."""
    values = {
        "datasets": _described(manifest),
        "files": other_files(manifest, _meaning),
        "example": _example(manifest),
        "remark": "Labels are text, also where they look like numbers.",
    }
    return files_section(manifest.outputs, values, _single_files(manifest))


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


def _kinds(manifest: SurveyManifest) -> dict[str, str]:
    """Name what the rows of each dataset are, by its path."""
    measured = {
        f"{_MEASUREMENTS}/part={part.name}": "table" if part.conditioned else "sums"
        for part in manifest.parts
    }
    measured[_CODES] = "marginals"
    return {output.path: measured.get(output.path, "microdata") for output in manifest.outputs}


def _described(manifest: SurveyManifest) -> list[Described]:
    """Describe the datasets, as readers want them."""
    kinds = _kinds(manifest)
    attributes = {attribute.name for attribute in manifest.attributes}

    def meaning(path: str, column: str) -> str:
        if kinds[path] == "microdata" and column in attributes:
            return f"The level of {column}, by its label."
        return _COLUMNS.get(column, "")

    return [
        Described(
            output.path,
            (),
            _ROWS[kinds[output.path]],
            tuple((one.name, one.type, meaning(output.path, one.name)) for one in output.columns),
        )
        for output in manifest.outputs
    ]


def _example(manifest: SurveyManifest) -> str:
    """Python that reads what there is of this release, to be run in its folder."""
    kinds, files = _kinds(manifest), [file.path for file in manifest.files]
    lines = [reading("str", "Labels are text."), ""]
    if "means.csv" in files:
        lines.append('means = pd.read_csv("means.csv", keep_default_na=False)')
    tables = [path for path in files if path.startswith(_TABLES)]
    if tables:
        lines.append(f"counts = pd.read_csv({tables[0]!r}, keep_default_na=False)")
    sums = [path for path, kind in kinds.items() if kind == "sums"]
    if sums:
        lines.append(f"noisy = read({sums[0]!r})")
    if _MICRODATA in kinds:
        first = manifest.attributes[0].name
        lines.append(f'people = read("{_MICRODATA}")')
        lines.append(f"shares = people[{first!r}].value_counts(normalize=True)")
    return "\n".join(lines)
