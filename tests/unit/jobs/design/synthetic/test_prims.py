"""Geocodes of eight geolevels: they nest, rise with census geocodes, and persons stay the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from das.errors import ConfigError
from das.queries.query import parse_query
from jobs.design.synthetic.generate import GenerateSpec, generate
from jobs.design.synthetic.prims import PRIMS, block_codes, tract_subsets
from jobs.design.synthetic.schemas import schema_named
from jobs.pipeline.storage.histograms import align_histograms


def chosen(seed: int):
    rng = np.random.default_rng(seed)
    return lambda n, k: rng.choice(n, k, replace=False)


@pytest.mark.parametrize("n_tracts", [1, 2, 7, 60, 400])
def test_subsets_rise_and_a_boundary_cuts_a_tract_in_two(n_tracts):
    for seed in range(5):
        tracts = tract_subsets(chosen(seed), "01001", n_tracts)
        codes = [code for subsets in tracts for code in subsets]
        assert len(tracts) == n_tracts
        assert codes == sorted(codes)
        assert len({*codes}) == len(codes)
        assert {len(code) for code in codes} == {12}
        prims = [{code[5] for code in subsets} for subsets in tracts]
        assert all(len(own) == len(subsets) for own, subsets in zip(prims, tracts, strict=True))
        if n_tracts >= 60:  # 19 boundaries or more, each inside of a tract as often as not
            assert {len(subsets) for subsets in tracts} == {1, 2}
        seen = sorted({code[5] for code in codes})
        assert seen == list(PRIMS[: min(len(PRIMS), max(1, round(n_tracts / 3)))])


def test_block_groups_of_a_tract_are_in_its_subsets():
    census = [f"01001000100{group}{block:03d}" for group in (1, 2, 3) for block in (0, 7)]
    codes = block_codes(("010011000011", "010012000011"), census)
    assert codes == [
        *("0100110000111000", "0100110000111007", "0100110000112000", "0100110000112007"),
        *("0100120000113000", "0100120000113007"),
    ]
    assert block_codes(("010011000012",), census)[-1] == "0100110000123007"


@pytest.fixture(scope="module")
def nation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("prims") / "data"
    spec = GenerateSpec(
        seed=3, blocks=900, schema="dhc_persons", format="histograms", with_prims=True
    )
    generate(spec, out)
    return out


def test_every_block_has_both_geocodes(nation):
    table = pq.read_table(nation / "geounits.parquet")
    codes, census = (table.column(name).to_pylist() for name in ("geocode", "census_geocode"))
    assert codes == sorted(codes)
    assert len({*codes}) == len({*census}) == 900
    assert {len(code) for code in codes} == {16}
    assert all(a[:5] == b[:5] and a[-4:] == b[-4:] for a, b in zip(codes, census, strict=True))
    subsets = {(code[:12], b[:11]) for code, b in zip(codes, census, strict=True)}
    tracts = [tract for _, tract in subsets]
    assert len(subsets) == len({code[:12] for code in codes}) >= len({*tracts})
    assert 1 < len({code[:6] for code in codes}) < len({code[:11] for code in codes})


def histograms(folder: Path, schema: str, codes: list[str]):
    table = pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("*.parquet"))])
    return align_histograms(table, codes, schema_named(schema).size)


def test_the_redistricting_cells_are_of_the_same_persons(nation):
    codes = pq.read_table(nation / "geounits.parquet").column("geocode").to_pylist()
    detailed = histograms(nation / "histograms", "dhc_persons", codes)
    coarse = histograms(nation / "redistricting", "pl94", codes)
    recoded = parse_query(schema_named("dhc_persons"), "hhgq * votingage * hispanic * cenrace")
    own = parse_query(schema_named("pl94"), "detailed")
    assert recoded.labels() == own.labels()
    assert np.array_equal(recoded.answer(detailed), own.answer(coarse))
    assert detailed.totals().sum() > 10_000


def test_without_prims_there_is_neither(tmp_path):
    generate(GenerateSpec(seed=3, blocks=20, format="histograms"), tmp_path / "data")
    assert not (tmp_path / "data" / "redistricting").exists()
    names = pq.read_schema(tmp_path / "data" / "geounits.parquet").names
    assert "census_geocode" not in names


def test_prims_are_of_blocks(tmp_path):
    spec = GenerateSpec(blocks=20, schema="census1940", with_prims=True)
    with pytest.raises(ConfigError, match="prims: need generated blocks"):
        generate(spec, tmp_path / "new")
