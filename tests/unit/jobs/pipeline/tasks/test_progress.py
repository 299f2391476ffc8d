"""Lines on standard error and events of the log."""

from __future__ import annotations

import io
import json
import re
import stat
from types import SimpleNamespace

import pytest
from rich.console import Console

from das.errors import OutputError
from jobs.pipeline.documents.document import json_of
from jobs.pipeline.documents.statistics import SlowNode, SolveStatistics
from jobs.pipeline.tasks.progress import Reporter, speed_text
from jobs.pipeline.tasks.step import Step, TaskReport, current_watch
from tests.builders.events import documented_events
from tests.checkout import ROOT

SLOWEST = SlowNode(geocode="44007", residual=1e-14, seconds=0.5)
STATISTICS = SolveStatistics(
    nodes=12,
    copied=1,
    trivial=0,
    live=40,
    variables=80,
    seconds=1.5,
    max_residual=3e-13,
    iterations=0,
    newton_steps=30,
    widened=0,
    worst_nodes=(SLOWEST,),
    moved=(),
)


def events(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


def lagging_step():
    """Five tasks, of which the first hangs."""
    step = Step("solve block", [SimpleNamespace(cost=10, low="1", high="2")] * 5)
    step.look([], 5, step.now)
    step.look([TaskReport(i, 1.0, {}, 0) for i in range(1, 5)], 5, step.now + 60)
    return step


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log.jsonl"


def test_a_line_watches_the_steps_that_are_run_in_it(log, capsys):
    reporter = Reporter(log=log, every_seconds=0)
    step = lagging_step()
    with reporter.line("solve", "block", "block", lambda: 77) as line:
        current_watch()(step)
        current_watch()(step)
    first, second, *rest = events(log)
    assert first["event"] == "straggler"
    for event in (first, second):
        assert set(event) == {"time", "event", *documented_events()[event["event"]]}
    assert (first["low"], first["high"], first["running"]) == ("1", "2", True)
    assert second["event"] == "progress"
    assert (second["done"], second["total"], second["unit"]) == (40, 50, "geounits")
    assert second["rate"] == pytest.approx(40 / 60)
    assert second["remaining_seconds"] == pytest.approx(15)
    assert second["memory_bytes"] == 77
    assert [one["event"] for one in rest] == ["progress"]  # a straggler is told once
    assert line.geounits == 40
    shown = capsys.readouterr().err
    assert "straggler: task 0 of 'solve block' 1..2 runs for 60 s, expected 1 s" in shown
    assert "40 of 50 geounits, 0.7/s, 0:15 left" in shown
    assert re.search(r"solve +block .* s +40 geounits", shown)


def test_progress_is_told_now_and_then(log, capsys):
    with Reporter(log=log, every_seconds=1000).line("solve", "block"):
        current_watch()(Step("solve block", [1]))
    assert not log.exists()
    assert "tasks" not in capsys.readouterr().err


def test_quiet_says_nothing_but_logs(log, capsys):
    reporter = Reporter(quiet=True, log=log, every_seconds=0)
    step = lagging_step()
    with reporter.line("solve", "block"):
        current_watch()(step)
    assert capsys.readouterr().err == ""
    assert len(events(log)) == 2


def test_a_log_says_how_nodes_were_solved(log, capsys):
    place = {"stage": "solve", "what": "block", "geolevel": "block"}
    Reporter(log=log).solved(place, STATISTICS)
    assert not capsys.readouterr().err
    (event,) = events(log)
    assert set(event) == {"time", "event", *documented_events()["solved"]}
    assert event["worst_nodes"] == [json_of(SLOWEST)]


def test_the_log_is_readable_by_its_owner_only(log):
    Reporter(log=log).event("run_started", name="a", output="b", slots=2)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_a_log_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(OutputError, match="cannot be written"):
        Reporter(log=tmp_path / "missing" / "log").event("run_started")


@pytest.mark.parametrize(
    ("rate", "left", "shown"),
    [
        (None, None, ""),
        (0.25, 8.0, ", 0.2/s, 0:08 left"),
        (1234.0, 3599.6, ", 1,234/s, 1:00:00 left"),
        (12.0, 7265.0, ", 12/s, 2:01:05 left"),
    ],
)
def test_speed_reads_like_a_clock(rate, left, shown):
    assert speed_text(rate, left) == shown


def test_every_event_in_the_code_is_documented():
    jobs = ROOT / "jobs"
    used = set()
    for path in jobs.rglob("*.py"):
        used |= set(re.findall(r'\.event\(\s*"(\w+)"', path.read_text()))
    assert used == set(documented_events())


@pytest.mark.parametrize("width", [120, 80])
def test_a_line_that_stays_on_a_terminal_names_no_time_left(monkeypatch, width):
    shown = io.StringIO()
    monkeypatch.setattr(
        "jobs.pipeline.tasks.progress.Console",
        lambda **_: Console(file=shown, force_terminal=True, width=width, highlight=False),
    )
    reporter = Reporter()
    with reporter.line("resolve_constraints", "block") as line:
        line.show(30, 50, ", 10/s, 0:02 left")
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue()).splitlines()
    last = next(one for one in reversed(lines) if one.strip())
    assert re.search(r"^resolve_constraints +block .* 30/50 \d:\d\d:\d\d", last)
    assert "left" not in last
    assert max(map(len, lines)) <= width
