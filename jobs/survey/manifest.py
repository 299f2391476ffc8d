"""The manifest of a survey release."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

from das.privacy import attack
from jobs.documents.account import Account, guarantee_of
from jobs.documents.document import read_document, write_document
from jobs.documents.manifest import ReleasedFile
from jobs.documents.survey import (
    MeasuredPart,
    SurveyAttribute,
    SurveyManifest,
    SurveyPrivacy,
    read_survey_manifest,
)
from jobs.release.manifest import NOT_FOR_RELEASE, output_of, software
from jobs.release.statements import attacks_of
from jobs.storage.dataset import MANIFEST, is_published
from jobs.storage.files import replace_file
from jobs.storage.ledger import read_ledger_of_parts
from jobs.storage.modes import READABLE
from jobs.storage.place import Place, names_below
from jobs.survey.means import means_csv, means_json
from jobs.survey.microdata import microdata_folders
from jobs.survey.plan import SYNTHESIS, SurveyPlan
from jobs.survey.released import released_configuration
from jobs.survey.tables import conditioned_of, tables_csv, tables_json

_NOTICE = (
    "The noise in these files was seeded and can be made again by anyone: they protect nobody.\n"
)


def write_manifest(plan: SurveyPlan, parts: list[str]) -> SurveyManifest:
    """Gather and write the manifest of what has been released so far, and the public configuration.

    One that says the same already is left as it is, with the time of its sealing.

    Args:
      plan: The run.
      parts: Names of the parts that were released in this folder.

    Raises:
      OutputError: A dataset is incomplete.
    """
    made, ledger = plan.made, read_ledger_of_parts(plan.release.ledger)
    if plan.not_for_release:
        replace_file(made.root / NOT_FOR_RELEASE, _NOTICE, mode=READABLE)
    if plan.solution is None:
        for name, text in released_configuration(plan).items():
            replace_file(made.configuration / name, text, mode=READABLE)
    has_microdata = SYNTHESIS in parts
    definition, total = plan.budget.definition, plan.budget.total
    names = plan.microdata_domain.names if has_microdata else ()
    datasets = sorted(path.parent for path in made.root.rglob(MANIFEST))
    outputs = tuple(output_of(made, path) for path in datasets)
    records = next((one.rows for one in outputs if one.path == "microdata/parquet"), None)
    manifest = SurveyManifest(
        format=1,
        kind="survey",
        name=plan.config.name,
        not_for_release=plan.not_for_release,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        software=software(),
        configuration_digest=plan.digest,
        solution=plan.solution,
        privacy=SurveyPrivacy(
            **vars(guarantee_of(plan.budget)),
            randomness=plan.config.privacy.randomness.source,
            mu_gdp=None if definition.is_pure else attack.mu_gdp(total),
            attacks=attacks_of(attack.attacks_of_total(definition, total), definition.unit),
        ),
        spent=str(sum(ledger.costs.values(), Fraction(0))),
        account=_account(plan),
        attributes=tuple(SurveyAttribute(name=name, levels=plan.levels(name)) for name in names),
        parts=tuple(
            MeasuredPart(
                name=part,
                share=str(plan.costs[part] / plan.budget.total),
                cost=str(ledger.costs[part]),
                measurements=ledger.measured[part],
                settings=plan.settings(part),
                conditioned=conditioned_of(plan, part),
            )
            for part in plan.costs
            if part in parts
        ),
        outputs=outputs,
        files=tuple(_file(path, made.root) for path in _files(plan) if path.exists()),
        records=records if has_microdata else None,
        model=plan.synthesis.model if has_microdata else None,
        strata=_strata(plan) if has_microdata else (),
    )
    if made.manifest.exists():
        sealed = read_survey_manifest(made.manifest)
        if replace(manifest, created=sealed.created) == sealed:
            return sealed
    write_document(made.manifest, manifest)
    return manifest


def is_made(plan: SurveyPlan, part: str) -> bool:
    """Whether what is made of a part's measurements is there."""
    if part == SYNTHESIS:
        return all(is_published(folder) for folder in microdata_folders(plan.made))
    if plan.kind(part) == "tables":
        return tables_json(plan.made).exists()
    return means_json(plan.made).exists()


def _strata(plan: SurveyPlan) -> tuple[str, ...]:
    """Attributes whose combinations the microdata are measured by."""
    strata = plan.synthesis.strata
    return () if strata is None else tuple(strata.attributes)


def _account(plan: SurveyPlan) -> Account | None:
    if plan.not_for_release:
        return None
    return read_document(Account, plan.release.account, remedy="restore it from a backup")


def _files(plan: SurveyPlan) -> list[Place]:
    """Files beside the datasets; a solution states the measurements, which lie in the release."""
    own = [means_csv(plan.made), means_json(plan.made), tables_json(plan.made), *tables_csv(plan)]
    if plan.solution is not None:
        return own
    configuration = [plan.release.configuration / name for name in released_configuration(plan)]
    return [plan.release.ledger, plan.release.account, *own, *configuration]


def _file(path: Place, root: Place) -> ReleasedFile:
    data = path.read_bytes()
    return ReleasedFile(
        path=str(names_below(path, root)), bytes=len(data), sha256=hashlib.sha256(data).hexdigest()
    )
