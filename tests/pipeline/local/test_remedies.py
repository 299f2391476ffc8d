"""Each remedy that an error message names, tried as a user would: do it, and get through."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from das.errors import DasError
from jobs.cli.main import app
from tests.builders import toy, units
from tests.builders.in_process import leave_out_figures, patch_spark
from tests.builders.places import product_in, release_of
from tests.pipeline.local.remedies import Entry, Key, NotTried, TriedIn, collected, exists, says


@dataclass
class Desk:
    """Where a user works: a folder with the toy data, and the commands.

    Attributes:
      folder: The folder.
      shared: The run file of a finished run that nobody may change.
    """

    folder: Path
    shared: Path

    @cached_property
    def people(self) -> list[tuple[str, str, str]]:
        """The records, written when first asked for."""
        return toy.write_records(self.folder)

    def config(self, **changes: Any) -> Path:
        """Write the run file."""
        assert self.people
        return toy.configuration(self.folder, **changes)

    def write(self, name: str, text: str) -> Path:
        """Write a file."""
        path = self.folder / name
        path.write_text(text)
        return path

    def allocation(
        self, queries: dict[str, Any], levels: tuple[str, ...] = tuple(toy.LEVELS)
    ) -> str:
        """Write an allocation with the same queries at all geolevels."""
        shares = {name: {"share": f"1/{len(levels)}", **queries} for name in levels}
        return str(self.write("own.yaml", yaml.safe_dump({"name": "own", "levels": shares})))

    def das(self, *words: object) -> Result:
        """Run a command."""
        return CliRunner().invoke(app, [str(word) for word in words])

    def done(self, *words: object) -> str:
        """Run a command that gets through; returns what it prints."""
        result = self.das(*words)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.output

    def refused(self, *words: object) -> str:
        """Run a command that is refused; returns the message."""
        result = self.das(*words)
        assert isinstance(result.exception, DasError), (result.output, result.exception)
        return str(result.exception)

    def tried(self, bad: tuple[object, ...], good: tuple[object, ...]) -> str:
        """A command that is refused, and one that does what the message says."""
        message = self.refused(*bad)
        self.done(*good)
        return message


DETAILED = {"queries": {"total": "1/2", "detailed": "1/2"}}


# --- run files -----------------------------------------------------------------------------------


def every_geolevel_needs_a_share(desk: Desk) -> str:
    message = desk.refused(
        "validate", desk.config(privacy__allocation=desk.allocation(DETAILED, ("state", "block")))
    )
    desk.done("validate", desk.config(privacy__allocation=desk.allocation(DETAILED)))
    return message


def detailed_needs_a_share(desk: Desk) -> str:
    flat = {"queries": {"total": "1/2", "sex": "1/2"}}
    message = desk.refused("validate", desk.config(privacy__allocation=desk.allocation(flat)))
    small = {"queries": {"total": "499/1000", "sex": "1/2", "detailed": "1/1000"}}
    desk.done("validate", desk.config(privacy__allocation=desk.allocation(small)))
    return message


def full_targets_need_complete_queries(desk: Desk) -> str:
    every = {"privacy__on_demand_queries": ["total", "sex", "detailed"]}
    message = desk.refused("validate", desk.config(**every))
    desk.done("validate", desk.config(**every, solve={"fit_to": "level"}))
    return message


def other_queries_have_estimates(desk: Desk) -> str:
    config = desk.config(
        privacy__on_demand_queries=["detailed"], output__directory=str(desk.folder / "lazy")
    )
    desk.done("run", config, "--quiet")
    message = desk.refused("estimate", config, "--query", "age", "--geounit", "99")
    desk.done("estimate", config, "--query", "sex", "--geounit", "99")
    desk.done("estimate", desk.shared, "--query", "age", "--geounit", "99")
    return message


def functions_are_for_tables(desk: Desk) -> str:
    ranges = {"queries": {"prefix(age)": "1/2", "detailed": "1/2"}}
    message = desk.refused("validate", desk.config(privacy__allocation=desk.allocation(ranges)))
    own = desk.allocation(DETAILED)
    tables = ["total", "prefix(age)"]
    desk.done("validate", desk.config(privacy__allocation=own, output__tables=tables))
    return message


def tables_are_joined_by_stars(desk: Desk) -> str:
    own = desk.allocation(DETAILED)
    wrong = desk.config(privacy__allocation=own, output__tables=["total", "sex x age"])
    message = desk.refused("validate", wrong)
    right = desk.config(privacy__allocation=own, output__tables=["total", "sex * age"])
    desk.done("validate", right)
    return message


def housing_units_are_given(desk: Desk) -> str:
    asked = {"solve": {"housing_units": {"geolevels": ["block"]}}}
    message = desk.refused("validate", desk.config(**asked))
    table = {"path": str(desk.folder / "homes.csv"), "columns": {"homes": "homes"}}
    given = [{"living_quarters": ["homes"], "geolevel": "block", "table": table}]
    desk.done("validate", desk.config(**asked, invariants=given))
    return message


def _of_sexes(**changes: Any) -> dict[str, Any]:
    """Half for everybody, half for each sex at the state."""
    own = {"state": {"share": "1/2", "queries": {"age": "1"}}}
    levels = {"female": own, "male": own, **changes}
    return {"query": "sex", "levels": {name: one for name, one in levels.items() if one}}


def _with_strata(desk: Desk, strata: dict[str, Any]) -> Path:
    shares = {name: {"share": "1/8", **DETAILED} for name in toy.LEVELS}
    document = {"name": "own", "levels": shares, "strata": strata}
    own = str(desk.write("own.yaml", yaml.safe_dump(document)))
    return desk.config(privacy__allocation=own)


def strata_are_answers_of_a_partition(desk: Desk) -> str:
    message = desk.refused("validate", _with_strata(desk, {**_of_sexes(), "query": "prefix(age)"}))
    desk.done("validate", _with_strata(desk, _of_sexes()))
    return message


def every_stratum_needs_a_share(desk: Desk) -> str:
    message = desk.refused("validate", _with_strata(desk, _of_sexes(male=None)))
    desk.done("validate", _with_strata(desk, _of_sexes()))
    return message


def strata_have_no_gap(desk: Desk) -> str:
    county = {"share": "1/2", "queries": {"age": "1"}}
    message = desk.refused("validate", _with_strata(desk, _of_sexes(male={"county": county})))
    small = {"state": {**county, "share": "1/100"}, "county": {**county, "share": "49/100"}}
    desk.done("validate", _with_strata(desk, _of_sexes(male=small)))
    return message


WORKLOAD = {"workload": {"tables": {"detailed": "1", "sex": "1"}, "method": "hdmm"}}


def residuals_need_zcdp(desk: Desk) -> str:
    pure = {"privacy__definition": "pure", "privacy__rho": None, "privacy__epsilon": "1"}
    orp = {"workload": {**WORKLOAD["workload"], "method": "orp"}}
    message = desk.refused(
        "validate", desk.config(privacy__allocation=desk.allocation(orp), **pure)
    )
    for other in (WORKLOAD, DETAILED):
        desk.done("validate", desk.config(privacy__allocation=desk.allocation(other), **pure))
    return message


def recodes_are_asked_under_bases(desk: Desk) -> str:
    named = {"workload": {"tables": {"detailed": "1", "votingage": "1"}, "method": "hdmm"}}
    message = desk.refused("validate", desk.config(privacy__allocation=desk.allocation(named)))
    bases = {"tables": {"detailed": "1", "age": "1"}, "method": "hdmm",
             "bases": {"age": ["identity", "votingage"]}}  # fmt: skip
    own = desk.allocation({"workload": bases})
    desk.done("validate", desk.config(privacy__allocation=own))
    return message


def _plans(desk: Desk, bad: dict[str, Any], good: dict[str, Any]) -> str:
    """Refuse one workload and accept the other."""
    tables = {"tables": {"detailed": "1", "sex": "1"}, "method": "residual_planner_plus"}
    own = desk.allocation({"workload": {**tables, **bad}})
    message = desk.refused("validate", desk.config(privacy__allocation=own))
    own = desk.allocation({"workload": {**tables, **good}})
    desk.done("validate", desk.config(privacy__allocation=own))
    return message


def rows_determine_the_total(desk: Desk) -> str:
    bad = {"bases": {"sex": [[1, 2], [2, 4]]}}
    return _plans(desk, bad, {"bases": {"sex": [[1, 2], [2, 4], [1, 1]]}})


def rows_tell_levels_apart(desk: Desk) -> str:
    return _plans(desk, {"bases": {"sex": [[1, 1]]}}, {})


def powers_below_one_are_not_convex(desk: Desk) -> str:
    return _plans(desk, {"loss": {"power_mean": "1/2"}}, {"loss": {"power_mean": "1"}})


def high_powers_are_the_largest(desk: Desk) -> str:
    return _plans(desk, {"loss": {"power_mean": "65"}}, {"loss": "largest_variance"})


def every_table_is_in_a_mean(desk: Desk) -> str:
    both = {"sex": "1", "detailed": "1/100"}
    return _plans(
        desk,
        {"loss": {"max_weighted_mean": [{"sex": "1"}]}},
        {"loss": {"max_weighted_mean": [both]}},
    )


def powers_need_weights(desk: Desk) -> str:
    bad = {"loss": {"power_mean": "2"}, "tables": {"detailed": "1", "sex": "0"}}
    return _plans(desk, bad, {"loss": {"power_mean": "2"}, "tables": {"detailed": "1"}})


def one_cell_has_nothing_to_plan(desk: Desk) -> str:
    schema = {"name": "one", "attributes": [{"name": "all", "levels": ["all"]}]}
    path = str(desk.write("one.yaml", yaml.safe_dump(schema)))
    changes = {"schema": path, "data__columns": {"all": {"column": "sex", "codes": {
        "female": "all", "male": "all"}}}}  # fmt: skip
    planned = {"workload": {"tables": {"detailed": "1"}}}
    own = desk.allocation(planned)
    message = desk.refused("validate", desk.config(privacy__allocation=own, **changes))
    own = desk.allocation({"queries": {"detailed": "1"}})
    desk.done("validate", desk.config(privacy__allocation=own, **changes))
    return message


def fewer_groups(desk: Desk) -> str:
    levels = [f"{number}" for number in range(200)]
    schema = {
        "name": "fine",
        "attributes": [{"name": name, "levels": levels} for name in ("sex", "age")],
    }
    path = str(desk.write("fine.yaml", yaml.safe_dump(schema)))
    own = desk.allocation(DETAILED)

    def config(*groups: str) -> Path:
        asked = {"groups": [*groups]}
        return desk.config(schema=path, evaluate=asked, privacy__allocation=own)

    message = desk.refused("validate", config("sex * age"))
    desk.done("validate", config("sex", "age"))
    return message


def maxfit_takes_no_rows(desk: Desk) -> str:
    row = {"name": "few", "row": [{"cells": {}}], "geolevel": "state", "at_most": 9999}
    bad = desk.config(invariants=[row], solve={"method": "maxfit"})
    message = desk.refused("validate", bad)
    desk.done("validate", desk.config(invariants=[row], solve={"method": "nnls"}))
    return message


def noise_is_within_what_floats_resolve(desk: Desk) -> str:
    message = desk.refused("validate", desk.config(privacy__rho="1/1000000000000000000000"))
    desk.done("validate", desk.config(privacy__rho="1/1000000000000"))
    return message


def passes_are_rounded_beside_nnls(desk: Desk) -> str:
    asked = {"l2_passes": {"county": [["total"]]}, "round_l2_passes": True}
    message = desk.refused("validate", desk.config(solve={**asked, "method": "sequential"}))
    desk.done("validate", desk.config(solve=asked))
    return message


def rounded_passes_get_finer(desk: Desk) -> str:
    back = {"l2_passes": {"county": [["sex"], ["total"]]}, "round_l2_passes": True}
    message = desk.refused("validate", desk.config(solve=back))
    forth = {"l2_passes": {"county": [["total"], ["sex"]]}, "round_l2_passes": True}
    desk.done("validate", desk.config(solve=forth))
    return message


def rounded_passes_nest_with_rounding(desk: Desk) -> str:
    asked = {"l2_passes": {"county": [["sex"]]}, "round_l2_passes": True}
    crossed = {**asked, "rounding_passes": [["age"], ["detailed"]]}
    message = desk.refused("validate", desk.config(solve=crossed))
    desk.done("validate", desk.config(solve={**asked, "rounding_passes": [["sex"], ["detailed"]]}))
    return message


def plain_numbers(desk: Desk) -> str:
    path = desk.config()
    text = path.read_text()
    path.write_text(text.replace("rho: '1'", "rho: 010"))
    message = desk.refused("validate", path)
    path.write_text(text.replace("rho: '1'", "rho: 10"))
    desk.done("validate", path)
    return message


def relative_paths(desk: Desk) -> str:
    message = desk.refused(
        "run", "--only", "measure", desk.config(data__path="elsewhere/records.csv"), "--quiet"
    )
    desk.done("run", "--only", "measure", desk.config(data__path="records.csv"), "--quiet")
    return message


def units_are_a_section(desk: Desk) -> str:
    assert desk.people
    units.write_units(desk.folder)
    facilities = [{"facilities": "sex", "geolevel": "block", "units": "hhgq"}]
    message = desk.refused("validate", desk.config(invariants=facilities))
    section = units.section(desk.folder)
    later = desk.refused("validate", desk.config(invariants=facilities, units=section))
    assert "does not come before this one" not in later  # the next mistake is another
    return message


def facilities_need_exact_units(desk: Desk) -> str:
    assert desk.people
    units.write_units(desk.folder)
    section = units.section(desk.folder, invariants=[], solve={})
    facilities = [{"facilities": "sex", "geolevel": "block", "units": "hhgq"}]
    message = desk.refused("validate", desk.config(invariants=facilities, units=section))
    exact = units.section(desk.folder)
    later = desk.refused("validate", desk.config(invariants=facilities, units=exact))
    assert "is not exact at geolevel" not in later
    return message


# --- input ---------------------------------------------------------------------------------------


def another_separator(desk: Desk) -> str:
    assert desk.people
    path = desk.folder / "records.csv"
    path.write_text(path.read_text().replace(",", ";"))
    message = desk.refused("run", "--only", "measure", desk.config(), "--quiet")
    assert "expected ['block', 'sex', 'age']" in message  # all columns, not the first one
    data = {"input_format": "records", "path": str(path), "geocode": "block", "delimiter": ";",
            "columns": {"sex": "sex", "age": "age"}}  # fmt: skip
    # A second toy.write_records would put the commas back.
    desk.done("run", "--only", "measure", toy.configuration(desk.folder, data=data), "--quiet")
    return message


def fields_without_line_breaks(desk: Desk) -> str:
    """A respondent's text begins with a quotation mark, in a column that the run does not use."""
    assert desk.people
    path = desk.folder / "records.csv"
    head, *rows = path.read_text().splitlines()
    texts = ['"chief of', "nothing", 'works"', *["nothing"] * (len(rows) - 3)]
    lines = [f"{row},{text}" for row, text in zip([head, *rows], ["work", *texts], strict=True)]
    path.write_text("\n".join(lines) + "\n")
    message = desk.refused("run", "--only", "measure", desk.config(), "--quiet")
    assert "records.csv, row 2: has a quotation mark that opens a field" in message
    data = {"input_format": "records", "path": str(path), "geocode": "block", "quoting": "none",
            "columns": {"sex": "sex", "age": "age"}}  # fmt: skip
    desk.done("run", "--only", "measure", toy.configuration(desk.folder, data=data), "--quiet")
    return message


