"""Catalogues of the language of pages: complete, without leftovers, and filled in as the English."""

from __future__ import annotations

from typing import get_args

from jobs.pipeline.config.models.run import AboutConfig
from tests.checkout import ROOT

FOLDER = ROOT / "jobs" / "pipeline" / "report"
LANGUAGES = get_args(AboutConfig.model_fields["language"].annotation)
