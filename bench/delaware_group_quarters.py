"""Input of conf/run/de-2020-gq.yaml: `python -m bench.delaware_group_quarters [--data FILE]`.

Real blocks of Delaware: persons in households and in three types of group quarters, housing units
and facilities. The source counts facilities of all types together; they are of the type whose
residents live in the block. One block has residents of two types: the smaller one gets one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

from tests.checkout import ROOT

SOURCE = ROOT / "tests" / "data" / "de_2020_block_pop_gq_hu.parquet"
TARGET = ROOT / "build" / "de-2020-gq-input.parquet"
TYPES = ["correctional", "juvenile", "other"]


def blocks(source: Path) -> pd.DataFrame:
    """One row per block."""
    read = pd.read_parquet(source)
    other = read.gq_pop - read.gq_correctional - read.gq_juvenile
    residents = np.stack([read.gq_correctional, read.gq_juvenile, other], axis=1)
    facilities = (residents > 0).astype(np.int64)
    largest = residents.argmax(1)
    facilities[np.arange(len(read)), largest] += read.gq_facilities - facilities.sum(1)
    columns = {"geoid": read.geoid, "household": read["pop"] - read.gq_pop}
    columns |= dict(zip(TYPES, residents.T, strict=True))
    columns |= {"housing_units": read.hu.astype(np.int64)}
    columns |= {f"facilities_{t}": f for t, f in zip(TYPES, facilities.T, strict=True)}
    return pd.DataFrame(columns)


def main() -> None:
    """Write the input and say what is in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=SOURCE, help="blocks of tests/data/README.md")
    source = parser.parse_args().data
    if not source.exists():
        parser.error(f"does not exist: {source}; tests/data/README.md says where it is from")
    made = blocks(source)
    TARGET.parent.mkdir(exist_ok=True)
    made.to_parquet(TARGET, index=False)
    sums = {name: int(made[name].sum()) for name in made.columns[1:]}
    print(json.dumps({"blocks": len(made), **sums}))


if __name__ == "__main__":
    main()
