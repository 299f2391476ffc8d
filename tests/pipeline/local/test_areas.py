"""Tables of districts from the folder of a release, beside what the release says elsewhere."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from das.errors import ConfigError, DamageError, InputError, SchemaError
from tests.builders import toy
from tests.builders.datasets import rows_of
from tests.builders.in_process import execute
from tests.builders.places import product_in
from topdown_das import open_release

Das = Callable[..., tuple[int, str]]

BLOCKS = toy.blocks()
# Districts of consecutive blocks that cut tracts, and one of a single block.
DISTRICTS = {"First district": BLOCKS[:6], "Second": BLOCKS[6:20], "Third, west": BLOCKS[20:]}


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder."""
    folder = tmp_path_factory.mktemp("areas")
    toy.write_records(folder)
    return execute(toy.configuration(folder, invariants=[]))


@pytest.fixture
def release(origin: Path, tmp_path: Path) -> Path:
    """A copy of the release beside nothing."""
    return Path(shutil.copytree(origin / "release", tmp_path / "published"))


@pytest.fixture
def assigned(tmp_path: Path) -> Path:
    path = tmp_path / "baf.csv"
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["District", "BLOCK"])
        writer.writerows([name, code] for name, codes in DISTRICTS.items() for code in codes)
    return path


def counted(release: Path) -> dict[str, dict[int, int]]:
    return {
        row["geocode"]: dict(zip(row["cells"], row["counts"], strict=True))
        for row in rows_of(product_in(release).counts("block"))
    }


def asked(das: Das, *words: object) -> dict[str, Any]:
    code, printed = das("areas", *words, "--json")
    assert code == 0, printed
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def test_counts_estimates_and_deviations_of_districts(
    das: Das, release: Path, assigned: Path
) -> None:
    found = asked(das, release, "--assign", assigned, "--table", "sex * age[0-17, 65+]")
    rows = found["rows"]
    totals = [row for row in rows if row["table"] == "total"]
    assert [row["area"] for row in totals] == [*DISTRICTS]
    counts = counted(release)
    sums = [sum(sum(counts.get(code, {}).values()) for code in own) for own in DISTRICTS.values()]
    assert [row["count"] for row in totals] == sums
    ideal = sum(sums) / 3
    assert found["ideal"] == pytest.approx(ideal)
    assert found["total_deviation"] == max(sums) - min(sums)
    assert found["total_deviation_percent"] == pytest.approx(100 * (max(sums) - min(sums)) / ideal)
    for row, total in zip(totals, sums, strict=True):
        assert row["deviation"] == pytest.approx(total - ideal)
        assert row["deviation_percent"] == pytest.approx(100 * (total - ideal) / ideal)
    code, printed = das(
        "estimate", release, "--query", "sex * age[0-17, 65+]", "--area", assigned, "--json"
    )
    assert code == 0, printed
    estimates = {(row["area"], row["label"]): row for row in json.loads(printed)}
    others = [row for row in rows if row["table"] != "total"]
    assert len(others) == 12
    for row in others:
        cell = (0 if row["label"].startswith("female") else 3) + (
            0 if "0-17" in row["label"] else 2
        )
        own = DISTRICTS[row["area"]]
        assert row["count"] == sum(counts.get(code, {}).get(cell, 0) for code in own)
        wanted = estimates[row["area"], row["label"]]
        assert row["estimate"] == pytest.approx(wanted["estimate"], abs=1e-9)
        assert row["standard_error"] == pytest.approx(wanted["standard_error"], abs=1e-9)
        assert row["estimate_lower"] == pytest.approx(wanted["lower"], abs=1e-9)
        assert row["estimate_upper"] == pytest.approx(wanted["upper"], abs=1e-9)
        assert row["deviation"] is None


def test_what_is_printed_and_written(
    das: Das, release: Path, assigned: Path, tmp_path: Path
) -> None:
    code, printed = das("areas", release, "--assign", assigned, "--table", "sex")
    assert code == 0, printed
    for text in ("3 areas; ideal", "total deviation", "Third, west", "female", "estimate upper"):
        assert text in printed
    for name in ("found.csv", "found.parquet"):
        for _ in range(2):  # its own file is written over
            code, printed = das("areas", release, "--assign", assigned, "--output", tmp_path / name)
            assert code == 0, printed
    whole = pq.read_table(tmp_path / "found.parquet").to_pylist()
    with (tmp_path / "found.csv").open(newline="") as handle:
        rows = [*csv.DictReader(handle)]
    assert [row["area"] for row in rows] == [row["area"] for row in whole]
    assert [float(row["estimate"]) for row in rows] == [row["estimate"] for row in whole]


