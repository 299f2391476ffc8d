"""A finalized release holds what its manifest names, and the manifest states what was measured."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from das.errors import OutputError, VerificationError
from jobs.pipeline.release.finalizing import verify_statements
from jobs.pipeline.tasks.progress import Reporter
from jobs.survey.plan import load_survey
from jobs.survey.run import run_survey
from tests.builders import toy
from tests.builders.in_process import execute
from tests.builders.kept import Kept
from tests.builders.places import product_in, truth_of
from tests.builders.survey import write_survey
from tests.builders.units import section, write_units

pytestmark = pytest.mark.usefixtures("here")

Das = Callable[..., tuple[int, str]]
Build = Callable[[Path], Path]
SEEDED = {"source": "seeded_not_for_release", "seed": 1}
OTHERS = {"bounded": "unbounded", "zcdp": "pure", "all": "some", "record": "attribute"}
FREE = {"created", "software", "environment"}  # what the run alone knew


def census(folder: Path) -> Path:
    toy.write_records(folder)
    write_units(folder)
    return toy.configuration(
        folder,
        units=section(folder),
        invariants=[{"query": "total", "geolevel": "state"}],
        privacy__randomness={"source": "operating_system"},
    )


@pytest.fixture(params=[census, write_survey], ids=["census", "survey"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return request.param(tmp_path)


def finish(build: Build, folder: Path) -> Kept:
    config = build(folder)
    if build is census:
        execute(config)
    else:
        run_survey(load_survey(config), Reporter(quiet=True))
    return Kept.of(folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[Build, Kept]:
    """A finished run of each kind, with real noise."""
    return {
        build: finish(build, tmp_path_factory.mktemp("run")) for build in (census, write_survey)
    }


@pytest.fixture(params=[census, write_survey], ids=["census", "survey"])
def finalized(request: pytest.FixtureRequest, finished: dict[Build, Kept]) -> Path:
    """The run file of a finished run."""
    return finished[request.param].restored() / "run.yaml"


@pytest.fixture
def counted(finished: dict[Build, Kept]) -> Path:
    """The run file of the finished census."""
    return finished[census].restored() / "run.yaml"


def root_of(config: Path) -> Path:
    return config.parent / "out" / "release"


def own_of(config: Path) -> Path:
    """The folder with what was measured: that of the persons, or the release of the survey."""
    product = product_in(root_of(config)).root
    return product if product.exists() else root_of(config)


def edited(config: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = own_of(config) / "manifest.json"
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def refused(das: Das, config: Path) -> str:
    for place in (config, root_of(config)):
        code, said = das("verify", place)
        assert code == VerificationError.exit_code, (place, said)
    return said


def test_what_was_finalized_is_verified_from_anywhere(finalized, das, tmp_path):
    copied = shutil.copytree(root_of(finalized), tmp_path / "elsewhere")
    for finished in (finalized, root_of(finalized), copied):
        code, said = das("verify", finished)
        assert code == 0, said


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "folder_of"), [(census, root_of), (census, own_of), (write_survey, root_of)]
)
@pytest.mark.parametrize("name", ["notes.txt", "products/notes.txt", "products/none/manifest.json"])
def test_a_file_that_the_manifest_does_not_name_is_found(finished, das, build, folder_of, name):
    config = finished[build].restored() / "run.yaml"
    stray = folder_of(config) / name
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_text("a page that somebody put there")
    assert f"{name}: lies in the release, and its manifest does not name it" in refused(das, config)


@pytest.mark.parametrize("name", ["report.html", "ledger.jsonl.lines/00000000.jsonl"])
def test_what_lies_with_a_product_is_found_beside_the_products(counted, das, name):
    stray = root_of(counted) / name
    stray.parent.mkdir(exist_ok=True)
    stray.write_text("a page that somebody put there")
    assert f"{name}: lies in the release" in refused(das, counted)


def test_a_manifest_of_a_product_that_was_changed_is_found(counted, das):
    """Also where it states nothing else: the manifest of the release has its digest."""
    manifest = own_of(counted) / "manifest.json"
    manifest.write_text(manifest.read_text() + " ")
    assert "manifest.json, products.persons: is not what" in refused(das, counted)
    manifest.write_text("damaged")
    assert das("verify", counted)[0] == OutputError.exit_code


def test_a_copy_of_confidential_files_is_found(counted, das):
    truth = truth_of(counted.parent / "out").root / "histograms"
    shutil.copytree(truth, root_of(counted) / "histograms")
    assert "histograms/level=" in refused(das, counted)


def test_a_page_in_the_folder_of_a_product_that_is_none_is_found(counted, das):
    """A folder is a product's if the run has the product, not if it looks like one."""
    (root_of(counted) / "more").mkdir()
    shutil.copy(root_of(counted) / "manifest.json", root_of(counted) / "more/manifest.json")
    assert "more/manifest.json: lies in the release" in refused(das, counted)


def test_what_attempts_left_is_removed_and_what_no_run_writes_is_refused(config, das):
    assert das("run", "--only", "measure", config)[0] == 0
    left = own_of(config) / "counts" / "level=gone" / f"part-{'0a' * 16}.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half of it")
    stray = root_of(config) / "notes.txt"
    stray.write_text("of somebody")
    code, said = das("run", "--only", "solve", config)
    assert code != 0
    assert "notes.txt: is not a file of this run" in said
    assert stray.exists()
    stray.unlink()
    assert das("run", config.parent / "out")[0] == 0
    assert not left.exists()
    assert das("verify", config)[0] == 0


