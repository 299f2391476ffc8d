"""measure(): the noisy door of the firewall. The only function that turns truth into a release."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from das.confidential import Confidential
from das.errors import BudgetError
from das.histograms import Histograms
from das.measurement import Measurements
from das.mechanisms.entropy import NoiseKey, stream_label
from das.mechanisms.mechanism import Mechanism
from das.mechanisms.noise import add_noise
from das.queries.query import Query


def measure(
    truth: Confidential[Histograms],
    query: Query,
    *,
    geocodes: Sequence[str],
    mechanisms: Sequence[Mechanism],
    key: NoiseKey,
) -> Measurements:
    """Answer a query in every geounit and add noise.

    Args:
      truth: Histograms of G geounits.
      query: The query.
      geocodes: G geocodes; with the query's name they select the noise stream.
      mechanisms: G laws of noise.
      key: Noise key; the same (key, geocode, query, mechanism) always gives the same noise.

    Returns:
      The noisy answers.

    Law: answers[g, j] = Q(x_g)_j + Z_gj, the Z_gj independent with the law of mechanisms[g],
    exactly, given uniform bits.

    Raises:
      BudgetError: Lengths differ.
    """
    exact = query.answer(truth.reveal())
    if not len(geocodes) == len(mechanisms) == len(exact):
        raise BudgetError(
            f"measure {query.name}", "needs one geocode and one mechanism per geounit"
        )
    noisy = np.empty_like(exact)
    labels = [stream_label(geocode, query.name) for geocode in geocodes]
    # Most rows share one object; comparing its fractions in each row would cost more than noise.
    objects = {id(mechanism): mechanism for mechanism in mechanisms}
    for mechanism in dict.fromkeys(objects.values()):
        rows = [i for i, other in enumerate(mechanisms) if other is mechanism or other == mechanism]
        noisy[rows] = add_noise(
            exact[rows], mechanism=mechanism, key=key, labels=[labels[i] for i in rows]
        )
    return Measurements(query.name, tuple(mechanisms), noisy)
