"""The pages of a survey: all that was released and nothing else; what is confidential stays apart."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from jobs.pipeline.report.table import EMPTY
from jobs.pipeline.storage.dataset import Dataset
from tests.builders.survey import RECORDS, write_survey

Das = Callable[..., tuple[int, str]]
TIMES = "\N{MULTIPLICATION SIGN}"


def done(das: Das, *words: object) -> str:
    code, text = das(*words)
    assert code == 0, text
    return text


def page(folder: Path, half: str = "release") -> str:
    return (folder / "out" / half / "report.html").read_text(encoding="utf-8")


def document(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def table(text: str, key: str) -> list[list[str]]:
    """The cells of a table of a page, as they are read."""
    found = re.search(rf'<table [^>]*id="{key}-table".*?<tbody>(.*?)</tbody>', text, re.DOTALL)
    assert found is not None, key
    rows = re.findall(r"<tr>(.*?)</tr>", found[1], re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in row] for row in cells]


def described(text: str) -> dict[str, str]:
    """What the section on files says of each path."""
    section = re.search(r'<dl class="files">(.*?)</dl>', text, re.DOTALL)
    assert section is not None
    found = re.findall(r"<dt><code>(.*?)</code></dt>\s*<dd>(.*?)</dd>", section[1], re.DOTALL)
    return {html.unescape(path): said for path, said in found}


MODELS = {
    "mixture": {},
    "strata": {
        "synthesis__strata": {"attributes": ["sex", "group"], "weights": "weights.csv"},
        "synthesis__n_remeasured_pairs": None,
    },
    "tree": {
        "synthesis": {"share": "1/2", "model": "tree", "steps": 20},
        "privacy": {"rho": "4", "neighbors": "unbounded"},
    },
}


@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
def test_every_file_and_column_is_described_and_the_example_reads_them(
    das, tmp_path, monkeypatch, changes
):
    config = write_survey(tmp_path, **changes)
    done(das, "run", config)
    done(das, "run", config)
    text, release = page(tmp_path), tmp_path / "out/release"
    datasets = [path.parent for path in release.rglob("_manifest.json")]
    said = described(text)
    files = {path.name for path in release.iterdir() if path.is_file()}
    for folder in ("configuration", "schemas"):
        files |= {f"{folder}/{path.name}" for path in (release / folder).iterdir()}
    assert set(said) == files | {str(path.relative_to(release)) for path in datasets}
    assert all(len(meaning.strip()) >= len("This page.") for meaning in said.values())
    for dataset in datasets:
        lines = re.findall(
            r"<li><code>(.*?)</code> \(.*?\)(.*?)</li>", said[str(dataset.relative_to(release))]
        )
        part = dataset / Dataset.open(dataset).parts[0].file
        own = pq.read_schema(part).names if part.suffix == ".parquet" else None
        assert own in (None, [name for name, _ in lines])
        assert all(len(meaning) > 10 for _, meaning in lines), lines
    digests = {row[0]: row[-1] for row in [*table(text, "files"), *table(text, "single-files")]}
    manifest = document(release / "manifest.json")
    assert digests == {
        one["path"]: one["sha256"] for one in manifest["outputs"] + manifest["files"]
    }

    example = re.search(r"<pre><code>(.*?)</code></pre>", text, re.DOTALL)
    assert example is not None
    monkeypatch.chdir(release)
    made: dict[str, Any] = {}
    exec(compile(html.unescape(example[1]), "example", "exec"), made)
    assert len(made["people"]) == RECORDS
    assert made["shares"].sum() == pytest.approx(1)
    assert set(made["means"]["statistic"]) == {"income", "age"}
    assert isinstance(made["noisy"], pd.DataFrame)

    readme = (release / "README.md").read_text()
    assert all(f"`{name}`" in readme for name in said)
    assert html.unescape(example[1]) in readme
    book = document(release / "codebook.json")
    levels = {one["name"]: one["levels"] for one in book["attributes"]}
    assert set(levels) == {*made["people"], *levels}
    assert all(set(made["people"][name]) <= set(levels[name]) for name in made["people"])
    page_of_levels = (release / "codebook.md").read_text()
    assert all(f"`{label}`" in page_of_levels for labels in levels.values() for label in labels)
    assert "Geolevels" not in page_of_levels
    for name in ("codebook", "manifest", "means"):
        schema = document(next((release / "schemas").glob(f"*{name}.schema.json")))
        assert set(schema["required"]) <= set(document(release / f"{name}.json"))
    assert made["means"]["mean"].astype(str).str.len().max() < 10


def test_the_public_page_says_guarantee_costs_means_and_what_was_pooled(das, tmp_path):
    config = write_survey(tmp_path, statistics__0__min_share="1/10")
    done(das, "run", config)
    text = page(tmp_path)
    assert table(text, "budget-parts") == [
        ["mean of income", "25.00 %", "1"],
        ["mean of age", "25.00 %", "1"],
        ["microdata", "50.00 %", "2"],
        ["all that was measured", "100 %", "4"],
    ]
    manifest = document(tmp_path / "out/release/manifest.json")
    rates = manifest["privacy"]["attacks"]["rates"]
    assert len(table(text, "attacks")) == len(rates) > 0
    assert "Two data sets are <strong>neighbors</strong> if one record differs" in text
    means = document(tmp_path / "out/release/means.json")["statistics"]
    rows = table(text, "means-0")
    own = [means[0]["everybody"], *means[0]["means"]]
    assert [row[0] for row in rows] == [one["stratum"].replace("*", TIMES) for one in own]
    for row, one in zip(rows, own, strict=True):
        shown = [float(cell.replace(",", "").replace("\N{MINUS SIGN}", "-")) for cell in row[3:6]]
        assert shown == pytest.approx([one["mean"], one["low"], one["high"]], abs=0.51)
    assert (
        f"Pooled as one stratum, since their public sizes are small: m {TIMES} c, f {TIMES} c."
        in text
    )
    assert len(table(text, "means-1")) == 1  # without strata: everybody alone, and no figure
    assert 'id="figure-mean-0"' in text
    assert 'id="figure-mean-1"' not in text

    done(das, "run", config)
    text = page(tmp_path)
    assert [row[2] for row in table(text, "budget-parts")] == ["1", "1", "2", "4"]
    levels = {row[0]: row[2].split("; ") for row in table(text, "attributes")}
    manifest = document(tmp_path / "out/release/manifest.json")
    assert levels == {one["name"]: one["levels"] for one in manifest["attributes"]}


def test_the_page_names_what_tables_leave_unprotected(das, tmp_path):
    """Exact marginals, what is proved beside them, and all counts."""
    own = [
        {"query": "sex * group", "exact": ["sex"], "share": "1/4"},
        {"query": "age", "name": "ages", "share": "1/4"},
    ]
    mean = {
        "mean": "age",
        "low": 0,
        "high": 100,
        "sd_bound": 25,
        "share": "1/2",
        "method": "clipped",
    }
    privacy = {"definition": "pure", "epsilon": "8"}
    config = write_survey(
        tmp_path, privacy=privacy, synthesis=None, statistics=[mean], contingency_tables=own
    )
    done(das, "run", config)
    text, release = page(tmp_path), tmp_path / "out/release"
    assert "published exactly as they are in the file:</strong> sex (table sex group)" in text
    assert "<li>Exact marginals: sex (table sex group).</li>" in text
    manifest = document(release / "manifest.json")
    promises = [one["conditioned"] for one in manifest["parts"] if "conditioned" in one]
    assert [row[1:] for row in table(text, "promises")] == [
        ["; ".join(one["exact"]), str(one["k"]), one["gamma"], one["epsilon"], one["proved"]]
        for one in promises
    ]
    for index, one in enumerate(document(release / "tables.json")["tables"]):
        assert [row[-1] for row in table(text, f"table-{index}")] == [str(n) for n in one["counts"]]
    assert [row[0] for row in table(text, "budget-parts")] == [
        "mean of age", "table of sex group", "table of ages", "all that was measured"
    ]  # fmt: skip
    said = described(text)
    assert {"tables/sex_group.csv", "tables/ages.csv", "tables.json"} <= set(said)
    assert all(len(meaning.strip()) >= len("This page.") for meaning in said.values())
    columns = re.findall(
        r"<li><code>(.*?)</code> \(.*?\)(.*?)</li>", said["measurements/part=ages"]
    )
    assert [name for name, _ in columns] == ["cell", "count"]
    assert all(len(meaning) > 10 for _, meaning in columns)
    errors = document(tmp_path / "out/confidential/evaluation.json")["tables"]
    shown = table(page(tmp_path, "confidential"), "table-errors")
    assert [row[1] for row in shown] == [str(one["l1"]) for one in errors]
    assert [row[3] for row in shown] == ["yes", "yes"]


def test_a_warning_and_seeded_noise_are_on_the_page(das, tmp_path):
    changes = {"statistics__0__high": 300, "statistics__0__sd_bound": 20, "statistics__0__low": 200}
    seeded = {"privacy__randomness": {"source": "seeded_not_for_release", "seed": 1}}
    done(das, "run", write_survey(tmp_path, **changes, **seeded))
    [warning] = document(tmp_path / "out/release/means.json")["statistics"][0]["warnings"]
    text = page(tmp_path)
    assert html.escape(warning) in text
    assert "outside its bounds" in [cell for row in table(text, "means-0") for cell in row]
    assert "NOT FOR RELEASE" in text
    assert "No guarantee holds for this run." in text


def test_the_internal_page_compares_and_the_public_one_does_not(das, tmp_path):
    config = write_survey(tmp_path)
    done(das, "run", config)
    done(das, "run", config)
    public = page(tmp_path)
    printed = done(das, "evaluate", config)
    assert "confidential/report.html" in printed
    assert page(tmp_path) == public
    text = page(tmp_path, "confidential")
    assert "CONFIDENTIAL" in text
    assert "CONFIDENTIAL" not in public
    assert (tmp_path / "out/confidential/report.html").stat().st_mode & 0o077 == 0
    found = document(tmp_path / "out/confidential/evaluation.json")
    income = found["means"][0]
    parity = table(text, "parity")
    assert [row[0] for row in parity] == ["income"]  # age has no strata
    worst = max(
        (row for row in income["means"] if row["relative"] is not None),
        key=lambda row: row["relative"],
    )
    assert parity[0][-2:] == [worst["stratum"].replace("*", TIMES), str(worst["records"])]
    rows = table(text, "mean-errors-0")
    assert [row[1] for row in rows] == [
        str(one["records"]) for one in (income["everybody"], *income["means"])
    ]
    nobody = next(row for row in rows if row[1] == "0")
    assert nobody[2] == nobody[4] == nobody[5] == nobody[6] == EMPTY
    released = document(tmp_path / "out/release/means.json")["statistics"][0]
    ends = [(one["low"], one["high"]) for one in (released["everybody"], *released["means"])]
    for row, one, (low, high) in zip(
        rows, (income["everybody"], *income["means"]), ends, strict=True
    ):
        if one["truth"] is not None:
            assert row[6] == ("yes" if low <= one["truth"] <= high else "no")
    assert [row[0] for row in table(text, "marginals")] == ["1-way", "2-way", "3-way"]
    groups = table(text, "groups-0")
    assert [row[1] for row in groups] == [
        str(one["records"]) for one in found["groups"][0]["groups"]
    ]


def test_predictions_and_disparities_are_on_the_internal_page(das, tmp_path):
    predict = {"attribute": "income", "levels": ["2000 to 4999", "5000 and over"]}
    section = {"groups": [["sex"], ["group"]], "predict": predict, "floor": 5}
    done(das, "run", write_survey(tmp_path, evaluate=section))
    text = page(tmp_path, "confidential")
    found = document(tmp_path / "out/confidential/evaluation.json")
    release, truth = found["predictions"]["classifiers"]
    rows = table(text, "classifiers")
    assert [row[1] for row in rows] == [str(release["records"]), str(truth["records"])]
    assert [float(row[3].removesuffix(" %")) for row in rows] == pytest.approx(
        [100 * release["accuracy"], 100 * truth["accuracy"]], abs=0.006
    )
    for index, (own, other) in enumerate(zip(release["parity"], truth["parity"], strict=True)):
        for row, first, second in zip(
            table(text, f"predictions-{index}"), own["groups"], other["groups"], strict=True
        ):
            assert row[0] == first["group"] == second["group"]
            assert row[1] == str(first["records"])
            for cell, one in zip(row[3:5], (first, second), strict=True):
                share = 100 * one["predicted"] / one["records"]
                assert float(cell.strip("<> %")) == pytest.approx(share, abs=0.11)
            for cell, one in zip(row[5:], (first, second), strict=True):
                assert (cell == EMPTY) == (one["false_negative_rate"] is None)
    assert own["left_out"] == ["c"]
    assert "Too few records to compare: c." in text
    worst = found["groups"][1]["max_disparity"]
    named = f"{worst['attribute']} {worst['level']} in {worst['group']}"
    assert f"the largest relative error is that of {named}" in text
    assert "the largest relative error" not in page(tmp_path)


def test_pages_are_written_again_without_data_and_of_solutions(das, tmp_path):
    config = write_survey(tmp_path)
    done(das, "run", config)
    written = {half: page(tmp_path, half) for half in ("release", "confidential")}
    (tmp_path / "persons.csv").rename(tmp_path / "away.csv")
    for half in written:
        (tmp_path / "out" / half / "report.html").unlink()
    assert "CONFIDENTIAL" not in done(
        das, "inspect", "--reports", tmp_path / "out", "--to", tmp_path / "mine"
    )
    assert (tmp_path / "mine/report.html").read_text() == written["release"]
    assert not (tmp_path / "out/release/report.html").exists()
    done(das, "inspect", "--reports", tmp_path / "out")
    assert {half: page(tmp_path, half) for half in written} == written
    (tmp_path / "away.csv").rename(tmp_path / "persons.csv")

    write_config = write_survey(tmp_path, synthesis__n_records=100)
    done(das, "run", "--only", "solve", write_config, "--solution", "few")
    other = (tmp_path / "out/solutions/few/report.html").read_text()
    assert "100 artificial records" in other
    assert 'id="means"' in other
    done(das, "verify", write_config, "--solution", "few")
    printed = done(das, "inspect", "--reports", tmp_path / "out", "--solution", "few")
    assert "CONFIDENTIAL" not in printed  # it was not evaluated
    assert (tmp_path / "out/solutions/few/report.html").read_text() == other
    assert page(tmp_path) == written["release"]


def test_a_page_of_no_release_is_an_error(das, tmp_path):
    config = write_survey(tmp_path)
    done(das, "run", config)
    (tmp_path / "out/release/manifest.json").unlink()
    code, text = das("inspect", "--reports", tmp_path / "out")
    assert code == 2
    assert "run `das run` first" in text
