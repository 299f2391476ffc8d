"""What another spine costs and gains on real blocks: errors, processor seconds and memory.

    python -m bench.spines [--data FILE] [--kinds place,sldl] [--tracts EVERY] [--seeds N]

Spines of `docs/spine.md`: `census`; `split`, marked blocks apart; `regrouped`, block groups in the
place of which groups of blocks follow the entities; `gathered`, where tracts are gathered, too; `all`,
all three. FILE has the columns `geoid`, counts of 16 or 44 cells, and the kinds of entities, such as
codes of places. Without --kinds there is one, `area`: runs of 60 blocks in the order of geocodes, whatever
block group they lie in. No file has tribal areas: the marked blocks are the second half of those of every
twelfth tract, so that the mark divides tracts and block groups as a reservation does.

The allocation is that of 2020. A geolevel takes the share of the census geolevel it is made of, and a
geolevel that a design adds and the one it is made of halve theirs. Every spine is released with the same seeds, in this
process. Prints mean squared errors of released totals and of the eight groups, the mean standard
error of the unbiased estimates of totals, and of the geolevels of the census the share of the published
90 % intervals of totals that hold the truth, whether the geolevel is on the spine or not.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from bench.covariates import CELLS, RUN, counts_of
from bench.state import persons_of, production_of
from das.errors import ConfigError
from geography.lattice import Spine
from geography.respine import SpineDesign, design_spine
from jobs.analysis.estimate import IntervalSettings, estimate_areas
from jobs.pipeline.config.load import load_run
from jobs.pipeline.release.verify import verify_release
from jobs.pipeline.run import MEASURING, do_stages, open_job
from jobs.pipeline.storage.geography import read_both_geocodes
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.tasks.batches import Sizing
from jobs.pipeline.tasks.executor import LocalTasks
from jobs.pipeline.tasks.progress import Reporter
from tests.checkout import ROOT

DATA = ROOT / "tests" / "data" / "ri_2010_block.parquet"
SPLIT = {"geolevel": "state", "by": "marked"}
DESIGNS: Mapping[str, Mapping[str, Any]] = {
    "census": {},
    "split": {"split": SPLIT},
    "regrouped": {"regroup": "block_group"},
    "gathered": {"regroup": "block_group", "split_children": "county"},
    "all": {"split": SPLIT, "regroup": "block_group", "split_children": "county"},
}
RUN_OF_BLOCKS = 60  # of a made-up area
MARKED_TRACTS = 12  # the second half of every so manieth tract is marked
GROUPS = 8


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks with their truth, and what they lie in.

    Attributes:
      codes: str[N], ascending.
      counts: int64[N, 2, 8], by age and group.
      lies_in: Per kind of entity, str[N]; "" where a block lies in none.
    """

    codes: np.ndarray
    counts: np.ndarray
    lies_in: Mapping[str, np.ndarray]

    @classmethod
    def read(cls, path: Path, kinds: Sequence[str], every: int) -> Blocks:
        """Blocks of every so manieth tract of a file.

        Raises:
          ConfigError: The file has no such column, no kept block lies in an entity of a kind, or no
            block is marked.
        """
        table = pq.read_table(path)
        lacking = [one for one in ("geoid", *kinds) if one not in table.column_names]
        if lacking:
            raise ConfigError(str(path), "lacks columns", got=table.column_names, want=lacking)
        codes = np.array(table["geoid"].to_pylist())
        tracts = np.array([code[:11] for code in codes])
        kept = np.flatnonzero(np.isin(tracts, np.unique(tracts)[::every]))
        rows = kept[np.argsort(codes[kept], kind="stable")]
        column = {name: table[name].to_numpy() for name in table.column_names if name != "geoid"}
        lies_in = {kind: _texts(table, kind)[rows] for kind in kinds}
        if not kinds:
            lies_in["area"] = np.array([f"{n // RUN_OF_BLOCKS:05d}" for n in range(len(rows))])
        blocks = cls(codes[rows], counts_of(column)[rows], lies_in)
        for kind, names in blocks.areas().items():
            if not (names != "").any():
                kept_tracts = len(np.unique(tracts[rows]))
                raise ConfigError(
                    f"{path}, {kind}",
                    "has no block, so there is nothing to compare",
                    got=f"{len(rows)} blocks in {kept_tracts} tracts",
                    want=f"{MARKED_TRACTS // 2 + 1} tracts or more: a lower --tracts or another file"
                    if kind == "marked"
                    else "codes in this column, in the tracts that --tracts keeps",
                )
        return blocks

    @property
    def marked(self) -> np.ndarray:
        """bool[N]: the stand-in of tribal areas."""
        tracts, first, owner, size = np.unique(
            [code[:11] for code in self.codes],
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        place = np.arange(len(self.codes)) - first[owner]
        chosen = np.arange(len(tracts)) % MARKED_TRACTS == MARKED_TRACTS // 2
        return np.asarray(chosen[owner] & (place >= size[owner] // 2))

    def write(self, folder: Path) -> None:
        """Write the input of the run, and the public list of blocks."""
        flat = self.counts.reshape(len(self.codes), -1)
        codes = {"geoid": self.codes.tolist()}
        cells = dict(zip(CELLS, flat.T, strict=True))
        pq.write_table(pa.table({**codes, **cells}), folder / "blocks.parquet")
        lies_in = {kind: names.tolist() for kind, names in self.lies_in.items()}
        lies_in["marked"] = np.where(self.marked, "1", "").tolist()
        pq.write_table(pa.table({**codes, **lies_in}), folder / "list.parquet")

    def areas(self) -> dict[str, np.ndarray]:
        """Per kind of area off the census spine, str[N], the one that each block lies in."""
        return {**self.lies_in, "marked": np.where(self.marked, "marked", "")}


def _texts(table: pa.Table, kind: str) -> np.ndarray:
    # Cities and towns of Cook County have codes; 99999 is what lies in none.
    names = np.array(["" if one is None else str(one) for one in table[kind].to_pylist()])
    return np.where(np.char.strip(names, "9") == "", "", names)


# --- one run -------------------------------------------------------------------------------------


def write_run(folder: Path, name: str, kinds: Sequence[str], seed: int) -> Path:
    """Write the run file of a spine, and its allocation."""
    document = yaml.safe_load(RUN.read_text())
    persons = persons_of(document)
    persons["schema"] = str((RUN.parent / persons["schema"]).resolve())
    persons["data"]["path"] = str(folder / "blocks.parquet")
    del persons["data"]["checks"]
    document["privacy"] = {"randomness": {"source": "seeded_not_for_release", "seed": seed}}
    persons["output"] = {"microdata": [], "tables": ["total", "ethnicity_race"]}
    document["output"] = {"directory": str(folder / "out")}
    geography = document["geography"]
    geography["geounits"] = {"path": str(folder / "list.parquet"), "geocode": "geoid"}
    levels = [(one["name"], one["digits"]) for one in geography["levels"]]
    census = Spine(*map(tuple, zip(*levels, strict=True)))
    design = DESIGNS[name]
    spine = census
    if design:
        near = {"align_with": [*kinds]} if "regroup" in design else {}
        geography["spine"] = {**design, **near}
        split = SPLIT["geolevel"] if "split" in design else None
        spine = design_spine(
            census, SpineDesign(split, design.get("regroup"), design.get("split_children"))
        )
    written = (RUN.parent / persons["privacy"]["allocation"]).resolve()
    allocation = yaml.safe_load(production_of(written).read_text())
    allocation["levels"] = _shares(allocation["levels"], spine)
    (folder / "allocation.yaml").write_text(yaml.safe_dump(allocation, sort_keys=False))
    persons["privacy"]["allocation"] = str(folder / "allocation.yaml")
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def _shares(levels: Mapping[str, Any], spine: Spine) -> dict[str, Any]:
    """The allocation on another spine; what comes of one geolevel halves its share."""
    made_of = [
        next(one for one in sorted(levels, key=len, reverse=True) if name.startswith(one))
        for name in spine.levels
    ]
    return {
        name: {
            **levels[origin],
            "share": str(Fraction(levels[origin]["share"]) / made_of.count(origin)),
        }
        for name, origin in zip(spine.levels, made_of, strict=True)
    }


def released(blocks: Blocks, name: str, seed: int) -> dict[str, Any]:
    """Errors of one release on one spine, and what it took."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        blocks.write(folder)
        resolved = load_run(write_run(folder, name, [*blocks.lies_in], seed))
        plan, layout = resolved.plan, resolved.last.release
        started, seconds = time.process_time(), dict[str, float]()
        with open_job(resolved, Reporter(quiet=True), tasks=LocalTasks(Sizing(1))) as job:
            for stage in (*MEASURING, "estimate", "solve"):
                do_stages(job, (stage,))
                seconds[stage] = time.process_time() - started - sum(seconds.values())
            do_stages(job, ("write", "finalize"))
        verify_release(plan, layout)
        own, census = read_both_geocodes(layout, "block")
        back = np.argsort(census)
        found = read_counts(layout, "block", own, plan.schema.size).dense()[back]
        assert (census[back] == blocks.codes).all()
        off = found.reshape(blocks.counts.shape) - blocks.counts
        assert off.sum() == 0  # the total of the state is exact, whatever its parts
        table: dict[str, Any] = {"geounits": int(sum(job_sizes(layout, plan)))}
        for level, digits in zip(plan.census_spine.levels, plan.census_spine.digits, strict=True):
            if level != "state":
                names = np.array([code[:digits] for code in blocks.codes])
                table[level] = {**_errors(off, names), **_intervals(layout, level, names, blocks)}
        for kind, names in blocks.areas().items():
            table[kind] = _errors(off, names)
            table[kind]["standard_error"] = _standard_error(resolved, names, blocks.codes)
        table["seconds"] = {stage: round(value, 1) for stage, value in seconds.items()}
        table["peak_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        return table


def job_sizes(layout: Any, plan: Any) -> list[int]:
    """Geounits of each geolevel of the spine."""
    return [len(read_both_geocodes(layout, name)[0]) for name in plan.spine.levels]


def _errors(off: np.ndarray, names: np.ndarray) -> dict[str, float]:
    """Mean squared errors of the areas that are named, of totals and of groups."""
    _, owner = np.unique(names, return_inverse=True)
    sums = np.zeros((owner.max() + 1, GROUPS))
    np.add.at(sums, owner, off.sum(1))
    sums = sums[np.unique(owner[names != ""])]
    return {"total": float((sums.sum(1) ** 2).mean()), "groups": float((sums**2).mean())}


def _intervals(layout: Any, level: str, names: np.ndarray, blocks: Blocks) -> dict[str, float]:
    """Mean standard error of the published estimates of totals, and how many intervals hold."""
    table = pq.read_table(Path(str(layout.tables(level))) / "total.parquet").sort_by("geocode")
    codes, owner = np.unique(names, return_inverse=True)
    true = np.zeros(len(codes))
    np.add.at(true, owner, blocks.counts.sum((1, 2)))
    assert table["geocode"].to_pylist() == codes.tolist()
    lower, upper, error = (
        table[name].to_numpy() for name in ("estimate_lower", "estimate_upper", "standard_error")
    )
    return {
        "standard_error": float(error.mean()),
        "covered": float(((lower <= true) & (true <= upper)).mean()),
    }


def _standard_error(resolved: Any, names: np.ndarray, codes: np.ndarray) -> float:
    """Mean standard error of the unbiased estimates of totals."""
    areas = {name: codes[names == name].tolist() for name in np.unique(names[names != ""])}
    plan, layout = resolved.plan, resolved.last.release
    rows = estimate_areas(
        plan, layout, "total", areas, [], IntervalSettings(0.9, simultaneous=False, positive=False)
    )
    return float(np.mean(rows["standard_error"].to_numpy()))


# --- all of them ---------------------------------------------------------------------------------


def averaged(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over runs, key by key; of memory the most."""
    first = found[0]
    return {
        key: averaged([one[key] for one in found])
        if isinstance(first[key], dict)
        else (max if key == "peak_gb" else np.mean)([one[key] for one in found])
        for key in first
    }


def show(blocks: Blocks, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the table."""
    print(f"{len(blocks.codes):,} blocks, {int(blocks.counts.sum()):,} persons, "
          f"{int(blocks.marked.sum()):,} marked blocks; mean squared errors")  # fmt: skip
    print(f"{'':<30}" + "".join(f"{name:>14}" for name in found))
    for key, value in next(iter(found.values())).items():
        for part in value if isinstance(value, dict) else [""]:
            cells = [one[key][part] if part else one[key] for one in found.values()]
            print(f"{key + ' ' + part:<30}" + "".join(f"{cell:>14.4g}" for cell in cells))


def main() -> None:
    """Every spine in a process of its own, so that memory is its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--kinds", default="")
    parser.add_argument("--tracts", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--spines", default=",".join(DESIGNS))
    parser.add_argument("--one", type=int, default=0, help="seed of one release; prints its JSON")
    asked = parser.parse_args()
    kinds = [kind for kind in asked.kinds.split(",") if kind]
    unknown = [name for name in asked.spines.split(",") if name not in DESIGNS]
    if unknown:
        parser.error(f"--spines has no {unknown[0]!r}; there are {', '.join(DESIGNS)}")
    if asked.tracts < 1:
        parser.error("--tracts wants 1 or more")
    try:
        blocks = Blocks.read(asked.data, kinds, asked.tracts)
    except (ConfigError, FileNotFoundError) as error:
        parser.error(str(error))
    if asked.one:
        print(json.dumps(released(blocks, asked.spines, asked.one)))
        return
    own = [sys.executable, "-m", "bench.spines", "--data", str(asked.data)]
    own += ["--kinds", asked.kinds, "--tracts", str(asked.tracts)]
    found = {}
    for name in asked.spines.split(","):
        runs = []
        for seed in range(1, asked.seeds + 1):
            words = [*own, "--spines", name, "--one", str(seed)]
            done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                sys.exit(f"spines.py: the release on {name} failed with seed {seed}, as said above")
            runs.append(json.loads(done.stdout.splitlines()[-1]))
        found[name] = averaged(runs)
        print(name, json.dumps(found[name]), flush=True)
    show(blocks, found)


if __name__ == "__main__":
    main()
