"""Means by strata of columns of a survey: whom one mean for everybody serves badly.

248,375 persons of the American Community Survey 2018 are split into halves: of one the means of
schooling, hours of work, minutes to work and income are estimated at rho 1/2 in two steps; the other
is public and says which strata have more than 1 in 1000 persons (the rest is pooled, and left out of
parity). Beside Coinpress for everybody (each stratum is told that mean), by strata, with intervals
that are intersected, and these shrunk toward one another. Spreads are public: those of a state in
the same year. Population error is in percent of the mean, parity error that of Definition 11.

`REFERENCE` was computed by another program, with continuous normal noise and other splits; z is the
difference in standard errors of both.

What Rosenblatt, Stoyanovich & Musco claim for stratified means, and what is seen here: the parity
error falls, by a factor of 3 to 22 (holds); the mean of everybody gets better (does not: with spreads
that fit, strata add noise to it). It can get better where spreads were set to 1 whatever the
column, as in their experiment: nearly every value is clipped, and strata center the clipping. The
column `spread 1` has the population error of that, for everybody and by strata.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from das.arrays import FloatArray, IntArray
from das.confidential import Confidential
from das.means.estimates import Column, MeanEstimates, Steps, Strata, shrink
from das.means.measure import StratumValues, estimate_means
from das.mechanisms.entropy import NoiseKey, Streams
from das.metrics.parity import parity_error
from das.queries.sensitivity import Neighbors
from tests.checkout import ROOT

PERSONS = ROOT / "tests" / "data" / "us_2018_acs_19_to_34.parquet"
RHO = Fraction(1, 2)
LEAST_SHARE = 1 / 1000
METHODS = ("coinpress", "strata", "intersected", "shrunk")
COLUMNS = (
    Column("SCHL", 0, 24, 5.686),
    Column("WKHP", 0, 100, 13.105),
    Column("JWMNP", 0, 200, 26.601),
    Column("PINCP", -20_000, 500_000, 76_027.3),
)
# Zero says that the question does not apply.
_ZERO_IS_MISSING = ("WKHP", "JWMNP")
STRATA = (
    ("SEX", "RAC1P"),
    ("SEX", "RAC1P", "AGE"),
    ("SEX", "DIS", "NATIVITY", "RAC1P", "AGE"),
)


@dataclass(frozen=True)
class Reference:
    """Population error in percent and parity error, with the standard errors of ten splits."""

    population: float
    population_se: float
    parity: float
    parity_se: float


# Column and number of attributes of the strata to the methods in the order of METHODS.
REFERENCE = {
    key: tuple(Reference(*numbers) for numbers in rows)
    for key, rows in {
        ("SCHL", 2): (
            (0.0041, 0.0009, 0.7088, 0.0065),
            (0.0092, 0.0024, 0.0496, 0.0068),
            (0.0124, 0.0025, 0.0670, 0.0062),
            (0.0124, 0.0025, 0.0558, 0.0059),
        ),
        ("SCHL", 3): (
            (0.0021, 0.0004, 2.7936, 0.0197),
            (0.0116, 0.0033, 0.2185, 0.0102),
            (0.0176, 0.0046, 0.2232, 0.0075),
            (0.0176, 0.0046, 0.3349, 0.0110),
        ),
        ("SCHL", 5): (
            (0.0025, 0.0005, 6.9696, 0.0778),
            (0.0251, 0.0041, 0.8609, 0.0340),
            (0.0223, 0.0070, 0.8088, 0.0284),
            (0.0223, 0.0070, 1.1623, 0.0305),
        ),
        ("WKHP", 2): (
            (0.0038, 0.0011, 0.6445, 0.0152),
            (0.0115, 0.0024, 0.0459, 0.0069),
            (0.0113, 0.0036, 0.0562, 0.0081),
            (0.0113, 0.0036, 0.0522, 0.0060),
        ),
        ("WKHP", 3): (
            (0.0057, 0.0013, 5.3131, 0.0207),
            (0.0270, 0.0084, 0.2459, 0.0074),
            (0.0288, 0.0051, 0.2526, 0.0122),
            (0.0288, 0.0051, 0.2571, 0.0119),
        ),
        ("WKHP", 5): (
            (0.0034, 0.0008, 10.0599, 0.0562),
            (0.0243, 0.0071, 0.9985, 0.0279),
            (0.0252, 0.0067, 1.0308, 0.0244),
            (0.0252, 0.0067, 1.0167, 0.0230),
        ),
        ("JWMNP", 2): (
            (0.0117, 0.0024, 0.8196, 0.0185),
            (0.0438, 0.0145, 0.1981, 0.0393),
            (0.0318, 0.0091, 0.2197, 0.0315),
            (0.0318, 0.0091, 0.2066, 0.0104),
        ),
        ("JWMNP", 3): (
            (0.0130, 0.0037, 5.1188, 0.0495),
            (0.0712, 0.0152, 0.8240, 0.0264),
            (0.0599, 0.0136, 0.8739, 0.0536),
            (0.0599, 0.0136, 1.0421, 0.0414),
        ),
        ("JWMNP", 5): (
            (0.0126, 0.0031, 10.1648, 0.1078),
            (0.1081, 0.0234, 3.2516, 0.1099),
            (0.0988, 0.0225, 3.0689, 0.1239),
            (0.0988, 0.0225, 3.7170, 0.0720),
        ),
        ("PINCP", 2): (
            (0.3424, 0.0127, 4.3652, 0.0839),
            (0.4287, 0.0390, 0.7089, 0.0858),
            (0.3968, 0.0374, 0.8107, 0.0992),
            (0.3968, 0.0374, 0.6307, 0.0781),
        ),
        ("PINCP", 3): (
            (0.3237, 0.0170, 35.2273, 0.1909),
            (0.4034, 0.0486, 2.8327, 0.1284),
            (0.4028, 0.0616, 2.9438, 0.2742),
            (0.4028, 0.0616, 2.8921, 0.1899),
        ),
        ("PINCP", 5): (
            (0.3228, 0.0171, 77.7374, 1.1451),
            (0.4596, 0.0782, 11.8292, 0.4717),
            (0.3916, 0.0838, 11.1424, 0.4726),
            (0.3916, 0.0838, 11.4851, 0.4557),
        ),
    }.items()
}


def read_persons(path: Path = PERSONS) -> dict[str, IntArray]:
    """Columns of the survey, int64[persons] each, and AGE: five equal bins of AGEP."""
    table = pq.read_table(path)
    persons = {name: table[name].to_numpy().astype(np.int64) for name in table.column_names}
    age = persons["AGEP"] - persons["AGEP"].min()
    # Bins are closed above, so the youngest would lie below the first one.
    persons["AGE"] = np.maximum(-(-5 * age // int(age.max())) - 1, 0)
    return persons


@dataclass(frozen=True, eq=False)
class Halves:
    """One column of one split.

    Attributes:
      column: What is public of it.
      values: int64[n]; of the private half.
      strata: int64[n], < k; the last one may be the pool of small strata.
      n_strata: k, strata with persons.
      n_large: Strata that are no pool: those of parity.
    """

    column: Column
    values: IntArray
    strata: IntArray
    n_strata: int
    n_large: int


def split(
    persons: dict[str, IntArray], column: Column, attributes: tuple[str, ...], number: int
) -> Halves:
    """One half of the persons, in strata that are large in the other."""
    codes = np.zeros(len(persons["SEX"]), np.int64)
    for attribute in attributes:
        levels, code = np.unique(persons[attribute], return_inverse=True)
        codes = codes * len(levels) + code
    values = persons[column.name]
    order = np.random.default_rng([number, 5]).permutation(len(values))
    private, public = np.array_split(order, 2)
    if column.name in _ZERO_IS_MISSING:
        private, public = private[values[private] > 0], public[values[public] > 0]
    seen = np.bincount(codes[public], minlength=int(codes.max()) + 1)
    large = np.flatnonzero(seen > LEAST_SHARE * len(public))
    label = np.full(len(seen), len(large))
    label[large] = np.arange(len(large))
    strata = label[codes[private]]
    return Halves(column, values[private], strata, int(strata.max()) + 1, len(large))


def estimate(halves: Halves, column: Column, key: NoiseKey, *, whole=False, intersect=False):
    """Estimates by strata, or of all persons as one stratum, sizes being public."""
    strata = np.zeros_like(halves.strata) if whole else halves.strata
    sizes = np.bincount(strata)
    return estimate_means(
        Confidential(StratumValues(halves.values, strata, len(sizes))),
        column,
        Steps.split(RHO, 2, intersect=intersect),
        Strata({f"stratum {i}": n for i, n in enumerate(sizes.tolist())}, Neighbors.BOUNDED),
        Streams(key),
    )


def errors_of_split(halves: Halves, number: int) -> dict[str, tuple[float, float]]:
    """Method to population error in percent and parity error, of one split."""
    keys = iter([NoiseKey(np.random.default_rng([number, i, 6]).bytes(32)) for i in range(5)])
    counts = np.bincount(halves.strata)
    shares = counts / len(halves.values)
    true = np.bincount(halves.strata, weights=halves.values) / counts
    everybody = float(halves.values.mean())
    one = Column(halves.column.name, halves.column.low, halves.column.high, 1.0)

    def errors(total: float, means: FloatArray) -> tuple[float, float]:
        relative = np.abs((true - means) / true)[: halves.n_large]
        of_everybody = abs((everybody - total) / everybody)
        return 100 * of_everybody, parity_error(relative, of_everybody)

    def by_strata(found: MeanEstimates) -> tuple[float, float]:
        return errors(float(shares @ found.means), found.means)

    def by_one(found: MeanEstimates) -> tuple[float, float]:
        return errors(float(found.means[0]), np.full(len(true), found.means[0]))

    whole = estimate(halves, halves.column, next(keys), whole=True)
    plain = estimate(halves, halves.column, next(keys))
    kept = estimate(halves, halves.column, next(keys), intersect=True)
    variances = halves.column.spread**2 / counts + kept.noise_sd**2
    return {
        "coinpress": by_one(whole),
        "strata": by_strata(plain),
        "intersected": by_strata(kept),
        "shrunk": errors(float(shares @ kept.means), shrink(kept.means, variances)),
        "spread 1": by_one(estimate(halves, one, next(keys), whole=True)),
        "spread 1, strata": by_strata(estimate(halves, one, next(keys))),
    }


def compare(n_splits: int) -> dict[str, dict]:
    """Print a table row by row; returns what it says, by column and strata."""
    persons = read_persons()
    print("\n| column | strata | k | " + " | ".join(METHODS), end="")
    print(" | parity, coinpress : strata | spread 1: everybody, strata | largest z |")
    print("|---" * (6 + len(METHODS)) + "|")
    results = {}
    for column in COLUMNS:
        for attributes in STRATA:
            drawn = [split(persons, column, attributes, number) for number in range(n_splits)]
            rows = [errors_of_split(one, number) for number, one in enumerate(drawn)]
            references = REFERENCE[column.name, len(attributes)]
            cells = {
                method: _summary([row[method] for row in rows], reference)
                for method, reference in zip(METHODS, references, strict=True)
            }
            ratio = cells["coinpress"]["parity"] / cells["strata"]["parity"]
            unit = [float(np.mean([row[m][0] for row in rows])) for m in rows[0] if m not in cells]
            largest = max(
                (abs(cell[f"{what}_z"]) for cell in cells.values() for what in ("error", "parity")),
            )
            k = float(np.mean([one.n_large for one in drawn]))
            text = " | ".join(
                f"{c['error']:.2f} ± {c['error_se']:.2f} %, {c['parity']:.2f} ± {c['parity_se']:.2f}"
                for c in cells.values()
            )
            strata = " x ".join(attributes)
            print(
                f"| {column.name} | {strata} | {k:.0f} | {text} | {ratio:.1f} "
                f"| {unit[0]:.2f} %, {unit[1]:.2f} % | {largest:.1f} |",
                flush=True,
            )
            results[f"{column.name}/{strata}"] = {
                "k": round(k, 1),
                "parity_ratio": round(ratio, 2),
                "spread_1": [round(each, 3) for each in unit],
                **cells,
            }
    return results


def _summary(found: list[tuple[float, float]], reference: Reference) -> dict[str, float]:
    """Means, standard errors, the reference and how many standard errors it is away."""
    means, errors = _mean(np.array(found))
    expected = (reference.population, reference.parity)
    theirs = (reference.population_se, reference.parity_se)
    out = {}
    for i, what in enumerate(("error", "parity")):
        out[what] = round(means[i], 4)
        out[f"{what}_se"] = round(errors[i], 4)
        out[f"{what}_reference"] = expected[i]
        out[f"{what}_z"] = round(
            (means[i] - expected[i]) / float(np.hypot(errors[i], theirs[i])), 2
        )
    return out


def _mean(found: FloatArray) -> tuple[list[float], list[float]]:
    spread = found.std(0, ddof=1) / len(found) ** 0.5
    return found.mean(0).tolist(), spread.tolist()
