"""Ready runs with planned strategies, on a few geounits and two of their geolevels."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.design.synthetic.generate import GenerateSpec, generate
from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.verify import verify_run
from tests.builders.dhc import run_file
from tests.builders.in_process import execute
from tests.release_checks import tree_is_consistent


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "data", "schema", "levels"),
    [
        ("census1940-ranges", "census1940", "census1940", ["state", "enumeration_district"]),
        ("dhc-planned", "dhc", "dhc_persons", ["nation", "state", "block"]),
    ],
)
def test_a_ready_run_keeps_every_promise(
    tmp_path: Path, name: str, data: str, schema: str, levels: list[str]
) -> None:
    spec = GenerateSpec(blocks=12, seed=5, schema=schema, format="histograms")
    generate(spec, tmp_path / f"{data}-data")
    run = run_file(tmp_path, name, levels)
    out = execute(run)
    assert tree_is_consistent(out, levels)
    resolved = load_run(run)
    assert verify_run(resolved)
    planned = [query for query in resolved.plan.levels[0].queries if not query.is_partition]
    assert len(planned) > 20
    assert "detailed" in {query.name for query in resolved.plan.levels[1].queries}
