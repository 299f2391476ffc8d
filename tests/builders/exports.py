"""A generated state of persons and units, and readers of what `das export` makes of its release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from jobs.design.synthetic.generate import GenerateSpec, generate
from jobs.pipeline.confidential.read.formats import reader_of
from jobs.pipeline.config.models.data import Pl94Data, RecordsData
from jobs.pipeline.config.schema import load_schema
from jobs.pipeline.storage.dataset import Dataset
from tests.builders.places import product_in
from tests.checkout import ROOT

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


def summed(geocodes: Any, cells: Any, numbers: Any) -> pa.Table:
    """Counts by block and cell, sorted: columns geocode, cell and n."""
    rows = pa.table({"geocode": geocodes, "cell": cells, "n": numbers})
    of_cells = rows.group_by(["geocode", "cell"]).aggregate([("n", "sum")])
    columns = of_cells.sort_by([("geocode", "ascending"), ("cell", "ascending")]).columns
    kinds = (pa.string(), pa.int64(), pa.int64())
    cast = [column.cast(kind).combine_chunks() for column, kind in zip(columns, kinds, strict=True)]
    return pa.table(dict(zip(("geocode", "cell", "n"), cast, strict=True)))


def released(release: Path, product: str = "persons") -> pa.Table:
    """The released counts of the blocks."""
    rows = Dataset.open(product_in(release, product).counts("block")).read().combine_chunks()
    cells = rows["cells"].combine_chunks()
    geocodes = rows["geocode"].take(pc.list_parent_indices(cells))
    return summed(geocodes, cells.flatten(), rows["counts"].combine_chunks().flatten())


def redistricting_counts(release: Path) -> dict[str, pa.Table]:
    """Add released counts up to what the redistricting files tell, by product of their reader."""
    persons, units = released(release), released(release, "units")
    codes, cells, counts = persons.columns
    cells = np.asarray(cells)
    return {
        "persons": summed(codes, cells % 252, counts),
        "group_quarters": summed(codes, cells // 252, counts),
        "housing_units": units.filter(pc.less(units["cell"], 2)).combine_chunks(),
    }


def _read(config: Pl94Data | RecordsData, schema: str) -> pa.Table:
    reader = reader_of(config, load_schema(SCHEMAS / f"{schema}.yaml"), 15)
    entries = [batch for piece in reader.pieces() for batch in reader.entries(piece)]
    return pa.Table.from_batches(entries)


def read_redistricting(folder: Path) -> dict[str, pa.Table]:
    """Read redistricting files by the project's reader, all its products."""
    schemas = {"persons": "pl94_tables"} | {n: n for n in ("group_quarters", "housing_units")}
    read = {
        product: _read(Pl94Data(input_format="pl94", path=folder, product=product), schema)
        for product, schema in schemas.items()
    }
    return {product: summed(*rows.columns) for product, rows in read.items()}


def read_microdata(folder: Path) -> pa.Table:
    """Read the persons of microdata files by the project's reader of records."""
    codes = yaml.safe_load((ROOT / "conf" / "export" / "ppmf.yaml").read_text())["codes"]
    columns: dict[str, Any] = {
        name: {"column": column, "codes": {code: level for level, code in codes[listed].items()}}
        for name, (column, listed) in _COLUMNS.items()
    }
    rows = [
        _read(
            RecordsData(input_format="records", path=path, geocode=_PARTS, columns=columns), "pl94"
        )
        for path in sorted(folder.glob("ppmf_person_*.csv"))
    ]
    return summed(*pa.concat_tables(rows).columns)
