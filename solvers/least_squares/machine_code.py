"""Machine code of the kernels: compiled once per machine and user, then loaded.

`kernels()` loads them at the first use in a process, which takes half a second; importing this
module does not. Compiling takes about 70 seconds of a core, once, by `das prepare` or by the first
task that needs them. A module of kernels has a function `compile_all`, which calls every kernel
with the types of its callers. Modules that it imports are compiled into it.
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
DUAL_ASCENT = "solvers.dual_newton.kernels"
FAMILIES = "solvers.families.kernels"
ANSWERS = "solvers.answers.kernels"
_MODULES = (SUPPORTS, DUAL_ASCENT, FAMILIES, ANSWERS)
# Modules that kernels import. They are part of the machine code, hence of its digest.
_PARTS = (
    "solvers.dual_newton.arrays",
    "solvers.dual_newton.elimination_kernels",
    "solvers.least_squares.arrays",
    "solvers.rounding.cost",
)

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

Fields = tuple[Any, ...]
"""Fields of a named tuple, in order, as arguments of kernels.

numba takes 0.1 ms per call to recognise a named tuple, and no time for a plain tuple.
"""


def compiled(kernel: Kernel, *, fastmath: set[str] | bool = False) -> Kernel:
    """Compile a function of a module of kernels for the types of its calls.

    Sums are evaluated in the order of the source, unless `fastmath` allows others.
    """
    import numba

    is_kept = os.path.exists(
        kernel.__code__.co_filename
    )  # kernels loaded from memory cannot be cached
    compiler = numba.njit(cache=is_kept, error_model="numpy", fastmath=fastmath)
    return cast("Kernel", compiler(kernel))


def compiled_into_kernels(kernel: Kernel) -> Kernel:
    """Compile a function into the kernels of other modules that call it."""
    import numba

    return cast("Kernel", numba.njit(error_model="numpy")(kernel))


def called_by_kernels(function: Kernel) -> Kernel:
    """Allow kernels to call a function that plain Python calls too."""
    import numba.extending

    numba.extending.register_jitable(function)
    return function


def compiled_in_any_order(kernel: Kernel) -> Kernel:
    """Compile a function whose sums may use vector instructions; infinities stay defined."""
    return compiled(kernel, fastmath={"reassoc", "contract", "nsz"})


@functools.cache
def kernels(name: str = SUPPORTS) -> ModuleType:
    """Return a module of kernels, each function compiled for the types of its calls.

    If the user's cache is not writable, each process compiles the kernels in memory.
    """
    folder = _user_folder(name)
    if folder is not None:
        with _after_compilers(folder):
            for _ in range(2):
                try:
                    return _loaded(name, folder)
                except Exception:  # noqa: BLE001, damaged machine code or a full disk raises anything
                    # File by file: another process may be writing in the same folders.
                    for path in (folder / "__pycache__").glob("*.nb[ci]"):
                        path.unlink(missing_ok=True)
    return _loaded(name, None)


@contextlib.contextmanager
def _after_compilers(folder: Path) -> Iterator[None]:
    """Wait until no other process compiles these kernels, so that the first compiles for all.

    The first process locks the folder exclusively while it compiles or loads. The others wait, and
    then load at the same time. If the first process died, each of them compiles.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        yield
        return
    try:
        # Without file locks, no process waits.
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
    """Return whether numba is installed, without which there are no kernels."""
    return importlib.util.find_spec("numba") is not None


def is_kept() -> bool:
    """Return whether this user's cache contains machine code of all kernels; loads nothing."""
    folders = [_user_folder(name) for name in _MODULES]
    return all(f is not None and any((f / "__pycache__").glob("*.nbc")) for f in folders)


def load_kernels() -> tuple[ModuleType, ...]:
    """Load and return all modules of kernels."""
    return tuple(kernels(name) for name in _MODULES)


def compile_kernels() -> tuple[Path, ...]:
    """Compile all kernels, or load machine code compiled before.

    Returns:
      The folders of the machine code; () if it is in memory only.
    """
    files = [Path(module.__file__ or "") for module in load_kernels()]
    return tuple(file.parent for file in files) if all(file.exists() for file in files) else ()


def _source(name: str) -> bytes:
    package, _, module = name.rpartition(".")
    return pkgutil.get_data(package, f"{module}.py") or b""


def _user_folder(name: str) -> Path | None:
    """Return a private folder of the user for kernels of this digest; None if impossible.

    Its contents are executed, so no other user may write there, whatever the umask allows.
    """
    # Digest of all sources of the machine code, since kernels call kernels of other modules.
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
    """Loader of a module without a file, for which numba stores nothing."""

    def get_source(self, fullname: str) -> str:
        return _source(fullname).decode()


def _loaded(name: str, folder: Path | None) -> ModuleType:
    """Load and compile a module from a copy in the folder, or from memory.

    numba stores machine code next to the source. That is impossible in an archive, as Spark ships
    it, or in a read-only installation, and every Spark application has another path. So all
    processes load from the folder where the module was compiled once.
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
    sys.modules[name] = module  # machine code looks up its module by name
    spec.loader.exec_module(module)
    module.compile_all()
    return module
