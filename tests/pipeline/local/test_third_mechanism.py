"""A further mechanism is one class: registered in one place, it goes through a whole run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from scipy import stats

from das.arrays import FloatArray, IntArray, WordArray
from das.definition import Definition
from das.errors import BudgetError, ConfigError
from das.mechanisms import registry
from das.mechanisms.certified import exp_bounds
from das.mechanisms.entropy import BitSource, NoiseKey
from das.mechanisms.mechanism import (
    Continuous,
    LossAtoms,
    Mechanism,
    Norm,
    Sampler,
    on_integers,
    require_chargeable,
    require_parameter,
)
from das.mechanisms.noise import add_noise
from das.privacy.loss_distribution import UnitShifts, losses_of_paths
from das.queries.sensitivity import Neighbors
from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.solve import node_settings
from jobs.pipeline.release.verify import verify_release
from jobs.pipeline.storage.ledger import read_ledger
from tests.builders import toy
from tests.builders.in_process import execute
from tests.builders.places import release_of
from tests.builders.streams import stream
from tests.evidence.reference import bernoulli, uniform_below
from tests.release_checks import totals_are_exact, tree_is_consistent


@dataclass(frozen=True, slots=True)
class Student:
    """Continuous noise with density proportional to (1 + x^2 / scale^2)^-2: t, 3 degrees."""

    is_discrete: ClassVar[bool] = False
    scale: float

    @classmethod
    def of_variance(cls, variance: float) -> Student:
        return cls(math.sqrt(variance))

    def log_ratio(self, noise: npt.ArrayLike) -> FloatArray:
        return np.asarray(-2 * np.log1p(np.square(np.asarray(noise, np.float64) / self.scale)))

    def log_peak(self) -> float:
        return math.log(2 / (math.pi * self.scale))

    def log_cdf(self, values: FloatArray) -> FloatArray:
        return np.asarray(stats.t.logcdf(values, 3, scale=self.scale / math.sqrt(3)))

    def quantiles(self, probabilities: FloatArray) -> FloatArray:
        return np.asarray(stats.t.ppf(probabilities, 3, scale=self.scale / math.sqrt(3)))


@dataclass(frozen=True)
class StudentSampler:
    """Rejection in rational arithmetic alone; every draw takes bits as it needs them.

    With m = ceil(scale), magnitudes 0..m-1 are band 0, those from 2^(j-1) m below 2^j m are band
    j. In band j the weight (scale^2 + k^2)^-2 is at most b_j: scale^-4 in band 0, else
    (2^(j-1) m)^-4. A band is proposed with probability proportional to its length times b_j, then
    one of its magnitudes, which is kept with probability weight / b_j.
    """

    scale: Fraction
    words_per_draw: ClassVar[int] = 1

    def bound(self, band: int) -> tuple[int, int, Fraction]:
        """First magnitude and length of a band, and b_j."""
        m = math.ceil(self.scale)
        if not band:
            return 0, m, self.scale**-4
        first = m << (band - 1)
        return first, first, Fraction(1, first**4)

    def draw(self, bits: BitSource) -> int:
        _, m, most = self.bound(0)
        inner, outer = m * most, Fraction(8, 7 * m**3)  # outer: the sum over bands 1, 2, ...
        while True:
            band = 0
            if not bernoulli(p=inner / (inner + outer), bits=bits):
                band = 1
                while bits.bits(3) == 0:  # each band weighs an eighth of the one before
                    band += 1
            first, length, most = self.bound(band)
            magnitude = first + uniform_below(n=length, bits=bits)
            weight = (self.scale**2 + magnitude**2) ** -2
            is_negative = bits.bits(1) == 1
            if bernoulli(p=weight / most, bits=bits) and (magnitude or not is_negative):
                return -magnitude if is_negative else magnitude

    def draw_many(self, words: WordArray, more: Callable[[int], BitSource]) -> IntArray:
        return np.array([self.draw(more(i)) for i in range(len(words))], np.int64)


@lru_cache(maxsize=256)
def _upper_tails(scale: Fraction) -> tuple[FloatArray, float]:
    """P(X >= k) for k = 0..K, and the sum of all weights over that of 0."""
    s = float(scale)
    total = (
        math.pi * s / 2 / math.tanh(math.pi * s) + (math.pi * s / math.sinh(math.pi * s)) ** 2 / 2
    )
    last = 400 * math.ceil(scale)
    weights = (1 + np.square(np.arange(last + 1) / s)) ** -2.0
    beyond = s**4 / (3 * (last + 0.5) ** 3)  # the integral, but for (s / last)^2 of it
    return (np.cumsum(weights[::-1])[::-1] + beyond) / total, total


@dataclass(frozen=True)
class DiscreteStudent(Mechanism):
    """Noise with P(X = k) proportional to (scale^2 + k^2)^-2 on the integers.

    The log of the weight has the slope -4 x / (scale^2 + x^2), at most 2 / scale in size. So moving
    answers by s_1, ..., s_m changes log probabilities by at most sum_i |s_i| 2 / scale: the pure
    cost is certified as 2 L1 sensitivity / scale, exact.
    """

    kind: ClassVar[str] = "discrete_student"
    title: ClassVar[str] = "discrete Student"
    symbol: ClassVar[str] = "Scale"
    norms: ClassVar[Mapping[Definition, Norm]] = MappingProxyType({Definition.PURE: Norm.L1})
    continuous: ClassVar[type[Continuous]] = Student
    is_discrete: ClassVar[bool] = True
    scale: Fraction

    def __post_init__(self) -> None:
        require_parameter(self.title, "scale", self.scale, Fraction(1 << 10))

    @classmethod
    def costing(
        cls, definition: Definition, cost: Fraction, sensitivity: Fraction
    ) -> DiscreteStudent:
        require_chargeable(cls, definition)
        return cls(2 * sensitivity / cost)

    def cost(self, definition: Definition, sensitivity: Fraction) -> Fraction:
        require_chargeable(type(self), definition)
        return 2 * sensitivity / self.scale

    @property
    def unit_rho(self) -> Fraction:
        return 2 / self.scale**2

    def unit_losses(self, digits: int) -> LossAtoms:
        last = 400 * math.ceil(self.scale)
        logs = self.log_ratio(np.arange(-last - 1, last + 1)) + self.log_peak()
        masses = np.exp(logs) * (1 + 1e-9)
        atoms = [
            (Fraction(here - moved) + Fraction(1, 10**9), Decimal(mass))
            for moved, here, mass in zip(logs, logs[1:], masses[1:], strict=False)
        ]
        return LossAtoms(atoms, Decimal(2 * self.cdf(-last)))

    @property
    def parameter(self) -> Fraction:
        return self.scale

    @property
    def continuous_variance(self) -> Fraction:
        return self.scale**2

    def variance(self) -> float:
        s = float(self.scale)
        return s**2 * (math.pi * s / math.tanh(math.pi * s) / _upper_tails(self.scale)[1] - 1)

    def cdf(self, k: int) -> float:
        if k >= 0:
            return 1.0 - self.cdf(-k - 1)
        tails, total = _upper_tails(self.scale)
        return float(
            tails[-k] if -k < len(tails) else self.scale**4 / (3 * (-k - 0.5) ** 3) / total
        )

    def quantile(self, probability: float) -> int:
        least, most = -1, 1
        while self.cdf(least) >= probability:
            least *= 2
        while self.cdf(most) < probability:
            most *= 2
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (least, middle) if self.cdf(middle) >= probability else (middle, most)
        return most

    def log_ratio(self, noise: npt.ArrayLike) -> FloatArray:
        at = np.asarray(noise, np.float64)
        return on_integers(at, -2 * np.log1p(np.square(at / float(self.scale))))

    def log_peak(self) -> float:
        return -math.log(_upper_tails(self.scale)[1])

    def sampler(self) -> Sampler:
        return StudentSampler(self.scale)


@pytest.fixture
def registered(monkeypatch):
    """The one place: nothing else is told of it."""
    monkeypatch.setattr(registry, "_MECHANISMS", dict(registry._MECHANISMS))
    return registry.register(DiscreteStudent)


def students(folder: Path, **changes: object) -> Path:
    """The toy state under pure privacy, its allocation naming the noise."""
    allocation = yaml.safe_load((toy.ROOT / "conf" / "allocation" / "toy.yaml").read_text())
    path = folder / "allocation.yaml"
    path.write_text(yaml.safe_dump({**allocation, "mechanism": DiscreteStudent.kind}))
    privacy = {
        "definition": "pure",
        "epsilon": "16",
        "allocation": str(path),
        "randomness": {"source": "seeded_not_for_release", "seed": 5},
    }
    return toy.configuration(folder, privacy=privacy, **changes)


def test_a_run_with_a_third_mechanism(tmp_path, registered):
    toy.write_records(tmp_path)
    config = students(tmp_path, solve={"method": "reweighted"})
    plan = load_run(config).plan
    for noisy in plan.noise(0, 0):
        assert isinstance(noisy.mechanism, DiscreteStudent)
        assert noisy.mechanism.cost(Definition.PURE, Fraction(2)) == noisy.cost  # all partitions
    assert node_settings(plan).noise is Student

    out = execute(config, figures=True)
    assert tree_is_consistent(out, toy.LEVELS)
    assert totals_are_exact(out, "state")
    release = release_of(out)
    verify_release(plan, release)
    parts = ("subtree", "tables", "whole")
    assert all(
        any((release_of(out).root / "estimates" / part).rglob("*.parquet")) for part in parts
    )
    ledger = read_ledger(release.ledger).spent()
    ledger.finalize()
    assert ledger.path_costs() == (16, 16)
    assert {type(entry.mechanism) for entry in ledger.entries} == {DiscreteStudent}

    manifest = json.loads((release_of(out).manifest).read_text())
    assert {row["mechanism"] for row in manifest["budget"]} == {"discrete_student"}
    for row in manifest["budget"]:
        assert row["variance"] == DiscreteStudent(Fraction(row["parameter"])).variance()
    files = (release.measurements("block")).glob("*.parquet")
    table = pa.concat_tables(pq.read_table(path, partitioning=None) for path in files)
    assert set(table.column("mechanism").to_pylist()) == {"discrete_student"}
    page = (release_of(out).report).read_text()
    assert "a discrete Student variable" in page
    assert "Laplace" not in page
    assert "Gaussian" not in page


def test_a_run_names_only_noise_that_is_known_and_can_be_charged(tmp_path, registered):
    toy.write_records(tmp_path)
    config = students(tmp_path)
    zcdp = config.with_name("zcdp.yaml")
    text = config.read_text().replace("definition: pure", "definition: zcdp")
    zcdp.write_text(text)
    with pytest.raises(
        (BudgetError, ConfigError),
        match=r"discrete_student.*has no cost under this privacy definition",
    ):
        load_run(zcdp)
    allocation = tmp_path / "allocation.yaml"
    allocation.write_text(allocation.read_text().replace("discrete_student", "discrete_nothing"))
    with pytest.raises(
        (BudgetError, ConfigError), match=r"mechanism.* is unknown; got discrete_no"
    ):
        load_run(config)


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(5, 2), Fraction(40)])
def test_the_cost_is_certified(scale):
    """w(k + 1) / w(k) >= exp(-2 / scale), by bounds in integers; the slope is largest at scale."""
    _, most = exp_bounds(2 / scale, 60)
    ratios = [
        ((scale**2 + k**2) / (scale**2 + (k + 1) ** 2)) ** 2
        for k in range(4 * math.ceil(scale) + 4)
    ]
    assert min(ratios) * 2**60 >= most
    if scale > 1:
        assert min(ratios) < math.exp(-1.8 / scale)  # and not far below what is paid


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(5, 2), Fraction(40)])
def test_no_weight_exceeds_the_bound_of_its_band(scale):
    sampler = StudentSampler(scale)
    for band in range(5):
        first, length, most = sampler.bound(band)
        assert first + length == sampler.bound(band + 1)[0]
        assert (scale**2 + first**2) ** -2 <= most


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(5, 2)])
def test_noise_has_the_distribution_that_is_said(scale):
    mechanism = DiscreteStudent(scale)
    zeros = np.zeros((4000, 1), np.int64)
    key = NoiseKey.for_testing(1)
    drawn = add_noise(zeros, mechanism=mechanism, stream=stream(key, 4000)).ravel()
    edges = [-4, -2, -1, 0, 1, 3]  # cells of at least 5 expected draws

    def expected(noise: DiscreteStudent) -> FloatArray:
        return np.diff([0.0, *(noise.cdf(k) for k in edges), 1.0])

    seen = np.histogram(drawn, [-np.inf, *(k + 0.5 for k in edges), np.inf])[0]
    assert stats.chisquare(seen, len(drawn) * expected(mechanism)).pvalue > 1e-3
    other = DiscreteStudent(scale * Fraction(6, 5))
    assert stats.chisquare(seen, len(drawn) * expected(other)).pvalue < 1e-3
    assert sum(expected(mechanism)) == pytest.approx(1)
    k = np.arange(-200_000, 200_001)
    masses = np.exp(mechanism.log_ratio(k) + mechanism.log_peak())
    assert masses.sum() == pytest.approx(1, abs=1e-12)
    assert (masses * np.square(k)).sum() == pytest.approx(mechanism.variance(), rel=1e-4)
    assert mechanism.quantiles(np.array([0.5])).tolist() == [0.0]


def test_losses_are_composed_with_any_mechanism():
    shifts, delta = UnitShifts(DiscreteStudent(Fraction(4)), 2), Fraction(1, 10**6)
    losses = losses_of_paths(1, [{(0, 0): (shifts,)}], Neighbors.UNBOUNDED, delta)
    assert 0.8 < losses.epsilon(delta) <= 1.0 + 1e-3  # twice 2 / 4
