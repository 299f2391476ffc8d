"""Hostile inputs: CSV, Parquet and zip files as people and broken programs make them."""

from __future__ import annotations

import csv
import io
import warnings
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.builders.run_files import to_products
from tests.builders.toy import AGE, SEX, blocks
from tests.fuzz.case import Case, Rng, people, write_csv, write_toy, yaml_text
from tests.fuzz.configurations import flipped

VALUES = [
    *("", "-1", "1e5", "9" * 25, "999999999999999999", " 3 ", "NaN", "inf", "\x00", "é", "'", '"'),
    *("0x10", "3.5", "None", "null", "=1+1", "a" * 70_000, "９", "١", "-0", "+3", "00003", "1,2"),  # noqa: RUF001
    *("\ufeff3", "\x1b[2J", "[/x]", "{0}", "9901", "9900100000", "true", "1/2", "\u200b", "a\tb"),
]


def histogram(rng: Rng) -> dict[str, list[int]]:
    """Six counts of every block."""
    table = {code: [0] * 6 for code in blocks()}
    for code, sex, age in people(rng):
        table[code][SEX.index(sex) * 3 + AGE.index(age)] += 1
    return table


def rows_of(rng: Rng, kind: str) -> list[list[Any]]:
    """A valid table with its header."""
    if kind == "records":
        return [["block", "sex", "age"], *(list(row) for row in people(rng))]
    if kind == "block_table":
        rows = [[code, *counts, sum(counts)] for code, counts in histogram(rng).items()]
        return [["geocode", *(f"c{i}" for i in range(6)), "sum"], *rows]
    if kind == "public":
        return [["geocode", "female"], *([code, rng.randrange(2)] for code in blocks())]
    return [["geocode"], *([code] for code in blocks())]


def csv_text(rows: list[list[Any]]) -> str:
    """Lines as the standard library writes them."""
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()


def hostile_csv(rng: Rng, rows: list[list[Any]]) -> tuple[str, bytes]:
    """A valid table after something was done to it: what, and its bytes."""
    at = rng.randrange(1, len(rows))
    column = rng.randrange(len(rows[0]))
    how = rng.choice(list(CSV))
    if how == "value":
        rows[at][column] = rng.choice(VALUES)
        return f"value {rows[at][column]!r:.30}", csv_text(rows).encode("utf-8", "surrogatepass")
    return how, CSV[how](rng, rows, at, column)


def _changed_header(rng: Rng, rows: list[list[Any]]) -> bytes:
    header = rows[0]
    rows[0] = rng.choice(
        [
            [*header, "x"],
            [name.upper() for name in header],
            header + header,
            header[::-1],
            [name + " " for name in header],
            ['"' + header[0], *header[1:]],
            header[:-1],
            ["", *header[1:]],
        ]
    )
    return csv_text(rows).encode()


