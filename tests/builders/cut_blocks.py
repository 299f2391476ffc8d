"""How the blocks with housing units among the test data were cut; deterministic.

    python -m tests.builders.cut_blocks cook_2010_third_44cells_hu.parquet TARGET [--tracts 6]

Of a file with 44 cells, voting age x Hispanic x eleven groups of races, it writes the 16 cells that the
other states have, `pop` and `vap`, which are their sums, `hu`, and `gq`: 1 where persons live
and no housing unit is.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.covariates import CELLS, real


def write(source: Path, target: Path, every: int) -> None:
    """Write the blocks of every so manieth tract."""
    blocks = real(source, every)
    flat = blocks.counts.reshape(len(blocks.codes), -1)
    columns = dict(zip(CELLS, flat.T, strict=True))
    columns |= {"pop": flat.sum(1), "vap": blocks.counts[:, 1].sum(1)}
    columns |= {"hu": blocks.units, "gq": blocks.facilities}
    numbers = {name: pa.array(values, pa.int16()) for name, values in columns.items()}
    table = pa.table({"geoid": blocks.codes.tolist(), **numbers})
    pq.write_table(table, target, compression="zstd", compression_level=19)


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--tracts", type=int, default=6, help="which of them: every so manieth")
    arguments = parser.parse_args()
    write(arguments.source, arguments.target, arguments.tracts)


if __name__ == "__main__":
    main()
