"""Costs and measurements of a survey run, shown before any budget is spent."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.box import SIMPLE
from rich.table import Table

from jobs.pipeline.documents.account import guarantee_of
from jobs.pipeline.documents.document import json_of
from jobs.pipeline.printable import printable, result_console
from jobs.pipeline.report import text
from jobs.survey.plan import MeanPlan, SurveyPlan, TablePlan
from jobs.survey.results import conditioned_of


def print_summary(plan: SurveyPlan, *, as_json: bool) -> None:
    """Print budget, parts, strata and missing files of a run; reads no data."""
    data = plan.config.data
    parts: list[dict[str, Any]] = []
    for part, cost in plan.costs.items():
        planned = plan.part(part)
        strata = planned.strata.sizes.values() if isinstance(planned, MeanPlan) else ()
        promise = conditioned_of(plan, part)
        gamma = planned.effective_gamma(data.n_records) if isinstance(planned, TablePlan) else None
        parts.append(
            {
                "part": part,
                "share": str(cost / plan.budget.total),
                "cost": str(cost),
                "strata": len(strata),
                "smallest": min(strata, default=None),
                "pooled": [*planned.pooled] if isinstance(planned, MeanPlan) else [],
                "conditioned": None if promise is None else json_of(promise),
                "effective_gamma": gamma,
            }
        )
    absent = [] if data.path.exists() else [f"data.path: {data.path}"]
    if as_json:
        summary = {
            "name": plan.config.name,
            "budget": json_of(guarantee_of(plan.budget)),
            "records": data.n_records,
            "attributes": len(plan.domain.names),
            "levels": sum(plan.domain.sizes),
            "parts": parts,
            "absent": absent,
        }
        typer.echo(json.dumps(summary, indent=1))
        return
    typer.echo(printable(f"{plan.config.name}: {text.guarantee(guarantee_of(plan.budget))}"))
    table = Table("part", "share", "cost", "strata", "smallest", "pooled", box=SIMPLE)
    for row in parts:
        cells = [row["part"], row["share"], row["cost"], row["strata"] or "", row["smallest"] or ""]
        table.add_row(*map(str, cells), str(len(row["pooled"]) or ""))
    result_console().print(table)
    for row in parts:
        if promise := conditioned_of(plan, row["part"]):
            sentence = (
                f"{row['part']}: published as in the data, without protection: "
                f"{', '.join(promise.exact)}; between data sets that agree on all that is exact, "
                f"proved up to k = {promise.k} changed records: (1 + gamma) k epsilon = "
                f"(1 + {promise.gamma}) x {promise.k} x {promise.epsilon} = {promise.proved}"
            )
            if row["effective_gamma"] is not None:
                sentence += f"; the smallest gamma that holds is {row['effective_gamma']:.4f}"
            typer.echo(printable(sentence))
    for missing in absent:
        typer.echo(printable(f"missing: {missing}"))
