"""Microdata that lie among the test data, as records."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence

import numpy as np
import pyarrow.parquet as pq

from das.arrays import IntArray
from das.metrics.microdata import distances_of
from das.synthesis.records import Domain, Records
from tests.checkout import ROOT


def read_microdata(name: str) -> Records:
    """Records of a file under tests/data, such as "adult"; see tests/data/README.md."""
    table = pq.read_table(ROOT / "tests" / "data" / f"{name}.parquet")
    levels = json.loads(table.schema.metadata[b"levels"])
    codes = np.stack([table[column].to_numpy().astype(np.int64) for column in levels], axis=1)
    if "records" in table.column_names:
        codes = np.repeat(codes, table["records"].to_numpy(), axis=0)
    return Records(Domain(tuple(levels), tuple(levels.values())), codes)


def k_way_error(truth: IntArray, released: IntArray, sizes: Sequence[int], k: int) -> float:
    """Mean over all sets of k attributes of the L1 distance of shares.

    Rosenblatt, Stoyanovich & Musco, Stratification against the disparate impact of differential
    privacy, Definition 14 with c = 1.
    """
    marginals = itertools.combinations(range(len(sizes)), k)
    distances = distances_of(truth, released, sizes, marginals)
    return math.fsum(distances.values()) / len(distances)
