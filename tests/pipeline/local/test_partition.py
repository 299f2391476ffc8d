"""A driver cut off from the store in mid write, one that takes over, and the first one back again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.verify import verify_run
from jobs.pipeline.storage.place import StoredPlace
from tests.builders import in_process, toy
from tests.checkout import ROOT
from tests.servers import faults
from tests.servers.faults import fault_proxy
from tests.servers.hosts import network
from tests.servers.s3 import s3_server

pytestmark = pytest.mark.long
DRIVER = """
import sys
from pathlib import Path
from tests.builders import in_process
in_process.execute(Path(sys.argv[1]))
"""


def everything(out: StoredPlace) -> dict[str, bytes]:
    """Published files; not signs of life, nor what a run may leave unpublished."""
    keys = sorted(out.store.files(f"{out.key}/release"))
    return {key: out.store.read(key) for key in keys}


@pytest.mark.parametrize(
    "late",
    [
        "measurements/level=county/_manifest.json",
        "ledger.jsonl.lines/00000003.jsonl",
        "counts/level=county/_manifest.json",
    ],
)
def test_a_driver_that_was_cut_off_changes_nothing_when_it_is_back(
    tmp_path: Path, late: str
) -> None:
    """Noise is drawn anew by who takes over, so a second publication would be seen."""
    toy.write_records(tmp_path)
    with network(1) as joined, s3_server(address=joined.here) as server:
        (host,) = joined.hosts
        config = toy.configuration(
            tmp_path,
            privacy__randomness={"source": "operating_system"},
            output__directory=f"{server.url}/out",
        )
        with fault_proxy(server) as (proxy, seen):
            straggler = proxy.rule(faults.slow(0), "PUT", late, times=1, hold=True)
            first = subprocess.Popen(
                host.command(sys.executable, "-c", DRIVER, str(config)),
                env={**seen.environment, "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            assert straggler.arrived.wait(300)
            host.cut()
            with server.in_environment():
                in_process.execute(config)
                resolved = load_run(config)
                out = resolved.config.output.directory
                assert isinstance(out, StoredPlace)
                done = everything(out)
                straggler.held.set()
                host.mend()
                told, _ = first.communicate(timeout=400)
                assert everything(out) == done
                verify_run(resolved)
        assert first.returncode == 0 or "OutputError" in told, told[-3000:]
