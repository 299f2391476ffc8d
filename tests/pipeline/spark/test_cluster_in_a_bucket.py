"""Machines that share no folder: data, account, release and truth in buckets, the rest in a zip."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.verify import verify_run
from jobs.pipeline.storage.dataset import MANIFEST, Dataset
from jobs.pipeline.storage.place import Place, found_under, names_below
from tests.builders import in_process, toy
from tests.pipeline.spark import faults
from tests.pipeline.spark.cluster import MANY_TASKS, build_zip, standalone_cluster
from tests.servers.s3 import s3_server

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

# Appended to a module: what the driver ships to Spark is kept, to look for secrets in it.
KEPT_PICKLES = """
import os as _os
from pyspark.serializers import CloudPickleSerializer as _Pickler

_dumps = _Pickler.dumps


def _keep(self, what):
    data = _dumps(self, what)
    if "KEPT_PICKLES" in _os.environ:
        with open(_os.environ["KEPT_PICKLES"], "ab") as kept:
            kept.write(data)
    return data


_Pickler.dumps = _keep
"""

# The first attempt of a task of these dies when its part is written; Spark tries it again.
DIE_IN = ("histograms/level=block", "measurements/level=tract", "counts/level=block")
DYING_TASKS = f"""
import os as _os

_close = PartWriter.close


def _dying(self, **facts):
    from pyspark import TaskContext

    part, task = _close(self, **facts), TaskContext.get()
    if str(self._path.parent).endswith({DIE_IN!r}) and task is not None:
        if (task.partitionId(), task.attemptNumber()) == (0, 0):
            _os._exit(1)
    return part


PartWriter.close = _dying
"""


def contents(out: Place) -> dict[str, list[str]]:
    """Digests of all published files of a run by dataset, whatever their names."""
    roots = {"release": out / "release", "confidential": out / "confidential"}
    return {
        f"{half}/{names_below(path.parent, root)}": sorted(
            part.sha256 for part in Dataset.open(path.parent).parts
        )
        for half, root in roots.items()
        for path in found_under(root, MANIFEST)
    }


def test_workers_that_share_nothing_make_the_release_of_one_process(tmp_path: Path) -> None:
    toy.write_records(tmp_path)
    expected = contents(in_process.execute(toy.configuration(tmp_path)))
    folder = tmp_path / "cluster"
    appended = {
        **MANY_TASKS,
        "jobs/pipeline/tasks/session.py": KEPT_PICKLES,
        "jobs/pipeline/storage/dataset.py": DYING_TASKS,
    }
    events, pickles = folder / "events", folder / "pickles"
    events.mkdir(parents=True)
    with s3_server() as seen, seen.in_environment():
        config = toy.configuration(
            tmp_path,
            **toy.upload(tmp_path, f"{seen.url}/data"),
            privacy__account=f"{seen.url}/accounts/account.jsonl",
            output__directory=f"{seen.url}/runs/toy",
            runtime={},
        )
        of_workers = {**seen.environment, "AWS_SECRET_ACCESS_KEY": "secret-of-workers"}
        of_driver = {**seen.environment, "AWS_SECRET_ACCESS_KEY": "secret-of-driver"}
        with standalone_cluster(folder, of_workers=of_workers) as cluster:
            driver = replace(
                cluster,
                environment={**cluster.environment, **of_driver, "KEPT_PICKLES": str(pickles)},
            )
            archive = build_zip(folder, appended)
            done = driver.submit(
                archive,
                *("run", config),
                conf={
                    "spark.eventLog.enabled": "true",
                    "spark.eventLog.dir": events.as_uri(),
                    "spark.eventLog.rolling.enabled": "false",
                    "spark.eventLog.compress": "false",
                },
                patience_seconds=900,
            )
        assert done.returncode == 0, done.stdout[-3000:]
        out = load_run(config).config.output.directory
        assert contents(out) == expected
        verify_run(load_run(config))
    endings = [attempt.ending for attempt in faults.attempts(events)]
    assert endings.count("ExceptionFailure") == len(DIE_IN)
    assert set(endings) == {"ExceptionFailure", "Success"}
    project = archive.parents[1]
    left = [path for path in folder.rglob("*.parquet") if not path.is_relative_to(project)]
    assert left == [], "rows on a disk"
    assert pickles.stat().st_size > 0
    written = [
        *events.iterdir(),
        pickles,
        *folder.glob("127.*/app-*/*/std*"),
        *folder.glob("*.log"),
    ]
    assert len(written) > 6
    for path in written:
        text = path.read_bytes()
        assert b"secret-of-" not in text, path
    assert "secret-of-" not in done.stdout + done.stderr
