"""Input that cannot be read, by the commands: refused, noted in the account, and not counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import toy
from tests.builders.survey import write_survey

Das = Callable[..., tuple[int, str]]

pytestmark = pytest.mark.usefixtures("here")


def _noted(das: Das, config: Path) -> list[str]:
    """Where failed checks were, by `das account`; no grant was claimed."""
    code, text = das("account", config, "--json")
    assert code == 0, text
    document = json.loads(text)
    assert document["grants"] == []
    return [check["geounit"] for check in document["failed_checks"]]


def _written(folder: Path) -> Path:
    toy.write_records(folder)
    return folder / "records.csv"


def _spoil(path: Path, *rows: str) -> None:
    path.write_text(path.read_text() + "".join(f"{row}\n" for row in rows))


@pytest.mark.parametrize("listed", [True, False])
def test_an_error_of_reading_is_noted_in_the_account_and_counts_no_rows(
    tmp_path: Path, das: Das, listed: bool
) -> None:
    """Leaving a code out of the run file would count who has it, without a trace."""
    records = _written(tmp_path)
    n = records.read_text().count("\n")
    _spoil(records, "990010000,male,under_18", "990010000,male,under_18")
    changes = {} if listed else {"geography__geounits": None}
    config = toy.configuration(tmp_path, **changes)
    code, text = das("run", "--only", "measure", config)
    assert code == 2, text
    assert f"row {n + 1}, column block: geocode does not fit the leaf geolevel; exp" in text
    assert _noted(das, config) == [f"{records}, row {n + 1}, column block"]


def test_planning_with_geounits_of_the_data_notes_an_error_of_reading(
    tmp_path: Path, das: Das
) -> None:
    records = _written(tmp_path)
    n = records.read_text().count("\n")
    _spoil(records, "990010000,male,under_18")
    config = toy.configuration(tmp_path, geography__geounits=None)
    code, text = das("plan", config)
    assert code == 2, text
    assert _noted(das, config) == [f"{records}, row {n + 1}, column block"]


def test_a_geocode_outside_of_the_list_is_noted(tmp_path: Path, das: Das) -> None:
    records = _written(tmp_path)
    _spoil(records, "9900199999,male,under_18")
    config = toy.configuration(tmp_path)
    code, text = das("run", "--only", "measure", config)
    assert code == 2, text
    assert "geocode is not in the list of geounits; correct" in " ".join(text.split())
    assert len(_noted(das, config)) == 1


def test_an_error_of_reading_a_survey_is_noted(tmp_path: Path, das: Das) -> None:
    config, data = write_survey(tmp_path), tmp_path / "persons.csv"
    n = data.read_text().count("\n")
    _spoil(data, "3,A,40,100", "3,A,40,100")
    code, text = das("run", config)
    assert code == 2, text
    assert f"row {n + 1}, column SEX: unknown code; expected" in " ".join(text.split())
    assert _noted(das, config) == [f"{data}, row {n + 1}, column SEX"]


@pytest.mark.parametrize("kind", ["census", "survey"])
def test_a_mark_that_swallows_records_stops_a_run_and_quoting_none_reads_them(
    tmp_path: Path, das: Das, kind: str
) -> None:
    """Texts of a column that the run does not use begin and end with a mark, rows apart."""
    if kind == "census":
        data = _written(tmp_path)
        make = toy.configuration
    else:
        write_survey(tmp_path)
        data = tmp_path / "persons.csv"
        make = write_survey
    head, *rows = data.read_text().splitlines()
    texts = ["x"] * 10 + ['"x'] + ["x"] * 4 + ['x"'] + ["x"] * (len(rows) - 16)
    dirty = "\n".join(
        f"{row},{text}" for row, text in zip([head, *rows], ["note", *texts], strict=True)
    )
    config = make(tmp_path)
    data.write_text(dirty + "\n")
    code, text = das("run", config, *(("--only", "measure") if kind == "census" else ()))
    assert code == 2, text
    assert "row 12: has a quotation mark that opens a field" in " ".join(text.split())
    config = make(tmp_path, data__quoting="none")
    data.write_text(dirty + "\n")
    code, text = das("run", config, *(("--only", "measure") if kind == "census" else ()))
    assert code == 0, text
