"""Dirty CSV files: what makes them so, which a reader may take, and their rows by Python's csv."""

from __future__ import annotations

import csv
import io
import re

Rows = list[tuple[str, ...]]

NOTES = ["", "x", 'x"y', "5'", '""', '"x"', '"x ""y"""', "é", "\u2028", "x y"]
BROKEN_NOTES = ['"x', '"', 'x"\n"', '"x\ny"', "x\ry", "\0", "x\n", '"""', "x\n\n", '"x"\n"y"']
DIRT = [
    *(b'"', b'"', b'""', b'"x', b'x"', b',"', b'",', b'"\n', b'\n"', b'"\r\n', b"'", b"\\"),
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r\n", b"\n\r\n", b"\0", b"\xff", b"\xe9", b" ", b"\x0b"),
    *(b"\xef\xbb\xbf", b",", b",,", b";", b"0101,male\n", b"\n \n", "\x85\u2029".encode()),
]


def _by_csv(text: str, quoting: str) -> list[list[str]]:
    style = csv.QUOTE_MINIMAL if quoting == "double" else csv.QUOTE_NONE
    return list(csv.reader(io.StringIO(text, newline=""), quoting=style))


def expected(content: bytes, quoting: str) -> tuple[Rows, str]:
    """Header and rows by Python's csv, and why no reader should take the file, if so."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return [], "not UTF-8"
    if "\0" in text:
        return [], "null byte"
    if re.search(r"\r(?!\n)", text):
        return [], "carriage return"
    if not text.partition("\n")[0].encode().strip():
        return [], "no header"
    *rows, last = _by_csv(text + "\nlast", quoting)
    if last != ["last"] or any("\n" in field for row in rows for field in row):
        return [], "line break"
    table = [tuple(row) for row in rows if row]
    if len(table[0]) == 1 and "" in text.replace("\r\n", "\n").removesuffix("\n").split("\n"):
        return table, "blank"
    if any(len(row) != len(table[0]) for row in table):
        return table, "ragged"
    return table, ""


def first_refused(content: bytes, quoting: str) -> int:
    """The line with which the beginning of a file becomes one that no reader should take."""
    pieces = content.split(b"\n")
    for number in range(1, len(pieces)):
        if expected(b"\n".join(pieces[:number]) + b"\n", quoting)[1]:
            return number
    return len(pieces)
