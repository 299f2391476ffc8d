"""Two products in one run: persons, and the housing units and facilities beside them."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import random
import re
import shutil
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
import yaml

from das.errors import ConfigError, InputError, LedgerError, OutputError, VerificationError
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.product import account_of
from jobs.pipeline.folder.progress import repair
from jobs.pipeline.plan import exact_query
from jobs.pipeline.release.verify import verify_run
from jobs.pipeline.report.finished import write_internal_reports
from jobs.pipeline.storage.account import read_account, read_failed_checks
from jobs.pipeline.storage.answers import read_available
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.layout import Roots
from jobs.pipeline.storage.ledger import read_ledger
from tests.builders import toy
from tests.builders.datasets import rows_of, rows_of_csv
from tests.builders.in_process import execute
from tests.builders.places import release_of, truth_of
from tests.builders.run_files import load_runnable
from tests.builders.units import UNITS, section, write_units
from tests.pipeline.local.test_canaries import Canaries, sightings
from tests.pipeline.local.test_toy import forge
from tests.release_checks import geography, output_equals_input, sparse, totals_are_exact

SYSTEM = {"source": "operating_system"}
LEAF = "level=block"


def real(folder: Path, **changes) -> Path:
    """A run file with both products and noise that nobody can repeat."""
    return toy.configuration(
        folder, **{"privacy__randomness": SYSTEM, "units": section(folder), **changes}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both products, finished in `out`; the truth of the units in units.csv."""
    folder = tmp_path_factory.mktemp("units")
    toy.write_records(folder)
    write_units(folder)
    execute(real(folder), figures=True)
    return folder


def true_units(folder: Path) -> dict[str, dict[str, int]]:
    with (folder / "units.csv").open(newline="") as handle:
        return {
            row.pop("geocode"): {name: int(n) for name, n in row.items()}
            for row in csv.DictReader(handle)
        }


def sums(truth: dict[str, dict[str, int]], digits: int) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for code, counts in truth.items():
        found.setdefault(code[:digits], Counter()).update(counts)
    return found


def test_housing_units_and_facilities_are_exact_in_every_geounit(folder):
    truth = true_units(folder)
    for level, digits in zip(toy.LEVELS, (2, 5, 7, 10), strict=True):
        released = sparse(release_of(folder / "out", "units").counts(level))
        for code, counts in sums(truth, digits).items():
            found = released.get(code, {})
            assert found.get(0, 0) + found.get(1, 0) == counts["occupied"] + counts["vacant"], code
            for cell, name in enumerate(UNITS[2:], 2):
                assert found.get(cell, 0) == counts[name], (code, name)
    assert totals_are_exact(folder / "out", "state")


def test_occupancy_is_noisy(folder):
    truth = true_units(folder)
    released = sparse(release_of(folder / "out", "units").root / "counts" / LEAF)
    assert any(released.get(c, {}).get(0, 0) != n["occupied"] for c, n in truth.items())


def test_table_h1_of_every_geounit(folder):
    release = release_of(folder / "out", "units").root
    truth = true_units(folder)
    for level, digits in zip(toy.LEVELS, (2, 5, 7, 10), strict=True):
        table = {
            row["geocode"]: row
            for row in rows_of_csv(release / "tables" / f"level={level}" / "h1.csv")
        }
        counts = sparse(release / "counts" / f"level={level}")
        assert list(table) == sorted(geography(folder / "out", level))
        for code, units in sums(truth, digits).items():
            row = table[code]
            assert int(row["H0010001"]) == units["occupied"] + units["vacant"]
            assert int(row["H0010002"]) == counts.get(code, {}).get(0, 0)
            assert int(row["H0010003"]) == counts.get(code, {}).get(1, 0)


def test_one_row_of_microdata_per_unit(folder):
    released = sparse(release_of(folder / "out", "units").root / "counts" / LEAF)
    expected = {
        (code, UNITS[cell]): n for code, cells in released.items() for cell, n in cells.items()
    }
    for kind in ("csv", "parquet"):
        found = rows_of(release_of(folder / "out", "units").microdata / kind)
        assert Counter((row["geocode"], row["unit"]) for row in found) == expected


def test_measurements_lie_beside_those_of_the_persons(folder):
    release = release_of(folder / "out")
    for level in toy.LEVELS:
        (units,) = {row["query"] for row in rows_of(release.product("units").measurements(level))}
        assert units == "detailed"
        assert {row["query"] for row in rows_of(release.measurements(level))} == {
            "total",
            "sex",
            "detailed",
        }
    assert not (release.product("units").root / "geography").exists()


