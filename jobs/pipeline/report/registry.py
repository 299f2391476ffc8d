"""Draft of an entry of the Differential Privacy Deployments Registry. Public."""

from __future__ import annotations

from das.rational import stated_fraction
from jobs.pipeline.config.models.run import AboutConfig
from jobs.pipeline.documents.manifest import Manifest
from jobs.pipeline.report.certificate import one_of, whole_of
from jobs.pipeline.report.page import render
from jobs.pipeline.report.text import words
from jobs.pipeline.storage.files import READABLE, replace_file
from jobs.pipeline.storage.place import Place

START = b"# Draft of an entry"
"""How drafts begin."""
_SOLVING = (
    "Nonnegative least squares and controlled rounding from the root of the tree of places down; "
    "exact values and sums over places hold. Unbiased estimates with intervals are published too."
)

_DRAWN = {
    "operating_system": "drawn exactly in integer arithmetic from a cryptographic source",
    "seeded_not_for_release": "NOT FOR RELEASE: seeded for a test, which protects nobody,",
    "elsewhere": "NOT VERIFIED: drawn elsewhere, post-processed",
}
"""Origin of the noise by the `randomness` of a manifest."""


def write_registry_draft(manifest: Manifest, about: AboutConfig, out: Place) -> None:
    """Write the draft of an entry of the registry as YAML.

    The entry states the guarantee for everything released about the people of the release.

    Args:
      manifest: Manifest of the last product.
      about: Texts of the run file about the release.
      out: The file; replaced at once.

    Raises:
      OutputError: The file cannot be written.

    References:
      opendp/deployments-registry-data, schemas/deployments-schema.yaml (02f6334).
    """
    privacy, software = whole_of(manifest), manifest.software
    unit = "epsilon" if privacy.definition.is_pure else "rho"
    charged = {row.charged for row in manifest.budget}
    geolevels = dict.fromkeys(row.geolevel for row in manifest.budget)
    exact = [
        f"{row.query} at {', '.join(map(words, row.geolevels))}" for row in manifest.invariants
    ]
    exact += [f"{words(limit.kind)} {words(limit.name)}".strip() for limit in manifest.limits]
    noises = dict.fromkeys(words(row.mechanism) for row in manifest.budget)
    joined = "; queries of a planned strategy are charged for their joint cost" * (
        "together" in charged
    )
    context = {
        "manifest": manifest,
        "publisher": about.publisher,
        "description": about.description,
        "privacy": privacy,
        "records": manifest.records,
        "one": one_of(manifest.records),
        "exact": exact,
        "rho": float(stated_fraction(privacy.rho)),
        "delta": float(stated_fraction(privacy.delta)),
        "parameters": (
            f"{unit} is exactly {privacy.total}, for everything released about these "
            f"{manifest.records}; epsilon by the textbook formula is {privacy.epsilon_simple}"
        ),
        "post_processing": _SOLVING,
        "composition": (
            f"Sequential over {len(manifest.budget)} queries of the geolevels "
            f"{', '.join(map(words, geolevels))}; over the places of a geolevel, both records of a "
            f"change are charged once{joined}. "
            "The account adds releases about the same people."
        ),
        "mechanisms": (
            f"{', '.join(noises)} noise, "
            f"{_DRAWN[manifest.privacy.randomness]} by {software.name} {software.version}"
        ),
    }
    replace_file(out, render("registry.yaml.j2", context), mode=READABLE)
