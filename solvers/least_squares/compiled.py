"""Hand a node problem to the compiled functions; needs the package numba."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pkgutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from das.arrays import BoolArray, FloatArray, IntArray
from solvers.dual_newton.blocks import Factors, factorise
from solvers.dual_newton.layers import FORBIDDEN
from solvers.least_squares import active_set
from solvers.least_squares.active_set import Guess
from solvers.least_squares.blocks import Quadratic, arrange
from solvers.least_squares.certificate import Point, certify
from solvers.least_squares.partitions import Partitions, TermSums
from solvers.problem import LeastSquaresTerm, NodeProblem, RoundingQuery

_KERNELS = "solvers.least_squares.kernels"
_SOURCE = pkgutil.get_data("solvers.least_squares", "kernels.py") or b""


def _load_kernels(folder: Path) -> ModuleType:
    """The module `kernels`, loaded from a copy in this folder.

    Machine code is kept beside the source it is made from. Beside an archive, as Spark ships it, or
    an installation without leave to write it cannot be, and every Spark application has its archive
    at another path; so all of them take it from where it was compiled once.
    """
    path = folder / "kernels.py"
    if not path.exists() or path.read_bytes() != _SOURCE:
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_bytes(_SOURCE)
        draft.replace(path)
    copied = importlib.util.spec_from_file_location(_KERNELS, path)
    if copied is None or copied.loader is None:
        raise ModuleNotFoundError(_KERNELS, name=_KERNELS, path=str(path))
    module = importlib.util.module_from_spec(copied)
    sys.modules[_KERNELS] = module  # by which machine code finds what it belongs to
    copied.loader.exec_module(module)
    return module


def _user_folder() -> Path:
    """A folder of this user alone, for kernels of this digest; a temporary one without a home.

    What lies in it is run: nobody else may write there, whatever the process's mask allows.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(_SOURCE).hexdigest()[:16]
    try:
        folder = cache / "topdown-das" / f"kernels-{digest}"
        for one in (folder.parent, folder):
            one.mkdir(parents=True, exist_ok=True, mode=0o700)
            one.chmod(0o700)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return _temporary_folder()


def _temporary_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="topdown-das-kernels-"))


def iterate(q: Quadratic, guess: Guess, start: Point, tolerance: float) -> tuple[Point, float, int]:
    """See `active_set.iterate`."""
    order = q.cells[q.cells < q.linear.shape[1]]  # blocks end to end
    x = np.ascontiguousarray(start.x[:, order])
    coupling, rows = start.coupling[order], np.array(start.rows, order="C")
    sums = _padded(q, start.sums)
    residual, steps = kernels.active_set(
        np.ascontiguousarray(guess.support[:, order]),
        np.array(guess.sides, order="C"),
        x,
        coupling,
        sums,
        rows,
        _arrays(q, order),
        tolerance,
        active_set.MOST_STEPS,
        active_set.STALE_STEPS,
    )
    widths = (e.targets.shape[1] for e in q.equalities)
    unpadded = tuple(mu[:, :m] for mu, m in zip(sums, widths, strict=True))
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    point = Point(np.ascontiguousarray(x[:, back]), coupling[back], unpadded, rows)
    return point, float(residual), int(steps)


def _padded(q: Quadratic, arrays: tuple[FloatArray, ...]) -> FloatArray:
    """float64[equalities, C, largest m]."""
    most = max((e.targets.shape[1] for e in q.equalities), default=0)
    out = np.zeros((len(arrays), len(q.linear), most))
    for number, array in enumerate(arrays):
        out[number, :, : array.shape[1]] = array
    return out


