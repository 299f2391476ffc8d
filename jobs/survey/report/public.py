"""Public report of a survey: what was released, under which guarantee. Made from the release."""

from __future__ import annotations

from jobs.pipeline.report import text
from jobs.pipeline.report.guarantee import guarantee_section
from jobs.pipeline.report.page import Block, Page, Prose, Section, Tile
from jobs.pipeline.report.render import write_report
from jobs.pipeline.report.run import environment_table
from jobs.pipeline.report.table import Table, bars, codes, fractions, labels, names, numbers
from jobs.pipeline.report.text import words
from jobs.pipeline.report.tiles import banners, origin, privacy_tiles
from jobs.pipeline.storage.files import READABLE
from jobs.pipeline.storage.place import Place
from jobs.survey.documents import SurveyManifest
from jobs.survey.report.files import survey_files_section
from jobs.survey.report.means import confidence, means_section, shower
from jobs.survey.report.release import SYNTHESIS, SurveyRelease, exact_marginals, part_in_words
from jobs.survey.report.tables import promises_table, tables_section

_MOST_TILES = 3  # means among the headline numbers
_SUMMARY = (
    "What this release contains, what its privacy guarantee covers, and how far its means may be "
    "off. Computed from public information alone."
)


def write_survey_report(release: SurveyRelease, out: Place) -> None:
    """Write the public report of a survey as one self-contained HTML file.

    Args:
      release: What was released.
      out: The file; replaced at once.

    Raises:
      OutputError: It cannot be written.
    """
    manifest = release.manifest
    page = Page(
        "Release report of a survey",
        manifest.name,
        _SUMMARY,
        origin(manifest, manifest.solution),
        banners(manifest),
        survey_tiles(release),
        [
            _privacy_section(release),
            survey_budget_section(manifest),
            *([] if release.means is None else [means_section(release.means)]),
            *([] if release.tables is None else [tables_section(release.tables)]),
            *([_microdata_section(manifest)] if manifest.records is not None else []),
            survey_files_section(manifest),
            _software_section(manifest),
        ],
        "records",
    )
    write_report(page, out, mode=READABLE)


def survey_tiles(release: SurveyRelease) -> list[Tile]:
    """Microdata, privacy loss, what is exact, and means of everybody."""
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
    """What each part of the release cost."""
    unit = text.unit(manifest.privacy.definition)
    lead = (
        f"The parts of the release share the budget, and their costs add up to at most {unit}. "
        "Strata have no records in common, so all of them, measured at the full share of a part, "
        "cost what one does."
    )
    return Section("budget", "Privacy budget", lead, [survey_budget_table(manifest)])


def survey_budget_table(manifest: SurveyManifest) -> Table:
    """Share and exact cost of each part, of all that was measured, and of what is left."""
    unit = text.unit(manifest.privacy.definition)
    shares = [text.ratio(part.share) for part in manifest.parts]
    spent = (text.ratio(manifest.spent) or 0.0) / (text.ratio(manifest.privacy.total) or 1.0)
    columns = [
        names("Part", [*map(part_in_words, manifest.parts), "all that was measured"]),
        bars("Share", shares, text.fine_percent, f"of {unit}", total=spent),
        fractions(unit, [*(part.cost for part in manifest.parts), manifest.spent], "exact"),
    ]
    return Table.of("budget-parts", f"Share of {unit} by part", columns)


def _exact(manifest: SurveyManifest) -> list[str]:
    """Name what is published as it is in the data, beside the number of records."""
    every = exact_marginals(manifest)
    return [f"{words(one)} (table {words(table)})" for one, table in every if one != "total"]


def _privacy_section(release: SurveyRelease) -> Section:
    """The guarantee, and what is and is not protected."""
    manifest = release.manifest
    values = {
        "epsilon_by_noise": None,
        "derived": "means, tables and microdata",
        "exact": _exact(manifest),
        "sources": "the measurements and public information",
    }
    promises = [] if release.tables is None else [promises_table(manifest.parts)]
    return guarantee_section(manifest, "survey_privacy.html.j2", values, promises, manifest.account)


def _microdata_section(manifest: SurveyManifest) -> Section:
    """How the microdata were made, what they hold, and how to read them."""
    lead = (
        f"{text.integer(manifest.records)} artificial records with "
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


def _software_section(manifest: SurveyManifest) -> Section:
    software = manifest.software
    rows = [
        (software.name, software.version),
        ("Python", software.python),
        *sorted(software.libraries.items()),
        ("SHA-256 of the configuration", manifest.configuration_digest),
    ]
    table = environment_table("Software and configuration", rows, codes)
    return Section("run", "Run", "What made this release.", [table])
