"""Refuse regressions that were trained on the input of the run that would use them.

Regressions are fixed before measuring and carry no budget, so they must not depend on the data that
noise protects. The file of the input is compared with the public tables by digest. Where the truth
is read, its histograms are compared too, so that the same counts in another format are recognised.
"""

from __future__ import annotations

import hashlib

import numpy as np

from das.confidential import redact_errors
from das.errors import ConfigError
from das.histograms import Histograms
from jobs.pipeline.confidential.histograms import true_counts
from jobs.pipeline.config.product import Product
from jobs.pipeline.job import Job
from jobs.pipeline.storage.dataset import is_published
from jobs.pipeline.storage.geography import read_public_geocodes
from jobs.pipeline.tasks.batches import Batch, geounit_batches
from jobs.pipeline.tasks.executor import Tasks

# Records of a geounit whose histogram is compared: those of so many are hardly ever equal in two
# places. Public numbers: defaults, not measured.
_LEAST_RECORDS = 100
_SKETCH = 256  # histograms of a table whose digests are kept, those of the smallest digests
_MOST_SHARED = 8  # of them that the input may have by chance


def refuse_same_file(product: Product) -> None:
    """Refuse regressions that were trained on the input file of a product.

    Raises:
      ConfigError: The input has the digest of a public table of the training.
    """
    learned, path = product.plan.solving.learned, product.config.input.path
    if learned is None or not path.is_file():
        return
    data = path.read_bytes() if path.stat().st_size in learned.tables.values() else b""
    if hashlib.sha256(data).hexdigest() in learned.tables:
        raise _trained_on_input(product)


def refuse_same_counts(job: Job) -> None:
    """Refuse regressions that were trained on counts of the input; says nothing else of them.

    Raises:
      ConfigError: Many histograms of the input are those of the training.
    """
    for product in job.products:
        learned, leaf = product.plan.solving.learned, product.plan.leaf.name
        if learned is not None and is_published(product.confidential.histograms(leaf)):
            if len(_shared(product, learned.sketch, job.tasks)) > _MOST_SHARED:
                raise _trained_on_input(product)


def _shared(product: Product, sketch: frozenset[str], tasks: Tasks) -> frozenset[str]:
    """Return the digests of a sketch that some true histograms have."""
    plan, release, leaf = product.plan, product.release, product.plan.leaf

    @redact_errors
    def shared(batch: Batch) -> frozenset[str]:
        codes = read_public_geocodes(release, leaf.name, batch.low, batch.high)
        truth = true_counts(plan, product.confidential, leaf.name, codes).reveal()
        return sketch.intersection(digests_of(truth))

    size = tasks.sizing.check_geounits
    batches = geounit_batches(release, leaf, tasks.batches, size.most, size.least)
    return frozenset[str]().union(*tasks.run("compare training", batches, shared))


def _trained_on_input(product: Product) -> ConfigError:
    return ConfigError(
        f"{product.keys}solve.learned",
        "was trained on the input of this run, which noise must protect",
        remedy="train on public counts of other places with `das plan --learn`, or remove "
        "`solve.learned`",
    )


def digests_of(histograms: Histograms) -> list[str]:
    """Return a digest of the histogram of each geounit with at least 100 records."""
    starts, counts, cells = histograms.offsets, histograms.counts, histograms.cells
    sizes = np.diff(np.concatenate(([0], np.cumsum(counts)))[starts])
    digests = []
    for geounit in np.flatnonzero(sizes >= _LEAST_RECORDS).tolist():
        part = slice(int(starts[geounit]), int(starts[geounit + 1]))
        content = cells[part].tobytes() + counts[part].tobytes()
        digests.append(hashlib.blake2b(content, digest_size=8).hexdigest())
    return digests


def sketch_of(histograms: Histograms) -> list[str]:
    """Return the smallest digests of histograms: a sample that depends on their content alone."""
    return sorted({*digests_of(histograms)})[:_SKETCH]
