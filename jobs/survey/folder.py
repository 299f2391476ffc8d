"""Run folder of a survey: its budget, damaged files, and changed settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from das.errors import ConfigError, OutputError
from jobs.pipeline.folder.identity import (
    Owner,
    refuse_other_configuration,
    remembered,
    remembered_run,
)
from jobs.pipeline.folder.roots import NO_RUN, remembered_root
from jobs.pipeline.folder.solutions import differences
from jobs.pipeline.folder.spending import Part, Spending
from jobs.pipeline.storage.dataset import Dataset, find_damage, is_published
from jobs.pipeline.storage.files import read_json
from jobs.pipeline.storage.ledger import PlannedParts, start_ledger
from jobs.pipeline.storage.place import Place, remove_tree
from jobs.survey.checks import SYNTHESIS
from jobs.survey.documents import read_survey_manifest
from jobs.survey.plan import SurveyPlan, load_survey, stated_configuration
from jobs.survey.results import microdata_folders, result_files


def is_survey_folder(out: Place) -> bool:
    """Return whether a run folder belongs to a survey.

    Raises:
      OutputError: The folder holds no run.
    """
    return "kind" in read_json(out / "run.json", NO_RUN)


def refuse_survey_folder(out: Place) -> None:
    """Refuse the run folder of a survey in a command for censuses.

    Raises:
      ConfigError: The folder belongs to a survey.
    """
    if (out / "run.json").exists() and is_survey_folder(out):
        raise ConfigError(
            str(out),
            "is the run folder of a survey, but the command works on censuses",
            want="das inspect, das run or das verify; das evaluate takes the run file",
        )


def owner_of(plan: SurveyPlan) -> Owner:
    """Return the identity with which the run claims its folder."""
    return Owner(
        roots=plan.config.output.roots,
        digest=plan.digest,
        account=plan.account,
        stated={}
        if _other_settings(plan, _finalized_settings(plan))
        else stated_configuration(plan),
        solution=plan.solution,
    )


def load_folder(
    out: Place, config: Path | None, solution: str | None = None, confidential: Place | None = None
) -> SurveyPlan:
    """Load the run file of a run folder.

    Args:
      out: The run folder.
      config: Present path of the run file; default: the path that the folder remembers.
      solution: Name of a further solution; None: the release.
      confidential: Present folder of the confidential files; default: the remembered one.

    Raises:
      ConfigError: The run file has moved or changed.
    """
    document, source = remembered(out, config, solution)
    root = confidential or remembered_root(document)
    plan = load_survey(source, output=out, confidential=root, solution=solution)
    refuse_other_configuration(document, plan.digest, stated_configuration(plan))
    return plan


def spending_of(plan: SurveyPlan, identity: str | None = None) -> Spending:
    """Describe the budget that a run spends on its statistics, tables and microdata.

    Args:
      plan: The run.
      identity: Identity of the run folder; default: the one that the folder remembers.
    """
    if identity is None:
        identity = remembered_run(plan.out)
    parts = [
        Part(name, plan.release.measured_part(name), (index,))
        for index, name in enumerate(plan.costs)
    ]
    return Spending(
        reservation=plan.reservation(identity),
        account=None if plan.not_for_release else plan.account(),
        data=plan.config.data.path,
        folder=plan.out,
        release=plan.release,
        parts=tuple(parts),
        seed=plan.config.privacy.randomness.seed,
    )


def begin_ledger(plan: SurveyPlan) -> None:
    """Write budget and planned costs to the ledger; equal lines of an earlier start are kept.

    Raises:
      LedgerError: The ledger belongs to another plan, or was changed.
    """
    granted = {**plan.budget.exact(), "randomness": plan.config.privacy.randomness.source}
    start_ledger(plan.release.ledger, granted, PlannedParts(plan.budget.total, plan.costs))


def remove_damaged(plan: SurveyPlan) -> list[OutputError]:
    """Remove damaged microdata, so that the run makes them again; return the errors found."""
    published = [folder for folder in microdata_folders(plan.made) if is_published(folder)]
    removed = [damage for folder in published for damage in find_damage(folder)[:1]]
    if removed:
        remove_tree(plan.made.microdata)
    return removed


def refuse_other_settings(plan: SurveyPlan) -> None:
    """Refuse to recompute finalized parts with other settings.

    Microdata that were never finalized are removed instead.

    Raises:
      OutputError: A part with other settings is finalized.
    """
    finalized = _finalized_settings(plan)
    for part, changed in _other_settings(plan, finalized).items():
        raise OutputError(
            str(plan.made.root),
            f"is finalized with other settings of {part}",
            got=changed,
            remedy="undo the change, or make a further solution with --only solve --solution NAME",
        )
    if SYNTHESIS in plan.costs and SYNTHESIS not in finalized:
        settings = plan.settings(SYNTHESIS)
        for folder in microdata_folders(plan.made):
            if is_published(folder) and Dataset.open(folder).facts["settings"] != settings:
                remove_tree(folder)


def _other_settings(plan: SurveyPlan, finalized: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Describe by part how the present settings differ from the finalized ones."""
    return {
        part: ", ".join(differences(finalized[part], plan.settings(part)))
        for part in plan.costs
        if part in finalized and finalized[part] != plan.settings(part)
    }


def _finalized_settings(plan: SurveyPlan) -> dict[str, dict[str, Any]]:
    """Read the settings of finalized parts; none if the release is not finalized."""
    if not plan.made.manifest.exists():
        return {}
    return {part.name: part.settings for part in read_survey_manifest(plan.made.manifest).parts}


def files_of_interest(plan: SurveyPlan) -> list[Place]:
    """List the existing files that a command names at its end."""
    made = plan.made
    wanted = [
        plan.confidential.evaluation,
        plan.confidential.report,
        *result_files(plan),
        *microdata_folders(made),
        plan.release.root / "measurements",
        made.manifest,
        made.report,
    ]
    return [path for path in wanted if path.exists()]
