"""Confidential[T]: data that has not been protected yet, wrapped so that it cannot slip out."""

from __future__ import annotations

from typing import Generic, NoReturn, TypeVar

from das.errors import DasError

T = TypeVar("T")


class Confidential(Generic[T]):
    """A value that must not leave the privacy core unprotected.

    It prints as its type alone and cannot be pickled, so it cannot reach a log, an exception text
    or another process by accident. Only the two doors of the firewall call `reveal`:
    `das.measure.measure` (noisy, costs budget) and the answers of invariants (exact, listed in
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