def test_a_draw_that_does_not_count_is_in_no_release(tmp_path, das, monkeypatch):
    """The driver dies when a part is written and not yet proposed; the part is drawn anew."""
    config = write_survey(tmp_path)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("jobs.pipeline.confidential.draw.propose", dies)
        das("run", config)
    first = [*own_of(config).glob("measurements/*/part-*")]
    assert len(first) == 1
    code, said = das("run", "--only", "solve", config)
    assert code != 0
    assert "is not measured" in said
    assert das("run", config)[0] == 0
    assert not first[0].exists()
    assert das("verify", config)[0] == 0
    parts = [*own_of(config).glob("measurements/*")]
    assert all(len([*part.glob("part-*")]) == 1 for part in parts)


# --- statements ----------------------------------------------------------------------------------


def leaves(value: object, key: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths to all values that are no containers; of a list to those of its first entry."""
    if isinstance(value, dict):
        for name, own in value.items():
            yield from leaves(own, (*key, name))
    elif isinstance(value, list | tuple) and value:
        yield from leaves(value[0], (*key, 0))
    else:
        yield key


def changed(value: Any) -> Any:
    """Another value, of the same kind where that is easily had."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, list | dict):
        return ["x"]
    if not isinstance(value, str):
        return value + 1
    try:
        return str(Fraction(value) + 1)
    except ValueError:
        return OTHERS.get(value, f"{value}x")


def put(document: Any, key: tuple[str | int, ...], change: Callable[[Any], Any]) -> Any:
    document = copy.deepcopy(document)
    at = document
    for name in key[:-1]:
        at = at[name]
    at[key[-1]] = change(at[key[-1]])
    return document


def test_every_field_of_the_manifest_is_compared(finalized):
    again = json.loads((own_of(finalized) / "manifest.json").read_text())
    place = own_of(finalized) / "manifest.json"
    verify_statements(place, again, again)
    keys = [*leaves(again)]
    assert len(keys) > 60
    for key in keys:
        with pytest.raises(VerificationError) as error:
            verify_statements(place, put(again, key, changed), again)
        assert f"manifest.json, {'.'.join(map(str, key))}:" in str(error.value)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
def test_every_field_of_the_manifest_is_gathered_again(finalized, das, monkeypatch, every):
    """Entered in the file one after the other; those of the run alone are its word.

    Contents are verified once: they do not depend on the manifest's other fields. In the long test
    each value has its turn, in the other one value of each field.
    """
    file = own_of(finalized) / "manifest.json"
    text = file.read_text()
    document = json.loads(text)
    assert das("verify", finalized)[0] == 0
    monkeypatch.setattr("jobs.pipeline.release.verify.verify_release", lambda *_: {"datasets": 0})
    monkeypatch.setattr("jobs.survey.manifest.verify_contents", lambda *_: 0)
    believed, seen = [], {*FREE, "format", "kind", "configuration_digest"}
    for key in leaves(document):
        if key[0] in seen:
            continue
        seen |= set() if every else {key[0]}
        file.write_text(json.dumps(put(document, key, changed)))
        code, said = das("verify", finalized)
        name = ".".join(map(str, key))
        if code == 0 and (key[0], key[-1]) != ("together", "grant"):  # a name that the run gave
            believed.append(name)
        elif code and name not in said:
            believed.append(f"not named: {name}: {said[-200:]}")
    assert believed == []


def test_a_smaller_promise_is_found(finalized, das):
    def promise(document: dict[str, Any]) -> None:
        document["privacy"] |= {"total": "1/100", "rho": "1/100", "epsilon": 0.9}

    edited(finalized, promise)
    assert "manifest.json, privacy.total: is not what plan, ledger and measurements say" in refused(
        das, finalized
    )
    page = finalized.parent / "page.html"
    assert das("verify", finalized, "--certificate", page)[0] == VerificationError.exit_code
    assert not page.exists()


def test_what_is_exact_cannot_be_left_out(counted, das):
    edited(counted, lambda document: document.update(invariants=[]))
    assert "manifest.json, invariants" in refused(das, counted)


@pytest.mark.parametrize("build", [toy.configuration, write_survey])
def test_seeded_noise_stays_seeded(build, tmp_path, das):
    """The ledger and the measurements say it, whatever the manifest does and the notice."""
    toy.write_records(tmp_path)
    if build is write_survey:
        config = build(tmp_path, privacy__randomness=SEEDED)
    else:
        config = build(tmp_path)
    assert das("run", config)[0] == 0

    def promise(document: dict[str, Any]) -> None:
        document["not_for_release"] = False
        document["privacy"]["randomness"] = "operating_system"

    edited(config, promise)
    (own_of(config) / "NOT_FOR_RELEASE.txt").unlink()
    assert "manifest.json, not_for_release" in refused(das, config)


# --- the runs that these tests share -------------------------------------------------------------


def test_whatever_a_test_changes_is_put_back(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0o700)
    for name in ("changed", "removed", "folder/rewritten", "folder/opened"):
        (tmp_path / name).write_text("text")
    kept = Kept.of(tmp_path)
    (tmp_path / "changed").write_text("other")
    (tmp_path / "removed").unlink()
    (tmp_path / "folder" / "rewritten").write_text("TEXT")
    (tmp_path / "folder" / "opened").chmod(0o666)
    (tmp_path / "added").touch()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "file").touch()
    assert Kept.of(tmp_path) != kept
    assert Kept.of(kept.restored()) == kept
