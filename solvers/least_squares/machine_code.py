"""The kernels as machine code: compiled once per machine and user, and found again.

`kernels()` loads them at the first use of a process, which takes half a second; importing this
module does not. Compiling them takes about 45 seconds of a core, once, by `das prepare` or by the
first task that needs them.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import pkgutil
import sys
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import numpy as np

_KERNELS = "solvers.least_squares.kernels"


@functools.cache
def kernels() -> ModuleType:
    """The module `kernels`, each function compiled for the types it is called with.

    What cannot be kept in the user's cache is compiled anew by each process, in memory.
    """
    folder = _user_folder()
    if folder is not None:
        try:
            return _compiled(_copied(folder))
        except Exception:  # noqa: BLE001, damaged machine code may raise anything when it is read
            _forget_machine_code(folder)
        try:
            return _compiled(_copied(folder))
        except OSError:  # a full disk
            pass
    return _compiled(_in_memory())


def is_kept() -> bool:
    """Whether this user's cache holds machine code of these kernels; loads nothing."""
    folder = _user_folder()
    return folder is not None and any((folder / "__pycache__").glob("kernels.active_set-*.nbc"))


def compile_kernels() -> Path | None:
    """Compile the kernels, or load what was compiled before.

    Returns:
      The folder of the machine code; None if it cannot be kept.
    """
    module = kernels()
    file = Path(module.__file__ or "")
    return Path(module.active_set.stats.cache_path) if file.exists() else None


def _source() -> bytes:
    return pkgutil.get_data("solvers.least_squares", "kernels.py") or b""


def _user_folder() -> Path | None:
    """A folder of this user alone, for kernels of this digest; None if there can be none.

    What lies in it is run: nobody else may write there, whatever the process's mask allows.
    """
    digest = hashlib.sha256(_source()).hexdigest()[:16]
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = cache / "topdown-das" / f"kernels-{digest}"
        for private in (folder.parent, folder):
            private.mkdir(parents=True, exist_ok=True, mode=0o700)
            private.chmod(0o700)
        return folder if os.access(folder, os.W_OK) else None
    except (OSError, RuntimeError):  # a user without a home
        return None


def _copied(folder: Path) -> ModuleType:
    """The module from a copy in this folder, with machine code kept beside the copy.

    numba keeps machine code beside the source it is made from. Beside an archive, as Spark ships
    it, or an installation that may not be written it cannot be, and every Spark application has its
    archive at another path; so all of them take it from where it was compiled once.
    """
    path, source = folder / "kernels.py", _source()
    if not path.exists() or path.read_bytes() != source:
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_bytes(source)
        draft.replace(path)
    return _executed(importlib.util.spec_from_file_location(_KERNELS, path))


class _MemoryLoader(InspectLoader):
    """Loads the module without a file, so that numba keeps nothing."""

    def get_source(self, fullname: str) -> str:
        return _source().decode()


def _in_memory() -> ModuleType:
    return _executed(ModuleSpec(_KERNELS, _MemoryLoader(), origin="in memory"))


def _executed(spec: ModuleSpec | None) -> ModuleType:
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(_KERNELS, name=_KERNELS)
    module = importlib.util.module_from_spec(spec)
    module.__file__ = spec.origin
    sys.modules[_KERNELS] = module  # by which machine code finds what it belongs to
    spec.loader.exec_module(module)
    return module


def _compiled(module: ModuleType) -> ModuleType:
    """Call every kernel with a node of two children and two cells, types as callers hand over."""
    one, two, square = np.ones(1), np.ones(2), np.ones((2, 2))
    none, nowhere = np.zeros((2, 0)), np.zeros(0, np.int64)
    cells, ends = np.arange(2), np.array([0, 2])
    free = np.ones((2, 2), np.bool_)
    module.adjoint(cells[None], square, np.ones((1, 2)))
    module.gram_blocks(cells[None], np.ones((1, 1)), cells[None])
    module.gradient(cells[None], ends, square, np.ones((1, 2)), square)
    module.project_by_cell(square, square, free, two)
    module.project_by_child(square, two, two, two.copy(), -1.0)
    module.substitute(one, np.arange(2), np.arange(2), np.zeros(1, np.bool_), one)
    no_equalities = np.zeros((0, 2), np.int64), np.zeros((0, 2, 0)), nowhere, np.zeros(0, np.bool_)
    data = (
        two,
        square,
        two,
        True,
        ends,
        np.eye(2)[None, None],
        np.zeros((1, 0, 2)),
        np.ones((1, 2)),
        free,
        *no_equalities,
        np.zeros((0, 2)),
        none,
        none,
        1e4,
    )
    start = np.zeros((2, 2)), np.zeros(2), np.zeros((0, 2, 0)), none.copy()
    module.active_set(free, none.astype(np.int64), *start, data, 1e-9, 1, 1)
    return module


def _forget_machine_code(folder: Path) -> None:
    """Remove it file by file; another process may be writing in the same folders."""
    for path in (folder / "__pycache__").glob("*.nb[ci]"):
        path.unlink(missing_ok=True)
