"""Write the configuration reference: `python -m jobs.cli.reference docs/configuration.md`.

Everything but the examples comes from `jobs.pipeline.config.models`; a test keeps the written file
equal to what this module makes, and loads the examples.
"""

from __future__ import annotations

import json
import sys
from enum import Enum
from fractions import Fraction
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from jobs.cli.pages import PLAIN, nested, section, words
from jobs.pipeline.config.models.allocation import AllocationFile
from jobs.pipeline.config.models.equity import EquityFile
from jobs.pipeline.config.models.run import RunConfig, model_fields
from jobs.pipeline.config.models.schema import SchemaFile
from jobs.pipeline.storage.place import StoredPlace
from jobs.survey.models import SurveyConfig

_PLAIN = {**PLAIN, Fraction: "fraction", Path: "path", StoredPlace: "address"}

_INTRODUCTION = """# Configuration

Three kinds of YAML file describe a run. A **run file** names a **schema file** and an **allocation
file** for each of its products; all are read and checked before any data is touched
(`das validate RUN.yaml`). A **survey file** describes means, tables and microdata of a person-level
file without geography ([surveys](survey.md)), and stands alone. A **file of groups** says for whom
`das plan --equity` plans ([planning](planning.md#no-group-left-behind)).

- Unknown keys and keys given twice are errors. Every error names the file and the key.
- A **fraction** is exact: text such as `"51/36352"`, `"0.25"` (which is 1/4) or a whole number, of
  at most 100 digits. A floating-point number such as `0.1` without quotes is refused, because it is
  not 1/10.
- **Text** that looks like a number may be written without quotes only if it is a whole number
  without leading zeros; put quotes around codes such as `"01"`, and around `"yes"` and `"no"`.
- What YAML 1.1 reads otherwise than people do is refused, and the message quotes it: `010` (which
  is 8), `1:30` (90), `0b11` (3), `1_000`, dates without quotes. So are tags such as `!!int`, merged
  maps (`<<`), lists or maps as keys, nesting of more than 50 maps and lists, files of more
  than 2 MiB or 100,000 values.
- A relative **path** is relative to the folder of the run file. A path names a file or folder of
  this machine; where an address may stand too, such as `s3://bucket/x`, the tables below say
  so, and [storage](storage.md) which stores there are. Write `file:///data` as `/data`. A path may
  not begin with `~`, which would be another account or folder for every user.
- A **query** is `total`, `detailed` (all cells), or names of attributes or recodes joined by `*`,
  such as `hispanic * cenrace`. At most one name per attribute. Tables may also use functions of
  them, such as `prefix(age)`: see [queries](data-model.md#queries).
- **Products** are made in the order in which they stand in the file. One may be limited by the
  exact answers of another that stands before it (`exact`, under `invariants`). A
  product before the last may not have the name of a folder of a release.
- A run folder belongs to one configuration digest. The keys under `runtime`, `solve`, `output` and
  `evaluate`, `name` and `privacy.account` do not enter it; all others do. Of the schema and the
  allocation their contents count, not their paths; paths to data count as written, so that a
  project can move.
- The queries of every geolevel of an allocation must have full column rank, so that no count of a
  cell stays open: give `detailed` a share, or a weight in its `workload`. It is decided exactly,
  for any number of cells; leaving it out is a budget error.

Files of **format 1**, which have no key `format`, are refused. What stands at their top belongs
under `products.persons`: `schema`, `data`, `invariants`, `solve` and `evaluate`; of `privacy` the
keys `rho`, `epsilon`, `epsilon_from`, `allocation`, `lazy_queries` and `product`; of `output` the
keys `microdata`, `tables`, `table_formats` and `h1`. The section `units` belongs before it, under
`products.units`, with `privacy.product: units` if it names none, and `units: QUERY` of facilities
becomes `exact: {product: units, query: QUERY}`. The same run has the same digest in both formats: a
folder that was begun with a file of format 1 goes on with one of format 2.

This page is generated from the models in `jobs/pipeline/config/models` by `make docs`.
"""

SCHEMA_EXAMPLE = """\
name: toy
attributes:                       # the axes of the histogram; the last varies fastest
  - name: sex
    levels: [female, male]
  - name: age
    levels: [under_18, 18_to_64, 65_and_over]
recodes:                          # groupings of the levels of one attribute, for queries
  - name: votingage
    attribute: age
    groups:                       # every level in exactly one group
      minor: [under_18]
      adult: [18_to_64, 65_and_over]
"""

