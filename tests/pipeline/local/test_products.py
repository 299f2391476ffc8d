"""Three products in one run, of any name, in the order of work; one binds another."""

from __future__ import annotations

import csv
import json
from fractions import Fraction
from pathlib import Path

import yaml
from typer.testing import CliRunner

from das.privacy.accounting import epsilon_bun_steinke
from jobs.cli.main import app
from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.verify import verify_run
from jobs.pipeline.report.certificate import odds
from jobs.pipeline.report.finished import write_internal_reports
from jobs.pipeline.report.text import RHO
from jobs.pipeline.storage.layout import Roots
from jobs.pipeline.storage.ledger import read_ledger
from tests.builders import toy
from tests.builders.in_process import execute
from tests.builders.places import release_of
from tests.builders.units import section, write_units
from tests.release_checks import totals_are_exact, tree_is_consistent


def three(folder: Path) -> Path:
    """Units, dwellings without facilities, and persons; dwellings are bound by nothing."""
    toy.write_records(folder)
    write_units(folder)
    path = toy.configuration(folder, units=section(folder))
    document = yaml.safe_load(path.read_text())
    units, persons = document["products"].values()
    dwellings = {
        **units,
        "privacy": {**units["privacy"], "rho": "1/9", "product": "dwellings"},
        "invariants": [{"query": "total", "geolevel": "county"}],
        "solve": {},
        "output": {"tables": ["total"], "microdata": ["csv"]},
    }
    products = {"units": units, "dwellings": dwellings, "persons": persons}
    path.write_text(yaml.safe_dump({**document, "products": products}, sort_keys=False))
    return path


def test_three_products_are_made_and_verified(tmp_path):
    config = three(tmp_path)
    out = execute(config, figures=True)
    products = load_run(config).products
    assert [*products] == ["units", "dwellings", "persons"]
    assert verify_run(load_run(config))["families"] == 3 * (1 + 3 + 6)
    assert tree_is_consistent(out, toy.LEVELS)
    assert totals_are_exact(out, "state")
    spent = [read_ledger(product.release.ledger).spent().granted for product in products.values()]
    assert spent == [Fraction(1, 7), Fraction(1, 9), Fraction(1)]
    whole = json.loads((out / "release" / "manifest.json").read_text())
    assert [*whole["products"]] == ["units", "dwellings", "persons"]
    manifest = json.loads(release_of(out).manifest.read_text())
    assert [Fraction(row["total"]) for row in manifest["together"]["composed"]] == [sum(spent)]
    keys = {product.seed for product in products.values()}
    assert len(keys) == 3
    assert len(write_internal_reports(Roots.of(out))) == len(products)
    for product in products.values():
        assert product.release.report.exists()
        assert product.confidential.report.exists()
    for command in ("validate", "plan"):
        said = CliRunner().invoke(app, [command, str(config), "--json"])
        assert said.exit_code == 0, said.output
        document = json.loads(said.stdout)
        assert document["units"]["schema"]["name"] == "units"
        assert document["dwellings"]["privacy"]["total"] == "1/9"
        together = [Fraction(one["total"]) for one in document["together"]["composed"]]
        assert together == [sum(spent)]
    resumed = CliRunner().invoke(app, ["run", str(out), "--check"])
    assert resumed.exit_code == 0, resumed.output
    assert resumed.stdout.count("of") > 3 * 6


def test_any_product_is_planned_and_optimised(das, tmp_path):
    """Of that product alone; the file names the command, and even shares are made without one."""
    path = three(tmp_path)
    document = yaml.safe_load(path.read_text())
    best = tmp_path / "best.yaml"
    words = ("--quiet", "--json", "--product", "units", "--tables", "occupancy")
    code, said = das("plan", path, *words, "--optimize", best)
    assert code == 0, said
    planned = json.loads(said)
    assert planned["units"]["optimized"]
    assert not planned["dwellings"].get("optimized")
    assert not planned.get("optimized")
    assert "--product units --tables occupancy" in " ".join(best.read_text().split())
    code, said = das("plan", path, *words, "--allocation", best)
    assert code == 0, said
    again = json.loads(said)
    assert again["predicted"] == planned["predicted"]
    assert again["units"]["predicted"] != planned["units"]["predicted"]
    document["products"]["units"]["privacy"].pop("allocation")
    document["products"]["persons"]["privacy"].pop("allocation")
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    code, said = das("plan", path, *words, "--optimize", tmp_path / "units.yaml")
    assert code == 0, said
    code, said = das("plan", path, "--quiet", "--product", "unit")
    assert code != 0
    assert "--product: is unknown" in said
    assert "dwellings" in said


