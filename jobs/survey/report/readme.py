"""README and codebook of a survey release."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

from jobs.pipeline.documents.account import covering
from jobs.pipeline.documents.codebook import Codebook
from jobs.pipeline.documents.manifest import Attribute
from jobs.pipeline.report import text
from jobs.pipeline.report.budget import stated_loss
from jobs.pipeline.report.datasets import FILES, other_files
from jobs.pipeline.report.page import render
from jobs.survey.documents import SurveyManifest
from jobs.survey.report.public import described, exact_marginals, file_meaning, reading_example

_WRITTEN = ("README.md", "codebook.json", "codebook.md")  # after the manifest was gathered


def survey_codebook(manifest: SurveyManifest, levels: Mapping[str, tuple[str, ...]]) -> Codebook:
    """Make the codebook: the meaning of levels, datasets and columns of a survey release.

    Args:
      manifest: The manifest of the release.
      levels: Labels of the levels of every attribute of the survey.
    """
    return Codebook(
        format=1,
        name=manifest.name,
        records="records",
        cells=math.prod(map(len, levels.values())),
        attributes=tuple(Attribute(name=name, levels=labels) for name, labels in levels.items()),
        recodes=(),
        geolevels=(),
        queries=(),
        datasets=tuple(described(manifest)),
    )


def survey_readme(manifest: SurveyManifest) -> str:
    """Return README.md of a survey release: content, files, how to read them and how to cite it.

    Args:
      manifest: Manifest of the release; its `files` may lack files that are written later.
    """
    values = {
        "manifest": manifest,
        "not_for_release": manifest.not_for_release,
        "is_drawn_elsewhere": False,
        "guarantee": stated_loss(covering(manifest.privacy, manifest.account)),
        "exact": exact_marginals(manifest),
        "datasets": described(manifest),
        "files": {name: FILES[name] for name in _WRITTEN}
        | dict(other_files(manifest, file_meaning)),
        "example": reading_example(manifest),
        "year": datetime.fromisoformat(manifest.created).year,
        "day": text.moment(manifest.created).partition(" ")[0],
    }
    return render("survey_readme.md.j2", values)
