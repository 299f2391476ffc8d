"""What becomes of a run in a store under faults: answers lost, a busy or absent store, drivers' deaths.

    python -m bench.store_faults [--quick] [--only WORD,WORD]

The toy state runs in this process with all its files in an S3 server behind a proxy that does what
networks and busy stores do, or with drivers that die or sleep at a publication: once per fault and
stage, gone on with until it is complete. Runs with seeded noise must end as one on a disk, file by
file; of runs with fresh noise every noisy answer must be the one that the account recorded, and
none that was published may change. `--quick` takes one stage for each fault, in turn. Prints a
Markdown table of outcomes and one line of JSON.

survived      the same driver went on to the end
clear error   it ended with an error of the project, or died, and the next driver finished the run
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from das.errors import DasError
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import account_of
from jobs.pipeline.release.verify import verify_run
from jobs.pipeline.storage.dataset import MANIFEST, Dataset, dataset_digest
from jobs.pipeline.storage.journal import read_journal
from jobs.pipeline.storage.place import Place, StoredPlace, found_under
from jobs.pipeline.storage.stores.objects import ObjectStoreFiles
from tests.builders import in_process, toy
from tests.builders.datasets import contents
from tests.builders.patience import lose_patience
from tests.builders.places import release_of
from tests.builders.turns import Died
from tests.servers import faults
from tests.servers.faults import Fault, FaultProxy, fault_proxy
from tests.servers.s3 import s3_server

STAGES = {
    "read": "histograms/level=tract",
    "measure": "measurements/level=tract",
    "estimate": "estimates/tables/level=tract",
    "solve": "counts/level=tract",
    "write": "microdata/parquet",
}
DRIVERS = 5  # that may be needed at most, one after the other


class FaultError(Exception):
    """A run did what no run may do; its first argument is the name of that."""


@dataclass
class Case:
    """One run under one fault.

    Attributes:
      proxy: Before its store.
      target: The dataset that is hit.
      config: Its run file.
      met: How often the fault happened.
      patches: Undone at the end.
    """

    proxy: FaultProxy
    target: str
    config: Path
    patches: pytest.MonkeyPatch
    met: list[str] = field(default_factory=list)

    @property
    def out(self) -> Place:
        """The run folder."""
        return load_run(self.config).config.output.directory


# --- faults --------------------------------------------------------------------------------------


def at_manifest(fault: Fault, times: int = 1) -> Callable[[Case], None]:
    """A fault of the request that publishes the dataset."""
    return lambda case: by_proxy(case, fault, "PUT", f"{case.target}/_(manifest|proposed)", times)


def at_part(fault: Fault, times: int = 1) -> Callable[[Case], None]:
    """A fault of the request that writes a part of the dataset."""
    return lambda case: by_proxy(case, fault, "PUT", f"{case.target}/part-", times)


def at_reading(fault: Fault, times: int = 1) -> Callable[[Case], None]:
    """A fault of requests that read the dataset, at the end of the run if not before."""
    return lambda case: by_proxy(case, fault, "GET", f"{case.target}/", times)


def by_proxy(case: Case, fault: Fault, method: str, pattern: str, times: int) -> None:
    """Meet requests, and say that it happened."""
    rule = case.proxy.rule(fault, method, pattern, times=times)
    threading.Thread(
        target=lambda: (rule.arrived.wait(), case.met.append("met")), daemon=True
    ).start()


def gone_for_a_while(case: Case) -> None:
    """Connections are refused for a second."""
    gone(case, seconds=1.0)


def gone(case: Case, seconds: float = 0.0) -> None:
    """Connections are refused, for good or for a while."""
    pattern = f"{case.target}/part-"
    rule = case.proxy.rule(faults.LOST_REQUEST, "PUT", pattern, times=1, hold=True)

    def go() -> None:
        rule.arrived.wait()
        case.met.append("gone")
        case.proxy.refuse()
        rule.held.set()
        if seconds:
            time.sleep(seconds)
            case.proxy.accept()

    threading.Thread(target=go, daemon=True).start()


def dies_before(case: Case) -> None:
    """The driver dies before it publishes."""
    at_create(case, before=die)


def dies_after(case: Case) -> None:
    """The driver dies when it has published."""
    at_create(case, after=die)


def sleeps(case: Case) -> None:
    """The driver sleeps before it publishes; another one takes over and finishes the run."""
    at_create(case, before=lambda: in_process.execute(case.config))


def straggles(case: Case) -> None:
    """A task that was given up writes its part once more, when the dataset is published."""

    def write() -> None:
        for path in found_under(case.out, MANIFEST):
            if str(path.parent).endswith(case.target):
                part = Dataset.open(path.parent).parts[0]
                late = path.parent / f"part-{uuid.uuid4().hex}.parquet"
                assert isinstance(late, StoredPlace)
                late.store.create(late.key, (path.parent / part.file).read_bytes())

    at_create(case, after=write)


def die() -> None:
    """Stand for SIGKILL."""
    raise Died


def at_create(
    case: Case,
    before: Callable[[], object] = lambda: None,
    after: Callable[[], object] = lambda: None,
) -> None:
    """Do something once, before or after the manifest is created."""
    create = ObjectStoreFiles.create

    def creating(self: ObjectStoreFiles, name: str, data: bytes, **options: int) -> bool:
        is_hit = name.endswith(f"{case.target}/{MANIFEST}") and not case.met
        if is_hit:
            case.met.append("met")
            before()
        created = create(self, name, data, **options)
        if is_hit:
            after()
        return created

    case.patches.setattr(ObjectStoreFiles, "create", creating)


FAULTS: dict[str, Callable[[Case], None]] = {
    "answer of a publication lost": at_manifest(faults.LOST_ANSWER),
    "publication lost": at_manifest(faults.LOST_REQUEST),
    "published, and no answer in time": at_manifest(faults.DONE_IN_SILENCE),
    "publication: 409": at_manifest(faults.CONFLICT),
    "publication: 503 three times": at_manifest(faults.SLOW_DOWN, 3),
    "answer of a part lost": at_part(faults.LOST_ANSWER),
    "part: 500 three times": at_part(faults.INTERNAL_ERROR, 3),
    "part: 403": at_part(faults.FORBIDDEN),
    "reading: half a body, twice": at_reading(faults.HALF_A_BODY, 2),
    "reading: 503 three times": at_reading(faults.SLOW_DOWN, 3),
    "reading: no answer in time": at_reading(faults.SILENCE),
    "store gone for a second": gone_for_a_while,
    "store gone": gone,
    "driver dies before publishing": dies_before,
    "driver dies after publishing": dies_after,
    "driver sleeps, another finishes": sleeps,
    "late part of a lost task": straggles,
}


# --- runs ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def impatient() -> Iterator[pytest.MonkeyPatch]:
    """Patience with the store, and with silent drivers, of seconds where it is minutes."""
    with pytest.MonkeyPatch.context() as patch:
        lose_patience(patch, silence_seconds=1.0)
        patch.setattr("jobs.pipeline.folder.lock._BEAT", 1000.0)
        yield patch


def run_case(
    folder: Path, expected: dict[str, list[str]], name: str, stage: str, *, fresh: bool
) -> str:
    """Run one case.

    Returns:
      The outcome.

    Raises:
      FaultError: The run did what no run may do.
    """
    folder.mkdir()
    toy.write_records(folder)
    with (
        s3_server() as server,
        fault_proxy(server) as (proxy, seen),
        seen.in_environment(),
        impatient() as patches,
    ):
        changes = {"privacy__randomness": {"source": "operating_system"}} if fresh else {}
        account = f"{seen.url}/account.jsonl"
        config = toy.configuration(
            folder,
            output__directory=f"{seen.url}/runs/toy",
            privacy__account=account,
            **changes,
        )
        case = Case(proxy, STAGES[stage], config, patches)
        FAULTS[name](case)
        published: dict[str, str] = {}
        outcome = "survived"
        for _ in range(DRIVERS):
            try:
                in_process.execute(config)
                break
            except (DasError, Died):
                outcome = "clear error"
                if proxy.is_refusing:
                    proxy.accept()
            finally:
                watch(case, published)
        else:
            raise FaultError("lost")
        if not case.met:
            raise FaultError("nothing happened")
        check(case, expected, published, fresh=fresh)
    return outcome


def watch(case: Case, published: dict[str, str]) -> None:
    """Remember noisy answers; they may never be others."""
    for path in found_under(release_of(case.out).root / "measurements", MANIFEST):
        digest = dataset_digest(path.parent)
        if published.setdefault(path.parent.name, digest) != digest:
            raise FaultError("second draw")


def check(
    case: Case, expected: dict[str, list[str]], published: dict[str, str], *, fresh: bool
) -> None:
    """Compare a finished run with one on a disk, or with what the account recorded."""
    try:
        verify_run(load_run(case.config))
    except DasError as error:
        raise FaultError(f"wrong answer: {error}") from None
    if not fresh:
        if contents(case.out) != expected:
            raise FaultError("wrong answer")
        return
    lines = read_journal(account_of(load_run(case.config).config))
    recorded = [
        (f"level={line['geolevel']}", line["sha256"])
        for line in lines
        if line.get("event") == "measured"
    ]
    if sorted(recorded) != sorted(published.items()) or len(recorded) != len(toy.LEVELS):
        raise FaultError("second draw")


def main() -> None:
    """Run all cases and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    words = given.only.split(",")
    outcomes: dict[tuple[str, str], list[str]] = {}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "disk").mkdir()
        toy.write_records(folder / "disk")
        expected = contents(in_process.execute(toy.configuration(folder / "disk")))
        for index, name in enumerate(FAULTS):
            stages = [*STAGES][index % len(STAGES) :][:1] if given.quick else [*STAGES]
            for stage in stages:
                for fresh in (False, True) if stage == "measure" else (False,):
                    if not any(word in f"{name} {stage}" for word in words):
                        continue
                    try:
                        where = folder / f"{index}-{stage}-{fresh}"
                        outcome = run_case(where, expected, name, stage, fresh=fresh)
                    except FaultError as error:
                        outcome = str(error)
                    outcomes.setdefault((name, stage), []).append(outcome)
    print(table(outcomes))
    counts = Counter(outcome for each in outcomes.values() for outcome in each)
    seconds = round(time.monotonic() - began)
    print(json.dumps({"bench": "store faults", "seconds": seconds, "outcomes": dict(counts)}))


def table(outcomes: dict[tuple[str, str], list[str]]) -> str:
    """Outcomes by fault and stage, in Markdown."""
    rows = [f"| Fault | {' | '.join(STAGES)} |", "|---" * (len(STAGES) + 1) + "|"]
    for name in dict.fromkeys(name for name, _ in outcomes):
        cells = [
            ", ".join(f"{n} {what}" for what, n in Counter(outcomes.get((name, s), [])).items())
            for s in STAGES
        ]
        rows.append(f"| {name} | {' | '.join(cell or '-' for cell in cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
