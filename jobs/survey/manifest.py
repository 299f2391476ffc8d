"""The manifest of a survey release."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

from das.privacy import attack
from jobs.pipeline.documents.account import Account, guarantee_of
from jobs.pipeline.documents.document import read_document
from jobs.pipeline.documents.manifest import Attribute, PublishedGuarantee, attacks_of
from jobs.pipeline.release.sealing import (
    SEEDED,
    released_files,
    released_outputs,
    software,
    tidy_release,
    write_manifest,
)
from jobs.pipeline.storage.dataset import is_published
from jobs.pipeline.storage.journal import write_whole
from jobs.pipeline.storage.ledger import read_ledger_of_parts
from jobs.pipeline.storage.place import Place
from jobs.survey.checks import SYNTHESIS
from jobs.survey.documents import (
    MeasuredPart,
    SurveyManifest,
)
from jobs.survey.means import means_json
from jobs.survey.microdata import microdata_folders
from jobs.survey.plan import SurveyPlan
from jobs.survey.released import released_configuration
from jobs.survey.results import result_files
from jobs.survey.table_plan import TablePlan
from jobs.survey.tables import conditioned_of, tables_json

_BACKUP = "restore it from a backup"


def seal_survey(plan: SurveyPlan) -> SurveyManifest:
    """Write the public configuration and the manifest of a release, or of a solution beside it.

    Raises:
      OutputError: A dataset is incomplete; or a file lies there that no run writes.
    """
    made, texts = plan.made, dict[Place, str]()
    written = result_files(plan)
    if plan.solution is None:
        public = released_configuration(plan)
        texts = {made.configuration / name: text for name, text in public.items()}
        written += [made.ledger, made.account]
        write_whole(made.ledger)
    tidy_release([made], texts, written)
    return write_manifest(made, manifest_of(plan), SurveyManifest)


def manifest_of(plan: SurveyPlan) -> SurveyManifest:
    """Gather the manifest of a release, or of a solution beside it.

    Raises:
      OutputError: A dataset or the ledger is incomplete.
    """
    made, ledger = plan.made, read_ledger_of_parts(plan.release.ledger)
    account = plan.release.account
    microdata = plan.synthesis if SYNTHESIS in ledger.measured else None
    strata = None if microdata is None else microdata.strata
    definition, total = plan.budget.definition, plan.budget.total
    names = () if microdata is None else plan.microdata_domain.names
    outputs = released_outputs(made)
    return SurveyManifest(
        format=1,
        kind="survey",
        name=plan.config.name,
        not_for_release=ledger.randomness == SEEDED,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        software=software(),
        configuration_digest=plan.digest,
        solution=plan.solution,
        privacy=PublishedGuarantee(
            **vars(guarantee_of(plan.budget)),
            randomness=ledger.randomness,
            mu_gdp=None if definition.is_pure else attack.mu_gdp(total),
            attacks=attacks_of(attack.attacks_of_total(definition, total), definition.unit),
        ),
        spent=str(sum(ledger.costs.values(), Fraction(0))),
        account=read_document(Account, account, remedy=_BACKUP) if account.exists() else None,
        attributes=tuple(Attribute(name=name, levels=plan.levels(name)) for name in names),
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
            if part in ledger.measured  # older versions released what was measured so far
        ),
        outputs=outputs,
        files=released_files(made),
        records=next((one.rows for one in outputs if one.path == "microdata/parquet"), None),
        model=None if microdata is None else microdata.model,
        strata=() if strata is None else tuple(strata.attributes),
    )


def is_made(plan: SurveyPlan, part: str) -> bool:
    """Whether what is made of a part's measurements is there."""
    one = plan.part(part)
    if one is None:
        return all(is_published(folder) for folder in microdata_folders(plan.made))
    document = tables_json if isinstance(one, TablePlan) else means_json
    return document(plan.made).exists()