CSV: dict[str, Callable[[Rng, list[list[Any]], int, int], bytes]] = {
    "value": lambda rng, rows, at, column: b"",
    "cell gone": lambda rng, rows, at, column: (
        rows[at].pop(column),
        csv_text(rows).encode(),
    )[1],
    "cut": lambda rng, rows, at, column: csv_text(rows).encode()[: rng.randrange(400)],
    "mark": lambda rng, rows, at, column: b"\xef\xbb\xbf" + csv_text(rows).encode(),
    "utf-16": lambda rng, rows, at, column: csv_text(rows).encode("utf-16"),
    "latin-1": lambda rng, rows, at, column: csv_text(rows).encode().replace(b"e", b"\xe9", 3),
    "line ends": lambda rng, rows, at, column: (
        csv_text(rows)
        .replace("\r\n", rng.choice(["\r", "\n\n", "\r\r\n", " \r\n", "\n", "\x0b", "\u2028"]))
        .encode()
    ),
    "no table": lambda rng, rows, at, column: rng.choice(
        [
            *(b"", b"\n", bytes(500), b"a,b\n1,2\n", b"PAR1" + rng.randbytes(100) + b"PAR1"),
            *(rng.randbytes(400), ",".join(rows[0]).encode(), b"\n\n\n", b'"', b",,,,\n,,,,\n"),
        ]
    ),
    "no header": lambda rng, rows, at, column: csv_text(rows[1:]).encode(),
    "header": lambda rng, rows, at, column: _changed_header(rng, rows),
    "row twice": lambda rng, rows, at, column: csv_text([*rows, rows[at]]).encode(),
    "delimiter": lambda rng, rows, at, column: (
        csv_text(rows).replace(",", rng.choice([";", "\t", "|", ", "])).encode()
    ),
    "quotes": lambda rng, rows, at, column: (
        csv_text(rows)
        .replace("99", rng.choice(['"99"', '"99', '""99', "'99'", '\\"99']), 3)
        .encode()
    ),
    "flips": lambda rng, rows, at, column: flipped(rng, csv_text(rows).encode()),
    "null bytes": lambda rng, rows, at, column: csv_text(rows).encode().replace(b"9", b"\x00", 2),
    "unknown block": lambda rng, rows, at, column: csv_text(
        [*rows, ["9999999999", *rows[at][1:]]]
    ).encode(),
    "large field": lambda rng, rows, at, column: csv_text(
        [*rows[:at], [*rows[at][:-1], "x" * rng.choice([200_000, 2_000_000])], *rows[at:]]
    ).encode(),
    "open quote": lambda rng, rows, at, column: (
        csv_text(rows[:at]) + '"' + csv_text(rows[at:]) * rng.choice([1, 50])
    ).encode(),
    "long line": lambda rng, rows, at, column: csv_text(rows).encode() + b"9" * (9 << 20),
    "wide": lambda rng, rows, at, column: csv_text([row + ["x"] * 3000 for row in rows]).encode(),
}


def arrow_table(rng: Rng, kind: str) -> pa.Table:
    """A valid table as Arrow holds it."""
    if kind == "histograms":
        lists = pa.list_(pa.int64())
        table = histogram(rng)
        cells = [[i for i, n in enumerate(counts) if n] for counts in table.values()]
        counts = [[n for n in counts if n] for counts in table.values()]
        columns = [pa.array(list(table)), pa.array(cells, lists), pa.array(counts, lists)]
        return pa.table(columns, names=["geocode", "cells", "counts"])
    header, *rows = rows_of(rng, kind)
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(header)})


def _types(rng: Rng, values: list[Any]) -> dict[str, Callable[[], pa.Array]]:
    n = len(values)
    floats = [0.5, 1.0, float("nan"), float("inf"), 1e300, -0.0, 9.3e18]
    return {
        "null": lambda: pa.nulls(n),
        "int8": lambda: pa.array([1] * n, pa.int8()),
        "uint64": lambda: pa.array([2**64 - 1] * n, pa.uint64()),
        "float": lambda: pa.array([rng.choice(floats) for _ in values]),
        "half float": lambda: pa.array([1.0] * n).cast(pa.float16()),
        "bool": lambda: pa.array([True] * n),
        "binary": lambda: pa.array([str(v).encode() for v in values]),
        "binary that is no text": lambda: pa.array([b"\xff\xfe"] * n),
        "large string": lambda: pa.array([str(v) for v in values], pa.large_string()),
        "string view": lambda: pa.array([str(v) for v in values]).cast(pa.string_view()),
        "dictionary": lambda: pa.array(
            [str(v) if rng.random() > 0.05 else None for v in values]
        ).dictionary_encode(),
        "dictionary of numbers": lambda: pa.array([1, 2] * n)[:n].dictionary_encode(),
        "date": lambda: pa.array([1] * n, pa.date32()),
        "timestamp": lambda: pa.array([1] * n, pa.timestamp("us")),
        "duration": lambda: pa.array([1] * n, pa.duration("s")),
        "time": lambda: pa.array([1] * n, pa.time32("s")),
        "decimal": lambda: pa.array([Decimal("1.50")] * n),
        "large decimal": lambda: pa.array([Decimal(10**40)] * n, pa.decimal256(60, 0)),
        "struct": lambda: pa.array([{"a": 1}] * n),
        "list of text": lambda: pa.array([["a"]] * n),
        "large list": lambda: pa.array(
            [v if isinstance(v, list) else [1] for v in values], pa.large_list(pa.int32())
        ),
        "list of lists": lambda: pa.array([[[1]]] * n),
        "fixed list": lambda: pa.array([[1, 2]] * n, pa.list_(pa.int64(), 2)),
        "list of floats": lambda: pa.array([[1.0]] * n),
        "map": lambda: pa.array([[("a", 1)]] * n, pa.map_(pa.string(), pa.int64())),
        "fixed binary": lambda: pa.array([b"ab"] * n, pa.binary(2)),
        "large counts": lambda: pa.array([10**18 - 1] * n),
        "run ends": lambda: pa.RunEndEncodedArray.from_arrays([n], ["x"]),
    }


