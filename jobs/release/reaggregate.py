"""Carry what the failsafe moved in a parent up to all geounits above it.

The geolevel solved last names its moves in the manifest of its counts. The counts of each geolevel
above are then replaced by counts with the moves added, in one atomic step per geolevel whose new
manifest says which moves it holds; so a run that dies in between goes on where it stopped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from das.errors import VerificationError
from das.histograms import Histograms
from geography.lattice import Spine
from jobs.documents.statistics import statistics_of
from jobs.storage.dataset import Dataset, PartFile, PartWriter, replace_published
from jobs.storage.histograms import SPARSE_SCHEMA, align_histograms, sparse_table
from jobs.storage.layout import ReleaseLayout

Moves = Mapping[str, Mapping[int, int]]

HOLDS = "holds_moves_of"  # manifest key: geolevels whose moves these counts include


def carry_up(level: int, *, spine: Spine, n_cells: int, release: ReleaseLayout) -> None:
    """Make the counts above a geolevel the sums of it again; does nothing the second time.

    Raises:
      VerificationError: A count would become negative; a defect of this program.
    """
    geolevel = spine.levels[level]
    moved = statistics_of(Dataset.open(release.counts(geolevel))).moved
    for above in range(level - 1, -1, -1):
        counts = Dataset.open(release.counts(spine.levels[above]))
        holds = counts.facts.get(HOLDS, [])
        if not moved or geolevel in holds:
            continue
        moves: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for move in moved:
            code = spine.code_at(move.geocode, above)
            for cell, change in zip(move.cells, move.changes, strict=True):
                moves[code][cell] += change
        facts = {**counts.facts, HOLDS: [*holds, geolevel]}
        replace_published(counts.path, _rewrite(counts, moves, n_cells), facts)


def _rewrite(dataset: Dataset, moves: Moves, n_cells: int) -> list[PartFile]:
    """Parts with the moves added; parts without a moved geounit are kept as they are.

    Ranges of parts do not overlap, so a moved geounit without a row goes to the first part that
    ends at or after it, or to the last.
    """
    ordered = sorted((p for p in dataset.parts if p.rows), key=lambda part: part.low)
    share: dict[int, dict[str, Mapping[int, int]]] = defaultdict(dict)
    for code, changes in moves.items():
        index = next((i for i, p in enumerate(ordered) if code <= p.high), len(ordered) - 1)
        share[max(index, 0)][code] = changes
    kept = [p for p in dataset.parts if not p.rows]
    for index, part in enumerate(ordered):
        kept.append(_with_moves(dataset, part, share[index], n_cells) if index in share else part)
    return kept


def _with_moves(
    dataset: Dataset, part: PartFile, moves: Mapping[str, Mapping[int, int]], n_cells: int
) -> PartFile:
    table = replace(dataset, parts=(part,)).read()
    codes = sorted({*table.column("geocode").to_pylist(), *moves})
    old = align_histograms(table, codes, n_cells)
    offsets, cells, counts = [0], [], []
    for index, code in enumerate(codes):
        own = slice(old.offsets[index], old.offsets[index + 1])
        row = dict(zip(old.cells[own].tolist(), old.counts[own].tolist(), strict=True))
        for cell, change in moves.get(code, {}).items():
            row[cell] = row.get(cell, 0) + change
        if min(row.values(), default=0) < 0:
            raise VerificationError(str(dataset.path), "a failsafe move leaves a negative count")
        held = sorted((cell, count) for cell, count in row.items() if count)
        cells += [cell for cell, _ in held]
        counts += [count for _, count in held]
        offsets.append(len(cells))
    histograms = Histograms(n_cells, *(np.array(a, np.int64) for a in (offsets, cells, counts)))
    writer = PartWriter(dataset.path, SPARSE_SCHEMA)
    writer.write(sparse_table(codes, histograms))
    return writer.close(**part.facts)
