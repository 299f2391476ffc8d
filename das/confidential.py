"""Confidential[T]: data that has not been protected yet, wrapped so that it cannot slip out."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Generic, NoReturn, ParamSpec, TypeVar

from das.errors import DasError

P = ParamSpec("P")
T = TypeVar("T")

_FRAMES = 4  # innermost places named by a redacted error


class Confidential(Generic[T]):
    """A value that must not leave the privacy core unprotected.

    It prints as its type alone and cannot be pickled, so it cannot reach a log, an exception text
    or another process by accident. Only the two doors of the firewall call `reveal`:
    `das.measure` (noisy, costs budget) and the answers of invariants (exact, listed in
    the manifest); besides them only the internal evaluation, which never enters a release.

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
    """Let an unforeseen exception of work on confidential data say where it arose, not its text.

    The texts of Python, numpy and Arrow may quote a count or a code. Errors raised on purpose quote
    none and pass as they are. The others become a RuntimeError without a cause, which Spark
    retries like any other.

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
        except Exception as error:  # noqa: BLE001 - whatever it is, its text must not get out
            text = without_text(error)
        raise RuntimeError(text)  # outside of the handler: else the exception itself is its context

    return run


def without_text(error: Exception) -> str:
    """Say of what kind an error is and where in the code it arose, without its text."""
    kind = type(error).__name__
    if isinstance(error, OSError) and error.errno is not None:
        kind += f" ({os.strerror(error.errno)})"
    frames = traceback.extract_tb(error.__traceback__)[1:][-_FRAMES:]
    places = " < ".join(f"{f.filename}:{f.lineno} in {f.name}" for f in reversed(frames))
    return f"{kind} at {places}; its text is withheld, it may quote confidential data"
