"""A release of others is hostile input: nothing outside of it is opened or written, nothing hangs.

Every change is finalized as the program finalizes, so none is refused for a wrong digest. A slice of
`python -m bench.release_fuzz` follows what is tried by name.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from bench.release_fuzz import FUZZER, try_case, watched
from jobs.pipeline.documents.document import read_document
from jobs.survey.documents import SOLVED, MeansTable
from jobs.survey.results import means_text
from tests.builders import toy
from tests.builders.places import product_in, release_of
from tests.fuzz.execute import attempt, without_spark
from tests.fuzz.releases import BAIT_LABEL, World, copy_release, make_worlds, reseal, write_bait
from topdown_das import DasError, open_release

Edit = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, World]:
    return make_worlds(tmp_path_factory.mktemp("worlds"))


@pytest.fixture
def release(worlds: dict[str, World], tmp_path: Path) -> Path:
    return copy_release(worlds["census"], tmp_path)


@pytest.fixture
def survey(worlds: dict[str, World], tmp_path: Path) -> Path:
    return copy_release(worlds["survey"], tmp_path)


@pytest.fixture
def bait(release: Path, tmp_path: Path) -> Path:
    return write_bait(tmp_path, release)


def das(folder: Path, *words: object) -> tuple[str, str]:
    """Run a command: accepted or named_error, and what it printed; else what went wrong."""
    with without_spark():
        outcome, _, said = attempt([str(word) for word in words], folder)
    return outcome.kind, said or outcome.detail


def refused(folder: Path, *words: object) -> str:
    """Run a command that must end in a named error; returns what it printed."""
    kind, said = das(folder, *words)
    assert kind == "named_error", said
    assert len(said) < 2000
    return said


def in_run_file(release: Path, edit: Edit, name: str = "run.yaml") -> None:
    path = release / "configuration" / name
    document = yaml.safe_load(path.read_text())
    edit(document)
    path.write_text(yaml.dump(document, sort_keys=False, Dumper=yaml.CSafeDumper))
    reseal(release)


def own_of(release: Path) -> Path:
    """The folder of the persons of a census; that of a survey is the release."""
    product = product_in(release).root
    return product if product.exists() else release


def in_manifest(release: Path, edit: Edit) -> None:
    path = own_of(release) / "manifest.json"
    document = json.loads(path.read_bytes())
    edit(document)
    path.write_text(json.dumps(document))
    reseal(release)


READERS = {
    "verify": ("verify", "RELEASE"),
    "inspect": ("inspect", "RELEASE"),
    "estimate": ("estimate", "RELEASE", "--query", "sex", "--geolevel", "tract"),
    "tables": ("tables", "RELEASE", "--to", "OUT"),
    "areas": ("areas", "RELEASE", "--geolevel", "tract"),
    "explore": ("explore", "RELEASE", "-o", "OUT/explore.html"),
    "certificate": ("verify", "RELEASE", "--certificate", "OUT/certificate.html"),
    "report": ("inspect", "RELEASE", "--reports"),
}
OF_CONFIGURATION = tuple(READERS[name] for name in READERS if name not in ("inspect", "report"))


def words_of(command: tuple[str, ...], release: Path, out: Path) -> list[str]:
    return [word.replace("RELEASE", str(release)).replace("OUT", str(out)) for word in command]


# --- names that lead elsewhere --------------------------------------------------------------------


@pytest.mark.parametrize("command", OF_CONFIGURATION, ids=lambda command: command[0])
def test_a_schema_outside_of_a_release_is_refused_unopened(release, bait, tmp_path, command):
    place = bait / "release" / "configuration" / "persons-schema.yaml"
    in_run_file(release, lambda run: run["products"]["persons"].update(schema=str(place)))
    out = tmp_path / "out"
    out.mkdir()
    with watched() as opened:
        said = refused(out, *words_of(command, release, out))
    assert "products.persons.schema: names a file of another folder" in said
    assert not [path for path, _ in opened if path.startswith(str(bait))]
    assert BAIT_LABEL not in said
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("up", ["../../bait/release/configuration/{}", "./{}", "/dev/zero", ".."])
@pytest.mark.parametrize("key", ["schema", "allocation"])
def test_files_of_the_configuration_have_plain_names(release, bait, tmp_path, key, up):
    def lead_out(run: dict[str, Any]) -> None:
        product = run["products"]["units"]
        holder = product if key == "schema" else product["privacy"]
        holder[key] = up.format(holder[key]) if up != "./{}" else f"../configuration/{holder[key]}"

    in_run_file(release, lead_out)
    assert "another folder" in refused(tmp_path, "verify", release)
    with pytest.raises(DasError, match="another folder"):
        open_release(release)


def test_weights_of_a_survey_have_plain_names(survey, tmp_path):
    elsewhere = tmp_path / "weights.csv"
    shutil.copy(survey / "configuration" / "weights-income.csv", elsewhere)
    in_run_file(survey, lambda run: run["statistics"][0].update(weights=str(elsewhere)))
    for command in ("verify", "certificate"):
        said = refused(tmp_path, *words_of(READERS[command], survey, tmp_path))
        assert "statistics.0.weights: names a file of another folder" in said


@pytest.mark.parametrize("key", ["files", "outputs"])
@pytest.mark.parametrize("world", ["release", "survey"])
def test_paths_of_a_manifest_stay_within_the_release(request, tmp_path, world, key):
    place = request.getfixturevalue(world)
    for path in ("/proc/kmsg", "/etc/passwd", "../" * 3 + "etc/passwd", "a/../../b", "", "a//b"):
        in_manifest(place, lambda document, path=path: document[key][0].update(path=path))
        for command in ("verify", "report"):
            said = refused(tmp_path, *words_of(READERS[command], place, tmp_path))
            assert f"{key}.0.path" in said


# --- links, pipes and devices ---------------------------------------------------------------------


@pytest.mark.parametrize("command", READERS.values(), ids=READERS)
def test_a_link_in_a_release_is_refused_by_all_readers(release, bait, tmp_path, command):
    (release / "zz").symlink_to(bait / "release")
    report = release_of(bait).report
    report.write_text("precious")
    out = tmp_path / "out"
    out.mkdir()
    said = refused(out, *words_of(command, release, out))
    assert f"{release / 'zz'}: is a link, pipe or device" in said
    assert report.read_text() == "precious"


@pytest.mark.parametrize(
    "place", ["configuration/persons-schema.yaml", "manifest.json", "products/persons/counts/pipe"]
)
def test_a_pipe_in_a_release_does_not_hang(release, tmp_path, place):
    (release / place).unlink(missing_ok=True)
    os.mkfifo(release / place)
    for command in READERS.values():
        refused(tmp_path, *words_of(command, release, tmp_path / "out"))


@pytest.mark.parametrize("kind", ["file", "folder", "device", "pipe"])
def test_what_is_no_plain_file_is_refused_in_a_survey(survey, tmp_path, kind):
    if kind == "folder":
        shutil.move(survey / "configuration", tmp_path / "configuration")
        (survey / "configuration").symlink_to(tmp_path / "configuration")
    elif kind == "pipe":
        os.mkfifo(survey / "more")
    else:
        (survey / "more").symlink_to("/dev/zero" if kind == "device" else survey / "means.csv")
    for command in ("verify", "certificate", "report", "inspect"):
        assert "is a link, pipe or device" in refused(
            tmp_path, *words_of(READERS[command], survey, tmp_path)
        )


def test_a_release_is_found_by_a_link_to_it_and_copied_without_those_in_it(release, tmp_path):
    (tmp_path / "latest").symlink_to(release)
    assert das(tmp_path, "verify", tmp_path / "latest", "--quiet")[0] == "accepted"
    moved = tmp_path / "elsewhere"
    shutil.move(product_in(release).microdata, moved)
    product_in(release).microdata.symlink_to(moved)
    said = refused(tmp_path, "verify", release)
    assert "`cp -rL`" in said
    whole = shutil.copytree(release, tmp_path / "whole")  # follows links, as cp -rL does
    assert das(tmp_path, "verify", whole, "--quiet")[0] == "accepted"


def test_reports_are_of_the_products_that_the_manifest_names(release, tmp_path):
    none = product_in(release, "none")
    shutil.copytree(product_in(release, "units").root, none.root)
    none.report.unlink()
    assert das(tmp_path, "inspect", "--reports", release)[0] == "accepted"
    assert not none.report.exists()
    assert product_in(release, "units").report.exists()


def test_a_run_json_in_a_release_is_not_followed(release, bait, tmp_path):
    (release / "run.json").write_text(json.dumps({"run_file": str(bait / "pipe"), "kind": "x"}))
    for command in (
        ("explore", release, "-o", tmp_path / "e.html"),
        ("inspect", "--reports", release),
    ):
        assert das(tmp_path, *command)[0] == "accepted"


# --- numbers and columns --------------------------------------------------------------------------


@pytest.mark.parametrize("world", ["release", "survey"])
def test_fractions_of_a_manifest_are_read_within_bounds(request, tmp_path, world):
    place = request.getfixturevalue(world)
    for total in ("1e999999999", "9" * 100_000, "1/0", "0.1e5", "nan", "one"):
        in_manifest(place, lambda document, total=total: document["privacy"].update(total=total))
        for command in ("verify", "certificate", "report"):
            said = refused(tmp_path, *words_of(READERS[command], place, tmp_path))
            assert "privacy.total" in said


@pytest.mark.parametrize("key", ["parameter", "cost"])
def test_fractions_of_a_ledger_are_read_within_bounds(release, tmp_path, key):
    path = product_in(release).ledger
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["entries"][0][key] = "1e999999999"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    reseal(release)
    assert "is not the ledger of a run" in refused(tmp_path, "verify", release)


@pytest.mark.parametrize("key", ["geolevel", "chain_end"])
def test_a_ledger_of_geolevels_that_there_are_not_is_refused(release, tmp_path, key):
    path = product_in(release).ledger
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["entries"][0][key] = "parish"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    reseal(release)
    for command in ("verify", "certificate"):
        assert "has entries of an unknown chain" in refused(
            tmp_path, *words_of(READERS[command], release, tmp_path)
        )


def rewritten(dataset: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    for path in dataset.glob("*.parquet"):
        pq.write_table(change(pq.read_table(path)), path)


def nulls(name: str) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.set_column(
        table.schema.get_field_index(name),
        name,
        pa.nulls(table.num_rows, table.schema.field(name).type),
    )


INSPECT = ("inspect", "RELEASE", "--geounit", next(iter(toy.blocks()))[:7])
OF_COMMAND = {**READERS, "inspect": INSPECT}
DAMAGE = (
    ("counts/level=block", lambda table: table.drop_columns(["cells"]), "tables"),
    ("counts/level=block", lambda table: table.drop_columns(["counts"]), "verify"),
    ("counts/level=block", nulls("geocode"), "areas"),
    ("counts/level=block", nulls("counts"), "explore"),
    ("counts/level=block", lambda table: pa.concat_tables([table] * 3), "verify"),
    ("geography/level=block", nulls("geocode"), "estimate"),
    ("geography/level=block", lambda table: pa.concat_tables([table] * 3), "areas"),
    ("geography/level=tract", lambda table: table.drop_columns(["parent"]), "areas"),
    ("measurements/level=tract", nulls("query"), "inspect"),
    ("invariants/level=state", lambda table: table.drop_columns(["answers"]), "certificate"),
)


@pytest.mark.parametrize(("dataset", "change", "command"), DAMAGE)
def test_damaged_datasets_are_named(release, tmp_path, dataset, change, command):
    rewritten((release if "geography" in dataset else own_of(release)) / dataset, change)
    reseal(release)
    said = refused(tmp_path, *words_of(OF_COMMAND[command], release, tmp_path))
    assert dataset in said


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("synthesis", lambda table: table.slice(0, 0)),
        ("income", lambda table: table.slice(0, table.num_rows - 1)),
    ],
)
def test_answers_that_are_not_those_of_a_survey_are_named(survey, tmp_path, part, change):
    rewritten(survey / "measurements" / f"part={part}", change)
    reseal(survey)
    for command in ("verify", "certificate"):
        assert part in refused(tmp_path, *words_of(READERS[command], survey, tmp_path))


def test_means_and_tables_of_other_numbers_are_refused(worlds, tmp_path):
    release = copy_release(worlds["tables"], tmp_path)
    for name, key in (("tables.json", "tables"), ("means.json", "statistics")):
        path = release / name
        document = json.loads(path.read_bytes())
        document[key].pop()
        path.write_text(json.dumps(document))
        if key == "statistics":
            means = read_document(MeansTable, path, remedy=SOLVED)
            (release / "means.csv").write_text(means_text(means))
        reseal(release)
        assert name in refused(tmp_path, "verify", release)


def test_a_report_of_tables_that_do_not_fit_is_refused(worlds, tmp_path):
    release = copy_release(worlds["tables"], tmp_path)
    path = release / "tables.json"
    document = json.loads(path.read_bytes())
    document["tables"][0]["attributes"].pop()
    path.write_text(json.dumps(document))
    reseal(release)
    assert "manifest.json: is damaged" in refused(tmp_path, "inspect", "--reports", release)


@pytest.mark.parametrize(("key", "value"), [("queries", 1), ("columns", [{"size": 1}])])
def test_facts_of_a_dataset_that_are_none_are_named(release, tmp_path, key, value):
    path = release / "geography" / "level=state" / "_manifest.json"
    document = json.loads(path.read_bytes())
    document["facts"][key] = value
    path.write_text(json.dumps(document))
    reseal(release)
    assert "geography/level=state: is damaged" in refused(tmp_path, "verify", release, "--quiet")


@pytest.mark.long
@pytest.mark.parametrize("command", [*READERS.values(), INSPECT], ids=[*READERS, "geounit"])
@pytest.mark.parametrize(("dataset", "change"), [one[:2] for one in DAMAGE])
def test_damaged_datasets_have_no_traceback(release, tmp_path, dataset, change, command):
    rewritten((release if "geography" in dataset else own_of(release)) / dataset, change)
    reseal(release)
    kind, said = das(tmp_path, *words_of(command, release, tmp_path))
    assert kind in ("accepted", "named_error"), said


def test_estimates_of_fewer_answers_are_refused(release, tmp_path):
    def cut(table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        rows[0] |= {"estimate": rows[0]["estimate"][:-1]}
        return pa.Table.from_pylist(rows, schema=table.schema)

    dataset = "estimates/tables/level=block"
    rewritten(product_in(release).root / dataset, cut)
    reseal(release)
    assert dataset in refused(tmp_path, "tables", release, "--to", tmp_path / "out")


def test_a_schema_of_other_size_beside_estimates_is_refused(release, tmp_path):
    more = [{"name": f"more{i}", "levels": [str(j) for j in range(10)]} for i in range(3)]
    in_run_file(release, lambda schema: schema["attributes"].extend(more), "persons-schema.yaml")
    for command in (("estimate", release, "--query", "sex"), ("tables", release)):
        kind, said = das(tmp_path, *command)
        assert kind in ("accepted", "named_error"), said


def test_an_attribute_that_no_estimate_has_is_refused(release, tmp_path):
    more = {"name": "more", "levels": ["0..999"]}
    in_run_file(release, lambda schema: schema["attributes"].append(more), "persons-schema.yaml")
    said = refused(tmp_path, "explore", release, "-o", tmp_path / "explore.html")
    assert "estimates/tables/level=" in said


@pytest.mark.parametrize("levels", [[f"l{i}" for i in range(3001)], ["0..3000"], ["x"] * 2000])
def test_a_schema_of_absurd_size_is_refused_in_short(release, tmp_path, levels):
    in_run_file(
        release,
        lambda schema: schema["attributes"][0].update(levels=levels),
        "persons-schema.yaml",
    )
    refused(tmp_path, "verify", release)


# --- a slice of the fuzzer ------------------------------------------------------------------------


def test_a_slice_opens_and_writes_nothing_outside_and_has_no_traceback(worlds, tmp_path):
    tried = [try_case(2031, index, worlds, tmp_path) for index in range(8)]
    assert [one for one in tried if one.outcome in FUZZER.failures] == []
    assert {"named_error", "accepted"} <= {one.outcome for one in tried}


def test_a_link_that_is_followed_is_counted(worlds, tmp_path, monkeypatch):
    """Plant the fault: nothing looks for links or leading names."""
    monkeypatch.setattr("jobs.pipeline.storage.layout._strange", lambda _: iter(()))
    monkeypatch.setattr("jobs.pipeline.config.released.refuse_other_folders", lambda *_: None)
    monkeypatch.setattr("tests.fuzz.releases._CHANGES", {"link": (link_schemas, 1)})
    tried = (try_case(1, index, worlds, tmp_path) for index in range(12))
    assert any(one.outcome == "opens_outside" for one in tried)


def link_schemas(_rng: object, release: Path, bait: Path) -> str:
    if (release / "configuration").is_symlink():
        return "configuration again"
    shutil.rmtree(release / "configuration")
    (release / "configuration").symlink_to(bait / "release" / "configuration")
    return "configuration"


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [101, 102])
def test_many_releases(seed):
    tried = FUZZER.supervise(seed, range(600))
    assert [one for one in tried if one.outcome in FUZZER.failures] == []
