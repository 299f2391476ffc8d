"""Both reports: well formed, self-contained, escaped, complete, and the public one blind."""

from __future__ import annotations

import re
import stat
from html.parser import HTMLParser
from pathlib import Path

import pytest

from jobs.pipeline.documents.evaluation import Evaluation
from jobs.pipeline.documents.manifest import Manifest
from jobs.pipeline.report.internal import write_internal_report
from jobs.pipeline.report.public import write_public_report
from jobs.pipeline.report.table import EMPTY
from tests.builders.in_process import leave_out_figures
from tests.unit.jobs.pipeline.report.report_samples import (
    HOSTILE,
    LEVELS,
    budget_row,
    evaluation,
    evaluation_document,
    limited,
    made,
    manifest,
    manifest_document,
    summary,
)

VOID = {"meta", "input", "br", "link"}


class Outline(HTMLParser):
    """Checks nesting; collects ids, references, and the tables."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.used: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        assert len(values) == len(attrs), f"{tag} has an attribute twice"
        if tag not in VOID:
            self.open.append(tag)
        self._note(tag, values)

    def handle_startendtag(self, tag, attrs):
        self._note(tag, dict(attrs))

    def handle_endtag(self, tag):
        assert self.open, f"closes {tag}, nothing is open"
        assert self.open.pop() == tag

    def _note(self, tag, values):
        self.tags.append((tag, values))
        if "id" in values:
            self.ids.append(values["id"])
        for name in ("aria-labelledby", "data-filter"):
            self.used += [values[name]] if name in values else []
        if values.get("href", "").startswith("#"):
            self.used.append(values["href"][1:])

    def count(self, tag, **wanted):
        return sum(
            tag == name and all(values.get(k) == v for k, v in wanted.items())
            for name, values in self.tags
        )


def internal(folder: Path, document=None, found=None, of=()) -> str:
    out = folder / "internal.html"
    write_internal_report(
        manifest() if document is None else document,
        evaluation() if found is None else found,
        summary(),
        out,
        of=of,
    )
    return out.read_text(encoding="utf-8")


def public(folder: Path, document=None, of=()) -> str:
    out = folder / "public.html"
    write_public_report(manifest() if document is None else document, out, of=of)
    return out.read_text(encoding="utf-8")


def text_of(page: str) -> str:
    body = page[page.index("<body>") : page.index("<script>")]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", body))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without drawings, for tests that look at words."""
    leave_out_figures(monkeypatch)


MANIFESTS = [
    manifest(),
    manifest(budget=[budget_row("nation", "total") | {"chain_end": "block"}]),
    manifest(totals={"persons": None, "leaf_geounits": 25_181}, outputs=[], statements=[]),
    manifest(geounits_source="data", open_sessions=["block"], invariants=[]),
    manifest(
        privacy=manifest_document()["privacy"] | {"definition": "pure"},
        limits=[{"kind": "structural zeros", "name": "1 of 252 cells", "geolevels": []}],
        environment=manifest_document()["environment"] | {"cores": None},
    ),
]


@pytest.mark.parametrize("document", MANIFESTS)
def test_any_manifest_gives_a_well_formed_page(tmp_path, document):
    for page in (public(tmp_path, document), internal(tmp_path, document)):
        outline = Outline(page)
        assert len(set(outline.ids)) == len(outline.ids)
        assert set(outline.used) <= set(outline.ids)


def test_statistics_of_no_answers_are_dashes(undrawn, tmp_path):
    """Null in the evaluation: there were no answers to compare."""
    means = dict.fromkeys(("mae", "rmse", "bias", "max", "exact"))
    quantiles = dict.fromkeys(("q50", "q90", "q95", "q99", "tvd"))
    found = evaluation_document()
    for row in found["results"]:
        row |= {**means, **quantiles, "answers": 0, "live": 0, "distribution": []}
        row |= {kind: [bin | means for bin in row[kind]] for kind in ("by_size", "by_true")}
    page = internal(tmp_path, None, made(Evaluation, found))
    Outline(page)
    assert page.count(f">{EMPTY}<") > internal(tmp_path).count(f">{EMPTY}<")
    assert "not recorded" not in text_of(page)


@pytest.mark.parametrize("write", [internal, public])
def test_the_page_loads_nothing(tmp_path, write):
    page = write(tmp_path)
    outline = Outline(page)
    assert "://" not in page
    assert not re.search(r"@import|url\((?!#)", page)
    assert not any("src" in values or tag in ("link", "iframe") for tag, values in outline.tags)
    assert all(values["href"].startswith("#") for _, values in outline.tags if "href" in values)
    assert len(page) < 1_000_000


