"""Another spine by a key of the run file: solved on it, published under the geocodes of the census."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from das.errors import ConfigError
from jobs.pipeline.storage.dataset import Dataset
from tests.builders import toy
from tests.builders.boundaries import write_boundaries
from tests.builders.places import product_in, release_of, truth_of
from tests.pipeline.local.test_explore import block, header, numbers
from tests.release_checks import microdata_rows, sparse
from topdown_das import open_release

BLOCKS = toy.blocks()
AIAN = {code for index, code in enumerate(BLOCKS) if index % 3 == 0 and code[2:5] != "005"}
PLACE = {code: f"p{index % 3}" if index % 4 else "" for index, code in enumerate(BLOCKS)}
SPLIT = {"split": {"geolevel": "state", "by": "aian"}}
BOTH = {
    **SPLIT,
    "regroup": "tract",
    "split_children": "county",
    "align_with": ["place"],
    "fan_out_cutoff": 0,
}
ON_AIAN = ["state", "state_part", "county_part", "tract_part", "block"]
ON_BOTH = [*ON_AIAN[:3], "tract_regrouped_group", "tract_regrouped", "block"]
ANSWERS = {"total": "1/4", "sex": "1/4", "detailed": "1/2"}


def write_blocks(folder: Path, name: str = "blocks.csv", rows: list[str] = BLOCKS) -> Path:
    """The list of blocks with what each lies in."""
    with (folder / name).open("w") as file:
        file.write("geocode,aian,place,county_name\n")
        for code in rows:
            aian = "0010" if code in AIAN else ""
            file.write(f"{code},{aian},{PLACE.get(code, '')},County {code[2:5]}\n")
    return folder / name


def configured(folder: Path, spine: dict[str, Any], levels: list[str], **changes: Any) -> Path:
    """The run file of the toy state with another spine, and its allocation."""
    toy.write_records(folder)
    blocks = write_blocks(folder)
    shares = {level: {"share": f"1/{len(levels)}", "queries": ANSWERS} for level in levels}
    allocation = folder / "spine.yaml"
    allocation.write_text(yaml.safe_dump({"name": "spine", "levels": shares}))
    listed = {"path": str(blocks), "names": {"county": "county_name"}}
    given = {"geography__geounits": listed, "geography__spine": spine}
    return toy.configuration(folder, privacy__allocation=str(allocation), **given, **changes)


def totals(out: Path, geolevel: str) -> dict[str, int]:
    with (release_of(out).tables(geolevel) / "total.csv").open() as file:
        return {row["geocode"]: int(row["count"]) for row in csv.DictReader(file)}


def estimates(path: Path) -> dict[str, float]:
    with path.open() as file:
        return {row["geocode"]: float(row["estimate"]) for row in csv.DictReader(file)}


def inhabitants(out: Path, digits: int) -> Counter[str]:
    found = Counter[str]()
    for (code, *_), n in microdata_rows(out).items():
        found[code[:digits]] += n
    return found


@pytest.mark.parametrize(("spine", "levels"), [(SPLIT, ON_AIAN), (BOTH, ON_BOTH)])
def test_a_spine_by_configuration(here, das, tmp_path, spine, levels):
    config = configured(tmp_path, spine, levels)
    code, said = das("validate", config)
    assert code == 0, said
    code, said = das("run", config)
    assert code == 0, said
    out = tmp_path / "out"
    code, said = das("verify", config)
    assert code == 0, said
    assert json.loads(said)["census_geounits"] == 3 + 6  # counties and tracts

    # Geocodes of the census, on microdata and tables; names go with them.
    rows = microdata_rows(out)
    assert {row[0] for row in rows} <= {*BLOCKS}
    assert [*totals(out, "state")] == ["99"]
    assert {*totals(out, "block")} == {*BLOCKS}
    for geolevel, digits in (("state", 2), ("county", 5), ("tract", 7), ("block", 10)):
        shown = totals(out, geolevel)
        assert {*shown} == {block[:digits] for block in BLOCKS}
        assert {k: n for k, n in shown.items() if n} == inhabitants(out, digits)
    with (release_of(out).tables("county") / "sex.csv").open() as file:
        assert {(row["geocode"], row["name"]) for row in csv.DictReader(file)} == {
            (f"99{county}", f"County {county}") for county in ("001", "003", "005")
        }

    # The spine's own geounits are published, too; the state is exact, its parts are not stated.
    with (tmp_path / "records.csv").open() as file:
        true = [row["block"] for row in csv.DictReader(file)]
    assert totals(out, "state") == {"99": len(true)}
    parts = totals(out, "state_part")
    assert [*parts] == ["990", "991"]
    assert sum(parts.values()) == len(true)
    assert parts["991"] == sum(n for row, n in rows.items() if row[0] in AIAN)
    measured = {path.name for path in (release_of(out).root / "measurements").iterdir()}
    assert measured == {f"level={level}" for level in levels}

    # The truth of the census is that of the input.
    found = sparse(truth_of(out).histograms("county"))
    assert {k: sum(cells.values()) for k, cells in found.items()} == Counter(b[:5] for b in true)
    evaluation = json.loads((truth_of(out).evaluation).read_text())
    assert {row["geolevel"] for row in evaluation["results"]} == {*levels, "county", "tract"}


def test_commands_take_geocodes_of_the_census(here, das, tmp_path):
    config = configured(tmp_path, BOTH, ON_BOTH)
    code, said = das("run", config)
    assert code == 0, said
    release = tmp_path / "out" / "release"

    def estimate(*words: object) -> dict[str, float]:
        code, said = das("estimate", release, "--query", "total", "--json", *words)
        assert code == 0, said
        return {row["area"]: row["estimate"] for row in json.loads(said)}

    counties = estimate("--geolevel", "county")
    assert estimates(product_in(release).tables("county") / "total.csv") == pytest.approx(
        counties, abs=0.001
    )
    blocks = estimate("--geolevel", "block")
    assert {*blocks} == {*BLOCKS}
    for county, found in counties.items():
        assert found == pytest.approx(sum(n for b, n in blocks.items() if b[:5] == county))
    parts = estimate("--geolevel", "state_part")
    assert parts["991"] == pytest.approx(sum(blocks[code] for code in AIAN))
    (tmp_path / "areas.csv").write_text("".join(f"{c},{c[2:5]}\n" for c in BLOCKS))
    assert estimate("--area", tmp_path / "areas.csv") == pytest.approx(
        {code[2:]: n for code, n in counties.items()}
    )

    code, said = das("areas", release, "--geolevel", "county", "--json")
    assert code == 0, said
    shown = {row["area"]: row["count"] for row in json.loads(said)["rows"]}
    assert shown == totals(tmp_path / "out", "county")
    code, said = das("tables", release, "--to", tmp_path / "tables", "--geolevel", "tract")
    assert code == 0, said
    made = (tmp_path / "tables" / "level=tract" / "total.csv").read_text()
    assert made == (product_in(release).tables("tract") / "total.csv").read_text()
    words = ("--geolevel", "tract", "--table", "age")
    assert das("tables", release, "--to", tmp_path / "tables", *words)[0] == 0
    code, said = das("estimate", release, "--geolevel", "tract", "--query", "age", "--json")
    assert code == 0, said
    rows = {(row["area"], row["label"]): row for row in json.loads(said)}
    with (tmp_path / "tables" / "level=tract" / "age.csv").open() as file:
        made_rows = [*csv.DictReader(file)]
    assert {(row["geocode"], row["age"]) for row in made_rows} == {*rows}
    for row in made_rows:
        wanted = rows[row["geocode"], row["age"]]
        for column, name in {"estimate": "estimate", "standard_error": "standard_error",
                             "estimate_lower": "lower", "estimate_upper": "upper"}.items():  # fmt: skip
            assert float(row[column]) == pytest.approx(wanted[name], abs=0.001)
    for words in (("verify", release), ("inspect", release), ("run", tmp_path / "out")):
        code, said = das(*words)
        assert code == 0, said

    page = tmp_path / "page.html"
    write_boundaries(tmp_path / "map.json", [*{block[:7] for block in BLOCKS}])
    code, said = das("explore", release, "-o", page, "--boundaries", tmp_path / "map.json")
    assert code == 0, said
    assert "outline" not in said  # all fit, though tracts are not on the spine
    levels = {one["name"]: one for one in header(page)["levels"]}
    assert [*levels] == ["state", "county", "tract", "block", *ON_BOTH[1:-1]]
    assert [one["digits"] for one in levels.values()][:4] == [2, 5, 7, 10]
    assert [one["above"] for one in levels.values()] == [None, 0, 1, 2, 0, 4, 5, 6]
    for level, found in levels.items():
        codes, *names = block(page, found["places"]).decode().split("\x00")
        with (product_in(release).tables(level) / "total.csv").open() as file:
            rows = sorted(csv.DictReader(file), key=lambda row: row["geocode"])
        assert codes.split("\n") == [row["geocode"] for row in rows]
        shown = numbers(page, level, "total")
        assert shown["count"][0].tolist() == [int(row["count"]) for row in rows]
        estimated = shown["estimate"][0] / 10 + shown["count"][0]
        assert estimated == pytest.approx([float(row["estimate"]) for row in rows], abs=0.051)
        assert (names != []) == (level == "county")


def test_a_release_alone_knows_both_geocodes(here, das, tmp_path):
    """What lies beside the files says whose geocodes they have, and noisy answers come with both."""
    config = configured(tmp_path, SPLIT, ON_AIAN)
    code, said = das("run", config)
    assert code == 0, said
    (tmp_path / "out" / "release").rename(tmp_path / "copy")
    release = open_release(tmp_path / "copy")
    for level, width in (("state", 2), ("block", 10)):
        for query in ("total", "detailed"):
            rows = release.measurements(query, level).to_pylist()
            shown = release.table(query, level).to_pylist()
            assert {len(row["census_geocode"]) for row in rows} == {width}
            assert {row["census_geocode"] for row in rows} <= {row["geocode"] for row in shown}
    listed = release.geounits("block").to_pylist()
    both = {row["geocode"]: row["census_geocode"] for row in listed}
    assert {*both.values()} == {*BLOCKS}
    assert len(rows) > len(BLOCKS)  # of all but only children
    assert all(both[row["geocode"]] == row["census_geocode"] for row in rows)
    marked = {own[2] == "1": set[str]() for own in both}
    for own, census in both.items():
        marked[own[2] == "1"].add(census)
    assert marked[True] == AIAN
    assert "census_geocode" not in release.measurements("total", "state_part").column_names
    with pytest.raises(ConfigError, match="was not measured at county, which is not on the spine"):
        release.measurements("total", "county")

    book = json.loads(product_in(tmp_path / "copy").codebook.read_text())
    found = {
        v["name"]: (v.get("on_spine", True), v["digits"], v.get("census_digits"))
        for v in book["geolevels"]
    }
    assert found["block"] == (True, 11, 10)
    assert found["county_part"] == (True, 6, None)
    assert found["county"] == (False, 5, 5)
    geocode = {
        one["path"]: column["meaning"]
        for one in book["datasets"]
        for column in one["columns"]
        if column["name"] == "geocode"
    }
    assert geocode["measurements/level=…"].endswith("Of the spine.")
    assert geocode["counts/level=…"].endswith("Of the spine, at county, tract of the census.")
    assert geocode["microdata/csv"].endswith("Of the census.")
    alone = "state_part, county_part, tract_part"
    assert geocode["tables/level=…"].endswith(f"Of the census, at {alone} of the spine.")
    said = product_in(tmp_path / "copy").readme.read_text()
    assert "| microdata; `tables` of `state`, `block`, `county`, `tract` | of the census |" in said
    assert "`geography` of `state`, `block` has both" in said
    assert "- `county`: 3, sums of `block`" in said


def test_das_spine_says_what_a_design_changes(das, tmp_path):
    config = configured(tmp_path, BOTH, ON_BOTH)
    code, said = das("plan", "--spine", config)
    assert code == 0, said
    found = json.loads(said)
    assert [level["name"] for level in found["levels"]] == ON_BOTH
    assert found["geounits"]["before"] == {"state": 1, "county": 3, "tract": 6, "block": 21}
    assert found["distances"]["place"]["entities"] == 3
    code, said = das("plan", "--spine", toy.configuration(tmp_path))
    assert (code, said.count("geography.spine")) == (2, 1), said


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("invariants: 0: geolevel", {"invariants": [{"query": "total", "geolevel": "county"}]}),
        ("solve: l2_passes", {"solve": {"l2_passes": {"county": [["total"]]}}}),
        ("solve: empirical_bayes", {"solve": {"empirical_bayes": ["county"]}}),
    ],
)
def test_a_geolevel_off_the_spine_is_refused_where_it_cannot_be(das, tmp_path, key, changes):
    """The remedy helps: a geolevel of the spine there, and the county in tables."""
    code, said = das("validate", configured(tmp_path, SPLIT, ON_AIAN, **changes))
    told = " ".join(said.split())
    assert code == 2
    assert f"{key}: names a geolevel of the census that is off the spine of this run" in told
    assert f"got county; expected one of {ON_AIAN}; name a geolevel of the spine" in told
    assert "unknown" not in told
    on_spine = yaml.safe_load(yaml.safe_dump(changes).replace("county", "county_part"))
    on_spine["output__tables"] = [{"query": "total", "geolevels": ["county"]}]
    code, said = das("validate", configured(tmp_path, SPLIT, ON_AIAN, **on_spine))
    assert code == 0, said


def test_planning_knows_geolevels_of_the_spine_alone(das, tmp_path):
    weights = tmp_path / "weights.yaml"
    weights.write_text("total: {county: 1}")
    words = ("--optimize", tmp_path / "made.yaml", "--weights", weights)
    code, said = das("plan", configured(tmp_path, SPLIT, ON_AIAN), *words)
    assert code == 2
    assert "total: names a geolevel of the census that is off the spine" in " ".join(said.split())


@pytest.mark.parametrize("spine", [None, SPLIT])
def test_a_public_table_of_other_geounits_is_refused_before_reading(das, tmp_path, spine):
    levels = ON_AIAN if spine else [*toy.LEVELS]
    table = {"path": str(tmp_path / "table.csv"), "geocode": "g", "columns": {"total": "n"}}
    entry = {"query": "total", "geolevel": "block", "table": table}
    config = configured(tmp_path, spine, levels, invariants=[entry])
    rows = {code: f"{code},1\n" for code in BLOCKS}
    for text, message in (
        ("".join(rows.values()), ""),
        (rows[BLOCKS[0]], ""),
        (
            "".join(rows.values()) + "9900500999,1\n",
            f"invariants.0: {tmp_path}/table.csv: has geounits that do not exist (1 such); "
            "got 9900500999; expected geocodes of the geolevel block",
        ),
        (rows[BLOCKS[0]] * 2, f"geocode appears twice (1 such); got {BLOCKS[0]}"),
        (f"{BLOCKS[0][:-1]},1\n", "invariants.0"),
    ):
        (tmp_path / "table.csv").write_text("g,n\n" + text)
        code, said = das("validate", config)
        assert code == (2 if message else 0), said
        assert message.replace(" ", "") in "".join(said.split())


def test_a_run_is_bound_to_a_release_on_another_spine(here, das, tmp_path):
    """Geounits go by their geocodes of the census, whatever the two spines are."""
    first = configured(tmp_path, SPLIT, ON_AIAN)
    assert das("run", first)[0] == 0
    (tmp_path / "out").rename(tmp_path / "first")
    bound = {"path": str(tmp_path / "first" / "release"), "query": "sex"}
    invariants = [
        {"query": "total", "geolevel": "state"},
        {"query": "sex", "geolevel": "block", "released": bound},
    ]
    second = configured(tmp_path, BOTH, ON_BOTH, invariants=invariants)
    code, said = das("validate", second)
    assert code == 0, said
    code, said = das("run", second)
    assert code == 0, said
    one, other = (Counter[tuple[str, str]](), Counter[tuple[str, str]]())
    for found, out in ((one, "first"), (other, "out")):
        for (code, sex, _), n in microdata_rows(tmp_path / out).items():
            found[code, sex] += n
    assert one == other
    assert das("verify", tmp_path / "out" / "release")[0] == 0

    # Of other geounits it is refused before anything is read.
    for rows, message in (
        (
            BLOCKS[1:],
            f"has, beyond those of the run, geounits of the geolevel block (1 such); got {BLOCKS[0]}",
        ),
        ([*BLOCKS, "9900500999"], "lacks geounits of the geolevel block (1 such); got 9900500999"),
    ):
        write_blocks(tmp_path, rows=rows)
        code, said = das("validate", second)
        assert code == 2
        assert message in " ".join(said.split())


@pytest.mark.parametrize("what", ["table", "released"])
def test_public_counts_of_geounits_that_the_spine_made_are_refused(das, tmp_path, what):
    given = {"path": str(tmp_path / "blocks.csv")}
    if what == "table":
        given |= {"geocode": "geocode", "columns": {"total": "n"}}
    entry = {"query": "total", "geolevel": "county_part", what: given}
    code, said = das("validate", configured(tmp_path, SPLIT, ON_AIAN, invariants=[entry]))
    assert code == 2
    assert "invariants.0: geolevel: has geounits that are made by geography.spine" in " ".join(
        said.split()
    )
    assert "got county_part; expected ['state', 'block']" in " ".join(said.split())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (BLOCKS[1:], f"lacks a geounit (1 such); expected a row for {BLOCKS[0]}"),
        ([*BLOCKS, BLOCKS[2]], "geocode appears twice"),
        (
            [*BLOCKS, "9900999999"],
            "row 23, geocode: geocode is not in the list of geounits (1 such in these rows); "
            "got 9900999999",
        ),
        ([block[:-1] for block in BLOCKS], "geocode does not fit the leaf geolevel"),
    ],
)
@pytest.mark.parametrize("command", ["validate", "run"])
def test_a_file_that_has_not_every_block_once_is_refused(
    here, das, tmp_path, command, rows, message
):
    own = write_blocks(tmp_path, "entities.csv", rows)
    config = configured(tmp_path, {**SPLIT, "entities": {"path": str(own)}}, ON_AIAN)
    code, said = das(command, config)
    assert code == 2
    assert "entities.csv" in said
    assert message in " ".join(said.split())
    assert not (tmp_path / "out" / "release" / "geography").exists()


@pytest.mark.parametrize(
    ("spine", "levels", "message"),
    [
        ({"by": "aian", "codes": ["5000..6000"]}, ON_AIAN, "aian: marks no leaf by codes"),
        ({"by": "aian", "codes": ["0001..499"]}, ON_AIAN, "'0001..499' is not a range"),
        ({"by": "aian", "codes": ["0002..0001"]}, ON_AIAN, "'0002..0001' is not a range"),
        ({"by": "nothing"}, ON_AIAN, "nothing: marks no leaf, so that geography.spine.split divid"),
        ({"by": "all"}, ON_AIAN, "column all: marks every leaf"),
        ("nothing", ON_BOTH, "column nothing: names no entity"),
        (
            "town",
            ON_BOTH,
            "lacks columns; got columns ['geocode', 'aian', 'place', 'nothing', 'all",
        ),
    ],
)
def test_a_column_that_changes_nothing_is_refused(das, tmp_path, spine, levels, message):
    """It is another column than was meant, or other codes."""
    rows = [(code, "0010" * (code in AIAN), PLACE[code], "", "x") for code in BLOCKS]
    with (tmp_path / "entities.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("geocode", "aian", "place", "nothing", "all"), *rows])
    split = spine if isinstance(spine, dict) else SPLIT["split"]
    asked = {"split": {"geolevel": "state", **split}}
    if isinstance(spine, str):
        asked = {**BOTH, "align_with": ["place", spine]}
    asked["entities"] = {"path": str(tmp_path / "entities.csv")}
    code, said = das("validate", configured(tmp_path, asked, levels))
    assert code == 2
    assert message in " ".join(said.split())


def test_a_block_that_is_not_listed_is_refused_by_its_row(here, das, tmp_path):
    config = configured(tmp_path, SPLIT, ON_AIAN)
    with (tmp_path / "records.csv").open("a") as file:
        file.write("9900109999,male,18_to_64\n")
    code, said = das("run", config)
    assert code == 2
    assert "geocode is not in the list of geounits" in " ".join(said.split())
    assert "9900109999" not in said


def test_counts_that_leaves_do_not_add_up_to_are_found(here, das, tmp_path):
    config = configured(tmp_path, SPLIT, ON_AIAN)
    assert das("run", config)[0] == 0
    from jobs.pipeline.config.load import load_run
    from jobs.pipeline.release.census import census_codes
    from jobs.pipeline.release.verify import _verify_census

    product = load_run(config).last
    census = census_codes(product.plan, product.release)
    assert _verify_census(product.plan, product.release, census) == 9
    one, other = (Dataset.open(product.release.counts(name)) for name in ("county", "tract"))
    (one.path / "_manifest.json").write_bytes((other.path / "_manifest.json").read_bytes())
    for part in other.parts:
        (one.path / part.file).write_bytes((other.path / part.file).read_bytes())
    with pytest.raises(Exception, match="county 99001: its geounits of block do not sum to it"):
        _verify_census(product.plan, product.release, census)
