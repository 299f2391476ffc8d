"""The certificate: what it promises is what the manifest proves, and nothing is left out."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.pipeline.documents.manifest import Manifest
from jobs.pipeline.report.certificate import Verified, odds, write_certificate
from tests.unit.jobs.pipeline.report.report_samples import (
    budget_row,
    limited,
    manifest,
    manifest_document,
)
from tests.unit.jobs.pipeline.report.test_report import Outline

DIGEST = "9a" * 32


def verified() -> Verified:
    when = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    return Verified([DIGEST], when, {"datasets": 44, "families": 12_345, "exact_answers": 0})


def certificate(folder: Path, document: Manifest | None = None) -> str:
    path = folder / "certificate.html"
    write_certificate([manifest() if document is None else document], verified(), path)
    return path.read_text("utf-8")


def shown(folder: Path, document: Manifest | None = None) -> str:
    page = certificate(folder, document)
    Outline(page)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page[page.index("<body") :]))


def standard() -> Manifest:
    """As large as that of the 2020 redistricting data: 11 queries, 6 geolevels, 4 attributes."""
    levels = ("nation", "state", "county", "tract", "block_group", "block")
    queries = [f"votingage * hispanic * cenrace {number}" for number in range(11)]
    long = "22372686691565348318/16225080393546608787"
    statement = {"total": long, "epsilon": 12.0, "epsilon_simple": 13.0, **limited()}
    geography = [
        {"geolevel": level, "digits": k, "geounits": 7, "measured": 7, "only_children": 0}
        for k, level in enumerate(levels)
    ]
    rows = [
        budget_row("nation", "total") | {"geolevel": level, "chain_end": level, "query": query}
        for level in levels
        for query in queries
    ]
    kinds = [("record", "")]
    kinds += [("attribute", name) for name in ("hhgq", "votingage", "hispanic", "cenrace")]
    kinds += [("within", name) for name in reversed(levels[:-1])]
    return manifest(
        budget=rows,
        geography=geography,
        statements=[{"change": change, "name": name, **statement} for change, name in kinds],
        invariants=[
            {"query": query, "geolevels": list(levels)} for query in ("total", "hhgq", "votingage")
        ],
        limits=[
            {"kind": "facilities", "name": "hhgq", "geolevels": ["block"], "types": ["nursing"]}
        ],
    )


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 4.7, 13.8, 17.2, 50.0, 900.0])
def test_odds_are_never_printed_below_what_holds(epsilon: float) -> None:
    text = odds(epsilon).removesuffix(" to 1").replace(",", "")
    power = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    mantissa, _, exponent = text.partition(" \N{MULTIPLICATION SIGN} 10")
    if text.startswith("10") and not exponent and epsilon > 700:
        assert int(text[2:].translate(power)) * math.log(10) >= epsilon
        return
    value = float(mantissa) * 10.0 ** int(exponent.translate(power) or 0)
    assert math.exp(epsilon) <= value <= 1.12 * math.exp(epsilon) + 0.01


def test_what_is_promised_of_whom(tmp_path: Path) -> None:
    page = shown(tmp_path)
    assert "One record is one person of the data" in page
    assert "It is a promise to a person, not to a household" in page
    assert "4 records together have \N{GREEK SMALL LETTER RHO} = 4700224/114921" in page  # 16 times
    assert "ε = 17.144 at δ = 10 \N{MINUS SIGN}10" in page
    units = shown(tmp_path, manifest(records="units", totals={"units": 1, "leaf_geounits": 1}))
    assert "One record is one unit of the data" in units
    pure = manifest_document()["privacy"] | {"definition": "pure", "total": "1/2"}
    page = shown(tmp_path, manifest(privacy=pure))
    assert "pure differential privacy with ε = 1/2" in page
    assert "4 records together have ε = 2 ." in page


def test_a_change_that_costs_less_has_smaller_odds(tmp_path: Path) -> None:
    page = shown(tmp_path)
    assert re.search(r"only sex 54\.60 to 1 62\.5 of 100 3\.000 1/8", page)  # e^4 by the textbook
    # rho of 1/8: the advantage is at most sqrt(1/16), so a guess is right in 1/2 + 1/8 of cases


def test_what_is_not_protected_says_so(tmp_path: Path) -> None:
    nothing = {"total": None, "epsilon": None, "epsilon_simple": None}
    none = limited(comparable="none", in_words="not protected: total in every block")
    statements = [{"change": "within", "name": "county", **nothing, **none}]
    page = shown(tmp_path, manifest(statements=statements, geounits_source="data"))
    assert "only the place, within one county not protected" in page
    assert "comes from the confidential data and is published as it is" in page
    assert "Published exactly, outside of the guarantee: total at nation" in page
    assert "No table is published exactly" in shown(tmp_path, manifest(invariants=[]))


def test_which_release_it_is(tmp_path: Path) -> None:
    software = manifest_document()["software"] | {"revision": "885abc4, with changes"}
    page = shown(tmp_path, manifest(software=software))
    for text in (DIGEST, "ab" * 32, "12" * 32, "885abc4, with changes", "2026-01-02 03:04 UTC"):
        assert text in page
    assert "44 datasets, 12,345 families" in page
    assert "exact answers" not in page
    assert "source not recorded" in shown(tmp_path)
    assert page.count("Date and signature") == 3


def test_a_seeded_release_is_not_certified(tmp_path: Path) -> None:
    page = shown(tmp_path, manifest(not_for_release=True))
    assert "NOT FOR RELEASE" in page
    assert "No privacy guarantee holds" in page
    assert "NOT FOR RELEASE" not in shown(tmp_path)


def test_too_many_queries_are_summed_up(tmp_path: Path) -> None:
    rows = [budget_row("nation", "total") | {"query": f"q{n}"} for n in range(40)]
    page = shown(tmp_path, manifest(budget=rows))
    assert "Budget by geolevel" in page
    assert "40 queries; the report lists each" in page
    assert "Budget by geolevel" not in shown(tmp_path)


def test_it_loads_nothing(tmp_path: Path) -> None:
    page = certificate(tmp_path)
    assert "://" not in page
    assert "<script" not in page
