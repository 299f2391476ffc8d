"""Documents: read strictly, written in order, refused with the key that is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from das.errors import OutputError
from jobs.pipeline.documents.document import json_of, read_document, write_document
from jobs.pipeline.documents.statistics import Move, SlowNode, SolveStatistics, statistics_of
from jobs.pipeline.documents.summary import Part, Straggler, Summary, read_summary, summary_of
from jobs.pipeline.storage.dataset import Dataset

SLOW = SlowNode(geocode="root", residual=1e-12, seconds=0.5)
MOVE = Move(geocode="44001", cells=(2, 5, 7), changes=(3, -1, -1))
STATISTICS = SolveStatistics(
    nodes=4,
    copied=1,
    trivial=0,
    live=12,
    variables=30,
    seconds=0.75,
    max_residual=1e-12,
    iterations=0,
    newton_steps=5,
    widened=0,
    worst_nodes=(SLOW,),
    moved=(MOVE,),
)


def part(stage: str = "solve", what: str = "block", seconds: float = 2.0) -> Part:
    return Part(
        stage=stage,
        what=what,
        geolevel=what,
        seconds=seconds,
        core_seconds=2 * seconds,
        core_hours=2 * seconds / 3600,
        tasks=3,
        peak_memory_bytes=int(100 * seconds),
        task_peak_memory_bytes=7,
        geounits=10,
        rate=10 / seconds,
        stragglers=(),
    )


def test_a_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    summary = summary_of([part(), part("read", "histograms")])
    write_document(path, summary)
    assert read_document(Summary, path, remedy="") == summary
    assert list(json.loads(path.read_text())) == ["format", "total", "stages", "parts"]


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ({"unknown": 1}, "unknown: Unexpected keyword argument"),
        ({"total": None}, "total: Input should be an object"),
        ({"parts": [{"stage": "solve"}]}, "parts.0.what: Field required"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(tmp_path: Path, change, got) -> None:
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(json_of(summary_of([])) | change))
    with pytest.raises(OutputError, match="is damaged") as caught:
        read_document(Summary, path, remedy="remove it")
    assert caught.value.got == got
    assert caught.value.remedy == "remove it"


def test_numbers_are_not_read_from_texts(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    document = json_of(summary_of([part()]))
    document["total"]["tasks"] = "3"
    path.write_text(json.dumps(document))
    with pytest.raises(OutputError, match=r"total\.tasks: Input should be a valid integer"):
        read_document(Summary, path, remedy="remove it")


def test_another_format_is_said_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(json_of(summary_of([])) | {"format": 2}))
    with pytest.raises(OutputError, match="of a format that this version does not read") as caught:
        read_document(Summary, path, remedy="remove it")
    assert caught.value.want == "1"


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"format": NaN}'])
def test_what_is_no_document_is_damaged(tmp_path: Path, text: str) -> None:
    path = tmp_path / "summary.json"
    path.write_text(text)
    with pytest.raises(OutputError):
        read_document(Summary, path, remedy="remove it")


def test_an_absent_document_is_missing_and_an_unstarted_run_has_cost_nothing(tmp_path) -> None:
    with pytest.raises(OutputError, match="is missing"):
        read_document(Summary, tmp_path / "summary.json", remedy="start the run")
    assert read_summary(tmp_path) == summary_of([])


def test_a_damaged_summary_may_be_removed(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text("{")
    with pytest.raises(OutputError, match="remove it: only what the run cost so far is lost"):
        read_summary(tmp_path)
    path.unlink()
    assert read_summary(tmp_path).parts == ()


def test_parts_of_one_place_are_added_and_of_memory_the_largest_is_kept() -> None:
    lagged = Straggler(
        step="solve block", task=1, low="01", high="02", cost=5, seconds=90.0,
        expected_seconds=1.0, running=False,
    )  # fmt: skip
    summary = summary_of([part(seconds=2), replace(part(seconds=6), stragglers=(lagged,))])
    (whole,) = summary.parts
    assert (whole.seconds, whole.core_seconds, whole.tasks, whole.geounits) == (8, 16, 6, 20)
    assert (whole.peak_memory_bytes, whole.task_peak_memory_bytes) == (600, 7)
    assert whole.rate == pytest.approx(20 / 8)
    assert whole.stragglers == (lagged,)
    assert summary.stages["solve"].core_hours == summary.total.core_hours == 16 / 3600


def test_statistics_are_those_among_the_facts_of_counts(tmp_path: Path) -> None:
    facts = {"geolevel": "block", "statistics": json.loads(json.dumps(json_of(STATISTICS)))}
    assert statistics_of(Dataset(tmp_path, (), facts)) == STATISTICS
    with pytest.raises(OutputError, match="nodes"):
        statistics_of(Dataset(tmp_path, (), {"geolevel": "block"}))
    facts["statistics"]["polished"] = 3
    with pytest.raises(OutputError, match="polished"):
        statistics_of(Dataset(tmp_path, (), facts))


@pytest.mark.parametrize(
    ("changes", "records"), [((3, -1, -1), 3), ((1, -4), 4), ((2, -2), 2), ((), 0), ((-5,), 5)]
)
def test_records_of_a_move_are_those_added_removed_or_moved(changes, records) -> None:
    move = Move(geocode="x", cells=tuple(range(len(changes))), changes=changes)
    assert move.records == records
