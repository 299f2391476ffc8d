"""The command `das generate-survey`: an invented file of persons, and weights of its strata."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from das.arrays import FloatArray, IntArray
from das.errors import ConfigError
from jobs.design.folders import refuse_full
from jobs.design.synthetic.nation import seeded
from jobs.pipeline.storage.files import writing

MOST_PERSONS = 5_000_000
# Shares of the invented population, in hundredths of a percent; the last race is one in a thousand.
SEXES = {"female": 5080, "male": 4920}
RACES = {"white": 6200, "black": 1300, "asian": 600, "native": 90, "islander": 10, "other": 700,
         "several": 1100}  # fmt: skip
_EDUCATION = 6  # none, primary, lower secondary, secondary, bachelor, master and above
_MARRIED, _WIDOWED, _DIVORCED, _SINGLE = 1, 2, 3, 4
_WORKING, _UNEMPLOYED, _INACTIVE, _CHILD = 1, 2, 3, 4
_ADULT = 16


def generate_survey(out: Path, persons: int, seed: int) -> dict[str, int | str]:
    """Write `out/persons.csv` and `out/weights.csv`.

    Persons have 13 attributes; age, weekly hours of work, minutes of commuting and yearly income
    are numbers. Hours, minutes and income are empty where they do not apply. Incomes are log-normal
    with a mean that depends on sex, race, age, education and hours. Strata of sex and race are
    drawn by their shares of the invented population, which are the weights.

    Args:
      out: New or empty folder.
      persons: Number of persons, 1 or more.
      seed: Any nonnegative integer; the same seed gives the same survey.

    Returns:
      Facts: number of persons, and the written paths.

    Raises:
      ConfigError: A number is out of range.
      OutputError: The folder is not empty or cannot be written.
    """
    if not 1 <= persons <= MOST_PERSONS or seed < 0:
        raise ConfigError(
            "generate-survey",
            "cannot invent this survey",
            got=f"{persons} persons, seed {seed}",
            want=f"1 to {MOST_PERSONS} persons, and a seed of at least 0",
        )
    refuse_full(out)
    rng = seeded(seed, persons)
    rows = [f"{sex},{race},{SEXES[sex] * RACES[race]}/100000000" for sex in SEXES for race in RACES]
    data, weights = out / "persons.csv", out / "weights.csv"
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        options = pa_csv.WriteOptions(quoting_style="none")
        pa_csv.write_csv(_draw(persons, rng), data, options)
        weights.write_text("\n".join(["sex,race,weight", *rows, ""]), encoding="utf-8")
    return {"persons": persons, "data": str(data), "weights": str(weights)}


def _draw(n: int, rng: np.random.Generator) -> pa.Table:
    sex = rng.choice(len(SEXES), n, p=np.array([*SEXES.values()]) / 10_000)
    race = rng.choice(len(RACES), n, p=np.array([*RACES.values()]) / 10_000)
    age = np.minimum(rng.integers(0, 95, n), rng.integers(15, 95, n))
    grown = age >= _ADULT
    schooling = rng.normal(2.9 + 0.5 * (race == 2) - 0.3 * np.isin(race, (1, 3, 4)), 1.1)
    education = np.clip(np.rint(schooling), 0, _EDUCATION - 1).astype(np.int64)
    education = np.minimum(education, np.maximum(0, (age - 4) // 4))
    born = (rng.random(n) < np.where(race == 2, 0.65, np.where(race == 5, 0.4, 0.07))).astype(int)
    disabled = (rng.random(n) < 0.03 + 0.004 * np.maximum(0, age - 30)).astype(int)
    marital = [np.where(age > 25, 0.5, 0.1), 0.006 * np.maximum(0, age - 45)]
    married = _by_chance(rng, [*marital, np.where(age > 30, 0.13, 0)])
    married = np.where(grown, married, _SINGLE)
    works = 0.78 * (age < 66) + 0.12 * (age >= 66) - 0.35 * disabled + 0.03 * (education > 3)
    employment = _by_chance(rng, [np.clip(works, 0.02, 0.95), np.where(age < 66, 0.05, 0.0)])
    employment = np.where(grown, np.minimum(employment, _INACTIVE), _CHILD)
    is_working = employment == _WORKING
    hours = np.clip(np.rint(rng.normal(39 - 4 * (sex == 0), 9)), 1, 98).astype(np.int64)
    minutes = np.clip(np.rint(rng.lognormal(3.1, 0.7, n)), 1, 150).astype(np.int64)
    income = _incomes(n, rng, np.stack([sex, race, age, education, hours * is_working]))
    size = 1 + rng.binomial(6, np.where(married == _MARRIED, 0.35, 0.2))
    owns = (rng.random(n) < np.clip(0.25 + 0.006 * age, 0, 0.85)).astype(int)
    return pa.table(
        {
            "sex": pa.array([*SEXES]).take(pa.array(sex)),
            "race": pa.array([*RACES]).take(pa.array(race)),
            "age": age,
            "education": education,
            "marital": married,
            "foreign_born": born,
            "disability": disabled,
            "employment": employment,
            "hours": pa.array(hours, mask=~is_working),
            "travel": pa.array(minutes, mask=~is_working),
            "income": pa.array(income, mask=~grown),
            "household": size,
            "tenure": owns,
        }
    )


def _by_chance(rng: np.random.Generator, chances: list[FloatArray]) -> IntArray:
    """Draw numbers: i + 1 with the probability `chances[i]`, otherwise len(chances) + 1."""
    uniform, cumulative = rng.random(len(chances[0])), np.cumsum(np.stack(chances), axis=0)
    return np.asarray(1 + (uniform >= cumulative).sum(0), np.int64)


def _incomes(n: int, rng: np.random.Generator, about: IntArray) -> IntArray:
    sex, race, age, education, hours = about
    level = 8.9 + 0.3 * education + 0.12 * sex + 0.028 * hours - 0.0004 * (age - 52) ** 2
    level = level + np.array([0.1, -0.08, 0.12, -0.2, -0.15, -0.1, 0.0])[race]
    drawn = np.minimum(np.rint(rng.lognormal(level - 0.3, 0.75, n)), 2_000_000).astype(np.int64)
    return np.where(rng.random(n) < 0.06, 0, drawn)
