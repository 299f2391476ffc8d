"""How often parents must move, and what it costs, on real group quarters.

    python -m bench.failsafe [--quick] [--tracts N] [--seeds N] [--rho FRACTION]

The tracts of Delaware 2020 with the most blocks of group quarters, persons in households and three
types of them (tests/data/README.md); block totals, housing units and facilities are exact in every
block. Noise is seeded, and the same for all ways of solving:

    implied         every geounit keeps what its blocks imply
    own             a geounit keeps its own total and its own facilities of every type alone, as in
                    the 2020 system; parents that their children contradict are moved by the
                    failsafe, `exact` or `penalty` with several weights
    none            no geounit above blocks keeps anything of facilities, moved likewise

Errors are L1 distances from the truth over all cells of a geolevel, per person. A table and a line
of JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import jobs.pipeline.release.solve
from bench.delaware_group_quarters import SOURCE, TYPES, blocks
from invariants.leaves import Leaves
from jobs.pipeline.config.load import load_run
from jobs.pipeline.documents.manifest import read_manifest
from jobs.pipeline.release import moves, problems
from jobs.pipeline.release.verify import verify_release
from solvers.problem import LeavesTerm
from tests.builders import in_process
from tests.builders.places import release_of
from tests.checkout import ROOT
from tests.release_checks import sparse

TRACTS, QUICK_TRACTS = 30, 4
SEEDS, QUICK_SEEDS = 5, 1
RHO = "1/500"
DIGITS = {"state": 2, "county": 5, "tract": 11, "block_group": 12, "block": 15}
WEIGHTS = (0.1, 1.0, 10.0, 100.0)
CELLS = ("household", *TYPES)

OfLeaves = Callable[..., LeavesTerm | None]


def at_blocks_alone(of_leaves: OfLeaves) -> OfLeaves:
    """Nothing of facilities above blocks."""

    def term(template: Any, *arguments: Any) -> LeavesTerm | None:
        return of_leaves(template, *arguments) if template.level.name == "block" else None

    return term


def added_up(of_leaves: OfLeaves) -> OfLeaves:
    """All blocks of a geounit as if they were one: its own total and facilities."""

    def term(template: Any, *arguments: Any) -> LeavesTerm | None:
        whole = of_leaves(template, *arguments)
        if whole is None:
            return None
        own = [
            Leaves(*(part.sum(0, keepdims=True) for part in (z.least, z.most, z.low, z.high)))
            for z in whole.leaves
        ]
        return LeavesTerm(whole.groups, tuple(own))

    return term


@dataclass(frozen=True)
class Way:
    """A way of solving.

    Attributes:
      constraints: `implied`, `own` or `none`.
      failsafe: As in run files.
      weight: Of the penalty.
    """

    constraints: str
    failsafe: str = "exact"
    weight: float = moves.PENALTY

    @property
    def name(self) -> str:
        """As the table has it."""
        if self.constraints == "implied":
            return "implied"
        weight = f" {self.weight:g}" if self.failsafe == "penalty" else ""
        return f"{self.constraints}, {self.failsafe}{weight}"

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Hide from the solver what it is not to know."""
        hide = {"own": added_up, "none": at_blocks_alone}.get(self.constraints)
        if hide:
            patch.setattr(problems, "_leaves_term", hide(problems._leaves_term))
        patch.setattr(moves, "PENALTY", self.weight)


WAYS = (
    Way("implied"),
    *(
        way
        for constraints in ("own", "none")
        for way in (
            Way(constraints),
            *(Way(constraints, "penalty", weight) for weight in WEIGHTS),
        )
    ),
)


