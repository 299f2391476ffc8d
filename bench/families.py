"""Families solved packed and one by one, in one process by turns: microseconds, and every count.

    python -m bench.families [--blocks N] [--input BLOCKS.parquet] [--quick]

Runs a generated state with the 2,016 cells of PL94 and one of 16 cells, or with --input a block
table of 16 cells alone, then solves each geolevel of it again both ways, without reading and
writing files. Prints a table and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from bench import state
from jobs.pipeline.config.load import load_run
from jobs.pipeline.plan import Plan
from jobs.pipeline.release.level import LevelReader
from jobs.pipeline.release.pieces import Piece, read_pieces
from jobs.pipeline.release.solve import LevelSolving, solve_piece
from jobs.pipeline.storage.histograms import sparse_table
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.tasks.batches import geounit_batches
from tests.builders.places import release_of

ROUNDS = 3


def seconds(solving: LevelSolving, pieces: list[Piece]) -> tuple[float, pa.Table]:
    """Processor seconds of all families of a geolevel, and their counts."""
    started = time.process_time()
    tables = [
        sparse_table(piece.codes[rows], counts)
        for piece in pieces
        for rows, counts, _ in solve_piece(solving, piece)
    ]
    return time.process_time() - started, pa.concat_tables(tables).combine_chunks()


def compare(plan: Plan, release: ReleaseLayout, name: str) -> list[dict[str, object]]:
    """A row per geolevel below the root."""
    rows = []
    for level in plan.levels[1:]:
        solving = LevelSolving.of(plan, level.index)
        (batch,) = geounit_batches(release, level, 1, 10**9, 1)
        pieces = list(read_pieces(LevelReader(plan, release, batch.level), batch))
        geounits = sum(len(piece.codes) for piece in pieces)
        ways = {"one_by_one": replace(solving, questions=None), "packed": solving}
        best = dict.fromkeys(ways, float("inf"))
        tables = {}
        for _ in range(ROUNDS):
            for way, one in ways.items():
                spent, tables[way] = seconds(one, pieces)
                best[way] = min(best[way], spent)
        ours, theirs = ({row["geocode"]: row for row in t.to_pylist()} for t in tables.values())
        rows.append(
            {
                "state": name,
                "geolevel": level.name,
                "geounits": geounits,
                "is_packed": solving.questions is not None,
                **{f"{way}_us": round(1e6 * spent / geounits, 2) for way, spent in best.items()},
                "other_geounits": sum(ours.get(g) != theirs.get(g) for g in {*ours, *theirs}),
            }
        )
    return rows


def main() -> None:
    """Print the table; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int)
    parser.add_argument("--input", type=Path)
    parser.add_argument("--quick", action="store_true", help="500 blocks")
    arguments = parser.parse_args()
    blocks = arguments.blocks or (500 if arguments.quick else 6000)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for template in ("ri-2010.yaml",) if arguments.input else ("demo.yaml", "ri-2010.yaml"):
            folder = Path(name) / template
            folder.mkdir()
            if arguments.input:
                config = state.configuration(arguments, folder)
            else:
                config = state.generated(template, folder, blocks)
            state.das("run", config)
            (plan,) = (product.plan for product in load_run(config).products.values())
            rows += compare(plan, release_of(folder / "out"), template.removesuffix(".yaml"))
    for row in rows:
        print("".join(f"{value!s:<15}" for value in row.values()))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