def test_costs_add_up_exactly(folder):
    release = release_of(folder / "out")
    spent = [read_ledger(one.ledger).spent() for one in (release, release.product("units"))]
    for ledger in spent:
        ledger.finalize()
    manifest = json.loads(release.manifest.read_text())
    (together,) = manifest["together"]["composed"]
    assert Fraction(together["total"]) == sum(one.granted for one in spent) == Fraction(8, 7)
    assert [(g["product"], g["total"]) for g in manifest["together"]["grants"]] == [
        ("units", "1/7"),
        ("toy", "1"),
    ]
    assert manifest["account"] == json.loads(release.account.read_text()) == manifest["together"]
    account = read_account(account_of(load_run(real(folder)).config))
    assert [(one.product, one.budget.total) for one in account] == [
        ("units", Fraction(1, 7)),
        ("toy", Fraction(1)),
    ]


def test_manifest_and_reports_have_both(folder):
    release = release_of(folder / "out")
    write_internal_reports(Roots.of(folder / "out"))
    manifests = {
        name: json.loads(release.product(name).manifest.read_text())
        for name in ("units", "persons")
    }
    assert manifests["units"]["together"] == manifests["persons"]["together"]
    assert manifests["units"]["totals"]["units"] == sum(
        sum(n.values()) for n in true_units(folder).values()
    )
    whole = json.loads(release.whole.manifest.read_text())
    assert whole["products"] == {
        name: hashlib.sha256(release.product(name).manifest.read_bytes()).hexdigest()
        for name in ("units", "persons")
    }
    assert {output["path"] for output in whole["outputs"]} == {
        f"geography/level={level}" for level in toy.LEVELS
    }
    for manifest in manifests.values():
        paths = {output["path"] for output in manifest["outputs"]}
        assert {"tables/level=block", "counts/level=state"} <= paths
    for page in (release.report, truth_of(folder / "out").report):
        text = page.read_text()
        assert "Products of this run" in text
        assert "8/7" in text
    for page in (
        release.product("units").report,
        truth_of(folder / "out", "units").report,
    ):
        text = page.read_text()
        assert "toy, units" in text
        assert "in units" in text
        shown = re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL)
        of_both = shown[shown.index("Products of this run") :].partition("</section>")[0]
        assert "persons" in of_both


def test_facilities_are_read_back_from_what_is_published(folder):
    """What binds the persons is a public table by block and type."""
    release = release_of(folder / "out")
    units = load_run(real(folder)).products["units"]
    query = exact_query({"units": units.plan}, "units", "hhgq", "block")
    facilities = Dataset.open(release.product("units").invariants("block"))
    codes, counts = read_available(facilities, query.name, query.size)
    truth = true_units(folder)
    assert list(codes) == sorted(truth)
    for code, row in zip(codes, counts, strict=True):
        kinds = list(truth[code].values())
        assert row.tolist() == [kinds[0] + kinds[1], *kinds[2:]]
    some, few = read_available(facilities, query.name, query.size, codes[3], codes[7])
    assert (list(some), few.tolist()) == (list(codes[3:8]), counts[3:8].tolist())


