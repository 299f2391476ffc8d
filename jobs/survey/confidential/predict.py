"""What a use of the microdata of a survey does to groups: a classifier. Confidential."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from das.arrays import BoolArray, IntArray
from das.metrics.classifier import train
from das.metrics.microdata import (
    demographic_parity_ratio,
    false_negative_rate_difference,
)
from das.synthesis.records import Records
from jobs.pipeline.confidential.parity import number
from jobs.survey.checks import predict_features
from jobs.survey.confidential.groups import group_names
from jobs.survey.documents import (
    ClassifierErrors,
    GroupPrediction,
    PredictionParity,
    Predictions,
)
from jobs.survey.plan import SurveyPlan


def predict(plan: SurveyPlan, true: Records, released: Records) -> Predictions | None:
    """Train one classifier on the microdata and one on the truth, and test both on the truth.

    Args:
      plan: The run.
      true: The true records, of the attributes of the microdata.
      released: The microdata.

    Returns:
      Counts and their ratios; None if the run file predicts nothing.
    """
    asked = plan.config.evaluate.predict
    if asked is None:
        return None
    features = predict_features(asked, true.domain.names)
    columns = true.domain.positions(features)
    (target,) = true.domain.positions([asked.attribute])
    is_positive = np.isin(np.array(plan.levels(asked.attribute)), asked.levels)
    sizes = [true.domain.sizes[i] for i in columns]
    actual = is_positive[true.codes[:, target]]
    trained: list[tuple[Literal["release", "truth"], Records]] = [
        ("release", released),
        ("truth", true),
    ]
    classifiers = []
    for trained_on, records in trained:
        flags = is_positive[records.codes[:, target]]
        classifier = train(records.codes[:, columns], sizes, flags)
        predicted = classifier.predict(true.codes[:, columns])
        correct = int((predicted == actual).sum())
        classifiers.append(
            ClassifierErrors(
                trained_on=trained_on,
                records=len(flags),
                positive=int(flags.sum()),
                correct=correct,
                accuracy=correct / max(1, len(actual)),
                parity=tuple(
                    _parity(plan, attributes, true, actual, predicted)
                    for attributes in plan.config.evaluate.groups
                ),
            )
        )
    positive = int(actual.sum())
    return Predictions(
        attribute=asked.attribute,
        levels=tuple(asked.levels),
        features=tuple(features),
        positive=positive,
        majority_accuracy=max(positive, len(actual) - positive) / max(1, len(actual)),
        classifiers=tuple(classifiers),
    )


def _parity(
    plan: SurveyPlan,
    attributes: Sequence[str],
    true: Records,
    actual: BoolArray,
    predicted: BoolArray,
) -> PredictionParity:
    """What predictions do to groups with enough true records."""
    floor, names = plan.config.evaluate.floor, group_names(plan, attributes)
    inside = true.domain.positions(attributes)
    groups = np.ravel_multi_index(
        tuple(true.codes[:, i] for i in inside), tuple(true.domain.sizes[i] for i in inside)
    ).astype(np.int64)

    def counts(flags: BoolArray) -> IntArray:
        return np.bincount(groups[flags], minlength=len(names))

    records, positive = counts(np.ones(len(groups), bool)), counts(actual)
    found, missed = counts(predicted), counts(actual & ~predicted)
    has_share, has_rate = records >= floor, positive >= floor
    kept, rated = has_share[groups], has_rate[groups]
    return PredictionParity(
        attributes=tuple(attributes),
        groups=tuple(
            GroupPrediction(
                group=names[i],
                records=int(records[i]),
                positive=int(positive[i]),
                predicted=int(found[i]),
                missed=int(missed[i]),
                false_negative_rate=float(missed[i] / positive[i]) if has_rate[i] else None,
            )
            for i in np.flatnonzero(has_share)
        ),
        left_out=tuple(names[i] for i in np.flatnonzero(~has_share)),
        demographic_parity_ratio=number(demographic_parity_ratio(predicted[kept], groups[kept])),
        false_negative_rate_difference=number(
            false_negative_rate_difference(actual[rated], predicted[rated], groups[rated])
        ),
    )