def test_two_products_of_the_same_people_under_one_account(here, das, tmp_path):
    """Sex by age for all, and citizenship by age beside it, of the same file of records."""
    toy.write_records(tmp_path)
    with (tmp_path / "records.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    for index, row in enumerate(rows):
        row["citizen"] = "yes" if index % 3 else "no"
    with (tmp_path / "records.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    ages = [{"name": "age", "levels": [*toy.AGE]}, {"name": "citizen", "levels": ["yes", "no"]}]
    (tmp_path / "cvap.yaml").write_text(yaml.safe_dump({"name": "cvap", "attributes": ages}))
    shares = {"share": "1/4", "queries": {"citizen": "1/2", "detailed": "1/2"}}
    allocation = {"name": "cvap", "levels": dict.fromkeys(toy.LEVELS, shares)}
    (tmp_path / "cvap-shares.yaml").write_text(yaml.safe_dump(allocation))
    path = toy.configuration(
        tmp_path,
        privacy__randomness={"source": "operating_system"},
        privacy__account=str(tmp_path / "account.jsonl"),
    )
    document = yaml.safe_load(path.read_text())
    persons = document["products"]["persons"]
    citizens = {
        **persons,
        "schema": str(tmp_path / "cvap.yaml"),
        "data": {**persons["data"], "columns": {"age": "age", "citizen": "citizen"}},
        "privacy": {"rho": "1/5", "allocation": str(tmp_path / "cvap-shares.yaml")},
    }
    document["products"] = {"citizens": citizens, "persons": persons}
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    for command in ("validate", "run", "verify"):
        code, said = das(command, path)
        assert code == 0, said
    for product in ("citizens", "persons"):
        folder = release_of(tmp_path / "out", product).microdata / "csv"
        lines = sum(len(file.read_text().splitlines()) - 1 for file in folder.glob("*.csv"))
        assert lines == len(rows)  # the total of the state is exact in both
    code, said = das("account", path, "--json")
    assert code == 0, said
    account = json.loads(said)
    granted = {one["product"]: one["total"] for one in account["grants"]}
    assert granted == {"cvap": "1/5", "toy": "1"}
    assert [one["total"] for one in account["composed"]] == ["6/5"]
    release = tmp_path / "out" / "release"
    code, said = das("verify", release, "--certificate", tmp_path / "certificate.html")
    assert code == 0, said
    certificate = " ".join((tmp_path / "certificate.html").read_text().split())
    headline = certificate[certificate.index("Whatever they compute") :][:400]
    assert "from this release and everything else released about the same people" in headline
    assert odds(epsilon_bun_steinke(Fraction(6, 5), Fraction(1, 10**10))) in headline
    assert odds(epsilon_bun_steinke(Fraction(1), Fraction(1, 10**10))) not in headline
    assert f"with {RHO} = <code>6/5</code>" in certificate
    assert certificate.count("anything, the place included; this product alone") == 2
    parts = certificate.split("Product 2 of 2: persons")
    for part, cost, kind in zip(parts, ("1/5", "1"), ("citizens", "persons"), strict=True):
        assert odds(epsilon_bun_steinke(Fraction(cost), Fraction(1, 10**10))) in part
        assert f"Manifest of {kind}, SHA-256" in parts[1]
    assert "keep the relations within these measured tables" not in parts[0]
    page = ("verify", release, "--certificate", tmp_path / "one.html", "--product", "citizens")
    assert das(*page)[0] == 0
    assert "Product 1 of" not in (tmp_path / "one.html").read_text()
    for folder in (release / "products" / "persons", release / "products" / "citizens"):
        readme = (folder / "README.md").read_text()
        assert "limits what anyone can learn about one of the" in readme
        assert f"{RHO} = 6/5, zero-concentrated" in readme
        assert "exactly 6/5" in (folder / "report.html").read_text()  # under the headline number


def test_a_certificate_of_both_definitions_has_the_smallest_epsilon(here, das, tmp_path):
    """A run in pure epsilon, after one in rho: odds are those of both together."""
    toy.write_records(tmp_path)
    real = {"privacy__randomness": {"source": "operating_system"}}
    rho = toy.configuration(tmp_path, **real, privacy__rho="7/125")
    assert das("run", rho)[0] == 0
    pure = {"definition": "pure", "rho": None, "epsilon": "2", "budget_id": "2"}
    changes = {f"privacy__{key}": value for key, value in pure.items()}
    out = tmp_path / "pure"
    config = toy.configuration(tmp_path, **real, **changes, output__directory=str(out))
    code, said = das("run", config)
    assert code == 0, said
    assert "ε = 4.123 at δ" in (release_of(out).readme).read_text()
    page = tmp_path / "certificate.html"
    assert das("verify", out / "release", "--certificate", page)[0] == 0
    simple = epsilon_bun_steinke(Fraction(7, 125), Fraction(1, 10**10)) + 2
    assert f"<strong>{odds(simple)}</strong>" in page.read_text()
    assert "this product alone" in page.read_text()
