"""A small release made first, and detailed counts bound to it: every count of it is kept."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.config.load import load_run
from jobs.release.verify import verify_run
from tests.builders import toy
from tests.builders.in_process import execute
from tests.release_checks import sparse, tree_is_consistent

# Sex and voting age of the persons whose sex and age the toy schema has.
FIRST = {
    "name": "first",
    "attributes": [
        {"name": "sex", "levels": ["female", "male"]},
        {"name": "votingage", "levels": ["under_18", "18_and_over"]},
    ],
}
OLD = {"under_18": "under_18", "18_to_64": "18_and_over", "65_and_over": "18_and_over"}
BOUND = "sex * votingage"


def write_schemas(folder: Path) -> None:
    (folder / "first.yaml").write_text(yaml.safe_dump(FIRST))
    schema = yaml.safe_load((toy.ROOT / "conf/schema/toy.yaml").read_text())
    groups = {"under_18": ["under_18"], "18_and_over": "18_to_64..65_and_over"}
    schema["recodes"] = [{"name": "votingage", "attribute": "age", "groups": groups}]
    (folder / "second.yaml").write_text(yaml.safe_dump(schema))


def write_allocation(folder: Path, name: str, levels: list[str], queries: list[str]) -> str:
    shares = {query: f"1/{len(queries)}" for query in queries}
    document = {"share": f"1/{len(levels)}", "queries": shares}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"name": name, "levels": dict.fromkeys(levels, document)}))
    return str(path)


def first(folder: Path, **changes: Any) -> Path:
    """The run file of the release that comes first, of three geolevels."""
    levels = ["state", "county", "block"]
    columns = {"sex": "sex", "votingage": {"column": "age", "codes": OLD}}
    return toy.configuration(
        folder,
        **{
            "schema": str(folder / "first.yaml"),
            "data__columns": columns,
            "geography__levels": [
                {"name": name, "digits": digits}
                for name, digits in zip(levels, (2, 5, 10), strict=True)
            ],
            "privacy__allocation": write_allocation(folder, "a1", levels, ["total", "detailed"]),
            "output__directory": str(folder / "first"),
            **changes,
        },
    )


def second(folder: Path, released: dict[str, Any] | None = None, **changes: Any) -> Path:
    """The run file of all four geolevels that is bound to it."""
    source = {"path": str(folder / "first" / "release"), "query": "detailed"}
    bound = {"query": BOUND, "geolevel": "block", "released": released or source}
    return toy.configuration(
        folder,
        **{
            "schema": str(folder / "second.yaml"),
            "invariants": [bound],
            "privacy__allocation": write_allocation(folder, "a2", toy.LEVELS, ["age", "detailed"]),
            "privacy__lazy_queries": ["detailed"],
            "privacy__rho": "1/5",
            "solve": {"targets": "own"},
            **changes,
        },
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the first release and the second, which is bound to it."""
    folder = tmp_path_factory.mktemp("bound")
    toy.write_records(folder)
    write_schemas(folder)
    execute(load_run(first(folder)))
    execute(load_run(second(folder)))
    return folder


def added_up(counts: dict[str, dict[int, int]], digits: int) -> dict[str, Counter[int]]:
    """Counts of leaves by a prefix of their geocodes."""
    out: dict[str, Counter[int]] = {}
    for code, cells in counts.items():
        out.setdefault(code[:digits], Counter()).update(cells)
    return out


def test_every_count_of_the_first_release_is_kept_at_every_geolevel(finished):
    before = sparse(finished / "first" / "release" / "counts" / "level=block")
    assert before != sparse(finished / "first" / "confidential" / "histograms" / "level=block")
    for level, digits in zip(toy.LEVELS, (2, 5, 7, 10), strict=True):
        now: dict[str, Counter[int]] = {}
        for code, cells in sparse(
            finished / "out" / "release" / "counts" / f"level={level}"
        ).items():
            for cell, count in cells.items():
                sex, age = divmod(cell, 3)
                now.setdefault(code, Counter())[2 * sex + (age > 0)] += count
        assert now == added_up(before, digits)
    assert tree_is_consistent(finished / "out", toy.LEVELS)


def test_verify_compares_the_counts_with_those_it_was_bound_to(finished):
    checked = verify_run(load_run(second(finished)))
    blocks, tracts, counties = 21, 6, 3
    assert checked["exact_answers"] == 4 * (blocks + tracts + counties + 1)
    manifest = json.loads((finished / "out" / "release" / "manifest.json").read_text())
    assert {"kind": "released before", "name": BOUND}.items() <= manifest["limits"][0].items()
    assert manifest["invariants"] == []