def _line_mended(desk: Desk, wrong: bytes, right: bytes, name: str = "records.csv") -> str:
    """Refuse a file with a byte sequence that no line may hold, and take it without."""
    config, path = desk.config(), desk.folder / name
    text = path.read_bytes()
    path.write_bytes(text.replace(right, wrong, 2))
    message = desk.refused("run", "--only", "measure", config, "--quiet")
    path.write_bytes(text)
    desk.done("run", "--only", "measure", config, "--quiet")
    return message


def without_null_bytes(desk: Desk) -> str:
    return _line_mended(desk, b"\0female", b"female")


def without_carriage_returns(desk: Desk) -> str:
    return _line_mended(desk, b"fe\rmale", b"female")


def no_blank_line(desk: Desk) -> str:
    return _line_mended(desk, b"\n\n", b"\n", "blocks.csv")


def a_folder_of_data_alone(desk: Desk) -> str:
    """Half of the records are in a compressed file."""
    assert desk.people
    folder = desk.folder / "records"
    folder.mkdir()
    head, *rows = (desk.folder / "records.csv").read_text().splitlines()
    for name, some in (("a", rows[:50]), ("b", rows[50:])):
        (folder / f"{name}.csv").write_text("\n".join([head, *some, ""]))
    packed = folder / "b.csv.gz"
    packed.write_bytes(gzip.compress((folder / "b.csv").read_bytes()))
    data = {"input_format": "records", "path": str(folder), "geocode": "block",
            "columns": {"sex": "sex", "age": "age"}}  # fmt: skip
    config = toy.configuration(desk.folder, data=data)
    (folder / "b.csv").unlink()
    message = desk.refused("run", "--only", "measure", config, "--quiet")
    (folder / "b.csv").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    desk.done("run", "--only", "measure", config, "--quiet")
    return message


def another_separator_of_sizes(desk: Desk) -> str:
    groups, asked = _Groups(desk), {"groups": {"sex": "relative"}, "sizes": "sizes.csv"}
    sizes = desk.folder / "sizes.csv"
    sizes.write_text(sizes.read_text().replace(",", ";"))
    message = desk.refused(*groups.words(asked))
    sizes.write_text(sizes.read_text().replace(";", ","))
    desk.done(*groups.words(asked))
    return message


def a_header(desk: Desk) -> str:
    config, path = desk.config(), desk.folder / "records.csv"
    text = path.read_text()
    path.write_text(text.partition("\n")[2])
    message = desk.refused("run", "--only", "measure", config, "--quiet")
    path.write_text(text)
    desk.done("run", "--only", "measure", config, "--quiet")
    return message


def codes_of_the_file(desk: Desk) -> str:
    path = desk.config() and desk.folder / "records.csv"
    path.write_text(path.read_text().replace(",female,", ",2,").replace(",male,", ",1,"))
    message = desk.refused("run", "--only", "measure", toy.configuration(desk.folder), "--quiet")
    columns = {"sex": {"column": "sex", "codes": {"1": "male", "2": "female"}}, "age": "age"}
    desk.done(
        "run", "--only", "measure", toy.configuration(desk.folder, data__columns=columns), "--quiet"
    )
    return message


def leading_zeros(desk: Desk) -> str:
    config, path = desk.config(), desk.folder / "blocks.csv"
    for name in ("blocks.csv", "records.csv"):
        file = desk.folder / name
        file.write_text(file.read_text().replace("99", "09"))
    text = path.read_text()
    path.write_text(text.replace("\n09", "\n9"))
    message = desk.refused("validate", config)
    listed = {"path": str(path), "leading_zeros": "lost"}
    desk.done("validate", toy.configuration(desk.folder, geography__geounits=listed))
    path.write_text(text)
    desk.done("validate", config)
    return message


def complete_the_list(desk: Desk) -> str:
    config, path = desk.config(), desk.folder / "blocks.csv"
    text = path.read_text()
    missing = desk.people[0][0]
    path.write_text(text.replace(f"{missing}\n", "").replace(f"{missing}\r\n", ""))
    message = desk.refused("run", "--only", "measure", config, "--quiet")
    path.write_text(text)
    desk.done("run", "--only", "measure", config, "--quiet")
    return message


