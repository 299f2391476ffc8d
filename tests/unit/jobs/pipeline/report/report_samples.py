"""A full manifest and evaluation for report tests; every confidential number is a canary."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import TypeAdapter

from jobs.pipeline.documents.evaluation import Evaluation
from jobs.pipeline.documents.manifest import Manifest
from jobs.pipeline.documents.summary import Part, Straggler, Summary, summary_of

D = TypeVar("D")
LEVELS = ("nation", "county", "block")
QUERIES = {"total": 1, "sex": 2, "detailed": 252}
CANARY = 73_000_000  # evaluation numbers start here and are distinct
HOSTILE = '<script>alert("x")</script>&amp;'


def manifest(**changes: Any) -> Manifest:
    """A manifest with every key, some of them replaced by JSON."""
    return made(Manifest, manifest_document(**changes))


def made(kind: type[D], document: object) -> D:
    """The value of a document given as JSON."""
    value: D = TypeAdapter(kind).validate_python(document)
    return value


def manifest_document(**changes: Any) -> dict[str, Any]:
    """A manifest with every key, as JSON."""
    document = {
        "format": 3,
        "name": "toy run",
        "not_for_release": False,
        "created": "2026-01-02T03:04:05+00:00",
        "software": {
            "name": "topdown-das",
            "version": "0.1.0",
            "python": "3.11.7",
            "libraries": {"numpy": "2.0"},
        },
        "configuration_digest": "ab" * 32,
        "schema": {
            "name": "toy",
            "attributes": [{"name": "sex", "levels": ["f", "m"]}],
            "cells": 252,
        },
        "privacy": {
            "definition": "zcdp",
            "total": "293764/114921",
            "rho": "293764/114921",
            "epsilon": 17.1435,
            "epsilon_simple": 17.9002,
            "delta": "1/10000000000",
            "neighbors": "bounded",
            "randomness": "operating_system",
            "lazy_queries": [],
            "neighborhood": limited(),
        },
        "statements": [
            {
                "change": "record",
                "name": "",
                "total": "2",
                "epsilon": 5.0,
                "epsilon_simple": 6.0,
                **limited(),
            },
            {
                "change": "attribute",
                "name": "sex",
                "total": "1/8",
                "epsilon": 3.0,
                "epsilon_simple": 4.0,
                **limited(),
            },
        ],
        "account": None,
        "budget": [budget_row(level, query) for level in LEVELS for query in QUERIES],
        "invariants": [{"query": "total", "geolevels": ["nation"]}],
        "limits": [],
        "geography": [
            {
                "geolevel": level,
                "digits": index,
                "geounits": 10**index,
                "measured": 10**index,
                "only_children": 0,
            }
            for index, level in enumerate(LEVELS)
        ],
        "geounits_source": "public list",
        "open_sessions": [],
        "solve": [solve_row(level) for level in LEVELS],
        "solution": {"name": None, "digest": "ef" * 32, "settings": {}, "history": []},
        "outputs": [
            {
                "path": "counts/level=nation",
                "files": 1,
                "rows": 1,
                "bytes": 1234,
                "sha256": "cd" * 32,
                "columns": [{"name": "geocode", "type": "text"}],
                "labelled": [],
            }
        ],
        "files": [{"path": "ledger.jsonl", "bytes": 99, "sha256": "12" * 32}],
        "totals": {"persons": 1_052_567, "leaf_geounits": 25_181},
        "environment": {"cores": 2, "slots": 2, "spark": "4.0", "java": "17", "platform": "Linux"},
        "records": "persons",
    }
    return document | changes


def summary() -> Summary:
    """What a run of two stages cost, with a task that lagged."""
    straggler = Straggler(
        step="solve block",
        task=7,
        low="44007000001",
        high="44007000999",
        cost=25,
        seconds=93.0,
        expected_seconds=12.0,
        running=False,
    )
    stages = {
        "measure": (61.0, 100.0, 700_000_000, 0, 0, ()),
        "solve": (239.0, 450.0, 1_500_000_000, 210_000_000, 25_181, (straggler,)),
    }
    return summary_of(
        [
            Part(
                stage=stage,
                what="block",
                geolevel="block",
                seconds=seconds,
                core_seconds=core_seconds,
                core_hours=core_seconds / 3600,
                tasks=2,
                peak_memory_bytes=peak,
                task_peak_memory_bytes=task_peak,
                geounits=geounits,
                rate=geounits / seconds if geounits else None,
                stragglers=stragglers,
            )
            for stage, (
                seconds,
                core_seconds,
                peak,
                task_peak,
                geounits,
                stragglers,
            ) in stages.items()
        ]
    )


def budget_row(level: str, query: str) -> dict[str, Any]:
    """One measured query."""
    return {
        "geolevel": level,
        "chain_end": level,
        "query": query,
        "share": "1/3",
        "level_share": "1/3",
        "cost": "293764/1034289",
        "charged": "alone",
        "mechanism": "discrete_gaussian",
        "parameter": "25/4",
        "variance": 6.25,
        "answers": QUERIES[query],
        "geounits": 5,
    }


def solve_row(level: str) -> dict[str, Any]:
    """Solver statistics of a geolevel."""
    return {
        "geolevel": level,
        "wall_seconds": 14.0,
        "solve_digest": "34" * 32,
        "nodes": 10,
        "copied": 1,
        "trivial": 2,
        "live": 500,
        "variables": 1000,
        "seconds": 12.5,
        "max_residual": 3.1e-12,
        "iterations": 77,
        "newton_steps": 88,
        "widened": 0,
        "worst_nodes": [{"geocode": "01", "residual": 3.1e-12, "seconds": 0.5}],
        "moved": [],
    }


def limited(**changes: Any) -> dict[str, Any]:
    """What invariants leave of a statement: all of it."""
    return {"comparable": "all", "limited_by": [], "stays_in": "", "in_words": ""} | changes


def evaluation() -> Evaluation:
    """An evaluation whose numbers are distinct and recognisable."""
    return made(Evaluation, evaluation_document())


def evaluation_document() -> dict[str, Any]:
    """The same as JSON."""
    fresh = iter(range(CANARY, CANARY + 10**6))
    sizes, trues = ("0", "1 to 9", "10 to 99"), ("0", "1", "2 to 4")

    def means() -> dict[str, Any]:
        keys = ("answers", "mae", "rmse", "bias", "max")
        return {key: next(fresh) for key in keys} | {"exact": 0.25}

    results = [
        {
            "geolevel": level,
            "query": query,
            "size": size,
            "measured": True,
            "expected_rmse": 2.5,
            "geounits": next(fresh),
            "persons": next(fresh),
            **means(),
            **{key: next(fresh) for key in ("l1", "appeared", "vanished", "live")},
            **{key: next(fresh) for key in ("q50", "q90", "q95", "q99")},
            "tvd": 0.125,
            "distribution": [0.5, 0.25, 0.25, 0, 0, 0, 0, 0],
            "by_size": [{"bin": label, "geounits": next(fresh), **means()} for label in sizes],
            "by_true": [{"bin": label, **means()} for label in trues],
            "most_changed": [
                {
                    "geocode": f"{level}-{index}",
                    "l1": next(fresh),
                    "persons": next(fresh),
                    "net": -next(fresh),
                }
                for index in range(12)
            ],
        }
        for level in LEVELS
        for query, size in QUERIES.items()
    ]
    results[0]["max"] = 0  # the invariant: total at nation
    parity = [
        {
            "geolevel": level,
            "kind": "query",
            "groups": "sex",
            "table": table,
            "expected_rmse": 2.5,
            "floor": 10,
            "population_weight": 0.5,
            "everybody": 0.25 * spread,
            "k": 2,
            "parity": 1.0,
            "parity_mean": 0.5,
            "worst": "f",
            "by_group": [
                {
                    "group": group,
                    **{key: next(fresh) for key in ("persons", "released", "answers", "l1")},
                    **{key: next(fresh) for key in ("mae", "rmse", "bias", "max")},
                    "relative": relative * spread,
                    "to_everybody": 4 * relative,
                }
                for group, relative in (("f", 0.5), ("m", 0.125))
            ],
        }
        for level, spread in zip(LEVELS, (0, 0.1, 1), strict=True)
        for table in ("total", "age_group")
    ]
    return {
        "format": 1,
        "created": "2026-01-02T03:04:05+00:00",
        "levels": list(LEVELS),
        "queries": list(QUERIES),
        "results": results,
        "parity": parity,
    }


def numbers(value: Any) -> list[int]:
    """All canaries in an evaluation."""
    if isinstance(value, dict):
        return [n for item in value.values() for n in numbers(item)]
    if isinstance(value, list):
        return [n for item in value for n in numbers(item)]
    return [abs(value)] if isinstance(value, int) and abs(value) >= CANARY else []
