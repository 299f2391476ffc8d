"""Dirty CSV files of a census or a survey, and the records that Python's csv reads in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.builders import survey
from tests.builders.dirty_csv import BROKEN_NOTES, DIRT, NOTES, expected
from tests.builders.run_files import to_products
from tests.fuzz.case import Case, Rng, people, write_toy, yaml_text


def dirty_csv(rng: Rng, rows: Sequence[Sequence[str]]) -> bytes:
    """Write a table with a column of texts that no reader uses, which may break rows; add dirt."""
    at, end = rng.randint(0, len(rows[0])), rng.choice(("\n", "\r\n"))
    notes = ["note", *(rng.choice(NOTES) for _ in rows[1:])]
    for _ in range(rng.choice((0, 0, 1, 2))):
        notes[rng.randrange(1, len(notes))] = rng.choice(BROKEN_NOTES)
    written = [[*row[:at], note, *row[at:]] for row, note in zip(rows, notes, strict=True)]
    content = bytearray("".join(",".join(row) + end for row in written).encode())
    for _ in range(rng.choice((0, 0, 1, 2))):
        place = rng.randrange(len(content))
        content[place:place] = rng.choice(DIRT)
    if rng.random() < 0.1:
        del content[rng.randrange(len(content)) :]
    return bytes(content)


def make_dirty(rng: Rng, folder: Path) -> Case:
    """A valid run file and a dirty file of its records, some of more than a block of 1 MiB."""
    quoting, kind = rng.choice(("double", "double", "none")), rng.choice(("census", "survey"))
    account, times = folder / "account.jsonl", rng.choice((1, 1, 1, 1, 400))
    if kind == "census":
        run, path = write_toy(folder, rng), folder / "records.csv"
        run["data"]["quoting"] = quoting
        (folder / "run.yaml").write_text(yaml_text(to_products(run)))
        rows = [("block", "sex", "age"), *people(rng) * times]
    else:
        mean = {"mean": "age", "low": 0, "high": 100, "sd_bound": 25, "share": "1"}
        survey.configure(
            folder,
            privacy={"rho": "1", "neighbors": "unbounded", "account": str(account)},
            data__quoting=quoting,
            statistics=[mean],
            synthesis=None,
        )
        path = folder / "persons.csv"
        rows = [("SEX", "GROUP", "AGE", "INCOME")]
        rows += survey.people(120, seed=rng.randrange(1 << 30)) * times
    content = dirty_csv(rng, rows)
    path.write_bytes(content)
    table, fault = expected(content, quoting)
    if fault == "not UTF-8":  # columns that no reader uses may be of any encoding
        mark = b"\xef\xbb\xbf"
        table, fault = expected(content.removeprefix(mark).decode("latin-1").encode(), quoting)
    return Case(
        "dirty",
        f"{kind}, {quoting}, {len(content)} bytes; {fault or 'sound'}",
        [
            "run",
            str(folder / "run.yaml"),
            "--quiet",
            *(["--only", "measure"] if kind == "census" else []),
        ],
        account=account,
        out=folder / "out",
        records=None if fault else len(table) - 1,
        fault=fault,
    )
