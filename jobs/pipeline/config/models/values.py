"""Values of configuration files: exact numbers, text, paths, names. All models are frozen."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializerFunctionWrapHandler,
    StringConstraints,
    Tag,
    model_serializer,
    model_validator,
)

from das.errors import BudgetError
from das.rational import parse_fraction
from jobs.pipeline.config.local_path import local_path, read_place
from jobs.pipeline.storage.place import Place


def _exact(value: object) -> Fraction:
    try:
        return parse_fraction(value, "value")
    except BudgetError as error:
        raise ValueError(str(error).removeprefix("value: ")) from None


def _text(value: object) -> object:
    """Return a code as text; YAML reads an unquoted 12 as an integer, and yes as a bool."""
    if isinstance(value, bool | float):
        raise ValueError(f"must be text; put quotes around it; got {value!r}")
    if isinstance(value, str):
        if len(value) > _LONGEST_TEXT:
            raise ValueError(f"must have at most {_LONGEST_TEXT} characters; got {len(value)}")
        if any(ord(c) < 32 or 127 <= ord(c) < 160 or "\ud800" <= c <= "\udfff" for c in value):
            raise ValueError(f"holds a control character or half of a character; got {value!a}")
    return str(value) if isinstance(value, int) else value


def _listed(value: object) -> object:
    """Return a single range, such as 0..14, as a list with one entry; keep other values."""
    return [value] if isinstance(value, str) and ".." in value else value


def _whole(value: object) -> object:
    """Return a whole number; refuse booleans, since YAML reads yes as one and Python as 1."""
    if isinstance(value, bool | float):
        raise ValueError(f"must be a whole number; got {value!r}")
    return value


def _delimiter(value: object) -> str:
    if not isinstance(value, str) or len(value) != 1 or not (value == "\t" or " " <= value <= "~"):
        raise ValueError(f'must be one character, such as ";" or "\\t"; got {value!a:.99}')
    if value.isalnum() or value == '"':
        raise ValueError(f"must not be a letter, a digit or a quotation mark; got {value!r}")
    return value


_LONGEST_TEXT = 20_000  # the source of an allocation names all tables it was made for


SURVEY = "survey"  # the kind of the run file of a survey
LONGEST_NAME = 100  # geolevels are names of folders


Exact = Annotated[Fraction, BeforeValidator(_exact)]


Text = Annotated[str, BeforeValidator(_text)]


Levels = Annotated[list[Text], BeforeValidator(_listed)]


ProductName = Annotated[
    str,
    BeforeValidator(_text),
    StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=LONGEST_NAME),
]


Whole = Annotated[int, BeforeValidator(_whole)]


Delimiter = Annotated[
    str, BeforeValidator(_delimiter), Field(description="Field separator of CSV files.")
]


Quoting = Annotated[
    Literal["double", "none"],
    Field(
        description="double: a field of a CSV file may stand in quotation marks, within which two "
        "stand for one. none: no field does, and a quotation mark is text like any other."
    ),
]


LeadingZeros = Annotated[
    Literal["kept", "lost"],
    Field(
        description="lost: a program took the geocodes for numbers, which have no leading zeros; "
        "they are put back, up to the length of a geocode of the geolevel. Codes with letters stay "
        "as they are."
    ),
]


LocalPath = Annotated[Path, BeforeValidator(local_path)]
StoredPath = Annotated[Place, PlainValidator(read_place), PlainSerializer(str, when_used="json")]


FORMAT = 3
"""Format of run files."""


class Model(BaseModel):
    """A part of a configuration file: frozen, and without unknown keys.

    Attributes:
      later: Keys that earlier versions did not have. They are not written while they have their
        defaults, so the digests of older run folders stay unchanged.
    """

    later: ClassVar[tuple[str, ...]] = ()

    # Built with the first file read: models of files that a command does not read are never built.
    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, defer_build=True
    )

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the keys to write: all except keys of `later` at their defaults."""
        document: dict[str, Any] = handler(self)
        for key in self.later:
            if getattr(self, key) == type(self).model_fields[key].default:
                document.pop(key, None)
        return document


class GeocodePart(Model):
    """One of several columns whose texts make a geocode, put together in their order."""

    column: Text
    """Column of the file."""

    digits: Whole = Field(ge=1, le=100)
    """Number of characters of the geocode that the column holds."""

    @model_validator(mode="before")
    @classmethod
    def _with_digits(cls, value: object) -> object:
        if isinstance(value, str):
            raise ValueError(
                f"has no length; write {{column: {value}, digits: ...}}, with the number of its "
                "characters in the geocode"
            )
        return value


class GeocodeTable(Model):
    """Columns with codes of any kind, which a public table translates to geocodes."""

    table: StoredPath
    """CSV file with commas, or Parquet file: a column `geocode`, and the columns below. Workers
    read it, as they read the data."""

    columns: list[Text] = Field(min_length=1)
    """Columns of the file whose codes, together, are those of one row of the table."""


def _kind_of_geocode(value: object) -> str:
    if isinstance(value, list):
        return "geocode_parts"
    return "geocode_table" if isinstance(value, dict | GeocodeTable) else "geocode_column"


GeocodeColumns = Annotated[
    Annotated[Text, Tag("geocode_column")]
    | Annotated[list[GeocodePart], Field(min_length=2), Tag("geocode_parts")]
    | Annotated[GeocodeTable, Tag("geocode_table")],
    Discriminator(_kind_of_geocode),
    Field(
        description="Column with the leaf geocode, or several that make it, or a table that "
        "translates codes of any kind."
    ),
]


def names_of(geocode: GeocodeColumns) -> tuple[str, ...]:
    """Return the columns of a geocode, as a tuple."""
    if isinstance(geocode, GeocodeTable):
        return tuple(geocode.columns)
    return (geocode,) if isinstance(geocode, str) else tuple(part.column for part in geocode)


def digits_of(geocode: GeocodeColumns) -> int | None:
    """Return the stated length of a geocode of several columns; None where none is stated."""
    return sum(part.digits for part in geocode) if isinstance(geocode, list) else None
