"""What is complete of a stage: published datasets, recorded measurements, files, a manifest that holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import Resolved
from jobs.pipeline.folder.progress import StageProgress, count_files, is_finalized, stage_progress
from jobs.pipeline.job import Stage
from jobs.pipeline.run import STAGES
from jobs.pipeline.storage.dataset import PartWriter, dataset_digest, publish
from tests.builders import toy
from tests.unit.jobs.pipeline.report.report_samples import manifest_document


@pytest.fixture
def resolved(tmp_path: Path) -> Resolved:
    toy.write_records(tmp_path)
    return load_run(toy.configuration(tmp_path))


def write(dataset: Path) -> None:
    table = pa.table({"geocode": ["1"]})
    writer = PartWriter(dataset, table.schema)
    writer.write(table)
    publish(dataset, [writer.close()], {})


def progress(resolved: Resolved, name: str) -> StageProgress:
    (line,) = (line for line in stage_progress(STAGES, resolved) if line.stage == name)
    return line


def test_published_datasets_and_files_are_complete(resolved):
    release = resolved.last.release
    assert (progress(resolved, "solve").done, progress(resolved, "solve").outputs) == (0, 4)
    write(release.counts("state"))
    release.counts("county").mkdir()
    assert progress(resolved, "solve").done == 1
    assert not progress(resolved, "solve").is_complete
    for level in resolved.plan.spine.levels[1:]:
        write(release.counts(level))
    assert progress(resolved, "solve").is_complete
    resolved.last.confidential.evaluation.parent.mkdir(parents=True, exist_ok=True)
    resolved.last.confidential.evaluation.write_text("{}")
    assert progress(resolved, "evaluate").done == 1


def test_measurements_count_once_the_ledger_names_them(resolved):
    write(resolved.last.release.measurements("state"))
    assert progress(resolved, "measure").done == 0


def test_stages_that_make_nothing_of_a_product_are_omitted(resolved):
    nothing = Stage("nothing", False, lambda _: [], lambda _: None)
    assert stage_progress([nothing], resolved) == []
    assert "reserve_budget" not in {
        line.stage for line in stage_progress(STAGES, resolved)
    }  # seeded


def test_a_release_is_finalized_while_the_datasets_are_those_it_names(resolved):
    release = resolved.last.release
    write(release.counts("state"))
    (output,) = manifest_document()["outputs"][:1]
    digest = dataset_digest(release.counts("state"))
    named = {**output, "path": "counts/level=state", "sha256": digest}
    assert not is_finalized(release)
    document = manifest_document(outputs=[named])
    release.manifest.write_text(json.dumps(document))
    assert is_finalized(release)
    write(release.counts("county"))
    assert not is_finalized(release)
    release.manifest.write_text("{")
    assert not is_finalized(release)
    assert count_files(resolved) == (2, 2)


def test_progress_is_complete_when_all_outputs_are_there():
    line = StageProgress("persons", "write", 2, 3)
    assert not line.is_complete
    assert replace(line, done=3).is_complete
