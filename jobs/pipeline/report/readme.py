"""What people who have a release and nothing else read first, as Markdown. Public."""

from __future__ import annotations

from datetime import datetime

from jobs.pipeline.config.models.run import AboutConfig
from jobs.pipeline.documents.account import covering
from jobs.pipeline.documents.codebook import Codebook
from jobs.pipeline.documents.manifest import Manifest
from jobs.pipeline.neighborhoods import FROM_DATA
from jobs.pipeline.report import text
from jobs.pipeline.report.datasets import FILES, census_files, census_levels, described, kind_of
from jobs.pipeline.report.guarantee import stated_loss
from jobs.pipeline.report.render import render
from jobs.pipeline.report.text import words

_WRITTEN = ("README.md", "codebook.json", "codebook.md")  # after the manifest was gathered


def readme(manifest: Manifest, about: AboutConfig) -> str:
    """README.md of a release: what it is, what lies where, how to read it and how to cite it.

    Args:
      manifest: Of the release; its `files` may lack what is written after this.
      about: What the run file says of the office and the licence.
    """
    whole = covering(manifest.privacy, manifest.account, manifest.together)
    values = {
        "about": about,
        "title": f"{about.title}, {manifest.records}" if about.title else manifest.name,
        "manifest": manifest,
        "census": census_levels(manifest),
        "off_spine": [row.geolevel for row in manifest.off_spine],
        "attributes": [attribute.name for attribute in manifest.schema.attributes],
        "others": [*(manifest.products or {})],
        "guarantee": stated_loss(whole),
        "own": None if whole is manifest.privacy else stated_loss(manifest.privacy),
        "datasets": [(one, kind_of(manifest, one)) for one in described(manifest)],
        "files": {**{name: FILES[name] for name in _WRITTEN}, **dict(census_files(manifest))},
        "exact": [
            (row.query, [words(level) for level in row.geolevels]) for row in manifest.invariants
        ],
        "limits": [f"{words(limit.kind)} {words(limit.name)}".strip() for limit in manifest.limits],
        "from_data": manifest.geounits_source == FROM_DATA,
        "measured": _measured(manifest),
        "estimated": any(one.path.startswith("estimates/tables") for one in manifest.outputs),
        "year": datetime.fromisoformat(manifest.created).year,
        "day": text.moment(manifest.created).partition(" ")[0],
    }
    return render("readme.md.j2", values)


def codebook_page(codebook: Codebook) -> str:
    """codebook.md of a release: what `codebook.json` says, for people."""
    both = [v.name for v in codebook.geolevels if v.on_spine and v.census_digits is not None]
    return render("codebook.md.j2", {"book": codebook, "both": both})


def _measured(manifest: Manifest) -> tuple[str, str] | None:
    """A query with an answer drawn for each geounit, and a geolevel, for the example."""
    lazy = manifest.privacy.lazy_queries
    rows = [row for row in manifest.budget if row.query not in lazy and "#" not in row.query]
    finer = [row for row in rows if row.geolevel != manifest.levels[0]] or rows
    return (finer[0].query, finer[0].geolevel) if finer else None
