"""measure(): the noisy door of the firewall. The only function that turns truth into a release."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from das.confidential import Confidential
from das.errors import BudgetError
from das.histograms import Histograms
from das.measurement import Measurements
from das.mechanisms.entropy import NoiseKey, stream_label
from das.mechanisms.noise import add_noise
from das.queries.query import Query


def measure(
    truth: Confidential[Histograms],
    query: Query,
    *,
    geocodes: Sequence[str],
    sigma_sq: Sequence[Fraction],
    key: NoiseKey,
) -> Measurements:
    """Answer a query in every geounit and add discrete Gaussian noise.

    Args:
      truth: Histograms of G geounits.
      query: The query.
      geocodes: G geocodes; with the query's name they select the noise stream.
      sigma_sq: G exact parameters.
      key: Noise key; the same (key, geocode, query) always gives the same noise.

    Returns:
      The noisy answers.

    Law: answers[g, j] = Q(x_g)_j + Z_gj, Z_gj independent discrete Gaussians with
    P(Z = k) proportional to exp(-k^2 / (2 sigma_sq[g])), exactly, given uniform bits.

    Raises:
      BudgetError: Lengths differ.
    """
    exact = query.answer(truth.reveal())
    if not len(geocodes) == len(sigma_sq) == len(exact):
        raise BudgetError(f"measure {query.name}", "needs one geocode and one sigma_sq per geounit")
    noisy = np.empty_like(exact)
    for value in sorted(set(sigma_sq)):
        rows = np.array([i for i, s in enumerate(sigma_sq) if s == value], np.int64)
        labels = [stream_label(geocodes[i], query.name) for i in rows]
        noisy[rows] = add_noise(exact[rows], sigma_sq=value, key=key, labels=labels)
    return Measurements(query.name, tuple(sigma_sq), noisy)
