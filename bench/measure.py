"""The measure stage of a generated state with the schema and allocation of the 2020 PL94 persons.

    python -m bench.measure [--blocks N] [--quick]

Reads nothing from outside: `das generate` makes the state, `das run RUN --only measure` reads it and draws. Only
the measure stage counts: true answers, exact noise, compressed Parquet, publication, on all six
geolevels. The entropy column is that of the noise alone, the least that any format could take.
Prints a table and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from fractions import Fraction
from pathlib import Path

from bench.state import configuration, das
from tests.builders.places import release_of


def entropy_bits(sigma_sq: Fraction) -> float:
    """Entropy of one draw of the discrete Gaussian, in bits, by that of the normal law."""
    return 0.5 * math.log2(2 * math.pi * math.e * max(float(sigma_sq), 0.3))


def main() -> None:
    """Measure, print a table, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int)
    parser.add_argument("--quick", action="store_true", help="2,500 blocks instead of 25,000")
    arguments = parser.parse_args()
    arguments.blocks = arguments.blocks or (2_500 if arguments.quick else 25_000)
    arguments.input = None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = configuration(arguments, folder)
        das("run", "--only", "measure", config)
        out = folder / "out"
        spent = json.loads((out / "summary.json").read_text())["stages"]["measure"]
        lines = [json.loads(t) for t in (release_of(out).ledger).read_text().splitlines()]
        plan = next(line for line in lines if line["event"] == "planned")
        rows = []
        for level in plan["spine"]:
            folder_of = release_of(out).measurements(level)
            manifest = json.loads((folder_of / "_manifest.json").read_text())
            size = {q["query"]: q["answers"] for q in manifest["facts"]["queries"]}
            here = [e for e in plan["entries"] if e["geolevel"] == level]
            rows.append(
                {
                    "geolevel": level,
                    "numbers": sum(e["geounits"] * size[e["query"]] for e in here),
                    "bytes": sum(part["bytes"] for part in manifest["files"]),
                    "entropy_bytes": sum(
                        e["geounits"]
                        * size[e["query"]]
                        * entropy_bits(Fraction(e["parameter"]))
                        / 8
                        for e in here
                    ),
                }
            )
    print(f"{'geolevel':<14}{'numbers':>14}{'MB':>10}{'bytes/number':>14}{'entropy':>10}")
    for row in (row for row in rows if row["numbers"]):
        print(
            f"{row['geolevel']:<14}{row['numbers']:>14,}{row['bytes'] / 1e6:>10.1f}"
            f"{row['bytes'] / row['numbers']:>14.3f}{row['entropy_bytes'] / row['numbers']:>10.3f}"
        )
    numbers, size = sum(r["numbers"] for r in rows), sum(r["bytes"] for r in rows)
    result = {
        "blocks": arguments.blocks,
        "numbers": numbers,
        "seconds": round(spent["seconds"], 2),
        "core_seconds": round(spent["core_seconds"], 2),
        "numbers_per_second": round(numbers / spent["seconds"]),
        "bytes_per_number": round(size / numbers, 4),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
