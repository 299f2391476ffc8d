"""Noisy measurement files: what is read is what they hold, and whatever is wrong is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from das.errors import ConfigError, DasError, InputError, OutputError
from das.mechanisms.gaussian import DiscreteGaussian
from das.queries.query import parse_query
from jobs.analysis.estimate import IntervalSettings, estimate_areas
from jobs.analysis.export_nmf import write_nmf
from jobs.analysis.import_nmf import read_nmf
from jobs.analysis.measurements import read_measurements
from jobs.analysis.nmf_noise import Chain, Variance, derived
from jobs.analysis.requests import NmfImport, product_named
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.schema import load_schema
from jobs.pipeline.run import run_solving
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.tasks.progress import Reporter
from tests.builders.in_process import leave_out_figures, tasks_of
from tests.builders.nmf import SyntheticNmf, constraint, random_counts
from tests.builders.places import release_of
from tests.checkout import ROOT

TOY = ROOT / "conf" / "schema" / "toy.yaml"
DIGITS = {"nation": 0, "state": 3, "county": 8, "block": 11}
# Two states; the second is an only child's parent twice over, down to a block.
LEAVES = ["00100001001", "00100001002", "00100001003", "00100002001", "00100002002", "00200001007"]
QUERIES = {"total": Fraction(9, 2), "sex": Fraction(7), "detailed": Fraction(10)}
QUIET = Reporter(quiet=True)


def synthetic(**changes: Any) -> SyntheticNmf:
    schema = load_schema(TOY)
    sigma_sq = {
        level: {name: one + 3 * place for name, one in QUERIES.items()}
        for place, level in enumerate(DIGITS)
    }
    counts = random_counts(len(LEAVES), schema.size)
    return replace(SyntheticNmf(schema, LEAVES, DIGITS, sigma_sq, counts), **changes)


def imported(folder: Path, nmf: Path, **options: Any) -> Path:
    return read_nmf(NmfImport(nmf, folder / "run", **{"schema": TOY, **options}), QUIET)


def rows(nmf: Path, geolevel: str) -> list[dict[str, Any]]:
    files = (nmf / f"{geolevel}.parquet" / "DPQuery").rglob("*.parquet")
    return [row for path in files for row in pq.read_table(path, partitioning=None).to_pylist()]


def test_answers_and_variances_are_those_of_the_files(tmp_path: Path) -> None:
    nmf = synthetic().write(tmp_path / "nmf")
    run_file = imported(tmp_path, nmf)
    release = release_of(tmp_path / "run" / "out").root
    names = {"US": "nation", "State": "state", "County": "county", "Block": "block"}
    seen = 0
    for theirs, geolevel in names.items():
        for row in rows(nmf, theirs):
            # The only block of the second state stands for its county and the state as well.
            top = "state" if row["geocode"].startswith("002") else geolevel
            query = row["query_name"].removesuffix("_dpq")
            found = read_measurements(release, top, query)
            code = row["geocode"][: DIGITS[top]] or "0"
            place = found.geocodes.tolist().index(code)
            assert found.answers[place].tolist() == row["value"]
            variance = found.mechanisms[place].variance()
            assert np.isclose(variance, row["variance"], rtol=2.0**-22, atol=0)
            seen += 1
    assert seen == 3 * (1 + 1 + 2 + 6)  # queries times measured geounits
    assert "chains: last" in run_file.read_text()


def test_estimates_are_least_squares_of_all_rows_of_the_files(tmp_path: Path) -> None:
    made = synthetic()
    nmf = made.write(tmp_path / "nmf")
    resolved = load_run(imported(tmp_path, nmf))
    with pytest.MonkeyPatch.context() as patch:
        leave_out_figures(patch)
        run_solving(resolved, QUIET, tasks_of(resolved.config))
    cells = made.schema.size
    size = cells * len(LEAVES)
    gram, right = np.zeros((size, size)), np.zeros(size)
    for theirs in ("US", "State", "County", "Block"):
        for row in rows(nmf, theirs):
            query = parse_query(made.schema, row["query_name"].removesuffix("_dpq"))
            part = query.columns(np.arange(cells))
            below = np.array([leaf.startswith(row["geocode"]) for leaf in LEAVES])
            design = np.kron(below, part)
            gram = gram + design.T @ design / row["variance"]
            right = right + design.T @ np.array(row["value"]) / row["variance"]
    covariance = np.linalg.inv(gram)
    cell_estimates = covariance @ right
    release = release_of(resolved.config.output.directory)
    for area in ("001", "00100002", "00200001007", "00100001002"):
        found = estimate_areas(
            resolved.plan, release, "detailed", {}, [area], IntervalSettings(0.9, False, False)
        )
        inside = np.array([leaf.startswith(area) for leaf in LEAVES])
        pick = np.kron(inside, np.eye(cells))
        # The variances of the files have 7 digits.
        assert np.allclose(found.column("estimate"), pick @ cell_estimates, rtol=1e-5, atol=1e-4)
        errors = np.sqrt(np.diag(pick @ covariance @ pick.T))
        assert np.allclose(found.column("standard_error"), errors, rtol=1e-5)


def test_a_round_trip_changes_nothing(tmp_path: Path) -> None:
    first = load_run(imported(tmp_path, synthetic().write(tmp_path / "nmf")))
    written = write_nmf(first.last, tmp_path / "again", QUIET)
    assert written == {"US": 3, "State": 3, "County": 6, "Block": 18}
    (tmp_path / "second").mkdir()
    second = load_run(imported(tmp_path / "second", tmp_path / "again"))
    assert first.plan.budget.total == second.plan.budget.total
    for level in first.plan.spine.levels:
        one, other = (
            Dataset.open(run.last.release.measurements(level)).read() for run in (first, second)
        )
        assert one.equals(other)
    files = sorted(
        path.relative_to(tmp_path / "nmf") for path in (tmp_path / "nmf").rglob("State*")
    )
    assert files == sorted(
        path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("State*")
    )


def test_the_manifest_says_where_the_answers_come_from_and_nothing_is_spent(
    tmp_path: Path,
) -> None:
    nmf = synthetic().write(tmp_path / "nmf")
    resolved = load_run(imported(tmp_path, nmf))
    assert not resolved.plan.spends
    facts = Dataset.open(resolved.last.release.measurements("county")).facts
    assert facts["origin"]["name"] == "nmf"
    assert facts["origin"]["files"] == 5
    assert not list(tmp_path.rglob("*das-account*"))
    assert not list((tmp_path / "run" / "out" / "confidential").rglob("*"))


def edited(edit: Callable[[pa.Table], pa.Table], level: str = "Block") -> Callable[[Path], None]:
    def change(nmf: Path) -> None:
        path = min((nmf / f"{level}.parquet" / "DPQuery").rglob("*.parquet"))
        pq.write_table(edit(pq.read_table(path, partitioning=None)), path)

    return change


def without_a_query(table: pa.Table) -> pa.Table:
    is_it = pc.and_(
        pc.equal(table["query_name"], "sex_dpq"), pc.equal(table["geocode"], table["geocode"][0])
    )
    return table.filter(pc.invert(is_it))


def with_variance(value: float) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        variances = table["variance"].to_numpy().copy()
        variances[0] = value
        place = table.schema.get_field_index("variance")
        return table.set_column(place, "variance", pa.array(variances, pa.float32()))

    return change


def with_lists(name: str, change: Callable[[list[int]], list[int]]) -> Callable[..., pa.Table]:
    def edit(table: pa.Table) -> pa.Table:
        lists = table[name].to_pylist()
        lists[0] = change(lists[0])
        place = table.schema.get_field_index(name)
        return table.set_column(place, name, pa.array(lists, table.schema.field(name).type))

    return edit


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing query": (edited(without_a_query), "lacks a query of a geounit"),
    "wrong shape": (
        edited(with_lists("query_shape", lambda shape: [*shape[:-1], 9])),
        "has another shape than in the schema",
    ),
    "wrong length": (
        edited(with_lists("value", lambda value: [*value, 1])),
        "has another number of answers",
    ),
    "geounit twice": (
        edited(lambda table: pa.concat_tables([table, table.slice(0, 1)])),
        "answers a query twice",
    ),
    "negative variance": (edited(with_variance(-4)), "has no noise of this variance"),
    "no variance": (edited(with_variance(0)), "has no noise of this variance"),
    "endless variance": (edited(with_variance(np.inf)), "has no noise of this variance"),
    "variance too small": (
        edited(with_variance(1e-9)),
        "outside the variances of discrete Gaussian",
    ),
    "two variances": (edited(with_variance(5)), "has several variances"),
    "unknown geolevel": (
        lambda nmf: (nmf / "County.parquet").rename(nmf / "Borough.parquet"),
        "unknown geolevel",
    ),
    "a geolevel gone": (
        lambda nmf: shutil.rmtree(nmf / "State.parquet"),
        "than that implied by the other variances",
    ),
    "no files": (lambda nmf: shutil.rmtree(nmf / "Block.parquet" / "DPQuery"), "no Parquet files"),
    "no Parquet": (
        lambda nmf: next(nmf.rglob("*.parquet/DPQuery/*.parquet")).write_text("x"),
        "cannot be read as Parquet",
    ),
    "unknown query": (
        edited(
            lambda table: table.set_column(
                table.schema.get_field_index("query_name"),
                "query_name",
                pa.array(["shoe_dpq"] * len(table)),
            )
        ),
        "does not fit the schema",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_and_nothing_is_left(fault: str, tmp_path: Path) -> None:
    nmf = synthetic().write(tmp_path / "nmf")
    plant, words = FAULTS[fault]
    plant(nmf)
    with pytest.raises(DasError, match=words):
        imported(tmp_path, nmf)
    assert [path.name for path in tmp_path.iterdir()] == ["nmf"]


def test_a_folder_with_other_things_is_kept(tmp_path: Path) -> None:
    nmf = synthetic().write(tmp_path / "nmf")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    with pytest.raises(OutputError, match="holds other files"):
        imported(tmp_path, nmf)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


# --- constraints ---------------------------------------------------------------------------------


def units(total_of_nation: int) -> SyntheticNmf:
    schema = load_schema(ROOT / "conf" / "schema" / "h1.yaml")
    sigma_sq = {level: {"detailed": Fraction(5 + place)} for place, level in enumerate(DIGITS)}
    made = SyntheticNmf(schema, LEAVES, DIGITS, sigma_sq, random_counts(len(LEAVES), 2, 4))
    extra = {
        level: [
            constraint(code if DIGITS[level] else "", "total", "=", [int(row.sum())])
            for code, row in made.truth(level).items()
        ]
        for level in ("county", "block")
    }
    extra["nation"] = [constraint("", "total", "=", [total_of_nation])]
    return replace(made, extra=extra)


def test_exact_totals_are_invariants_of_every_geolevel(tmp_path: Path) -> None:
    counts = random_counts(len(LEAVES), 2, 4)
    nmf = units(int(counts.sum())).write(tmp_path / "nmf")
    resolved = load_run(imported(tmp_path, nmf, schema=None))
    assert list(resolved.products) == ["units"]
    assert [str(one.query.name) for one in resolved.plan.invariants] == ["total"]
    found = Dataset.open(resolved.last.release.invariants("state")).read()
    sums = [int(counts[:5].sum()), int(counts[5:].sum())]
    assert [row[0] for row in found.column("answers").to_pylist()] == sums
    with pytest.MonkeyPatch.context() as patch:
        leave_out_figures(patch)
        run_solving(resolved, QUIET, tasks_of(resolved.config))
    write_nmf(resolved.last, tmp_path / "again", QUIET)
    (tmp_path / "second").mkdir()
    second = load_run(imported(tmp_path / "second", tmp_path / "again", schema=None))
    again = Dataset.open(second.last.release.invariants("state")).read()
    assert again.equals(found)


def test_totals_that_do_not_add_up_are_refused(tmp_path: Path) -> None:
    nmf = units(1).write(tmp_path / "nmf")
    with pytest.raises(InputError, match="is not the sum"):
        imported(tmp_path, nmf, schema=None)


def persons(facilities: np.ndarray, most: int = 99_999) -> SyntheticNmf:
    schema = load_schema(ROOT / "conf" / "schema" / "pl94.yaml")
    counts = np.zeros((len(LEAVES), 8, 252), np.int64)
    counts[:, :, 130] = 3 * facilities
    sigma_sq = {
        level: {"hhgq": Fraction(5 + place), "detailed": Fraction(9)}
        for place, level in enumerate(DIGITS)
    }
    extra: dict[str, list[dict[str, Any]]] = {level: [] for level in DIGITS}
    least = np.array([0, 1, 1, 1, 1, 1, 1, 1])
    for level, digits in DIGITS.items():
        for code in sorted({leaf[:digits] for leaf in LEAVES}):
            below = facilities[[leaf.startswith(code) for leaf in LEAVES]].sum(0)
            extra[level] += [
                constraint(code, "hhgq_total_lb", ">=", below * least),
                constraint(code, "hhgq_total_ub", "<=", below * most),
                constraint(code, "nurse_nva_0", "=", [0]),
            ]
    flat = counts.reshape(len(LEAVES), -1)
    return SyntheticNmf(schema, LEAVES, DIGITS, sigma_sq, flat, extra=extra)


def test_bounds_become_facilities_and_nobody_lives_where_none_are(tmp_path: Path) -> None:
    facilities = np.array([[2, 0, 0, 1, 0, 0, 0, 0]] * 3 + [[0] * 8] + [[4, 0, 2] + [0] * 5] * 2)
    nmf = persons(facilities).write(tmp_path / "nmf")
    resolved = load_run(imported(tmp_path, nmf, schema=None))
    stated = resolved.plan.limits.facilities
    assert stated is not None
    assert stated.least.tolist() == [0, 1, 1, 1, 1, 1, 1, 1]
    assert resolved.plan.limits.zeros is not None
    assert len(resolved.plan.limits.zeros) == 126
    write_nmf(resolved.last, tmp_path / "again", QUIET)
    (tmp_path / "second").mkdir()
    second = load_run(imported(tmp_path / "second", tmp_path / "again", schema=None))
    for level in ("nation", "county", "block"):
        one, other = (
            Dataset.open(run.last.release.implied(level)).read() for run in (resolved, second)
        )
        assert one.equals(other)


def test_bounds_that_are_no_facilities_are_refused(tmp_path: Path) -> None:
    nmf = persons(np.ones((len(LEAVES), 8), np.int64), most=1000).write(tmp_path / "nmf")
    with pytest.raises(InputError, match="is no number of facilities"):
        imported(tmp_path, nmf, schema=None)
    left = ("hhgq_total_ub", "hhgq_total_lb")
    resolved = load_run(imported(tmp_path, nmf, schema=None, leave_out=left))
    assert resolved.plan.limits.facilities is None


def test_what_the_layout_has_no_place_for_is_not_exported(tmp_path: Path) -> None:
    resolved = load_run(imported(tmp_path, synthetic().write(tmp_path / "nmf")))
    with pytest.raises(ConfigError, match="is unknown; got units"):
        product_named(resolved, "units")
    (tmp_path / "there").mkdir()
    with pytest.raises(OutputError, match="exists"):
        write_nmf(resolved.last, tmp_path / "there", QUIET)


# --- budgets from variances ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_derived_budget_has_the_variances_of_the_files(seed: int) -> None:
    rng = np.random.default_rng(seed)
    schema = load_schema(TOY)
    names = ["total", "sex", "age", "detailed"]
    noise = {
        Chain(level, level): {
            name: Variance(float(np.float32(10 ** rng.uniform(-2, 5))), True) for name in names
        }
        for level in range(3)
    }
    stated = derived(schema, ["a", "b", "c"], noise, "here")
    document = yaml.safe_load(stated.document)
    for level, name in enumerate("abc"):
        part = document["levels"][name]
        for query, share in part["queries"].items():
            cost = stated.rho * Fraction(str(part["share"])) * Fraction(str(share))
            variance = DiscreteGaussian(1 / cost).variance()
            assert np.float32(variance) == np.float32(noise[Chain(level, level)][query].value)
