"""Errors of a release estimated from replicates, and intervals for true counts."""

from __future__ import annotations

import hashlib
from typing import Literal

from jobs.pipeline.documents.document import ExactText, document, read_document
from jobs.pipeline.documents.evaluation import Bin, Means
from jobs.pipeline.storage.dataset import MANIFEST
from jobs.pipeline.storage.files import read_bytes
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import Place

Marked = Literal["within", "above", "below", "unknown", "shifted"]


@document
class _QueryAtLevel:
    """A query at a geolevel.

    Attributes:
      geolevel: Name of the geolevel.
      query: Name of the query.
    """

    geolevel: str
    query: str


@document
class SizeErrors(Bin, Means, _QueryAtLevel):
    """Errors of replicates, replicate minus release, of answers with one range of counts.

    Attributes:
      bin: Range of released counts, such as `10 to 49`.
    """


@document
class SeenInterval(_QueryAtLevel):
    """Interval for the true answers of one size class.

    Attributes:
      geounit: Range of released records of the geounit, such as `100 to 999`.
      count: Range of the released answer, such as `10 to 49`.
      low: Lower end of the interval of truth minus release.
      high: Upper end of the interval of truth minus release.
      answers: Number of replicated answers from which the interval was computed.
      expected: Estimated coverage, from replicates of replicates; null with too few of them.
      mark: `within` two percentage points of the confidence, by `expected`; `above` it, if counts
        are integers and every narrower interval covers too rarely; `below` it, so the class is not
        covered; `unknown` with too few replicates; `shifted` if within, but the class changes from
        replicate to replicate, so the coverage may be lower.
    """

    geounit: str
    count: str
    low: int
    high: int
    answers: int
    expected: float | None
    mark: Marked


@document
class Intervals:
    """Errors of replicates of a release, and intervals computed from them.

    Attributes:
      format: 1.
      manifest: SHA-256 of the manifest of the counts of the last geolevel, whose errors these are.
      not_for_release: Whether the noise of the release itself was seeded.
      confidence: Nominal coverage of the intervals, an exact fraction.
      replicates: Number of replicates.
      checked: Number of replicates that were replicated in turn; without one, marks are `unknown`.
      seed: Public seed of the noise of the replicates.
      bytes: Size of the stored errors of all replicates.
      errors: Errors by geolevel, query and range of counts.
      intervals: Intervals by geolevel, query and size class that occurs in replicates.
    """

    format: Literal[1]
    manifest: str
    not_for_release: bool
    confidence: ExactText
    replicates: int
    checked: int
    seed: int
    bytes: int
    errors: tuple[SizeErrors, ...]
    intervals: tuple[SeenInterval, ...]


def read_intervals(release: ReleaseLayout, leaf: str) -> Intervals | None:
    """Read the intervals of a release: those of `das replicate` if there are any, else of the run.

    Args:
      release: The release.
      leaf: Name of the last geolevel.

    Returns:
      The intervals; None if there are none, or only of other counts.

    Raises:
      OutputError: A document is damaged.
    """
    for path in (release.replicated, release.intervals):
        if path.exists():
            intervals = read_document(
                Intervals, path, remedy="take it from a copy, or run `das replicate` without it"
            )
            if intervals.manifest == digest_of(release.counts(leaf) / MANIFEST):
                return intervals
    return None


def digest_of(manifest: Place) -> str:
    """Return the SHA-256 of the manifest of a release.

    Raises:
      OutputError: The manifest is missing or cannot be read.
    """
    data = read_bytes(manifest, "use `das run RUN --only solve`")
    return hashlib.sha256(data).hexdigest()