def block_table(desk: Desk, checks: dict[str, Any], wrong: int = 0) -> Path:
    """A run of the toy state from a block table with a column of totals."""
    cells = [(sex, age) for sex in toy.SEX for age in toy.AGE]
    with (desk.folder / "table.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["geocode", *(f"{s} {a}" for s, a in cells), "all"])
        for code in toy.blocks():
            counts = [sum(p == (code, *cell) for p in desk.people) for cell in cells]
            writer.writerow([code, *counts, sum(counts) + wrong])
    data = {
        "input_format": "block_table",
        "path": str(desk.folder / "table.csv"),
        "columns": {f"{s} {a}": {"sex": s, "age": a} for s, a in cells},
        "checks": checks,
    }
    return desk.config(data=data)


def sums_that_are_checked(desk: Desk) -> str:
    message = desk.refused(
        "run", "--only", "measure", block_table(desk, {"all": {}}, wrong=1), "--quiet"
    )
    desk.done("run", "--only", "measure", block_table(desk, {}, wrong=1), "--quiet")
    return message


def data_that_break_an_invariant(desk: Desk) -> str:
    row = {"name": "few", "row": [{"cells": {}}], "geolevel": "state"}
    message = desk.refused(
        "run", "--only", "measure", desk.config(invariants=[{**row, "at_most": 5}]), "--quiet"
    )
    out = str(desk.folder / "other")
    config = desk.config(invariants=[{**row, "at_most": 5000}], output__directory=out)
    desk.done("run", "--only", "measure", config, "--quiet")
    return message


def invariants_that_contradict_each_other(desk: Desk) -> str:
    row = {"row": [{"cells": {}}], "geolevel": "state"}
    few, many = {**row, "name": "few", "at_most": 5}, {**row, "name": "many", "at_least": 9}
    message = desk.refused(
        "run", "--only", "measure", desk.config(invariants=[few, many]), "--quiet"
    )
    out = str(desk.folder / "other")
    desk.done(
        "run", "--only", "measure", desk.config(invariants=[many], output__directory=out), "--quiet"
    )
    return message


def input_that_changed(desk: Desk) -> str:
    config = desk.config()
    desk.done("run", "--only", "measure", config, "--quiet")
    with (desk.folder / "records.csv").open("a") as handle:
        handle.write("9900100000,female,under_18\n")
    message = desk.refused("run", "--only", "measure", config, "--quiet")
    desk.done("run", "--only", "measure", config, "--quiet", "--out", desk.folder / "other")
    return message


# --- run folders ---------------------------------------------------------------------------------


def a_folder_of_another_configuration(desk: Desk) -> str:
    desk.done("run", "--only", "measure", desk.config(), "--quiet")
    config = desk.config(privacy__rho="2")
    message = desk.refused("run", "--only", "measure", config, "--quiet")
    desk.done("run", "--only", "measure", config, "--quiet", "--out", desk.folder / "other")
    return message


def a_log_in_the_release(desk: Desk) -> str:
    config, log = desk.config(), release_of(desk.folder / "out").root / "log.jsonl"
    good = ("run", config, "--quiet", "--log-json", desk.folder / "log.jsonl")
    return desk.tried(("run", config, "--quiet", "--log-json", log), good)


def a_log_over_another_file(desk: Desk) -> str:
    config, letter = desk.config(), desk.write("letter.txt", "dear reader")
    good = ("run", config, "--quiet", "--log-json", desk.folder / "log.jsonl")
    message = desk.tried(("run", config, "--quiet", "--log-json", letter), good)
    assert letter.read_text() == "dear reader"
    return message


def measure_first(desk: Desk) -> str:
    config, out = desk.config(), desk.folder / "out"
    missing = desk.config(data__path="missing.csv")
    desk.refused("run", missing, "--quiet")
    desk.config()
    out.mkdir(exist_ok=True)
    if not (out / "run.json").exists():
        (out / "run.json").write_text("{}")
    message = desk.refused("inspect", out, "--geounit", "99")
    shutil.rmtree(out)
    desk.done("run", "--only", "measure", config, "--quiet")
    desk.done("inspect", out, "--geounit", "99")
    return message


def estimates_need_their_stage(desk: Desk) -> str:
    config = desk.config()
    desk.done("run", "--only", "measure", config, "--quiet")
    asked = ("estimate", config, "--geounit", "99")
    message = desk.refused(*asked)
    desk.done("run", "--only", "solve", config, "--quiet")
    desk.done(*asked)
    return message


def files_that_no_manifest_names(desk: Desk) -> str:
    config = desk.config()
    desk.done("run", config, "--quiet")
    late = release_of(desk.folder / "out").counts("block") / "part-0.parquet"
    late.write_bytes(b"late")
    message = desk.refused("verify", config, "--quiet")
    late.unlink()
    desk.done("verify", config, "--quiet")
    return message


def damage_is_made_again(desk: Desk) -> str:
    config, out = desk.config(), desk.folder / "out"
    desk.done("run", config, "--quiet")
    part = next((release_of(out).counts("block")).glob("part-*"))
    part.write_bytes(b"damaged")
    message = desk.refused("verify", config, "--quiet")
    desk.done("run", out, "--quiet")
    desk.done("verify", config, "--quiet")
    return message


def counts_below_lost_counts(desk: Desk) -> str:
    config, out = desk.config(), desk.folder / "out"
    desk.done("run", config, "--quiet")
    shutil.rmtree(release_of(out).counts("tract"))
    message = desk.refused("run", config, "--quiet")
    desk.done("run", out, "--quiet")
    desk.done("verify", config, "--quiet")
    return message


def no_folder_of_a_run(desk: Desk) -> str:
    out = desk.shared.parent / "out"
    return desk.tried(("inspect", desk.folder), ("inspect", out))


def no_folder_of_a_run_to_resume(desk: Desk) -> str:
    bad = ("run", desk.folder, "--quiet")
    return desk.tried(bad, ("run", desk.shared.parent / "out", "--quiet"))


def a_run_file_that_moved(desk: Desk) -> str:
    config, moved = desk.config(), desk.folder / "moved.yaml"
    desk.done("run", "--only", "measure", config, "--quiet")
    config.rename(moved)
    out = desk.folder / "out"
    good = ("run", out, "--quiet", "--config", moved)
    return desk.tried(("run", out, "--quiet"), good)


SECRET = {"privacy__randomness": {"source": "operating_system"}}


def a_grant_that_is_spent(desk: Desk) -> str:
    desk.done("run", "--only", "measure", desk.config(**SECRET), "--quiet")
    other = {**SECRET, "output__directory": str(desk.folder / "other")}
    message = desk.refused("run", "--only", "measure", desk.config(**other), "--quiet")
    desk.done("run", "--only", "measure", desk.config(**SECRET), "--quiet")  # go on in that folder
    desk.done("run", "--only", "measure", desk.config(**other, privacy__budget_id="2"), "--quiet")
    return message


def an_account_that_was_edited(desk: Desk) -> str:
    config = desk.config(**SECRET, privacy__account=str(desk.folder / "account.jsonl"))
    desk.done("run", "--only", "measure", config, "--quiet")
    account = desk.folder / "account.jsonl"
    backup = account.read_text()
    account.write_text(backup.replace('"1"', '"2"'))
    message = desk.refused("account", config)
    account.write_text(backup)
    desk.done("account", config)
    return message


def a_run_file_that_changed(desk: Desk) -> str:
    config, out = desk.config(), desk.folder / "out"
    desk.done("run", "--only", "measure", config, "--quiet")
    desk.config(privacy__rho="2")
    message = desk.refused("run", out, "--quiet")
    desk.config()
    desk.done("run", out, "--quiet")
    return message


def _lost(desk: Desk, which: str, command: str) -> str:
    """A file that is lost, and restored from a backup."""
    config, out = desk.config(), desk.folder / "out"
    part = () if command == "verify" else ("--only", "measure")
    desk.done("run", config, "--quiet", *part)
    path = next(release_of(out).root.glob(which))
    words = (command, out if command == "run" else config, "--quiet")
    backup = path.rename(desk.folder / "backup")
    message = desk.refused(*words)
    backup.rename(path)
    desk.done(*words)
    return message


def lost_noisy_answers(desk: Desk) -> str:
    return _lost(desk, "measurements/level=tract/part-*", "run")


def a_lost_ledger(desk: Desk) -> str:
    return _lost(desk, "ledger.jsonl", "run")


def a_lost_ledger_of_a_release(desk: Desk) -> str:
    return _lost(desk, "ledger.jsonl", "verify")


def lost_notes_on_the_input(desk: Desk) -> str:
    config = desk.config()
    desk.done("run", "--only", "measure", config, "--quiet")
    (desk.folder / "out" / "confidential" / "input.json").unlink()
    message = desk.refused("run", config, "--quiet")
    desk.done("run", "--only", "solve", config, "--quiet")
    return message


def what_needs_a_release(desk: Desk) -> str:
    config, out = desk.config(), desk.folder / "out"
    asked = (
        ("inspect", "--reports", out),
        ("verify", config, "--quiet"),
        ("evaluate", config, "--quiet"),
    )
    desk.done("run", "--only", "measure", config, "--quiet")
    messages = [desk.refused(*command) for command in asked]
    message = messages[0]
    # The manifest of the release is missing, or that of its product: the remedy is the same.
    assert {text.partition("manifest.json: ")[2] for text in messages} == {
        message.partition("manifest.json: ")[2]
    }
    desk.done("run", "--only", "solve", config, "--quiet")
    for command in asked:
        desk.done(*command)
    return message


def _copied(desk: Desk) -> Path:
    """A copy of a release whose report cannot be written, as on a read-only disk."""
    copied = shutil.copytree(desk.shared.parent / "out" / "release", desk.folder / "copied")
    product_in(copied).report.unlink()
    product_in(copied).report.mkdir()
    return Path(copied)


def a_release_that_cannot_be_written_to(desk: Desk) -> str:
    copied = _copied(desk)
    return desk.tried(
        ("inspect", "--reports", copied),
        ("inspect", "--reports", copied, "--to", desk.folder / "mine"),
    )


def a_folder_for_reports_that_is_a_file(desk: Desk) -> str:
    copied, file = _copied(desk), desk.write("file", "")
    bad = ("inspect", "--reports", copied, "--to", file / "below")
    return desk.tried(bad, ("inspect", "--reports", copied, "--to", desk.folder / "mine"))


def other_settings_of_a_finalized_release(desk: Desk) -> str:
    desk.done("run", desk.config(), "--quiet")
    config = desk.config(output__tables=["total", "sex * age"])
    message = desk.refused("run", config, "--quiet")
    desk.done("run", "--only", "solve", config, "--quiet", "--solution", "other")
    return message


def an_account_in_another_place(desk: Desk) -> str:
    first = desk.config(**SECRET, privacy__account=str(desk.folder / "account.jsonl"))
    desk.done("run", "--only", "measure", first, "--quiet")
    (desk.folder / "new").mkdir()
    other = desk.config(**SECRET, privacy__account=str(desk.folder / "new" / "account.jsonl"))
    message = desk.refused("run", other, "--quiet")
    (desk.folder / "account.jsonl").rename(desk.folder / "new" / "account.jsonl")
    desk.done("run", other, "--quiet")
    return message


def a_solution_of_nothing(desk: Desk) -> str:
    config = desk.config()
    words = ("run", "--only", "solve", config, "--quiet", "--solution", "other")
    message = desk.refused(*words)
    desk.done("run", "--only", "measure", config, "--quiet")
    desk.done(*words)
    return message


def too_small_a_weight(desk: Desk) -> str:
    tables = {"detailed": "1/1000000000000000000000", "sex": "1"}
    own = desk.allocation({"workload": {"tables": tables, "method": "hdmm"}})
    message = desk.refused("validate", desk.config(privacy__allocation=own))
    own = desk.allocation(WORKLOAD)
    desk.done("validate", desk.config(privacy__allocation=own))
    return message


# --- commands ------------------------------------------------------------------------------------


def generated_into_a_full_folder(desk: Desk) -> str:
    assert desk.people
    words = ("--blocks", 20, "--schema", "toy", "--quiet")
    bad = ("generate", desk.folder, *words)
    return desk.tried(bad, ("generate", desk.folder / "new", *words))


def another_name_for_the_allocation(desk: Desk) -> str:
    config, path = desk.config(), desk.write("best.yaml", "mine")
    message = desk.refused("plan", config, "--quiet", "--optimize", path)
    assert path.read_text() == "mine"
    desk.done("plan", config, "--quiet", "--optimize", desk.folder / "best2.yaml")
    own = str(desk.folder / "best2.yaml")
    desk.done("validate", desk.config(privacy__allocation=own))
    return message


def targets_beyond_the_budget(desk: Desk) -> str:
    config, wish = desk.config(), desk.write("targets.yaml", "total: 0.01\n")
    words = ("plan", config, "--quiet", "--tables", "total", "--optimize", desk.folder / "x.yaml")
    message = desk.refused(*words, "--targets", wish)
    wish.write_text("total: 100\n")
    desk.done(*words, "--targets", wish)
    return message


def an_allocation_that_is_made(desk: Desk) -> str:
    config = desk.config(privacy__allocation=None)
    message = desk.refused("validate", config)
    best = desk.folder / "best.yaml"
    desk.done("plan", config, "--quiet", "--tables", "sex", "--optimize", best)
    desk.done("validate", desk.config(privacy__allocation=str(best)))
    return message


class _Groups:
    """`das plan --groups` with what a file of groups says."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        desk.write("sizes.csv", "query,group,persons\nsex,female,60\nsex,male,70\n")

    def words(self, document: dict[str, Any], *more: object) -> tuple[object, ...]:
        path = self.desk.write("groups.yaml", yaml.safe_dump(document))
        return ("plan", self.desk.config(), "--quiet", "--groups", path, *more)


def sizes_of_groups(desk: Desk) -> str:
    groups = _Groups(desk)
    message = desk.refused(*groups.words({"groups": {"sex": "relative"}}))
    desk.done(*groups.words({"groups": {"sex": "relative"}, "sizes": "sizes.csv"}))
    desk.done(*groups.words({"groups": {"sex": "absolute"}}))
    return message


def sizes_of_all_groups(desk: Desk) -> str:
    groups, asked = _Groups(desk), {"groups": {"sex": "relative"}, "sizes": "sizes.csv"}
    sizes = desk.folder / "sizes.csv"
    whole = sizes.read_text()
    sizes.write_text(whole.replace("sex,male,70\n", ""))
    message = desk.refused(*groups.words(asked))
    sizes.write_text(whole)
    desk.done(*groups.words(asked))
    return message


def groups_that_nobody_is_in(desk: Desk) -> str:
    groups = _Groups(desk)
    desk.write("sizes.csv", "query,group,persons\nsex,female,60\nsex,male,0\n")
    message = desk.refused(*groups.words({"groups": {"sex": "relative"}, "sizes": "sizes.csv"}))
    desk.done(*groups.words({"groups": {"sex": "absolute"}}))
    return message


def targets_in_a_known_unit(desk: Desk) -> str:
    groups, targets = _Groups(desk), {"sex": {"male": {"tract": 4}}}
    message = desk.refused(
        *groups.words({"groups": {"sex": {"block": "absolute"}}, "targets": targets})
    )
    known = {"sex": {"block": "absolute", "tract": "absolute"}}
    desk.done(*groups.words({"groups": known, "targets": targets}))
    return message


def limits_beyond_the_budget(desk: Desk) -> str:
    groups, out = _Groups(desk), desk.folder / "x.yaml"
    asked = {"groups": {"sex": "absolute"}, "limits": {"total": 0.01}}
    message = desk.refused(*groups.words(asked, "--optimize", out))
    desk.done(*groups.words(asked | {"limits": {"total": 100}}, "--optimize", out))
    return message


def fewer_pairs_of_answers(desk: Desk) -> str:
    levels = [f"l{i}" for i in range(330)]
    recode = {"name": "half", "attribute": "sex", "groups": {
        "low": levels[:165], "high": levels[165:]}}  # fmt: skip
    schema = {"name": "wide", "attributes": [{"name": "sex", "levels": levels}],
              "recodes": [recode]}  # fmt: skip
    path = str(desk.write("wide.yaml", yaml.safe_dump(schema)))
    column = {"sex": {"column": "sex", "codes": {"female": "l0", "male": "l1"}}}
    own = desk.allocation({"queries": {"detailed": "1"}})
    config = desk.config(
        schema=path, data__columns=column, privacy__allocation=own, output__tables=["total"]
    )
    message = desk.refused("plan", config, "--quiet", "--covariance", "sex")
    desk.done("plan", config, "--quiet", "--covariance", "half")
    return message


def fewer_attributes_a_table(desk: Desk) -> str:
    attributes = [{"name": f"a{i}", "levels": ["0", "1"]} for i in range(13)]
    path = str(desk.write("wide.yaml", yaml.safe_dump({"name": "wide", "attributes": attributes})))
    columns = {f"a{i}": {"column": "sex", "codes": {"female": "0", "male": "1"}} for i in range(13)}
    own = desk.allocation({"queries": {"detailed": "1"}})
    config = desk.config(
        schema=path, data__columns=columns, privacy__allocation=own, output__tables=["total"]
    )
    message = desk.refused("plan", "--compare-planners", config, "--order", "7")
    desk.done("plan", "--compare-planners", config, "--order", "1")
    return message


def optimization_needs_zcdp(desk: Desk) -> str:
    pure = {"privacy__definition": "pure", "privacy__rho": None, "privacy__epsilon": "1"}
    words = ("--quiet", "--optimize", desk.folder / "x.yaml")
    message = desk.refused("plan", desk.config(**pure), *words)
    desk.done("plan", desk.config(), *words)
    return message


def boundaries_without_leading_zeros(desk: Desk) -> str:
    config = desk.shared
    areas = desk.folder / "areas.csv"
    areas.write_text("".join(f"{code},{code[2:5]}\n" for code in toy.blocks()))
    drawn = desk.folder / "drawn.geojson"

    def draw(name: object) -> None:
        feature = {"type": "Feature", "geometry": None, "properties": {"ID": name}}
        drawn.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))

    words = ("areas", config, "--assign", areas, "--boundaries", drawn, "--join", "ID")
    words = (*words, "--geojson", desk.folder / "out.geojson")
    draw(1)
    message = desk.refused(*words)
    draw("001")
    desk.done(*words)
    return message


def estimates_into_a_folder_that_is_not_there(desk: Desk) -> str:
    words = ("estimate", desk.shared, "--geounit", "99", "--output", desk.folder / "new" / "x.csv")
    message = desk.refused(*words)
    (desk.folder / "new").mkdir()
    desk.done(*words)
    return message


def _area(desk: Desk, bad: str | bytes, good: str) -> str:
    """An area file that is refused, and one that does what the message says."""
    path = desk.folder / "areas.csv"
    path.write_bytes(bad.encode() if isinstance(bad, str) else bad)
    message = desk.refused("estimate", desk.shared, "--area", path)
    path.write_text(good)
    desk.done("estimate", desk.shared, "--area", path)
    return message


def areas_in_utf_8(desk: Desk) -> str:
    return _area(desk, "Zürich,9900100000\n".encode("latin-1"), "Zürich,9900100000\n")


def areas_with_more_columns(desk: Desk) -> str:
    message = _area(desk, "9900100000,a,1\n", "9900100000,a\n")
    path = desk.write("more.csv", "BLOCKID,COUNTYFP,DISTRICT\n9900100000,001,7\n")
    desk.refused("areas", desk.shared, "--assign", path)
    desk.done("areas", desk.shared, "--assign", path, "--column", "DISTRICT")
    return message


def areas_with_separators_in_names(desk: Desk) -> str:
    good = '9900100000,Bay\n9900100001,"Bay, upper"\n'
    return _area(desk, good.replace('"', ""), good)


def areas_with_an_open_quotation_mark(desk: Desk) -> str:
    good = "9900100000,Bay\n9900100001,Upper\n"
    return _area(desk, good.replace("Bay", '"Bay', 1).replace("Upper", 'Upper"'), good)


def areas_of_unknown_blocks(desk: Desk) -> str:
    return _area(desk, "9900100000,a\n9900199999,a\n", "9900100000,a\n")


def areas_without_leading_zeros(desk: Desk) -> str:
    for name in ("records.csv", "blocks.csv"):
        assert desk.people
        path = desk.folder / name
        path.write_text(path.read_text().replace("99", "09"))
    config = toy.configuration(desk.folder)
    desk.done("run", config, "--quiet")
    path = desk.write("areas.csv", "900100000,a\n900100001,a\n")
    message = desk.refused("estimate", config, "--area", path)
    path.write_text("0900100000,a\n0900100001,a\n")
    desk.done("estimate", config, "--area", path)
    return message


_ANOTHER = (
    "; or give another privacy.budget_id and output.directory, and its cost is added to what "
)
_ANOTHER += "the same people have lost"
_SOLUTIONS = "tests/pipeline/local/test_solutions.py"
_REPLICATE = "tests/pipeline/local/test_replicate.py"
_ALONE = "tests/pipeline/local/test_release_alone.py"
_INIT = "tests/pipeline/local/test_init.py"
_BETWEEN = "tests/pipeline/local/test_between.py"
_REHEARSAL = "tests/pipeline/local/test_rehearsal.py"
_CODED = "test_codes_of_any_kind_are_numbered_and_shown"
_REFUSED = "test_what_cannot_be_proposed_is_refused_and_leaves_nothing"
_COMPARE = "tests/pipeline/local/test_compare.py"
_EXPLORE = "tests/pipeline/local/test_explore.py"
_DEMO = "tests/pipeline/local/test_demo.py"
_NMF = "tests/pipeline/local/test_nmf.py"
_BOUND = "tests/pipeline/local/test_bound.py"
_DRAWS = "tests/pipeline/local/test_one_draw.py"
_SHELL = NotTried("the cluster, its secret and its files are made outside of a test; "
                  "tests/unit/jobs/pipeline/config/test_protection.py follows the key of the run file")  # fmt: skip
_LARGE = "tests/pipeline/local/test_large_schemas.py"
LARGE = NotTried("needs a schema that takes longer to plan than a test may")
LIBRARY = NotTried("an argument of a function for analysts and planners; no run file has it")
MACHINE = NotTried("needs a machine that lacks or breaks something; its tests plant the failure")
INSTALLS = NotTried("installs a package from a registry")
SOLVER = NotTried("no run file makes a solver stop there for sure; tests/unit/solvers does")
_ADDRESSES = "tests/pipeline/local/test_addresses.py"
_TABLES = "tests/pipeline/local/test_tables.py"
_ROOTS = "tests/pipeline/local/test_two_roots.py"
DAMAGED = NotTried("needs run.json or the manifest to be lost between two steps of one command")
ENTRIES: dict[Key, Entry] = {
    ("das/strategy.py", "give every geolevel of the run a share and queries under "
     "`levels`"): every_geolevel_needs_a_share,
    ("das/strategy.py", "give detailed a share, or a weight among the tables of a "
     "workload, however small"): detailed_needs_a_share,
    ("jobs/pipeline/config/allocation.py", "use total, detailed, attributes and recodes; functions of them are "
     "for output.tables"): functions_are_for_tables,
    ("jobs/pipeline/config/allocation.py", "give each stratum a share and queries at the root at least"):
        every_stratum_needs_a_share,
    ("das/strategy.py", "give it a share, however small, at every geolevel above its last one"):
        strata_have_no_gap,
    ("das/queries/query.py", "write {}"): tables_are_joined_by_stars,
    ("das/queries/query.py", "use attributes and recodes"): strata_are_answers_of_a_partition,
    ("jobs/pipeline/config/runnable.py", "ask fewer groups or fewer tables"): fewer_groups,
    ("jobs/analysis/compare/compare.py", "choose with --table and --geolevel"): TriedIn(
        f"{_COMPARE}::test_too_many_rows_are_refused_and_chosen_ones_written"),
    ("jobs/analysis/spreadsheet.py", "choose with --geolevel and --leave-out, or write Parquet"): TriedIn(
        "tests/pipeline/local/test_spreadsheet.py::test_what_no_workbook_holds_is_refused"),
    ("jobs/analysis/compare/published.py",
     "name the layout of the files with --as, or rename columns"): TriedIn(
        f"{_COMPARE}::test_differences_are_measured_and_named"),
    ("jobs/pipeline/config/runnable.py", "pip install '.[{}]' in a clone"): INSTALLS,
    ("jobs/pipeline/config/runnable.py", "add an invariant `living_quarters` that names kinds which are "
     "housing units"): housing_units_are_given,
    ("jobs/pipeline/config/runnable.py", "choose method nnls"): maxfit_takes_no_rows,
    ("jobs/pipeline/config/runnable.py", "raise the budget, or the shares of geolevel and query"):
        noise_is_within_what_floats_resolve,
    ("jobs/pipeline/config/runnable.py", "set round_l2_passes: false"): passes_are_rounded_beside_nnls,
    ("jobs/pipeline/config/runnable.py", "name such a query, if one is measured, or set round_l2_passes: false"):
        rounded_passes_get_finer,
    ("jobs/pipeline/config/runnable.py", "round {} in the place of {}"): rounded_passes_nest_with_rounding,
    ("jobs/pipeline/config/learned.py",
     "train again with `das plan RUN --learn FILE`, or remove `solve.learned`"): TriedIn(
        "tests/pipeline/local/test_learned_counts.py::test_training_on_the_input_is_refused"),
    ("jobs/pipeline/config/learned.py", "name another file or remove it"): TriedIn(
        "tests/pipeline/local/test_learned_counts.py::test_training_on_the_input_is_refused"),
    ("jobs/pipeline/confidential/training.py",
     "train on public counts of other places with `das plan --learn`, or remove `solve.learned`"):
        TriedIn("tests/pipeline/local/test_learned_counts.py"
                "::test_training_on_the_input_is_refused"),
    ("jobs/pipeline/config/runnable.py", "choose failsafe exact"): TriedIn(
        "tests/unit/jobs/pipeline/config/test_config.py::"
        "test_a_penalty_beside_rows_is_refused_where_matrices_are_too_large"),
    ("jobs/pipeline/release/finalizing.py", "move it elsewhere, then go on with `das run OUT`"): TriedIn(
        "tests/pipeline/local/test_finalizing.py::"
        "test_what_attempts_left_is_removed_and_what_no_run_writes_is_refused"),
    ("jobs/pipeline/release/finalizing.py", "find out who put it there; whoever has a copy has it too"):
        NotTried("asks for an inquiry"),
    ("jobs/pipeline/release/bound.py", "name the account of that release under privacy.account"): TriedIn(
        "tests/pipeline/local/test_bound.py::"
        "test_a_run_is_paid_from_the_account_of_the_release_it_is_bound_to"),
    ("jobs/pipeline/release/bound.py", "restore it from a copy of the release"): DAMAGED,
    ("jobs/pipeline/config/runnable.py", "choose fit_to level"): full_targets_need_complete_queries,
    ("jobs/pipeline/release/estimate.py", "name another query; a run that does not list what it needs "
     "among privacy.on_demand_queries has estimates of it"): other_queries_have_estimates,
    ("jobs/pipeline/storage/layout.py", "copy the release with `cp -rL`, if you trust whoever made it"):
        TriedIn("tests/fuzz/test_releases.py::"
                "test_a_release_is_found_by_a_link_to_it_and_copied_without_those_in_it"),
    ("das/tree/span.py", "measure fewer recodes, prefixes or ranges"): LARGE,
    ("jobs/pipeline/config/runnable.py", "remove the named rows or passes, or solve in one pass with method nnls"): LARGE,
    ("jobs/pipeline/config/mistakes.py", "name a geolevel of the spine; only output.tables, das tables, das "
     "estimate, das areas and das explore know those off it"): TriedIn(
        "tests/pipeline/local/test_spines.py::"
        "test_a_geolevel_off_the_spine_is_refused_where_it_cannot_be"),
    ("jobs/pipeline/confidential/whole_input.py", "correct them, or map each code to a level under data.columns"): TriedIn(
        "tests/pipeline/local/test_first_mistakes.py::test_mistakes_of_all_columns_are_told_in_one_pass"),
    ("jobs/pipeline/storage/account.py", "grant less; or let those who set the limit raise it by `das account "
     "--limit`, which is recorded"): TriedIn(
        "tests/pipeline/local/test_accounting.py::test_a_limit_is_kept_until_it_is_raised_for_all_to_see"),
    ("jobs/pipeline/storage/account.py", "set a limit by `das account --limit` for a run file with definition "
     "zcdp"): TriedIn("tests/unit/jobs/pipeline/storage/test_account.py::test_a_limit_of_epsilon_counts_no_rho"),
    ("jobs/pipeline/folder/draws.py", "go on there"): TriedIn(
        f"{_DRAWS}::test_a_copy_that_draws_at_the_same_time_leaves_one_of_both"),
    ("jobs/pipeline/config/runnable.py", "remove the named setting from the run file, or plan with hdmm on "
     "plain counts, whose queries are partitions"): LARGE,
    ("jobs/pipeline/config/runnable.py", "name the query in privacy.on_demand_queries, and for the root name "
     "coarser queries in privacy.root_support_passes, which limit where it is drawn"): TriedIn(
        f"{_LARGE}::test_what_is_as_large_as_the_schema_is_refused_with_what_to_do"),
    ("jobs/pipeline/config/product.py", "ask fewer attributes or groups of levels; counts and microdata have a "
     "row for what is there alone"): TriedIn(
        f"{_LARGE}::test_what_is_as_large_as_the_schema_is_refused_with_what_to_do"),
    ("jobs/pipeline/config/models/data.py", "give the data as records or histograms"): TriedIn(
        f"{_LARGE}::test_what_is_as_large_as_the_schema_is_refused_with_what_to_do"),
    ("invariants/linear.py", "remove the row from the run file; structural zeros and exact queries "
     "take schemas of any size"): TriedIn(f"{_LARGE}::test_what_is_as_large_as_the_schema_is_refused_with_what_to_do"),
    ("jobs/pipeline/config/runnable.py", "ask prefixes, ranges or recodes of fewer attributes"): LARGE,
    ("jobs/pipeline/config/workload.py", "plan with hdmm, or list `queries` with shares"):
        residuals_need_zcdp,
    ("jobs/pipeline/config/workload.py", "list `queries` with shares instead of a workload"):
        one_cell_has_nothing_to_plan,
    ("jobs/pipeline/config/workload.py", "list recodes of an attribute under `bases`, not in the name of a table"):
        recodes_are_asked_under_bases,
    ("jobs/pipeline/config/yaml_file.py", "put quotes around text; write numbers in plain decimal, such "
     'as 10, 0.5 or "1/4"'): plain_numbers,
    ("jobs/pipeline/confidential/inputs.py", "paths are relative to the folder of the run file"): relative_paths,
    ("jobs/pipeline/plan.py", "put it into the run file, before this one"): units_are_a_section,
    ("jobs/pipeline/plan.py", "add it to the invariants of that product"): facilities_need_exact_units,
    ("jobs/pipeline/input/files.py", "its columns are separated by {}: set {}"): another_separator,
    ("jobs/pipeline/input/files.py", "its columns are separated by {}: write it with commas"):
        another_separator_of_sizes,
    ("jobs/pipeline/input/lines.py", "write the file without line breaks in fields; if it was written without "
     "quoting, so that a quotation mark is text, say `quoting: none` beside the path of the data"):
        fields_without_line_breaks,
    ("jobs/pipeline/input/files.py", "unpack or convert them, put folders in the place of links, or move them "
     "out"): a_folder_of_data_alone,
    ("jobs/pipeline/input/lines.py", "save it as CSV in UTF-8, without null bytes"): without_null_bytes,
    ("jobs/pipeline/input/lines.py", "end every line with a line feed, and write fields without carriage "
     "returns"): without_carriage_returns,
    ("jobs/pipeline/input/lines.py", 'remove the line, or write "" in it if it is a row whose value is '
     "missing"): no_blank_line,
    ("jobs/pipeline/input/files.py", "the first line of a CSV file must hold the names of its columns"):
        a_header,
    ("jobs/pipeline/confidential/read/records.py", "map each code of the file to a level, under data.columns.{}.codes; das "
     "validate --data lists the codes of all columns"):
        codes_of_the_file,
    ("jobs/pipeline/input/values.py", "programs that read geocodes as numbers drop leading zeros: write "
     "them as text, or say `leading_zeros: lost` beside the path"): leading_zeros,
    **{(f"jobs/{module}.py", text): TriedIn(f"{_INIT}::{test}") for module, text, test in (
        ("pipeline/confidential/look", "save it as CSV in UTF-8, from a spreadsheet or with `iconv`",
         _REFUSED),
        ("pipeline/confidential/look", "name another separator by --delimiter, or remove lines above the header",
         _REFUSED),
        ("pipeline/confidential/look", "insert a header line with the column names", _REFUSED),
        ("design/drafting/geolevels", "name it by --geocode, or all columns of its parts, root first, separated by commas; "
         "codes of any kind need the public list of places, by --geounits",
         _REFUSED),
        ("design/drafting/geolevels", "name it {} in this list, as in the data",
         "test_a_list_without_a_geocode_of_the_data_is_refused_and_helped"),
        ("design/drafting/draft", "name another column by --geocode, or give the public list of places with "
         "these codes by --geounits: das init then numbers them, and tables show your codes", _CODED),
        ("design/drafting/draft", "name the column by --geocode, and lengths by --geolevels; or give the public "
         "list of places with these codes by --geounits", _REFUSED),
        ("design/drafting/draft", "name the column by --geocode, or all parts, root first, separated by commas; "
         "or give the public list of places by --geounits",
         "test_columns_that_may_make_up_the_geocode_are_asked_for"),
        ("design/drafting/draft", "name it by --geocode, or give the public list of places by --geounits",
         "test_a_household_is_never_taken_for_a_place"),
        ("design/drafting/draft", "save it as CSV in UTF-8, or leave the column out by --leave-out", _REFUSED),
        ("design/drafting/draft", "leave it out, and rename the geolevels in run.yaml", _CODED),
        ("pipeline/input/values", "correct the code, or add the place to the public table, empty or not", _CODED),
    )},
    **{(module, text): TriedIn(f"{_BETWEEN}::test_remedies_of_constraints_help") for module, text in (
        ("invariants/between.py", "count what lies within a bound in that bound, too"),
        ("invariants/between.py", "remove the named constraints from the run file"),
        ("invariants/between.py", "raise the upper bound, or remove one of the two constraints"),
        ("invariants/between.py", "state one lower and one upper bound of the same cells"),
        ("invariants/between.py", "write the upper bound with the same counts as the constraints within it"),
        ("invariants/joining.py", "state one lower and one upper bound of the same cells"),
        ("invariants/joining.py", "count what lies within a bound in that bound, too"),
        ("jobs/pipeline/config/between.py", "state what the two must agree on under `cross_product_constraints`"),
        ("jobs/pipeline/config/between.py", "put this product before the other one"),
        ("jobs/pipeline/config/between.py", "state a row among the invariants of that product"),
        ("jobs/pipeline/config/between.py",
         "state what facilities hold as constraints too, at_least and at_most"),
    )},
    ("jobs/pipeline/confidential/between.py", "correct the data or the constraint"):
        TriedIn(f"{_BETWEEN}::test_data_that_contradict_each_other_are_refused_before_anything_is_spent"),
    ("jobs/design/synthetic/own_schema.py", "name it by --columns"):
        TriedIn(f"{_REHEARSAL}::test_persons_of_a_schema_over_a_list_of_ones_own"),
    ("jobs/pipeline/input/values.py", "correct the counts; none can be that large"):
        NotTried("needs a table of more than 2^50 persons"),
    ("jobs/pipeline/confidential/leaves.py", "correct the data, or complete the list"): complete_the_list,
    ("jobs/pipeline/confidential/leaves.py", "correct the counts; none can be that large"):
        NotTried("needs input of more than 2^50 persons in several files"),
    ("jobs/pipeline/confidential/read/block_table.py", "correct the data, or the configuration of data.checks"):
        sums_that_are_checked,
    ("jobs/pipeline/input/published.py", "unpack it and compress it again"): NotTried("the standard library packs no "
     "archive by a method that it cannot read"),
    ("jobs/pipeline/input/published.py", "unpack it and give the folder"): NotTried("the standard library writes "
     "no encrypted archive; folders are read in tests/unit/jobs/pipeline/confidential/read/test_pl94.py"),
    ("jobs/pipeline/confidential/check.py", "correct the data or the invariant"): data_that_break_an_invariant,
    ("jobs/pipeline/confidential/check.py", "correct the table of one of these invariants, or remove one from the "
     "run file"):
        invariants_that_contradict_each_other,
    ("jobs/pipeline/confidential/check.py", "bind the run to the release of these data"):
        TriedIn(f"{_BOUND}::test_a_release_of_other_persons_is_refused"),
    ("jobs/pipeline/confidential/check.py", "make the earlier release with the same living quarters, or leave the "
     "invariant `living_quarters` out of this run"):
        TriedIn(f"{_BOUND}::test_people_of_the_release_where_nobody_can_live_are_refused"),
    ("jobs/pipeline/release/bound.py", "bind the run to a release of the same geounits"):
        TriedIn(f"{_BOUND}::test_a_release_of_other_geounits_is_refused"),
    ("jobs/pipeline/release/bound.py", "make the earlier release again with noise of the operating system"):
        TriedIn(f"{_BOUND}::test_a_seeded_release_binds_no_run_for_release"),
    ("jobs/pipeline/release/bound.py", "recode the levels of the schema to those of the release, or name the "
     "answers under `answers`"):
        TriedIn(f"{_BOUND}::test_answers_go_by_the_names_they_have_in_the_release"),
    ("jobs/pipeline/release/bound.py", "make that release with the same structural zeros, or remove them "
     "from this run"): TriedIn(f"{_BOUND}::test_persons_whom_structural_zeros_leave_no_cell_are_refused"),
    ("invariants/exact.py", "remove the pinned query, or the facilities and rows, from `invariants`"):
        TriedIn(f"{_BOUND}::test_rows_beside_an_earlier_release_are_refused"),
    ("jobs/pipeline/folder/identity.py", "give another output.directory; noise must not be drawn for other data here"):
        input_that_changed,
    ("jobs/pipeline/folder/identity.py", "choose another output.directory"): a_folder_of_another_configuration,
    ("jobs/pipeline/folder/open.py", "choose another place for the log"): a_log_in_the_release,
    ("jobs/pipeline/run.py", "continue with `das run RUN --only solve` or `das estimate`"):
        TriedIn(f"{_NMF}::test_files_become_counts_estimates_and_files_again"),
    ("jobs/analysis/import_nmf.py", "choose a new folder for the import"):
        TriedIn(f"{_NMF}::test_a_full_folder_is_not_imported_into"),
    ("jobs/analysis/import_nmf.py", "give the files of the nation, or of one state alone with --root "
     "state"): TriedIn(f"{_NMF}::test_two_states_without_the_nation_are_two_imports"),
    ("jobs/analysis/import_nmf.py", "give a schema with these attributes by --schema"):
        TriedIn(f"{_NMF}::test_attributes_of_no_ready_schema_need_one"),
    ("jobs/analysis/import_nmf.py", "if files of other states were left out, begin with the state by "
     "--root state"): TriedIn(f"{_NMF}::test_one_state_below_the_nation_begins_with_the_state"),
    ("jobs/analysis/nmf_constraints.py", "--leave-out NAME ignores the constraint; the release will not "
     "satisfy it"): TriedIn(f"{_NMF}::test_an_unknown_constraint_is_left_out"),
    ("jobs/analysis/nmf_noise.py", "give the allocation and its rho by --allocation and --rho"):
        TriedIn(f"{_NMF}::test_a_geolevel_in_chains_alone_needs_its_allocation"),
    ("jobs/analysis/export_nmf.py", "choose a new folder for the export"):
        TriedIn(f"{_NMF}::test_a_folder_is_not_exported_over"),
    ("jobs/analysis/export_nmf.py", "--without-constraints writes the noisy answers alone"):
        TriedIn(f"{_NMF}::test_invariants_without_a_place_are_left_out"),
    ("jobs/analysis/inspect.py", "use `das run RUN --only measure`"): measure_first,
    ("jobs/analysis/inspect.py", "give the output.directory of a run, or the folder of a release"):
        no_folder_of_a_run,
    ("jobs/pipeline/config/models/products.py", "use the run file from which the release was made"): TriedIn(f"{_ALONE}::test_it_runs_nothing"),
    ("jobs/pipeline/storage/dataset.py", "run the stage that writes it"): estimates_need_their_stage,
    ("jobs/pipeline/storage/dataset.py", "`das run OUT` makes it again if possible; if you have no OUT, ask the publisher for a copy"): damage_is_made_again,
    ("jobs/pipeline/storage/dataset.py", "remove it"): files_that_no_manifest_names,
    ("jobs/pipeline/folder/progress.py", "`das run` with the run folder makes it again"):
        counts_below_lost_counts,
    ("jobs/pipeline/folder/identity.py", "say where it is with --config"): a_run_file_that_moved,
    ("jobs/design/demo.py", "remove it, or continue with `das run {}` in the demo's folder"): TriedIn(f"{_DEMO}::test_the_commands_it_prints_work_as_printed"),
    ("jobs/design/demo.py", "choose a new folder for the demo"): TriedIn(f"{_DEMO}::test_the_files_it_names_are_there"),
    ("jobs/design/drafting/merge.py", "name another product, or remove it"): TriedIn("tests/pipeline/local/test_init.py::test_a_second_file_that_does_not_fit_is_refused"),
    ("jobs/design/drafting/merge.py", "write them so, without braces around products"): TriedIn("tests/pipeline/local/test_init.py::test_a_second_file_that_does_not_fit_is_refused"),
    ("jobs/design/folders.py", "name a new one, or remove it"): generated_into_a_full_folder,
    ("jobs/pipeline/config/resolve.py", "das plan --optimize FILE makes one for the tables and the budget"):
        an_allocation_that_is_made,
    ("jobs/design/planning/allocation.py", "name another file or remove it"): another_name_for_the_allocation,
    ("jobs/design/planning/allocation.py", "raise the budget or the targets"): targets_beyond_the_budget,
    ("das/tree/largest.py", "raise the budget or the limits"): limits_beyond_the_budget,
    ("jobs/design/planning/groups.py", "name one under sizes, or compare the groups as absolute"):
        sizes_of_groups,
    ("jobs/design/planning/groups.py", "add their public numbers of persons"): sizes_of_all_groups,
    ("jobs/design/planning/groups.py", "compare the errors of an empty group as absolute"):
        groups_that_nobody_is_in,
    ("jobs/design/planning/groups.py", "name {} for {} in groups"): targets_in_a_known_unit,
    ("jobs/design/planning/allocation.py", "set privacy.definition to zcdp"): optimization_needs_zcdp,
    ("jobs/pipeline/storage/files.py", "name a new file, or remove this one"): a_log_over_another_file,
    ("jobs/cli/releases.py", "use `das inspect {} --reports --to FOLDER`"):
        a_release_that_cannot_be_written_to,
    ("jobs/cli/releases.py", "name another folder"): a_folder_for_reports_that_is_a_file,
    ("jobs/analysis/results.py", "make it first"): estimates_into_a_folder_that_is_not_there,
    ("jobs/analysis/areas.py", "request fewer attributes, groups of levels or areas"): TriedIn(
        f"{_LARGE}::test_ten_million_cells_from_input_to_verification"),
    ("jobs/analysis/areas.py", "remove the folder, and run `das replicate` again"): DAMAGED,
    ("jobs/analysis/boundaries.py", "programs that read codes as numbers drop leading zeros: keep them "
     "as text"): boundaries_without_leading_zeros,
    ("jobs/analysis/polygons.py", "convert it to GeoJSON in longitude and latitude, as with `ogr2ogr "
     "-f GeoJSON`"): NotTried("the programs that convert shapes are not installed for tests"),
    ("jobs/analysis/explore.py", "add a property with geocodes of the release, and name it with --join"):
        TriedIn(f"{_EXPLORE}::test_outlines_that_do_not_fit"),
    ("jobs/pipeline/confidential/errors.py", "use the run folder in which the release was made"):
        TriedIn(f"{_EXPLORE}::test_errors_stay_where_the_truth_is"),
    ("jobs/pipeline/release/intervals.py", "remove it, and run `das replicate` again"):
        TriedIn(f"{_REPLICATE}::test_damaged_errors_are_named"),
    ("jobs/pipeline/documents/intervals.py", "take it from a copy, or run `das replicate` without it"):
        TriedIn(f"{_REPLICATE}::test_a_damaged_document_is_made_again"),
    ("jobs/analysis/replicate.py", "remove the folder"): DAMAGED,
    ("jobs/analysis/area_files.py", "save it as UTF-8"): areas_in_utf_8,
    ("jobs/analysis/area_files.py", "remove the other columns, or name one: das areas "
     "--column NAME"): areas_with_more_columns,
    ("jobs/analysis/area_files.py", "put quotes around names that hold the separator"):
        areas_with_separators_in_names,
    ("jobs/analysis/area_files.py", "close the field, or remove the mark from the row"):
        areas_with_an_open_quotation_mark,
    ("jobs/analysis/area_files.py", "correct the row, or remove it"): areas_of_unknown_blocks,
    ("jobs/analysis/area_files.py", "programs that read geocodes as numbers drop leading zeros: write them "
     "as text"): areas_without_leading_zeros,
    ("jobs/pipeline/storage/account.py", "go on in that folder; or grant a new budget for the same people by "
     "another privacy.budget_id, and its cost is added to what they have lost"): a_grant_that_is_spent,
    ("jobs/pipeline/storage/account.py", "make it writable for those who measure, or name another file under "
     "privacy.account"): MACHINE,
    ("jobs/pipeline/storage/account.py", "name that account under privacy.account{}"):
        TriedIn(f"{_DRAWS}::test_a_second_account_for_the_same_data_is_noticed"),
    ("jobs/pipeline/storage/journal.py", "restore it from a backup; never edit or shorten it"):
        an_account_that_was_edited,
    ("jobs/pipeline/folder/draws.py", "go on there; if that copy is lost, `das run {} --moved`"): TriedIn(
        f"{_DRAWS}::test_a_folder_rolled_back_while_it_drew_is_refused_until_it_is_said_to_go_on"),
    ("jobs/pipeline/folder/draws.py", "go on there; if it shall be given up, `das run {} --moved`"): TriedIn(
        f"{_DRAWS}::test_a_folder_that_moved_goes_on_and_the_one_left_behind_does_not"),
    ("jobs/pipeline/folder/draws.py", "restore the account from a later backup; if there is none, and all was "
     "measured in this folder, `das run {} --moved`"): TriedIn(
        f"{_DRAWS}::test_an_account_that_was_rolled_back_is_refused_and_learns_what_a_complete_folder_measured"),
    ("jobs/pipeline/folder/draws.py", "go on there, or restore the measurements from a later backup" + _ANOTHER):
        TriedIn(f"{_DRAWS}::test_copies_of_a_folder_draw_nothing"),
    ("jobs/pipeline/folder/draws.py", "use those and remove this folder; never publish what is in it"): TriedIn(
        f"{_DRAWS}::test_a_copy_that_draws_at_the_same_time_leaves_one_of_both"),
    ("jobs/pipeline/folder/draws.py", "restore it from a backup, or name the account that the run was begun "
     "with"): NotTried("needs a driver that dies between two draws and an account that is lost"),
    ("jobs/pipeline/folder/identity.py", "undo the change, or choose another output.directory and a new "
     "privacy.budget_id"): a_run_file_that_changed,
    ("jobs/pipeline/folder/draws.py", "restore the file from a backup" + _ANOTHER): lost_noisy_answers,
    ("jobs/pipeline/folder/spending.py", "restore it from a backup" + _ANOTHER): a_lost_ledger,
    ("jobs/pipeline/folder/lock.py", "wait for its end, or end it"):
        TriedIn("tests/pipeline/local/test_resume.py::test_a_second_driver_is_refused"),
    ("jobs/pipeline/storage/ledger.py", "use `das run RUN --only measure`; if it was measured before, restore it from a "
     "backup"): a_lost_ledger_of_a_release,
    ("jobs/pipeline/storage/ledger.py", "restore them from a backup, or grant a new budget and measure anew"):
        TriedIn("tests/unit/jobs/pipeline/storage/test_ledger.py::"
                "test_other_measurements_of_a_geolevel_are_refused"),
    ("jobs/pipeline/storage/journal.py", "remove the run folder"):
        TriedIn("tests/unit/jobs/pipeline/storage/test_ledger.py::test_another_plan_or_grant_is_refused"),
    ("jobs/pipeline/folder/identity.py", "restore it; or go on from the measurements with `das run RUN --only solve`"):
        lost_notes_on_the_input,
    ("jobs/pipeline/documents/manifest.py", "use `das run RUN --only solve` first; if it was finalized, restore it from a copy of "
     "the release, or ask its publisher for a complete one"): what_needs_a_release,
    ("jobs/pipeline/folder/draws.py", "restore them from a backup, or grant a new budget in a new run folder"):
        TriedIn("tests/pipeline/local/test_accounting.py::"
                "test_measurements_that_are_gone_are_not_drawn_again"),
    ("jobs/pipeline/folder/identity.py", "remove the folder"): DAMAGED,
    ("jobs/pipeline/confidential/stages.py", "remove the run folder"): DAMAGED,
    ("jobs/pipeline/release/manifest.py", "use `das run RUN --only measure`"): DAMAGED,
    ("jobs/pipeline/report/finished.py", "run `das evaluate`"): DAMAGED,
    ("jobs/survey/report/internal.py", "run `das evaluate`"): DAMAGED,
    ("jobs/pipeline/documents/document.py", "use the version that wrote it"):
        NotTried("needs another version of this program"),
    ("jobs/pipeline/documents/statistics.py", "remove it; then go on with `das run OUT`"):
        NotTried("needs a published manifest that somebody wrote over"),
    ("jobs/pipeline/documents/summary.py", "remove it: only what the run cost so far is lost"):
        TriedIn("tests/unit/jobs/pipeline/documents/test_documents.py::test_a_damaged_summary_may_be_removed"),
    ("jobs/pipeline/folder/solutions.py", "`das run {} --only solve --solution {}` keeps another solution beside it"):
        other_settings_of_a_finalized_release,
    ("jobs/pipeline/folder/solutions.py", "use `das run RUN --only measure`"): a_solution_of_nothing,
    ("jobs/pipeline/config/allocation.py", "restore it from a backup; the measurements name the same "
     "matrices"): NotTried("needs a backup that is newer than the damage; the message names it"),
    ("jobs/pipeline/config/allocation.py", "start again: it is read then"):
        NotTried("needs libraries that change while the run is planned"),
    ("jobs/pipeline/confidential/stages.py", "restore {} from a backup"):
        NotTried("needs libraries that plan otherwise, and a plan that is lost"),
    ("jobs/pipeline/folder/identity.py", "name that one under privacy.account{}"):
        an_account_in_another_place,
    ("jobs/pipeline/storage/answers.py", "restore those counts from a backup; or remove them and solve them again "
     "with the libraries and the machine that solved them first"):
        NotTried("needs counts that another machine solves otherwise"),
    ("jobs/pipeline/config/workload.py", "give detailed a larger weight"): too_small_a_weight,
    ("jobs/pipeline/tasks/session.py", "start the master, or give the address of one that runs (docs/cluster.md)"):
        TriedIn("tests/pipeline/spark/test_capacity.py::test_a_master_that_is_not_there_is_missed_before_java_starts"),
    ("jobs/pipeline/tasks/session.py", "ask for less by the file of --cluster, such as conf/cluster/small-cluster.yaml, "
     "or start workers that offer more (--cores and --memory of a worker)"):
        TriedIn("tests/pipeline/spark/test_capacity.py::test_a_cluster_says_what_it_lacks_and_starts_what_fits"),
    ("jobs/pipeline/tasks/session.py", "see with the tools of the cluster why, such as a queue that is full or an image "
     "that is not found; where it takes longer, raise under runtime.spark {}"):
        TriedIn("tests/pipeline/spark/test_capacity.py::test_a_cluster_says_what_it_lacks_and_starts_what_fits"),
    ("jobs/pipeline/tasks/session.py", "read the logs of the cluster and of its executors: they die as they start where "
     "Java or Python is not found, or where they do not reach the driver"):
        NotTried("needs executors that die ten times as they start"),
    ("jobs/pipeline/config/files.py", "leave output.confidential out of the run file, which means "
     "OUT/confidential, or name a folder outside of OUT"): TriedIn(f"{_ROOTS}::test_roots_in_each_other_are_refused"),
    ("jobs/pipeline/config/files.py", "keep it elsewhere: what lies there is published, or removed with the "
     "run"): TriedIn(f"{_ROOTS}::test_what_a_run_file_names_lies_in_neither_root"),
    ("jobs/pipeline/folder/roots.py", "name another one by output.confidential, or by --confidential"): TriedIn(
        f"{_ROOTS}::test_the_truth_lies_in_a_folder_of_its_own"),
    ("jobs/pipeline/folder/roots.py", "name that one by output.confidential, or by --confidential"): TriedIn(
        f"{_ROOTS}::test_the_truth_lies_in_a_folder_of_its_own"),
    ("jobs/pipeline/folder/roots.py", "choose another {}"): TriedIn(
        f"{_ROOTS}::test_a_folder_with_other_files_is_no_confidential_root"),
    ("jobs/pipeline/folder/roots.py", "give the output.directory of a run, or restore its run.json: no grant is spent twice"): no_folder_of_a_run_to_resume,
    ("jobs/pipeline/folder/roots.py", "remove the folder"): DAMAGED,
    ("jobs/pipeline/storage/journal.py", "restore both from one copy"): TriedIn(
        "tests/unit/jobs/pipeline/storage/test_journal.py::test_a_copy_that_goes_on_differently_is_refused"),
    ("jobs/pipeline/folder/roots.py", "keep runs in a store that creates a file only if it is absent: "
     "docs/storage.md names some"): TriedIn(
        f"{_ADDRESSES}::test_a_store_that_ignores_conditions_is_refused"),
    ("jobs/pipeline/tasks/failures.py", "give it room, then `das run OUT`"): MACHINE,
    ("jobs/pipeline/tasks/failures.py", "see to the store, then go on with `das run OUT`, or start again"): TriedIn(
        f"{_ADDRESSES}::test_a_store_that_refuses_is_told_in_words"),
    ("jobs/pipeline/storage/stores/kinds.py", "pip install '.[{}]' in a clone, on driver and workers"): INSTALLS,
    ("jobs/pipeline/tasks/failures.py", "see to memory, disks and machines, then go on with `das run OUT`"): MACHINE,
    **{("jobs/pipeline/storage/files.py", f"{text}; then repeat the command, or continue a run with `das run OUT`"): tried for text, tried in (
        ("give the disk room", MACHINE),
        ("see to the disk", MACHINE),
        ("name a folder that exists or can be made", TriedIn(
            "tests/unit/jobs/pipeline/storage/test_files.py::"
            "test_what_to_do_follows_from_why_it_cannot_be_written")),
        ("see to the store", MACHINE),
        ("give this user the right to write there, or name another place", MACHINE),
        ("move away what lies there, or name another place", TriedIn(
            f"{_TABLES}::test_a_folder_that_cannot_be_written_is_told_as_it_is")),
    )},
    ("jobs/survey/manifest.py", "give the run file: solutions need it"): TriedIn(
        "tests/pipeline/local/test_surveys.py::test_a_release_without_its_configuration_needs_the_run_file"),
    ("jobs/pipeline/storage/files.py", "put it on a file system with permissions, in a folder of the user of the "
     "run"): MACHINE,
    ("jobs/pipeline/confidential/noise_key.py", "none needed if another attempt of this task succeeded; else continue "
     "with `das run OUT`"): MACHINE,
    ("jobs/pipeline/tasks/java.py", "install a Java runtime 17 or 21, or `pip install '.[java]'` in a clone"):
        INSTALLS,
    ("jobs/pipeline/tasks/executor.py", "`pip install '.[run]'` in a clone"): INSTALLS,
    ("jobs/pipeline/config/protection.py", "set them to true where the session is opened, and a secret of the "
     "cluster (docs/cluster.md); or accept the risk by `runtime.allow_open_cluster: true`, which "
     "the release then states"): _SHELL,
    ("jobs/pipeline/config/protection.py", "make one by `python -c 'import secrets; "
     "print(secrets.token_hex(32))'`, write it to a properties file that only its owner can read, "
     "and give that file to all three by --properties-file (docs/cluster.md); or accept the risk "
     "by `runtime.allow_open_cluster: true`, which the release then states"): _SHELL,
    ("jobs/pipeline/confidential/measure.py", "give no key; or a run file with `privacy.randomness: {source: "
     "seeded_not_for_release, seed: ...}`"): NotTried("keys are no part of a run file"),
    ("jobs/design/planning/planners.py", "choose a smaller --order"): fewer_attributes_a_table,
    ("das/workload/variances.py", "ask for fewer or smaller tables"): LARGE,
    ("jobs/pipeline/documents/covariance.py", "ask for recodes of fewer groups"): fewer_pairs_of_answers,
    ("jobs/survey/confidential/read.py", "put a lower edge first in its `bins`, so that these numbers get a label"): TriedIn("tests/pipeline/local/test_surveys.py::test_a_number_below_the_first_bin_is_refused_until_it_has_a_label"),
    ("jobs/survey/confidential/read.py", "with bounded neighbors the number is public: correct it; or use unbounded neighbors"): TriedIn("tests/pipeline/local/test_surveys.py::test_another_number_of_records_is_refused_with_bounded_neighbors_alone"),
    ("jobs/survey/documents.py", "run `das run` first; if the release was finalized, restore it from a copy"): TriedIn("tests/pipeline/local/test_surveys.py::test_what_a_folder_holds_is_said"),
    ("jobs/survey/run.py", "use `das run RUN --only measure`"): TriedIn("tests/pipeline/local/test_surveys.py::test_measuring_and_solving_are_two_commands_under_one_grant"),
    ("das/measure.py", "report this defect; the budget of this part is spent, and another privacy.budget_id and output.directory are needed"): TriedIn("tests/unit/jobs/survey/confidential/test_measure.py::test_an_error_after_a_draw_shows_no_value"),
    ("jobs/survey/folder.py", "undo the change, or make a further solution with --only solve --solution NAME"): TriedIn("tests/pipeline/local/test_surveys.py::test_other_settings_make_another_solution_without_data_or_noise"),
    ("jobs/survey/manifest.py", "restore it from a backup"): TriedIn("tests/pipeline/local/test_surveys.py::test_a_lost_account_is_said"),
    ("das/mechanisms/conditional.py", "keep fewer marginals, or request a table with fewer cells"): TriedIn("tests/pipeline/local/test_survey_tables.py::test_a_table_that_is_too_large_is_refused_and_with_fewer_marginals_drawn"),
    ("das/means/estimates.py", "pool small strata by their public sizes"): TriedIn(
        "tests/unit/das/means/test_coinpress.py::"
        "test_a_stratum_of_nobody_is_refused_and_pooled_with_another_estimated"
    ),
    ("das/means/estimates.py", "give the values in a coarser unit"): TriedIn(
        "tests/unit/das/means/test_coinpress.py::"
        "test_values_in_too_fine_a_unit_are_refused_and_in_a_coarser_one_estimated"
    ),
    ("das/synthesis/records.py", "remove attributes of one level from the domain; they carry no information"): TriedIn(
        "tests/unit/das/synthesis/test_records.py::"
        "test_an_attribute_of_one_level_is_refused_and_left_out"
    ),
    ("das/tree/passes.py", "measure the detailed query at the last geolevel"): SOLVER,
    ("das/inference/expectation_maximization.py", "start nearer, or simulate more"): LIBRARY,
    ("das/inference/expectation_maximization.py",
     "take mechanism.continuous.of_variance(float(mechanism.continuous_variance))"): LIBRARY,
    ("das/inference/rejection.py", "use fewer answers at a time, or maximize_likelihood"): LIBRARY,
    ("das/mechanisms/entropy.py", "run on a machine with getrandom(2) or /dev/urandom"): MACHINE,
    ("das/workload/plan.py", "raise rho, or plan with orp"): LARGE,
    ("das/workload/plan.py", "plan with the method `orp`, or ask for marginals on fewer attributes"): LARGE,
    ("das/workload/residual/bases.py", "choose the planner for general base matrices"): LIBRARY,
    ("das/workload/bounds.py", "use separate_bound, or fewer levels"): LIBRARY,
    ("das/workload/residual/integer_rows.py", "choose a higher resolution"): LIBRARY,
    ("das/workload/residual/integer_rows.py", "scale its rows to integers"): LIBRARY,
    ("das/workload/hdmm/integer.py", "choose a larger scale, or ask for single levels too"):
        LIBRARY,
    ("das/workload/residual/integer_plan.py", "plan with hdmm, raise rho, or ask for tables of fewer "
     "attributes"): LARGE,
    ("das/workload/one_dimensional.py", "allow a larger gap"): LIBRARY,
    ("das/workload/residual/reconstruction.py", "allow more memory, or ask for a marginal with fewer "
     "answers"): LIBRARY,
    ("das/tree/components.py", "measure fewer recodes, prefixes or ranges"): LARGE,
    ("das/tree/errors.py", "measure fewer or coarser recodes"): LARGE,
    ("das/workload/losses.py", "1 is the weighted mean of variances; larger powers weigh the "
     "largest more"): powers_below_one_are_not_convex,
    ("das/workload/losses.py", "use the loss largest_variance"): high_powers_are_the_largest,
    ("das/workload/losses.py", "give each table of the workload a small weight in one of the "
     "means"): every_table_is_in_a_mean,
    ("das/workload/losses.py", "remove tables of weight 0 from the workload, or use the loss sum_of_variances"):
        powers_need_weights,
    ("das/workload/workload.py", "add a row of ones"): rows_determine_the_total,
    ("das/workload/workload.py", "remove the attribute from `bases`; its levels are then counted one by one"): rows_tell_levels_apart,
    ("das/workload/workload.py", "remove the attribute from the workload: one level needs no plan"):
        LIBRARY,
    ("das/privacy/cost.py", "convert the pure costs with to_zero_concentrated"): LIBRARY,
    ("das/privacy/loss_distribution.py", "use the epsilon that follows from rho"): TriedIn(
        "tests/unit/das/privacy/test_loss_distribution.py::"
        "test_planned_and_listed_geolevels_compose_and_strata_are_refused"
    ),
    ("das/mechanisms/normal.py", "use the epsilon that follows from rho"): TriedIn(
        "tests/unit/das/privacy/test_loss_distribution.py::"
        "test_little_noise_of_answers_that_move_by_several_integers_is_refused"
    ),
    ("das/privacy/target.py", "set epsilon_from to rho"): TriedIn(
        "tests/unit/das/privacy/test_target_oracle.py::"
        "test_it_refuses_noise_whose_cost_is_not_inverse_to_its_parameter"
    ),
    ("jobs/pipeline/config/resolve.py", "leave `epsilon_from` out of the run file"): TriedIn(
        "tests/pipeline/local/test_accounting.py::test_what_a_target_cannot_be_is_refused"
    ),
    ("das/mechanisms/conditional.py", "keep the total too"): TriedIn(
        "tests/unit/das/mechanisms/test_conditional_oracle.py::test_it_refuses_a_table"
    ),
    ("das/mechanisms/conditional.py", "make the classes of cells smaller, by more invariants, or "
     "release noisy answers and estimate from them"): LIBRARY,
    ("das/mechanisms/conditional.py", "keep fewer sums of overlapping cells, or release noisy "
     "answers and estimate from them"): LIBRARY,
    ("das/privacy/conditioning.py", "condition a mechanism of pure differential privacy"): LIBRARY,
    ("das/mechanisms/gaussian.py", "use the epsilon that follows from rho"): TriedIn(
        "tests/unit/das/privacy/test_loss_distribution.py::"
        "test_it_refuses_noise_with_too_many_losses"
    ),
    ("solvers/backends/gurobi.py", "install a licence (GRB_LICENSE_FILE), or choose solver "
     "structured"): INSTALLS,
    ("solvers/backends/registry.py", "pip install '.[{}]' in a clone"): INSTALLS,
    ("solvers/rounding/failsafe.py", "the invariants contradict each other: check them on the input, or "
     "impose the implied constraints"): SOLVER,
    ("solvers/dual_newton/projected.py", "use the structured solver"): SOLVER,
    ("solvers/dual_newton/dual_ascent.py", "measure detailed"): SOLVER,
    ("solvers/dual_newton/dual_ascent.py", "use the structured solver"): SOLVER,
    ("solvers/node.py", "install piqp, which is tried where the structured solver stops, or "
     "raise solve.tolerance if such a residual is acceptable"): TriedIn(
        f"{_SOLUTIONS}::test_a_tolerance_that_is_not_reached_is_raised_in_the_same_folder"),
    ("solvers/node.py", "round queries whose groups nest"): SOLVER,
    ("solvers/least_squares/passes.py", "put the planned queries of this geolevel in the last pass only"): SOLVER,
    ("solvers/objectives/bounded.py", "check the weights: the largest may be more than 1e12 "
     "times the smallest"): SOLVER,
    ("solvers/objectives/in_node.py", "solve such nodes with nnls"): TriedIn(
        f"{_SOLUTIONS}::test_a_method_that_does_not_fit_is_changed_by_solve_and_by_resume"),
    ("solvers/rounding/round.py", "raise the time limit, or round queries whose groups nest"): SOLVER,
    ("solvers/least_squares/blocks.py", "measure detailed, or a workload that contains it"): SOLVER,
}  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run file of a finished toy run, for scenarios that only read."""
    folder = tmp_path_factory.mktemp("shared")
    toy.write_records(folder)
    config = toy.configuration(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch_spark(patch)
        patch.setattr("jobs.pipeline.run.write_internal_reports", lambda *_: [])
        Desk(folder, config).done("run", config, "--quiet")
    return config


def test_every_remedy_has_an_entry_and_no_entry_is_stale() -> None:
    found = collected()
    missing = {key: f"line {line}" for key, line in found.items() if key not in ENTRIES}
    assert not missing, json.dumps(
        {f"{m}: {t}": line for (m, t), line in missing.items()}, indent=1
    )
    assert set(ENTRIES) <= set(found), set(ENTRIES) - set(found)


def test_what_is_tried_elsewhere_is_there() -> None:
    for entry in ENTRIES.values():
        if isinstance(entry, TriedIn):
            assert exists(entry.test), entry.test


@pytest.mark.parametrize(
    ("key", "scenario"),
    [
        pytest.param(key, entry, id=entry.__name__)
        for key, entry in ENTRIES.items()
        if not isinstance(entry, TriedIn | NotTried)
    ],
)
def test_the_remedy_helps(
    key: Key, scenario: Any, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch_spark(monkeypatch)
    monkeypatch.setattr("jobs.pipeline.run.write_internal_reports", lambda *_: [tmp_path])
    leave_out_figures(monkeypatch)
    message = scenario(Desk(tmp_path, shared))
    assert says(message, key[1]), message
