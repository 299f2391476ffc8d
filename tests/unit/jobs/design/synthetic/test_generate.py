"""The synthetic nation: same seed same data, however it is cut, and census-like."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from typer.main import get_command

from das.errors import ConfigError, OutputError
from das.queries.query import parse_query
from invariants.linear import cells_in
from jobs.cli.main import app
from jobs.design.synthetic import files
from jobs.design.synthetic.files import FORMATS, pattern_of
from jobs.design.synthetic.generate import GenerateSpec, generate
from jobs.design.synthetic.nation import draw_tract, plan_tracts
from jobs.design.synthetic.schemas import NAMES, schema_named
from jobs.pipeline.config.files import read_model
from jobs.pipeline.config.models.data import BlockTableData, HistogramsData, RecordsData
from jobs.pipeline.config.models.kinds.zero import ZeroConfig
from jobs.pipeline.config.models.run import RunConfig
from jobs.pipeline.config.schema import load_schema
from tests.unit.jobs.pipeline.confidential.read.reading import ROOT, read


def spec(**changes: Any) -> GenerateSpec:
    return GenerateSpec(**{"seed": 7, "blocks": 900, "states": 3, **changes})


def content(folder: Path) -> list[Any]:
    return [pq.read_table(folder / name).to_pylist() for name in ("geounits.parquet", "histograms")]


def test_equal_specifications_give_equal_data(tmp_path: Path) -> None:
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        generate(spec(seed=seed, format="histograms"), tmp_path / name)
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert content(tmp_path / "a") != content(tmp_path / "c")


def test_residents_live_in_households_of_the_sizes_of_their_dwellings(tmp_path: Path) -> None:
    """Who lives with whom adds up to both files: everybody in households, and units by size."""
    generate(spec(schema="residents"), tmp_path / "a")
    people = pq.read_table(tmp_path / "a" / "households").to_pandas()
    named = ["geocode", "residence", "votingage", "ethnicity_race"]
    records = pq.read_table(tmp_path / "a" / "records").to_pandas()
    housed = records[records["residence"].isin(["householder", "other_in_household"])]
    assert people[named].value_counts().to_dict() == housed[named].value_counts().to_dict()
    homes = people.groupby(["geocode", "household"], sort=False)
    assert (homes["residence"].first() == "householder").all()
    assert people["residence"].eq("householder").sum() == len(homes)
    sizes = homes.size().clip(upper=7).reset_index(name="cell")  # vacant is the first cell
    units = pq.read_table(tmp_path / "a" / "dwellings").to_pandas()
    units = units.explode(["cells", "counts"]).query("1 <= cells <= 7")
    found = sizes.groupby(["geocode", "cell"]).size()
    assert found.to_dict() == units.set_index(["geocode", "cells"])["counts"].to_dict()
    minors = homes["votingage"].apply(lambda ages: (ages == "under_18").sum())
    pairs = homes.size() == 2
    assert 0.03 < (minors[pairs] > 0).mean() < 0.3  # a third of all others are minors
    alike = homes["ethnicity_race"].nunique()[homes.size() > 1] == 1
    assert 0.4 < alike.mean() < 0.8


def test_counties_are_as_large_as_wanted() -> None:
    """And as many as three digits can number, whatever is wanted."""
    for tracts, counties in ((27.0, 39), (9.0, 116), (1.0, 499)):
        places = plan_tracts(spec(blocks=100_000, states=1, tracts=tracts))
        assert max(tract.county for tract in places) + 1 == pytest.approx(counties, abs=1)
        assert len({tract.geocode for tract in places}) == len(places)
        assert {len(tract.geocode) for tract in places} == {11}


def test_data_do_not_depend_on_how_the_work_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(spec(format="histograms"), tmp_path / "whole")
    monkeypatch.setattr(files, "TRACTS_PER_ROW_GROUP", 1)
    monkeypatch.setattr(files, "TRACTS_PER_FILE", 2)
    generate(spec(format="histograms"), tmp_path / "cut")
    assert len(list((tmp_path / "whole" / "histograms").iterdir())) == 1
    assert len(list((tmp_path / "cut" / "histograms").iterdir())) > 3
    assert content(tmp_path / "whole") == content(tmp_path / "cut")
    nation = spec()
    tracts = plan_tracts(nation)
    one, again = draw_tract(nation, tracts[5]), draw_tract(nation, tracts[5])
    assert np.array_equal(one.counts, again.counts)


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("pl94", "q{hhgq}v{votingage}h{hispanic}r{cenrace:02d}"),
        ("pl94_tables", "v{votingage}h{hispanic}r{cenrace:02d}"),
        ("block16", "v{votingage}e{ethnicity_race}"),
        ("group_quarters", "q{hhgq}"),
        ("toy", "s{sex}a{age}"),
    ],
)
def test_all_formats_hold_the_same_persons(tmp_path: Path, schema: str, pattern: str) -> None:
    loaded = load_schema(ROOT / "conf" / "schema" / f"{schema}.yaml")
    assert pattern_of(loaded) == pattern
    found = []
    for kind in FORMATS:
        facts = generate(spec(blocks=150, schema=schema, format=kind), tmp_path / kind)
        path = Path(facts["data"])
        data = {
            "records": lambda p: RecordsData(
                input_format="records", path=p, columns={a.name: a.name for a in loaded.attributes}
            ),
            "histograms": lambda p: HistogramsData(input_format="histograms", path=p),
            "block_table": lambda p: BlockTableData(
                input_format="block_table", path=p, pattern=pattern
            ),
        }[kind](path)
        found.append(read(data, loaded, 15))
        assert found[-1].total() == facts["persons"]
        assert facts["blocks"] == 150
        empty = facts["blocks"] - len({code for code, _ in found[-1]})
        assert empty == facts["empty_blocks"]
    assert found[0] == found[1] == found[2]


def test_geography(tmp_path: Path) -> None:
    facts = generate(spec(blocks=20_000, format="histograms"), tmp_path / "out")
    units = pq.read_table(facts["geounits"]).to_pandas()
    codes = units.geocode
    assert len(codes) == 20_000
    assert codes.is_unique
    assert codes.is_monotonic_increasing
    assert set(codes.str.len()) == {15}
    assert list(codes.str[:2].unique()) == ["01", "02", "03"]
    assert (codes.str[11] >= "1").all()
    assert codes.str[:11].nunique() == facts["tracts"]
    assert 50 < len(codes) / codes.str[:11].nunique() < 150
    assert codes.str[:5].nunique() > 10
    assert pq.read_table(facts["data"], columns=["geocode"])["geocode"].to_pylist() == list(codes)


def test_looks_like_a_census(tmp_path: Path) -> None:
    facts = generate(spec(blocks=20_000, format="histograms"), tmp_path / "out")
    units = pq.read_table(facts["geounits"]).to_pandas()
    table = pq.read_table(facts["data"]).to_pandas()
    persons = np.array([counts.sum() for counts in table.counts])
    inhabited = persons[persons > 0]
    assert 0.35 < (persons == 0).mean() < 0.45
    assert 30 < persons.mean() < 50
    assert 2 < inhabited.mean() / np.median(inhabited) * 1.3 < 4
    assert 3 < np.mean([len(cells) for cells in table.cells if len(cells)]) < 20
    cells, counts = np.concatenate(list(table.cells)), np.concatenate(list(table.counts))
    hhgq = np.bincount(cells // 252, counts, 8)
    assert 0.01 < 1 - hhgq[0] / hhgq.sum() < 0.05
    minors = np.bincount(cells // 252, counts * (cells // 126 % 2 == 0), 8) / hhgq
    assert minors[3] == 0
    assert minors[1] == 0
    assert minors[2] > 0.8
    assert 0.15 < minors[0] < 0.3
    facilities = units.filter(like="gq_").to_numpy()
    assert (facilities > 0).any(1).mean() < 0.03
    owner = np.repeat(np.arange(len(table)), [len(cells) for cells in table.cells])
    for kind in range(7):
        blocks = np.unique(owner[cells // 252 == kind + 1])
        assert np.array_equal(blocks, np.flatnonzero(facilities[:, kind]))
    assert (
        units.housing_units.to_numpy()[np.isin(np.arange(len(table)), owner[cells < 252])] > 0
    ).all()


def test_everybody_lives_in_a_unit_of_the_block(tmp_path: Path) -> None:
    kind = {"schema": "group_quarters", "format": "block_table"}
    facts = generate(spec(blocks=5_000, **kind), tmp_path / "out")
    persons = pq.read_table(facts["data"]).to_pandas()
    table = pq.read_table(tmp_path / "out" / "units").to_pandas()
    listed = pq.read_table(facts["geounits"]).to_pandas()
    units = load_schema(ROOT / "conf" / "schema" / "units.yaml").attributes[0].levels
    assert list(table.columns) == ["geocode", *units]
    assert list(table.geocode) == list(persons.geocode) == list(listed.geocode)
    assert (table.occupied + table.vacant == listed.housing_units).all()
    assert ((persons.q0 > 0) == (table.occupied > 0)).all()
    assert (table.occupied <= persons.q0).all()
    assert 0.05 < table.vacant.sum() / listed.housing_units.sum() < 0.2
    for place, name in enumerate(units[2:], 1):
        assert (table[name] == listed[f"gq_{name}"]).all()
        assert ((persons[f"q{place}"] > 0) == (table[name] > 0)).all()
        assert (persons[f"q{place}"] >= table[name]).all()
    assert facts["units"] == int(table[list(units)].to_numpy().sum())


def test_races_are_segregated_by_tract(tmp_path: Path) -> None:
    facts = generate(spec(blocks=20_000, format="histograms", schema="block16"), tmp_path / "out")
    table = pq.read_table(facts["data"]).to_pandas()
    tract = table.geocode.str[:11].astype("category").cat.codes.to_numpy()
    owner = np.repeat(tract, [len(cells) for cells in table.cells])
    cells, counts = np.concatenate(list(table.cells)), np.concatenate(list(table.counts))
    white = np.bincount(owner, counts * (cells % 8 == 1)) / np.bincount(owner, counts)
    assert white.std() > 0.1


def test_progress_ends_complete(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    facts = generate(spec(), tmp_path / "out", progress=lambda *numbers: seen.append(numbers))
    assert seen[-1] == (facts["tracts"], facts["tracts"])


def test_refuses_a_folder_that_holds_something(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="is not an empty folder"):
        generate(spec(), tmp_path)
    with pytest.raises(OutputError, match="is not an empty folder"):
        generate(spec(), tmp_path / "file")
    (tmp_path / "new").mkdir()
    generate(spec(blocks=5), tmp_path / "new")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"schema": "dhc"}, "schema: is unknown; got dhc"),
        ({"format": "xml"}, "format: is unknown; got xml"),
        ({"states": 0}, "states: is out of range; got 0"),
        ({"states": 100}, "states: is out of range; got 100"),
        ({"blocks": 2}, "blocks: is too small; got 2"),
        ({"seed": -1}, "seed: is negative; got -1"),
        ({"tracts": 0.5}, r"tracts: is too small; got 0\.5"),
    ],
)
def test_specification_is_checked(changes: dict[str, Any], what: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=what):
        generate(spec(**changes), tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["dhc_persons", "census1940"])
def test_large_schemas_are_generated_sparsely(tmp_path: Path, name: str) -> None:
    facts = generate(
        GenerateSpec(seed=4, blocks=30, schema=name, format="histograms"), tmp_path / "data"
    )
    schema = load_schema(ROOT / "conf" / "schema" / f"{name}.yaml")
    table = pq.read_table(tmp_path / "data" / "histograms")
    cells = pc.list_flatten(table.column("cells")).to_numpy()
    counts = pc.list_flatten(table.column("counts")).to_numpy()
    assert counts.sum() == facts["persons"] > (500 if name == "dhc_persons" else 15_000)
    assert len(cells) > 0.5 * len(table)
    assert cells.max() < schema.size
    codes = schema.codes_of(cells)
    assert 0.2 < (codes["age"] * counts).sum() / counts.sum() / 100 < 0.6
    assert 0.4 < (codes["sex"] * counts).sum() / counts.sum() < 0.6
    with pytest.raises(ConfigError, match="column per cell"):
        generate(
            GenerateSpec(blocks=3, schema=name, format="block_table"), tmp_path / "block_table"
        )


def test_nobody_is_of_an_impossible_age(tmp_path: Path) -> None:
    """The structural zeros of conf/run/dhc.yaml hold for what is generated."""
    path = ROOT / "conf" / "run" / "dhc.yaml"
    document = yaml.safe_load(path.read_text())
    schema = schema_named("dhc_persons")
    zeros = np.zeros(schema.size, np.bool_)
    for entry in document["products"]["persons"]["invariants"][1:]:
        levels = {
            axis: values if isinstance(values, list) else [values]
            for axis, values in entry["zero"].items()
        }
        zeros |= cells_in(schema, levels, "zero")
    assert 0.1 < zeros.mean() < 0.6
    spec = GenerateSpec(seed=2, blocks=60, schema="dhc_persons", format="histograms")
    generate(spec, tmp_path / "data")
    cells = pc.list_flatten(pq.read_table(tmp_path / "data/histograms").column("cells")).to_numpy()
    assert not zeros[cells].any()
    assert len(np.unique(schema.codes_of(cells)["relgq"])) > 12


def households(
    tmp_path: Path, blocks: int = 90, kind: str = "histograms", **changes: Any
) -> tuple[Path, Any]:
    spec = GenerateSpec(seed=3, blocks=blocks, schema="dhc_households", format=kind, **changes)
    facts = generate(spec, tmp_path / kind)
    return tmp_path / kind, facts


def test_records_of_an_attribute_of_many_levels_have_their_labels(tmp_path: Path) -> None:
    """522 types of households need codes of more than one byte."""
    folder, _ = households(tmp_path)
    listed, _ = households(tmp_path, kind="records")
    schema = schema_named("dhc_households")
    cells = pq.read_table(folder / "histograms").to_pandas().explode(["cells", "counts"])
    types = schema.codes_of(cells["cells"].dropna().to_numpy(np.int64))["hhtype"]
    labels = np.array(schema.attribute("hhtype").levels)[types]
    expected = Counter(np.repeat(labels, cells["counts"].dropna().to_numpy(np.int64)).tolist())
    found = Counter(pq.read_table(listed / "records").column("hhtype").to_pylist())
    assert found == expected


def test_households_live_in_the_occupied_units_of_their_block(tmp_path: Path) -> None:
    folder, facts = households(tmp_path, with_prims=True)
    tables = {
        name: pq.read_table(folder / name).to_pylist()
        for name in ("histograms", "dhc_units", "h1_units")
    }
    units, h1 = schema_named("dhc_units"), schema_named("h1_units")
    occupancy = parse_query(units, "occupancy")
    assert occupancy.labels() == list(h1.attributes[0].levels)
    occupied = 0
    for own, finer, coarser in zip(*tables.values(), strict=True):
        answers = np.zeros(occupancy.size, np.int64)
        cells = np.array(finer["cells"], np.int64)
        np.add.at(answers, occupancy.rows_of(cells), finer["counts"])
        assert dict(zip(coarser["cells"], coarser["counts"], strict=True)) == {
            cell: count for cell, count in enumerate(answers.tolist()) if count
        }
        assert sum(own["counts"]) == answers[0]
        occupied += answers[0]
    assert facts["households"] == occupied > 500


def test_no_household_is_of_a_cell_that_cannot_be(tmp_path: Path) -> None:
    """The structural zeros of conf/run/dhc-households.yaml hold for what is generated."""
    run = read_model(ROOT / "conf" / "run" / "dhc-households.yaml", RunConfig)
    schema = schema_named("dhc_households")
    stated = run.products["households"].invariants
    zeros = [cells_in(schema, one.zero, "zero") for one in stated if isinstance(one, ZeroConfig)]
    assert len(zeros) == 12
    folder, _ = households(tmp_path, blocks=400)
    cells = pc.list_flatten(pq.read_table(folder / "histograms").column("cells")).to_numpy()
    assert not np.any(zeros, axis=0)[cells].any()
    codes = schema.codes_of(cells)
    assert len(np.unique(codes["hhtype"])) > 100
    for attribute in schema.attributes[:-1]:
        assert len(np.unique(codes[attribute.name])) == attribute.size


def test_the_help_names_what_the_error_names() -> None:
    options = {one.name: one.help for one in get_command(app).commands["generate"].params}
    for option, names in (("schema", (*NAMES, "the path of a schema file")), ("format", FORMATS)):
        said = re.split(r", | or ", re.sub(r" \(.*?\)", "", options[option]).removesuffix("."))
        assert sorted(said) == sorted(names)
