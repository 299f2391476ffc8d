"""How the microdata among the test data were cut; deterministic.

    python -m tests.builders.cut_microdata ADULT.csv ADULT_DOMAIN.json COVERAGE.parquet NIST.parquet

Writes into tests/data. Every column is coded 0, 1, ... by public rules; the number of levels of each
is metadata under `levels`. Files with `records` hold distinct rows and how many records each is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from tests.checkout import ROOT

FOLDER = ROOT / "tests" / "data"


def write(name: str, columns: dict[str, np.ndarray], levels: dict[str, int], extra=()) -> None:
    """Write columns as 8-bit integers, with `extra` columns as they are."""
    for column, n_levels in levels.items():
        assert 0 <= columns[column].min() <= columns[column].max() < n_levels, column
    # Rows have no order of their own; sorted by columns of few levels first, they take least room.
    order = np.lexsort([columns[column] for column in sorted(levels, key=levels.get)[::-1]])
    table = pa.table(
        {column: pa.array(columns[column][order].astype(np.int8)) for column in levels}
        | {column: pa.array(columns[column][order]) for column in extra}
    )
    table = table.replace_schema_metadata({"levels": json.dumps(levels)})
    pq.write_table(table, FOLDER / name, compression="zstd", compression_level=19)


def cut_adult(records: str, domain: str) -> None:
    """Adult as the file of the benchmark has it, coded in 15 attributes."""
    levels = json.loads(Path(domain).read_text())
    table = pyarrow.csv.read_csv(records)
    write("adult.parquet", {name: table[name].to_numpy() for name in levels}, levels)


def cut_acs(records: str) -> None:
    """Ten columns of ACS 2018 as Rosenblatt, Stoyanovich & Musco code them (Table 2)."""
    table = pq.read_table(records)
    raw = {name: table[name].to_numpy().astype(np.int64) for name in table.column_names}
    columns = {
        "AGEP": (raw["AGEP"] - 15) // 10,  # 15 to 64
        "SCHL": np.searchsorted([4.8, 9.6, 14.4, 19.2], raw["SCHL"]),  # five bins of 0 to 24
        "MAR": raw["MAR"] - 1,
        "DIS": raw["DIS"] - 1,
        "ESP": raw["ESP"],
        "MIL": raw["MIL"],
        "DREM": raw["DREM"] - 1,
        "SEX": raw["SEX"] - 1,
        "RAC1P": raw["RAC1P"] - 1,
        "ESR": (raw["ESR"] == 1).astype(np.int64),
    }
    levels = dict(zip(columns, (5, 5, 5, 2, 9, 5, 2, 2, 9, 2), strict=True))
    cells = np.stack(list(columns.values()), axis=1)
    distinct, counts = np.unique(cells, axis=0, return_counts=True)
    kept = {name: distinct[:, i] for i, name in enumerate(columns)}
    kept["records"] = counts.astype(np.int32)
    write("acs_2018_public_coverage.parquet", kept, levels, extra=("records",))


def cut_nist(records: str) -> None:
    """21 attributes of the NIST excerpts of ACS 2019; missing is a level, numbers have public bins."""
    table = pq.read_table(records)
    raw = {
        name: np.array([-1 if value is None else value for value in table[name].to_pylist()])
        for name in table.column_names
        if name != "PUMA"
    }
    places = sorted(set(table["PUMA"].to_pylist()))
    columns = {"PUMA": np.array([places.index(place) for place in table["PUMA"].to_pylist()])}
    levels = {"PUMA": len(places)}
    bins = {
        "AGEP": np.arange(5, 100, 5),
        "DENSITY": np.array([50, 200, 500, 1000, 2000, 5000, 10_000, 20_000]),
        "INDP": np.array(
            [0, 700, 1000, 4000, 4600, 6000, 6400, 6800, 7200, 7800, 8000, 8600, 9000]
        ),
        "PINCP": np.array(
            [-9999, 1, 5000, 10_000, 20_000, 30_000, 45_000, 60_000, 90_000, 150_000]
        ),
        "POVPIP": np.array([0, 50, 100, 150, 200, 300, 400, 501]),
    }
    for name, edges in bins.items():
        columns[name] = np.searchsorted(edges, raw[name], side="right")
        levels[name] = len(edges) + 1
    codes = {
        **{"SEX": 2, "MSP": 6, "HISP": 5, "RAC1P": 9, "NOC": 12, "NPF": 12, "HOUSING_TYPE": 3},
        **{"OWN_RENT": 3, "INDP_CAT": 19, "EDU": 12, "PINCP_DECILE": 10, "DVET": 6, "DREM": 2},
        **{"DPHY": 2, "DEYE": 2, "DEAR": 2},
    }
    for name, most in codes.items():
        columns[name] = raw[name] + 1  # 0: not applicable
        levels[name] = most + 2
    write("nist_2019_national.parquet", columns, levels)


if __name__ == "__main__":
    adult, domain, coverage, nist = sys.argv[1:]
    cut_adult(adult, domain)
    cut_acs(coverage)
    cut_nist(nist)