@pytest.mark.parametrize("write", [internal, public])
def test_hostile_text_is_escaped_wherever_it_stands(tmp_path, write):
    def poison(value):
        if isinstance(value, dict):
            return {key: poison(item) for key, item in value.items()}
        if isinstance(value, list):
            return [poison(item) for item in value]
        return HOSTILE + value if isinstance(value, str) else value

    poisoned = poison(manifest_document())
    fixed = ("privacy", "geounits_source", "records", "statements", "totals", "format")
    kept = {key: manifest_document()[key] for key in fixed}
    exact = ("share", "level_share", "cost", "parameter")
    for row, fine in zip(poisoned["budget"], manifest_document()["budget"], strict=True):
        row |= {key: fine[key] for key in (*exact, "mechanism", "charged")}
    page = write(tmp_path, made(Manifest, poisoned | kept))
    assert page.count("<script>") == 1
    assert "alert(&#34;x&#34;)" in page
    Outline(page)


def test_hostile_geocodes_and_figure_labels_are_escaped(tmp_path):
    found = evaluation_document()
    level, query = HOSTILE + "level$_$", HOSTILE + "query"
    found["levels"], found["queries"] = [level], ["total", query, "detailed"]
    for row in found["results"]:
        row["geolevel"] = level
        row["query"] = query if row["query"] == "sex" else row["query"]
        row["most_changed"] = [{"geocode": HOSTILE, "l1": 1, "persons": 1, "net": 1}]
    page = internal(tmp_path, None, made(Evaluation, found))
    assert page.count("<script>") == 1
    Outline(page)


def test_banners(undrawn, tmp_path):
    seeded = manifest(not_for_release=True)
    secret, warning = "CONFIDENTIAL: compares with the truth", "NOT FOR RELEASE: noise was seeded"
    assert secret in internal(tmp_path)
    assert warning not in internal(tmp_path)
    assert warning in internal(tmp_path, seeded)
    assert secret in internal(tmp_path, seeded)
    assert secret not in public(tmp_path, seeded)
    assert warning in public(tmp_path, seeded)
    assert "No guarantee holds for this run" in public(tmp_path, seeded)
    assert "No guarantee holds" not in public(tmp_path)
    assert 'class="banner' not in public(tmp_path)


def test_the_internal_report_shows_the_evaluation(tmp_path):
    found = evaluation_document()
    page = internal(tmp_path, None, made(Evaluation, found))
    shown = text_of(page)
    for row in found["results"]:
        for key in ("answers", "mae", "rmse", "max", "q99", "appeared", "vanished"):
            assert f"{row[key]:,}" in shown, (row["geolevel"], row["query"], key)
    assert "block-3" in shown


def test_numbers_of_the_headline(undrawn, tmp_path):
    shown = text_of(internal(tmp_path))
    for value in ("1,052,567", "25,181", "2.56", "293764/114921", "17.144", "5 min 00 s"):
        assert value in shown
    assert "1 of 1 checked against the truth" in shown
    assert "Noise of total ±4.11 9 in 10 noisy answers at block" in shown
    assert "on average it has 41.80 persons" in shown


def test_a_broken_invariant_is_called_broken(tmp_path):
    found = evaluation_document()
    found["results"][0]["max"] = 1
    page = internal(tmp_path, None, made(Evaluation, found))
    assert "0 of 1 1 BROKEN OR UNSEEN" in text_of(page)


def test_every_table_can_be_sorted_and_long_ones_filtered(tmp_path):
    page = internal(tmp_path)
    outline = Outline(page)
    tables = re.findall(r"<table.*?</table>", page, flags=re.DOTALL)
    assert len(tables) > 10
    assert outline.count("table") == outline.count("table", **{"class": "sortable"}) == len(tables)
    filters = 0
    for table in tables:
        heads = re.findall(r'<th scope="col"[^>]*><button type="button">', table)
        body = table[table.index("<tbody>") :]
        rows = re.findall(r"<tr>.*?</tr>", body, flags=re.DOTALL)
        assert len(heads) == table.count('scope="col"') > 1
        assert all(row.count('<th scope="row"') == 1 for row in rows)
        assert all(row.count("<td") == len(heads) - 1 for row in rows)
        filters += len(rows) >= 9
    assert outline.count("input", type="search") == filters > 2


@pytest.mark.parametrize("write", [internal, public])
def test_every_figure_has_a_caption_that_names_it(tmp_path, write):
    outline = Outline(write(tmp_path))
    figures = outline.count("figure")
    assert figures == outline.count("figcaption") <= outline.count("svg")
    assert figures == outline.count("div", role="img")
    assert figures >= 1


def test_the_internal_report_is_for_its_owner_only(undrawn, tmp_path):
    internal(tmp_path)
    public(tmp_path)
    assert stat.S_IMODE((tmp_path / "internal.html").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "public.html").stat().st_mode) == 0o644
    assert len(list(tmp_path.iterdir())) == 2


