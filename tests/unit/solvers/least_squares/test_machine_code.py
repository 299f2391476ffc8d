"""Compiled kernels: compiled once for all that calls them, and kept where others find them."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jobs.cli.main import app
from jobs.pipeline.tasks import java
from solvers.least_squares import machine_code
from solvers.least_squares.machine_code import is_kept
from tests.pipeline.spark.cluster import ROOT, build_zip

# In a process of its own, where nothing was compiled or loaded yet.
_AFTER_COMPILING = """
import numpy as np
from solvers.answers.sums import family_sums, group_sums
from solvers.dual_newton.dual_ascent import solve_compiled
from solvers.least_squares import machine_code
from solvers.least_squares.solve import solve_quadratic
from tests.builders.strategies import Shape, random_node

def signatures():
    names = ("active_set", "adjoint", "gram_blocks", "gradient", "project_by_cell")
    found = {name: len(getattr(machine_code.kernels(), name).signatures) for name in names}
    ascent = machine_code.kernels(machine_code.DUAL_ASCENT)
    answers = machine_code.kernels(machine_code.ANSWERS)
    sums = {name: len(getattr(answers, name).signatures) for name in ("add_runs", "add_groups")}
    return found | {"dual_ascent": len(ascent.dual_ascent.signatures)} | sums

machine_code.compile_kernels()
before = signatures()
shapes = [
    Shape(4, 6, scales=True, sparse=0.8),
    Shape(1, 8, exact=(1, 2), is_root=True),
    Shape(3, 7, exact=(1,), rows=1, unequal=True),
]
for shape in shapes:
    solve_quadratic(random_node(shape, 1), 1e-7)
    solve_compiled(random_node(shape, 1), 1e-7)
for kind in (np.int16, np.int32, np.int64):
    some = np.ones((2, 1 << 17), kind)
    family_sums(some, np.zeros(1, np.int64))
    group_sums(some, 1, np.arange(1 << 17) % 2)
    group_sums(some[:, :4].reshape(2, 2, 2), 2, np.zeros(2, np.int64))
print(before)
print(signatures())
"""
_LOADED_FROM = """
from solvers.least_squares.machine_code import kernels
print(kernels().__file__)
"""


def lines(code: str, path: Path, cache: Path | None = None, **variables: str) -> list[str]:
    """What a process prints that imports the project from a folder or an archive."""
    environment = {**os.environ, "PYTHONPATH": str(path), **variables}
    if cache:
        environment["XDG_CACHE_HOME"] = str(cache)
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=environment, cwd=path.parent, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_solving_compiles_nothing_that_preparing_did_not():
    before, after = lines(_AFTER_COMPILING, ROOT)
    assert before == after
    assert ": 1" in before
    assert ": 0" not in before


def test_kernels_of_equal_archives_are_one_file_to_compile(tmp_path):
    archives = []
    for name in ("one", "other"):
        folder = tmp_path / name
        folder.mkdir()
        archives.append(build_zip(folder))
    found = {
        lines(_LOADED_FROM, archive, tmp_path / "cache", NUMBA_DISABLE_JIT="1")[0]
        for archive in archives
    }
    (file,) = map(Path, found)
    assert file.read_bytes() == (ROOT / "solvers" / "least_squares" / "kernels.py").read_bytes()
    assert file.is_relative_to(tmp_path / "cache")
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_prepare_names_the_compiled_solvers(monkeypatch):
    monkeypatch.setattr(java, "make_class_archive", lambda: None)
    done = CliRunner().invoke(app, ["prepare"])
    assert done.exit_code == 0
    places = map(Path, re.findall(r"compiled solvers in (.*)\n", done.stdout))
    for place, kernel in zip(
        places, ("active_set", "dual_ascent", "round_node", "add_runs"), strict=True
    ):
        assert list(place.glob(f"__pycache__/kernels.{kernel}-*.nbc"))
    assert is_kept()


def test_workers_are_forked_with_kernels_where_they_are_kept(tmp_path):
    code = (
        "import jobs.pipeline.tasks.warm_daemon, sys; "
        "print({'solvers.least_squares.kernels', 'solvers.dual_newton.kernels'} <= {*sys.modules})"
    )
    assert lines(code, ROOT) == ["True"]
    assert lines(code, ROOT, tmp_path / "empty") == ["False"]


def test_who_comes_while_another_compiles_waits_for_it(tmp_path, monkeypatch):
    """Whoever is first in a folder holds it alone; those who come meanwhile load side by side."""
    events: list[str] = []
    inside, asked = threading.Event(), threading.Semaphore(0)
    together = threading.Barrier(2)
    flock = machine_code.fcntl.flock

    def told(handle: int, operation: int) -> None:
        if operation == machine_code.fcntl.LOCK_SH:
            asked.release()
        flock(handle, operation)

    def compile_first() -> None:
        with machine_code._after_compilers(tmp_path):
            inside.set()
            for _ in range(2):
                asked.acquire(timeout=10)
            time.sleep(0.1)  # who does not wait is in by now
            events.append("compiled")

    def come_later() -> None:
        with machine_code._after_compilers(tmp_path):
            events.append("loaded")
            together.wait(10)  # broken unless both are in at once

    monkeypatch.setattr(machine_code.fcntl, "flock", told)
    threads = [threading.Thread(target=compile_first)]
    threads[0].start()
    assert inside.wait(10)
    threads += [threading.Thread(target=come_later) for _ in range(2)]
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert events == ["compiled", "loaded", "loaded"]
    assert not together.broken


def test_a_folder_that_cannot_be_locked_is_used_all_the_same(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(machine_code.fcntl, "flock", refuse)
    with machine_code._after_compilers(tmp_path):
        pass
    with machine_code._after_compilers(tmp_path / "missing"):
        pass


@pytest.mark.long
def test_damaged_machine_code_is_compiled_again(tmp_path):
    """In the cache, for all processes that come after."""
    (file,) = lines(_LOADED_FROM, ROOT)
    folder = tmp_path / "topdown-das" / Path(file).parent.name
    shutil.copytree(Path(file).parent, folder)
    # One file for each processor that was compiled for; this process reads its own.
    sizes = {path: path.stat().st_size for path in folder.rglob("kernels.gradient*.nbc")}
    for path, size in sizes.items():
        os.truncate(path, size // 2)
    (file,) = lines(_LOADED_FROM, ROOT, tmp_path)
    assert Path(file).parent == folder
    kept = [path for path in sizes if path.exists()]  # what cannot be loaded is thrown away
    assert any(path.stat().st_size > sizes[path] / 2 for path in kept)


@pytest.mark.long
def test_where_nothing_can_be_kept_kernels_are_compiled_in_memory(tmp_path):
    (tmp_path / "cache").write_text("no folder")
    code = (
        _LOADED_FROM
        + "from solvers.least_squares.machine_code import compile_kernels\nprint(compile_kernels())"
    )
    file, place = lines(code, ROOT, tmp_path / "cache")
    assert not Path(file).exists()
    assert place == "()"


def test_nothing_is_compiled_before_a_node_is_solved_nor_matplotlib_imported_before_a_figure():
    """Neither `das --help` nor `das validate` waits for them, nor does naming the solvers."""
    code = (
        "import sys, jobs.cli.main, jobs.pipeline.config.load, jobs.design.planning.terminal, jobs.pipeline.run, solvers.node; "
        "print({'numba', 'matplotlib'} & {*sys.modules})"
    )
    assert lines(code, ROOT) == ["set()"]
