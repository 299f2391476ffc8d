"""Pages as people see them: in a browser, on a screen and on a phone, without a network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.pipeline.report.certificate import write_certificate
from tests.browser.chromium import Browser, Page, chromium, find_chromium, pages_of
from tests.browser.pictures import Pages, make_pages
from tests.builders import toy
from tests.unit.jobs.pipeline.report.test_certificate import standard, verified

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="no Chromium is installed")
WIDTHS = (1300, 400)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """Every page of a small state."""
    folder = tmp_path_factory.mktemp("pages")
    toy.write_records(folder)
    tables = {"output__tables": ["total", "sex", "age * sex"]}
    real = {"privacy__randomness": {"source": "operating_system"}}
    return make_pages(toy.configuration(folder, **tables, **real))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", Pages.KINDS)
def test_a_page_fits_its_window_and_loads_nothing(
    browser: Browser, pages: Pages, kind: str, width: int
) -> None:
    path = pages.path(kind)
    page = browser.open(path, width=width, height=800)
    settle(page)
    assert page.overflow() == []
    assert page.complaints() == []
    assert page.requests() == [path.resolve().as_uri()]
    page.close()


def test_what_is_too_wide_is_seen(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "wide.html"
    path.write_text(
        "<!DOCTYPE html><meta name=viewport content='width=device-width'>"
        "<p style='width: 900px'>wide<script>undefined.call()</script>"
    )
    page = browser.open(path, width=400)
    assert any(one.startswith("P ") for one in page.overflow())
    assert "Cannot read properties" in page.complaints()[0]
    page.close()


def settle(page: Page) -> None:
    """Wait until a page that draws itself has done so."""
    if page.evaluate("document.body.classList.contains('explore')"):
        page.wait("document.body.dataset.ready === 'yes'")


@pytest.mark.parametrize("kind", ["report", "internal-report"])
def test_charts_are_one_panel_a_row_on_a_phone(browser: Browser, pages: Pages, kind: str) -> None:
    page = browser.open(pages.path(kind), width=400)
    rows = page.evaluate(
        """[...document.querySelectorAll(".panels")].map(figure => {
          const tops = [...figure.querySelectorAll(":scope > svg")].map(one => one.getBoundingClientRect().top);
          return tops.length - new Set(tops).size;
        })"""
    )
    assert len(rows) >= 2
    assert not any(rows)
    sizes = page.evaluate(
        "[...document.querySelectorAll('.panels text')].map(one => one.getBoundingClientRect().height)"
    )
    assert min(size for size in sizes if size) > 9
    page.close()


def test_the_first_column_stays_on_a_phone(browser: Browser, pages: Pages) -> None:
    page = browser.open(pages.path("report"), width=400)
    page.wait("document.querySelector('.sideways') !== null")  # sizes are observed a frame later
    places = page.evaluate(
        """(() => {
          const table = document.getElementById("budget-table-table"), scroll = table.closest(".scroll");
          const first = table.tBodies[0].rows[0].cells[0];
          const before = first.getBoundingClientRect().left;
          scroll.scrollLeft = 200;
          const hint = getComputedStyle(scroll.parentElement.querySelector(".caption"), "::after");
          return [before, first.getBoundingClientRect().left, scroll.scrollLeft, hint.content];
        })()"""
    )
    assert places[0] == pytest.approx(places[1], abs=1)
    assert places[2] == 200
    assert "scroll sideways" in places[3]
    page.close()


# --- explore ------------------------------------------------------------------------------------


@pytest.fixture(params=WIDTHS)
def explored(browser: Browser, pages: Pages, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page of the release, on a screen and on a phone."""
    page = browser.open(pages.path("explore"), width=request.param, height=900)
    settle(page)
    yield page
    assert page.complaints() == []
    page.close()


def cards(page: Page) -> list[str]:
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('.card h3')].map(one => one.innerText)"
    )
    return found


def header(page: Page) -> dict:
    found: dict = json.loads(page.evaluate("document.getElementById('header').textContent"))
    return found


def test_a_place_is_found_by_its_name_and_by_its_code(explored: Page) -> None:
    explored.evaluate("document.getElementById('search').focus()")
    explored.type("place 2")
    explored.wait("document.querySelectorAll('#hits [role=option]').length")
    explored.press("Enter")
    explored.wait("document.querySelectorAll('.card').length === 2")
    assert "Place 2\n" in cards(explored)[1]
    code = explored.evaluate("placesOf(3).then(one => one.codes.at(-1))")
    explored.type(code)
    explored.wait("document.querySelectorAll('#hits [role=option]').length === 1")
    explored.press("Enter")
    explored.wait("document.querySelectorAll('.card').length === 3")
    assert code in cards(explored)[2]
    explored.type("nowhere")
    explored.wait("document.getElementById('hits').innerText.startsWith('No place')")
    explored.press("Escape")
    assert explored.evaluate("document.getElementById('hits').hidden")
    assert explored.overflow() == []


def test_numbers_stand_side_by_side(explored: Page) -> None:
    """Those of the card are those of the arrays, and the bar is drawn where they say."""
    rows = explored.evaluate(
        "[...document.querySelectorAll('.card td')].map(one => one.innerText.split('\\n')[0])"
    )
    said = explored.evaluate("answersOf(0, 0).then(one => one.get(0, 0))")
    assert rows[0] == f"{said['count']:,.0f}"
    assert rows[1] == f"{said['estimate']:,.1f}"
    level = len(header(explored)["levels"]) - 1
    explored.evaluate(f"pick({level}, 0)")
    explored.wait("document.querySelectorAll('.card').length === 2")
    said = explored.evaluate(f"answersOf({level}, 0).then(one => one.get(0, 0))")
    shown = explored.evaluate(
        "[...document.querySelectorAll('.card')].at(-1).querySelectorAll('td')[2].innerText"
    )
    minus = "\N{MINUS SIGN}"
    ends = (f"{said[key]:,.1f}".replace("-", minus) for key in ("low", "high"))
    assert shown.split("\n")[0] == " to ".join(ends)
    place = explored.evaluate(
        "[...document.querySelectorAll('.card')].at(-1).querySelector('path').getAttribute('transform')"
    )
    away = max(-4, min(4, (said["count"] - said["estimate"]) / said["error"]))
    assert float(place.split("(")[1].split()[0]) == pytest.approx(12.5 * away, abs=1e-6)