def test_facilities_bind_the_persons(tmp_path):
    """Noise of sigma 25 would put people into every type; only types with facilities get any."""
    toy.write_records(tmp_path)
    truth = write_units(tmp_path)
    kinds = ("household", *UNITS[2:])
    rng = random.Random(13)
    people = {
        code: [
            rng.randint(0, 30) if sum(counts[:2]) else 0,
            *(n * rng.randint(1, 9) for n in counts[2:]),
        ]
        for code, counts in truth.items()
    }
    with (tmp_path / "people.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["geocode", *kinds])
        writer.writerows([code, *counts] for code, counts in people.items())
    allocation = str(toy.ROOT / "conf" / "allocation" / "toy-units.yaml")
    bounds = {
        "facilities": "hhgq",
        "geolevel": "block",
        "units": "hhgq",
        "at_least": {"household": 0},
    }
    config = toy.configuration(
        tmp_path,
        schema=str(toy.ROOT / "conf" / "schema" / "group_quarters.yaml"),
        data={
            "input_format": "block_table",
            "path": str(tmp_path / "people.csv"),
            "columns": {kind: {"hhgq": kind} for kind in kinds},
        },
        privacy__rho="1/160",
        privacy__allocation=allocation,
        invariants=[{"query": "total", "geolevel": "state"}, bounds],
        units=section(tmp_path),
    )
    out = execute(config)
    released = sparse(release_of(out).root / "counts" / LEAF)
    full = 0
    for code, counts in truth.items():
        for cell, facilities in enumerate(counts[2:], 1):
            found = released.get(code, {}).get(cell, 0)
            assert found >= facilities, (code, kinds[cell])
            assert not found or facilities, (code, kinds[cell])
            full += bool(facilities)
    assert full > 10
    assert not output_equals_input(out, "block")
    verify_run(load_run(config))


def test_only_what_is_exact_may_bind(folder):
    plan = load_run(real(folder)).products["units"].plan
    with pytest.raises(ConfigError, match=r"query occupancy: is not exact at geolevel block"):
        exact_query({"units": plan}, "units", "occupancy", "block")
    with pytest.raises(ConfigError, match=r"product units: does not come before this one"):
        exact_query({}, "units", "hhgq", "block")


def test_verify_checks_both_and_finds_a_change_in_either(folder, tmp_path):
    resolved = load_run(real(folder))
    checked = verify_run(resolved)
    assert checked["families"] == 2 * (1 + 3 + 6)
    assert checked["exact_answers"] == 1 + 8 * (1 + 3 + 6 + 21)
    for number, product in enumerate(("persons", "units")):
        damaged = tmp_path / str(number)
        shutil.copytree(folder / "out" / "release", damaged / "release")
        release = release_of(damaged)
        forge(release.product(product).counts("block"))
        with pytest.raises(VerificationError, match="is not the one the manifest"):
            verify_run(load_run(real(folder), output=damaged))


def test_verify_finds_forged_units_behind_fitting_digests(folder, tmp_path):
    resolved = load_run(real(folder), output=tmp_path)
    shutil.copytree(folder / "out" / "release", tmp_path / "release")
    release = release_of(tmp_path)
    own = release.product("units").counts("block")
    before = (own / "_manifest.json").read_bytes()
    forge(own)
    rewrite_digests(release, own, before)
    with pytest.raises(VerificationError, match="geounits of block do not sum to it"):
        verify_run(resolved)


def test_verify_finds_a_wrong_sum_and_a_foreign_manifest_of_units(folder, tmp_path):
    resolved = load_run(real(folder), output=tmp_path)
    shutil.copytree(folder / "out" / "release", tmp_path / "release")
    release = release_of(tmp_path)
    wrong = json.loads(release.manifest.read_text())
    wrong["together"]["composed"][0]["total"] = "1"
    kept = release.manifest.read_bytes()
    release.manifest.write_text(json.dumps(wrong))
    with pytest.raises(VerificationError, match=r"together.composed.0.total.* got 1; expected 8/7"):
        verify_run(resolved)
    release.manifest.write_bytes(kept)
    units = release.product("units").manifest
    units.write_text(units.read_text() + "\n")
    with pytest.raises(VerificationError, match=r"products.units: is not what"):
        verify_run(resolved)


def rewrite_digests(release, dataset: Path, before: bytes) -> None:
    """Make its manifest name the dataset as it is now."""
    old, new = (
        hashlib.sha256(raw).hexdigest()
        for raw in (before, (dataset / "_manifest.json").read_bytes())
    )
    manifest = release.product("units").manifest
    text = manifest.read_text()
    assert old in text
    manifest.write_text(text.replace(old, new))


def test_a_complete_run_is_not_repeated_and_parts_are_made_again(folder):
    out = folder / "out"
    config = real(folder)
    kept = {p: p.stat().st_mtime_ns for p in out.rglob("*.parquet")}
    units = release_of(out).product("units")
    counts = units.counts("tract")
    whole = sparse(counts)
    shutil.rmtree(counts)
    tables = units.tables("block")
    table = rows_of_csv(tables / "h1.csv")
    shutil.rmtree(tables)
    with pytest.raises(OutputError, match=r"level=tract: is missing; `das run`"):
        execute(config)
    repair(load_run(config))
    execute(config)
    assert sparse(counts) == whole
    assert rows_of_csv(tables / "h1.csv") == table
    again = {p: p.stat().st_mtime_ns for p in out.rglob("*.parquet")}
    made = {p for p, time in again.items() if kept.get(p) != time}
    assert made
    assert all(p.is_relative_to(units.root) for p in made)
    assert not any(p.is_relative_to(units.measurements("tract").parent) for p in made)
    verify_run(load_run(config))


def test_lost_units_are_not_drawn_again(folder, tmp_path):
    lost = release_of(folder / "out").product("units").measurements("county")
    shutil.move(lost, tmp_path / "kept")
    with pytest.raises(
        LedgerError, match=r"level=county: is missing, and noisy answers are drawn once"
    ):
        execute(real(folder))
    assert not lost.exists()
    shutil.move(tmp_path / "kept", lost)


def test_changed_units_are_refused(folder):
    whole = (folder / "units.csv").read_bytes()
    stat = (folder / "units.csv").stat()
    (folder / "units.csv").write_bytes(whole + b"\r\n")
    with pytest.raises(InputError, match="changed since it was read"):
        execute(real(folder))
    (folder / "units.csv").write_bytes(whole)
    os.utime(folder / "units.csv", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    execute(real(folder))


def test_a_grant_spent_on_units_alone_is_not_spent_again(folder):
    """Before anything is read: the other product of the run may not start either."""
    spent = section(folder)["privacy"] | {"product": "toy"}
    own = {"privacy__product": "persons", "units": section(folder, privacy=spent)}
    config = real(folder, **own, output__directory=str(folder / "second"))
    with pytest.raises(LedgerError, match="grant '1' of 'toy' was spent by another run"):
        execute(config)
    assert not (folder / "second" / "release").exists()
    real(folder)


@pytest.mark.usefixtures("here")
def test_a_product_that_was_drawn_beside_another_is_not_drawn_again_alone(folder, tmp_path, das):
    """The same data, product and grant without the persons; no account is named in either."""
    both = yaml.safe_load(real(folder).read_text())
    alone = {**both, "products": {"units": both["products"]["units"]}}
    alone["output"] = {"directory": str(tmp_path / "alone")}
    config = tmp_path / "alone.yaml"
    config.write_text(yaml.safe_dump(alone))
    code, printed = das("run", config)
    assert code == ConfigError.exit_code
    assert "privacy.account: is needed" in printed
    assert "records.csv.das-account.jsonl" in printed
    assert not (tmp_path / "alone" / "release").exists()
    alone["privacy"]["account"] = str(folder / "records.csv.das-account.jsonl")
    config.write_text(yaml.safe_dump(alone))
    code, printed = das("run", config)
    assert code == LedgerError.exit_code
    assert "grant '1' of 'units' was spent by another run" in printed


def test_bad_units_publish_nothing_of_either_product(tmp_path):
    toy.write_records(tmp_path)
    write_units(tmp_path)
    good = (tmp_path / "units.csv").read_text()
    (tmp_path / "units.csv").write_text(good.replace("9900100000,", "9900199999,"))
    config = real(tmp_path)
    with pytest.raises(InputError):
        execute(config)
    out = tmp_path / "out"
    assert not list((out / "release").rglob("measurements/*/_manifest.json"))
    account = account_of(load_run(config).config)
    assert read_account(account) == ()  # the failed check is noted, and no grant
    assert len(read_failed_checks(account)) == 1
    (tmp_path / "units.csv").write_text(good)
    execute(config)
    verify_run(load_run(config))


def test_large_budgets_give_both_inputs_back(tmp_path):
    toy.write_records(tmp_path)
    write_units(tmp_path)
    rich = section(tmp_path)["privacy"] | {"rho": "1000000000000"}
    units = section(tmp_path, privacy=rich, invariants=[])
    out = execute(toy.configuration(tmp_path, privacy__rho="1000000000000", units=units))
    truth = true_units(tmp_path)
    for level, digits in zip(toy.LEVELS, (2, 5, 7, 10), strict=True):
        assert output_equals_input(out, level)
        released = sparse(release_of(out, "units").counts(level))
        assert released == {
            code: {UNITS.index(name): n for name, n in counts.items() if n}
            for code, counts in sums(truth, digits).items()
            if any(counts.values())
        }
    assert json.loads((release_of(out).manifest).read_text())["account"] is None


def test_seeded_products_do_not_share_their_noise(tmp_path):
    """Equal schemas and data, one seed: the noise of the products is not the same."""
    toy.write_records(tmp_path)
    data = {"input_format": "records", "path": str(tmp_path / "records.csv"), "geocode": "block",
            "columns": {"sex": "sex", "age": "age"}}  # fmt: skip
    twin = {
        "schema": str(toy.ROOT / "conf" / "schema" / "toy.yaml"),
        "data": data,
        "privacy": {"rho": "1", "allocation": str(toy.ROOT / "conf" / "allocation" / "toy.yaml")},
    }
    release = release_of(execute(toy.configuration(tmp_path, units=twin)))
    both = [
        {
            (row["geocode"], row["query"]): row["answers"]
            for row in rows_of(one.measurements("block"))
        }
        for one in (release, release.product("units"))
    ]
    assert both[0].keys() == both[1].keys()
    differences = [
        a - b for key in both[0] for a, b in zip(both[0][key], both[1][key], strict=True)
    ]
    assert sum(d != 0 for d in differences) > len(differences) / 2


def test_true_occupancy_shows_nowhere_but_in_the_confidential_folder(tmp_path):
    """Numbers that cannot occur by chance: occupancy is hidden, totals are published exactly.

    A noisy answer of sigma 2 10^6 equals a given number with probability below 2 10^-7.
    """
    toy.write_records(tmp_path)
    units = write_units(tmp_path)
    canary, rest = 1_318_276_459, 1_126_870_351
    first = next(iter(units))
    text = (tmp_path / "units.csv").read_text().splitlines()
    cells = text[1].split(",")
    assert cells[0] == first
    text[1] = ",".join([first, str(canary), str(rest), *cells[3:]])
    (tmp_path / "units.csv").write_text("\n".join(text) + "\n")
    poor = section(tmp_path)["privacy"] | {"rho": "1/1000000000000"}
    solve = {"rounding_passes": [["hhgq", "detailed"]], "tolerance": 1e-5}
    output = {"microdata": []}  # one row per unit would be billions
    out = execute(real(tmp_path, units=section(tmp_path, privacy=poor, solve=solve, output=output)))
    hidden = Canaries(frozenset({canary, rest}))
    assert sightings([out], hidden, without="confidential") == []
    assert sightings([truth_of(out, "units").root], hidden)
    exact = Canaries(frozenset({canary + rest}))
    assert sightings([release_of(out, "units").root / "invariants"], exact)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"privacy": {"rho": "1"}}, r"units.privacy.allocation: is required"),
        ({"output": {"h1": "hhgq"}}, r"units.output.h1: query hhgq: cannot make table H1"),
        ({"invariants": [{"query": "age", "geolevel": "block"}]}, r"units.invariants: .*age"),
        ({"solve": {"rounding_passes": [["total"]]}}, r"units.solve: .*must be detailed"),
        ({"surplus": 1}, r"units.surplus: is not a known key"),
    ],
)
def test_mistakes_in_the_units_are_named(tmp_path, changes, match):
    with pytest.raises(Exception, match=match) as caught:
        load_runnable(toy.configuration(tmp_path, units=section(tmp_path, **changes)))
    assert caught.type.__module__ == "das.errors"