LISTS: list[Any] = [
    *([-1], [6], [2**62], [0, 0], [3, 1], [None], None, [], [1, 2, 3], [10**18 - 1], [-5], [0]),
    *([2**63 - 1], [0] * 5000),
]
CODES = [
    *("", "é" * 5, "a" * 10, "990010000", "99001000000", "9\x000100000", " male", "unknown"),
    *("99001\u0660000", "\ud7ff" * 10, "9" * 100_000, "9900100000", "0", "99-0100000"),
]


def hostile_parquet(rng: Rng, kind: str, path: Path) -> str:
    """Write a Parquet file with something wrong; returns what."""
    table = arrow_table(rng, kind)
    names = table.column_names
    column = rng.choice(names)
    at, values = names.index(column), table.column(column).to_pylist()
    how = rng.choice(
        [
            *(
                "null value",
                "type",
                "type",
                "type",
                "list",
                "list",
                "column gone",
                "twice",
                "empty",
            ),
            *("code", "column twice", "largest", "cut", "flips", "flips", "row groups", "name"),
        ]
    )
    note = f"{how} {column}"
    if how == "null value":
        values[rng.randrange(len(values))] = None
        table = table.set_column(at, column, pa.array(values, table.column(column).type))
    elif how == "type":
        made = _types(rng, values)
        chosen = rng.choice(list(made))
        note += f" {chosen}"
        table = table.set_column(at, column, made[chosen]())
    elif how == "list" and isinstance(values[0], list):
        values[rng.randrange(len(values))] = rng.choice(LISTS)
        table = table.set_column(at, column, pa.array(values, table.column(column).type))
    elif how == "column gone":
        table = table.drop_columns([column])
    elif how == "twice":
        table = pa.concat_tables([table, table])
    elif how == "empty":
        table = table.slice(0, 0)
    elif how == "code" and isinstance(values[0], str):
        values[rng.randrange(len(values))] = rng.choice(CODES)
        table = table.set_column(at, column, pa.array(values))
    elif how == "column twice":
        table = table.append_column(column, table.column(column))
    elif how == "name":
        table = table.rename_columns([rng.choice(["", "\x00", "a.b", n, n, n]) for n in names])
    elif how == "largest" and isinstance(values[0], int):
        large = [0, 1, -1, 10**18, 2**63 - 1, 10**18 - 1]
        table = table.set_column(at, column, pa.array([rng.choice(large) for _ in values]))
    try:
        pq.write_table(table, path, row_group_size=5 if how == "row groups" else None)
    except (pa.ArrowException, ValueError):  # Parquet has no such type
        return hostile_parquet(rng, kind, path)
    data = path.read_bytes()
    if how == "cut":
        path.write_bytes(data[: rng.randrange(len(data))])
    elif how == "flips":
        path.write_bytes(flipped(rng, data))
    return note


# --- PL 94-171 -----------------------------------------------------------------------------------