def configuration(folder: Path, data: Path, seed: int, rho: str, failsafe: str) -> Path:
    """The run file of the project, on fewer blocks and with less budget."""
    document = yaml.safe_load((ROOT / "conf" / "run" / "de-2020-gq.yaml").read_text())
    product = document["products"]["persons"]
    product["schema"] = str((ROOT / "conf" / "run" / product["schema"]).resolve())
    allocation = ROOT / "conf" / "run" / product["privacy"]["allocation"]
    product["privacy"] = {"rho": rho, "allocation": str(allocation.resolve())}
    product["data"]["path"] = str(data)
    product["invariants"][1]["table"]["path"] = str(data)
    product["solve"]["failsafe"] = failsafe
    document["privacy"] = {"randomness": {"source": "seeded_not_for_release", "seed": seed}}
    document["output"] = {"directory": str(folder / "out")}
    config = folder / "run.yaml"
    config.write_text(yaml.safe_dump(document))
    return config


def truth_of(frame: pd.DataFrame) -> dict[str, dict[str, Counter[int]]]:
    """Persons by geolevel, geocode and cell."""
    found: dict[str, dict[str, Counter[int]]] = {}
    persons = frame[["geoid", *CELLS]].to_numpy()
    for level, digits in DIGITS.items():
        sums: dict[str, Counter[int]] = defaultdict(Counter)
        for code, *counts in persons:
            for cell, count in enumerate(counts):
                sums[code[:digits]][cell] += int(count)
        found[level] = sums
    return found


def distance(counts: Mapping[str, Mapping[int, int]], truth: Mapping[str, Counter[int]]) -> int:
    """L1."""
    return sum(
        abs(counts.get(code, {}).get(cell, 0) - count)
        for code, own in truth.items()
        for cell, count in own.items()
    )


def solved(
    way: Way, data: Path, seed: int, rho: str, truth: dict[str, dict[str, Counter[int]]]
) -> dict[str, float]:
    """What one run gives; it is verified."""
    with tempfile.TemporaryDirectory(prefix="failsafe-") as temporary:
        config = configuration(Path(temporary), data, seed, rho, way.failsafe)
        seconds = [0.0]
        move = jobs.pipeline.release.solve.moved_family

        def timed(*arguments: Any) -> Any:
            started = time.process_time()
            try:
                return move(*arguments)
            finally:
                seconds[0] += time.process_time() - started

        with pytest.MonkeyPatch.context() as patch:
            way.patch(patch)
            patch.setattr(jobs.pipeline.release.solve, "moved_family", timed)
            release = release_of(in_process.execute(config))
        verify_release(load_run(config).plan, release)
        manifest = read_manifest(release)
        moved = [one for level in manifest.solve for one in level.moved]
        persons = sum(truth["state"]["10"].values())
        return {
            "nodes": sum(level.nodes for level in manifest.solve),
            "parents_moved": len(moved),
            "persons_moved": sum(one.records for one in moved),
            "milliseconds_per_move": 1_000 * seconds[0] / max(1, len(moved)),
            **{
                level: distance(sparse(release.counts(level)), truth[level]) / persons
                for level in DIGITS
            },
        }


def main() -> None:
    """Print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer tracts, one seed")
    parser.add_argument("--tracts", type=int)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--rho", default=RHO)
    options = parser.parse_args()
    tracts = options.tracts or (QUICK_TRACTS if options.quick else TRACTS)
    seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    frame = blocks(SOURCE)
    tract = frame.geoid.str[: DIGITS["tract"]]
    kinds = frame[[f"facilities_{one}" for one in TYPES]].to_numpy() > 0
    most = pd.Series(kinds.any(1)).groupby(tract.to_numpy()).sum().sort_values(kind="stable")
    frame = frame[tract.isin(most.index[-tracts:])]
    truth = truth_of(frame)
    with tempfile.TemporaryDirectory(prefix="failsafe-") as temporary:
        data = Path(temporary) / "blocks.parquet"
        frame.to_parquet(data, index=False)
        found = {
            way.name: [solved(way, data, seed, options.rho, truth) for seed in range(seeds)]
            for way in WAYS
        }
    means = {
        name: {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
        for name, runs in found.items()
    }
    print(pd.DataFrame(means).T.round(4).to_string())
    print(json.dumps({"blocks": len(frame), "seeds": seeds, "rho": options.rho, "ways": means}))


if __name__ == "__main__":
    main()
