"""Confidential[T]: a wrapper that keeps unprotected data out of logs, errors and other processes.

Work on such data runs under `redact_errors`, which withholds the texts of unexpected errors.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Generic, NoReturn, ParamSpec, TypeVar

from das.errors import DasError

P = ParamSpec("P")
T = TypeVar("T")

_FRAMES = 4  # innermost stack frames in a redacted error


class Confidential(Generic[T]):
    """A value that must not leave the privacy core unprotected.

    Its repr shows only the type, and it cannot be pickled. So it cannot reach a log, an error
    message or another process by accident. Only three trusted entry points call `reveal`:
    `das.measure` (noisy, costs budget), the answers of invariants (exact, listed in the manifest)
    and the internal evaluation, which never enters a release.

    >>> Confidential([1, 2])
    Confidential[list](redacted)
    """

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def reveal(self) -> T:
        """Return the unprotected value."""
        return self._value

    def __repr__(self) -> str:
        return f"Confidential[{type(self._value).__name__}](redacted)"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise DasError("confidential value", "must not be pickled or sent to another process")

    __getstate__ = __reduce__


def redact_errors(work: Callable[P, T]) -> Callable[P, T]:
    """Withhold the texts of unexpected exceptions raised by work on confidential data.

    Messages of Python, numpy and Arrow may quote a count or a code. `DasError` quotes none and
    passes unchanged. Other exceptions become a RuntimeError without a cause that names the type and
    the source location. Spark retries it like any other error.

    >>> @redact_errors
    ... def parse(count: str) -> int:
    ...     return int(count)
    >>> parse("7919393x")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    RuntimeError: ValueError at ... in parse; its text is withheld, it may quote confidential data
    """

    @wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return work(*args, **kwargs)
        except DasError:
            raise
        except Exception as error:  # noqa: BLE001 - the text of any exception must be withheld
            text = without_text(error)
        raise RuntimeError(text)  # after the handler, so that the exception is not its context

    return run


def without_text(error: Exception) -> str:
    """Describe an error by its type and its location in the code, without its text."""
    kind = type(error).__name__
    if isinstance(error, OSError) and error.errno is not None:
        kind += f" ({os.strerror(error.errno)})"
    frames = traceback.extract_tb(error.__traceback__)[1:][-_FRAMES:]
    places = " < ".join(f"{f.filename}:{f.lineno} in {f.name}" for f in reversed(frames))
    return f"{kind} at {places}; its text is withheld, it may quote confidential data"
