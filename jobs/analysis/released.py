"""Released counts of any area with intervals from replicates, for `das estimate --released`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from das.arrays import Geocodes, IntArray
from das.errors import ConfigError, InputError
from das.histograms import Histograms
from das.metrics.replicates import own_intervals
from das.queries.query import parse_query
from jobs.plan import Plan
from jobs.storage.dataset import Dataset, is_published
from jobs.storage.geography import read_public_geocodes
from jobs.storage.histograms import read_histograms
from jobs.storage.layout import ReleaseLayout
from jobs.storage.place import Place

RELEASED = pa.schema(
    [
        ("area", pa.string()),
        ("query", pa.string()),
        ("label", pa.string()),
        ("count", pa.int64()),
        ("lower", pa.int64()),
        ("upper", pa.int64()),
        ("bias", pa.float64()),
        ("standard_deviation", pa.float64()),
        ("confidence", pa.float64()),
        ("replicates", pa.int64()),
    ]
)


def kept_leaves(folder: Place, product: str) -> list[Dataset]:
    """Leaf counts of the replicates of a product that were kept.

    Args:
      folder: Where its replicates are at work.
      product: Name of the product.

    Raises:
      ConfigError: There are fewer than two.
    """
    places: list[Place] = sorted((folder / "leaves" / product).glob("*"), key=str)
    found = [Dataset.open(place) for place in places if is_published(place)]
    if len(found) < 2:
        raise ConfigError(
            "estimate --released",
            "needs leaf counts of replicates",
            got=f"{len(found)} replicates in {folder}",
            remedy="make some with `das replicate OUT --areas`",
        )
    return found


def released_areas(
    plan: Plan,
    release: ReleaseLayout,
    replicates: Sequence[Dataset],
    query: str,
    areas: Mapping[str, Geocodes],
    confidence: float,
) -> pa.Table:
    """Released counts of a query in areas, with intervals.

    Args:
      plan: The plan.
      release: A finished release.
      replicates: Leaf counts of its replicates.
      query: Any query on the schema.
      areas: Leaf geocodes per area.
      confidence: Of the intervals.

    Returns:
      One row of RELEASED per area and answer.

    Raises:
      ConfigError: No area is named.
      InputError: A leaf does not exist.
      SchemaError: The query does not parse.
    """
    if not areas:
        raise ConfigError("estimate", "names no area", want="--area, --geounit or --geolevel")
    parsed = parse_query(plan.schema, query)
    codes = np.unique(np.concatenate([*areas.values()])).astype(np.str_)
    known = read_public_geocodes(release, plan.leaf.name)
    if not np.isin(codes, known.astype(np.str_)).all():
        raise InputError("estimate, area", "is not a set of geounits of the last geolevel")
    members = [np.searchsorted(codes, np.unique(own).astype(np.str_)) for own in areas.values()]

    def answers(counts: Dataset) -> IntArray:
        leaves = read_histograms(counts, codes.astype(object), plan.schema.size)
        return parsed.answer(_sums(leaves, members))

    seen = answers(Dataset.open(release.counts(plan.leaf.name)))
    found = own_intervals(seen, np.stack([answers(one) for one in replicates]), confidence)
    signed = any(factor.matrix.min() < 0 for factor in parsed.factors)
    ends = [value if signed else np.maximum(value, 0) for value in (found.lower, found.upper)]
    columns = [
        np.repeat(np.array([*areas], object), parsed.size),
        [parsed.name] * seen.size,
        parsed.labels() * len(areas),
        *(value.ravel() for value in (seen, *ends, found.bias, found.spread)),
        [confidence] * seen.size,
        [len(replicates)] * seen.size,
    ]
    return pa.table(columns, schema=RELEASED)


def _sums(leaves: Histograms, members: Sequence[IntArray]) -> Histograms:
    """Sums over areas, each given by the positions of its leaves."""
    lengths = np.diff(leaves.offsets)
    positions = np.concatenate(members)
    area = np.repeat(np.arange(len(members)), [len(own) for own in members])
    sizes = lengths[positions]
    first = np.cumsum(sizes) - sizes
    entries = np.arange(int(sizes.sum())) - np.repeat(first - leaves.offsets[positions], sizes)
    return Histograms.from_entries(
        leaves.n_cells,
        len(members),
        np.repeat(area, sizes),
        leaves.cells[entries],
        leaves.counts[entries],
    )


def leaves_of(plan: Plan, release: ReleaseLayout, geounits: Sequence[str]) -> dict[str, Geocodes]:
    """Leaf geocodes of geounits of any geolevel, by geocode.

    Raises:
      InputError: A geounit does not exist.
    """
    leaves = read_public_geocodes(release, plan.leaf.name).astype(np.bytes_)
    known = {
        str(code) for level in plan.spine.levels for code in read_public_geocodes(release, level)
    }
    unknown = [code for code in geounits if code not in known]
    if unknown:
        raise InputError("estimate", "has no such geounit", got=unknown[0])
    root = [str(code) for code in read_public_geocodes(release, plan.levels[0].name)]
    found = {}
    for code in geounits:
        prefix = "" if root == [code] else code
        found[code] = leaves[np.char.startswith(leaves, prefix.encode())]
    return found
