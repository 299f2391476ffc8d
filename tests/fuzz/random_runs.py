"""Random run files of surveys and censuses, from ordinary to absurd ones; no file is malformed."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from tests.builders.run_files import to_products
from tests.builders.toy import LEVELS
from tests.fuzz.case import Rng, toy_allocation, write_csv, write_toy

BUDGETS = ("1", "1/7", "1/1000", "1/1000000", "1000", "1000000")


def privacy(rng: Rng) -> dict[str, Any]:
    """Any definition, neighbor relation and budget."""
    total, neighbors = rng.choice(BUDGETS), rng.choice(("bounded", "unbounded"))
    if rng.random() < 0.4:
        return {"definition": "pure", "epsilon": total, "neighbors": neighbors}
    return {"rho": total, "delta": "1/1000000000", "neighbors": neighbors}


def split(rng: Rng, n: int) -> list[str]:
    """Random shares that sum to 1."""
    parts = [rng.choice((1, 1, 2, 7)) for _ in range(n)]
    return [str(Fraction(part, sum(parts))) for part in parts]


# --- surveys -------------------------------------------------------------------------------------


def random_survey(rng: Rng, folder: Path) -> Path:
    """Write data and run file of a survey with means, tables and a model, or some of them."""
    sizes = {f"a{i}": rng.choice((2, 2, 3, 5)) for i in range(rng.randint(2, 4))}
    n = rng.choice((1, 2, 5, 30, 300))
    values = (0, 1, 5, 100, -3, 10**6, 2 * 10**8)
    rows = [[*(rng.randrange(k) for k in sizes.values()), rng.choice(values)] for _ in range(n)]
    write_csv(folder / "persons.csv", [[*sizes, "v"], *rows])
    stated = privacy(rng)
    is_pure, is_bounded = "epsilon" in stated, stated["neighbors"] == "bounded"
    columns: dict[str, Any] = {
        name: {"column": name, "codes": {str(j): f"{name}l{j}" for j in range(size)}}
        for name, size in sizes.items()
    }
    columns["v"] = {"column": "v", "bins": [-3, 10, 1000]}
    document: dict[str, Any] = {
        "kind": "survey",
        "format": 3,
        "name": "random",
        "privacy": stated,
        "data": {
            "path": "persons.csv",
            "n_records": n if is_bounded else rng.choice((n, 1, 1000)),
            "columns": columns,
        },
        "output": {"directory": "out"},
    }
    parts: list[dict[str, Any]] = []
    if rng.random() < 0.7:
        parts.append(_mean(rng, folder, sizes, is_pure=is_pure))
        document["statistics"] = parts[-1:]
    if is_pure and is_bounded:
        pair = rng.sample([*sizes], 2)
        table: dict[str, Any] = {"query": " * ".join(pair), "name": "pairs"}
        if rng.random() < 0.6:
            table["exact"] = pair[:1]
        parts.append(table)
        document["contingency_tables"] = [table]
    if not parts or (not is_pure and rng.random() < 0.7):
        parts.append(_model(rng, folder, sizes))
        document["synthesis"] = parts[-1]
    for part, share in zip(parts, split(rng, len(parts)), strict=True):
        part["share"] = share
    return _written(folder, document)


def _mean(rng: Rng, folder: Path, sizes: dict[str, int], *, is_pure: bool) -> dict[str, Any]:
    low = rng.choice((0, -5, -(2**28), 1))
    mean: dict[str, Any] = {
        "mean": "v",
        "low": low,
        "high": min(low + rng.choice((1, 10, 1000, 10**6, 2**28)), 2**28),
        "sd_bound": rng.choice((1e-9, 0.5, 3.0, 1e6, 1e8, 2.0**28)),
        "method": "clipped" if is_pure or rng.random() < 0.3 else "coinpress",
    }
    if mean["method"] == "coinpress":
        mean |= {"steps": rng.choice((1, 2, 3, 20)), "intersect": rng.random() < 0.5}
    if rng.random() < 0.5:
        mean["stratify_by"] = rng.sample([*sizes], rng.choice((1, 1, 2)))
        mean["weights"] = _weights(rng, folder, {name: sizes[name] for name in mean["stratify_by"]})
        mean |= {
            "min_share": rng.choice(("0", "1/20", "1/2", "99/100")),
            "shrink": rng.random() < 0.5,
        }
    return mean


def _weights(rng: Rng, folder: Path, sizes: dict[str, int], least: int = 0) -> str:
    labels = [*itertools.product(*([f"{a}l{j}" for j in range(n)] for a, n in sizes.items()))]
    weights = [max(least, rng.choice((0, 1, 1, 3))) for _ in labels]
    weights[0] += 1
    rows = [[*ls, Fraction(w, sum(weights))] for ls, w in zip(labels, weights, strict=True)]
    name = f"weights-{'-'.join(sizes)}.csv"
    write_csv(folder / name, [[*sizes, "weight"], *rows])
    return name


def _model(rng: Rng, folder: Path, sizes: dict[str, int]) -> dict[str, Any]:
    kind = rng.choice(("mixture", "tree", "adaptive", "gem", "strata"))
    if kind in ("tree", "adaptive", "gem"):
        return {"model": kind, "steps": 2, **({} if kind == "tree" else {"steps_per_round": 1})}
    model: dict[str, Any] = {"model": "mixture", "components": 2, "steps": 2, "n_fits": 1}
    if kind == "strata":
        first = next(iter(sizes))
        weights = _weights(rng, folder, {first: sizes[first]}, least=1)
        model["strata"] = {"attributes": [first], "weights": weights}
    return model


# --- censuses ------------------------------------------------------------------------------------


def random_census(rng: Rng, folder: Path) -> Path:
    """Write data, allocation and run file of a small state."""
    run = write_toy(folder, rng)
    run |= {"privacy": {**privacy(rng), "allocation": "allocation.yaml"}}
    queries = ["total", "sex", "age", "votingage", "votingage * sex"]
    allocation = toy_allocation()
    shares = dict(zip(LEVELS, split(rng, len(LEVELS)), strict=True))
    for name, level in allocation["levels"].items():
        asked = [*rng.sample(queries, rng.randint(0, 3)), "detailed"]
        level |= {
            "share": shares[name],
            "queries": dict(zip(asked, split(rng, len(asked)), strict=True)),
        }
    if rng.random() < 0.5:
        for level in allocation["levels"].values():
            level["queries"] = allocation["levels"]["state"]["queries"]
        lazy = [name for name in allocation["levels"]["state"]["queries"] if rng.random() < 0.4]
        if lazy:
            run["privacy"]["on_demand_queries"] = lazy
    run["invariants"] = [
        {"query": query, "geolevel": rng.choice(LEVELS)}
        for query in rng.sample(["total", "sex", "votingage"], rng.randint(0, 2))
    ]
    run["output"] |= {"microdata": rng.sample(["csv", "parquet"], rng.randint(0, 2))}
    run["output"] |= {"directory": "out"}
    solve: dict[str, Any] = {"fit_to": rng.choice(("level", "tree"))}
    run["solve"] = solve
    (folder / "allocation.yaml").write_text(yaml.safe_dump(allocation, sort_keys=False))
    return _written(folder, to_products(run))


def _written(folder: Path, document: Any) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


MAKERS = {"survey": random_survey, "census": random_census}
