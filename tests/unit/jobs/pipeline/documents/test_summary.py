"""What stages cost: recorded, added up over starts, shown."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import pytest
from rich.console import Console

from das.errors import OutputError
from jobs.pipeline.documents.document import json_of
from jobs.pipeline.documents.summary import read_summary, summary_of
from jobs.pipeline.folder.open import refuse_misplaced_log
from jobs.pipeline.report.console import terminal_table
from jobs.pipeline.report.run import stages_table
from jobs.pipeline.tasks import resources
from jobs.pipeline.tasks.progress import Recorder, Reporter
from jobs.pipeline.tasks.resources import PeakMemory, Reading
from jobs.pipeline.tasks.step import Step, TaskReport
from tests.builders.events import documented_events
from tests.builders.places import release_of

FUTURE = 4e9  # born after the run began


@pytest.fixture
def recorder(tmp_path, monkeypatch):
    """No process of this machine counts; memory is always 1 GB."""
    monkeypatch.setattr(resources, "family", list)
    monkeypatch.setattr(resources, "memory_bytes", lambda: 10**9)
    reporter = Reporter(quiet=True, log=tmp_path / "log.jsonl")
    return Recorder(tmp_path, reporter, PeakMemory())


def run_step(worker, seconds, geounits=100):
    step = Step("solve block", [SimpleNamespace(cost=geounits)])
    report = TaskReport(0, 1.0, {worker: Reading(FUTURE, seconds)}, 200)
    step.look([report], 1, step.now + 1)


def test_core_seconds_of_workers_go_to_the_stage_that_used_them(recorder, tmp_path):
    with recorder.stage("measure", "block", "block"):
        run_step("a 1", 30.0)
    with recorder.stage("solve", "block", "block"):
        run_step("a 1", 50.0)
        run_step("b 1", 7.0)
    summary = read_summary(tmp_path)
    assert summary.stages["measure"].core_seconds == pytest.approx(30)
    solved = summary.stages["solve"]
    assert solved.core_seconds == pytest.approx(27)
    assert (solved.geounits, solved.tasks) == (200, 2)
    assert solved.rate == pytest.approx(200 / solved.seconds)
    assert (solved.peak_memory_bytes, solved.task_peak_memory_bytes) == (10**9, 200)
    assert summary.total.core_seconds == pytest.approx(57)
    assert summary.total.core_hours == pytest.approx(57 / 3600)


def test_starts_add_up_and_a_failed_part_adds_nothing(recorder, tmp_path):
    with recorder.stage("solve", "block"):
        run_step("a 1", 30.0)
    with pytest.raises(ZeroDivisionError), recorder.stage("solve", "block"):
        run_step("a 1", 40.0 / 0)
    again = Recorder(tmp_path, Reporter(quiet=True), PeakMemory())
    with again.stage("solve", "block"):
        run_step("c 1", 5.0)
    (part,) = read_summary(tmp_path).parts
    assert part.core_seconds == pytest.approx(35)
    assert part.tasks == 2


def test_summing_again_changes_nothing(recorder, tmp_path):
    for what in ("state", "block"):
        with recorder.stage("solve", what, what):
            run_step("a 1", 5.0)
    summary = read_summary(tmp_path)
    assert summary_of(summary.parts) == summary


def test_every_stage_is_logged_with_what_it_cost(recorder, tmp_path):
    with recorder.stage("solve", "block", "block"):
        run_step("a 1", 5.0)
    started, finished = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    assert set(started) == {"time", "event", *documented_events()["stage_started"]}
    assert set(finished) == {"time", "event", *documented_events()["stage_finished"]}
    assert finished["core_seconds"] == pytest.approx(5)
    assert set(json_of(read_summary(tmp_path).total)) == set(documented_events()["run_finished"])


def test_the_table_has_a_row_per_stage_and_the_sum(recorder, tmp_path):
    with recorder.stage("read", "histograms"):
        pass
    with recorder.stage("solve", "block"):
        run_step("a 1", 7200.0, geounits=25_181)
    out = io.StringIO()
    Console(file=out, width=140).print(terminal_table(stages_table(read_summary(tmp_path))))
    cells = [line.split() for line in out.getvalue().splitlines() if line.split()]
    assert [row[0] for row in cells if row[0] in ("read", "solve", "all")] == [
        "read",
        "solve",
        "all",
    ]
    solved = next(row for row in cells if row[0] == "solve")
    assert {"2.0000", "25,181"} <= set(solved)
    assert "1.0" in solved


def test_the_table_is_whole_on_80_characters(recorder, tmp_path):
    with recorder.stage("resolve_constraints", "block"):
        run_step("a 1", 7200.0, geounits=25_181)
    out = io.StringIO()
    table = stages_table(read_summary(tmp_path), is_narrow=True)
    Console(file=out, width=80).print(terminal_table(table))
    assert {"resolve_constraints", "25,181"} <= set(out.getvalue().split())
    assert "…" not in out.getvalue()


def test_an_unstarted_run_has_cost_nothing(tmp_path):
    assert read_summary(tmp_path).total.core_seconds == 0


def test_a_log_in_the_release_is_refused(tmp_path):
    log = release_of(tmp_path).root / "log.jsonl"
    with pytest.raises(Exception, match="lies in the release"):
        refuse_misplaced_log(Reporter(quiet=True, log=log), tmp_path)
    refuse_misplaced_log(Reporter(quiet=True, log=tmp_path / "log.jsonl"), tmp_path)


@pytest.mark.parametrize(
    "name", ["run.json", "driver.lock", "draws.jsonl", "summary.json", "x/account.jsonl"]
)
def test_a_log_in_the_place_of_a_file_of_the_run_is_refused(tmp_path, name):
    log, account = tmp_path / "x" / ".." / name, tmp_path / "x" / "account.jsonl"
    with pytest.raises(OutputError, match="is a file of the run, not its log"):
        refuse_misplaced_log(Reporter(quiet=True, log=log), tmp_path, [account])
