"""The codebook of a release: what codes and names in its files stand for."""

from __future__ import annotations

from typing import Literal

from jobs.pipeline.documents.document import document
from jobs.pipeline.documents.manifest import Attribute


@document
class CodedGroup:
    """A group of levels.

    Attributes:
      label: What it is called.
      levels: Its levels.
    """

    label: str
    levels: tuple[str, ...]


@document
class CodedRecode:
    """A grouping of the levels of an attribute, which queries may name.

    Attributes:
      name: Its name.
      attribute: The attribute.
      groups: Its groups, in order; every level is in one.
    """

    name: str
    attribute: str
    groups: tuple[CodedGroup, ...]


@document
class CodedGeolevel:
    """A geolevel.

    Attributes:
      name: Its name.
      digits: Length of its geocodes, which are the first characters of those below; 0 for `0`, the
        whole.
      geounits: How many there are; `geography/level=NAME` lists them.
      on_spine: Whether noise was added to it, by these geocodes.
      census_digits: Where the run has another spine than the census, length of its geocodes of the
        census; none of a geolevel that the spine alone has.
    """

    name: str
    digits: int
    geounits: int
    on_spine: bool = True
    census_digits: int | None = None


@document
class CodedQuery:
    """A query that files of the release answer.

    Attributes:
      query: Its name, as files have it.
      answers: How many answers it has in each geounit.
      labels: Of the answers, in order; none of a query with more than 1,000.
      measured: Geolevels with noisy answers to it.
      exact: Geolevels with exact answers to it.
      tabulated: Whether `tables` and `estimates/tables` have it.
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
      name: Its name; `query: …` stands for one column per answer.
      type: In words.
      meaning: What it holds.
    """

    name: str
    type: str
    meaning: str


@document
class CodedDataset:
    """A dataset, of all geolevels.

    Attributes:
      path: Its folder; `level=…` stands for one folder per geolevel.
      geolevels: Those it is there for; none if it is not cut by geolevel.
      row: What a row is, and what it is good for.
      columns: Its columns.
    """

    path: str
    geolevels: tuple[str, ...]
    row: str
    columns: tuple[CodedColumn, ...]


@document
class Codebook:
    """What codes and names in the files of a release stand for.

    Attributes:
      format: 1.
      name: Name of the run.
      records: What is counted, such as `persons`: one record is one of these.
      cells: Number of combinations of levels. They are numbered from 0 in the order of the
        attributes, the last of which runs fastest.
      attributes: The attributes; levels are numbered from 0.
      recodes: Groupings of their levels.
      geolevels: The geolevels, the root first.
      queries: The queries that files answer.
      datasets: The datasets and their columns.
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