def test_an_ideal_that_is_given(das: Das, release: Path, assigned: Path) -> None:
    found = asked(das, release, "--assign", assigned, "--ideal", "50")
    assert found["ideal"] == 50
    assert [row["deviation"] for row in found["rows"]] == [
        row["count"] - 50 for row in found["rows"]
    ]


def test_shares_and_probabilities_of_deviations(das: Das, release: Path, assigned: Path) -> None:
    """Counts by arithmetic; intervals of shares are those of the difference at their ends."""
    of = "total where age=65_and_over"
    words = (release, "--assign", assigned, "--ideal", "80", "--table", "sex", "--share", of)
    rows = asked(das, *words)["rows"]
    wholes = {row["area"]: row["count"] for row in asked(das, *words[:-2], "--table", of)["rows"]
              if row["table"] == of}  # fmt: skip
    totals = [row for row in rows if row["table"] == "total"]
    assert len(totals) == len(DISTRICTS)
    low, high = asked(das, *words[:-2])["deviation_ends"]
    means = [row["estimate"] for row in totals]
    widest = NormalDist().inv_cdf((1 + 0.9 ** (1 / 3)) / 2)  # Sidak, three areas
    halves = [widest * row["standard_error"] for row in totals]
    most = max(m + h for m, h in zip(means, halves, strict=True))
    assert high == pytest.approx(most - min(m - h for m, h in zip(means, halves, strict=True)))
    assert 0 <= low <= max(means) - min(means) <= high
    for row in rows:
        assert row["share"] == pytest.approx(row["count"] / wholes[row["area"]])
        assert 0 <= row["share_lower"] <= row["share_upper"] <= 1
    for row in totals:
        for percent in (5, 10):
            normal = NormalDist(row["estimate"], row["standard_error"])
            edge = 80 * percent / 100
            want = 1 - normal.cdf(80 + edge) + normal.cdf(80 - edge)
            assert row[f"beyond_{percent}_percent"] == pytest.approx(want, abs=1e-9)
    shared, estimated = asked(das, *words[:-1], "total")["rows"], 0
    for women, both in zip(
        [row for row in shared if row["label"] == "female"],
        [row for row in shared if row["table"] == "total"],
        strict=True,
    ):
        assert women["share"] == pytest.approx(women["count"] / both["count"])
        if women["share_estimate"] is None:  # the noise is as large as the total
            assert (women["share_lower"], women["share_upper"]) == (0, 1)
            continue
        estimated += 1
        assert women["share_lower"] < women["share_estimate"] < women["share_upper"]
        assert women["share_estimate"] == pytest.approx(women["estimate"] / both["estimate"])
        assert (both["share_lower"], both["share_upper"]) == pytest.approx((1, 1))
    assert estimated


def test_geounits_are_areas(das: Das, release: Path) -> None:
    found = asked(das, release, "--geolevel", "county", "--geounit", "99")
    rows = {row["area"]: row for row in found["rows"]}
    assert [*rows] == ["99", "99001", "99003", "99005"]
    assert rows["99"]["count"] == sum(row["count"] for row in found["rows"]) / 2
    table = rows_of(product_in(release).root / "estimates/tables/level=county")
    for row in table:
        if row["query"] == "total":
            assert rows[row["geocode"]]["estimate"] == pytest.approx(row["estimate"][0], abs=1e-4)


def test_the_same_from_python(release: Path, assigned: Path, das: Das) -> None:
    wanted = asked(das, release, "--assign", assigned, "--table", "age", "--confidence", "0.95")
    found = open_release(release).areas(assigned, ["age"], confidence=0.95)
    assert found.table.to_pylist() == wanted["rows"]
    assert {**found.summary(), "rows": wanted["rows"]} == wanted
    own = open_release(str(release)).areas(DISTRICTS, ["age"], confidence=0.95)
    assert own.table.equals(found.table)
    with pytest.raises(InputError, match="no block of the release"):
        open_release(release).areas({"a": ["9900100000", "123"]})
    with pytest.raises(ConfigError, match="names no area"):
        open_release(release).areas({})


