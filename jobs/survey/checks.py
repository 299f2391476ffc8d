"""Rules of survey run files that span several sections, and public weights of strata; no data.

Errors name the key; `jobs.survey.plan.load_survey` adds the file.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from das.definition import Definition
from das.errors import BudgetError, ConfigError
from das.rational import parse_fraction
from das.schema import PLAIN_NAME, is_plain_name
from jobs.pipeline.config.models.values import LONGEST_NAME
from jobs.pipeline.input.files import Table, header_of, plan_chunks, read_table
from jobs.pipeline.storage.csv import without_formula
from jobs.survey.models import PredictConfig, SurveyConfig

SYNTHESIS, MARGINALS = "synthesis", "marginals"
POOLED, POPULATION = "pooled", "everybody"
_RESERVED_LABELS = (POOLED, POPULATION)

# Sizes that one machine with 8 GB works on: codes of 40 attributes and 5 million records are
# 1.6 GB (computed), and the fit holds four matrices of 5,000 by 5,000 levels, 0.6 GB.
MOST_RECORDS = 5_000_000
MOST_ATTRIBUTES = 40
MOST_LEVELS = 5_000
# Records times pairs of attributes of a classifier; the 55 million of a million records and 11
# features took 2 to 4 s to train.
_MOST_TRAINING = 1_000_000_000
_MOST_STRATA = 10_000  # combinations of levels of one weights file; default, not measured
_OF_FILE = "names no column of data.columns"
_OF_MICRODATA = "is no attribute of the microdata"


def require(holds: object, key: str, what: str, got: object = None, want: object = None) -> None:
    """Raise a ConfigError unless a condition holds.

    Raises:
      ConfigError: The condition does not hold.
    """
    if not holds:
        raise ConfigError(key, what, got=got, want=want)


def check_survey(config: SurveyConfig) -> None:
    """Check the sections of a run file against each other.

    Raises:
      BudgetError: The shares of the parts do not sum to 1.
      ConfigError: Sections contradict each other, or the survey is too large for one machine.
    """
    stated, columns = config.synthesis, config.data.columns
    total = sum(one.share for one in config.statistics) + sum(
        one.share for one in config.contingency_tables
    )
    total += sum(part.share for part in (config.marginals, stated) if part is not None)
    if total != 1:
        raise BudgetError(
            "shares of statistics, tables, marginals and synthesis",
            "do not sum to 1",
            got=str(total),
            want="exactly 1: a run spends its whole budget",
        )
    n_levels = sum(len(column.levels) for column in columns.values())
    for key, got, most in (
        ("data.n_records", _most_records(config), MOST_RECORDS),
        ("data.columns", len(columns), MOST_ATTRIBUTES),
        ("levels of all data.columns", n_levels, MOST_LEVELS),
    ):
        require(got <= most, key, "is more than one machine can process", got, most)
    for name, column in columns.items():
        where = f"data.columns.{name}"
        require(is_plain_name(name), where, "cannot be the name of an attribute", want=PLAIN_NAME)
        for label in column.levels:
            is_clear = "*" not in label and label not in _RESERVED_LABELS
            what = "has a level whose label would make names of strata ambiguous"
            require(is_clear, where, what, label, f"no *, and not {' or '.join(_RESERVED_LABELS)}")
    _check_synthesis(config)
    _check_evaluate(config)
    _check_names(config)


def _most_records(config: SurveyConfig) -> int:
    return max(config.data.n_records, (config.synthesis and config.synthesis.n_records) or 0)


def _check_synthesis(config: SurveyConfig) -> None:
    if config.synthesis is None:
        return
    names, definition = config.synthesis.attributes, config.privacy.definition
    check_each(names or [], config.data.columns, "synthesis.attributes")
    require(len(names or config.data.columns) > 1, SYNTHESIS, "needs two attributes or more")
    require(
        definition is Definition.ZCDP,
        SYNTHESIS,
        "is measured with Gaussian noise, which has no pure epsilon",
        f"definition {definition}",
        "definition zcdp, or statistics and tables alone",
    )


def _check_evaluate(config: SurveyConfig) -> None:
    where, evaluate, predict = "evaluate", config.evaluate, config.evaluate.predict
    if config.synthesis is None:
        is_empty = not evaluate.groups and predict is None
        require(is_empty, where, "compares microdata", want="a section `synthesis`")
        return
    names = config.synthesis.attributes or [*config.data.columns]
    levels = {name: config.data.columns[name].levels for name in names}
    for index, group in enumerate(evaluate.groups):
        check_each(group, names, f"{where}.groups.{index}", _OF_MICRODATA)
        combinations([levels[name] for name in group], f"{where}.groups.{index}")
    where, sets = "evaluate.groups", {frozenset(group) for group in evaluate.groups}
    require(len(sets) == len(evaluate.groups), where, "names a set of attributes twice")
    if predict is None:
        return
    target, positive = predict.attribute, {*predict.levels}
    check_each([target], names, "evaluate.predict.attribute", _OF_MICRODATA)
    is_part = positive < {*levels[target]} and len(positive) == len(predict.levels)
    what = f"need distinct levels of {target}, at least one and not all"
    require(is_part, "evaluate.predict.levels", what, predict.levels, levels[target])
    require(evaluate.groups, where, "is required with `predict`")
    what = "holds the predicted attribute, which is constant within such a group"
    require(all(target not in group for group in evaluate.groups), where, what, target)
    where, features = "evaluate.predict.features", predict_features(predict, names)
    check_each(features, names, where, _OF_MICRODATA)
    is_other = features and target not in features
    require(is_other, where, "needs attributes other than the one that is predicted")
    records, pairs = _most_records(config), math.comb(len(features), 2)
    most = f"at most {_MOST_TRAINING}: name fewer features"
    got = f"{records} records times {pairs} pairs"
    require(records * pairs <= _MOST_TRAINING, where, "are too many to train with", got, most)


def predict_features(predict: PredictConfig, names: Sequence[str]) -> list[str]:
    """Return the attributes of the microdata that the classifier uses as features."""
    if predict.features is not None:
        return predict.features
    return [name for name in names if name != predict.attribute]


def _check_names(config: SurveyConfig) -> None:
    names = {f"statistics.{i}": one.label for i, one in enumerate(config.statistics)}
    names |= {
        f"contingency_tables.{i}": one.label for i, one in enumerate(config.contingency_tables)
    }
    for where, name in names.items():
        is_name = re.fullmatch(r"[a-z][a-z0-9_]*", name) and len(name) <= LONGEST_NAME
        require(is_name, where, "needs a `name`, because its attributes make no valid name", name)
        where, remedy = "statistics and tables", "give each a different `name`"
        require([*names.values()].count(name) == 1, where, f"has a name twice: {remedy}", name)
        taken = name == SYNTHESIS or (name == MARGINALS and config.marginals is not None)
        require(not taken, where, f"has the name of another part: {remedy}", name)


def check_each(
    names: Sequence[str], known: Collection[str], key: str, what: str = _OF_FILE
) -> None:
    """Check that all names are known and that none occurs twice.

    Args:
      names: Names of attributes in the run file.
      known: Allowed names.
      key: Key of the run file, for the error.
      what: Error for unknown names.

    Raises:
      ConfigError: A name is unknown or occurs twice.
    """
    unknown = [name for name in names if name not in known]
    require(not unknown, key, what, unknown, [*known])
    require(len({*names}) == len(names), key, "names an attribute twice")


def combinations(levels: Sequence[Sequence[str]], where: str) -> list[tuple[str, ...]]:
    """Return all combinations of levels; the last attribute runs fastest.

    Raises:
      ConfigError: There are more than 10,000 combinations.
    """
    n_strata = math.prod(map(len, levels))
    require(n_strata <= _MOST_STRATA, where, "has too many strata", n_strata, _MOST_STRATA)
    return list(itertools.product(*levels))


WEIGHT, SIZE = "weight", "size"
_MOST_SIZE = 1 << 34  # records of a stratum: above the population of the earth

Labels = tuple[str, ...]


@dataclass(frozen=True)
class PublicStratum:
    """Public numbers of a stratum: a combination of levels of some attributes.

    Attributes:
      weight: Share of the population, exact.
      size: Approximate public number of records; can be 0.
      is_expected: Whether the size was computed from the weight, because the file gives no sizes.
    """

    weight: Fraction
    size: int
    is_expected: bool = False


def stratum_name(labels: Labels) -> str:
    """Return the name of a stratum: its labels, joined by ` * `.

    >>> stratum_name(("female", "65 and over"))
    'female * 65 and over'
    """
    return " * ".join(labels)


def spelled(label: str, levels: Sequence[str]) -> str:
    """Prefix a label that a spreadsheet would compute, unless another level has that label.

    >>> spelled("=1+1", ["a", "=1+1"]), spelled("=1+1", ["'=1+1", "=1+1"])
    ("'=1+1", '=1+1')
    """
    plain = without_formula(label)
    return label if plain in levels else plain


def read_weights(
    path: Path, attributes: Mapping[str, Sequence[str]], records: int
) -> dict[Labels, PublicStratum]:
    """Read the public weights of all strata.

    Args:
      path: CSV file with one column per attribute, `weight`, and optionally `size`. Attributes and
        levels that a spreadsheet would compute may have the prefix of released files.
      attributes: Attribute to its levels.
      records: Public number of records; times the weight it is the size, where the file has none.

    Returns:
      Public stratum by labels, for every combination of levels; the last attribute runs fastest.

    Raises:
      ConfigError: A stratum is missing, repeated or unknown; a weight is negative or no exact
        number; weights do not sum to 1; or a size is no whole number.
      InputError: The file cannot be read, or lacks a column.
    """
    wanted = combinations([*attributes.values()], str(path))
    known = {
        name: {spelled(label, levels): label for label in levels}
        | {label: label for label in levels}
        for name, levels in attributes.items()
    }
    strata: dict[Labels, PublicStratum] = {}
    for where, row in _rows(path, [*attributes]):
        for name, levels in attributes.items():
            what, want = f"names an unknown level of {name}", f"one of {list(levels)}"
            require(row[name] in known[name], where, what, row[name], want)
        labels = tuple(known[name][row[name]] for name in attributes)
        what = "gives a stratum a second time"
        require(labels not in strata, where, what, stratum_name(labels))
        weight = _weight(row[WEIGHT], where)
        size = round(weight * records) if SIZE not in row else _size(row[SIZE], where)
        strata[labels] = PublicStratum(weight, size, SIZE not in row)
    missing = [stratum_name(labels) for labels in wanted if labels not in strata]
    what = f"lacks {len(missing)} of {len(wanted)} strata"
    want = "a row for every combination of levels; its weight may be 0"
    require(not missing, str(path), what, f"none of {missing[:3]}", want)
    total = sum((stratum.weight for stratum in strata.values()), Fraction(0))
    what, got = "holds weights that are not shares of one whole", f"about {float(total):.9g}"
    want = "exactly 1; write fractions such as 3/7, or decimals that add up"
    require(total == 1, str(path), what, f"sum {total}, {got}", want)
    return {labels: strata[labels] for labels in wanted}


def _rows(path: Path, attributes: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (location of the row for errors, its fields by column)."""
    what, want = "is no CSV file by its name", "a name ending in .csv"
    require(path.suffix.lower() == ".csv", str(path), what, want=want)
    delimiter = ";" if WEIGHT in header_of(path, ";") else ","  # of European spreadsheets
    header = plan_chunks(Table(path, (WEIGHT,), delimiter))[0].header
    columns = {name: name if name in header else without_formula(name) for name in attributes}
    columns[WEIGHT] = WEIGHT
    if SIZE in header:
        columns.setdefault(SIZE, SIZE)
    for batch in read_table(Table(path, tuple(columns.values()), delimiter)):
        for index, row in enumerate(batch.table.to_pylist()):
            yield (
                batch.where(index),
                {name: str(row[column]).strip() for name, column in columns.items()},
            )


def _weight(text: str, where: str) -> Fraction:
    try:
        weight = parse_fraction(text.replace(",", "."), where)
    except BudgetError as error:
        raise ConfigError(
            where, "holds a weight that is no exact number", got=error.got, want="3/7 or 0.25"
        ) from None
    require(weight >= 0, where, "holds a negative weight", text)
    return weight


def _size(text: str, where: str) -> int:
    is_whole = text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST_SIZE))
    require(is_whole, where, "holds a size that is no whole number", text)
    require(int(text) <= _MOST_SIZE, where, "holds a size that is too large", text, _MOST_SIZE)
    return int(text)