def luminance(color: str) -> float:
    def linear(part: int) -> float:
        share = part / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_text_contrast_is_sufficient_in_light_and_dark():
    import jobs.pipeline.report

    style = (Path(jobs.pipeline.report.__path__[0]) / "style.css").read_text(encoding="utf-8")
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root \{(.*?)\}", style, flags=re.DOTALL)
    )
    for palette in (light, dark):
        pairs = [("ink", "paper"), ("muted", "paper"), ("accent", "paper"), ("ink", "wash")]
        pairs += [("ink", name) for name in ("heat", "above-heat", "below-heat", "step-1")]
        poor = {pair: contrast(palette[pair[0]], palette[pair[1]]) for pair in pairs}
        assert {pair: ratio for pair, ratio in poor.items() if ratio < 4.5} == {}
        marks = ("released", "raw", "third", "above", "below")
        assert all(contrast(palette[mark], palette["paper"]) >= 3 for mark in marks)


def with_units() -> tuple[Manifest, Manifest]:
    """The manifests of the units and the persons of a run."""
    units = manifest(
        records="units",
        totals={"units": 7_654_321, "leaf_geounits": 25_181},
        invariants=[{"query": "hhgq", "geolevels": ["nation", "county", "block"]}],
        budget=[budget_row(level, "detailed") for level in LEVELS],
    )
    budget = {"neighbors": "bounded", "delta": "1/10000000000", "definition": "zcdp", "rho": "1"}
    grants = [
        {"product": "units", "grant": "1", "total": "1/7", "epsilon": 3.5, **budget},
        {"product": "pl94", "grant": "1", "total": "1", "epsilon": 10.1, **budget},
    ]
    composed = [{"total": "8/7", "epsilon": 10.9, **budget}]
    simple = {"epsilon_simple": 11.5}
    persons = manifest(
        together={
            "grants": [grant | simple for grant in grants],
            "composed": [total | simple for total in composed],
        },
        limits=[
            {"kind": "facilities", "name": "hhgq", "geolevels": ["block"], "types": ["nursing"]}
        ],
    )
    return units, persons


def test_both_reports_show_the_products_and_their_sum(undrawn, tmp_path):
    both = with_units()
    for page in (public(tmp_path, both[1], both), internal(tmp_path, both[1], of=both)):
        shown = text_of(page)
        assert "Products of this run" in shown
        assert "7,654,321" in shown
        assert re.search(r"persons 1,052,567 252 total, sex, detailed total, limits by hhgq", shown)
        assert re.search(r"units 7,654,321 252 detailed hhgq", shown)
        assert re.search(r"all together .{1,20} 8/7 bounded 10\.9", shown)
        assert re.search(r"facilities hhgq nursing block", shown)
        outline = Outline(page)
        assert len(outline.ids) == len(set(outline.ids))
    assert "Products of this run" not in public(tmp_path)


def test_a_report_on_units_speaks_of_units(undrawn, tmp_path):
    for page in (
        public(tmp_path, with_units()[0]),
        internal(tmp_path, with_units()[0]),
    ):
        shown = text_of(page)
        assert "persons" not in shown.lower()
        assert "Numbers are in units unless" in shown
        assert re.search(r"Units\s+7,654,321", shown)
    assert "Numbers are in persons unless" in text_of(public(tmp_path))


def test_statements_that_promise_nothing_show_no_loss(tmp_path: Path) -> None:
    by = {"limited_by": ["total in every block"]}
    statements = [
        {"change": "record", "name": "", "total": "3/8", "epsilon": 5.0, "epsilon_simple": 6.0,
         **limited(comparable="some", **by)},
        {"change": "attribute", "name": "sex", "total": "1/8", "epsilon": 3.0,
         "epsilon_simple": 4.0, **limited()},
        {"change": "within", "name": "county", "total": None, "epsilon": None,
         "epsilon_simple": None, **limited(comparable="none", **by)},
    ]  # fmt: skip
    neighborhood = limited(comparable="some", **by)
    privacy = {**manifest_document()["privacy"], "neighborhood": neighborhood}
    out = tmp_path / "report.html"
    write_public_report(manifest(statements=statements, privacy=privacy), out)
    page = " ".join(out.read_text("utf-8").split())
    assert "<code>3/8</code>" in page  # exact, where exactness is claimed
    assert "Only neighboring data sets that agree on these are compared: total in every" in page
    protected, _, unprotected = page.partition("<h3>Not protected</h3>")
    assert "<li>What a record says of sex.</li>" in protected
    place = "The place of a record within one county"
    assert place not in protected
    assert f"<li>{place}: no such change keeps total in every block.</li>" in unprotected


def test_a_run_without_invariants_says_none(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    write_public_report(manifest(invariants=[]), out)
    caption = re.search(r'id="invariants-caption".*?</tbody>', out.read_text("utf-8"), re.DOTALL)
    assert caption is not None
    assert ">none<" in caption[0]
    assert "not recorded" not in caption[0]
