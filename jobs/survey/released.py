"""The configuration that the release of a survey carries: all but what points at the office.

With it `das verify` and `das certificate` work on the folder of the release, wherever that was
copied. Left out are the file of the persons, the account, the grant, the seed of a test, and what
is compared with the truth. Weights are those that were read: strata, weights and sizes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from das.errors import ConfigError, OutputError
from jobs.pipeline.config.files import absolute_path
from jobs.pipeline.config.released import RUN_FILE, public_document, yaml_text
from jobs.pipeline.storage.csv import csv_text, without_formula
from jobs.pipeline.storage.layout import received_release
from jobs.pipeline.storage.place import Place
from jobs.survey.checks import SYNTHESIS
from jobs.survey.documents import read_survey_manifest
from jobs.survey.plan import SurveyPlan, load_survey, public_strata
from jobs.survey.weights import SIZE, WEIGHT, spelled

_HEAD = """\
# The public part of the configuration of this release, with which `das verify` and
# `das certificate` need its folder alone. It runs nothing: the data are not here.
"""


def released_configuration(plan: SurveyPlan) -> dict[str, str]:
    """Files of the public part of a configuration, text by name."""
    config, files = plan.config, dict[str, str]()
    document = public_document(config)
    for key in ("evaluate", "output"):
        document.pop(key, None)
    for key in ("account", "grant", "randomness"):
        document["privacy"].pop(key, None)
    document["data"].pop("path")
    for one, stated in zip(config.statistics, document.get("statistics", ()), strict=True):
        if one.weights is not None:
            stated["weights"] = f"weights-{one.label}.csv"
            files[stated["weights"]] = _weights_text(plan, one.weights, one.strata)
    strata = None if config.synthesis is None else config.synthesis.strata
    if strata is not None:
        name = f"weights-{SYNTHESIS}.csv"
        document["synthesis"]["strata"]["weights"] = name
        files[name] = _weights_text(plan, strata.weights, strata.attributes)
    return {RUN_FILE: _HEAD + yaml_text(document), **files}


def load_survey_release(root: Place) -> SurveyPlan:
    """The run of a finished release of a survey, from its folder alone.

    Args:
      root: The folder, under any name.

    Raises:
      ConfigError: It lies in a store, or its configuration was changed.
      OutputError: It has no configuration, or is damaged.
    """
    layout = received_release(absolute_path(root))
    path = layout.configuration / RUN_FILE
    if not isinstance(path, Path):
        raise ConfigError(
            str(root), "lies in a store; that of a survey is read from a folder", want="a copy"
        )
    manifest = read_survey_manifest(layout.manifest)
    if manifest.solution is not None or not path.is_file():
        raise OutputError(
            str(path),
            "is missing",
            remedy="give the run file: solutions, and releases of older versions, need it",
        )
    return load_survey(path, released=(layout.root, manifest.configuration_digest))


def _weights_text(plan: SurveyPlan, path: Path, attributes: Sequence[str]) -> str:
    """The weights of all strata as CSV."""
    public = public_strata(plan.config, attributes, path)
    has_sizes = not any(stratum.is_expected for stratum in public.values())
    levels = [plan.levels(name) for name in attributes]
    rows: list[list[object]] = [[*map(without_formula, attributes), WEIGHT, SIZE]]
    rows += [
        [*map(spelled, labels, levels), one.weight, one.size] for labels, one in public.items()
    ]
    return csv_text(row if has_sizes else row[:-1] for row in rows)