def test_what_does_not_fit_is_told(das: Das, release: Path, tmp_path: Path) -> None:
    path = tmp_path / "baf.txt"
    path.write_text(
        "".join(f"{code}|A\n" for code in [*BLOCKS[:4], BLOCKS[0]]) + f"{BLOCKS[1]}|B\n"
    )
    code, printed = das("areas", release, "--assign", path, "--json")
    assert code == 0, printed
    assert (
        f"{len(BLOCKS) - 4} of {len(BLOCKS)} geounits of block in no area, such as {BLOCKS[4]}, "
        in printed
    )
    assert "1 geounit of block twice in one area" in printed
    assert "1 geounit of block in more than one area" in printed
    notes = json.loads(printed.splitlines()[0])["notes"]
    assert len(notes) == 3
    path.write_text(f"{BLOCKS[0]},A\n9999999999,A\n")
    code, printed = das("areas", release, "--assign", path)
    assert code == InputError.exit_code
    assert "row 2" in printed
    assert "9999999999" in printed


@pytest.mark.parametrize(
    ("words", "error", "text"),
    [
        ((), ConfigError, "names no area"),
        (("--geolevel", "village"), ConfigError, "names an unknown geolevel; got village"),
        (("--geounit", "98"), InputError, "has no such geounit; got 98"),
        (("--geounit", "99", "--table", "sex, age"), SchemaError, "write sex * age"),
        (("--geounit", "99", "--table", "age[60+]"), SchemaError, "levels begin at 0, 18, 65"),
        (("--geounit", "99", "--share", "sex"), ConfigError, "has several answers; got 2"),
        (("--geounit", "99", "--output", "x.pdf"), ConfigError, "got x.pdf; expected one of .csv"),
        (("--geounit", "99", "--join", "ID"), ConfigError, "got no --boundaries"),
    ],
)
def test_what_is_asked_wrongly(
    das: Das, release: Path, words: tuple[str, ...], error: type, text: str
) -> None:
    code, printed = das("areas", release, *words)
    assert code == error.exit_code, printed
    assert text in " ".join(printed.split())


def test_boundaries_get_the_numbers(
    das: Das, release: Path, assigned: Path, tmp_path: Path
) -> None:
    square = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}
    features = [
        {"type": "Feature", "geometry": square, "properties": {"NAME": name}}
        for name in [*DISTRICTS][:2]
    ]
    drawn, out = tmp_path / "drawn.geojson", tmp_path / "out.geojson"
    drawn.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    words = ("--assign", assigned, "--boundaries", drawn, "--join", "NAME", "--geojson", out)
    code, printed = das("areas", release, *words)
    assert code == 0, printed
    assert "1 area without a feature of the same NAME, such as Third, west" in printed
    found = json.loads(out.read_text())
    rows = {row["area"]: row for row in asked(das, release, "--assign", assigned)["rows"]}
    for feature in found["features"]:
        own = rows[feature["properties"]["NAME"]]
        assert feature["geometry"] == square
        assert feature["properties"]["count"] == own["count"]
        assert feature["properties"]["deviation_percent"] == pytest.approx(own["deviation_percent"])


def test_a_release_that_was_damaged(das: Das, release: Path, assigned: Path) -> None:
    part = sorted(product_in(release).counts("block").glob("*.parquet"))[0]
    whole = part.read_bytes()
    part.write_bytes(whole[: len(whole) // 2])
    code, printed = das("areas", release, "--assign", assigned)
    assert code == DamageError.exit_code
    assert str(part) in printed
    part.unlink()
    code, printed = das("areas", release, "--assign", assigned)
    assert code == DamageError.exit_code
    # Another table with other numbers, as whole as the one that was published.
    table = pq.read_table(pa.BufferReader(whole))
    more = np.array(table.column("counts").combine_chunks().values) + 1
    counts = pa.ListArray.from_arrays(table.column("counts").combine_chunks().offsets, more)
    pq.write_table(table.set_column(2, "counts", counts), part)
    code, printed = das("areas", release, "--assign", assigned)
    assert code == DamageError.exit_code, printed
    assert "was changed after it was published" in printed
