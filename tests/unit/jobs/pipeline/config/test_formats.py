"""Run files of format 3: what enters their digests, and errors that name keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from das.errors import ConfigError
from jobs.pipeline.config.load import load_run
from jobs.pipeline.folder.solutions import settings_of
from tests.builders import toy, units
from tests.builders.run_files import to_products
from tests.checkout import ROOT

FACILITIES = {
    "facilities": "sex",
    "geolevel": "block",
    "units": "detailed",
    "at_least": {"male": 0},
}
CHANGES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "plain": lambda _: {},
    "units": lambda folder: {"units": units.section(folder)},
    "facilities": lambda folder: {
        "units": {**units.section(folder), "schema": "kinds.yaml", "output": {}}
        | {"data": {"input_format": "histograms", "path": "units.parquet"}}
        | {"invariants": [{"query": "detailed", "geolevel": "block"}]}
        | {"solve": {"rounding_passes": [["detailed"]]}},
        "invariants": [{"query": "total", "geolevel": "state"}, FACILITIES],
        "privacy__allocation": "allocation.yaml",
    },
}


def write(folder: Path, name: str) -> Path:
    """A run file whose digest does not depend on where it lies."""
    levels = {level: {"share": "1/4", "queries": {"detailed": "1"}} for level in toy.LEVELS}
    allocation = {"name": "a", "levels": levels}
    (folder / "allocation.yaml").write_text(yaml.safe_dump(allocation, sort_keys=False))
    kinds = {"name": "kinds", "attributes": [{"name": "kind", "levels": ["male", "home"]}]}
    (folder / "kinds.yaml").write_text(yaml.safe_dump(kinds))
    path = folder / "run.yaml"
    text = yaml.safe_dump(toy.document(folder, **CHANGES[name](folder)))
    text = text.replace(f"{folder}/", "").replace(f"{ROOT}/", "")
    document = yaml.safe_load(text)
    for product in (document, document.get("units", {})):
        for section, key in ((product, "schema"), (product.get("privacy", {}), "allocation")):
            if str(section.get(key)).startswith("conf/"):
                section[key] = str(ROOT / section[key])
    if name != "plain":
        document["units"]["privacy"]["allocation"] = "allocation.yaml"
    path.write_text(json.dumps(to_products(document)))
    return path


@pytest.mark.parametrize(
    ("stated", "said"),
    [({}, "format: is required"), ({"format": 1}, "format: Input should be 3; got 1")],
)
def test_format_1_is_refused_and_its_keys_have_their_place(tmp_path, stated, said):
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps({**stated, **toy.document(tmp_path)}))
    with pytest.raises(ConfigError) as caught:
        load_run(path)
    assert said in str(caught.value)
    assert "schema: is not a known key here; it belongs to products.NAME.schema" in str(
        caught.value
    )


def refused(folder: Path, change: Callable[[dict[str, Any]], object], name: str = "units") -> str:
    path = write(folder, name)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError) as caught:
        load_run(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.update(format=4), "format: Input should be 3; got 4"),
        (lambda d: d.update(units={}), "units: is not a known key"),
        (lambda d: d.update(schema="s.yaml"), "schema: is not a known key"),
        (lambda d: d["privacy"].update(rho="1"), "privacy.rho: is not a known key"),
        (lambda d: d["products"].clear(), "products: Dictionary should have at least 1 item"),
        (lambda d: d["products"]["persons"].pop("data"), "products.persons.data: is required"),
        (
            lambda d: d["products"]["persons"]["privacy"].update(rho="0"),
            "products.persons.privacy.rho: Input should be greater than 0; got '0'",
        ),
        (
            lambda d: d["products"].update({"../up": d["products"].pop("units")}),
            "products.../up.[key]: String should match pattern",
        ),
        (
            lambda d: d["products"]["units"]["privacy"].update(product="toy"),
            "products.units.privacy.product: is also that of the persons; got toy",
        ),
    ],
)
def test_mistakes_in_format_3_are_named(tmp_path, change, said):
    assert said in refused(tmp_path, change)


@pytest.mark.parametrize("product", ["persons", "dwellings"])
def test_answers_bind_only_products_that_come_later(tmp_path, product):
    def change(document: dict[str, Any]) -> None:
        entry = document["products"]["persons"]["invariants"][1]
        entry["exact"]["product"] = product

    said = refused(tmp_path, change, "facilities")
    assert "products.persons.invariants: 1: " in said
    assert f"product {product}: does not come before this one; got ['units']" in said


def test_one_product_may_have_any_name(tmp_path):
    path = write(tmp_path, "plain")
    document = json.loads(path.read_text())
    document["products"] = {"dwellings": document["products"]["persons"]}
    path.write_text(json.dumps(document))
    product = load_run(path).last
    assert (product.name, product.title) == ("dwellings", "toy")
    assert product.release.root == tmp_path / "out" / "release" / "products" / "dwellings"
    assert product.plan.digest != load_run(write(tmp_path, "plain")).plan.digest


@pytest.mark.parametrize("name", ["schema", "products", "between", "solve", "counts", "geography"])
def test_a_product_may_be_called_as_a_key_or_a_folder_of_others(tmp_path, name):
    """What is measured of each is in the digest, and how each is solved in the settings."""

    def digest_of(rho: str, of_persons: str) -> str:
        path = write(tmp_path, "units")
        document = json.loads(path.read_text())
        units, persons = document["products"].values()
        units["privacy"]["rho"], persons["privacy"]["rho"] = rho, of_persons
        document["products"] = {name: units, "persons": persons}
        path.write_text(json.dumps(document))
        resolved = load_run(path)
        folders = {one.name: one.release.root for one in resolved.products.values()}
        assert folders[name] == tmp_path / "out" / "release" / "products" / name
        settings = settings_of(resolved.config)
        assert [value for value in settings.values() if "output" in value and "solve" in value]
        assert "method" in settings["solve"]
        return resolved.plan.digest

    assert len({digest_of("1", "1"), digest_of("2", "1"), digest_of("1", "2")}) == 3


def test_products_know_what_binds_them_and_have_noise_of_their_own(tmp_path):
    dwellings, persons = load_run(write(tmp_path, "facilities")).products.values()
    assert (dwellings.bound_by, persons.bound_by) == ((), ("units",))
    assert (dwellings.seed, persons.seed) == (6, 5)
    assert (dwellings.account_name, persons.account_name) == ("units", "toy")
    for half in ("release", "confidential"):
        places = [getattr(product, half).root for product in (dwellings, persons)]
        assert places == [
            tmp_path / "out" / half / "products" / name for name in ("units", "persons")
        ]
    assert [product.label("block") for product in (dwellings, persons)] == ["units, block", "block"]
