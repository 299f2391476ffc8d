"""Verify a survey release from its files alone: digests, costs, means, tables, labels."""

from __future__ import annotations

from fractions import Fraction

from das.errors import VerificationError
from jobs.pipeline.release.sealing import verify_contents, verify_manifest
from jobs.pipeline.storage.dataset import dataset_digest, verify_files
from jobs.pipeline.storage.files import understanding
from jobs.pipeline.storage.ledger import read_ledger_of_parts
from jobs.survey.documents import MeansTable, read_survey_manifest
from jobs.survey.manifest import manifest_of
from jobs.survey.means import means_json, released_means
from jobs.survey.measurements import part_cost, read_part
from jobs.survey.microdata import read_microdata
from jobs.survey.plan import SurveyPlan
from jobs.survey.results import check_rows, read_results
from jobs.survey.tables import check_tables, tables_json

# Means are made again in floats: on another machine a logarithm may end in another bit, and a few
# such bits are far below this part of the number; a changed digit of the noise is far above it.
_SAME = 1e-9


def verify_survey(plan: SurveyPlan) -> dict[str, int | str]:
    """Check what can be checked without the truth.

    Digests of all files, and that no others lie there; that every part costs what its noise says,
    and at most what was planned; that the ledger states these costs, and the manifest what plan,
    ledger and measurements say; that the means follow from the noisy sums; that tables are what was
    drawn, and keep their exact marginals in integers; that the microdata hold the stated number of
    records, of known levels.

    Returns:
      How many parts, datasets, files and records were checked, and the cost.

    Raises:
      OutputError: A file is missing or was changed.
      VerificationError: Something is not what it is stated to be.
    """
    manifest = read_survey_manifest(plan.made.manifest)
    if manifest.configuration_digest != plan.digest:
        raise VerificationError(str(plan.made.manifest), "is of another configuration")
    verify_contents(plan.made, manifest)
    spent = _check_costs(plan)
    means, tables = read_results(plan.made)
    if means is not None:
        with understanding(means_json(plan.made)):  # of others, with means of another number
            check_rows(plan, means)
            _check_means(plan, means)
    if tables is not None:
        with understanding(tables_json(plan.made)):
            check_tables(plan, tables)
            check_rows(plan, tables)
    verify_manifest(plan.made, manifest, manifest_of(plan))
    records = 0 if manifest.records is None else len(read_microdata(plan).codes)
    if records != (manifest.records or 0):
        where, want = str(plan.made.microdata), manifest.records
        raise VerificationError(where, "has another number of records", got=records, want=want)
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
        raise VerificationError(str(plan.release.ledger), "is of another budget")
    for part, digest in ledger.measured.items():
        dataset = plan.release.measured_part(part)
        verify_files(dataset)
        with understanding(dataset):  # a release of others may have answers of other attributes
            cost = part_cost(plan, read_part(plan, part))
        if cost != ledger.costs.get(part) or cost > planned.costs[part]:
            raise VerificationError(
                f"{plan.release.ledger}, {part}",
                "does not state what its noise costs, or more than was planned",
                got=ledger.costs.get(part),
                want=cost,
            )
        if dataset_digest(dataset) != digest:
            raise VerificationError(str(dataset), "is not the one that the ledger names")
    return sum(ledger.costs.values(), Fraction(0))


def _check_means(plan: SurveyPlan, stated: MeansTable) -> None:
    for again, own in zip(released_means(plan).statistics, stated.statistics, strict=True):
        for one, other in zip(
            (again.everybody, *again.means), (own.everybody, *own.means), strict=True
        ):
            scale = max(1.0, abs(one.mean))
            if one.stratum != other.stratum or abs(one.mean - other.mean) > _SAME * scale:
                raise VerificationError(
                    f"{means_json(plan.made)}, {again.name}, {one.stratum}",
                    "does not follow from the noisy sums",
                )
