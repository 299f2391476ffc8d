"""What becomes of a run under faults: processes killed and stopped, full disks, damaged files.

    python -m bench.faults [--quick] [--seed N] [--only WORD]

A small generated state runs on a standalone master with two workers: once undisturbed, then once
per fault and stage. To be hit in mid task, the tasks of one dataset hold their finished part files
open for a while. Runs with seeded noise must end as the undisturbed one, file by file; in runs with
fresh noise no published noisy answer may change. Disks are filled for real, on a small tmpfs
(needs root; else these cases are left out and said to be). Prints a Markdown table of outcomes and
one line of JSON.

survived      the run, or `das run OUT` after it, ended with the same measurements and microdata
clear error   it ended with an error of the project that says what to do; expected where noisy
              answers are lost, and there alone
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow as pa
import yaml

from das.errors import DasError
from jobs.design.synthetic.generate import GenerateSpec, generate
from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.verify import verify_run
from jobs.pipeline.storage.dataset import MANIFEST, Dataset, is_published, sweep
from tests.builders.places import release_of, truth_of
from tests.builders.run_files import to_products
from tests.pipeline.spark import faults
from tests.pipeline.spark.cluster import MANY_TASKS, ROOT, Cluster, build_zip, standalone_cluster

LEVELS = {"state": 2, "tract": 11, "block": 15}
HELD = {
    "read": "histograms/level=block",
    "measure": "measurements/level=block",
    "estimate": "estimates/tables/level=block",
    "solve": "counts/level=block",
    "write": "microdata/parquet",
}
STAGES = (*HELD, "finalize")
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "3s",
}
BLOCKS = 400
HOLD_SECONDS = 0.8
DISK_BYTES = 48 << 20

_HOLD = """
import time as _time
_close = PartWriter.close
def _hold(self, **facts):
    if self._path.parent.as_posix().endswith({held!r}):
        _time.sleep({seconds})
    return _close(self, **facts)
PartWriter.close = _hold
"""
_HOLD_FINALIZE = """
import time as _time
_write = write_manifest
def write_manifest(*arguments):
    _time.sleep({seconds})
    return _write(*arguments)
