"""Microdata of a survey from its noisy marginals: fitted, drawn, written; no data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from das.errors import OutputError
from das.synthesis.graphical import synthesize_graphical
from das.synthesis.mixture import Fit, synthesize
from das.synthesis.records import ChosenMarginals, Records
from das.synthesis.strata import MeasuredStrata, synthesize_strata
from das.synthesis.targets import targets_of
from jobs.pipeline.storage.csv import CsvPartWriter
from jobs.pipeline.storage.dataset import Dataset, PartWriter, publish
from jobs.pipeline.storage.layout import MICRODATA, ReleaseLayout
from jobs.pipeline.storage.place import Place
from jobs.survey.checks import SYNTHESIS
from jobs.survey.measurements import Answers
from jobs.survey.plan import SurveyPlan


def microdata_folders(release: ReleaseLayout) -> list[Place]:
    """Datasets of the microdata, one per format."""
    return [release.microdata / name for name in MICRODATA]


def draw_microdata(plan: SurveyPlan, measured: Answers) -> Records:
    """Fit a model to noisy marginals and draw records of it.

    The same settings give the same records: of a mixture on any machine (`das.synthesis.portable`),
    of a tree on one.
    """
    settings = plan.synthesis
    n_records = settings.records or plan.config.data.records
    if isinstance(measured, ChosenMarginals):
        return synthesize_graphical(measured, settings.steps, n_records, settings.seed)
    fit = Fit(components=settings.components, steps=settings.steps, starts=settings.starts)
    if isinstance(measured, MeasuredStrata):
        return synthesize_strata(measured, fit, n_records, settings.seed)
    return synthesize(measured, targets_of(measured), fit, n_records, settings.seed)


def write_microdata(plan: SurveyPlan, records: Records) -> None:
    """Write records with the labels of their levels, as Parquet and CSV.

    Raises:
      OutputError: They cannot be written, or are published.
    """
    columns = {
        name: pa.DictionaryArray.from_arrays(
            pa.array(records.codes[:, i].astype(np.int32)), pa.array(plan.levels(name))
        )
        for i, name in enumerate(records.domain.names)
    }
    table = pa.table(columns)
    facts: Mapping[str, Any] = {
        "configuration_digest": plan.digest,
        "not_for_release": plan.not_for_release,
        "settings": plan.settings(SYNTHESIS),
    }
    parquet, csv = microdata_folders(plan.made)
    for folder, writer in (
        (parquet, PartWriter(parquet, table.schema, key=None)),
        (csv, CsvPartWriter(csv)),
    ):
        writer.write(table)
        publish(folder, [writer.close()], facts)


def read_microdata(plan: SurveyPlan) -> Records:
    """The released records.

    Raises:
      OutputError: They are not published, or hold a label that is no level.
    """
    folder, domain = microdata_folders(plan.made)[0], plan.microdata_domain
    table = Dataset.open(folder).read()
    if table.column_names != list(domain.names):
        raise OutputError(
            str(folder), "has other columns", got=table.column_names, want=list(domain.names)
        )
    codes = np.empty((table.num_rows, len(domain.names)), np.int64)
    for i, name in enumerate(domain.names):
        labels = table.column(name).cast(pa.string())
        found = pc.index_in(labels, pa.array(plan.levels(name)))
        if found.null_count:
            raise OutputError(f"{folder}, {name}", "holds labels that are no levels")
        codes[:, i] = found.to_numpy()
    return Records(domain, codes)
