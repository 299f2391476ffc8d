"""Put the place in a configuration before errors, and report all mistakes of a product together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from das.errors import ConfigError, DasError, meant


@contextmanager
def at(where: str) -> Iterator[None]:
    """Prefix the errors of a block with their place in the configuration.

    Args:
      where: File, key, or both; empty if the errors name their place themselves.
    """
    try:
        yield
    except DasError as error:
        place = f"{where}: {error.where}" if where else error.where
        raise type(error)(
            place, error.what, got=error.got, want=error.want, remedy=error.remedy
        ) from None


class Mistakes:
    """Errors of several blocks, kept until all have been tried.

    A nested block runs only if the outer block reaches it. So a part that depends on a part with a
    mistake reports nothing.
    """

    def __init__(self) -> None:
        self._errors: list[DasError] = []

    @contextmanager
    def at(self, where: str = "") -> Iterator[None]:
        """Keep the error of a block, with its place in the configuration."""
        try:
            with at(where):
                yield
        except DasError as error:
            self._errors.append(error)

    def refuse(self) -> None:
        """Raise all errors as one, of the kind of the first.

        Raises:
          DasError: At least one block had an error.
        """
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            first, *others = self._errors
            own = str(first).removeprefix(f"{first.where}: ")
            raise type(first)(first.where, " | ".join([own, *map(str, others)]))


def refuse_off_spine(
    where: str, names: Iterable[str], spine: Sequence[str], census: Sequence[str]
) -> None:
    """Refuse census geolevels off the spine, whose counts are sums over leaves after solving.

    Args:
      where: Key or file that names them.
      names: Geolevels; unknown names are not refused here, but by the code that reads them.
      spine: Geolevels of the spine of the run, root first.
      census: Geolevels of the census geocodes, which the data have.

    Raises:
      ConfigError: A name is a census geolevel that is not on the spine.
    """
    off = [name for name in names if name in census and name not in spine]
    if off:
        raise ConfigError(
            where,
            "names a geolevel of the census that is off the spine of this run: geography.spine "
            "replaces its geounits, so nothing is measured or solved there",
            got=off[0],
            want=f"one of {[*spine]}",
            remedy="name a geolevel of the spine; only output.tables, das tables, das estimate, "
            "das areas and das explore know those off it",
        )


def refuse_unknown(where: str, what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse names that are not among the known names.

    Args:
      where: Place of the names in the configuration, for the error.
      what: Predicate of the error, such as "names an unknown attribute".
      names: The names to check.
      known: All allowed names.

    Raises:
      ConfigError: A name is unknown; the first unknown name is quoted.
    """
    unknown = [name for name in names if name not in {*known}]
    if unknown:
        raise ConfigError(where, what, got=meant(unknown[0], known), want=[*known])