def pl94_files(n: int = 6) -> dict[str, bytes]:
    """A valid state of n - 1 blocks, each with five persons of one kind and three homes."""
    geo: list[str] = []
    parts: dict[int, list[str]] = {1: [], 2: [], 3: []}
    five = {0: 5, 1: 5, 2: 5}
    p1 = [five.get(column, 0) for column in range(71)]
    p2 = [5 if column in (0, 2, 3, 4) else 0 for column in range(73)]
    for index in range(n):
        level, record = "750" if index else "040", f"{index + 1:07d}"
        head = ["PLST", "DE", level, "00", "00", "000", "00", record, "x", f"10001{index:010d}"]
        geo.append("|".join(head + [""] * 87))
        for segment, counts in ((1, p1 + p2), (2, [*p1, *p2, 3, 2, 1]), (3, [0] * 10)):
            lead = ["PLST", "DE", "000", f"{segment:02d}", record]
            parts[segment].append("|".join(lead + [str(count) for count in counts]))
    lines = {"degeo2020.pl": geo, **{f"de0000{s}2020.pl": rows for s, rows in parts.items()}}
    return {name: ("\n".join(rows) + "\n").encode() for name, rows in lines.items()}


def set_everywhere(data: bytearray, offset: int, value: int) -> None:
    """Set a byte in the local and the central header of every member of a zip."""
    for mark, skip in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        at = -1
        while (at := data.find(mark, at + 1)) >= 0:
            data[at + skip + offset] = value