"""


class FaultError(Exception):
    """A run did what no run may do.

    Attributes:
      outcome: Name of it.
    """

    def __init__(self, outcome: str, why: str) -> None:
        super().__init__(f"{outcome}: {why}")
        self.outcome = outcome


@dataclass
class Bench:
    """The state, the cluster, the undisturbed run, and a generator of choices.

    Attributes:
      folder: Where everything lies.
      cluster: A master and two workers.
      archive: The project.
      held: By stage, the project with tasks that take their time.
      rng: Chooses when and what.
      patience: Seconds until a run counts as hanging.
      reference: Rows of the undisturbed run.
      digests: Digests of its files.
    """

    folder: Path
    cluster: Cluster
    archive: Path
    held: dict[str, Path]
    rng: random.Random
    patience: float
    reference: dict[str, pa.Table] = field(default_factory=dict)
    digests: dict[str, list[str]] = field(default_factory=dict)

    def configure(
        self, name: str, *, fresh: bool = False, out: Path | None = None, **spark: str
    ) -> Path:
        """Write NAME/run.yaml of the state."""
        home = self.folder / name
        home.mkdir()
        source = {"source": "operating_system"}
        seeded = {"source": "seeded_not_for_release", "seed": 7}
        document = {
            "name": name,
            "schema": str(ROOT / "conf" / "schema" / "toy.yaml"),
            "data": {
                "input_format": "histograms",
                "path": str(self.folder / "nation" / "histograms"),
            },
            "geography": {
                "levels": [{"name": level, "digits": n} for level, n in LEVELS.items()],
                "geounits": {"path": str(self.folder / "nation" / "geounits.parquet")},
            },
            "privacy": {
                "rho": "1",
                "allocation": str(self.folder / "allocation.yaml"),
                "account": str(home / "account.jsonl"),
                "randomness": source if fresh else seeded,
            },
            "invariants": [{"query": "total", "geolevel": "state"}],
            "output": {"directory": str(out or home / "out")},
            "runtime": {"spark": spark, "batches_per_slot": 2},
        }
        path = home / "run.yaml"
        path.write_text(yaml.safe_dump(to_products(document)))
        return path


@dataclass
class Case:
    """One run under one fault.

    Attributes:
      bench: Where it runs.
      stage: In which stage.
      name: Of its folder.
      fresh: Whether its noise comes from the operating system.
      published: Manifests of noisy answers when they were first seen published.
      stopped: Processes of tasks that were stopped.
    """

    bench: Bench
    stage: str
    name: str
    fresh: bool = False
    out: Path = field(init=False)
    config: Path = field(init=False)
    driver: faults.Submitted = field(init=False)
    published: dict[str, bytes] = field(default_factory=dict)
    stopped: list[psutil.Process] = field(default_factory=list)

    @property
    def dataset(self) -> Path:
        """The dataset whose tasks take their time."""
        root = release_of(self.out).root
        if self.stage == "read":
            return truth_of(self.out).histograms("block")
        return root / HELD[self.stage]

    def begin(self, out: Path | None = None, **spark: str) -> None:
        """Start a run on the cluster and wait until it is in the midst of the stage."""
        self.configure(out, **spark)
        self.driver = self.submit(self.bench.held[self.stage], "run", self.config)
        self.driver.wait_until(self.is_under_way, self.stage, self.bench.patience)

    def begin_embedded(self) -> None:
        """Start a run on local threads, with Java below Python, and wait likewise."""
        self.configure(None)
        archive, log = self.bench.held[self.stage], self.bench.folder / self.name / "0.log"
        self.driver = faults.Submitted(
            self.bench.cluster.start_embedded(archive, "run", self.config, log=log), log
        )
        self.driver.wait_until(self.is_under_way, self.stage, self.bench.patience)

    def configure(self, out: Path | None, **spark: str) -> None:
        """Write the run file."""
        self.out = out or self.bench.folder / self.name / "out"
        self.config = self.bench.configure(self.name, fresh=self.fresh, out=out, **spark)

    def submit(self, archive: Path, *words: object) -> faults.Submitted:
        """Submit a command in the background."""
        number = len(list((self.bench.folder / self.name).glob("*.log")))
        log = self.bench.folder / self.name / f"{number}.log"
        process = self.bench.cluster.start(archive, *words, log=log)
        return faults.Submitted(process, log)

    def is_under_way(self) -> bool:
        """Whether the stage is in its midst."""
        self.watch()
        release = release_of(self.out)
        if self.stage == "finalize":
            return is_published(release.tables("block")) and not release.manifest.exists()
        return faults.under_way(self.dataset, 1)

    def watch(self) -> None:
        """Remember noisy answers when they are published; they may never be others."""
        for level in LEVELS:
            manifest = release_of(self.out).measurements(level) / MANIFEST
            with contextlib.suppress(FileNotFoundError):
                text = manifest.read_bytes()
                if self.published.setdefault(level, text) != text:
                    raise FaultError("second draw", f"measurements of {level} changed")

    def hit(self) -> faults.RunningTask:
        """Stop a task in mid part."""
        cluster, patience = self.bench.cluster, self.bench.patience
        task = self.driver.wait_until(
            lambda: faults.stop_in_task(cluster, self.dataset), "a task", patience
        )
        self.stopped.append(task.worker)
        return task

    def end(self, driver: faults.Submitted | None = None) -> int:
        """Wait for the end of a driver; a run that does not end hangs."""
        try:
            return (driver or self.driver).finish(self.bench.patience)
        except subprocess.TimeoutExpired:
            (driver or self.driver).kill()
            raise FaultError("hang", f"{self.name} did not end") from None

    def resume(self) -> None:
        """Go on with `das run OUT`, to the end."""
        again = self.submit(self.bench.archive, "run", self.out)
        if self.end(again):
            raise RefusedError(again.tail())

    def check(self) -> None:
        """Compare the finished run with the undisturbed one.

        Raises:
          FaultError: It is not what it must be.
        """
        self.watch()
        for level in LEVELS:
            if late := faults.unnamed_files(release_of(self.out).measurements(level)):
                raise FaultError("second draw", f"files of other draws lie about: {late}")
        sweep(release_of(self.out).shared)
        # The run file of damaged copies is the undisturbed run's; the release is what is verified.
        try:
            resolved = load_run(self.config, output=self.out)
            verify_run(resolved)
        except DasError as error:
            raise FaultError("wrong answer", str(error)) from None
        rows = released(self.out)
        for name, expected in self.bench.reference.items():
            found = rows.get(name)
            if found is None or keys(found, name) != keys(expected, name):
                if self.fresh and not name.startswith("measurements"):
                    continue  # other noise, other counts
                raise FaultError("silent loss", f"rows of {name}")
            if not self.fresh and not found.equals(expected):
                raise FaultError("wrong answer", f"values of {name}")
        if not self.fresh and contents(self.out) != self.bench.digests:
            changed = {k for k, v in self.bench.digests.items() if contents(self.out).get(k) != v}
            raise FaultError("wrong answer", f"other files, same rows: {sorted(changed)}")


class RefusedError(Exception):
    """A command ended with an error; holds what it printed."""


def released(out: Path) -> dict[str, pa.Table]:
    """Rows of all measurements, counts, estimates and Parquet microdata, in order."""
    root = release_of(out).root
    found = {}
    for folder in ("measurements", "counts", "estimates", "microdata/parquet"):
        for path in sorted((root / folder).rglob(MANIFEST)):
            dataset = path.parent
            table = Dataset.open(dataset).read()
            for index, column in enumerate(table.schema):
                if pa.types.is_dictionary(column.type):
                    text = table.column(index).cast(column.type.value_type)
                    table = table.set_column(index, column.name, text)
            plain = [
                c for c in table.schema.names if not pa.types.is_nested(table.schema.field(c).type)
            ]
            order = [(c, "ascending") for c in plain]
            found[str(dataset.relative_to(root))] = table.sort_by(order).combine_chunks()
    return found


def keys(table: pa.Table, name: str) -> Counter[tuple[object, ...]]:
    """Which rows there are: geocode, and query where there is one; microdata by geocode."""
    columns = ["geocode", *(["query"] if name.startswith("measurements") else [])]
    return Counter(zip(*(table.column(c).to_pylist() for c in columns), strict=True))


def contents(out: Path) -> dict[str, list[str]]:
    """Digests of all published files by dataset, whatever their names."""
    roots = (out / "release", out / "confidential")
    return {
        str(path.parent.relative_to(out)): sorted(p.sha256 for p in Dataset.open(path.parent).parts)
        for root in roots
        for path in root.rglob(MANIFEST)
    }


# --- faults --------------------------------------------------------------------------------------


def kill_python_worker(case: Case) -> None:
    """SIGKILL of the Python process of a task."""
    case.begin()
    case.hit().worker.kill()
    finish(case)


def kill_executor(case: Case) -> None:
    """SIGKILL of the Java process that tasks belong to."""
    case.begin()
    case.hit().executor.kill()
    finish(case)


def kill_spark_worker(case: Case) -> None:
    """SIGKILL of a worker daemon and its executor, as the loss of a machine would."""
    case.begin()
    executor = case.hit().executor
    cluster, daemon = case.bench.cluster, executor.parent()
    lost = next(w for w in cluster.workers if daemon is not None and w.pid == daemon.pid)
    host = next(word for word in psutil.Process(lost.pid).cmdline() if word.startswith("127.0.0."))
    lost.kill()
    executor.kill()
    lost.wait()
    cluster.workers.remove(lost)
    try:
        finish(case)
    finally:
        cluster.start_worker(host)


def kill_driver(case: Case) -> None:
    """SIGKILL of the whole driver; then `das run OUT`."""
    case.begin()
    if case.stage != "finalize":
        case.hit()
    case.driver.kill()
    case.watch()
    case.resume()


def kill_driver_java(case: Case) -> None:
    """SIGKILL of the Java half of the driver, which alone can print; the Python half must end."""
    case.begin()
    java = psutil.Process(case.driver.process.pid)
    python = java.children(recursive=True)
    java.kill()
    _, alive = psutil.wait_procs(python, timeout=60)
    case.end()
    if alive:
        raise FaultError("hang", "the Python half of the driver lives on")
    case.watch()
    case.resume()


def kill_embedded_java(case: Case) -> None:
    """SIGKILL of the Java below a driver on local threads, which must say so."""
    case.begin_embedded()
    for child in psutil.Process(case.driver.process.pid).children():
        child.kill()
    finish(case)


def kill_driver_python(case: Case) -> None:
    """SIGKILL of the Python half of the driver."""
    case.begin()
    for child in psutil.Process(case.driver.process.pid).children():
        child.kill()
    case.end()
    case.watch()
    case.resume()


def stop_task(case: Case) -> None:
    """SIGSTOP of a task for good; speculation does it elsewhere."""
    case.begin(**SPECULATION)
    case.hit()
    finish(case)


def second_driver(case: Case) -> None:
    """`das run OUT` while the first driver works: it must be refused, the first must not notice."""
    case.begin()
    task = case.hit()  # the first cannot end before the second is refused
    second = case.submit(case.bench.archive, "run", case.out)
    if case.end(second) == 0:
        raise FaultError("wrong answer", "two drivers worked on one folder")
    expect_clear(second.tail())
    case.watch()
    task.worker.send_signal(signal.SIGCONT)
    finish(case)


def fill_disk(case: Case) -> None:
    """A disk that is full in the midst of the stage; then room, and `das run OUT`."""
    disk = case.bench.folder / f"{case.name}-disk"
    with small_disk(disk):
        case.begin(out=disk / "out")
        filler = disk / "filler"
        fill(filler)
        code = case.end()
        if code == 0:
            raise FaultError("wrong answer", "the run ended well on a full disk")
        expect_clear(case.driver.tail())
        filler.unlink()
        case.resume()
        case.check()


def remove_part(case: Case) -> None:
    """One published file is gone when the run is resumed."""
    damage(case, lambda path: path.unlink())


def truncate_part(case: Case) -> None:
    """One published file has lost its end."""
    damage(case, lambda path: os.truncate(path, path.stat().st_size * 2 // 3))


def flip_bit(case: Case) -> None:
    """One bit of a published file has changed."""

    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[case.bench.rng.randrange(len(content))] ^= 1 << case.bench.rng.randrange(8)
        path.write_bytes(content)

    damage(case, flip)


def damage_manifest(case: Case) -> None:
    """The manifest of a published dataset has lost its end."""
    damage(case, lambda path: os.truncate(path, path.stat().st_size // 2), manifest=True)


def remove_dataset(case: Case) -> None:
    """A published dataset is gone as a whole."""
    damage(case, lambda path: shutil.rmtree(path.parent))


def damage(case: Case, harm: Callable[[Path], None], *, manifest: bool = False) -> None:
    """Damage a copy of the undisturbed run, see that `das run` refuses it, and resume it."""
    reference = case.bench.folder / "reference"
    case.out = case.bench.folder / case.name / "out"
    case.config = reference / "run.yaml"
    case.out.parent.mkdir()
    shutil.copytree(reference / "out", case.out)
    release = release_of(case.out)
    if case.stage == "finalize":
        harm(release.manifest)
    else:
        datasets = {
            "read": truth_of(case.out).histograms,
            "measure": release.measurements,
            "estimate": lambda level: release.root / "estimates" / "tables" / f"level={level}",
            "solve": release.counts,
            "write": lambda level: release.microdata / "csv",
        }
        dataset = datasets[case.stage](case.bench.rng.choice(list(LEVELS)))
        parts = [dataset / part.file for part in Dataset.open(dataset).parts]
        harm(dataset / MANIFEST if manifest else case.bench.rng.choice(parts))
    case.resume()


def finish(case: Case) -> None:
    """Wait for the end of the run, which must be a good one."""
    code = case.end()
    if code:
        expect_clear(case.driver.tail())
        case.resume()


def expect_clear(text: str) -> None:
    """An error must be one of the project, not a stack of frames.

    Raises:
      FaultError: It is not.
    """
    if "das: " not in text or "Traceback (most recent call last)" in text:
        raise FaultError("unclear error", text[-1500:])


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of some megabytes."""
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)], check=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    """Write until there is no room."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as handle:
        while True:
            handle.write(bytes(1 << 16))
    with contextlib.suppress(OSError), path.open("ab", buffering=0) as handle:
        while True:
            handle.write(b"0")


def can_mount() -> bool:
    """Whether this process may mount file systems."""
    with tempfile.TemporaryDirectory() as name:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "none", name], capture_output=True, check=False
        )
        if mounted.returncode == 0:
            subprocess.run(["umount", name], check=True)
    return mounted.returncode == 0


TASK_FAULTS = (kill_python_worker, kill_executor, kill_spark_worker, stop_task, second_driver)
DRIVER_FAULTS = (kill_driver, kill_driver_java, kill_driver_python, kill_embedded_java)
FILE_FAULTS = (remove_part, truncate_part, flip_bit, damage_manifest, remove_dataset)
QUICK = {
    (kill_python_worker, "measure"),
    (kill_executor, "solve"),
    (kill_spark_worker, "estimate"),
    (stop_task, "measure"),
    (kill_driver, "measure"),
    (kill_driver, "solve"),
    (kill_driver_java, "write"),
    (kill_driver_python, "read"),
    (kill_embedded_java, "estimate"),
    (second_driver, "solve"),
    (fill_disk, "write"),
    (remove_part, "write"),
    (remove_part, "measure"),
    (truncate_part, "solve"),
    (flip_bit, "read"),
    (damage_manifest, "estimate"),
}


@dataclass(frozen=True)
class Outcome:
    """How a case ended."""

    fault: str
    stage: str
    fresh: bool
    outcome: str
    why: str
    seconds: float


def cases(*, quick: bool, disks: bool) -> list[tuple[Callable[[Case], None], str, bool]]:
    """All cases: fault, stage, whether noise is fresh."""
    found = [(fault, stage) for fault in TASK_FAULTS for stage in HELD]
    found += [(fault, stage) for fault in DRIVER_FAULTS for stage in STAGES]
    found += [(fill_disk, stage) for stage in STAGES if disks]
    found += [
        (fault, stage)
        for fault in FILE_FAULTS
        for stage in STAGES
        if stage != "finalize" or fault in (remove_part, truncate_part)
    ]
    chosen = [case for case in found if not quick or case in QUICK]
    fresh = {kill_python_worker, kill_executor, kill_spark_worker, stop_task, fill_disk}
    fresh |= {*DRIVER_FAULTS}
    again = [
        (fault, "measure", True) for fault, stage in chosen if stage == "measure" and fault in fresh
    ]
    return [*((fault, stage, False) for fault, stage in chosen), *again]


def case_name(fault: Callable[[Case], None], stage: str, *, fresh: bool) -> str:
    """Such as kill_driver-measure-fresh."""
    return f"{fault.__name__}-{stage}{'-fresh' if fresh else ''}"


def run_case(bench: Bench, fault: Callable[[Case], None], stage: str, *, fresh: bool) -> Outcome:
    """Run one case and judge its end."""
    name = case_name(fault, stage, fresh=fresh)
    case, started = Case(bench, stage, name, fresh), time.monotonic()
    try:
        fault(case)
        if fault is not fill_disk:
            case.check()
        outcome, why = "survived", ""
    except RefusedError as refused:
        text = str(refused)
        try:
            expect_clear(text)
            lost = "noisy answers are drawn once" in text or "the budget counts as spent" in text
            expected = lost and stage == "measure" and fault in FILE_FAULTS
            outcome = "clear error" if expected else "refused"
        except FaultError as failed:
            outcome = failed.outcome
        why = text[-400:]
    except FaultError as failed:
        outcome, why = failed.outcome, str(failed)
    except DasError as error:
        outcome, why = "wrong answer", str(error)
    except (AssertionError, TimeoutError, psutil.Error) as error:
        outcome, why = "not hit", str(error)[-1500:]
    for process in case.stopped:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    for driver in bench.cluster.drivers:
        if driver.poll() is None:
            faults.Submitted(driver, Path(os.devnull)).kill()
    shutil.rmtree(bench.folder / name, ignore_errors=True)
    return Outcome(fault.__name__, stage, fresh, outcome, why, time.monotonic() - started)


def table(outcomes: list[Outcome]) -> str:
    """A Markdown table, faults by stages."""
    lines = [
        "| Fault | " + " | ".join(STAGES) + " |",
        "|---|" + "---|" * len(STAGES),
    ]
    for fault in dict.fromkeys(one.fault for one in outcomes):
        cells = []
        for stage in STAGES:
            here = Counter(o.outcome for o in outcomes if (o.fault, o.stage) == (fault, stage))
            cells.append(", ".join(f"{n} {name}" for name, n in here.items()) or "-")
        lines.append(f"| {fault.replace('_', ' ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def hold_archives(folder: Path) -> dict[str, Path]:
    """The project by stage, with tasks or the finalizing driver taking their time there."""
    archives = {}
    for stage in STAGES:
        home = folder / f"hold-{stage}"
        home.mkdir()
        appended = {
            **MANY_TASKS,
            "jobs/pipeline/storage/dataset.py": _HOLD.format(
                held=HELD.get(stage, "nowhere"), seconds=HOLD_SECONDS
            ),
        }
        if stage == "finalize":
            appended["jobs/pipeline/release/finalizing.py"] = _HOLD_FINALIZE.format(
                seconds=4 * HOLD_SECONDS
            )
        archives[stage] = build_zip(home, appended)
    return archives


@contextlib.contextmanager
def bench(seed: int, patience: float) -> Iterator[Bench]:
    """Make the state, start the cluster, and run undisturbed."""
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        generate(GenerateSpec(blocks=BLOCKS, schema="toy", format="histograms"), folder / "nation")
        queries = {"total": "1/4", "sex": "1/4", "detailed": "1/2"}
        shares = {level: {"share": "1/3", "queries": queries} for level in LEVELS}
        allocation = {"name": "thirds", "source": "Even shares.", "levels": shares}
        (folder / "allocation.yaml").write_text(yaml.safe_dump(allocation))
        held = hold_archives(folder)
        with standalone_cluster(folder) as cluster:
            made = Bench(folder, cluster, held["finalize"], held, random.Random(seed), patience)
            config, log = made.configure("reference"), folder / "reference" / "log"
            run = faults.Submitted(cluster.start(made.archive, "run", config, log=log), log)
            if run.finish(patience):
                raise RuntimeError(run.tail())
            made.reference = released(folder / "reference" / "out")
            made.digests = contents(folder / "reference" / "out")
            yield made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one fault of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--patience", type=float, default=240, help="seconds until a run counts as hanging"
    )
    parser.add_argument(
        "--only", default="", help="cases whose name contains one of these, by commas"
    )
    arguments = parser.parse_args()
    disks = can_mount()
    if not disks:
        print("no disks are filled: mounting one is not permitted")
    wanted = cases(quick=arguments.quick, disks=disks)
    outcomes = []
    started = time.monotonic()
    with bench(arguments.seed, arguments.patience) as made:
        for fault, stage, fresh in wanted:
            name = case_name(fault, stage, fresh=fresh)
            if any(word in name for word in arguments.only.split(",")):
                outcome = run_case(made, fault, stage, fresh=fresh)
                outcomes.append(outcome)
                noise = "fresh noise" if fresh else ""
                print(
                    f"{fault.__name__:<20}{stage:<10}{noise:<13}{outcome.outcome:<14}"
                    f"{outcome.seconds:6.0f} s",
                    flush=True,
                )
                if outcome.outcome != "survived":
                    print("    " + outcome.why.replace("\n", "\n    "), flush=True)
    counts = Counter(one.outcome for one in outcomes)
    print(table(outcomes))
    result = {
        "cases": len(outcomes),
        "survived": counts["survived"],
        "clear_errors": counts["clear error"],
        "wrong_answers": counts["wrong answer"],
        "second_draws": counts["second draw"],
        "silent_losses": counts["silent loss"],
        "refused": counts["refused"],
        "unclear_errors": counts["unclear error"],
        "hangs": counts["hang"],
        "not_hit": counts["not hit"],
        "seconds": round(time.monotonic() - started),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