ALLOCATION_EXAMPLE = """\
name: toy
source: Made up for this page.    # where the numbers come from
levels:                           # every geolevel of the spine; level shares sum to exactly 1
  state:
    share: "1/2"
    queries:                      # query shares of each geolevel sum to exactly 1
      total: "1/4"
      votingage * sex: "1/4"
      detailed: "1/2"             # required at every geolevel
  county:
    share: "1/4"
    queries: {total: "1/2", detailed: "1/2"}
  block:
    share: "1/4"
    workload:                     # instead of queries: measure what is best for these tables
      method: auto
      tables: {total: 1, age: 1, detailed: "1/2"}         # weights
      bases: {age: [prefix]}      # all counts up to an age
"""

RUN_EXAMPLE = """\
format: 2
name: example
geography:
  levels:                         # root first; a geocode's first digits name its ancestors
    - {name: state, digits: 2}
    - {name: county, digits: 5}
    - {name: block, digits: 10}
  geounits:                       # public list of all blocks, empty ones too
    {path: blocks.csv, geocode: geocode, names: {county: county_name}}
  spine: null                     # or another, such as {split: {geolevel: state, by: aian}}
privacy:                          # of all products
  definition: zcdp                # or pure: then epsilon alone, and discrete Laplace noise
  delta: "1/10000000000"
  neighbors: bounded              # or unbounded
  randomness: {source: operating_system}
  grant: "2030"                   # spent by one run; another run needs another grant
  account: people.account.jsonl   # all grants spent on the same people
products:                         # in the order of work; most runs have one
  units:                          # housing units and facilities of the same blocks
    schema: schema.yaml           # of its own; conf/schema/units.yaml is ready
    data: {format: histograms, path: units.parquet}
    privacy: {rho: "1/10", allocation: allocation.yaml, product: units}
    invariants:
      - {query: total, geolevel: block}
    output: {microdata: [parquet], tables: [total]}
  persons:
    schema: schema.yaml
    data:
      format: records             # or block_table, pl94, histograms
      path: persons.csv           # confidential
      geocode: block              # column with the leaf geocode
      columns:
        sex: {column: SEX, codes: {"1": male, "2": female}}
        age: age                  # its values are the level labels
    privacy:
      rho: "1/2"                  # or: epsilon: "6"
      allocation: allocation.yaml
      product: persons            # as the account calls it
    invariants:
      - {query: total, geolevel: state}
      - {zero: {sex: [male], age: [65_and_over]}}      # nobody is in these cells
      - {living_quarters: [total], geolevel: block, exact: {product: units, query: total}}
      - {name: minors, row: [{cells: {votingage: [minor]}}], geolevel: county, at_most: 5000}
    solve:
      rounding:                   # nested, coarse before fine, ending in detailed
        - [total]
        - [sex, detailed]
      tolerance: 1.0e-7
      targets: full               # or own: only measurements of the same geolevel
      learned_prior: []           # geolevels, such as [block]
      housing_units:              # or left out
        {geolevels: [block], expect: totals, kappa: 2, certified: true}
      order: {state: [[total]]}   # totals of the state first, then all else
      round_passes: false         # or true: totals are whole numbers before all else is fitted
      method: nnls
      least_squares: structured
      integers: highs
      failsafe: exact
    output:
      microdata: [parquet, csv]
      tables: [total, {query: sex * votingage, geolevels: [state, county]}]
      table_formats: [csv, parquet, xlsx]
      h1: null                    # of a product of housing units alone: their attribute
      joined: null                # of persons whom `between` ties to units: {adults: {...}}
    evaluate:                     # for whom the release is worse than for others
      groups: [sex, sex * votingage]                # each answer is a group
      areas: {county: {path: rural.csv}}            # columns geocode, type: groups of counties
      tables: [age]               # errors of these, and of the total, in each group
      floor: 10                   # relative errors of groups of so many records, or more
between: []                       # what products must agree on: docs/between.md
output:
  directory: out                  # this and other places may lie in stores: docs/storage.md
  confidential: out-confidential  # of its own, for other rights; else out/confidential
about:                            # for the README of the release; all may be left out
  title: Census of 2030
  publisher: The statistical office
  licence: CC BY 4.0
  contact: census@office.example
runtime:
  master: "local[2,4]"
  batches_per_slot: 4
  driver_memory: 2g
  spark: {spark.local.dir: /scratch}   # temporary files, encrypted
  allow_open_cluster: false            # true only where no secret can be set up
"""

