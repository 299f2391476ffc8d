"""The codebook of a release: the meaning of codes and names in its files."""

from __future__ import annotations

from typing import Literal

from jobs.pipeline.documents.document import document
from jobs.pipeline.documents.manifest import Attribute


@document
class CodedGroup:
    """A group of levels.

    Attributes:
      label: Name of the group.
      levels: Levels of the group.
    """

    label: str
    levels: tuple[str, ...]


@document
class CodedRecode:
    """A grouping of the levels of an attribute, for use in queries.

    Attributes:
      name: Name of the recode.
      attribute: Name of the attribute.
      groups: Groups, in order; every level is in one group.
    """

    name: str
    attribute: str
    groups: tuple[CodedGroup, ...]


@document
class CodedGeolevel:
    """A geolevel.

    Attributes:
      name: Name of the geolevel.
      digits: Length of its geocodes, which are prefixes of the geocodes below; 0 for the root `0`.
      geounits: Number of geounits; `geography/level=NAME` lists them.
      on_spine: Whether the geolevel is on the spine of the run.
      census_digits: Length of its census geocodes, if the run has another spine than the census;
        none of a geolevel that is not in the census.
    """

    name: str
    digits: int
    geounits: int
    on_spine: bool = True
    census_digits: int | None = None


@document
class CodedQuery:
    """A query with answers in files of the release.

    Attributes:
      query: Name of the query in files.
      answers: Number of answers per geounit.
      labels: Labels of the answers, in order; empty for more than 1,000 answers.
      measured: Geolevels with noisy answers.
      exact: Geolevels with exact answers.
      tabulated: Whether `tables` and `estimates/tables` include the query.
    """

    query: str
    answers: int
    labels: tuple[str, ...]
    measured: tuple[str, ...]
    exact: tuple[str, ...]
    tabulated: bool


@document
class CodedColumn:
    """A column.

    Attributes:
      name: Name of the column; `query: …` represents one column per answer.
      type: Type, in words.
      meaning: Meaning of the values.
    """

    name: str
    type: str
    meaning: str


@document
class CodedDataset:
    """A dataset, with the same columns at all geolevels.

    Attributes:
      path: Folder of the dataset; `level=…` represents one folder per geolevel.
      geolevels: Geolevels of the dataset; empty if it is not divided by geolevel.
      row: Meaning and use of a row.
      columns: Columns of the dataset.
    """

    path: str
    geolevels: tuple[str, ...]
    row: str
    columns: tuple[CodedColumn, ...]


@document
class Codebook:
    """The meaning of codes and names in the files of a release.

    Attributes:
      format: 1.
      name: Name of the run.
      records: Name of the records, such as `persons`.
      cells: Number of cells, which are combinations of levels. They are numbered from 0, and the
        last attribute varies fastest.
      attributes: Attributes of the schema; levels are numbered from 0.
      recodes: Groupings of levels.
      geolevels: Geolevels, the root first.
      queries: Queries with answers in files.
      datasets: Datasets and their columns.
    """

    format: Literal[1]
    name: str
    records: str
    cells: int
    attributes: tuple[Attribute, ...]
    recodes: tuple[CodedRecode, ...]
    geolevels: tuple[CodedGeolevel, ...]
    queries: tuple[CodedQuery, ...]
    datasets: tuple[CodedDataset, ...]