def test_budget_and_name_of_the_units(tmp_path):
    allocation = section(tmp_path)["privacy"]["allocation"]
    for privacy, match in (
        ({}, "units.privacy: .*exactly one of `rho` and `epsilon`"),
        ({"rho": "1", "epsilon": "1"}, "units.privacy: .*exactly one of `rho` and `epsilon`"),
        ({"rho": "0"}, "units.privacy.rho: .*greater than 0"),
        ({"rho": "1", "product": "toy"}, "units.privacy.product: is also that of the persons"),
    ):
        units = section(tmp_path, privacy={**privacy, "allocation": allocation})
        with pytest.raises(ConfigError, match=match):
            load_run(toy.configuration(tmp_path, units=units))


def test_the_digest_knows_the_units_but_not_their_outputs(tmp_path):
    def digest(**changes) -> str:
        units = section(tmp_path, **changes)
        return load_run(toy.configuration(tmp_path, units=units)).plan.digest

    plain = load_run(toy.configuration(tmp_path)).plan.digest
    first = digest()
    assert first != plain
    assert digest(output={}) == first
    assert digest(solve={"fit_to": "level"}) == first
    assert digest(invariants=[]) != first
    other = section(tmp_path)["privacy"] | {"rho": "1/8"}
    assert digest(privacy=other) != first


def test_without_a_list_the_geounits_of_both_products_count(tmp_path):
    """A block with units and no people is a geounit, and the list is marked as taken from data."""
    people = toy.write_records(tmp_path)
    write_units(tmp_path)
    config = toy.configuration(tmp_path, units=section(tmp_path))
    document = yaml.safe_load(config.read_text())
    del document["geography"]["geounits"]
    config.write_text(yaml.safe_dump(document))
    out = execute(config)
    assert len({code for code, *_ in people}) < len(toy.blocks())
    assert sorted(geography(out, "block")) == sorted(toy.blocks())
    manifest = json.loads((release_of(out).manifest).read_text())
    assert manifest["geounits_source"] == "data"
    with pytest.raises(OutputError, match="belongs to a different configuration"):
        execute(toy.configuration(tmp_path))
