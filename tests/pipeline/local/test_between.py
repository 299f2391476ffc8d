"""Persons and the units they live in, in one run: they agree in every block, or it is told."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from das.errors import ConfigError, InputError, SchemaError, VerificationError
from jobs.analysis.replicate import ReplicateSettings, replicate
from jobs.cli.main import app
from jobs.design.synthetic.generate import GenerateSpec, generate
from jobs.pipeline.config.between import joining_of
from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.microdata import joined_schema
from jobs.pipeline.release.verify import _verify_ties, verify_joined, verify_run
from jobs.pipeline.storage.csv import CsvPartWriter
from jobs.pipeline.storage.dataset import Dataset, PartWriter, publish, replace_published, sweep
from jobs.pipeline.storage.histograms import SPARSE_SCHEMA
from jobs.pipeline.tasks.batches import Batch, Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from tests.builders.in_process import execute, leave_out_figures
from tests.builders.places import release_of, truth_of
from tests.builders.run_files import load_runnable
from tests.checkout import ROOT
from tests.release_checks import geography, sparse, tree_is_consistent

LEVELS = ["state", "county", "tract", "block_group", "block"]
SIZES = range(1, 8)  # cells of dwellings: vacant, 1 to 7 and more, then facilities
FACILITIES = range(8, 15)
GROUPS = 16  # cells of residents of each residence
Change = Callable[[dict[str, Any]], None]


def written(
    folder: Path, data: Path, change: Change = lambda run: None, *, joined: bool = False
) -> Path:
    """conf/run/residents.yaml at little budget, seeded, with data of its own and a change."""
    run = yaml.safe_load((ROOT / "conf" / "run" / "residents.yaml").read_text())
    run["geography"]["geounits"]["path"] = str(data / "geounits.parquet")
    run["privacy"] = {
        "randomness": {"source": "seeded_not_for_release", "seed": 7},
        "account": str(folder / "account.jsonl"),
    }
    for name, rho in (("dwellings", "1/20"), ("persons", "1/10")):
        product = run["products"][name]
        product["schema"] = str(ROOT / "conf" / "schema" / Path(product["schema"]).name)
        product["data"]["path"] = str(data / Path(product["data"]["path"]).name)
        allocation = ROOT / "conf" / "allocation" / Path(product["privacy"]["allocation"]).name
        product["privacy"] = {"rho": rho, "allocation": str(allocation)}
    run["output"]["directory"] = str(folder / "out")
    run["runtime"] = {"master": "local[2,3]", "driver_memory": "1g"}
    if not joined:
        del run["products"]["persons"]["output"]["joined"]
    change(run)
    target = folder / "run.yaml"
    target.write_text(yaml.safe_dump(run, sort_keys=False))
    return target


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("residents")
    generate(GenerateSpec(seed=5, blocks=200, schema="residents"), folder / "data")
    return folder / "data"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, data: Path) -> tuple[Path, Path]:
    """The run file, and the run folder."""
    folder = tmp_path_factory.mktemp("between")
    config = written(folder, data, joined=True)
    return config, execute(config)


def disagreeing(out: Path, level: str) -> dict[str, int]:
    """Geounits in which persons and units contradict each other, counted here from their cells."""
    persons = sparse(release_of(out).counts(level))
    units = sparse(release_of(out, "dwellings").counts(level))
    found = dict.fromkeys(("householders", "too few", "too many", "facilities"), 0)
    for code in {*persons, *units}:
        own, other = persons.get(code, {}), units.get(code, {})
        residence = [
            sum(own.get(GROUPS * kind + cell, 0) for cell in range(GROUPS)) for kind in range(9)
        ]
        sizes = [other.get(size, 0) for size in SIZES]
        fewest = sum(size * n for size, n in zip(SIZES, sizes, strict=True))
        found["householders"] += residence[0] != sum(sizes)
        found["too few"] += sum(residence[:2]) < fewest
        found["too many"] += sum(residence[:2]) > fewest + 90 * sizes[-1]
        found["facilities"] += any(
            not other.get(cell, 0) <= n <= 99_999 * other.get(cell, 0)
            for cell, n in zip(FACILITIES, residence[2:], strict=True)
        )
    return found


def test_products_agree_in_every_geounit_of_every_geolevel(finished) -> None:
    _, out = finished
    assert tree_is_consistent(out, LEVELS)
    for level in LEVELS:
        assert not any(disagreeing(out, level).values()), level


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """The run folder of the same noise without constraints."""
    folder = tmp_path_factory.mktemp("apart")
    return execute(written(folder, data, lambda run: run.pop("cross_product_constraints")))


def test_apart_they_contradict_each_other(apart: Path) -> None:
    found = disagreeing(apart, "block")
    assert found["householders"] > 20
    assert found["too few"] > 5


def squared_error(out: Path, product: str, level: str) -> float:
    """Mean squared error of the total of a geounit, of occupied units or persons."""
    some = range(1, 8) if product == "dwellings" else range(9 * GROUPS)
    counts = sparse(release_of(out, product).counts(level))
    truth = sparse(truth_of(out, product).histograms(level))
    off = [
        sum(side.get(code, {}).get(cell, 0) * sign for side, sign in ((counts, 1), (truth, -1))
            for cell in some)
        for code in geography(out, level)
    ]  # fmt: skip
    return float(np.mean(np.square(off)))


def test_units_are_fitted_to_what_persons_say(finished, apart: Path) -> None:
    """Persons' totals are as good as without constraints: 9 to 20 times the error if units hear
    of no persons, as sizes bind them. Occupied units are better than without."""
    _, out = finished
    for level, most in (("block_group", 1.5), ("block", 1.5)):
        assert squared_error(out, "persons", level) < most * squared_error(apart, "persons", level)
        assert squared_error(out, "dwellings", level) < squared_error(apart, "dwellings", level)


def test_replicates_of_products_that_agree(finished, tmp_path: Path) -> None:
    """Units of a replicate are fitted to the persons of the replicate, not to those of the run."""
    config, out = finished
    copy = tmp_path / "out"
    shutil.copytree(out / "release", copy / "release")
    shutil.copy(out / "run.json", copy)
    settings = ReplicateSettings(1, 1, Fraction(9, 10))
    with pytest.MonkeyPatch.context() as patch:
        leave_out_figures(patch)
        replicate(
            load_run(config, output=copy), settings, Reporter(quiet=True), LocalTasks(Sizing(1))
        )
    for product in ("persons", "dwellings"):
        assert release_of(copy, product).replicated.is_file()


def test_no_node_needs_the_failsafe(finished) -> None:
    _, out = finished
    for name in ("persons", "dwellings"):
        manifest = json.loads(release_of(out, name).manifest.read_text())
        assert not any(level["moved"] for level in manifest["solve"])


def test_verify_checks_them_from_the_release_alone(finished) -> None:
    config, out = finished
    resolved = load_run(config)
    checked = verify_run(resolved)
    blocks = len(geography(out, "block"))
    assert checked["tied_geounits"] == blocks
    result = CliRunner().invoke(app, ["verify", str(out / "release")])
    assert result.exit_code == 0, result.output
    assert f'"tied_geounits": {blocks}' in result.stdout


def test_the_manifest_names_the_constraints(finished) -> None:
    _, out = finished
    manifest = json.loads((release_of(out).manifest).read_text())
    named = [limit for limit in manifest["limits"] if limit["kind"] == "between"]
    assert len(named) == 17
    assert named[0]["name"] == "householders are occupied units"
    assert named[0]["geolevels"] == LEVELS


def test_a_block_that_disagrees_is_found_in_a_release(finished) -> None:
    """A unit becomes vacant in the counts of the dwellings, which are put back afterwards."""
    config, out = finished
    product = load_run(config).last
    dataset = product.release.product("dwellings").counts("block")
    files = {p: p.read_bytes() for p in (*dataset.glob("part-*"), dataset / "_manifest.json")}
    rows = pa.concat_tables([pq.read_table(p) for p in sorted(dataset.glob("part-*"))]).to_pylist()
    rows.sort(key=lambda row: row["geocode"])
    planted = next(row for row in rows if row["cells"][:2] == [0, 1])  # vacant, of one person
    planted["counts"] = [planted["counts"][0] + planted["counts"][1], *planted["counts"][2:]]
    planted["cells"] = [0, *planted["cells"][2:]]
    writer = PartWriter(dataset, SPARSE_SCHEMA)
    writer.write(pa.Table.from_pylist(rows, schema=SPARSE_SCHEMA))
    batch = Batch(4, "", "\x7f", len(rows))
    try:
        replace_published(Dataset.open(dataset), [writer.close()], {})
        with pytest.raises(VerificationError, match=f"{planted['geocode']}.*householders"):
            _verify_ties(product.plan, product.release, batch)
    finally:
        for path, content in files.items():
            path.write_bytes(content)
        sweep(dataset)
    assert _verify_ties(product.plan, product.release, batch) == len(geography(out, "block"))


def test_data_that_contradict_each_other_are_refused_before_anything_is_spent(
    tmp_path: Path, data: Path
) -> None:
    """A household more than there are householders, in one block."""
    table = pq.read_table(data / "dwellings")
    rows = table.to_pylist()
    changed = next(row for row in rows if {1, 2} <= {*row["cells"]})
    changed["counts"][changed["cells"].index(1)] += 1
    (tmp_path / "data" / "dwellings").mkdir(parents=True)
    pq.write_table(
        pa.Table.from_pylist(rows, schema=table.schema),
        tmp_path / "data" / "dwellings" / "a.parquet",
    )

    def other_units(run: dict[str, Any]) -> None:
        run["products"]["dwellings"]["data"]["path"] = str(tmp_path / "data" / "dwellings")

    with pytest.raises(InputError) as caught:
        execute(written(tmp_path, data, other_units))
    # How many geounits do would be an exact count of the data.
    assert caught.value.what == "the confidential data of two products contradict each other"
    assert caught.value.where == f"block {changed['geocode']}"
    assert caught.value.got == "between householders are occupied units"
    assert not list((tmp_path / "out" / "release").rglob("measurements/*/*.parquet"))


def test_joined_persons_fill_the_units_of_their_block(finished) -> None:
    """Counted here from the CSV files alone, and from the microdata of both products."""
    _, out = finished
    release = release_of(out)
    rows = read_csv(release.joined / "csv")
    persons = read_csv(release.microdata / "csv")
    assert Counter(map(person, rows)) == Counter(map(person, persons))
    units: dict[tuple[str, int], str] = {}
    seen: Counter[str] = Counter()
    for row in read_csv(release_of(out, "dwellings").microdata / "csv"):
        seen[row["geocode"]] += 1
        units[row["geocode"], seen[row["geocode"]]] = row["unit"]
    held: dict[tuple[str, int], list[dict[str, str]]] = {key: [] for key in units}
    for row in rows:
        key = row["geocode"], int(row["dwellings_number"])
        assert row["dwellings_unit"] == units[key]
        held[key].append(row)
    for key, unit in units.items():
        residence = [row["residence"] for row in held[key]]
        if unit in {"vacant"} | {f"{n}_persons" for n in range(2, 7)} | {"1_person"}:
            assert len(residence) == (0 if unit == "vacant" else int(unit[0])), key
        if unit == "7_or_more":
            assert 7 <= len(residence) <= 97
        if unit == "vacant" or unit[0].isdigit():
            assert residence.count("householder") == (unit != "vacant")
            assert {*residence} <= {"householder", "other_in_household"}
        else:
            assert residence
            assert {*residence} == {unit}


def person(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in ("geocode", "residence", "votingage", "ethnicity_race"))


def read_csv(folder: Path) -> list[dict[str, str]]:
    return [
        row
        for path in sorted(folder.glob("part-*"))
        for row in csv.DictReader(path.read_text().splitlines())
    ]


def test_verify_counts_joined_persons(finished) -> None:
    config, out = finished
    manifest = json.loads((release_of(out).manifest).read_text())
    assert verify_run(load_run(config))["joined_records"] == manifest["totals"]["persons"]


def _moved(rows: list[dict[str, Any]]) -> str:
    """One who is no householder goes to the unit of another size beside theirs."""
    for one, other in pairwise(rows):
        if one["geocode"] == other["geocode"] and one["residence"] == "other_in_household":
            if other["dwellings_number"] != one["dwellings_number"]:
                for name in ("dwellings_number", "dwellings_unit"):
                    one[name] = other[name]
                return "persons in households are at"
    raise AssertionError


def _renamed(rows: list[dict[str, Any]]) -> str:
    rows[0]["dwellings_unit"] = "vacant"
    return "whose unit attributes are not those of its unit"


def _unhoused(rows: list[dict[str, Any]]) -> str:
    rows[0] |= {"dwellings_number": None, "dwellings_unit": None}
    return "in no unit"


def _older(rows: list[dict[str, Any]]) -> str:
    minor = next(row for row in rows if row["votingage"] == "under_18")
    minor["votingage"] = "18_and_over"
    return "joined microdata that differ from the protected counts"


def _beyond(rows: list[dict[str, Any]]) -> str:
    rows[0]["dwellings_number"] = 10_000
    return "in a unit it lacks"


@pytest.mark.parametrize("mistake", [_moved, _renamed, _unhoused, _older, _beyond])
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_joined_file_that_is_wrong_is_found(finished, tmp_path: Path, mistake, kind) -> None:
    """A copy of the file with a mistake, checked against the counts of the release."""
    config, out = finished
    resolved = load_run(config)
    product = resolved.last
    joining = joining_of(product, resolved.products)
    assert joining is not None
    settings = joining.config.model_copy(update={"file_formats": [kind]})
    joining = replace(joining, config=settings)
    wrong = replace(product.release, root=tmp_path)
    for name in ("counts", "invariants"):
        (tmp_path / name).symlink_to(product.release.root / name)
    schema = joined_schema(product.plan.schema, joining)
    rows = Dataset.open(product.release.joined / "parquet").read().to_pylist()
    said = mistake(rows)
    folder = tmp_path / "joined" / kind
    writer = CsvPartWriter(folder) if kind == "csv" else PartWriter(folder, schema)
    writer.write(pa.Table.from_pylist(rows, schema=schema))
    publish(folder, [writer.close()], {})
    with pytest.raises(VerificationError, match=said):
        verify_joined(product.plan, wrong, joining)


def _first(run: dict[str, Any]) -> dict[str, Any]:
    return run["cross_product_constraints"][0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda run: _first(run)["left"].update(product="people"), "is unknown"),
        (
            lambda run: _first(run)["left"].update(product="dwellings"),
            "is the same product as on the left side",
        ),
        (lambda run: _first(run)["left"]["row"][0].update(coefficient=2), "at most"),
        (lambda run: _first(run).update(geolevel="town"), "do not hold at one geolevel"),
        (lambda run: _first(run).update(geolevel="tract"), "do not hold at one geolevel"),
        (
            lambda run: run["cross_product_constraints"].append(_first(run)),
            "has the same name as another constraint",
        ),
        (
            lambda run: _first(run)["left"]["row"][0]["cells"].update(residence=["nobody"]),
            "unknown level",
        ),
        (
            lambda run: _first(run).update(relation="at_least"),
            "only equalities may",
        ),
        (
            lambda run: run["products"]["persons"]["invariants"].append(
                {
                    "facilities": "hhgq",
                    "geolevel": "block",
                    "exact": {"product": "dwellings", "query": "hhgq"},
                    "at_least": {"household": 0},
                }
            ),
            "cannot be combined with facilities",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_constraints_that_cannot_be_kept_are_refused(
    tmp_path: Path, data: Path, change: Change, said: str
) -> None:
    with pytest.raises((ConfigError, SchemaError), match=said):
        load_run(written(tmp_path, data, change))


def test_the_digest_of_a_run_without_constraints_is_what_it_was(tmp_path: Path, data: Path) -> None:
    without = load_run(written(tmp_path, data, lambda run: run.pop("cross_product_constraints")))
    empty = load_run(written(tmp_path, data, lambda run: run.update(cross_product_constraints=[])))
    full = load_run(written(tmp_path, data))
    assert without.plan.digest == empty.plan.digest != full.plan.digest


def test_other_settings_of_the_first_product_make_both_anew(finished) -> None:
    """Counts of the persons follow from those of the dwellings."""
    config, _ = finished
    run = yaml.safe_load(config.read_text())
    run["products"]["dwellings"]["solve"]["fit_to"] = "level"
    before = load_run(config)
    other = config.with_name("other.yaml")
    other.write_text(yaml.safe_dump(run, sort_keys=False))
    after = load_run(other)
    for name in ("dwellings", "persons"):
        assert after.products[name].plan.solve_digest != before.products[name].plan.solve_digest
    assert after.plan.digest == before.plan.digest


def _parts(run: dict[str, Any], number: int, side: str = "left") -> dict[str, Any]:
    return run["cross_product_constraints"][number][side]


def _swap(run: dict[str, Any]) -> None:
    run["products"] = dict(reversed(run["products"].items()))


def _weigh(run: dict[str, Any]) -> None:
    """Units counted twice: fine of the product that comes first."""
    run["cross_product_constraints"] = [
        run["cross_product_constraints"][0] | {"relation": "at_least"}
    ]
    _parts(run, 0)["row"][0]["coefficient"] = 2
    run["products"]["dwellings"]["invariants"] = []  # their kinds would cross who is occupied


def _facilities(run: dict[str, Any]) -> None:
    run["products"]["persons"]["invariants"].append(
        {
            "facilities": "hhgq",
            "geolevel": "block",
            "exact": {"product": "dwellings", "query": "hhgq"},
            "at_least": {"household": 0},
        }
    )


def _no_zero(run: dict[str, Any]) -> None:
    zeros = {"zero": {"residence": ["military"]}}
    run["products"]["persons"]["invariants"].append(zeros)


def _lower(run: dict[str, Any]) -> None:
    """The most of an open size is less than its least."""
    _parts(run, 2, "right")["row"][-1]["coefficient"] = 6


def _raise(run: dict[str, Any]) -> None:
    _parts(run, 2, "right")["row"][-1]["coefficient"] = 97


def _negative(run: dict[str, Any]) -> None:
    """Persons in households are at most the households of 7 and more."""
    run["cross_product_constraints"] = [
        run["cross_product_constraints"][0],
        run["cross_product_constraints"][2],
    ]
    _parts(run, 1, "right")["row"] = _parts(run, 1, "right")["row"][-1:]


def _same_cells(run: dict[str, Any]) -> None:
    _parts(run, 1, "right")["row"] = [{"cells": {"occupancy": ["occupied"]}, "coefficient": 97}]


def _either(run: dict[str, Any]) -> None:
    """Vacant units hold one, and households of one hold two: either may bind."""
    run["cross_product_constraints"] = [
        run["cross_product_constraints"][1] | {"name": "other"},
        run["cross_product_constraints"][1],
    ]
    one = {"product": "dwellings", "row": [{"cells": {"unit": ["vacant"]}}]}
    run["cross_product_constraints"] = [
        run["cross_product_constraints"][0] | {"right": one},
        run["cross_product_constraints"][1],
    ]


def _join(run: dict[str, Any]) -> None:
    run["products"]["persons"]["output"]["joined"] = {}


def _join_open(run: dict[str, Any]) -> None:
    """How many live in a facility at most is left open."""
    _join(run)
    del run["cross_product_constraints"][-1]


def _close(run: dict[str, Any]) -> None:
    most = run["cross_product_constraints"][-1] | {"name": "at most", "relation": "at_most"}
    row = [most["right"]["row"][0] | {"coefficient": 500}]
    run["cross_product_constraints"].append(most | {"right": most["right"] | {"row": row}})


def _join_too_few(run: dict[str, Any]) -> None:
    """A household of one may have fewer persons than householders, and others more."""
    _join(run)
    run["products"]["persons"]["invariants"] = []
    _parts(run, 1, "right")["row"] = _parts(run, 1, "right")["row"][1:]


def _join_alone(run: dict[str, Any]) -> None:
    _join(run)
    del run["cross_product_constraints"]


def _state(run: dict[str, Any]) -> None:
    stated = yaml.safe_load((ROOT / "conf" / "run" / "residents.yaml").read_text())
    run["cross_product_constraints"] = stated["cross_product_constraints"]


def _open_without_least(run: dict[str, Any]) -> None:
    """A household of seven or more may have fewer persons than householders."""
    del _parts(run, 1, "right")["row"][-1]


def _of_seven(run: dict[str, Any]) -> None:
    seven = {"cells": {"unit": ["7_or_more"]}, "coefficient": 7}
    _parts(run, 1, "right")["row"].append(seven)


def _equal(run: dict[str, Any]) -> None:
    one = {"cells": {"unit": ["1_person"]}, "coefficient": 1}
    _parts(run, 1, "right")["row"].insert(0, one)


def _other_side(run: dict[str, Any]) -> None:
    _parts(run, 0, "right")["product"] = "persons"


def _leave_out(*numbers: int) -> Change:
    def change(run: dict[str, Any]) -> None:
        run["cross_product_constraints"] = [
            one for at, one in enumerate(run["cross_product_constraints"]) if at not in numbers
        ]

    return change


def _no_facilities(run: dict[str, Any]) -> None:
    del run["products"]["persons"]["invariants"][-1]


@pytest.mark.parametrize(
    ("mistake", "said", "mend"),
    [
        (_weigh, "put this product before the other one", _swap),
        (_other_side, "state a row among the invariants of that product", _leave_out(0)),
        (_facilities, "state what facilities hold as constraints too", _no_facilities),
        (_no_zero, "remove the named constraints from the run file", _leave_out(13, 14)),
        (_lower, "raise the upper bound, or remove one of the two constraints", _raise),
        (_lower, "raise the upper bound, or remove one of the two constraints", _leave_out(2)),
        (
            _negative,
            "write the upper bound with the same counts as the constraints within it",
            _same_cells,
        ),
        (_join_open, "state one lower and one upper bound of the same cells", _close),
        (_join_too_few, "count what lies within a bound in that bound, too", _equal),
        (_open_without_least, "count what lies within a bound in that bound, too", _of_seven),
        (_join_alone, "state what the two must agree on under `cross_product_constraints`", _state),
        (_either, "state one lower and one upper bound of the same cells", _leave_out(0)),
    ],
    ids=lambda value: getattr(value, "__name__", "")[:12],
)
def test_remedies_of_constraints_help(
    tmp_path: Path, data: Path, mistake: Change, said: str, mend: Change
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_runnable(written(tmp_path, data, mistake))
    assert said in str(caught.value)

    def both(run: dict[str, Any]) -> None:
        mistake(run)
        mend(run)

    load_run(written(tmp_path, data, both))


def _alone(run: dict[str, Any]) -> None:
    """Persons without the units that constraints name."""
    del run["products"]["dwellings"]


def _joined_alone(run: dict[str, Any]) -> None:
    del run["products"]["dwellings"], run["cross_product_constraints"]


def _other_units(run: dict[str, Any]) -> None:
    """Units of a schema that knows no sizes."""
    other = str(ROOT / "conf" / "schema" / "units.yaml")
    run["products"]["dwellings"]["schema"] = other


def _join_units(run: dict[str, Any]) -> None:
    run["products"]["dwellings"]["output"]["joined"] = {}


def _at_tracts(run: dict[str, Any]) -> None:
    for one in run["cross_product_constraints"]:
        one["geolevel"] = "tract"


def _open_joined(run: dict[str, Any]) -> None:
    """No exact total, and seven or more may be any number of persons."""
    run["products"]["persons"]["invariants"] = []
    _open_without_least(run)


def _no_most(run: dict[str, Any]) -> None:
    del run["cross_product_constraints"][2]


SIZED = "persons in households are at least those of the sizes"
MORE = "only a household of 7 or more may have more, and no more than 97"


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (
            _alone,
            [
                "cross_product_constraints.0: right.product: is unknown; got dwellings",
                "['persons']",
            ],
        ),
        (
            _joined_alone,
            ["products.persons.output: joined persons", "under `cross_product_constraints`"],
        ),
        (
            _join_units,
            ["products.dwellings.output: joined dwellings", "under `cross_product_constraints`"],
        ),
        (
            _other_units,
            [
                "cross_product_constraints.1: row of dwellings.unit",
                "names an unknown level",
                "1_person",
            ],
        ),
        (_at_tracts, ["joined persons", "got constraints at tract; expected block"]),
        (_no_most, ["joined persons", "1 lower, 0 upper bounds", SIZED]),
        (
            _open_without_least,
            [
                f"cross_product_constraints: between {SIZED} and {MORE}",
                "a negative lower bound",
                "count what lies within",
            ],
        ),
        (_open_joined, ["joined persons", f"got between {SIZED}", "count what lies within"]),
        (
            lambda run: run["cross_product_constraints"].append(
                run["cross_product_constraints"][1]
            ),
            ["cross_product_constraints.17", f"got {SIZED}"],
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_be_joined_is_refused_by_validate(
    tmp_path: Path, data: Path, mistake: Change, said: list[str]
) -> None:
    config = written(tmp_path, data, mistake, joined=True)
    result = CliRunner().invoke(app, ["validate", str(config)])
    assert isinstance(result.exception, (ConfigError, SchemaError))
    for text in said:
        assert text in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_a_second_section_of_constraints_is_refused(tmp_path: Path, data: Path) -> None:
    """YAML itself would take the last one and say nothing."""
    config = written(tmp_path, data)
    config.write_text(config.read_text() + "cross_product_constraints: []\n")
    with pytest.raises(ConfigError, match="'cross_product_constraints' appears twice"):
        load_run(config)
