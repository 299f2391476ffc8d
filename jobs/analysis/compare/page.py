"""The page of `das compare`: measures by table, by size of the place, and largest changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from das.metrics.accuracy import SIZE_LABELS
from das.metrics.differences import LARGE_PERCENT
from jobs.analysis.compare.compare import Compared
from jobs.analysis.requests import CompareRequest
from jobs.pipeline.report import text
from jobs.pipeline.report.page import Page, Section, Tile, write_report
from jobs.pipeline.report.plots import Figure, Panel, line_panels
from jobs.pipeline.report.table import Table, codes, labels, names, numbers
from jobs.pipeline.storage.files import READABLE


def write_comparison(
    compared: Sequence[Compared], source: str, request: CompareRequest, out: Path
) -> None:
    """Write the comparison as one self-contained HTML file.

    Args:
      compared: Tables of geolevels.
      source: Where the variables are documented.
      request: Options of the command, with the paths of both sides.
      out: The file; replaced at once.

    Raises:
      OutputError: The file cannot be written.
    """
    first = compared[0].table
    of_first = [one for one in compared if one.table == first]
    ours, theirs = str(request.ours), str(request.theirs)
    facts = [("Ours", ours), ("Theirs", theirs), ("Variables", " ".join(source.split()))]
    summary = (
        "The same variables in both, joined by geocode. Differences are ours minus theirs. Neither "
        "needs to be the truth: published counts may be swapped or protected too."
    )
    tiles = [
        Tile(
            f"{first}0001, {text.words(one.geolevel)}",
            text.decimal(float(abs(one.ours[:, 0] - one.theirs[:, 0]).mean())),
            f"mean absolute difference, places: {text.integer(len(one.geocodes))}",
        )
        for one in of_first
    ]
    sections = [_measures(compared), _sizes(of_first), _largest(of_first)]
    page = Page("Comparison", "Ours and theirs", summary, facts, [], tiles, sections, "records")
    write_report(page, out, mode=READABLE)


def _measures(compared: Sequence[Compared]) -> Section:
    """Return the measures of every table at every geolevel."""
    measured = [one.differences() for one in compared]
    table = Table.of(
        "measures",
        "Differences of all variables of a table",
        [
            labels("Geolevel", [one.geolevel for one in compared]),
            names("Table", [one.table for one in compared]),
            numbers("Places", [len(one.geocodes) for one in compared]),
            numbers("Only ours", [one.alone[0] for one in compared], hint="places"),
            numbers("Only theirs", [one.alone[1] for one in compared], hint="places"),
            numbers("Mean", [m.mean for m in measured], text.signed),
            numbers("Mean absolute", [m.mean_absolute for m in measured], text.decimal),
            numbers("Root mean square", [m.root_mean_square for m in measured], text.decimal),
            numbers("90 % below", [m.quantile_90 for m in measured], text.decimal),
            numbers("Largest", [m.largest for m in measured], text.decimal),
            numbers("Mean", [m.mean_percent for m in measured], text.signed, "percent"),
            numbers(
                "Mean absolute", [m.mean_absolute_percent for m in measured], text.decimal, "%"
            ),
            numbers(f"Above {LARGE_PERCENT:.0f} %", [m.large for m in measured], text.decimal, "%"),
            numbers("In our interval", [one.inside() for one in compared], text.decimal, "%"),
        ],
        "Percentages leave out numbers that are 0 in theirs. The last column is the share of their "
        "numbers that lie in the intervals of our estimates.",
    )
    lead = "Measures of the Detailed Summary Metrics of the 2020 census, for tables and geolevels."
    return Section("measures", "Tables", lead, [table])


def _sizes(compared: Sequence[Compared]) -> Section:
    """Return the absolute and the mean difference of the first variable by size of the place."""
    panels, rows = [], []
    for one in compared:
        of = dict(one.by_size())
        means = [of[label].mean_absolute if label in of else None for label in SIZE_LABELS]
        if len(of) > 1:  # a single point shows no course
            panels.append(Panel(text.words(one.geolevel), SIZE_LABELS, {"released": means}))
        rows += [(one.geolevel, label, measured) for label, measured in of.items()]
    name = f"{compared[0].table}0001"
    caption = f"Mean absolute difference of {name}"
    figures = [
        Figure(
            "sizes-figure",
            line_panels("sizes-figure", panels, caption),
            f"{caption} by its size in theirs, a panel per geolevel with places of several sizes.",
            [("released", "mean absolute difference")],
        )
        for _ in panels[:1]
    ]
    table = Table.of(
        "sizes-table",
        f"Differences of {name} by its size in theirs",
        [
            labels("Geolevel", [level for level, _, _ in rows]),
            names("Size", [label for _, label, _ in rows]),
            numbers("Places", [measured.answers for *_, measured in rows]),
            numbers("Mean", [measured.mean for *_, measured in rows], text.signed),
            numbers("Mean absolute", [m.mean_absolute for *_, m in rows], text.decimal),
            numbers(
                "Mean absolute", [m.mean_absolute_percent for *_, m in rows], text.decimal, "%"
            ),
            numbers("Largest", [measured.largest for *_, measured in rows], text.decimal),
        ],
    )
    lead = "A mean difference that falls with the size says that small places gain from large ones."
    return Section("sizes", "Places by size", lead, [*figures, table])


def _largest(compared: Sequence[Compared]) -> Section:
    """Return the places whose first variable differs most."""
    rows = [(one.geolevel, *row) for one in compared for row in one.most_changed()]
    name = f"{compared[0].table}0001"
    table = Table.of(
        "largest",
        f"Places whose {name} differs most",
        [
            labels("Geolevel", [row[0] for row in rows]),
            codes("Geocode", [row[1] for row in rows]),
            numbers("Ours", [row[2] for row in rows]),
            numbers("Theirs", [row[3] for row in rows]),
            numbers("Difference", [row[2] - row[3] for row in rows], text.signed_integer),
        ],
    )
    return Section(
        "largest", "Largest differences", "At most ten places of each geolevel.", [table]
    )
