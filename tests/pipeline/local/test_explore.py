"""The page of `das explore`: its numbers are those of the release, and what it cannot show is said."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
import re
import shutil
import stat
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pa_csv
import pytest
import yaml

from jobs.pipeline.documents.manifest import read_manifest
from jobs.pipeline.report.accuracy import read_accuracy
from tests.builders import toy
from tests.builders.boundaries import write_boundaries
from tests.builders.in_process import execute
from tests.builders.places import product_in, release_of

Das = Callable[..., tuple[int, str]]
TRACTS = sorted({code[:7] for code in toy.blocks()})


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("explored")
    toy.write_records(folder)
    return execute(toy.configuration(folder, output__tables=["total", "sex * age", "age"]))


def header(page: Path) -> dict[str, Any]:
    found = re.search(r'id="header">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    document: dict[str, Any] = json.loads(found[1])
    return document


def block(page: Path, place: list[int]) -> bytes:
    found = re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    return gzip.decompress(base64.b64decode(found[1][place[0] : sum(place)]))


def numbers(page: Path, level: str, table: str) -> dict[str, np.ndarray]:
    """Arrays of a table at a geolevel, [answers, geounits], as the page unpacks them."""
    said = header(page)
    levels, tables = ([one["name"] for one in said[key]] for key in ("levels", "tables"))
    described = said["blocks"][f"{levels.index(level)}/{tables.index(table)}"]
    size, n = len(said["tables"][tables.index(table)]["labels"]), said["levels"]
    content, at, found = block(page, described["place"]), 0, {}
    for name, width, count in described["arrays"]:
        planes = np.frombuffer(content, np.uint8, width * count, at).reshape(width, count)
        values = (planes.astype(np.int64) << (8 * np.arange(width))[:, None]).sum(0)
        found[name] = ((values >> 1) ^ -(values & 1)).reshape(size, -1)
        assert found[name].shape[1] == n[levels.index(level)]["size"]
        at += width * count
    return found


def estimated(das: Das, release: Path, table: str, level: str) -> list[dict[str, Any]]:
    code, printed = das("estimate", release, "--query", table, "--geolevel", level, "--json")
    assert code == 0, printed
    rows: list[dict[str, Any]] = json.loads(printed)
    return rows


def test_numbers_are_those_of_the_release(das: Das, out: Path, tmp_path: Path) -> None:
    release = Path(shutil.copytree(out / "release", tmp_path / "published"))
    page = tmp_path / "page.html"
    code, printed = das("explore", release, "-o", page)
    assert code == 0, printed
    assert printed.split()[-1] == "publishable"
    assert stat.S_IMODE(page.stat().st_mode) == 0o644
    assert "CONFIDENTIAL" not in page.read_text()
    for level in toy.LEVELS:
        found = numbers(page, level, "detailed")
        rows = estimated(das, release, "sex * age", level)
        wanted = np.array([row["estimate"] for row in rows]).reshape(-1, 6).T
        errors = np.array([row["standard_error"] for row in rows]).reshape(-1, 6).T
        assert found["estimate"] / 10 + found["count"] == pytest.approx(wanted, abs=0.0501)
        assert found["error"] / 100 == pytest.approx(errors, abs=0.00501)
        table = pa_csv.read_csv(product_in(release).tables(level) / "detailed.csv")
        counts = np.array(table.column("count")).reshape(-1, 6).T
        assert (found["count"] == counts).all()


def test_names_and_codes_of_places(das: Das, out: Path, tmp_path: Path) -> None:
    write_boundaries(tmp_path / "land.json", TRACTS, (5,))
    page = tmp_path / "page.html"
    words = ("--boundaries", tmp_path / "land.json", "--names", "NAME")
    code, printed = das("explore", out, *words, "-o", page)
    assert code == 0, printed
    levels = {one["name"]: one for one in header(page)["levels"]}
    codes, names = block(page, levels["tract"]["places"]).decode().split("\0")
    assert codes.split("\n") == TRACTS
    assert block(page, levels["county"]["places"]).decode().split("\n")[0] == "99001"
    assert names.split("\n") == [f"Place {number + 1}" for number in range(len(TRACTS))]
    assert header(page)["notes"] == []
    assert dict((n, c) for n, _, c in header(page)["map"]["arrays"])["level"] == len(TRACTS)


def test_outlines_that_do_not_fit(das: Das, out: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_boundaries(tmp_path / "few.json", [*TRACTS[1:], "7777777"])
    code, printed = das("explore", out, "--boundaries", tmp_path / "few.json", "-o", page)
    assert code == 0, printed
    assert "1 of 6 outlines match no geounit of this page, the first is GEOID 7777777" in printed
    assert "1 of 6 geounits of tract have no outline" in printed
    write_boundaries(tmp_path / "other.json", ["0100", "0200"])
    for words in ((), ("--join", "GEOID")):
        code, printed = das("explore", out, "--boundaries", tmp_path / "other.json", *words)
        assert code == 2
        assert "has no geocode of the release" in printed
        assert "such as 99, 99001, 9900100, 9900100000" in printed
    words = ("--boundaries", tmp_path / "few.json", "--join", "GEOID")
    assert das("explore", out, *words, "-o", page)[0] == 0
    code, printed = das("explore", out, "--boundaries", tmp_path / "few.json", "--join", "GEOIDFQ")
    assert code == 2
    assert "has no such property; got GEOIDFQ; expected ['GEOID', 'NAME']" in printed


def test_what_does_not_fit_is_left_out_and_said(das: Das, out: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, printed = das("explore", out, "-o", page, "--megabytes", "0.0814")
    assert code == 0, printed
    assert "left out to keep the page small: detailed of every block" in printed
    assert page.stat().st_size <= 81_400
    assert "detailed of every block" in page.read_text()
    assert numbers(page, "state", "total")["count"].size == 1
    code, printed = das("explore", out, "-o", page, "--megabytes", "0.01")
    assert code == 2
    assert "leaves no room for any geolevel" in printed


def test_only_what_is_asked_for(das: Das, out: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ("--table", "age * sex", "--geolevel", "county", "--geolevel", "tract")
    code, printed = das("explore", out, *words, "-o", page)
    assert code == 0, printed
    said = header(page)
    assert [one["name"] for one in said["tables"]] == ["detailed"]
    assert [one["name"] for one in said["levels"]] == ["county", "tract"]
    for words, wanted in (
        (("--table", "sex"), "names no table of the release; got sex"),
        (("--geolevel", "town"), "names an unknown geolevel; got town"),
        (("--product", "units"), "--product: is unknown; got units"),
    ):
        code, printed = das("explore", out, *words, "-o", page)
        assert code == 2
        assert wanted in printed


def test_the_internal_page_has_errors(das: Das, out: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, printed = das("explore", out, "--internal", "-o", page)
    assert code == 0, printed
    assert printed.split()[-1] == "CONFIDENTIAL"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert "CONFIDENTIAL: compares with the truth" in page.read_text()
    people = (out.parent / "records.csv").read_text().split()[1:]
    counted = np.array([sum(row.startswith(code) for row in people) for code in TRACTS])
    found = numbers(page, "tract", "total")
    assert (found["count"][0] - found["off"][0] == counted).all()
    assert found["off"].any()


def test_errors_stay_where_the_truth_is(das: Das, out: Path, tmp_path: Path) -> None:
    for page in (release_of(out).root / "page.html", out / "solutions" / "other" / "page.html"):
        code, printed = das("explore", out, "--internal", "-o", page)
        assert code == 2
        assert "lies in the release; the page is confidential" in printed
        assert not page.exists()
    release = Path(shutil.copytree(out / "release", tmp_path / "published"))
    code, printed = das("explore", release, "--internal", "-o", tmp_path / "page.html")
    assert code == 2
    assert "does not exist: errors are computed from the true histograms" in printed
    assert not (tmp_path / "page.html").exists()
    assert das("explore", out, "--internal", "-o", tmp_path / "page.html")[0] == 0


def test_files_of_others_are_not_written_over(das: Das, out: Path, tmp_path: Path) -> None:
    path = tmp_path / "thesis.html"
    path.write_text("<html>mine</html>")
    for command, option in (("explore", "--output"), ("verify", "--certificate")):
        code, printed = das(command, out / "release", option, path)
        assert code == 2
        assert "is another file and is not written over" in printed
        assert path.read_text() == "<html>mine</html>"


# Required fields of an entry of the registry and of each part that a draft has, by path; the part
# with a "?" is optional there. From schemas/deployments-schema.yaml of opendp/deployments-registry-data
# at 02f6334, in which every object refuses other fields.
_REGISTRY = {
    (): "approved registry_author deployment",
    ("deployment",): "short_name data_curator intended_use data_product_type "
    "data_product_description publication_date additional_information_url? dp_flavor? "
    "privacy_loss? model? additional_dp_information? implementation?",
    ("deployment", "dp_flavor"): "name data_domain unprotected_quantities",
    ("deployment", "privacy_loss"): "privacy_unit privacy_parameters privacy_unit_description? "
    "privacy_parameters_description?",
    ("deployment", "privacy_loss", "privacy_parameters"): "epsilon? rho? delta?",
    ("deployment", "model"): "model_type release_type interactivity actors? "
    "model_type_description? release_type_description? interactivity_description?",
    ("deployment", "additional_dp_information"): "post_processing composition",
    ("deployment", "implementation"): "pre_processing_eda_hyperparameter_tuning mechanisms "
    "justification",
}


def test_the_draft_for_the_registry_fits_its_schema(das: Das, out: Path, tmp_path: Path) -> None:
    path = tmp_path / "entry.yaml"
    code, printed = das("verify", out / "release", "--registry", path)
    assert code == 0, printed
    entry = yaml.safe_load(path.read_text())
    for place, names in _REGISTRY.items():
        part = functools.reduce(lambda whole, name: whole[name], place, entry)
        allowed = {name.rstrip("?"): name.endswith("?") for name in names.split()}
        assert {*part} <= {*allowed}, place
        assert {name for name, optional in allowed.items() if not optional} <= {*part}, place
    deployment = entry["deployment"]
    manifest = json.loads((release_of(out).manifest).read_text())
    assert deployment["dp_flavor"]["name"] == "Zero Concentrated DP"
    assert deployment["publication_date"] == manifest["created"][:10]
    assert "NOT FOR RELEASE" in deployment["implementation"]["mechanisms"]
    assert "cryptographic source" not in deployment["implementation"]["mechanisms"]
    loss = deployment["privacy_loss"]
    assert loss["privacy_parameters"]["epsilon"] == manifest["privacy"]["epsilon"]
    assert Fraction(manifest["privacy"]["total"]) == pytest.approx(
        loss["privacy_parameters"]["rho"]
    )
    assert manifest["privacy"]["total"] in loss["privacy_parameters_description"]
    assert das("verify", out / "release", "--registry", path)[0] == 0  # a draft is replaced
    path.write_text("mine")
    code, printed = das("verify", out / "release", "--registry", path)
    assert code == 2
    assert "is another file and is not written over" in printed


def test_the_certificate_names_the_release(das: Das, out: Path, tmp_path: Path) -> None:
    path = tmp_path / "certificate.html"
    code, printed = das("verify", out / "release", "--certificate", path)
    assert code == 0, printed
    page = path.read_text()
    manifest = json.loads((release_of(out).manifest).read_text())
    digest = hashlib.sha256((release_of(out).manifest).read_bytes())
    for text in (digest.hexdigest(), manifest["configuration_digest"], "NOT FOR RELEASE"):
        assert text in page
    assert manifest["software"]["revision"] in page
    assert re.search(r"every digest is right, budget and sums hold; \d+ datasets, \d+ famil", page)


def test_a_release_that_is_not_whole_gets_no_certificate(
    das: Das, out: Path, tmp_path: Path
) -> None:
    release = Path(shutil.copytree(out / "release", tmp_path / "published"))
    part = next(product_in(release).counts("tract").glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    code, _ = das("verify", release, "--certificate", tmp_path / "page.html")
    assert code != 0
    assert not (tmp_path / "page.html").exists()


def test_the_report_tells_the_mean_half_width_of_intervals(das: Das, out: Path) -> None:
    release = release_of(out)
    accuracy = read_accuracy(release, read_manifest(release).geography)
    assert accuracy is not None
    assert accuracy.confidence == 0.9
    for (level, table), width in accuracy.half_widths.items():
        rows = estimated(das, out / "release", table, level)
        halves = [(row["upper"] - row["lower"]) / 2 for row in rows]
        assert width == pytest.approx(np.mean(halves), rel=1e-4), (level, table)
