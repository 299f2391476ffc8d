"""A generated state in the layouts of `das export`: read back, and what it costs.

    python -m bench.exports [--blocks N] [--folder FOLDER] [--quick]

A state of 200,000 generated blocks with persons of 2,016 cells and units is released by a run in
this process, without invariants, which take most of the time of a run and change nothing of a file.
Then `das export` writes it in each included layout, and the files are read:

- equal: `pl94` by the project's reader of redistricting files, to the histograms of persons, group
  quarters and housing units of the release; `ppmf` by its reader of records, to the released persons;
  `wide` against `open_release`: counts, estimates and intervals of three variables at all geolevels,
  with --quick at those above blocks.
- rows: lines, or rows of Parquet, of all files; bytes: of all files.
- core_seconds: of the command, starting Python included.

--folder keeps the release for the next time. Prints a table and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import yaml

from bench.release_tools import cpu_seconds
from jobs.design.synthetic.generate import GenerateSpec
from jobs.pipeline.config.load import load_run
from jobs.pipeline.run import run
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from tests.builders.exports import (
    read_microdata,
    read_redistricting,
    redistricting_counts,
    released,
    write_state,
)
from topdown_das import open_release

_VARIABLES = {
    "P0010001": "total",
    "P0020002": "total where hispanic=hispanic",
    "P0030001": "total where votingage=18_and_over",
}
_ABOVE = ("nation", "state", "county", "tract", "block_group")
_ENDS = ("estimate", "lower", "upper")
_ROUNDED, _SINGLE = 1.1e-3, 1e-6  # both are rounded to three decimals, from single precision


def release_of(folder: Path, blocks: int) -> Path:
    """A release of so many generated blocks; made once per folder."""
    release = folder / "out" / "release"
    if not (release / "manifest.json").exists():
        config = write_state(folder, GenerateSpec(blocks=blocks, seed=15))
        document = yaml.safe_load(config.read_text())
        for product in document["products"].values():
            for key in ("invariants", "solve", "output"):
                product.pop(key, None)
        config.write_text(yaml.safe_dump(document, sort_keys=False))
        run(load_run(config), Reporter(quiet=True), tasks=LocalTasks(Sizing(4), slots=2))
    return release


def is_wide_equal(release: Path, folder: Path) -> bool:
    """Whether counts, estimates and intervals are those of the release."""
    opened, equal = open_release(release), []
    for path in sorted(folder.glob("wide_*.parquet")):
        geolevel = path.stem.removeprefix("wide_")
        table = pq.read_table(path).to_pandas().set_index("GEOID")
        for variable, query in _VARIABLES.items():
            want = opened.table(query, geolevel).to_pandas().set_index("geocode")
            equal.append(table[variable].to_dict() == want["count"].to_dict())
            for end in _ENDS:
                column = "estimate" if end == "estimate" else f"estimate_{end}"
                got = table[f"{variable}_{end}"].loc[want.index]
                equal.append(np.allclose(got, want[column], rtol=_SINGLE, atol=_ROUNDED))
    return bool(equal) and all(equal)


EQUAL: Mapping[str, Callable[[Path, Path], bool]] = {
    "pl94": lambda release, folder: read_redistricting(folder) == redistricting_counts(release),
    "ppmf": lambda release, folder: read_microdata(folder) == released(release),
    "wide": is_wide_equal,
}


def rows_of(path: Path) -> int:
    """Lines of a text, or rows of a Parquet file."""
    if path.suffix == ".parquet":
        return int(pq.read_metadata(path).num_rows)
    with path.open("rb") as file:
        return sum(1 for _ in file)


def exported(release: Path, words: Sequence[str], folder: Path) -> dict[str, bool | int | float]:
    """Export a release in a layout, which comes first, and read it."""
    seconds = cpu_seconds("export", release, "--as", *words, "--to", folder, "--quiet")
    files = sorted(folder.iterdir())
    return {
        "equal": EQUAL[words[0]](release, folder),
        "rows": sum(map(rows_of, files)),
        "bytes": sum(path.stat().st_size for path in files),
        "core_seconds": round(seconds, 2),
    }


def main() -> None:
    """Measure, print a table, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=200_000)
    parser.add_argument("--folder", type=Path, help="where the release is kept")
    parser.add_argument("--quick", action="store_true", help="the wide table without blocks")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="exports-") as temporary:
        folder = arguments.folder or Path(temporary) / "state"
        folder.mkdir(parents=True, exist_ok=True)
        release = release_of(folder, arguments.blocks)
        few = [text for name in _ABOVE for text in ("--geolevel", name)] if arguments.quick else []
        words = {"pl94": ["pl94"], "ppmf": ["ppmf"], "wide": ["wide", *few]}
        formats = {one: exported(release, words[one], Path(temporary) / one) for one in EQUAL}
    for name, found in formats.items():
        print(f"{name:<8}", *(f"{key} {value}" for key, value in found.items()), file=sys.stderr)
    print(json.dumps({"formats": formats}))
    sys.exit(0 if all(found["equal"] for found in formats.values()) else 1)


if __name__ == "__main__":
    main()