EQUITY_EXAMPLE = """\
groups:
  sex: absolute                 # in persons, at every geolevel
  votingage: {block: relative}  # to public sizes
sizes: sizes.csv                # columns query, group, persons and perhaps geolevel
others: 1.25                    # no table of the run gets worse by more than a quarter
"""

SURVEY_EXAMPLE = """\
kind: survey
format: 1
name: example
privacy:
  rho: "1/2"                      # or: epsilon: "6"
  definition: zcdp                # or pure: then clipped means and tables alone
  neighbors: bounded              # or unbounded
  grant: "2030"
data:
  path: survey.csv                # confidential
  records: 10000                  # public
  columns:                        # every attribute: codes, or bins of whole numbers
    sex: {column: SEX, codes: {"1": male, "2": female}}
    age: {column: AGEP, bins: [0, 16, 25, 45, 65]}
    income: {column: PINCP, bins: [0, 1, 20000, 50000, 100000], missing: {"": under 16}}
statistics:                       # shares of all parts sum to exactly 1
  - mean: income
    low: 0                        # public bounds of the mean of any stratum
    high: 200000
    spread: 40000                 # public: standard deviation within a stratum, about
    share: "1/4"
    missing: 0                    # what a missing value counts as
    strata: [sex]
    weights: survey-weights.csv   # public: sex, weight
    least: "1/1000"
synthesis:
  share: "3/4"
  components: 800
evaluate:                         # confidential; may be changed after measuring
  groups: [[sex]]
  predict: {attribute: income, levels: [50000 to 99999, 100000 and over]}
output:
  directory: survey-out
"""

SURVEY_WEIGHTS = """\
sex,weight
male,0.49
female,0.51
"""

_END = """## All together

With the examples in a folder `example` (the program reads no data for this):

```sh
das validate example/run.yaml
das validate example/survey.yaml
```
"""

_FILES = (
    ("Run file", RunConfig, "run.yaml", RUN_EXAMPLE),
    ("Schema file", SchemaFile, "schema.yaml", SCHEMA_EXAMPLE),
    ("Allocation file", AllocationFile, "allocation.yaml", ALLOCATION_EXAMPLE),
    ("File of groups", EquityFile, "groups.yaml", EQUITY_EXAMPLE),
    ("Survey file", SurveyConfig, "survey.yaml", SURVEY_EXAMPLE),
)


def reference() -> str:
    """Return the whole page as Markdown."""
    parts, seen = [_INTRODUCTION], set[type]()
    for title, model, name, example in _FILES:
        # The mark is for tests/documented, which writes the file.
        block = f"<!-- file: example/{name} -->\n```yaml\n{example}```\n"
        summary = f"{_summary(model)} "
        if model is SurveyConfig:
            weights = f"<!-- file: example/survey-weights.csv -->\n```text\n{SURVEY_WEIGHTS}```\n"
            summary += f"Public weights, `survey-weights.csv`:\n\n{weights}\n"
        parts.append(f"## {title}\n\n{summary}Example, `{name}`:\n\n{block}")
        models = [each for each in nested(model) if issubclass(each, BaseModel)]
        parts.extend(_section(each) for each in models if each not in seen)
        seen.update(models)
    parts.append(_END)
    return "\n".join(parts)


def default(field: FieldInfo) -> str:
    """Say what holds if the key is left out."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return "its defaults"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, str):
        return f"`{value}`" if value.isalnum() else f'`"{value}"`'
    return f'`"{value}"`' if isinstance(value, Fraction) else f"`{json.dumps(value)}`"


def _section(model: type[BaseModel]) -> str:
    rows = [
        (f"`{key}`", words(field.annotation, _PLAIN), default(field), field.description or _FORMAT)
        for key, field in model_fields(model).items()
    ]
    head = ("Key", "Type", "Default", "Meaning")
    return section(model.__name__, _summary(model), head, rows)


_FORMAT = "Which of the input formats this is."


def _summary(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
    else:
        sys.stdout.write(reference())
