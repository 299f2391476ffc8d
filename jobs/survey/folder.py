"""The folder of a survey run: what it spends, what is damaged or made otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from das.errors import ConfigError, OutputError
from jobs.documents.survey import read_survey_manifest
from jobs.folder.identity import Owner, remembered_run
from jobs.folder.roots import remembered_root
from jobs.folder.spending import Part, Spending
from jobs.storage.dataset import Dataset, find_damage, is_published
from jobs.storage.files import read_json
from jobs.storage.ledger import PlannedParts, start_ledger
from jobs.storage.place import Place, remove_tree
from jobs.survey.microdata import microdata_folders
from jobs.survey.plan import SYNTHESIS, SurveyPlan, load_survey, stated_configuration
from jobs.survey.results import result_files


def is_survey_folder(out: Place) -> bool:
    """Whether a run folder is that of a survey.

    Raises:
      OutputError: It is not the folder of a run.
    """
    return "kind" in read_json(out / "run.json", "give the output.directory of a run")


def refuse_survey_folder(out: Place) -> None:
    """Refuse a folder that has no geounits.

    Raises:
      ConfigError: It is that of a survey.
    """
    if (out / "run.json").exists() and is_survey_folder(out):
        raise ConfigError(
            str(out),
            "is the folder of a survey, and this is for censuses",
            want="das inspect, resume or report; verify and certificate take its release, "
            "evaluate its run file",
        )


def owner_of(plan: SurveyPlan) -> Owner:
    """Whose the run folder is to be."""
    return Owner(
        roots=plan.config.output.roots,
        digest=plan.digest,
        account=plan.account,
        stated=stated_configuration(plan),
    )


def load_folder(
    out: Place,
    config: Path | None,
    solution: str | None = None,
    confidential: Place | None = None,
) -> SurveyPlan:
    """Load the run file of a run folder.

    Args:
      out: The run folder.
      config: Where the run file is now; default: where it was.
      solution: Name of a solution beside the release.
      confidential: Where its confidential files are now; default: where they were.

    Raises:
      ConfigError: The run file is not where it was, or says something else than it said.
    """
    document = read_json(out / "run.json", "give the output.directory of a run")
    source = config or Path(str(document.get("run_file")))
    if not source.exists():
        raise ConfigError(
            str(source), "the run file is not where it was", remedy="say where it is with --config"
        )
    place = confidential or remembered_root(document)
    plan = load_survey(source, output=out, confidential=place, solution=solution)
    if document.get("configuration_digest") != plan.digest:
        raise ConfigError(
            str(source),
            "is not the configuration that this folder was begun with",
            got="another run file, or other weights",
            remedy="undo the change, or choose another output.directory and a new privacy.grant",
        )
    return plan


def spending_of(plan: SurveyPlan, identity: str | None = None) -> Spending:
    """Describe what a run spends: its statistics, tables and model.

    Args:
      plan: The run.
      identity: That of the run folder; default: that which the folder remembers.
    """
    if identity is None:
        identity = remembered_run(plan.out)
    parts = [
        Part(name, plan.release.measured_part(name), (index,))
        for index, name in enumerate(plan.costs)
    ]
    return Spending(
        claim=plan.claim(identity),
        account=None if plan.not_for_release else plan.account(),
        data=plan.config.data.path,
        folder=plan.out,
        release=plan.release,
        parts=tuple(parts),
        seed=plan.config.privacy.randomness.seed,
    )


def begin_ledger(plan: SurveyPlan) -> None:
    """Write what is granted and planned to the ledger; the same from an earlier start is kept.

    Raises:
      LedgerError: The ledger is of another plan, or was tampered with.
    """
    granted = {**plan.budget.exact(), "randomness": plan.config.privacy.randomness.source}
    start_ledger(plan.release.ledger, granted, PlannedParts(plan.budget.total, plan.costs))


def remove_damaged(plan: SurveyPlan) -> list[OutputError]:
    """Remove damaged microdata, so that they are made again; returns what was wrong."""
    removed = []
    for folder in microdata_folders(plan.made):
        damage = find_damage(folder) if is_published(folder) else []
        if damage:
            removed.append(damage[0])
    if removed:
        remove_tree(plan.made.microdata)
    return removed


def refuse_other_settings(plan: SurveyPlan, part: str) -> None:
    """Refuse to make a sealed part again with other settings.

    What was made and never sealed is removed instead: nobody was given it.

    Raises:
      OutputError: It is sealed.
    """
    sealed = {}
    if plan.made.manifest.exists():
        manifest = read_survey_manifest(plan.made.manifest)
        sealed = {one.name: one.settings for one in manifest.parts}
    if part in sealed:
        if sealed[part] != plan.settings(part):
            raise OutputError(
                str(plan.made.root),
                f"is sealed, and {part} was made with other settings",
                got=_changed(sealed[part], plan.settings(part)),
                remedy="undo the change, or make another solution beside it with --solution NAME",
            )
        return
    if part != SYNTHESIS:
        return
    for folder in microdata_folders(plan.made):
        if is_published(folder) and Dataset.open(folder).facts["settings"] != plan.settings(part):
            remove_tree(folder)


def _changed(before: Mapping[str, object], now: Mapping[str, object]) -> str:
    return ", ".join(
        f"{key} {before.get(key)} then, {now.get(key)} now"
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key)
    )


def files_of_interest(plan: SurveyPlan) -> list[Place]:
    """What a command names at its end, as far as it is there."""
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
