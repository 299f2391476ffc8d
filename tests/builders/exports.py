"""A generated state of persons and units, and readers of what `das export` makes of its release."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from jobs.design.synthetic.generate import GenerateSpec, generate
from jobs.pipeline.config.models.data import Pl94Data, RecordsData
from jobs.pipeline.config.schema import load_schema
from tests.builders.places import product_in
from tests.checkout import ROOT
from tests.release_checks import sparse
from tests.unit.jobs.pipeline.confidential.read.reading import read

Counts = Counter[tuple[str, int]]
"""(block, cell) to count."""

SCHEMAS = ROOT / "conf" / "schema"
_PARTS = [{"column": "TABBLKST", "digits": 2}, {"column": "TABBLKCOU", "digits": 3},
          {"column": "TABTRACTCE", "digits": 6}, {"column": "TABBLK", "digits": 4}]  # fmt: skip
_COLUMNS = {
    "hhgq": ("GQTYPE_PL", "gq_type"),
    "votingage": ("VOTING_AGE", "voting_age"),
    "hispanic": ("CENHISP", "hispanic"),
    "cenrace": ("CENRACE", "race"),
}


def write_state(folder: Path, spec: GenerateSpec) -> Path:
    """Generate states, and write the run file of conf/run/demo-units.yaml for them."""
    data = folder / "data"
    generate(spec, data)
    document = yaml.safe_load((ROOT / "conf" / "run" / "demo-units.yaml").read_text())
    document["geography"]["geounits"] = {"path": str(data / "geounits.parquet")}
    document["privacy"]["account"] = str(folder / "account.jsonl")
    document["output"]["directory"] = str(folder / "out")
    for name, product in document["products"].items():
        product["data"]["path"] = str(data / {"units": "units", "persons": "records"}[name])
        product["schema"] = str(SCHEMAS / Path(product["schema"]).name)
        allocation = ROOT / "conf" / "allocation" / Path(product["privacy"]["allocation"]).name
        product["privacy"]["allocation"] = str(allocation)
    config = folder / "run.yaml"
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    return config


def released(release: Path, product: str = "persons") -> Counts:
    """Read the released counts of the blocks."""
    counts = sparse(product_in(release, product).counts("block"))
    return Counter({(code, cell): n for code, of in counts.items() for cell, n in of.items()})


def regrouped(
    counts: Mapping[tuple[str, int], int], cell_of: Callable[[int], int | None]
) -> Counts:
    """Add counts up to other cells; None leaves a cell out."""
    found: Counts = Counter()
    for (code, cell), n in counts.items():
        other = cell_of(cell)
        if other is not None:
            found[code, other] += n
    return found


def redistricting_counts(release: Path) -> dict[str, Counts]:
    """Add released counts up to what the redistricting files tell, by product of their reader."""
    persons, units = released(release), released(release, "units")
    return {
        "persons": regrouped(persons, lambda cell: cell % 252),
        "group_quarters": regrouped(persons, lambda cell: cell // 252),
        "housing_units": regrouped(units, lambda cell: cell if cell < 2 else None),
    }


def read_redistricting(folder: Path) -> dict[str, Counts]:
    """Read redistricting files by the project's reader, all its products."""
    schemas = {"persons": "pl94_tables"} | {n: n for n in ("group_quarters", "housing_units")}
    return {
        product: read(
            Pl94Data(input_format="pl94", path=folder, product=product),
            load_schema(SCHEMAS / f"{schema}.yaml"),
            15,
        )
        for product, schema in schemas.items()
    }


def read_microdata(folder: Path) -> Counts:
    """Read the persons of microdata files by the project's reader of records."""
    codes = yaml.safe_load((ROOT / "conf" / "export" / "ppmf.yaml").read_text())["codes"]
    columns: dict[str, Any] = {
        name: {"column": column, "codes": {code: level for level, code in codes[listed].items()}}
        for name, (column, listed) in _COLUMNS.items()
    }
    found: Counts = Counter()
    for path in sorted(folder.glob("ppmf_person_*.csv")):
        config = RecordsData(input_format="records", path=path, geocode=_PARTS, columns=columns)
        found += read(config, load_schema(SCHEMAS / "pl94.yaml"), 15)
    return found
