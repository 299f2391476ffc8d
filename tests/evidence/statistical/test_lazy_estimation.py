"""Beside on-demand queries: estimates have no bias and intervals cover; drawn answers select."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from das.queries.query import parse_query
from das.tree.intervals import normal_factor
from jobs.pipeline.config.load import load_run
from jobs.pipeline.storage.answers import read_drawn
from jobs.pipeline.storage.columns import texts
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.estimates import read_tables
from jobs.pipeline.storage.geography import read_geography
from jobs.pipeline.storage.layout import EstimateLayout
from tests.builders import toy
from tests.builders.in_process import execute
from tests.builders.places import release_of

# 4 counties of 15 tracts of 8 blocks; about half of the cells of a tract are empty.
COUNTIES, TRACTS, BLOCKS = 4, 15, 8
TABLES = ("total", "sex")


def write_state(folder: Path) -> list[tuple[str, int, int]]:
    """Write records.csv and blocks.csv; returns code, sex and age of everybody."""
    rng = np.random.default_rng(7)
    people: list[tuple[str, int, int]] = []
    codes = []
    for county in range(COUNTIES):
        for tract in range(TRACTS):
            shares = rng.dirichlet(np.full(6, 0.25))
            for block in range(BLOCKS):
                code = f"99{county:03d}{tract:02d}{block:03d}"
                codes.append(code)
                cells = rng.multinomial(rng.poisson(6), shares)
                people += [(code, *divmod(c, 3)) for c in np.repeat(np.arange(6), cells).tolist()]
    with (folder / "records.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["block", "sex", "age"])
        writer.writerows((code, toy.SEX[sex], toy.AGE[age]) for code, sex, age in people)
    with (folder / "blocks.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows([["geocode"], *([code] for code in codes)])
    return people


def truth(people: list[tuple[str, int, int]], query: str, digits: int) -> dict[str, np.ndarray]:
    """Answers of a query by geocode of so many digits, for all that have somebody."""
    out: dict[str, np.ndarray] = {}
    for code, sex, age in people:
        cell = {"total": 0, "sex": sex, "age": age}[query]
        size = {"total": 1, "sex": 2, "age": 3}[query]
        out.setdefault(code[:digits], np.zeros(size))[cell] += 1
    return out


@pytest.fixture(scope="module", params=["tree", "level"])
def run(request, tmp_path_factory):
    """A finished run with little budget, and everybody."""
    folder = tmp_path_factory.mktemp(request.param)
    people = write_state(folder)
    config = toy.configuration(
        folder,
        privacy__rho="1/4",
        privacy__on_demand_queries=["detailed"],
        privacy__randomness={"source": "seeded_not_for_release", "seed": 2},
        solve={"fit_to": request.param},
        invariants=[],
        output__tables=[*TABLES],
    )
    execute(config)
    return load_run(config).plan, release_of(folder / "out"), people


def scores(run, geolevels: tuple[str, ...]) -> np.ndarray:
    """Errors of all estimates over their standard errors."""
    plan, release, people = run
    out = []
    for geolevel in geolevels:
        digits = plan.level(geolevel).digits
        known = {query: truth(people, query, digits) for query in TABLES}
        for row in read_tables(
            Dataset.open(EstimateLayout.of(release).tables(geolevel))
        ).to_pylist():
            size = len(row["estimate"])
            exact = known[row["query"]].get(row["geocode"], np.zeros(size))
            out += list((np.array(row["estimate"]) - exact) / np.array(row["standard_error"]))
    return np.array(out)


def covered(found: np.ndarray, off: float = 1.0) -> float:
    """Share of 90 % intervals that hold the truth, with standard errors times `off`."""
    return float((np.abs(found) <= off * normal_factor(0.9)).mean())


def lean(found: np.ndarray) -> float:
    """The mean score over its standard error, were scores independent and fair."""
    return float(found.mean() * np.sqrt(len(found)))


def test_estimates_have_no_bias_and_intervals_cover(run):
    """1,440 answers of blocks, correlated a little: shares within 0.03 are 4 standard errors."""
    found = scores(run, ("block",))
    assert len(found) == 3 * COUNTIES * TRACTS * BLOCKS
    assert 0.87 < covered(found) < 0.93
    assert abs(lean(found)) < 4
    assert abs(lean(scores(run, ("tract", "county", "state")))) < 4
    # So large a fault would be seen.
    assert covered(found, 0.85) < 0.87
    assert covered(found, 1.2) > 0.93
    assert abs(lean(found + 0.2)) > 4


def drawn_errors(run, geolevel: str) -> dict[tuple[str, int], float]:
    """Errors of the drawn answers to `detailed`, over the standard deviation of their noise."""
    plan, release, people = run
    level, detailed = plan.level(geolevel), parse_query(plan.schema, "detailed")
    counts = Counter((code[: level.digits], 3 * sex + age) for code, sex, age in people)
    codes = texts(read_geography(release, geolevel))
    (drawn,) = read_drawn(Dataset.open(release.lazy_measurements(geolevel)), [detailed], codes)
    owners = codes[np.repeat(np.arange(len(codes)), np.diff(drawn.offsets))]
    deviation = plan.noise(level.index, level.index)[2].mechanism.variance() ** 0.5
    entries = zip(owners, drawn.positions.tolist(), drawn.answers.tolist(), strict=True)
    return {(code, at): (n - counts[code, at]) / deviation for code, at, n in entries}


def test_drawn_answers_are_fair_and_those_that_had_others_drawn_lean_up(run):
    """A tract's answer is fair; where its blocks were drawn for what it gave rise to, it is not."""
    tract, block = drawn_errors(run, "tract"), drawn_errors(run, "block")
    for found in (np.array([*tract.values()]), np.array([*block.values()])):
        assert abs(lean(found)) < 4
    assert 0.88 < covered(np.array([*block.values()])) < 0.92
    gave_rise = {(code[:7], at) for code, at in block}
    assert len(gave_rise) < len(tract)
    assert lean(np.array([tract[key] for key in gave_rise])) > 4
    assert lean(np.array([tract[key] for key in tract.keys() - gave_rise])) < -4
