"""What a run of a survey costs and measures, before anything is spent."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.table import Table

from jobs.pipeline.documents.account import guarantee_of
from jobs.pipeline.documents.document import json_of
from jobs.pipeline.printable import printable, result_console
from jobs.pipeline.report import text
from jobs.survey.plan import MeanPlan, SurveyPlan
from jobs.survey.results import conditioned_of, promise_words


def survey_summary(plan: SurveyPlan) -> dict[str, Any]:
    """Gather budget, parts and strata, and which named files are absent; reads no data."""
    data = plan.config.data
    parts = []
    for part, cost in plan.costs.items():
        mean = plan.part(part)
        strata = mean.strata.sizes.values() if isinstance(mean, MeanPlan) else ()
        promise = conditioned_of(plan, part)
        parts.append(
            {
                "part": part,
                "share": str(cost / plan.budget.total),
                "cost": str(cost),
                "strata": len(strata),
                "smallest": min(strata, default=None),
                "pooled": [*mean.pooled] if isinstance(mean, MeanPlan) else [],
                "conditioned": None if promise is None else json_of(promise),
            }
        )
    return {
        "name": plan.config.name,
        "budget": json_of(guarantee_of(plan.budget)),
        "records": data.n_records,
        "attributes": len(plan.domain.names),
        "levels": sum(plan.domain.sizes),
        "parts": parts,
        "absent": [] if data.path.exists() else [f"data.path: {data.path}"],
    }


def print_summary(plan: SurveyPlan, *, as_json: bool) -> None:
    """Print what a run costs and measures."""
    found = survey_summary(plan)
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    typer.echo(printable(f"{found['name']}: {text.guarantee(guarantee_of(plan.budget))}"))
    table = Table("part", "share", "cost", "strata", "smallest", "pooled")
    for row in found["parts"]:
        cells = [row["part"], row["share"], row["cost"], row["strata"] or "", row["smallest"] or ""]
        table.add_row(*map(str, cells), str(len(row["pooled"]) or ""))
    result_console().print(table)
    for row in found["parts"]:
        if row["conditioned"] is not None:
            typer.echo(printable(promise_words(row["part"], row["conditioned"])))
    for absent in found["absent"]:
        typer.echo(printable(f"not there: {absent}"))
