"""What microdata do to groups, against rows that are counted one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from das.metrics.classifier import train
from das.synthesis.records import Records
from jobs.survey.confidential.evaluate import group_errors, predict
from jobs.survey.plan import load_survey
from tests.builders.survey import write_survey

SEX, GROUP, AGE, INCOME = range(4)
LABELS = ["m", "f"], ["a", "b", "c"]


def people(domain, n, seed):
    """Incomes rise with age, more for one sex; group c is one in 30."""
    rng = np.random.default_rng(seed)
    sex, age = rng.integers(0, 2, n), rng.integers(0, 5, n)
    group = rng.choice(3, n, p=[0.6, 0.4 - 1 / 30, 1 / 30])
    income = np.clip(age + sex + rng.integers(-2, 2, n), 0, 4)
    return Records(domain, np.stack([sex, group, age, income], axis=1).astype(np.int64))


@pytest.fixture
def plan(tmp_path):
    predicted = {"attribute": "income", "levels": ["2000 to 4999", "5000 and over"]}
    asked = {"groups": [["group"], ["sex", "group"]], "floor": 20, "predict": predicted}
    return load_survey(write_survey(tmp_path, evaluate=asked))


def test_predictions_are_counted_by_groups_that_are_large_enough(plan):
    domain = plan.microdata_domain
    true, released = people(domain, 700, 1), people(domain, 500, 2)
    found = predict(plan, true, released)
    assert found.features == ("sex", "group", "age")
    actual = [income in (2, 3) for income in true.codes[:, INCOME].tolist()]
    assert found.positive == sum(actual)
    assert found.majority_accuracy == pytest.approx(max(sum(actual), 700 - sum(actual)) / 700)
    assert [one.trained_on for one in found.classifiers] == ["release", "truth"]
    for one, source in zip(found.classifiers, (released, true), strict=True):
        flags = np.isin(source.codes[:, INCOME], (2, 3))
        says = train(source.codes[:, :3], (2, 3, 5), flags).predict(true.codes[:, :3]).tolist()
        assert (one.records, one.positive) == (len(source.codes), flags.sum())
        assert one.correct == sum(a == b for a, b in zip(says, actual, strict=True))
        assert one.accuracy == pytest.approx(one.correct / 700)
        for inside, parity in zip(([GROUP], [SEX, GROUP]), one.parity, strict=True):
            shares, rates, kept, left_out = [], [], [], []
            for levels in itertools.product(*(range(len(LABELS[i])) for i in inside)):
                name = " * ".join(LABELS[i][level] for i, level in zip(inside, levels, strict=True))
                rows = [j for j in range(700) if tuple(true.codes[j, inside]) == levels]
                missed = sum(actual[j] and not says[j] for j in rows)
                positive, predicted = sum(actual[j] for j in rows), sum(says[j] for j in rows)
                if len(rows) < 20:
                    left_out.append(name)
                    continue
                rate = missed / positive if positive >= 20 else None
                kept.append((name, len(rows), positive, predicted, missed, rate))
                shares.append(predicted / len(rows))
                rates += [rate] if positive >= 20 else []
            own = [(g.group, g.records, g.positive, g.predicted, g.missed, g.false_negative_rate)
                   for g in parity.groups]  # fmt: skip
            assert own == kept
            assert parity.left_out == tuple(left_out)
            assert parity.demographic_parity_ratio == pytest.approx(min(shares) / max(shares))
            spread = max(rates) - min(rates)
            assert parity.false_negative_rate_difference == pytest.approx(spread)
    small = found.classifiers[0].parity[1].left_out
    assert small == ("m * c", "f * c")  # about 12 of 700 each


def test_the_worst_share_is_that_of_a_level_with_enough_records(plan):
    domain = plan.microdata_domain
    true, released = people(domain, 700, 3), people(domain, 500, 4)
    found = group_errors(plan, ["sex", "group"], true, released)
    compared = []
    for sex, group in itertools.product(range(2), range(3)):
        own, made = (
            [row for row in records.codes.tolist() if row[:2] == [sex, group]]
            for records in (true, released)
        )
        for i, name in ((AGE, "age"), (INCOME, "income")):
            for level, label in enumerate(plan.levels(name)):
                count = sum(row[i] == level for row in own)
                if count < 20:
                    continue
                truth = count / len(own)
                share = sum(row[i] == level for row in made) / len(made)
                where = (f"{LABELS[0][sex]} * {LABELS[1][group]}", name, label)
                compared.append((abs(share - truth) / truth, where))
    worst = found.max_disparity
    assert found.shares == len(compared)
    assert (worst.group, worst.attribute, worst.level) == max(compared)[1]
    assert worst.relative == pytest.approx(max(compared)[0])
    assert abs(worst.released - worst.truth) / worst.truth == pytest.approx(worst.relative)


def test_no_share_is_compared_where_none_has_enough_records(plan):
    few = people(plan.microdata_domain, 15, 5)
    found = group_errors(plan, ["sex"], few, few)
    assert (found.shares, found.max_disparity) == (0, None)
    everything = group_errors(plan, ["sex", "group", "age", "income"], few, few)
    assert everything.max_disparity is None
    parity = predict(plan, few, few).classifiers[0].parity[0]
    assert (parity.groups, parity.left_out) == ((), ("a", "b", "c"))
    assert parity.demographic_parity_ratio is None
    assert parity.false_negative_rate_difference is None
