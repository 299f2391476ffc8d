"""Public report and certificate of a survey, made from the release alone."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.pipeline.documents.codebook import CodedColumn, CodedDataset
from jobs.pipeline.report import text
from jobs.pipeline.report.budget import guarantee_section
from jobs.pipeline.report.certificate import Verified, changes_table, loss_of, write_page
from jobs.pipeline.report.datasets import files_section, meaning_of_file, other_files, reading
from jobs.pipeline.report.page import Block, Page, Prose, Section, Tile, write_report
from jobs.pipeline.report.plots import Figure, Span, span_rows
from jobs.pipeline.report.run import environment_table
from jobs.pipeline.report.table import (
    Cell,
    Column,
    Show,
    Table,
    bars,
    codes,
    fractions,
    labels,
    name,
    names,
    numbers,
)
from jobs.pipeline.report.text import words
from jobs.pipeline.report.tiles import banners, origin, privacy_tiles
from jobs.pipeline.storage.files import READABLE, refuse_foreign
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import Place
from jobs.survey.checks import MARGINALS, SYNTHESIS
from jobs.survey.documents import (
    MeansTable,
    MeasuredPart,
    ReleasedMean,
    ReleasedTable,
    SurveyManifest,
    SurveyMarginals,
    SurveyTables,
    read_survey_manifest,
)
from jobs.survey.marginals import TOTAL
from jobs.survey.results import read_results

_MOST_TILES = 3  # means among the headline numbers
_SUMMARY = (
    "Contents of this release, its privacy guarantee, and the expected errors of its means. "
    "Computed from public information alone."
)


@dataclass(frozen=True)
class SurveyRelease:
    """Documents of a release or of a further solution.

    Attributes:
      manifest: The manifest.
      means: Released means; None if the run has no statistics.
      tables: Released tables; None if the run has no tables.
      marginals: Written marginals; None if the run has no marginals.
    """

    manifest: SurveyManifest
    means: MeansTable | None
    tables: SurveyTables | None
    marginals: SurveyMarginals | None

    @classmethod
    def read(cls, made: ReleaseLayout) -> SurveyRelease:
        """Read the documents.

        Raises:
          OutputError: The release is not finalized, or a document is damaged.
        """
        return cls(read_survey_manifest(made.manifest), *read_results(made))

    @property
    def statistics(self) -> tuple[ReleasedMean, ...]:
        """Return the released means by statistic."""
        return () if self.means is None else self.means.statistics


def write_public_page(made: ReleaseLayout, to: Place | None = None) -> Place:
    """Write the public report of a survey as one self-contained HTML file.

    Args:
      made: The release or the further solution.
      to: Folder for the report; default: the release itself.

    Returns:
      The file.

    Raises:
      OutputError: The release is not finalized, or the report cannot be written.
    """
    file = made.report if to is None else to / made.report.name
    if to is not None:
        refuse_foreign(file, b"<!DOCTYPE html>", "a report, which is replaced")
    release = SurveyRelease.read(made)
    manifest = release.manifest
    values = {
        "epsilon_by_noise": None,
        "derived": "means, tables, marginals and microdata",
        "exact": _exact(manifest),
        "sources": "the measurements and public information",
    }
    promises = [] if release.tables is None else [promises_table(manifest.parts)]
    software = manifest.software
    facts = [
        (software.name, software.version),
        ("Python", software.python),
        *sorted(software.libraries.items()),
        ("SHA-256 of the configuration", manifest.configuration_digest),
    ]
    environment = environment_table("Software and configuration", facts, codes)
    page = Page(
        "Release report of a survey",
        manifest.name,
        _SUMMARY,
        origin(manifest, manifest.solution),
        banners(manifest),
        survey_tiles(release),
        [
            guarantee_section(
                manifest, "survey_privacy.html.j2", values, promises, manifest.account
            ),
            survey_budget_section(manifest),
            *([] if release.means is None else [means_section(release.means)]),
            *([] if release.tables is None else [tables_section(release.tables)]),
            *([] if release.marginals is None else [marginals_section(release.marginals)]),
            *([_microdata_section(manifest)] if manifest.records is not None else []),
            survey_files_section(manifest),
            Section("run", "Run", "Software and configuration of this release.", [environment]),
        ],
        "records",
    )
    write_report(page, file, mode=READABLE)
    return file


def survey_tiles(release: SurveyRelease) -> list[Tile]:
    """Return headline numbers: records, privacy loss, exact marginals, means of all records."""
    manifest, tiles = release.manifest, []
    if manifest.records is not None:
        n_attributes = f"of {len(manifest.attributes)} attributes, in the microdata"
        tiles.append(Tile("Records", text.integer(manifest.records), n_attributes))
    tiles += privacy_tiles(manifest.privacy, manifest.account)
    exact = _exact(manifest)
    if exact:
        tiles.append(Tile("Exact marginals", str(len(exact)), "published without protection"))
    for one in release.statistics[:_MOST_TILES]:
        show, row = shower(one), one.everybody
        ends = f"{show(row.low)} to {show(row.high)} at {confidence(one)}"
        tiles.append(Tile(f"Mean of {words(one.name)}", show(row.mean), ends))
    return tiles


def survey_budget_section(manifest: SurveyManifest) -> Section:
    """Describe the cost of each part of the release."""
    unit = text.unit(manifest.privacy.definition)
    lead = (
        f"The parts of the release share the budget, and their costs add up to at most {unit}. "
        "Strata have no records in common, so each is measured with the full share of its part."
    )
    return Section("budget", "Privacy budget", lead, [survey_budget_table(manifest)])


def survey_budget_table(manifest: SurveyManifest) -> Table:
    """Tabulate share and exact cost of each part, and the total."""
    unit = text.unit(manifest.privacy.definition)
    shares = [text.ratio(part.share) for part in manifest.parts]
    spent = text.ratio(manifest.spent) / (text.ratio(manifest.privacy.total) or 1.0)
    whole = {SYNTHESIS: "microdata", MARGINALS: "marginals"}
    parts = [
        whole.get(part.name)
        or f"{'mean' if part.conditioned is None else 'table'} of {words(part.name)}"
        for part in manifest.parts
    ]
    columns = [
        names("Part", [*parts, "all that was measured"]),
        bars("Share", shares, text.fine_percent, f"of {unit}", total=spent),
        fractions(unit, [*(part.cost for part in manifest.parts), manifest.spent], "exact"),
    ]
    return Table.of("budget-parts", f"Share of {unit} by part", columns)


def _exact(manifest: SurveyManifest) -> list[str]:
    """Name the exact marginals of the release, other than the number of records."""
    marginals = exact_marginals(manifest)
    return [f"{words(name)} (table {words(table)})" for name, table in marginals if name != TOTAL]


def _microdata_section(manifest: SurveyManifest) -> Section:
    """Describe how the microdata were made, their attributes, and how to read them."""
    lead = (
        f"{text.integer(manifest.records or 0)} artificial records with "
        f"{len(manifest.attributes)} attributes. No record is a person of the survey, and none was "
        "copied from one."
    )
    settings = next((p.settings for p in manifest.parts if p.name == SYNTHESIS), {})
    values = {
        "model": manifest.model,
        "strata": [words(attribute) for attribute in manifest.strata],
        "settings": [(words(key), value) for key, value in settings.items() if value is not None],
    }
    columns = [
        labels("Attribute", (one.name for one in manifest.attributes)),
        numbers("Levels", (len(one.levels) for one in manifest.attributes)),
        names("Labels, in order", ("; ".join(one.levels) for one in manifest.attributes)),
    ]
    table = Table.of("attributes", "Attributes of the microdata", columns)
    blocks: list[Block] = [Prose("survey_microdata.html.j2", values), table]
    return Section("microdata", "Microdata", lead, blocks)


def write_survey_certificate(manifest: SurveyManifest, verified: Verified, out: Place) -> None:
    """Write the certificate of a survey as one HTML page, which fits a sheet of A4.

    Args:
      manifest: Manifest of the release.
      verified: Result of verifying the release.
      out: The file; replaced atomically.

    Raises:
      OutputError: The file cannot be written.
    """
    privacy = manifest.privacy
    advantages = [] if privacy.attacks is None else [privacy.attacks.advantage]
    exact = [
        (marginal, f"in the table {words(table)}") for marginal, table in exact_marginals(manifest)
    ]
    what = "anything but what is exact" if exact else "anything"
    condition = (
        "It holds between data sets that agree on the exact marginals named below. A change that "
        "alters an exact marginal is not protected."
    )
    public = (
        "Public in advance: columns, bins, bounds and spreads, stated weights and sizes of "
        "strata, and the number of records that means are divided by."
    )
    context = {
        "many": "persons",
        "condition": condition if exact else "",
        "changes": changes_table(manifest, [(what, loss_of(privacy), advantages)]),
        "budget": survey_budget_table(manifest),
        "exact": exact,
        "remarks": [public],
    }
    write_page([manifest], [context], verified, out)


_MEASUREMENTS = "measurements"
_MICRODATA = "microdata/parquet"
_TABLES = "tables/"
_CODES = f"{_MEASUREMENTS}/part=synthesis"

_ROWS = {
    "sums": "One stratum and step, with the noisy sum of the values, clipped to the known bounds "
    "of the mean. Use these for inference: the noise is unbiased and its distribution known.",
    "marginals": "One measured table, or its residuals on smaller tables, with noisy answers. "
    "Use these for inference: the noise is unbiased and its distribution known. The microdata are "
    "fitted to them.",
    "planned": "One set of attributes, with noisy answers to its residual query: what the table of "
    "these attributes adds to those of fewer. `das estimate` makes any planned table of them.",
    "table": "One cell of a table: its count, drawn with noise given the exact marginals.",
    "microdata": "One artificial record, which describes no person: use tables of many records.",
}
_COLUMNS = {
    "stratum": "The stratum, by the labels of its levels.",
    "step": "Index of the clipping step, from 0.",
    "lower": "Lower clipping bound: smaller values were raised to it before summation.",
    "upper": "Upper clipping bound: larger values were lowered to it before summation.",
    "mechanism": "The distribution of the noise, by name.",
    "parameter": "The parameter of that distribution, an exact fraction: σ² or the scale.",
    "cost": "Privacy loss, an exact fraction.",
    "answer": "The noisy sum, a whole number.",
    "cell": "Number of the cell; the last attribute runs fastest, the first cell is 0.",
    "count": "Count of the cell.",
    "query": "The attributes of the table.",
    "phase": "Phase of measuring: 1 to 3 for all records; from 4 on, one for each stratum.",
    "factors": "Numbers of the matrices, named in _manifest.json, that the table was multiplied "
    "with.",
    "answers": "One whole number per answer; the last attribute runs fastest.",
}
_FILES = {
    "means.csv": "Means with weights, standard errors and intervals, a row per stratum.",
    "means.json": "The same as a document, with methods, pooled strata and warnings.",
    "tables.json": "Tables that keep exact marginals, with the proved guarantee of each.",
    "marginals.json": "List of the unbiased tables that are written, with their average errors.",
    "configuration/run.yaml": "The public part of the run file: columns, bounds, shares and "
    "settings. `das verify` reads it.",
    "ledger.jsonl": "Budget, plan and measurements by part; each line carries the digest of the "
    "line before.",
}


def survey_files_section(manifest: SurveyManifest) -> Section:
    """List every file with its digest, and explain how to read the datasets."""
    values = {
        "datasets": described(manifest),
        "files": other_files(manifest, file_meaning),
        "example": reading_example(manifest),
        "remark": "Labels are text, also where they look like numbers.",
    }
    columns = [
        codes("Path", (file.path for file in manifest.files)),
        numbers("Size", (file.bytes for file in manifest.files), text.size),
        codes("SHA-256", (file.sha256 for file in manifest.files)),
    ]
    single = Table.of("single-files", "Other files", columns)
    return files_section(manifest.outputs, values, single)


def file_meaning(path: str) -> str:
    """Return the purpose of a file that is not a dataset."""
    if path.startswith("configuration/weights-"):
        return "Public strata with their weights, and with sizes if any were given."
    if path.startswith(f"{MARGINALS}/"):
        return "Unbiased estimates of a table with standard errors and intervals, a row per answer."
    if path.startswith(_TABLES):
        return "The counts of a table, a row per combination of levels."
    return _FILES.get(path) or meaning_of_file(path)


def _kinds(manifest: SurveyManifest) -> dict[str, str]:
    """Return the kind of the rows of each dataset, by path."""
    measured = {
        f"{_MEASUREMENTS}/part={part.name}": "table" if part.conditioned else "sums"
        for part in manifest.parts
    }
    measured[_CODES] = "marginals"
    measured[f"{_MEASUREMENTS}/part={MARGINALS}"] = "planned"
    return {output.path: measured.get(output.path, "microdata") for output in manifest.outputs}


def described(manifest: SurveyManifest) -> list[CodedDataset]:
    """Describe rows and columns of each dataset."""
    kinds = _kinds(manifest)
    attributes = {attribute.name for attribute in manifest.attributes}

    def meaning(path: str, column: str) -> str:
        if kinds[path] == "microdata" and column in attributes:
            return f"The level of {column}, by its label."
        return _COLUMNS.get(column, "")

    return [
        CodedDataset(
            path=output.path,
            geolevels=(),
            row=_ROWS[kinds[output.path]],
            columns=tuple(
                CodedColumn(name=one.name, type=one.type, meaning=meaning(output.path, one.name))
                for one in output.columns
            ),
        )
        for output in manifest.outputs
    ]


def reading_example(manifest: SurveyManifest) -> str:
    """Return Python code that reads the datasets of this release, to be run in its folder."""
    kinds, files = _kinds(manifest), [file.path for file in manifest.files]
    lines = [reading("str", "Labels are text."), ""]
    if "means.csv" in files:
        lines.append('means = pd.read_csv("means.csv", keep_default_na=False)')
    tables = [path for path in files if path.startswith(_TABLES)]
    if tables:
        lines.append(f"counts = pd.read_csv({tables[0]!r}, keep_default_na=False)")
    written = [path for path in files if path.startswith(f"{MARGINALS}/")]
    if written:
        lines.append(f"estimates = pd.read_csv({written[0]!r}, keep_default_na=False)")
    sums = [path for path, kind in kinds.items() if kind == "sums"]
    if sums:
        lines.append(f"noisy = read({sums[0]!r})")
    if _MICRODATA in kinds:
        first = manifest.attributes[0].name
        lines.append(f'people = read("{_MICRODATA}")')
        lines.append(f"shares = people[{first!r}].value_counts(normalize=True)")
    return "\n".join(lines)


def exact_marginals(manifest: SurveyManifest) -> list[tuple[str, str]]:
    """List (marginal, table) of all marginals that are published exactly."""
    return [
        (marginal, part.name)
        for part in manifest.parts
        if part.conditioned is not None
        for marginal in part.conditioned.exact
    ]


def tables_section(tables: SurveyTables) -> Section:
    """Show every released table with all counts."""
    lead = (
        "Noisy counts, given that no count is negative and exact marginals are those of the file."
    )
    blocks = [_table(index, one) for index, one in enumerate(tables.tables)]
    return Section("tables", "Tables", lead, blocks)


def marginals_section(marginals: SurveyMarginals) -> Section:
    """List the written tables with their errors, which depend on no data."""
    lead = (
        "Unbiased noisy counts, which can be negative, and biased counts which are not. All follow "
        "from the same noisy answers, so sums of either agree. `das estimate` makes every other "
        "planned table."
    )
    tables = marginals.tables
    columns = [
        names("Table", (words(one.name) for one in tables)),
        numbers("Answers", (one.answers for one in tables)),
        numbers("Error", (one.root_mean_square_error for one in tables), text.decimal, "RMSE"),
        codes("File", (one.file for one in tables)),
    ]
    written = Table.of("marginals-written", "Written marginals", columns)
    return Section("marginals", "Marginals", lead, [written])


def promises_table(parts: Sequence[MeasuredPart]) -> Table:
    """Tabulate the proved guarantee of each table and its exact marginals."""
    promised = [(part.name, part.conditioned) for part in parts if part.conditioned is not None]
    columns = [
        labels("Table", (table for table, _ in promised)),
        names("Published exactly", ("; ".join(map(words, one.exact)) for _, one in promised)),
        numbers("Records", (one.k for _, one in promised), hint="k"),
        fractions("gamma", (one.gamma for _, one in promised), numeric=True),
        fractions(text.EPSILON, (one.epsilon for _, one in promised), "of the noise", numeric=True),
        fractions(
            "(1 + gamma) k ε", (one.proved for _, one in promised), "proved, charged", numeric=True
        ),
    ]
    note = (
        "For two data sets that agree on the exact marginals and differ in at most k records. If "
        "they differ in K > k records, (1 + gamma) K ε is proved. Parts other than tables cost "
        "their share for one changed record, and K shares for K changed records."
    )
    return Table.of("promises", "Guarantees of tables with exact marginals", columns, note)


def _table(index: int, one: ReleasedTable) -> Table:
    by_attribute = zip(*itertools.product(*one.levels), strict=True)
    columns = [
        *(
            names(words(name), cells)
            for name, cells in zip(one.attributes, by_attribute, strict=True)
        ),
        numbers("Count", one.counts),
    ]
    kept = "; ".join(
        words(" * ".join(marginal.attributes)) or "the number of records" for marginal in one.exact
    )
    note = (
        f"Published exactly, without noise: {kept}. Scale of the noise on the other counts: "
        f"{one.scale}."
    )
    by = words(" * ".join(one.attributes))
    caption = f"Records by {by} (table {words(one.name)})"
    return Table.of(f"table-{index}", caption, columns, note)


MOST_DRAWN = 60  # strata in a figure, about as high as two screens
_METHODS = {"coinpress": "Coinpress", "clipped": "clipping once"}


def means_section(means: MeansTable) -> Section:
    """Show the released means of every statistic."""
    lead = (
        "Noisy sums, divided by public numbers of records. Intervals are for the mean of the "
        "population and cover noise and sampling. They hold with about the stated probability if "
        "the public bounds, sizes and standard deviation are right."
    )
    blocks: list[Block] = []
    for index, one in enumerate(means.statistics):
        blocks += [
            *mean_figures(index, one),
            _means_table(index, one),
            Prose("survey_mean.html.j2", {"mean": one, "pooled": [words(p) for p in one.pooled]}),
        ]
    return Section("means", "Means", lead, blocks)


def mean_figures(
    index: int, mean: ReleasedMean, truth: Mapping[str, float | None] | None = None
) -> list[Figure]:
    """Draw the intervals of a statistic, all records first; none without strata.

    Args:
      index: Number of the statistic on the page.
      mean: The released means.
      truth: True means by stratum, for the internal report.
    """
    rows = mean.rows
    if len(rows) == 1:
        return []
    # With many strata only the largest are drawn, in their order.
    large = sorted(rows[1:], key=lambda row: -row.size)[:MOST_DRAWN]
    drawn = [rows[0], *(row for row in rows[1:] if row in large)]
    spans = [
        Span(words(row.stratum), row.low, row.mean, row.high, (truth or {}).get(row.stratum))
        for row in drawn
    ]
    title = f"Mean of {words(mean.attribute)}"
    caption = (
        f"{_heading(mean)}: released means, and intervals at {confidence(mean)}. The dotted line "
        "is the mean of all records."
    )
    if len(drawn) < len(rows):
        caption += f" The {MOST_DRAWN} strata with the most records; the table has all."
    legend = [("released", "released mean and its interval")]
    if truth is not None:
        legend.append(("raw", "true mean"))
    return [Figure(f"mean-{index}", span_rows(f"mean-{index}", title, spans), caption, legend)]


def shower(mean: ReleasedMean) -> Show:
    """Return a formatter for the numbers of a statistic, with the same decimals in all rows."""
    size = max(abs(row.mean) for row in (mean.everybody, *mean.means))
    places = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 4

    def show(value: float) -> str:
        return f"{value:,.{places}f}".replace("-", "\N{MINUS SIGN}")

    return show


def _means_table(index: int, mean: ReleasedMean) -> Table:
    show, rows = shower(mean), mean.rows
    columns = [
        labels("Stratum", (row.stratum for row in rows)),
        numbers("Weight", (text.ratio(row.weight) for row in rows), text.fine_percent, "public"),
        numbers("Records", (row.size for row in rows), hint="public"),
        numbers("Mean", (row.mean for row in rows), show),
        numbers("From", (row.low for row in rows), show, confidence(mean)),
        numbers("To", (row.high for row in rows), show, confidence(mean)),
        numbers("Std. error", (row.standard_error for row in rows), show, "noise, sampling"),
        numbers("Std. dev.", (row.noise_sd for row in rows), show, "noise alone"),
    ]
    if any(row.outside for row in mean.means):
        warnings = [name("outside its bounds") if row.outside else Cell("") for row in rows]
        columns.append(Column("Warning", numeric=False, cells=warnings))
    method = _METHODS.get(mean.method, mean.method)
    note = f"By {method}, with a public standard deviation of {mean.spread:,.10g}."
    if mean.shrunk:
        note += (
            " Means of strata are shrunk toward a common mean by their noise, within their "
            "intervals; standard errors are those before shrinkage."
        )
    return Table.of(f"means-{index}", _heading(mean), columns, note)


def _heading(mean: ReleasedMean) -> str:
    by = f" by {words(' * '.join(mean.strata))}" if mean.strata else ""
    called = "" if mean.name == mean.attribute else f" ({words(mean.name)})"
    return f"Mean of {words(mean.attribute)}{by}{called}"


def confidence(mean: ReleasedMean) -> str:
    """Return the confidence level of the intervals, in percent."""
    return f"{100 * mean.confidence:.10g} %"
