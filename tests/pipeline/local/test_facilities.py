"""Runs of the toy state with invariants of every kind, and input that breaks them.

Age groups stand for the types: a block has some facilities of each, of one person at least.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from das.errors import DasError, InfeasibleError, InputError, VerificationError
from das.queries.query import parse_query
from jobs.analysis.estimate import estimate_areas
from jobs.analysis.requests import IntervalSettings
from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.intervals import ClassTable
from jobs.pipeline.release.public_bounds import PublicBounds
from jobs.pipeline.release.verify import _verify_limits, verify_release
from jobs.pipeline.storage.dataset import Dataset, PartWriter, replace_published, sweep
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.storage.histograms import SPARSE_SCHEMA, read_counts
from jobs.pipeline.tasks.batches import Batch
from tests.builders import toy
from tests.builders.in_process import execute
from tests.builders.places import release_of
from tests.release_checks import sparse, tree_is_consistent

MOST = 25  # persons of one facility


def write_table(path: Path, columns: list[str], rows: dict[str, list[int]]) -> None:
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["geocode", *columns])
        writer.writerows([code, *row] for code, row in rows.items())


def counts_of(people) -> dict[str, Counter]:
    """Persons by age in every block."""
    by_block: dict[str, Counter] = {code: Counter() for code in toy.blocks()}
    for code, _, age in people:
        by_block[code][age] += 1
    return by_block


def facilities_of(people) -> dict[str, list[int]]:
    """One facility per block and age, and one more for every 25 persons; none where nobody is."""
    return {
        code: [-(-ages[age] // MOST) for age in toy.AGE]
        for code, ages in counts_of(people).items()
        if ages
    }


def configuration(folder: Path, people, *more: dict, rows=None, **changes) -> Path:
    rows = facilities_of(people) if rows is None else rows
    write_table(folder / "facilities.csv", list(toy.AGE), rows)
    stated = [
        {"query": "total", "geolevel": "block"},
        {
            "facilities": "age",
            "geolevel": "block",
            "table": {
                "path": str(folder / "facilities.csv"),
                "columns": {age: age for age in toy.AGE},
            },
            "at_most": dict.fromkeys(toy.AGE, MOST),
        },
        *more,
    ]
    changes = {"privacy__rho": "1/50", **changes}
    return toy.configuration(folder, invariants=stated, **changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory):
    """All kinds at once; nobody is an old man."""
    folder = tmp_path_factory.mktemp("facilities")
    people = [one for one in toy.write_records(folder) if one[1:] != ("male", "65_and_over")]
    with (folder / "records.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["block", "sex", "age"])
        writer.writerows(people)
    more = [
        {"zero": {"sex": ["male"], "age": ["65_and_over"]}},
        {
            "name": "men less women",
            "row": [
                {"cells": {"sex": ["male"]}},
                {"cells": {"sex": ["female"]}, "coefficient": -1},
            ],
            "geolevel": "county",
        },
        {
            "name": "not too many children",
            "row": [{"cells": {"age": ["under_18"]}}],
            "geolevel": "tract",
            "at_most": max(
                Counter(code[:7] for code, _, age in people if age == "under_18").values()
            ),
        },
    ]
    config = configuration(folder, people, *more)
    return config, people, execute(config)


def test_block_totals_and_facilities_are_kept(finished):
    config, people, out = finished
    assert tree_is_consistent(out, toy.LEVELS)
    counts = sparse(release_of(out).counts("block"))
    facilities, truth = facilities_of(people), counts_of(people)
    assert sum(map(len, counts.values())) > 0
    for code in toy.blocks():
        ages = Counter()
        for cell, n in counts.get(code, {}).items():
            ages[toy.AGE[cell % 3]] += n
        assert sum(ages.values()) == sum(truth[code].values())
        for age, number in zip(toy.AGE, facilities.get(code, [0, 0, 0]), strict=True):
            assert number <= ages[age] <= number * MOST


def test_structural_zeros_and_rows_are_kept(finished):
    _, people, out = finished
    old_man = 1 * 3 + 2
    for level in toy.LEVELS:
        counts = sparse(release_of(out).counts(level))
        assert all(old_man not in cells for cells in counts.values())
    truth = Counter()
    for code, sex, _ in people:
        truth[code[:5]] += 1 if sex == "male" else -1
    counties = sparse(release_of(out).counts("county"))
    for code, cells in counties.items():
        assert sum(n if cell >= 3 else -n for cell, n in cells.items()) == truth[code]
    limit = max(Counter(c[:7] for c, _, age in people if age == "under_18").values())
    for cells in sparse(release_of(out).counts("tract")).values():
        assert sum(n for cell, n in cells.items() if cell % 3 == 0) <= limit


def ends_of(table: pa.Table) -> tuple[list[float], list[float]]:
    return table.column("lower").to_pylist(), table.column("upper").to_pylist()


def test_positive_intervals_of_estimates_lie_within_public_bounds(finished):
    """Facilities bound blocks and their sums; a row bounds the children of a tract."""
    config, people, _ = finished
    resolved = load_run(config)
    plan, release = resolved.plan, resolved.last.release
    numbers: Counter = Counter()
    for code, of_block in facilities_of(people).items():
        for digits in (5, 7, 10):
            numbers.update({(code[:digits], n): count for n, count in enumerate(of_block)})
    tightened = Counter()
    for code in sorted({code for code, _ in numbers}):
        plain, found = (
            ends_of(
                estimate_areas(plan, release, "age", {}, [code], IntervalSettings(0.9, False, p))
            )
            for p in (False, True)
        )
        for n in range(3):
            number = numbers[code, n]
            assert number <= found[0][n] <= found[1][n] <= number * MOST
            tightened["least"] += plain[0][n] < number == found[0][n]
            tightened["most"] += plain[1][n] > number * MOST == found[1][n]
    assert min(tightened["least"], tightened["most"]) > 3
    limit = max(Counter(c[:7] for c, _, age in people if age == "under_18").values())
    for tract in sorted({code[:7] for code, _, _ in people}):
        children = estimate_areas(
            plan, release, "age", {}, [tract], IntervalSettings(0.9, False, True)
        )
        assert children.column("upper")[0].as_py() <= limit


def test_intervals_of_released_counts_lie_within_public_bounds(finished):
    config, people, _ = finished
    resolved = load_run(config)
    plan, release = resolved.plan, resolved.last.release
    query = parse_query(plan.schema, "age")
    codes = read_public_geocodes(release, "block")
    counts = read_counts(release, "block", codes, plan.schema.size)
    wide = ClassTable(np.full((6, 7), -99), np.full((6, 7), 99), np.zeros((6, 7), np.int8))
    bounds = PublicBounds(plan, release, "block").of(query, codes)
    _, lower, upper, _ = wide.at(query, counts, bounds)
    facilities, truth = facilities_of(people), counts_of(people)
    for row, code in enumerate(codes):
        number = np.array(facilities.get(code, [0, 0, 0]))
        total, least = sum(truth[code].values()), number
        most = np.minimum(number * MOST, total - (least.sum() - least))
        least = np.maximum(least, total - (number.sum() - number) * MOST)
        assert lower[row].tolist() == least.tolist()
        assert upper[row].tolist() == most.tolist()


def test_noise_was_added(finished):
    _, people, out = finished
    counts = sparse(release_of(out).counts("block"))
    truth = Counter((c, toy.SEX.index(s) * 3 + toy.AGE.index(a)) for c, s, a in people)
    assert {(c, cell): n for c, cells in counts.items() for cell, n in cells.items()} != truth


def test_the_manifest_lists_every_invariant(finished):
    _, _, out = finished
    manifest = json.loads((release_of(out).manifest).read_text())
    assert [row["query"] for row in manifest["invariants"]] == ["total"]
    assert [(row["kind"], row["name"]) for row in manifest["limits"]] == [
        ("facilities", "age"),
        ("structural zeros", "1 of 6 cells"),
        ("exact row", "men less women"),
        ("bounded row", "not too many children"),
    ]
    assert {"given/level=block", "implied/level=block", "implied/level=state"} <= {
        row["path"] for row in manifest["outputs"]
    }


def test_the_finished_release_is_verified(finished):
    config, _, out = finished
    checked = verify_release(load_run(config).plan, release_of(out))
    assert checked["limited_geounits"] == sum((1, 3, 6, 21))


def men_for_women(row: dict) -> None:
    """Old women become old men; all ages stay as they are."""
    entries = dict(zip(row["cells"], row["counts"], strict=True))
    entries[5] = entries.pop(2)
    row["cells"], row["counts"] = [list(one) for one in zip(*sorted(entries.items()), strict=True)]


def crowd(row: dict) -> None:
    """More persons than the facilities hold."""
    row["counts"] = [1_000] * len(row["counts"])


@pytest.mark.parametrize(
    ("plant", "broken"), [(men_for_women, "structural zeros"), (crowd, "facilities age")]
)
def test_counts_that_break_a_limit_are_found(finished, plant, broken):
    """Planted in the counts of one block, which are put back afterwards."""
    config, _, out = finished
    plan, release = load_run(config).plan, release_of(out)
    dataset = release.counts("block")
    files = {p: p.read_bytes() for p in (*dataset.glob("part-*"), dataset / "_manifest.json")}
    tables = [pq.read_table(p) for p in sorted(dataset.glob("part-*"))]
    rows = pa.concat_tables(tables).sort_by("geocode").to_pylist()
    chosen = next(row for row in rows if 2 in row["cells"])
    plant(chosen)
    writer = PartWriter(dataset, SPARSE_SCHEMA)
    writer.write(pa.Table.from_pylist(rows, schema=SPARSE_SCHEMA))
    try:
        replace_published(Dataset.open(dataset), [writer.close()], {})
        with pytest.raises(VerificationError, match=f"{chosen['geocode']}: .*{broken}"):
            _verify_limits(plan, release, Batch(3, "", "\x7f", 21))
    finally:
        for path, content in files.items():
            path.write_bytes(content)
        sweep(dataset)


def first_crowded(people) -> str:
    """A block with persons of all ages."""
    return next(code for code, ages in counts_of(people).items() if len(ages) == 3)


def refused(config: Path, kind: type[DasError]) -> DasError:
    resolved = load_run(config)
    with pytest.raises(kind) as caught:
        execute(resolved)
    out = resolved.config.output.directory
    assert not list((out / "release").rglob("measurements/*/*.parquet"))
    return caught.value


def test_contradictory_invariants_name_the_geounit_and_a_smallest_set(tmp_path):
    """More facilities than the block has persons: its total and two of the types contradict."""
    people = toy.write_records(tmp_path)
    code = first_crowded(people)
    rows = facilities_of(people)
    persons = sum(counts_of(people)[code].values())
    rows[code] = [0, persons, 1]
    more = {"zero": {"sex": ["male"], "age": ["under_18"]}}
    error = refused(configuration(tmp_path, people, more, rows=rows), InfeasibleError)
    assert error.where == f"block {code}"
    assert error.got == "total and facilities age: 18_to_64 and facilities age: 65_and_over"
    assert str(persons) not in error.what + str(error.got)


def test_data_that_break_an_invariant_name_the_geounit(tmp_path):
    people = toy.write_records(tmp_path)
    code = first_crowded(people)
    rows = facilities_of(people)
    rows[code] = [1, 0, 1]  # no facility of adults, who live there; the others may hold everybody
    error = refused(configuration(tmp_path, people, rows=rows), InputError)
    assert error.where == f"block {code}"
    assert error.got == "facilities age"


def test_a_published_table_must_agree(tmp_path):
    people = toy.write_records(tmp_path)
    totals = Counter(code[:5] for code, _, _ in people)
    totals["99005"] += 1
    write_table(tmp_path / "counties.csv", ["persons"], {c: [n] for c, n in totals.items()})
    table = {"path": str(tmp_path / "counties.csv"), "columns": {"total": "persons"}}
    stated = [{"query": "total", "geolevel": "county", "table": table}]
    error = refused(toy.configuration(tmp_path, invariants=stated), InputError)
    assert (error.where, error.got) == ("county 99005", "table of total")


def test_a_table_of_unknown_geounits_is_refused(tmp_path):
    people = toy.write_records(tmp_path)
    rows = {**facilities_of(people), "9900199999": [1, 0, 0]}
    error = refused(configuration(tmp_path, people, rows=rows), InputError)
    assert error.where == f"products.persons.invariants.1: {tmp_path}/facilities.csv"
