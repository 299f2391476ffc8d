"""A census as an office has it: semicolons, BOM, codes, numbers for geocodes, columns nobody needs.

`python -m tests.builders.foreign FOLDER` writes the files of tests/data/villages. All of it is
invented.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

AGES = (*(f"{low}-{low + 4}" for low in range(0, 85, 5)), "85+")
SEXES = ("1", "2")
STATUSES = ("1", "2", "3", "4", "9")  # single, married, widowed, divorced, not stated
NATIONS = ("NAT", "EUR", "AFR", "OTH")
PROVINCES = (("01", 3), ("02", 2), ("11", 2))
_EMPTY = 9  # one of so many villages has nobody


def villages() -> list[tuple[str, str]]:
    """Geocodes of province, district and village, of two digits each, and names."""
    found = []
    for province, districts in PROVINCES:
        for district in range(1, districts + 1):
            for village in range(1, 6 + district):
                code = f"{province}{district:02d}{village:02d}"
                found.append((code, f"Village {len(found) + 1}"))
    return found


def persons(seed: int = 7) -> list[tuple[str, ...]]:
    """Rows of the records: leading zeros of the geocodes are lost, as a spreadsheet writes them."""
    rng, rows = random.Random(seed), []
    for index, (code, _) in enumerate(villages()):
        if index % _EMPTY == 4:
            continue
        for _ in range(rng.choice((3, 8, 20, 45))):
            age = min(rng.randrange(18), rng.randrange(18))
            status = "1" if age < 4 else rng.choice(STATUSES)
            nation = rng.choices(NATIONS, (90, 6, 3, 1))[0]
            income = str(rng.randrange(900, 60_000)) if age > 3 else ""
            about = (rng.choice(SEXES), AGES[age], status, nation, income)
            rows.append((str(len(rows) + 1), str(int(code)), str(int(code[:2])), *about))
    return rows


def write(folder: Path) -> None:
    """Write persons.csv, as Excel does, and villages.csv, the public list."""
    header = ("No", "Village", "Prov", "Sex", "agegrp ", "Marital status", "Nationality", "Income")
    lines = [";".join(row) for row in (header, *persons())]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "persons.csv").write_bytes(("\r\n".join([*lines, ""])).encode("utf-8-sig"))
    listed = [f"{int(code)};{name};{int(code[:2])}" for code, name in villages()]
    text = "\r\n".join(["Village;Name;Prov", *listed, ""])
    (folder / "villages.csv").write_bytes(text.encode("utf-8-sig"))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
