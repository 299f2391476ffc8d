"""The folder of a survey run: its grant, its draws, what of it is damaged or made otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from das.errors import ConfigError, LedgerError, OutputError
from jobs.documents.account import account_of_grants
from jobs.documents.document import write_document
from jobs.documents.survey import read_survey_manifest
from jobs.folder.damage import lost_answers
from jobs.folder.draws import Draws
from jobs.folder.identity import Owner, note_account
from jobs.folder.roots import remembered_root
from jobs.storage.account import check_account, check_claim, make_claim
from jobs.storage.dataset import Dataset, dataset_digest, find_damage, is_published
from jobs.storage.files import read_json
from jobs.storage.journal import is_begun
from jobs.storage.place import Place, remove_tree
from jobs.survey.ledger import read_ledger, start_ledger
from jobs.survey.means import means_csv, means_json
from jobs.survey.measurements import part_folder
from jobs.survey.microdata import microdata_folders
from jobs.survey.plan import SYNTHESIS, SurveyPlan, load_survey, stated_configuration
from jobs.survey.tables import tables_csv, tables_json


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


def refuse_spent_grant(plan: SurveyPlan, identity: str) -> None:
    """Refuse a run that could not claim its grant.

    Args:
      plan: The run.
      identity: That of its folder; empty if there is none yet.

    Raises:
      LedgerError: The grant was spent by another run.
      OutputError: The account cannot be written.
    """
    if plan.not_for_release:
        return
    account = plan.account()
    if not identity:
        check_account(account)
    check_claim(account, plan.claim(identity))


def claim_grant(plan: SurveyPlan, identity: str) -> None:
    """Claim the grant, once, and start the ledger; it stays spent whatever happens after.

    Raises:
      LedgerError: It was spent by another run, or the ledger is of another plan.
    """
    granted = {**plan.budget.exact(), "randomness": plan.config.privacy.randomness.source}
    if not plan.not_for_release:
        note_account(plan.out, plan.account())
        spent = make_claim(plan.account(), plan.claim(identity))
        if not plan.release.account.exists():
            write_document(plan.release.account, account_of_grants(spent))
    start_ledger(plan.release.ledger, granted, plan.costs)


def draws_of(plan: SurveyPlan, identity: str) -> Draws | None:
    """What the account knows of the run; none if noise is seeded, which spends nothing."""
    if plan.not_for_release:
        return None
    return Draws(plan.account(), plan.claim(identity), plan.out, "part")


def refuse_other_draws(plan: SurveyPlan, identity: str) -> None:
    """Refuse a folder whose measurements are not those that the account knows.

    Raises:
      LedgerError: Others were measured under the grant, in a copy of the folder.
    """
    draws = draws_of(plan, identity)
    for part in plan.costs:
        dataset = part_folder(plan.release, part)
        if draws is not None and is_published(dataset):
            draws.confirm(part, dataset_digest(dataset), "", write=False)


def refuse_lost_measurements(plan: SurveyPlan) -> None:
    """Stop where noisy answers that were paid for are gone or changed, or the ledger is.

    Raises:
      LedgerError: They are lost; nothing may be measured again under this grant.
    """
    ledger = plan.release.ledger
    parts = [part for part in plan.costs if is_published(part_folder(plan.release, part))]
    if not is_begun(ledger):
        if parts:
            raise lost_answers(OutputError(str(ledger), "is gone"))
        return
    for part, spending in read_ledger(ledger).measured.items():
        dataset = part_folder(plan.release, part)
        if not is_published(dataset):
            raise lost_answers(OutputError(str(dataset), "is missing"))
        if dataset_digest(dataset) != spending.sha256:
            raise lost_answers(OutputError(str(dataset), "is not the one that the ledger names"))
    for part in parts:
        for damage in find_damage(part_folder(plan.release, part)):
            raise lost_answers(damage)


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
        means_csv(made),
        means_json(made),
        tables_json(made),
        *tables_csv(plan),
        *microdata_folders(made),
        plan.release.root / "measurements",
        made.manifest,
        made.report,
    ]
    return [path for path in wanted if path.exists()]


def refuse_lost_ledger(plan: SurveyPlan, identity: str) -> None:
    """Without its ledger nobody knows what a run measured, and it must not measure again.

    Raises:
      LedgerError: It is gone, and the account knows a draw of this run.
    """
    draws = draws_of(plan, identity)
    if draws is None or is_begun(plan.release.ledger):
        return
    if any(draws.measured(part) is not None for part in plan.costs):
        raise LedgerError(
            str(plan.release.ledger),
            "is gone, and with it the record of what was measured; the budget counts as spent",
            remedy="restore it from a backup; or give another privacy.grant and "
            "output.directory, and its cost is added to what the same people have lost",
        )
