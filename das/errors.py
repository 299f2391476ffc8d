"""Every error that this project raises on purpose.

DasError
├── ConfigError        a configuration file is invalid                         exit code 2
├── InputError         a data file does not match the configuration            exit code 2
├── SchemaError        attributes, recodes, cells or queries do not fit        exit code 2
├── GeographyError     geocodes and the spine do not fit                       exit code 2
├── OutputError        a folder cannot be written or belongs to another run    exit code 2
├── BudgetError        a budget, allocation or noise parameter is invalid      exit code 3
│   └── LedgerError    the spent budget differs from the granted budget        exit code 3
│       └── SpentError a part failed after its noise was drawn                 exit code 3
├── InfeasibleError    a node problem has no solution                          exit code 4
├── SolverError        a solver stopped without a certified solution           exit code 5
├── VerificationError  a release breaks a guarantee, found by the final check  exit code 6
└── RuntimeSetupError  Java, Spark or a library is missing on this machine     exit code 7

Each error has its parts as attributes and can be pickled, because it crosses process borders.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import ClassVar

_ALIKE = 0.65  # least similarity of a suggested name: tract is not state; default, not measured
# Longest parts of a message, in characters: the value in "got" may be a whole file.
_LONGEST_WHERE, _LONGEST_WHAT, _LONGEST_GOT, _LONGEST_VALUE = 600, 4000, 200, 1000


class DasError(Exception):
    """Base class of all errors raised on purpose.

    The message reads «where: what; got ...; expected ...; do ...». It never quotes a code, geocode
    or count of the data, since messages are written to logs. Long texts are cut in their middle,
    and control characters are escaped.

    >>> print(ConfigError("run.yaml: privacy.rho", "must be positive", got="0", want="a fraction"))
    run.yaml: privacy.rho: must be positive; got 0; expected a fraction
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        where: str,
        what: str,
        *,
        got: object = None,
        want: object = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(where, what)
        self.where = _shown(where, _LONGEST_WHERE)
        self.what = _shown(what, _LONGEST_WHAT)
        self.got = None if got is None else _shown(got, _LONGEST_GOT)
        self.want = None if want is None else _shown(want, _LONGEST_VALUE)
        self.remedy = None if remedy is None else _shown(remedy, _LONGEST_VALUE)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}"
        if self.got is not None:
            text += f"; got {self.got}"
        if self.want is not None:
            text += f"; expected {self.want}"
        if self.remedy is not None:
            text += f"; {self.remedy}"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        make = partial(type(self), got=self.got, want=self.want, remedy=self.remedy)
        return make, (self.where, self.what)


def _shown(value: object, longest: int) -> str:
    r"""Format a value as one line of printable text of bounded length; idempotent.

    >>> _shown("a" * 99, 20), _shown("a\x1b[2J", 20)
    ('aaaaaaaa ... aaaaaaa', 'a\\x1b[2J')
    """
    try:
        text = str(value)
    except ValueError:  # an integer of more digits than Python converts
        text = f"{type(value).__name__} of very many digits"
    text = _cut(text, longest)
    if not text.isprintable():
        escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
        text = _cut("".join(escaped), longest)
    return text


def _cut(text: str, longest: int) -> str:
    """Cut the middle out of a text that is too long."""
    if len(text) <= longest:
        return text
    between = " ... "
    start = (longest - len(between) + 1) // 2
    return text[:start] + between + text[len(text) - (longest - len(between) - start) :]


def meant(name: str, known: Iterable[str]) -> str:
    """Return an unknown name with the most similar known name, if there is one.

    >>> meant("marital", ["sex", "marital_status"]), meant("x", ["sex"])
    ('marital, did you mean marital_status?', 'x')
    """
    plain = {one.casefold(): one for one in known}
    close = get_close_matches(name.casefold(), plain, n=1, cutoff=_ALIKE)
    return f"{name}, did you mean {plain[close[0]]}?" if close else name


def require_distinct(names: Sequence[str], error: type[DasError], where: str, what: str) -> None:
    """Raise an error that lists the names that occur more than once, if there are some."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise error(where, what, got=twice)


class ConfigError(DasError):
    """A configuration file is invalid."""

    exit_code = 2


class InputError(DasError):
    """A data file does not match the configuration."""

    exit_code = 2


class SchemaError(DasError):
    """Attributes, recodes, cells or queries do not fit together."""

    exit_code = 2


class GeographyError(DasError):
    """Geocodes and the spine do not fit together."""

    exit_code = 2


class OutputError(DasError):
    """A folder cannot be written, or belongs to another configuration."""

    exit_code = 2


class DamageError(OutputError):
    """A published file is missing or was changed."""

    exit_code = 6


class BudgetError(DasError):
    """A budget, an allocation or a noise scale cannot be used."""

    exit_code = 3


class LedgerError(BudgetError):
    """The spent budget differs from the granted budget."""


class SpentError(LedgerError):
    """Measuring failed after noise was drawn: the budget of this part of the run is spent."""


class InfeasibleError(DasError):
    """A node problem has no solution."""

    exit_code = 4


class SolverError(DasError):
    """A solver stopped without a certified solution."""

    exit_code = 5


class VerificationError(DasError):
    """A result breaks a guarantee of the release."""

    exit_code = 6


class RuntimeSetupError(DasError):
    """Something this machine needs (Java, Spark, a library) is missing or unusable."""

    exit_code = 7