def test_a_card_shows_numbers_of_millions(explored: Page) -> None:
    """Widened as for a nation: no column is cut at the right."""
    hidden = explored.evaluate(
        """(() => {
          const row = document.querySelector('.card tbody tr');
          ["5,194,675", "5,194,679.3", "5,194,670.1 to 5,194,688.5"].forEach((text, i) => {
            row.querySelectorAll("td")[i].firstChild.textContent = text;
          });
          const answers = document.querySelector(".answers");
          return answers.scrollWidth - answers.clientWidth;
        })()"""
    )
    assert hidden == 0


def test_the_list_is_sorted_and_narrowed(explored: Page) -> None:
    select = "(id, value) => { const one = document.getElementById(id); one.value = value; one.dispatchEvent(new Event('change')); }"
    level = [one["name"] for one in header(explored)["levels"]].index("tract")
    explored.evaluate(f"({select})('level', '{level}')")
    explored.wait("document.getElementById('list-caption').innerText.includes('tract')")
    explored.evaluate("document.querySelector('#list thead th:nth-child(2) button').click()")
    explored.wait("document.querySelector('#list th[aria-sort=descending]')")
    counts = explored.evaluate(
        "[...document.querySelectorAll('#list tbody td:nth-child(2)')].map(one => Number(one.innerText.replaceAll(',', '')))"
    )
    assert len(counts) > 2
    assert counts == sorted(counts, reverse=True)
    within = explored.evaluate("[...document.getElementById('within').options].at(-1).value")
    explored.evaluate(f"({select})('within', '{within}')")
    explored.wait(
        f"[...document.querySelectorAll('#list tbody small')].every(one => one.innerText.startsWith('{within}'))"
    )
    explored.evaluate("document.querySelector('#list tbody tr').focus()")
    explored.press("Enter")
    explored.wait("document.querySelectorAll('.card').length === 2")


def test_the_map_shows_and_picks_places(explored: Page) -> None:
    colors = explored.evaluate(
        """(() => {
          const { width, height } = canvas, data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
          const found = new Set();
          for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) found.add(data.slice(i, i + 3).join());
          return found.size;
        })()"""
    )
    fills = explored.evaluate(
        "[...document.querySelectorAll('#steps .swatch')].map(one => one.style.background)"
    )
    assert colors >= len(fills) == len({*fills})
    assert all(fills)
    explored.evaluate("canvas.scrollIntoView({ block: 'center', behavior: 'instant' })")
    box = explored.evaluate(
        "(({ left, top, width, height }) => [left, top, width, height])(canvas.getBoundingClientRect())"
    )
    explored.click(box[0] + box[2] / 2, box[1] + box[3] / 2)
    explored.wait("document.querySelectorAll('.card').length === 2")
    assert "protected" in explored.evaluate("document.getElementById('under').innerText")
    explored.evaluate("canvas.focus()")
    explored.press("+")
    assert explored.evaluate("map.scale") == pytest.approx(1.5)
    explored.press("0")
    assert explored.evaluate("map.scale") == 1


def test_the_address_keeps_what_is_compared(browser: Browser, pages: Pages) -> None:
    first = browser.open(pages.path("explore"))
    settle(first)
    first.evaluate("pick(2, 0)")
    first.wait("document.querySelectorAll('.card').length === 2")
    fragment = first.evaluate("location.hash.slice(1)")
    shown = cards(first)
    first.close()
    again = browser.open(pages.path("explore"), fragment=fragment)
    settle(again)
    assert cards(again) == shown
    again.close()


def test_errors_are_on_the_internal_page_alone(browser: Browser, pages: Pages) -> None:
    for kind, wanted in (("explore", False), ("internal-explore", True)):
        page = browser.open(pages.path(kind))
        settle(page)
        heads = page.evaluate(
            "[...document.querySelectorAll('#list th')].map(one => one.innerText)"
        )
        assert ("Error" in heads) is wanted
        assert ("CONFIDENTIAL" in page.evaluate("document.body.innerText")) is wanted
        page.close()


def test_dark_is_dark(browser: Browser, pages: Pages) -> None:
    for kind in Pages.KINDS:
        page = browser.open(pages.path(kind), dark=True)
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert max(map(int, color.removeprefix("rgb(").removesuffix(")").split(","))) < 40
        page.close()


def test_the_certificate_is_one_sheet(browser: Browser, pages: Pages, tmp_path: Path) -> None:
    """Also for the 2020 redistricting data, and in Portuguese, which takes more words."""
    there = [pages.path("certificate")]
    for language in ("en", "pt"):
        there.append(tmp_path / f"{language}.html")
        write_certificate([replace(standard(), language=language)], verified(), there[-1])
    for one in there:
        page = browser.open(one)
        assert pages_of(page.pdf()) == 1
        page.close()


def test_sheets_are_counted(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "long.html"
    path.write_text("<!DOCTYPE html>" + "<p style='break-after: page'>sheet</p>" * 3 + "<p>last")
    page = browser.open(path)
    assert pages_of(page.pdf()) == 4
    page.close()