def hostile_pl94(rng: Rng, path: Path) -> str:
    """Write a zip of summary files with something wrong; returns what."""
    files = pl94_files()
    name = rng.choice(list(files))
    lines = files[name].decode().split("\n")
    at = rng.randrange(len(lines) - 1)
    fields = lines[at].split("|")
    how = rng.choice(
        [
            *(
                "field",
                "field",
                "field",
                "cut",
                "empty",
                "gone",
                "delimiter",
                "line twice",
                "folder",
            ),
            *(
                "member twice",
                "truncated",
                "flips",
                "flips",
                "encrypted",
                "method",
                "stream",
                "bomb",
            ),
            *("many members", "no zip", "long line", "line gone"),
        ]
    )
    if how == "field":
        wrong = ["", "-1", "x", "9" * 30, "999999999999999999", "1.5", "é", "750", "\x00", "1e15"]
        fields[rng.randrange(len(fields))] = rng.choice(wrong)
        lines[at] = "|".join(fields)
        files[name] = "\n".join(lines).encode("latin-1")
    elif how == "cut":
        files[name] = files[name][: rng.randrange(len(files[name]))]
    elif how == "empty":
        files[name] = b""
    elif how == "gone":
        del files[name]
    elif how == "delimiter":
        files[name] = files[name].replace(b"|", b",")
    elif how == "line twice":
        files[name] = "\n".join([*lines[:at], *lines[at:][:1], *lines[at:]]).encode()
    elif how == "line gone":
        files[name] = "\n".join(lines[:at] + lines[at + 1 :]).encode()
    elif how == "bomb":
        files[name] = bytes(rng.choice([1 << 20, 24 << 20]))
    elif how == "long line":
        files[name] = files[name] + b"|" * (9 << 20)
    methods = [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    method = zipfile.ZIP_STORED if how == "stream" else rng.choice(methods)
    with zipfile.ZipFile(path, "w", method) as archive:
        for member, content in files.items():
            archive.writestr(("../../x/" if how == "folder" else "") + member, content)
        if how == "many members":
            for index in range(2000):
                archive.writestr(f"x{index}/degeo2020.pl", b"")
    if how == "member twice":
        with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(path, "a") as archive:
            archive.writestr("degeo2020.pl", b"twice")
    data = bytearray(path.read_bytes())
    if how == "truncated":
        del data[rng.randrange(len(data)) :]
    elif how == "flips":
        data[:] = flipped(rng, bytes(data))
    elif how == "encrypted":
        set_everywhere(data, 6, 1)
    elif how == "method":
        set_everywhere(data, 8, rng.choice([1, 6, 9, 97, 99]))
    elif how == "stream":
        set_everywhere(data, 8, rng.choice([8, 12, 14]))
    elif how == "no zip":
        data[:] = rng.choice([b"", b"PK\x05\x06" + bytes(18), rng.randbytes(400), b"PK\x03\x04"])
    path.write_bytes(bytes(data))
    return f"{how} {name}"


def _pl94_run(rng: Rng, folder: Path, run: dict[str, Any]) -> str:
    path = folder / "de2020.pl.zip"
    note = hostile_pl94(rng, path)
    product, axis, size = rng.choice(
        [("housing_units", "occupancy", 2), ("group_quarters", "hhgq", 8)]
    )
    schema = {"name": "s", "attributes": [{"name": axis, "levels": list("abcdefgh"[:size])}]}
    levels = {"state": 2, "county": 5, "tract": 11, "block": 15}
    shares = {name: {"share": "1/4", "queries": {"detailed": "1"}} for name in levels}
    (folder / "schema.yaml").write_text(yaml_text(schema))
    (folder / "allocation.yaml").write_text(yaml_text({"name": "a", "levels": shares}))
    if rng.random() < 0.2:  # the folder instead
        with zipfile.ZipFile(folder / "x.zip", "w") as archive:
            archive.writestr("readme.txt", "x")
        path = folder
    run["data"] = {"input_format": "pl94", "path": str(path), "product": product}
    run["geography"] = {
        "levels": [{"name": name, "digits": digits} for name, digits in levels.items()]
    }
    return note


def make_input(rng: Rng, folder: Path) -> Case:
    """Valid configuration, one input with something wrong, for `das run RUN --only measure` and `das run`."""
    run = write_toy(folder, rng)
    kinds = ["records", "records", "block_table", "block_table", "histograms", "histograms"]
    kind = rng.choice([*kinds, "list", "pl94", "pl94", "public"])
    if kind == "pl94":
        note = _pl94_run(rng, folder, run)
    elif kind == "public":
        note = _public_run(rng, folder, run)
    elif kind == "list":
        if rng.random() < 0.5:
            note, data = hostile_csv(rng, rows_of(rng, kind))
            (folder / "blocks.csv").write_bytes(data)
        else:
            run["geography"]["geounits"]["path"] = str(folder / "blocks.parquet")
            note = hostile_parquet(rng, kind, folder / "blocks.parquet")
    else:
        ending = "parquet" if kind == "histograms" or rng.random() < 0.5 else "csv"
        path = folder / f"data.{ending}"
        if ending == "csv":
            note, data = hostile_csv(rng, rows_of(rng, kind))
            path.write_bytes(data)
        else:
            note = hostile_parquet(rng, kind, path)
        run["data"] = {"input_format": kind, "path": str(path)}
        if kind == "records":
            run["data"] |= {"geocode": "block", "columns": {"sex": "sex", "age": "age"}}
        elif kind == "block_table":
            cells = [{"sex": sex, "age": age} for sex in SEX for age in AGE]
            columns = {f"c{index}": cell for index, cell in enumerate(cells)}
            run["data"] |= {"columns": columns, "checks": {"sum": {}}}
    if kind not in ("pl94", "list") and rng.random() < 0.25:
        del run["geography"]["geounits"]
    if rng.random() < 0.2 and kind != "pl94":
        run["privacy"]["on_demand_queries"] = ["detailed"]
        run["solve"] = {"fit_to": "level"}
    (folder / "run.yaml").write_text(yaml_text(to_products(run)))
    part = [] if rng.random() < 0.12 else ["--only", "measure"]
    return Case(
        "input",
        f"{kind}: {note}",
        ["run", str(folder / "run.yaml"), "--quiet", *part],
        account=folder / "account.jsonl",
        out=folder / "out",
    )


def _public_run(rng: Rng, folder: Path, run: dict[str, Any]) -> str:
    """Facility counts or a published table with something wrong."""
    if rng.random() < 0.6:
        note, data = hostile_csv(rng, rows_of(rng, "public"))
        path = folder / "public.csv"
        path.write_bytes(data)
    else:
        path = folder / "public.parquet"
        note = hostile_parquet(rng, "public", path)
    table = {"path": str(path), "columns": {"female": "female"}}
    rows = people(rng, 400)
    write_csv(folder / "records.csv", [("block", "sex", "age"), *rows])
    limits = {"at_least": {"female": rng.choice([0, 1, 50])}} if rng.random() < 0.5 else {}
    run["invariants"] = [{"facilities": "sex", "geolevel": "block", "table": table, **limits}]
    return note
