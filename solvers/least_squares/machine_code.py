"""The kernels as machine code: compiled once per machine and user, and found again.

`kernels()` loads them at the first use of a process, which takes half a second; importing this
module does not. Compiling them takes about 70 seconds of a core, once, by `das prepare` or by the
first task that needs them. A module of kernels has a function `compile_all`, which calls every
kernel with types as callers hand over. What it imports is compiled with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

SUPPORTS = "solvers.least_squares.kernels"
CLIMBING = "solvers.dual_newton.kernels"
FAMILIES = "solvers.families.kernels"
ANSWERS = "solvers.answers.kernels"
_MODULES = (SUPPORTS, CLIMBING, FAMILIES, ANSWERS)
# What kernels import: compiled into them, so that it changes with their machine code.
_PARTS = (
    "solvers.dual_newton.arrays",
    "solvers.dual_newton.elimination_kernels",
    "solvers.least_squares.arrays",
    "solvers.rounding.cost",
)

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

Fields = tuple[Any, ...]
"""The fields of a named tuple, in order, as kernels are handed them.

numba takes a tenth of a millisecond to recognise a named tuple at each call, a plain one none.
"""


def compiled(kernel: Kernel, *, fastmath: set[str] | bool = False) -> Kernel:
    """Have a function of a module of kernels compiled for the types it is called with.

    Sums are taken in the order they are written in, unless `fastmath` allows others.
    """
    import numba

    is_kept = os.path.exists(kernel.__code__.co_filename)  # what is in memory cannot be kept
    compiler = numba.njit(cache=is_kept, error_model="numpy", fastmath=fastmath)
    return cast("Kernel", compiler(kernel))


def compiled_into_kernels(kernel: Kernel) -> Kernel:
    """Have a function compiled where kernels of another module call it, and kept with these."""
    import numba

    return cast("Kernel", numba.njit(error_model="numpy")(kernel))


def called_by_kernels(function: Kernel) -> Kernel:
    """Let kernels call a function that plain Python calls, too."""
    import numba.extending

    numba.extending.register_jitable(function)
    return function


def compiled_in_any_order(kernel: Kernel) -> Kernel:
    """Have a function compiled whose sums may use vector instructions; infinities keep meaning."""
    return compiled(kernel, fastmath={"reassoc", "contract", "nsz"})


@functools.cache
def kernels(name: str = SUPPORTS) -> ModuleType:
    """Return a module of kernels, each function compiled for the types it is called with.

    What cannot be kept in the user's cache is compiled anew by each process, in memory.
    """
    folder = _user_folder(name)
    if folder is not None:
        with _after_compilers(folder):
            for _ in range(2):
                try:
                    return _loaded(name, folder)
                except Exception:  # noqa: BLE001, damaged machine code raises anything; a full disk, too
                    # File by file: another process may be writing in the same folders.
                    for path in (folder / "__pycache__").glob("*.nb[ci]"):
                        path.unlink(missing_ok=True)
    return _loaded(name, None)


@contextlib.contextmanager
def _after_compilers(folder: Path) -> Iterator[None]:
    """Wait until nobody compiles these kernels, so that the first process does for all.

    Who comes first holds the folder alone, whether it compiles or loads. Those who come meanwhile
    wait, and then load side by side. If it died, they all compile, each for itself.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        yield
        return
    try:
        # A file system without locks: nobody waits.
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


@functools.cache
def has_compiler() -> bool:
    """Whether numba is installed, without which there are no kernels."""
    return importlib.util.find_spec("numba") is not None


def is_kept() -> bool:
    """Whether this user's cache holds machine code of all kernels; loads nothing."""
    folders = [_user_folder(name) for name in _MODULES]
    return all(f is not None and any((f / "__pycache__").glob("*.nbc")) for f in folders)


def load_kernels() -> tuple[ModuleType, ...]:
    """All modules of kernels."""
    return tuple(kernels(name) for name in _MODULES)


def compile_kernels() -> tuple[Path, ...]:
    """Compile all kernels, or load what was compiled before.

    Returns:
      The folders of the machine code; () if it cannot be kept.
    """
    files = [Path(module.__file__ or "") for module in load_kernels()]
    return tuple(file.parent for file in files) if all(file.exists() for file in files) else ()


def _source(name: str) -> bytes:
    package, _, module = name.rpartition(".")
    return pkgutil.get_data(package, f"{module}.py") or b""


def _user_folder(name: str) -> Path | None:
    """A folder of this user alone, for kernels of this digest; None if there can be none.

    What lies in it is run: nobody else may write there, whatever the process's mask allows.
    """
    # Of all that may be part of the machine code: kernels call those of other modules.
    sources = map(_source, (name, *_MODULES, *_PARTS, __name__))
    digest = hashlib.sha256(b"".join(sources)).hexdigest()[:16]
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = cache / "topdown-das" / f"kernels-{digest}"
        for private in (folder.parent, folder):
            private.mkdir(parents=True, exist_ok=True, mode=0o700)
            private.chmod(0o700)
        return folder if os.access(folder, os.W_OK) else None
    except (OSError, RuntimeError):  # a user without a home
        return None


class _MemoryLoader(InspectLoader):
    """Loads a module without a file, so that numba keeps nothing."""

    def get_source(self, fullname: str) -> str:
        return _source(fullname).decode()


def _loaded(name: str, folder: Path | None) -> ModuleType:
    """Load and compile a module from a copy in this folder, or from memory.

    numba keeps machine code beside the source it is made from. Beside an archive, as Spark ships
    it, or an installation that may not be written it cannot be, and every Spark application has its
    archive at another path; so all of them take it from where it was compiled once.
    """
    spec: ModuleSpec | None = ModuleSpec(name, _MemoryLoader(), origin="in memory")
    if folder is not None:
        path, source = folder / "kernels.py", _source(name)
        if not path.exists() or path.read_bytes() != source:
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_bytes(source)
            draft.replace(path)
        spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(name, name=name)
    module = importlib.util.module_from_spec(spec)
    module.__file__ = spec.origin
    sys.modules[name] = module  # by which machine code finds what it belongs to
    spec.loader.exec_module(module)
    module.compile_all()
    return module
