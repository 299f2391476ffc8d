"""Samplers and solvers of others beside ours, in the same run.

    python -m bench.peers [--quick] [--reference FILE] [--limit SECONDS] [--highs-python PYTHON]

Samplers draw discrete Gaussian noise of sigma^2 = 10 and 100: ours in rows of the largest redistricting
query, with its random words; OpenDP's (`pip install opendp`); the readable one of the tests; and the
authors' own of Canonne, Kamath and Steinke, which the Census Bureau's system ships, if its file
`discretegauss.py` is named. Nanoseconds are of processor time of one core, the least of five shares.
Solvers (Clarabel, OSQP, PIQP of the extra `test` and `piqp`, HiGHS of `pip install highspy`, Gurobi
with a licence) solve nodes of leaves, of a block group, of a tract and of a state, as in
`bench.l2_nodes`. What is not installed is said and left out. Prints tables and one line of
JSON: sampler -> sigma^2 -> {nanoseconds, ratio_to_ours}, and geolevel -> solver -> {seconds, ratio,
relative_gap}; a ratio above 1 says how much longer the other takes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from bench import l2_nodes
from bench.sampler import ROW_CELLS, opendp_rate, rate, reference_rate, release_rate

SIGMA_SQ = ("10", "100")


def authors_rate(file: Path, sigma_sq: Fraction, *, seconds: float) -> float:
    """Draws per second of `sample_dgauss` of a file that the user names."""
    spec = importlib.util.spec_from_file_location("discretegauss", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(_: int) -> int:
        for _draw in range(50):
            module.sample_dgauss(sigma_sq)
        return 50

    return rate(run, seconds=seconds)


def samplers(reference: Path | None, seconds: float) -> dict[str, dict[str, dict[str, float]]]:
    """Nanoseconds per draw of each sampler."""
    kinds: dict[str, Callable[[Fraction], float | None]] = {
        "ours": lambda scale: release_rate(scale, ROW_CELLS, seconds=seconds),
        "opendp": lambda scale: opendp_rate(scale, seconds=seconds),
        "readable": lambda scale: reference_rate(scale, seconds=seconds),
    }
    if reference is not None:
        kinds["authors"] = lambda scale: authors_rate(reference, scale, seconds=seconds)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for text in SIGMA_SQ:
        ours = 0.0
        for name, draws in kinds.items():
            per_second = draws(Fraction(text))
            if per_second is None:
                print(f"{name:<10} is not installed: pip install {name}")
                continue
            ours = ours or per_second
            row = {"nanoseconds": 1e9 / per_second, "ratio_to_ours": ours / per_second}
            found.setdefault(name, {})[text] = {key: round(one, 2) for key, one in row.items()}
            print(
                f"{name:<10} sigma^2 {text:>4}{row['nanoseconds']:>14,.1f} ns"
                f"{row['ratio_to_ours']:>12,.0f} times ours",
                flush=True,
            )
    if reference is None:
        print("authors    is not named: --reference FILE, discretegauss.py of their repository")
    return found


def solvers(limit: float, *, quick: bool) -> dict[str, object]:
    """Seconds and accuracy of each solver on nodes of each geolevel."""
    found: dict[str, object] = {}
    for spec in l2_nodes.NODES:
        if quick and spec[0] == "tract":
            continue
        row = l2_nodes.compare(spec, limit)
        peers = row["peers"]
        assert isinstance(peers, dict)
        own = {"seconds": row["seconds"], "ratio": 1.0, "certificate": row["certificate"]}
        found[spec[0]] = {"ours": own, **peers}
    return found


def main() -> None:
    """Measure, print tables, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="end within two minutes")
    parser.add_argument("--reference", type=Path, help="discretegauss.py of the authors")
    parser.add_argument("--limit", type=float, help="seconds a solver gets per node; 60, or 20")
    parser.add_argument("--highs-python", default=sys.executable, help="Python that has highspy")
    arguments = parser.parse_args()
    l2_nodes.HIGHS_PYTHON = arguments.highs_python
    limit = arguments.limit or (20.0 if arguments.quick else 60.0)
    seconds = 1.0 if arguments.quick else 5.0
    print(
        json.dumps(
            {
                "samplers": samplers(arguments.reference, seconds),
                "nodes": solvers(limit, quick=arguments.quick),
            }
        )
    )


if __name__ == "__main__":
    main()
