"""Manifest of a survey release: written, and verified without the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from das.errors import ConfigError, OutputError, VerificationError
from das.privacy import attack
from jobs.pipeline.config.files import absolute_path
from jobs.pipeline.config.released import RUN_FILE, public_document, yaml_text
from jobs.pipeline.documents.account import Account, guarantee_of
from jobs.pipeline.documents.document import read_document, write_document
from jobs.pipeline.documents.manifest import Attribute, PublishedGuarantee, attacks_of
from jobs.pipeline.documents.shipped import SURVEY, released_schemas
from jobs.pipeline.release.finalizing import (
    SEEDED,
    released_files,
    released_outputs,
    software,
    tidy_release,
    verify_contents,
    verify_manifest,
    write_manifest,
)
from jobs.pipeline.report.datasets import codebook_page
from jobs.pipeline.storage.csv import csv_text, without_formula
from jobs.pipeline.storage.dataset import dataset_digest, is_published, verify_files
from jobs.pipeline.storage.files import READABLE, replace_file, understanding
from jobs.pipeline.storage.journal import write_whole
from jobs.pipeline.storage.layout import received_release
from jobs.pipeline.storage.ledger import read_ledger_of_parts
from jobs.pipeline.storage.place import Place
from jobs.survey.checks import SIZE, SYNTHESIS, WEIGHT, spelled
from jobs.survey.documents import MeansTable, MeasuredPart, SurveyManifest, read_survey_manifest
from jobs.survey.marginals import MarginalsPlan
from jobs.survey.measurements import part_cost, read_part
from jobs.survey.plan import SurveyPlan, TablePlan, load_survey, public_strata
from jobs.survey.report.readme import survey_codebook, survey_readme
from jobs.survey.results import (
    MARGINALS_JSON,
    MEANS,
    TABLES,
    check_marginals,
    check_rows,
    check_tables,
    conditioned_of,
    microdata_folders,
    read_microdata,
    read_results,
    released_means,
    result_files,
)

_BACKUP = "restore it from a backup"


def finalize_survey(plan: SurveyPlan) -> SurveyManifest:
    """Write configuration, schemas, README, codebook and manifest of a release or a solution.

    Raises:
      OutputError: A dataset is incomplete, or the folder holds a file that no run writes.
    """
    made, texts = plan.made, dict[Place, str]()
    written = result_files(plan)
    if plan.solution is None:
        public = released_configuration(plan)
        texts = {made.configuration / name: text for name, text in public.items()}
        texts |= {made.schemas / name: text for name, text in released_schemas(SURVEY).items()}
        written += [made.ledger, made.account]
        write_whole(made.ledger)
    tidy_release([made], texts, [*written, made.readme, made.codebook, made.codebook_page])
    manifest = manifest_of(plan)
    codebook = survey_codebook(
        manifest, {name: plan.levels(name) for name in plan.config.data.columns}
    )
    write_document(made.codebook, codebook, mode=READABLE)
    replace_file(made.codebook_page, codebook_page(codebook), mode=READABLE)
    replace_file(made.readme, survey_readme(manifest), mode=READABLE)
    return write_manifest(made, replace(manifest, files=released_files(made)), SurveyManifest)


def manifest_of(plan: SurveyPlan) -> SurveyManifest:
    """Gather the manifest of a release or of a further solution.

    Raises:
      OutputError: A dataset or the ledger is incomplete.
    """
    made, ledger = plan.made, read_ledger_of_parts(plan.release.ledger)
    account = plan.release.account
    microdata = plan.synthesis if SYNTHESIS in plan.costs else None
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
            if part in ledger.measured  # a received release may lack one
        ),
        outputs=outputs,
        files=released_files(made),
        records=next((one.rows for one in outputs if one.path == "microdata/parquet"), None),
        model=None if microdata is None else microdata.model,
        strata=() if strata is None else tuple(strata.attributes),
    )


def is_made(plan: SurveyPlan, part: str) -> bool:
    """Return whether the results of a part are written."""
    one = plan.part(part)
    if one is None:
        return all(is_published(folder) for folder in microdata_folders(plan.made))
    document = TABLES if isinstance(one, TablePlan) else MEANS
    if isinstance(one, MarginalsPlan):
        document = MARGINALS_JSON
    return (plan.made.root / document).exists()


_HEAD = """\
# The public part of the configuration of this release, with which `das verify`
# needs its folder alone. It runs nothing: the data are not here.
"""


def released_configuration(plan: SurveyPlan) -> dict[str, str]:
    """Return the files of the public configuration: name to text."""
    config, files = plan.config, dict[str, str]()
    document = public_document(config)
    for key in ("evaluate", "output"):
        document.pop(key, None)
    for key in ("account", "budget_id", "randomness"):
        document["privacy"].pop(key, None)
    document["data"].pop("path")
    for one, stated in zip(config.statistics, document.get("statistics", ()), strict=True):
        if one.weights is not None:
            stated["weights"] = f"weights-{one.label}.csv"
            files[stated["weights"]] = _weights_text(plan, one.weights, one.stratify_by)
    strata = None if config.synthesis is None else config.synthesis.strata
    if strata is not None and strata.weights is not None:
        name = f"weights-{SYNTHESIS}.csv"
        document["synthesis"]["strata"]["weights"] = name
        files[name] = _weights_text(plan, strata.weights, strata.attributes)
    return {RUN_FILE: _HEAD + yaml_text(document), **files}


def load_survey_release(root: Place) -> SurveyPlan:
    """Load the plan of a finalized survey release from its folder alone.

    Args:
      root: The release folder, under any name.

    Raises:
      ConfigError: The release lies in an object store, or its configuration was changed.
      OutputError: The release has no configuration, or is damaged.
    """
    layout = received_release(absolute_path(root))
    path = layout.configuration / RUN_FILE
    if not isinstance(path, Path):
        raise ConfigError(
            str(root), "lies in an object store; survey releases are read from disk", want="a copy"
        )
    manifest = read_survey_manifest(layout.manifest)
    if manifest.solution is not None or not path.is_file():
        raise OutputError(
            str(path),
            "is missing",
            remedy="give the run file: solutions need it",
        )
    return load_survey(path, released=(layout.root, manifest.configuration_digest))


def _weights_text(plan: SurveyPlan, path: Path, attributes: Sequence[str]) -> str:
    """Return the public weights of all strata as CSV."""
    public = public_strata(plan.config, attributes, path)
    has_sizes = not any(stratum.is_expected for stratum in public.values())
    levels = [plan.levels(name) for name in attributes]
    rows: list[list[object]] = [[*map(without_formula, attributes), WEIGHT, SIZE]]
    rows += [
        [*map(spelled, labels, levels), one.weight, one.size] for labels, one in public.items()
    ]
    return csv_text(row if has_sizes else row[:-1] for row in rows)


# Means are recomputed in floating point. Processors differ in the last bits of a logarithm, far
# below this relative error; a changed digit of the noise is far above it. Default, not measured.
_SAME = 1e-9


def verify_survey(plan: SurveyPlan) -> dict[str, int | str]:
    """Verify a survey release without the data.

    Files: their digests match, and there are no others. Costs: each part costs what its noise
    implies, at most what was planned, and the ledger states it. Results: means follow from the
    noisy sums, tables equal the drawn ones and keep their exact marginals, marginals follow from
    the noisy answers, microdata have the stated number of records and known levels. The manifest
    agrees with plan and ledger.

    Returns:
      Numbers of checked parts, datasets, files and records; spent and granted budget as fractions.

    Raises:
      OutputError: A file is missing or was changed.
      VerificationError: The release contradicts its plan, ledger or manifest.
    """
    manifest = read_survey_manifest(plan.made.manifest)
    if manifest.configuration_digest != plan.digest:
        raise VerificationError(
            str(plan.made.manifest), "states another digest than its configuration has"
        )
    verify_contents(plan.made, manifest)
    spent = _check_costs(plan)
    means, tables, marginals = read_results(plan.made)
    if means is not None:
        with understanding(plan.made.root / MEANS):  # a received release may have other means
            check_rows(plan, means)
            _check_means(plan, means)
    if tables is not None:
        with understanding(plan.made.root / TABLES):
            check_tables(plan, tables)
            check_rows(plan, tables)
    if marginals is not None:
        with understanding(plan.made.root / MARGINALS_JSON):
            check_marginals(plan, marginals)
    verify_manifest(plan.made, manifest, manifest_of(plan))
    records = 0 if manifest.records is None else len(read_microdata(plan).codes)
    if records != (manifest.records or 0):
        where, want = str(plan.made.microdata), manifest.records
        raise VerificationError(
            where, "has another number of records than stated", got=records, want=want
        )
    return {
        "parts": len(manifest.parts),
        "datasets": len(manifest.outputs),
        "files": len(manifest.files),
        "records": records,
        "spent": str(spent),
        "granted": str(plan.budget.total),
    }


def _check_costs(plan: SurveyPlan) -> Fraction:
    ledger = read_ledger_of_parts(plan.release.ledger)
    planned = ledger.planned
    if (planned.granted, dict(planned.costs)) != (plan.budget.total, plan.costs):
        raise VerificationError(
            str(plan.release.ledger), "states another budget or other costs than planned"
        )
    for part, digest in ledger.measured.items():
        dataset = plan.release.measured_part(part)
        verify_files(dataset)
        with understanding(dataset):  # a received release may have other attributes
            cost = part_cost(plan, read_part(plan, part))
        if cost != ledger.costs.get(part) or cost > planned.costs[part]:
            raise VerificationError(
                f"{plan.release.ledger}, {part}",
                "states a cost that differs from that of the noise, or exceeds the plan",
                got=ledger.costs.get(part),
                want=cost,
            )
        if dataset_digest(dataset) != digest:
            raise VerificationError(str(dataset), "differs from the dataset that the ledger names")
    return sum(ledger.costs.values(), Fraction(0))


def _check_means(plan: SurveyPlan, stated: MeansTable) -> None:
    for again, released in zip(released_means(plan).statistics, stated.statistics, strict=True):
        for want, got in zip(
            (again.everybody, *again.means), (released.everybody, *released.means), strict=True
        ):
            scale = max(1.0, abs(want.mean))
            if want.stratum != got.stratum or abs(want.mean - got.mean) > _SAME * scale:
                raise VerificationError(
                    f"{plan.made.root / MEANS}, {again.name}, {want.stratum}",
                    "does not follow from the noisy sums",
                )
