"""What replicates of a release say of its errors, and where the truth lies by what is seen."""

from __future__ import annotations

import hashlib
from typing import Literal

from jobs.pipeline.documents.document import ExactText, document, read_document
from jobs.pipeline.documents.evaluation import Bin, Means
from jobs.pipeline.storage.files import read_bytes
from jobs.pipeline.storage.place import Place

Marked = Literal["within", "above", "below", "unknown", "shifted"]


@document
class _Asked:
    """What is asked.

    Attributes:
      geolevel: Where.
      query: Name of the query.
    """

    geolevel: str
    query: str


@document
class SizeErrors(Bin, Means, _Asked):
    """Errors of replicates, replicate minus release, of answers with one range of counts.

    Attributes:
      bin: The counts in the release that it covers, such as `10 to 49`.
    """


@document
class SeenInterval(_Asked):
    """Where the truth lies of answers of one size class.

    Attributes:
      geounit: Records of the geounit in the release, such as `100 to 999`.
      count: The answer in the release, such as `10 to 49`.
      low: Least truth minus release of the interval.
      high: Largest.
      answers: Answers of replicates that it was made of.
      expected: Share of them that intervals made in the same way of replicates of replicates hold;
        null if there are too few.
      mark: `within` two points of the confidence, by `expected`; `above` it, where counts are
        whole numbers and no narrower interval holds the truth often enough; `below` it: the class
        is not covered; `unknown` where there are too few replicates; `shifted` where it is within,
        but the class changes from step to step, so that the truth may be held less often.
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
    """Errors of replicates of a release, and the intervals made of them.

    Attributes:
      format: 1.
      manifest: SHA-256 of the manifest of the release.
      not_for_release: Whether the noise of the release itself was seeded.
      confidence: With which an interval holds the truth, an exact fraction.
      replicates: How many.
      checked: How many of them were replicated themselves.
      seed: Of the noise of the replicates; no secret.
      bytes: Of the errors that are kept of all replicates.
      errors: By geolevel, query and range of counts.
      intervals: By geolevel, query and size class; only classes that replicates hold.
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


def read_intervals(path: Place, manifest: Place) -> Intervals | None:
    """What replicates say of a release; None if there are none, or only of another release.

    Args:
      path: The document.
      manifest: The manifest of the release.

    Raises:
      OutputError: The document is damaged.
    """
    if not path.exists():
        return None
    found = read_document(Intervals, path, remedy="remove it, and run `das replicate` again")
    return found if found.manifest == digest_of(manifest) else None


def digest_of(manifest: Place) -> str:
    """SHA-256 of the manifest of a release, as a document about the release names it.

    Raises:
      OutputError: It is missing or cannot be read.
    """
    data = read_bytes(manifest, "use `das run RUN --only solve`")
    return hashlib.sha256(data).hexdigest()