def _arrays(q: Quadratic, order: IntArray) -> tuple[Any, ...]:
    """The fields of a node problem in the order of `kernels`, blocks end to end."""
    k = len(order)
    starts = np.zeros(len(q.cells) + 1, np.int64)
    np.cumsum((q.cells < k).sum(1), out=starts[1:])
    groups = np.array([e.groups for e in q.equalities], np.int64).reshape(-1, k)
    return (
        q.scale,
        np.ascontiguousarray(q.linear[:, order]),
        np.zeros(k) if q.parent is None else q.parent[order],
        q.parent is not None,
        starts,
        np.ascontiguousarray(q.blocks),
        np.ascontiguousarray(q.outside[..., order]),
        np.ascontiguousarray(q.diagonal[:, order]),
        np.ascontiguousarray(q.free[:, order]),
        np.ascontiguousarray(groups[:, order]),
        _padded(q, tuple(e.targets for e in q.equalities)),
        np.array([e.targets.shape[1] for e in q.equalities], np.int64),
        np.array(q.is_inside, np.bool_),
        np.ascontiguousarray(q.coefficients[:, order]),
        np.ascontiguousarray(q.least),
        np.ascontiguousarray(q.most),
        q.penalty,
    )


def _pull(every: Partitions, weights: FloatArray) -> FloatArray:
    return np.asarray(kernels.pull(every.index, every.answers, np.ascontiguousarray(weights)))


def _join(index: IntArray, weights: FloatArray, cells: IntArray) -> FloatArray:
    return np.asarray(kernels.join(index, np.ascontiguousarray(weights), cells))


def _push(
    every: Partitions, weights: FloatArray, x: FloatArray
) -> tuple[FloatArray, FloatArray, float, float]:
    g, coarse, quadratic, linear = kernels.push(
        every.index, every.ends, every.answers, np.ascontiguousarray(weights), x
    )
    return g, coarse, float(quadratic), float(linear)


def _deal(
    x: FloatArray, give: FloatArray, free: BoolArray, parent: FloatArray
) -> tuple[FloatArray, BoolArray]:
    moved, held = kernels.deal(x, np.ascontiguousarray(give), free, parent)
    return moved, held


def project(
    field: FloatArray, unit: FloatArray, parent: FloatArray, start: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """See `matrix_free.project`; `parent` must be given."""
    level = np.full(field.shape[1], -np.inf) if start is None else start.copy()
    x = kernels.project(field, 1 / unit, parent, level, FORBIDDEN / 2)
    return x, level


def substitute(factors: Factors, right: FloatArray) -> FloatArray:
    """See `diagonal_blocks.substitute`."""
    place = factors.starts, factors.ends, factors.is_inverse
    return np.asarray(kernels.substitute(factors.flat, *place, right))


TERM_SUMS = TermSums(_pull, _join, _push, _deal)


def compile_kernels() -> Path:
    """Compile every kernel for the types it is called with, or load what was compiled before.

    Solves a small node, with all that is compiled.

    Returns:
      The folder of the machine code.
    """
    cells, two = np.arange(2), np.ones(2)
    term = LeastSquaresTerm(cells, np.ones((2, 2)), two)
    problem = NodeProblem("compiled", 2, 2 * cells + 1, (term,), (), ((RoundingQuery(cells),),))
    q = arrange(problem, (), TERM_SUMS)
    start = Point(np.zeros((2, 2)), np.zeros(2), (), np.zeros((2, 0)))
    point, _, _ = iterate(q, active_set.first_guess(q, TERM_SUMS), start, 1e-9)
    certify(problem, (), q, point, TERM_SUMS)
    project(two[:, None] * two, two, two)
    substitute(factorise(np.ones(1), np.ones(1, np.int64)), np.ones(1))
    return Path(kernels.active_set.stats.cache_path)


def _forget_machine_code(folder: Path) -> None:
    """Remove it file by file; another process may be writing in the same folders."""
    for path in (folder / "__pycache__").glob("*.nb[ci]"):
        path.unlink(missing_ok=True)


try:
    kernels = _load_kernels(_user_folder())
    compile_kernels()
except Exception:  # noqa: BLE001, damaged machine code may raise anything when it is read
    try:
        _forget_machine_code(_user_folder())
        kernels = _load_kernels(_user_folder())
        compile_kernels()
    except OSError:  # a full disk
        kernels = _load_kernels(_temporary_folder())
